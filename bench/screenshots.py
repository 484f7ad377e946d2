"""Screenshots of the pages, for the documents and to look at: `python -m bench.screenshots --output docs/img`.

Each page is a function that yields what to open; `PAGES` names them. Every picture is of edits that the tests draw.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from click.testing import CliRunner
from playwright.sync_api import Browser, sync_playwright

from editjudge.cli import app

SHOTS: dict[str, tuple[int, Literal["light", "dark"]]] = {
    "light": (1280, "light"),
    "dark": (1280, "dark"),
    "tablet": (820, "light"),
    "tablet-dark": (820, "dark"),
    "phone": (390, "light"),
    "phone-dark": (390, "dark"),
}
"""Width in pixels and colour scheme; a file is called PAGE-SHOT.png."""
FOR_DOCUMENTS = ("light", "dark", "tablet", "phone")
HEIGHT = 900
Address = Callable[[Path], Iterator[str]]
"""Given an empty folder, yields the address of a page, and cleans up when it is resumed."""


def report(folder: Path) -> Iterator[str]:
    from report.made import Made, made

    store = made(folder / "houses", Made(12))
    path = folder / "report.html"
    result = CliRunner().invoke(app, ["report", "1", "--store", str(store), "-o", str(path)])
    if result.exit_code:
        raise SystemExit(result.output)
    yield path.as_uri()


PAGES: dict[str, Address] = {"report": report}


def photograph(browser: Browser, name: str, address: str, folder: Path, *, full: bool) -> Iterator[Path]:
    """The first screen, for the documents; `full`: the whole page in every width and scheme."""
    for shot in SHOTS if full else FOR_DOCUMENTS:
        (width, scheme), path = SHOTS[shot], folder / f"{name}-{shot}.png"
        context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
        page = context.new_page()
        page.goto(address)
        page.screenshot(path=path, full_page=full)
        context.close()
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"{', '.join(PAGES)}; all without it")
    parser.add_argument("--output", type=Path, default=Path("docs/img"), help="folder; default docs/img")
    parser.add_argument("--full", action="store_true", help="whole pages, in every width and scheme")
    wanted = parser.parse_args()
    # The tests' own modules, under the names by which the tests know them.
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from browser import ARGUMENTS, binary

    wanted.output.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as scratch:
        browser = playwright.chromium.launch(executable_path=binary(), args=list(ARGUMENTS))
        for name in wanted.pages or PAGES:
            folder = Path(scratch) / name
            folder.mkdir()
            for address in PAGES[name](folder):
                for path in photograph(browser, name, address, wanted.output, full=wanted.full):
                    print(path)
        browser.close()


if __name__ == "__main__":
    main()
