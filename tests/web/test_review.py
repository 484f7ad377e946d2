"""Review in a real browser: runs, a run's table, an edit's pictures and words, two compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from editjudge.rubrics.files import load
from editjudge.store.ratings import add_ratings
from editjudge.store.store import Store
from editjudge.web.listing import Browser, Query
from tests import patient
from tests.cli.stores import Spec
from tests.cli.stores import made as by_hand
from tests.web.sample import EDITS, JUDGES, MODELS
from tests.web.served import Served, serving

FIRST = "/runs/1/edits/brush-2%2F0"


def opened(page: Page, sample: Served, path: str = FIRST) -> Page:
    # so that an address that differs in its view alone is opened anew
    page.goto("about:blank")
    page.goto(sample.url + path)
    if "/edits/" in path:
        page.locator("#viewer[data-ready]").wait_for()
    return page


def rows(page: Page) -> Locator:
    return page.locator(".edits tbody th .id")


# --- runs and tables ------------------------------------------------------------------------------------------


def test_runs_lead_to_their_tables(page: Page, sample: Served) -> None:
    opened(page, sample, "/")
    page.get_by_role("link", name="spring").click()
    expect(page.get_by_role("status")).to_contain_text("12 edits")
    expect(rows(page)).to_have_text(
        [f"{model}/{n}" for model in MODELS for n in range(len(EDITS))]
    )


def test_a_table_is_filtered_by_its_form_and_the_address_says_how(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/runs/1")
    page.get_by_role("combobox", name="Model").select_option("quill-xl")
    page.get_by_role("combobox", name="Edit type").select_option("remove")
    expect(page).to_have_url(f"{sample.url}/runs/1?model=quill-xl&edit_type=remove")
    expect(rows(page)).to_have_text(["quill-xl/4"])
    opened(page, sample, page.url.removeprefix(sample.url))
    expect(rows(page)).to_have_text(["quill-xl/4"])


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=missing_output", ["quill-xl/3"]),
        ("status=failed", ["brush-2/3", "quill-xl/3"]),
        ("violation=justification_too_short", ["brush-2/1", "brush-2/5"]),
        ("q=SPOON", ["brush-2/4", "quill-xl/4"]),
        ("q=no+such+words", []),
        ("model=nobody", []),
        ("factor=alignment&least=99", []),
        ("page=99", []),
    ],
)
def test_a_filter_finds_what_it_says(
    sample: Served, query: str, found: list[str]
) -> None:
    shown = patient.get(f"{sample.url}/runs/1?{query}").text
    ids = re.findall(r'<small class="said id">([^<]*)</small>', shown)
    assert ids == found


def test_a_range_of_scores_means_the_mean_over_judges_and_repeats(
    sample: Served,
) -> None:
    run = sample.store.find_run("spring")
    wanted = []
    for number, item in enumerate(sample.store.items(run)):
        scores = [
            row["scores"]["alignment"]
            for row in sample.store.judgements(run, item=item.item, rubric="fidelity")
            if row["scores"]
        ]
        if scores and sum(scores) / len(scores) >= 5:
            wanted.append(number)
    page = Browser(sample.store).page(run, Query(factor="alignment", least="5"))
    names = [item.item for item in sample.store.items(run)]
    assert [row.item.item for row in page.rows] == [names[number] for number in wanted]
    assert 0 < page.total < 12


def test_what_was_abstained_from_is_counted_beside_the_scores(tmp_path: Path) -> None:
    silent = {
        1: {"alignment", "completeness"},
        2: {factor.key for factor in load("quality").factors},
    }

    def say(
        _model: str, n: int, _judge: str, factor: str, _repeat: int
    ) -> int | str | None:
        return (
            "refused"
            if (n, factor) == (2, "alignment")
            else None
            if factor in silent.get(n, ())
            else 5
        )

    spec = Spec(models=("m",), edits=3, rubrics=("online",))
    with serving(by_hand(tmp_path / "s.db", spec, say)) as served:
        shown = patient.get(f"{served.url}/runs/1").text
    cells = re.findall(r'<td class="flags">(.*?)</td>', shown, re.DOTALL)
    words = [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]
    assert words == ["ok", "ok 2 factors abstained", "ok refused abstained in part"]


def test_what_people_rated_under_other_names_stands_apart_and_one_pair_is_one(
    tmp_path: Path,
) -> None:
    place = by_hand(tmp_path / "s.db", Spec(models=("good", "poor"), edits=1))
    with serving(place) as served:
        add_ratings(
            served.store,
            [("good-0", "Ada", "alignment", 6), ("good-0", "Ada", "SC", 0.5)],
        )
        edit = patient.get(f"{served.url}/runs/1/edits/good-0").text
        compared = patient.get(f"{served.url}/compare?a=1&a_model=good&b_model=poor")
    scores, apart = edit.split("Human ratings on other factors")
    words = " ".join(re.sub(r"<[^>]*>", " ", apart.split("</section>")[0]).split())
    assert words == "SC : 0.5 Ada" and "Ada" in scores
    assert "1 pair." in compared.text


def test_sorting_puts_the_best_first_the_worst_first_and_what_has_no_score_last(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/runs/1")
    page.get_by_role("link", name="alignment", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("alignment")
    best = rows(page).all_inner_texts()
    page.get_by_role("link", name="alignment", exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("alignment")
    worst = rows(page).all_inner_texts()
    assert best[-1] == worst[-1] == "quill-xl/3"
    assert best[0].startswith("brush-2/") and worst[0].startswith("quill-xl/")


def test_disagreement_is_of_judges_and_of_people(sample: Served) -> None:
    run = sample.store.find_run("spring")
    disputed = {
        row.item.item
        for row in Browser(sample.store).page(run, Query(disputed="1")).rows
    }
    assert "brush-2/2" in disputed  # the judges are three points apart
    assert "brush-2/0" in disputed  # Ada says 6, Grace 2
    assert "brush-2/1" not in disputed


def test_a_judge_alone_can_be_looked_at(sample: Served) -> None:
    run = sample.store.find_run("spring")
    browser = Browser(sample.store)
    both, one, other = (
        browser.page(run, Query(judge=judge)).rows[2].scores for judge in ("", *JUDGES)
    )
    assert one != other
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(one, other, strict=True)])


def test_contradicted_edits_are_found(sample: Served) -> None:
    page = Browser(sample.store).page(
        sample.store.find_run("summer"), Query(contradicted="1")
    )
    assert [row.item.item for row in page.rows] == ["brush-2/0"]


def test_a_table_is_walked_by_keyboard(page: Page, sample: Served) -> None:
    opened(page, sample, "/runs/1")
    for key in "jjk":
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.textContent") == "Make the cup blue"
    page.keyboard.press("/")
    page.keyboard.type("spoon j")
    assert page.get_by_label("Search").input_value() == "spoon j"


# --- an edit --------------------------------------------------------------------------------------------------


def test_an_edit_shows_its_pictures_side_by_side_at_full_resolution(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    printed = page.locator(".pane:visible img")
    assert printed.evaluate_all(
        "all => all.map(i => [i.alt, i.naturalWidth, i.naturalHeight])"
    ) == [
        ["Input image", 480, 360],
        ["Edited image", 480, 360],
        ["Ground truth image", 480, 360],
    ]
    page.keyboard.press("1")
    assert (
        printed.evaluate_all(
            "all => all.map(i => Math.round(i.getBoundingClientRect().width))"
        )
        == [480] * 3
    )


def test_zoom_and_pan_are_shared_and_kept_in_the_address(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    for key in ("+", "+", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    places = "all => all.map(i => [i.style.transform.match(/-?[0-9.]+/g).map((n) => Math.round(n)), i.style.transform])"
    moved = page.locator(".pane:visible img").evaluate_all(places)
    assert moved[0][0] == moved[1][0] == moved[2][0] and "scale(2.25)" in moved[0][1]
    assert moved[0][0][2] < 0 and moved[0][0][3] < 0
    shared = page.url
    assert "zoom=2.25" in shared
    opened(page, sample, shared.removeprefix(sample.url))
    again = page.locator(".pane:visible img").evaluate_all(
        "all => all.map(i => i.style.transform)"
    )
    assert all("scale(2.25)" in transform for transform in again)
    page.keyboard.press("0")
    assert "zoom" not in page.url


def test_the_wheel_zooms_where_it_points(page: Page, sample: Served) -> None:
    opened(page, sample)
    page.locator("#stage").focus()
    box = page.locator(".pane:visible img").first.bounding_box()
    assert box
    at = (box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    page.mouse.move(*at)
    page.mouse.wheel(0, -300)
    expect(page.locator("#zoom")).not_to_contain_text("fit")
    after = page.locator(".pane:visible img").first.bounding_box()
    assert after
    assert (
        (at[0] - after["x"]) / after["width"],
        (at[1] - after["y"]) / after["height"],
    ) == pytest.approx((0.25, 0.25), abs=0.02)


def test_the_wipe_uncovers_one_picture_over_the_other(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    page.keyboard.press("w")
    top = page.locator("#single img[data-label=Edited]")
    expect(page.locator("#caption")).to_contain_text("Left Input, right Edited")
    assert top.evaluate("i => i.style.clipPath") == "inset(0px 0px 0px 50%)"
    page.get_by_role("slider", name="Wipe").fill("0")
    assert top.evaluate("i => i.style.clipPath") in (
        "inset(0px)",
        "inset(0px 0px 0px 0%)",
    )
    box = page.locator("#single").bounding_box()
    assert box
    page.mouse.move(box["x"] + 10, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 200)
    page.mouse.up()
    assert int(page.get_by_role("slider", name="Wipe").input_value()) >= 99
    page.keyboard.press("s")
    assert page.locator(".pane:visible img").count() == 3


def test_blinking_shows_one_picture_then_the_other_in_the_same_place(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    page.keyboard.press("b")
    caption = page.locator("#caption")
    expect(caption).to_have_text("B: Edited")
    expect(caption).to_have_text("A: Input")
    page.keyboard.press("b")  # stops
    page.get_by_role("combobox", name="B", exact=True).select_option("ground_truth")
    page.keyboard.press("b")
    page.locator("#stage").focus()
    page.keyboard.press(" ")
    before = caption.inner_text()
    page.keyboard.press(" ")
    assert {before, caption.inner_text()} == {"A: Input", "B: Ground truth"}
    boxes = page.locator("#single img[data-label]").evaluate_all(
        "all => all.map(i => JSON.stringify(i.getBoundingClientRect()))"
    )
    assert len(boxes) == 2 and len(set(boxes)) == 1


def test_the_difference_is_bright_where_pictures_differ_and_dark_elsewhere(
    page: Page, sample: Served
) -> None:
    opened(page, sample, FIRST)
    page.get_by_role("button", name="Difference").click()
    expect(page.locator("#caption")).to_contain_text("% of the pixels differ")
    colour = "(c, at) => [...c.getContext('2d').getImageData(...at, 1, 1).data].slice(0, 3).reduce((a, b) => a + b)"
    heat = page.locator("#heat")
    # within what was recoloured
    assert heat.evaluate(f"c => ({colour})(c, [200, 150])") > 250
    assert heat.evaluate(f"c => ({colour})(c, [5, 5])") < 40


def test_pictures_of_other_sizes_are_compared_without_stretching(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/runs/1/edits/quill-xl%2F4#view=wipe")
    sizes = page.locator("#single img[data-label]").evaluate_all(
        "all => all.map(i => [i.naturalWidth, i.offsetWidth])"
    )
    assert sizes[0][0] != sizes[1][0] and sizes[0][1] == sizes[1][1]


def test_measured_evidence_is_drawn_over_the_edited_picture(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    page.keyboard.press("e")
    expect(page.locator("#caption")).to_contain_text("Visible changes", timeout=60_000)
    assert page.locator("#proof").evaluate("i => i.naturalWidth") > 100


def test_an_edit_without_a_picture_says_so_and_can_still_be_looked_at(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/runs/1/edits/quill-xl%2F3")
    expect(page.locator("#stage")).to_contain_text("The model produced no image.")
    page.keyboard.press("h")
    expect(page.locator("#caption")).to_contain_text("Two different images are needed")
    expect(page.locator(".reasons").first).to_contain_text(
        "the editing model produced no picture"
    )


def test_scores_reasons_people_replies_and_the_question_are_all_there(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    row = page.locator(".scores tr", has_text="Alignment")
    for words in ("Ada", "Grace"):
        expect(row).to_contain_text(words)
    mean = row.locator("[data-label=Mean]")
    spread = row.locator("[data-label=Spread]")
    assert (mean.inner_text(), spread.inner_text()) == ("7", "0")
    reason = page.locator(".reasons", has_text="Alignment").locator("dd").first
    expect(reason).not_to_be_visible()
    page.locator(".reasons", has_text="Alignment").locator("summary").click()
    expect(reason).to_contain_text("Exactly what was asked for")
    for words in (
        "[image: edited]",
        "Make the cup blue",
        '"justification"',
        "2.4 s",
        "1,840 tokens in",
        "$0.0061",
    ):
        expect(page.locator("#words").locator("..")).to_contain_text(words)
    opened(page, sample, "/runs/2/edits/brush-2%2F0")
    notice = page.get_by_text("measured: 31% of the image outside the region did")
    expect(notice.first).to_be_visible()


def test_a_picture_that_was_replaced_since_is_told(
    page: Page, sample: Served, folder: Path
) -> None:
    path = folder / "img" / "brush-2-5-edited.jpg"
    kept = path.read_bytes()
    path.write_bytes((folder / "img" / "brush-2-4-edited.jpg").read_bytes())
    try:
        opened(page, sample, "/runs/1/edits/brush-2%2F5")
        expect(
            page.get_by_text("the file has changed since it was judged")
        ).to_be_visible()
    finally:
        path.write_bytes(kept)


def test_keys_go_on_through_the_filtered_order_and_to_the_next_disagreement(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/runs/1/edits/brush-2%2F0?model=brush-2#view=wipe")
    expect(page.locator(".tools")).to_contain_text("1 of 6")
    page.keyboard.press("j")
    page.wait_for_url("**/brush-2%2F1?model=brush-2#view=wipe")
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("d")
    page.wait_for_url("**/brush-2%2F2?model=brush-2#view=wipe")
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("k")
    page.wait_for_url("**/brush-2%2F1?**")
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("u")
    page.wait_for_url("**/runs/1?model=brush-2")


def test_the_keys_are_listed_and_can_be_switched_off(
    page: Page, sample: Served
) -> None:
    opened(page, sample)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_contain_text("next edit that judges or people disagree on")
    dialog.get_by_label("single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("w")
    assert page.locator("#single").is_hidden()


# --- two compared ---------------------------------------------------------------------------------------------


def test_two_models_are_compared_edit_by_edit(page: Page, sample: Served) -> None:
    opened(page, sample, "/compare?a=1&b=1&a_model=brush-2&b_model=quill-xl")
    expect(page.get_by_role("status").last).to_contain_text("6 pairs")
    expect(page.locator(".pairs > li")).to_have_count(6)
    page.get_by_role("combobox", name="Order").select_option("as in the manifest")
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile("[?&]sort="))
    page.get_by_role("link", name="Make the cup blue").click()
    page.locator("#viewer[data-ready]").wait_for()
    page.keyboard.press("w")
    expect(page.locator("#caption")).to_contain_text(
        "Left Edited, right The other edit"
    )


def test_a_difference_is_b_less_a_as_on_the_command_line(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/compare?a=1&b=2&sort=-alignment")
    expect(page.locator(".gaps").first.get_by_role("columnheader").last).to_have_text(
        "B − A"
    )
    cells = (
        page.locator(".gaps tbody tr")
        .filter(has_text="alignment")
        .first.get_by_role("cell")
    )
    a, b, gap = (float(text) for text in cells.all_inner_texts())
    assert gap == b - a > 0


def test_two_runs_are_compared_by_what_was_to_be_edited(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/compare?a=1&b=2")
    expect(page.get_by_role("status").last).to_contain_text("12 pairs")


def test_comparing_something_with_itself_is_refused_in_words(sample: Served) -> None:
    answer = patient.get(
        f"{sample.url}/compare?a=1&b=1", headers={"accept": "text/html"}
    )
    assert answer.status_code == 400 and "the same" in answer.text


# --- drawn so that it can be read -----------------------------------------------------------------------------


def test_scores_are_in_sight_on_a_tall_window(page: Page, sample: Served) -> None:
    page.set_viewport_size({"width": 1280, "height": 1600})
    opened(page, sample)
    expect(page.locator(".scores tbody tr").nth(2)).to_be_in_viewport()


def test_the_spread_is_apart_from_the_last_rubric(page: Page, sample: Served) -> None:
    opened(page, sample, "/runs/1")
    for cells in (
        "thead tr:first-child > :last-child",
        "thead tr:last-child > :last-child",
        "tbody tr > :last-child",
    ):
        for cell in page.locator(f".edits {cells}").all():
            assert (
                cell.evaluate("cell => getComputedStyle(cell).borderLeftStyle")
                == "solid"
            ), cells


def test_the_line_under_an_id_is_below_its_underscores(
    page: Page, sample: Served
) -> None:
    opened(page, sample, "/compare?a=1&b=2")
    style = "link => [getComputedStyle(link).textUnderlineOffset, getComputedStyle(link).fontSize]"
    offset, size = (
        float(text.removesuffix("px"))
        for text in page.locator("figcaption a").first.evaluate(style)
    )
    assert offset >= size / 4


# --- accessible -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", ["/", "/runs/1", "/runs/1?look=grid", FIRST, "/compare?a=1&b=2", "/docs"]
)
def test_axe_finds_nothing_serious(
    page: Page, sample: Served, path: str, scheme: str
) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    opened(page, sample, path)
    found = [
        v
        for v in Axe().run(page).response["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert [
        (v["id"], [node["html"][:200] for node in v["nodes"][:3]]) for v in found
    ] == []


def test_nothing_is_wider_than_a_tablet_or_a_phone(page: Page, sample: Served) -> None:
    for width in (820, 390):
        page.set_viewport_size({"width": width, "height": 1180})
        for path in (
            "/",
            "/runs/1",
            "/runs/1?look=grid",
            FIRST,
            "/compare?a=1&b=2",
            "/docs",
            "/rate/new?run=1",
        ):
            opened(page, sample, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (
                path,
                width,
            )


# --- large runs -----------------------------------------------------------------------------------------------


def test_a_page_and_an_edit_never_walk_through_the_whole_run(tmp_path: Path) -> None:
    """By SQLite's own account of its plan: at a million edits a walk takes seconds."""
    plans: list[str] = []

    def explain(
        connection: sa.Connection,
        cursor: object,
        statement: str,
        parameters: tuple[object, ...],
        *_: object,
    ) -> None:
        if statement.startswith("SELECT"):
            rows = connection.connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )
            plans.extend(row[3] for row in rows)

    with Store.open(by_hand(tmp_path / "s.db", Spec("r", edits=20))) as store:
        browser = Browser(store)
        run = store.find_run("r")
        row = browser.page(run, Query()).rows[1]  # fills the facts, which does walk
        sa.event.listen(store._engine, "before_cursor_execute", explain)
        browser.page(run, Query())
        browser.neighbours(run, Query(), row.item.item)
    assert len(plans) > 5
    walks = [
        plan
        for plan in plans
        if plan.startswith("SCAN ") or plan.endswith("(run_id=?)")
    ]
    # Rubrics and runs are few, and so are annotations.
    few = ("SCAN rubrics", "SCAN runs", "SCAN annotations", "SCAN ratings")
    assert [
        plan
        for plan in walks
        if "COVERING INDEX items_by_position" not in plan and not plan.startswith(few)
    ] == []


def test_the_first_page_counts_what_is_in_the_store(sample: Served) -> None:
    shown = patient.get(f"{sample.url}/").text
    words = " ".join(re.sub(r"<[^>]*>", " ", shown).split())
    totals = sample.store.totals()[1]
    assert f"{totals.statuses.total()} judgements" in words
    for status, number in totals.statuses.items():
        assert f"{number} {status.replace('_', ' ')}" in words
    assert f"${totals.cost:.2f} + unknown cost" in words
    assert "brush-2 and quill-xl: no evidence of a difference" in words
