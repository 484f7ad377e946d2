"""Pages of the documentation site that are made of something else: a hook of MkDocs, used by `make docs`.

The first page is README.md, the commands are what `--help` prints, the Python reference is made of docstrings, and the
notebooks of the examples. Links to files that are not pages lead to the repository.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
"""Pages that are files beside the folder of the documentation."""
_LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages. The JSON file of the benchmarks and the like are not pages."""
    from mkdocs.structure.files import File

    pages = {
        name: (ROOT / file).read_text("utf-8") for name, file in ROOT_PAGES.items()
    }
    pages["commands.md"] = "\n".join(command_lines())
    pages["python.md"] = "\n".join(python_lines())
    for notebook in sorted((ROOT / "examples").glob("*.ipynb")):
        pages[f"notebooks/{notebook.stem}.md"] = "\n\n".join(cells(notebook))
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Return the text with links that lead somewhere from this page."""
    parts = _FENCE.split(markdown)
    folder = "" if page.file.src_uri in ROOT_PAGES else "docs"

    def corrected(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        return (
            f"{before}{_address(path, page.file, config, files)}{anchor or ''}{after}"
        )

    if page.file.src_uri.startswith("notebooks/"):
        return markdown
    parts[::2] = [_LINK.sub(corrected, part) for part in parts[::2]]
    return "".join(parts)


def _address(path: str, source: File, config: MkDocsConfig, files: Files) -> str:
    """Return the link to a file of the repository: to its page if it has one."""
    named = {file: page for page, file in ROOT_PAGES.items()}
    page = named.get(path, path.removeprefix("docs/"))
    if files.get_file_from_path(page):
        return posixpath.relpath(page, posixpath.dirname(source.src_uri) or ".")
    return f"{config.repo_url}/blob/main/{path}"


def command_lines() -> Iterator[str]:
    """Yield the page of the command line: the help of every command."""
    from editjudge import cli

    yield "# Command line\n"
    yield "What `editjudge COMMAND --help` prints.\n"
    context = click.Context(cli.app, info_name="editjudge", max_content_width=100)
    yield from _help(cli.app, context, level=2)


def _help(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    heading = "#" * level
    yield f"{heading} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                below = click.Context(
                    inner, context, info_name=name, max_content_width=100
                )
                yield from _help(inner, below, level=min(level + 1, 4))


def python_lines() -> Iterator[str]:
    """Yield the page of the Python reference."""
    import editjudge

    yield "# Python\n"
    yield "Everything that `import editjudge as ej` offers. Options have the names of the command line's.\n"
    members = [getattr(editjudge, name) for name in editjudge.__all__]
    # functions first, since work begins with them
    for member in sorted(members, key=inspect.isclass):
        yield f"::: {member.__module__}.{member.__qualname__}\n"


def cells(notebook: Path) -> Iterator[str]:
    """Yield the cells of a notebook as Markdown. Notebooks are stored without outputs."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
