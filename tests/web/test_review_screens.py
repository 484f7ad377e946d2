"""The review pages are drawn light, dark and on a tablet; `python -m bench.screenshots` writes pictures of them."""

from __future__ import annotations

import io

import pytest
from PIL import Image
from playwright.sync_api import Page

from tests.web.served import Served

PAGES = {
    "runs": "/",
    "table": "/runs/1",
    "edit": "/runs/1/edits/brush-2%2F0#view=wipe&b=edited",
    "compare": "/compare?a=1&b=1&a_model=brush-2&b_model=quill-xl&sort=position",
}
LOOKS = {
    "light": ("light", 1280, 800),
    "dark": ("dark", 1280, 800),
    "tablet": ("light", 820, 1180),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_light_dark_and_on_a_tablet(
    page: Page, sample: Served, name: str
) -> None:
    brightness = {}
    for look, (scheme, width, height) in LOOKS.items():
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_viewport_size({"width": width, "height": height})
        page.goto("about:blank")
        page.goto(sample.url + PAGES[name], wait_until="networkidle")
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        assert shot.size == (width, height)
        brightness[look] = sum(shot.getpixel((3, height - 3))) / 3  # type: ignore[arg-type]
    assert (
        brightness["dark"] < 60 and min(brightness["light"], brightness["tablet"]) > 200
    )
