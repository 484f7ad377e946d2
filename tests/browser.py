"""A real browser: Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    expect,
    sync_playwright,
)

ARGUMENTS = (
    "--no-sandbox",  # containers of build servers run as root
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
)


_PATIENCE = 60_000
"""Milliseconds: on a machine that does other things too, a page takes its time."""
expect.set_options(timeout=_PATIENCE)


def binary() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.fail(
        "no browser: install Chromium (Debian and Ubuntu: apt-get install chromium), then run the tests again"
    )


# Not for the whole session: while Playwright waits, its thread has an event loop, and asyncio.run refuses to start.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=binary(), args=list(ARGUMENTS)
        )
        yield browser
        browser.close()


class Noticed(list[str]):
    """What a page complained of, asked or fetched elsewhere: nothing, if all is well."""


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of 1280 x 800 that makes no noise: no error in its console, no dialog, no request to elsewhere."""
    context = chromium.new_context(
        viewport={"width": 1280, "height": 800}, reduced_motion="reduce"
    )
    context.set_default_timeout(_PATIENCE)
    opened = context.new_page()
    noticed = Noticed()
    watch(opened, noticed)
    yield opened
    context.close()
    assert noticed == []


def watch(page: Page, noticed: Noticed) -> None:
    def dialog(opened: Dialog) -> None:
        noticed.append(f"dialog: {opened.message}")
        opened.dismiss()

    page.on("pageerror", lambda error: noticed.append(f"error: {error}"))
    page.on(
        "console",
        lambda message: noticed.append(message.text) if _is_error(message) else None,
    )
    page.on("dialog", dialog)
    page.on(
        "request",
        lambda request: (
            None if _near(request.url) else noticed.append(f"request: {request.url}")
        ),
    )


def _is_error(message: ConsoleMessage) -> bool:
    """An answer such as 404 is no error of the page's: tests that care for it look at it themselves."""
    return message.type == "error" and not message.text.startswith(
        "Failed to load resource"
    )


def _near(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "file:", "data:", "blob:", "about:"))
