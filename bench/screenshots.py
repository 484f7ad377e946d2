"""Screenshots of the pages, for the documents and to look at: `python -m bench.screenshots --output docs/img`.

A site is a context manager that serves its pages; `SITES` names the pages of each. All edits are those of the tests.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from click.testing import CliRunner
from PIL import Image
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
HEIGHT = 900
Addresses = dict[str, str]
"""URL by page name."""
Site = Callable[[Path], AbstractContextManager[Addresses]]
"""Given an empty folder, the pages while the context is open."""


@contextmanager
def report(folder: Path) -> Iterator[Addresses]:
    from tests.report.made import Made, made

    store = made(folder / "houses", Made(12))
    path = folder / "report.html"
    result = CliRunner().invoke(
        app, ["report", "1", "--store", str(store), "-o", str(path)]
    )
    if result.exit_code:
        raise SystemExit(result.output)
    yield {"report": path.as_uri()}


@contextmanager
def review(folder: Path) -> Iterator[Addresses]:
    from editjudge.store.studies import find_study, invite
    from tests.web.sample import made
    from tests.web.served import serving

    with serving(made(folder / "edits"), judge="measured") as served:
        study = {
            "run": "1",
            "rubric": "preservation",
            "name": "Pilot",
            "quota": "12",
            "overlap": "2",
            "controls": "0",
        }
        served.client.post(
            f"{served.url}/rate/new", data=study, follow_redirects=True
        ).raise_for_status()
        code = invite(served.store, find_study(served.store, 1), "Ada")
        yield {
            "home": served.url,
            "table": f"{served.url}/runs/1",
            "grid": f"{served.url}/runs/1?look=grid",
            "edit": f"{served.url}/runs/1/edits/brush-2%2F0#view=wipe&b=edited",
            "compare": f"{served.url}/compare?a=1&b=1&a_model=brush-2&b_model=quill-xl&sort=position",
            "rate": f"{served.url}/rate/{code}",
            "study": f"{served.url}/rate/new?run=1",
            "progress": f"{served.url}/rate/1/progress",
            "docs": f"{served.url}/docs",
        }


@contextmanager
def pairs(folder: Path) -> Iterator[Addresses]:
    from tests.web.test_pair_pages import serving_pairs

    with serving_pairs(folder) as served:
        yield {"leaderboard": f"{served.url}/runs/1/leaderboard"}


SITES: dict[Site, tuple[str, ...]] = {
    report: ("report",),
    review: (
        "home",
        "table",
        "grid",
        "edit",
        "compare",
        "rate",
        "study",
        "progress",
        "docs",
    ),
    pairs: ("leaderboard",),
}
PAGES = [name for names in SITES.values() for name in names]


def photograph(
    browser: Browser, name: str, address: str, folder: Path, *, full: bool
) -> Iterator[Path]:
    """The first screen in light, as the documents show it; `full`: the whole page in every width and scheme."""
    for shot in SHOTS if full else ("light",):
        (width, scheme) = SHOTS[shot]
        path = folder / f"{name}-{shot}.png"
        context = browser.new_context(
            viewport={"width": width, "height": HEIGHT}, color_scheme=scheme
        )
        page = context.new_page()
        page.goto(address, wait_until="networkidle")
        if (
            excess := page.evaluate("document.documentElement.scrollWidth") - width
        ) > 0:
            print(f"{path.name}: {excess} px wider than the screen")
        # What the server computes in the background replaces this notice when it is ready.
        page.get_by_text("reloads by itself").first.wait_for(
            state="detached", timeout=120_000
        )
        image = Image.open(io.BytesIO(page.screenshot(full_page=full))).convert("RGB")
        # A dithered palette makes small files in which photographs still look right.
        image.quantize(
            palette=image.quantize(256), dither=Image.Dither.FLOYDSTEINBERG
        ).save(path, optimize=True)
        context.close()
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "pages", nargs="*", metavar="PAGE", help=f"{', '.join(PAGES)}; all without it"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("docs/img"), help="folder; default docs/img"
    )
    parser.add_argument(
        "--full", action="store_true", help="whole pages, in every width and scheme"
    )
    options = parser.parse_args()
    wanted = set(options.pages or PAGES)
    if unknown := wanted - set(PAGES):
        parser.error(
            f"no page is called {', '.join(sorted(unknown))}; there are {', '.join(PAGES)}"
        )
    from tests.browser import ARGUMENTS, binary

    options.output.mkdir(parents=True, exist_ok=True)
    addresses: Addresses = {}
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        # Before Playwright: while it runs, its thread has an event loop, and asyncio.run refuses to start.
        for number, (site, names) in enumerate(SITES.items()):
            if wanted.intersection(names):
                folder = Path(scratch) / str(number)
                folder.mkdir()
                addresses |= stack.enter_context(site(folder))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=binary(), args=list(ARGUMENTS)
        )
        for name in PAGES:
            if name in wanted:
                for path in photograph(
                    browser, name, addresses[name], options.output, full=options.full
                ):
                    print(path, flush=True)
        browser.close()


if __name__ == "__main__":
    main()
