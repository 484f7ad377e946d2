"""The report as one page: opened from disk in a real browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from axe_playwright_python.sync_playwright import Axe
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from playwright.sync_api import Browser, Page

from editjudge.report.charts import (
    Dot,
    DotChart,
    HeatCell,
    HeatMap,
    Histograms,
    draw,
)
from editjudge.report.page import rendered
from editjudge.report.run_data import load as load_run
from editjudge.report.summary import measure
from editjudge.report.tables import Table
from editjudge.report.templating import ROWS, clipped, render_macro, visible
from editjudge.rubrics.files import load
from editjudge.stats.columns import Interval
from editjudge.store.store import Store
from tests.browser import chromium, page
from tests.cli.stores import Call, Spec, call
from tests.cli.stores import made as by_hand
from tests.faults import shows

from .made import Made, made

__all__ = ["call", "chromium", "page"]

HOSTILE = (
    "<script>window.hacked=1</script><img src=x onerror=\"window.hacked=1\"><a href='javascript:window.hacked=1'>x</a>"
    "</style><style>body{display:none}</style></pre></td></p>--><svg onload=window.hacked=1>\u202eevil\x1b[31m\x00"
)
WROTE = re.compile(r"wrote ")


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("houses"), Made(3))


@pytest.fixture(scope="module")
def written(houses: Path) -> Path:
    """Its page."""
    path = houses.with_name("report.html")
    with Store.open(houses, readonly=True) as store:
        path.write_text(
            rendered(measure(load_run(store, "1", evidence=True)), "html", store),
            "utf-8",
        )
    return path


@pytest.fixture
def report(call: Call, tmp_path: Path) -> Any:
    """Writes the page of a store, and answers where."""

    def write(store: Path, name: str = "report.html") -> Path:
        done = call("report", "1", "--store", store, "-o", tmp_path / name)
        assert done.code == 0 and WROTE.match(done.out), done.err
        return tmp_path / name

    return write


def test_the_page_says_what_was_judged_by_whom_and_what_failed_before_any_score(
    written: Path,
) -> None:
    text = written.read_text("utf-8")
    assert "openai/painter; server ran painter-2026-10" in text and " UTC" in text
    assert (
        f"preservation {load('preservation').hash[:12]}" in text
        and "input as-is, edited as-is" in text
    )
    assert str(written.parent) not in text, (
        "where somebody keeps their files is nobody's business"
    )
    order = ('class="verdicts"', "Not scored: ", "Paired differences", "Mean by model and factor",
             "Mean by edit type", "<h2>Best<", "Coverage and failures", "How it was judged")  # fmt: skip
    places = [text.index(arguments) for arguments in order]
    assert places == sorted(places), "the answer first, provenance last"
    for section in (
        "failed",
        "contradicted",
        "disputed",
        "best",
        "worst",
        "between",
        "people",
        "questions",
        "left-out",
    ):
        assert f'id="{section}"' in text, section
    assert "[image: edited]" in text, "the question as asked"
    assert shows(text, "34% of the image")


def test_nothing_is_requested_and_every_picture_and_style_is_allowed(
    written: Path, page: Page
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(written.as_uri())
    assert [url for url in asked if not url.startswith("data:")] == [page.url]
    assert page.locator("script").count() == 0 and page.locator("[style]").count() == 0
    pictures = page.locator("img")
    cards = page.locator(".card")
    assert cards.count() > 10 and pictures.count() == 3 * cards.count(), (
        "input and two more of every card"
    )
    assert page.evaluate(
        "[...document.images].every(i => i.complete && i.naturalWidth > 0)"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "no sideways scrolling"
    )


def test_no_table_is_cut_off_in_the_middle(written: Path, page: Page) -> None:
    page.goto(written.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert page.locator("#differences table").count() == 2, (
        "primary scores and factors, by the panel"
    )
    assert page.evaluate(cut) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    written: Path, chromium: Browser, scheme: Any
) -> None:
    context = chromium.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme=scheme
    )
    opened = context.new_page()
    opened.goto(written.as_uri())
    opened.evaluate(
        "document.querySelectorAll('.card:first-child > details').forEach(d => d.open = true)"
    )
    # Only colours depend on the scheme, and looking at everything takes seconds.
    options = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
    found = Axe().run(opened, options=options).response["violations"]
    context.close()
    assert [
        (v["id"], v["nodes"][0]["html"])
        for v in found
        if v["impact"] in ("serious", "critical")
    ] == []


def test_a_strangers_words_are_text_and_nothing_runs(
    report: Any, tmp_path: Path, page: Page
) -> None:
    strange = {"edited": str(tmp_path / "a<script>window.hacked=1<" / "b.png")}
    store = made(
        tmp_path / "x",
        Made(
            2,
            name=HOSTILE,
            instruction=HOSTILE,
            model=HOSTILE,
            reply=HOSTILE,
            files=strange,
        ),
    )
    path = report(store)
    raw = path.read_text("utf-8")
    assert not set(raw) & set("\u202e\x1b\x00") and "\\x202e" in raw
    page.goto(path.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("window.hacked") is None
    assert (
        page.locator(
            "script, iframe, object, embed, base, form, [onerror], [onload]"
        ).count()
        == 0
    )
    assert (
        page.locator("style").count() == 1
        and page.locator("a:not([href^='#'])").count() == 0
    )
    assert (
        "<script>window.hacked=1</script>"
        in page.locator(".instruction").first.inner_text()
    )
    assert page.locator("h1").is_visible(), "no style of theirs applies"


def test_pictures_that_cannot_be_shown_are_words(
    report: Any, call: Call, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    store = made(folder, Made(2))
    (folder / "clean-0.png").unlink()
    (folder / "leaky-0.png").write_bytes(b"no picture")
    Image.new("RGB", (50, 50)).save(folder / "sloppy-0.png")
    (folder / "clean-1.png").unlink()
    (folder / "clean-1.png").symlink_to("/etc/hostname")
    text = report(store).read_text("utf-8")
    assert "clean-0.png: cannot be read" in text
    for name in ("leaky", "sloppy"):
        assert f"{name}-0.png: the file has changed" in text, "whatever it is now"
    assert "clean-1.png: is outside" in text and str(folder) not in text


def test_a_run_without_pictures_or_without_judgements_has_a_page_too(
    report: Any, call: Call, tmp_path: Path
) -> None:
    text = report(made(tmp_path / "x", Made(2, pictures=False))).read_text("utf-8")
    assert "produced no image" in text and "<img" not in text
    pending = by_hand(tmp_path / "e.db", Spec(), lambda *_: "pending")
    text = report(pending, "e.html").read_text("utf-8")
    assert shows(text, "Not scored: 48 pending", "openai/m", "alignment, completeness")


def test_the_same_store_gives_the_same_bytes(
    report: Any, houses: Path, written: Path
) -> None:
    assert report(houses).read_bytes() == written.read_bytes()


def test_size_does_not_grow_with_the_run_and_what_is_left_out_is_said(
    report: Any, tmp_path: Path
) -> None:
    few = report(
        made(tmp_path / "few", Made(30, pictures=False)), "few.html"
    ).read_text("utf-8")
    many = report(
        made(tmp_path / "many", Made(300, pictures=False)), "many.html"
    ).read_text("utf-8")
    assert len(many) < 1.1 * len(few)
    counts = [
        (int(n), int(left))
        for n, left in re.findall(r"6 of ([0-9]+) shown, ([0-9]+) left out\.", many)
    ]
    assert counts and all(n == 6 + left for n, left in counts) and max(counts)[0] > 300
    assert "What was left out" in many and "not ranked" in many


def test_every_form_has_the_same_figures(
    written: Path, call: Call, houses: Path
) -> None:
    text = re.sub(r"<[^>]+>", "|", written.read_text("utf-8"))
    prose = call("report", "1", "--store", houses, "--format", "md").out
    printed = [
        line for part in prose.split("\n\n") for line in part.splitlines()[2 : 2 + ROWS]
    ]
    figures = set(re.findall(r"\d\.\d+ \[\d\.\d+, \d\.\d+\]", "\n".join(printed)))
    assert (
        len(figures) > 30
        and [figure for figure in figures if f"|{figure}|" not in text] == []
    )
    document = call("report", "1", "--store", houses, "--json").document
    checked = sum(count["checked"] for count in document["contradictions"])
    refuted = {c["factor"] for c in document["contradictions"] if c["contradicted"]}
    assert checked and refuted == {"unchanged_regions"}
    for form in ("md", "latex"):
        assert (
            "Contradicted by"
            in call("report", "1", "--store", houses, "--format", form).out
        )
    assert (
        "checked,contradicted"
        in call("report", "1", "--store", houses, "--format", "csv").out
    )


def test_it_prints_without_its_navigation_and_with_whole_tables(
    written: Path, page: Page
) -> None:
    page.goto(written.as_uri())
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert (
        page.evaluate(
            "getComputedStyle(document.querySelector('.table .scroll')).overflow"
        )
        == "visible"
    )
    assert page.pdf().startswith(b"%PDF")


# --- markup and charts ----------------------------------------------------------------------------------------


class _Read(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, name: str, attributes: Any) -> None:
        self.seen.append((name, attributes))

    def handle_data(self, data: str) -> None:
        self.seen.append(data)


@given(
    st.text(
        st.characters() | st.sampled_from("<>&\"'`=/ \n\x00\u202e"),
        min_size=1,
        max_size=60,
    )
)
def test_whatever_is_not_markup_is_text(text: str) -> None:
    """In an element and in an attribute: a caption is both."""
    seen = _Read(
        render_macro("tables.html", "table", Table.of(("a", "b"), [("x", 1)], text))
    ).seen
    labels = [
        dict(entry[1])["aria-label"]
        for entry in seen
        if isinstance(entry, tuple) and entry[0] == "div"
    ]
    assert labels == [visible(text)]
    start, end = (
        n
        for n, entry in enumerate(seen)
        if isinstance(entry, tuple) and entry[0] in ("figcaption", "div")
    )
    assert "".join(seen[start + 1 : end]).removesuffix("\n") == visible(text)
    assert all(char.isprintable() or char == "\n" for char in visible(text))


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert (
        clipped("a" * 12, 10) == "a" * 10 + "… (2 more characters left out)"
        and clipped("a" * 10, 10) == "a" * 10
    )


def test_charts_are_drawings_with_a_mark_for_each_figure() -> None:
    found = [
        Dot(row, series, 3.5, Interval(3, 4))
        for row in ("f<", "g")
        for series in ("a", "b", "c")
    ]
    cells = {("a", "f"): HeatCell(1.0, 9, scale=(1, 7)), ("b", "f"): HeatCell(7.0, 2, Interval(6, 7), (1, 7), 3),
             ("a", "g"): HeatCell(None, 0)}  # fmt: skip
    drawn = {
        "dots": draw(DotChart("t", found, 1, 7, [1, 7])),
        "heat": draw(HeatMap("t", cells)),
        "bars": draw(Histograms("t", {("f", "a"): {"1": 1, "2": 3}})),
    }
    for name, markup in drawn.items():
        assert ElementTree.fromstring(markup).tag == "figure", name  # noqa: S314  # our own
    assert drawn["dots"].count('class="interval') == 6 and "f&lt;" in drawn["dots"]
    assert 'class="h0"><b>1.0</b><i>n 9</i>' in drawn["heat"]
    assert 'class="h8 thin"><b>7.0</b><i>[6.0, 7.0]</i><i>n 2/3</i>' in drawn["heat"], (
        "few edits are faint"
    )
    assert 'class="hnone thin"><b>–</b><i>n 0</i>' in drawn["heat"], (
        "no score is not a score"
    )
