"""What a table and an edit's page let reviewers do: filter as they type, tag, export, and look further."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from playwright.sync_api import Page, expect

from editjudge.report.comparison import compare_tables, conclusions, differences
from editjudge.report.run_data import load
from editjudge.report.selection import Choice
from editjudge.store.ratings import annotations_of
from editjudge.web.comparing import PairTest
from tests import patient
from tests.web.served import Served

FIRST = "/runs/1/edits/brush-2%2F0"
HTML = {"accept": "text/html"}


def test_a_filter_applies_while_it_is_typed_and_keeps_the_focus(
    page: Page, sample: Served
) -> None:
    page.goto(f"{sample.url}/runs/1")
    page.get_by_role("searchbox").press_sequentially("spoon")
    expect(page.locator(".edits tbody tr")).to_have_count(2)
    expect(page).to_have_url(f"{sample.url}/runs/1?q=spoon")
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page.get_by_role("button", name="Apply")).to_be_hidden()


def test_without_script_a_button_applies_the_filters(sample: Served) -> None:
    text = patient.get(f"{sample.url}/runs/1", headers=HTML).text
    assert '<button class="primary" id="apply">Apply</button>' in text


def test_every_column_that_sorts_says_so_and_the_sorted_one_says_how(
    page: Page, sample: Served
) -> None:
    page.goto(f"{sample.url}/runs/1")
    headers = page.locator(".edits thead tr:last-child th.factor")
    assert headers.count() == headers.locator(".arrow").count() > 10
    page.get_by_role("link", name="overall", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("overall")
    scores = [
        float(text)
        for text in page.locator(".edits tbody tr td:nth-child(4)").all_inner_texts()
        if text != "–"
    ]
    assert scores == sorted(scores, reverse=True) and len(scores) > 8


def test_peoples_ratings_have_a_column(page: Page, sample: Served) -> None:
    page.goto(f"{sample.url}/runs/1?sort=-people:alignment")
    expect(page.locator(".edits tbody tr").first).to_contain_text("brush-2/0")
    # Ada says 6, Grace 2
    expect(page.locator(".edits tbody tr").first.locator("td").nth(-2)).to_have_text(
        "4"
    )


def test_the_grid_has_large_pictures(page: Page, sample: Served) -> None:
    page.goto(f"{sample.url}/runs/1")
    page.get_by_role("link", name="Grid").click()
    expect(page.locator(".card")).to_have_count(12)
    assert (
        page.locator(".card img").first.evaluate(
            "image => image.getBoundingClientRect().width"
        )
        > 150
    )
    page.locator(".card h2 a").first.click()
    expect(page.locator("#viewer[data-ready]")).to_be_visible()


def test_a_view_is_an_address_and_is_not_saved(page: Page, sample: Served) -> None:
    page.goto(f"{sample.url}/runs/1")
    page.locator("select[name=model]").select_option("quill-xl")
    page.locator("select[name=sort]").select_option("-position")
    expect(page).to_have_url(f"{sample.url}/runs/1?model=quill-xl&sort=-position")
    expect(page.locator(".edits tbody tr")).to_have_count(6)
    rows = page.locator(".edits tbody th .id").all_inner_texts()
    page.goto("about:blank")
    page.goto(f"{sample.url}/runs/1?model=quill-xl&sort=-position")
    assert (
        page.locator(".edits tbody th .id").all_inner_texts()
        == rows
        == [f"quill-xl/{n}" for n in (5, 4, 3, 2, 1, 0)]
    )
    expect(page.get_by_text("Saved views")).to_have_count(0)
    saved = patient.post(
        f"{sample.url}/runs/1/views", data={"name": "x"}, headers={"origin": sample.url}
    )
    assert saved.status_code == 404


def test_tags_and_a_note_are_kept_shown_as_text_filtered_by_and_exported(
    page: Page, sample: Served
) -> None:
    page.goto(sample.url + FIRST)
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("t")
    expect(page.get_by_role("textbox", name="Tags")).to_be_focused()
    page.get_by_role("textbox", name="Tags").fill("seam, <i>odd</i>")
    page.get_by_role("textbox", name="Note").fill("=1+1 <script>alert(1)</script>")
    page.get_by_role("button", name="Save tags and note").click()
    expect(page.get_by_role("textbox", name="Note")).to_have_value(
        "=1+1 <script>alert(1)</script>"
    )
    run = sample.store.find_run("spring")
    assert annotations_of(sample.store, run)["brush-2/0"].tags == ("seam", "<i>odd</i>")
    lines = patient.get(f"{sample.url}/runs/1/export.jsonl?tag=seam").text.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["item"], row["tags"], row["people"]) for row in rows] == [
        ("brush-2/0", ["seam", "<i>odd</i>"], {"people:alignment": 4.0})
    ]
    table = list(
        csv.DictReader(
            io.StringIO(patient.get(f"{sample.url}/runs/1/export.csv?tag=seam").text)
        )
    )
    assert table[0]["note"].startswith("'=1+1") and float(
        table[0]["overall"]
    ) == pytest.approx(rows[0]["overall"])
    patient.post(
        sample.url + FIRST,
        data={"tags": "", "note": ""},
        headers={"origin": sample.url},
    )
    assert "brush-2/0" not in annotations_of(sample.store, run)


def test_checked_edits_or_all_that_match_are_tagged_at_once(
    page: Page, sample: Served
) -> None:
    def tagged() -> set[str]:
        # An edit of the other model with the very same image has the same tags.
        url = f"{sample.url}/runs/1/export.jsonl?tag=bulk&model=quill-xl"
        return {json.loads(x)["item"] for x in patient.get(url).text.splitlines()}

    page.goto(f"{sample.url}/runs/1?model=quill-xl")
    page.get_by_text("Tag edits").click()
    page.get_by_label("Check quill-xl/3").check()
    page.locator("#tagging input[name=tag]").fill("bulk")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".edits .tag", has_text="bulk")).to_have_count(1)
    assert tagged() == {"quill-xl/3"}
    address = f"{sample.url}/runs/1/tags?model=quill-xl"
    for do, expected in (("add", 6), ("remove", 0)):
        fields = {"tag": "bulk", "to": "all", "do": do}
        answer = patient.post(address, data=fields, headers={"origin": sample.url})
        assert answer.status_code == 303 and len(tagged()) == expected
    fields = {"tag": "bulk", "to": "checked", "do": "add"}
    answer = patient.post(address, data=fields, headers={"origin": sample.url})
    assert answer.status_code == 400


def test_filters_say_how_many_edits_each_value_has(page: Page, sample: Served) -> None:
    page.goto(f"{sample.url}/runs/1")
    models = page.locator("select[name=model] option").all_inner_texts()
    assert models == ["any", "brush-2 (6)", "quill-xl (6)"]
    expect(page.locator("select[name=status]")).to_contain_text("ok (11)")


def test_annotations_are_bounded_and_another_sites_page_cannot_write_them(
    sample: Served,
) -> None:
    long = patient.post(
        sample.url + FIRST,
        data={"tags": "x" * 41, "note": ""},
        headers={"origin": sample.url},
    )
    assert long.status_code == 400 and "limit" in long.text
    for path in (FIRST, "/rate/1/close"):
        answer = patient.post(
            sample.url + path,
            data={"tags": "x", "name": "x"},
            headers={"origin": "http://evil.example"},
        )
        assert answer.status_code == 403


def test_an_export_has_the_edits_of_the_filter_in_its_order(sample: Served) -> None:
    lines = patient.get(
        f"{sample.url}/runs/1/export.jsonl?model=quill-xl&sort=-position"
    ).text.splitlines()
    assert [json.loads(line)["item"] for line in lines] == [
        f"quill-xl/{n}" for n in (5, 4, 3, 2, 1, 0)
    ]


def test_the_other_models_edit_of_the_same_input_is_one_key_away(
    page: Page, sample: Served
) -> None:
    page.goto(sample.url + FIRST)
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("m")
    expect(page.locator("[aria-current=page]").last).to_contain_text("quill-xl")
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("m")
    expect(page).to_have_url(sample.url + FIRST)


def test_scores_stand_beside_the_pictures_at_1100_pixels(
    page: Page, sample: Served
) -> None:
    page.set_viewport_size({"width": 1100, "height": 900})
    page.goto(sample.url + FIRST)
    viewer, scores = (
        page.locator(part).bounding_box() for part in (".viewer", ".aside")
    )
    assert viewer and scores
    assert (
        scores["x"] >= viewer["x"] + viewer["width"]
        and abs(scores["y"] - viewer["y"]) < 5
    )


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_images_fill_the_width_and_the_ground_truth_is_smaller(
    page: Page, sample: Served, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(sample.url + FIRST)
    page.locator("#viewer[data-ready]").wait_for()
    stage, before, after, truth = (
        page.locator(part).bounding_box()
        for part in (
            "#stage",
            "[data-role=input] img",
            "[data-role=edited] img",
            "[data-role=ground_truth] img",
        )
    )
    assert stage and before and after and truth
    columns = 1 if width == 390 else 2
    assert before["width"] == after["width"] > 0.95 * stage["width"] / columns
    assert (before["y"] == after["y"]) == (columns == 2)
    assert truth["width"] < 0.7 * after["width"] and truth["y"] > after["y"]


def test_the_compare_page_says_what_the_terminal_says_by_judge(
    page: Page, sample: Served
) -> None:
    for judge in ("openai/vision-1", "google/looker"):
        reports = differences(
            load(sample.store, "spring"),
            "model",
            "brush-2",
            "quill-xl",
            Choice(judge=judge),
        )
        page.goto(
            f"{sample.url}/compare?a=1&b=1&a_model=brush-2&b_model=quill-xl&judge={judge}"
        )
        cells = page.locator(".differences tbody tr")
        primary, factors = compare_tables(reports, "model")
        expect(cells).to_have_count(len(primary.rows) + len(factors.rows))
        assert "overall" in [row[0] for row in primary.cells(99)]
        assert cells.last.locator("th, td").all_inner_texts() == factors.cells(99)[-1]
        expect(page.locator(".conclusion")).to_have_text(
            [f"{line}." for line in conclusions(reports)]
        )


def test_the_first_page_ranks_models_with_intervals_and_links_the_report(
    page: Page, sample: Served
) -> None:
    page.goto(sample.url)
    board = page.get_by_role("region", name="Leaderboard of spring by openai/vision-1")
    expect(board.locator("tbody tr").first).to_contain_text("brush-2")
    assert "[" in board.locator("tbody tr").first.inner_text()
    page.locator(".run").last.get_by_role("link", name="Report").click()
    expect(page.locator("h1")).to_contain_text("spring")
    # its style applies
    assert (
        page.locator("body").evaluate("body => getComputedStyle(body).fontFamily")
        != "serif"
    )


def test_the_api_is_documented_without_the_network(page: Page, sample: Served) -> None:
    page.goto(f"{sample.url}/docs")
    expect(page.get_by_role("heading", name="POST /v1/reward")).to_be_visible()
    page.get_by_role("link", name="RewardBatch", exact=True).first.click()
    expect(page).to_have_url(f"{sample.url}/docs#RewardBatch")


def test_a_phone_shows_each_row_as_a_card_with_named_scores(
    page: Page, sample: Served
) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{sample.url}/runs/1")
    expect(page.get_by_role("searchbox")).to_be_hidden()  # behind "Filter and sort"
    expect(page.locator(".edits tbody tr").first.locator(".what")).to_be_in_viewport()
    score = page.locator(".edits tbody td.score:not(.unscored)").first
    assert (
        score.evaluate("cell => getComputedStyle(cell, '::before').content")
        == '"overall"'
    )
    page.get_by_text("Filter and sort").click()
    page.locator("select[name=sort]").select_option("overall, lowest first")
    expect(page).to_have_url(f"{sample.url}/runs/1?sort=overall")


def test_the_compare_page_draws_the_forest_plot_and_marks_significant_rows(
    page: Page, sample: Served
) -> None:
    page.goto(
        f"{sample.url}/compare?a=1&b=1&a_model=brush-2&b_model=quill-xl&judge=openai/vision-1"
    )
    judged = load(sample.store, "spring")
    reports = differences(
        judged, "model", "brush-2", "quill-xl", Choice(judge="openai/vision-1")
    )
    mine = [report.difference for report in reports]
    expect(page.locator(".plot .line")).to_have_count(
        2 + sum(d.ci is not None for d in mine)
    )
    expect(page.locator(".differences .evident")).to_have_count(
        sum((d.p_holm or 1) < 0.05 for d in mine)
    )
    names = page.locator(".differences .evident th").all_inner_texts()
    assert names == [d.factor.replace("_", " ") for d in mine if (d.p_holm or 1) < 0.05]


def test_the_first_page_leads_to_a_comparison_of_two_models(
    page: Page, sample: Served
) -> None:
    page.goto(sample.url)
    page.locator(".run").last.get_by_role("link", name="Compare models").click()
    expect(page.get_by_role("heading", name="Is the difference real?")).to_be_visible()


def test_the_compare_page_reloads_until_its_test_is_computed(
    sample: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "editjudge.web.comparing.Pairing._test",
        lambda *_: PairTest("editjudge compare", ready=False),
    )
    answer = patient.get(
        f"{sample.url}/compare?a=1&b=1&a_model=brush-2&b_model=quill-xl", headers=HTML
    )
    assert "being computed" in answer.text and answer.headers["refresh"] == "2"


def test_the_first_page_counts_the_judgements_of_a_run_that_was_added_to(
    sample: Served,
) -> None:
    run = sample.store.find_run("summer")
    sample.store.mark(run, "finished", None)  # as writing to it again leaves it
    total = sum(sample.store.counts(run).values())
    text = (
        patient.get(sample.url, headers=HTML)
        .text.partition("/runs/2/report")[2]
        .partition("<table")[0]
    )
    assert sum(map(int, re.findall(r">· (\d+) ", text))) == total > 0
