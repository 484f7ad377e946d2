"""Rating in a real browser, by hand and by key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from editjudge.store.ratings import read_ratings
from tests.running.made import editjudge
from tests.web.served import Served, serving


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Edits of two of the pretend editors, and a study of them."""
    folder = tmp_path_factory.mktemp("rated")
    manifest = written(folder)
    words = (
        "--rubric",
        "preservation",
        "--judge",
        "measured",
        "--name",
        "r",
        "--store",
        folder / "s.db",
    )
    assert editjudge("run", manifest, *words).code == 0
    with serving(folder / "s.db", judge="measured") as served:
        yield served


def written(folder: Path) -> Path:
    """Twenty edits of small pictures: drawn, so that they are ours."""
    import json

    from PIL import Image, ImageDraw

    rows = []
    for number in range(20):
        picture = Image.linear_gradient("L").resize((120, 90)).convert("RGB")
        draw = ImageDraw.Draw(picture)
        draw.rectangle((10 + 3 * number, 20, 40 + 3 * number, 60), fill=(60, 90, 140))
        picture.save(folder / f"{number}-in.png")
        draw.rectangle((10 + 3 * number, 20, 40 + 3 * number, 60), fill=(170, 60, 50))
        picture.save(folder / f"{number}-out.png")
        row = {
            "id": f"e{number}",
            "input": f"{number}-in.png",
            "edited": f"{number}-out.png",
            "model": "secret-model",
        }
        rows.append(
            json.dumps(
                row
                | {"instruction": f"Make box {number} red <img src=x onerror=alert(1)>"}
            )
        )
    (folder / "edits.jsonl").write_text("\n".join(rows))
    return folder / "edits.jsonl"


def set_up(page: Page, url: str, name: str) -> str:
    page.goto(f"{url}/rate/new")
    return fill_in_study(page, name)


def fill_in_study(page: Page, name: str) -> str:
    """Fill in and send the form that `page` shows; return the study's address."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Rubric").select_option("preservation")
    page.get_by_label("Edits for each rater").fill("20")
    page.get_by_label("Controls for each rater").fill("0")
    page.get_by_role("button", name="Set up").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    return page.url.removesuffix("/progress")


def rate(chromium: Browser, study: str, url: str, name: str, score: int) -> None:
    """Twenty edits by keys alone: three scores and Enter each."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        begin(page, url, study, name)
        for number in range(1, 21):
            expect(page).to_have_title(
                re.compile(f"^Edit {number} of 20 · Study [0-9]+ · editjudge$")
            )
            assert "secret-model" not in page.content()
            for _ in range(3):
                page.keyboard.press(str(1 + (score + len(page.url)) % 7))
            page.keyboard.press("Enter")
            page.wait_for_url(lambda address, n=number: not address.endswith(f"/{n}"))  # type: ignore[misc]
        expect(page.get_by_role("heading", name="Done. Thank you")).to_be_visible()
    finally:
        context.close()


def test_two_people_rate_twenty_edits_by_key_and_their_agreement_shows(
    rated: Served, page: Page, chromium: Browser
) -> None:
    study = set_up(page, rated.url, "two people")
    for name, score in (("Ann", 4), ("Bob", 5)):
        rate(chromium, study, rated.url, name, score)
    assert len(read_ratings(rated.store)) == 2 * 20 * 3
    page.goto(f"{study}/progress")
    row = page.get_by_role("row").filter(has_text="Unchanged regions")
    expect(row).to_contain_text("40")
    expect(page.get_by_role("row").filter(has_text="Bob")).to_contain_text("20")


def begin(page: Page, url: str, study: str, rater: str) -> None:
    page.goto(f"{url}/rate")
    page.get_by_label("Your name").fill(rater)
    page.get_by_role("button", name="Begin").click()
    # else the next page cancels the sign-in
    expect(page.get_by_role("button", name="Change")).to_be_visible()
    page.goto(study)


def test_an_answer_by_hand_is_saved_before_the_page_is_left_and_can_be_changed(
    rated: Served, page: Page
) -> None:
    study = set_up(page, rated.url, "by hand")
    begin(page, rated.url, study, "Cid")
    question = page.get_by_role("radiogroup", name="Unchanged regions")
    question.get_by_text("6", exact=True).click()
    expect(page.locator("#saved")).to_have_text("saved")
    page.reload()
    expect(question.locator("[value='6']")).to_be_checked()
    question.get_by_text("Can’t tell").click()
    expect(page.locator("#saved")).to_have_text("saved")
    assert [row for row in read_ratings(rated.store) if row[1] == "Cid"] == []


def test_enter_stays_at_what_is_still_open(rated: Served, page: Page) -> None:
    study = set_up(page, rated.url, "still open")
    begin(page, rated.url, study, "Dee")
    here = page.url
    page.keyboard.press("5")
    page.keyboard.press("Enter")
    expect(page.locator("#saved")).to_have_text("this question is still open")
    assert page.url == here


def test_a_hostile_instruction_is_text(rated: Served, page: Page) -> None:
    study = set_up(page, rated.url, "hostile")
    begin(page, rated.url, study, "Eve")
    expect(page.get_by_role("heading", level=1)).to_contain_text(
        "<img src=x onerror=alert(1)>"
    )
    assert page.locator("img[src=x]").count() == 0


def test_blinking_shows_one_picture_at_a_time(rated: Served, page: Page) -> None:
    study = set_up(page, rated.url, "blink")
    begin(page, rated.url, study, "Fay")
    page.keyboard.press("b")
    seen = [page.locator(".pair figure").nth(n).is_visible() for n in (0, 1)]
    assert sorted(seen) == [False, True]
    page.keyboard.press("b")
    assert all(page.locator(".pair figure").nth(n).is_visible() for n in (0, 1))


def test_wiping_and_zooming_compare_the_two_pictures_of_an_edit(
    rated: Served, page: Page
) -> None:
    study = set_up(page, rated.url, "wipe")
    begin(page, rated.url, study, "Ida")
    edited = page.locator("[data-role=edited]")
    page.keyboard.press("w")
    expect(page.locator("#pair")).to_have_class(re.compile("wiping"))
    expect(edited).to_have_css("clip-path", "inset(0px 0px 0px 50%)")
    page.keyboard.press(".")
    expect(edited).to_have_css("clip-path", "inset(0px 0px 0px 54%)")
    page.keyboard.press("w")
    expect(edited).to_have_css("clip-path", "none")
    page.keyboard.press("z")
    expect(page.locator("#zoom")).to_have_text("2×")


@pytest.mark.usefixtures(
    "rated"
)  # made before the browser starts, whose event loop would keep a run from starting
def test_a_study_is_limited_to_a_model_and_its_raters_are_told_when_it_is_closed(
    sample: Served, chromium: Browser, page: Page
) -> None:
    page.goto(f"{sample.url}/rate/new?run=1")
    page.get_by_label("quill-xl").check()
    study = fill_in_study(page, "one model")
    expect(page.get_by_text("Only edits of quill-xl")).to_be_visible()
    context = chromium.new_context()
    try:
        rater = context.new_page()
        begin(rater, sample.url, study, "Joe")
        # Quill-xl has six edits, and produced no picture for one of them.
        expect(rater).to_have_title(re.compile("^Edit 1 of 5 "))
        page.get_by_role("button", name="Close the study").click()
        expect(page.get_by_role("button", name="Open it again")).to_be_visible()
        rater.keyboard.press("5")
        expect(rater.locator("#saved")).to_have_text("not saved: this study is closed")
        rater.goto(study)
        expect(
            rater.get_by_role("heading", name="This study is closed.")
        ).to_be_visible()
        assert [row for row in read_ratings(sample.store) if row[1] == "Joe"] == []
        page.get_by_role("button", name="Open it again").click()
        expect(page.get_by_role("button", name="Close the study")).to_be_visible()
        rater.goto(study)
        rater.keyboard.press("5")
        expect(rater.locator("#saved")).to_have_text("saved")
    finally:
        context.close()


@pytest.mark.parametrize("where", ["/rate", "/rate/new", "study", "study/progress"])
def test_axe_finds_nothing_serious(rated: Served, page: Page, where: str) -> None:
    study = set_up(page, rated.url, f"axe {where}")
    begin(page, rated.url, study, "Gus")
    page.goto(
        where.replace("study", study)
        if where.startswith("study")
        else rated.url + where
    )
    found = [
        v
        for v in Axe().run(page).response["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("scheme", "width"),
    [("light", 1280), ("dark", 1280), ("light", 820), ("dark", 390)],
)
def test_the_page_fits(
    sample: Served,
    chromium: Browser,
    page: Page,
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    study = set_up(page, sample.url, f"Pilot {scheme} {width}")
    context = chromium.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    try:
        opened = context.new_page()
        begin(opened, sample.url, study, "Hal")
        opened.keyboard.press("6")
        expect(opened.locator("#saved")).to_have_text("saved")
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        context.close()


def test_on_a_phone_next_is_at_the_bottom_and_reasons_are_folded(
    rated: Served, page: Page, chromium: Browser
) -> None:
    study = set_up(page, rated.url, "phone")
    context = chromium.new_context(
        viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True
    )
    try:
        phone = context.new_page()
        begin(phone, rated.url, study, "Pia")
        expect(phone.get_by_text("You rate 20 edits, with 3 questions")).to_be_visible()
        for end in ("0", "document.body.scrollHeight"):
            phone.evaluate(f"scrollTo(0, {end})")
            box = phone.locator("#next").bounding_box()
            assert box and 700 < box["y"] < 800 - box["height"] + 1
        expect(phone.locator("textarea").first).to_be_hidden()
        expect(phone.locator("kbd").first).to_be_hidden()
        phone.get_by_text("Add a reason").first.click()
        expect(phone.locator("textarea").first).to_be_visible()
    finally:
        context.close()
