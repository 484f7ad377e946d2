"""Pairs in a real browser: by key, and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.web.served import Served

from .test_pair_pages import serving_pairs, stored, study


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving_pairs(tmp_path_factory.mktemp("pairs")) as server:
        with study(server, "ann"):
            pass
        yield server


def test_keys_choose_wipe_and_zoom_and_a_phone_has_room(
    served: Served, page: Page
) -> None:
    page.goto(f"{served.url}/rate")
    page.get_by_label("Your name").fill("ann")
    page.get_by_role("button", name="Begin").click()
    page.goto(f"{served.url}/rate/1/1")
    expect(page.locator(".question:visible")).to_have_count(1)
    page.get_by_role("button", name="Next question").click()
    expect(page.locator("#step")).to_have_text("2")
    page.get_by_role("button", name="Previous question").click()
    page.keyboard.press("w")
    expect(page.locator("#pair")).to_have_class(re.compile("wiping"))
    page.keyboard.press(".")
    right = page.locator("[data-role=edited_b]")
    expect(right).to_have_css("clip-path", "inset(0px 0px 0px 54%)")
    page.keyboard.press("w")
    expect(right).to_have_css("clip-path", "none")
    page.keyboard.press("z")
    expect(page.locator("#zoom")).to_have_text("2×")
    page.keyboard.press("b")
    expect(page.locator("#pair")).to_have_class(re.compile("blinking"))
    page.keyboard.press("b")
    for key in "1234":
        page.keyboard.press(key)
    expect(page.locator("#saved")).to_have_text("saved")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{served.url}/rate/1/2")
    kept = {factor: choice for (_, _, factor), (choice, _) in stored(served).items()}
    assert kept["preservation"] == "tie" and kept["overall"] == "both_bad"
    assert {kept["instruction"], kept["quality"]} == {"a", "b"}
    page.set_viewport_size({"width": 390, "height": 844})
    items = [item.item for item in served.store.items(1)]
    for path in (
        "/rate/1/2",
        "/runs/1/leaderboard",
        "/runs/1",
        f"/runs/1/edits/{items[0]}",
    ):
        page.goto(served.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
