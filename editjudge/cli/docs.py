"""`editjudge docs`: show the pages of the documentation, which are part of the package."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from editjudge.cli.options import verb
from editjudge.cli.output import VerbReply
from editjudge.errors import UsageError, did_you_mean


def _folder() -> Path:
    """Return the folder that contains the pages: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "docs"
    return inside if inside.is_dir() else package.parent / "docs"


def _pages() -> dict[str, Path]:
    return {path.stem: path for path in sorted(_folder().glob("*.md"))}


def _complete(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _pages() if name.startswith(incomplete)]


@verb(example="editjudge docs statistics")
@click.argument("page", required=False, shell_complete=_complete)
def command(page: str | None) -> VerbReply:
    """Show a page of the documentation, or list the pages.

    The pages are those of the installed version. On a terminal a page opens in the pager; in a pipe it is Markdown.
    """
    pages = _pages()
    if page is None:
        titles = {name: _title(path) for name, path in pages.items()}
        width = max(map(len, titles))
        lines = [f"{name:<{width}}  {title}" for name, title in titles.items()]
        return VerbReply({"pages": titles}, lines)
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise UsageError(
            f'no page is called "{page}"{did_you_mean(name, pages)} Pages: {", ".join(pages)}',
            code="unknown_page",
        )
    text = pages[name].read_text("utf-8")
    document = {"page": name, "text": text}
    if not sys.stdout.isatty():
        return VerbReply(document, [text.rstrip("\n")])
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.capture() as capture:
        console.print(Markdown(text))
    click.echo_via_pager(capture.get())
    return VerbReply(document)


def _title(path: Path) -> str:
    """Return the heading of a page."""
    with path.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("# ").strip()
