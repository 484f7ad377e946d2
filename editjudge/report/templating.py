"""HTML pages from Jinja2 templates. A page is a single file that includes its stylesheet, without scripts or requests."""

from __future__ import annotations

import base64
import functools
import hashlib
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from editjudge.report.words import reason_text

ROWS = 60
"""Maximum number of rows in a table on a page."""
_FOLDER = Path(__file__).with_name("templates")


def render(template: str, **values: object) -> str:
    """Render a page. Its content security policy allows only its own stylesheet and inline images."""
    style = stylesheet()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _templates()
        .get_template(template)
        .render(style=Markup(style), style_digest=digest, **values)  # noqa: S704  (our own file)
    )


def stylesheet() -> str:
    return (_FOLDER / "page.css").read_text("utf-8")


def render_macro(template: str, macro: str, *values: object) -> str:
    """Render one macro of a template, such as a table or a chart."""
    rendered: str = getattr(_templates().get_template(template).module, macro)(*values)
    return rendered


def environment(
    folder: Path,
    text: Callable[[str], str],
    filters: Mapping[str, Callable[..., object]],
) -> jinja2.Environment:
    """Return the Jinja2 environment for a folder of templates. Values are escaped, `text` is applied to strings, and a
    missing value is an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: text(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update({"words": reason_text, **filters})
    return made


@functools.cache
def _templates() -> jinja2.Environment:
    filters: dict[str, Callable[..., object]] = {
        "clipped": clipped,
        "short": short,
        "px": pixels,
        "webp": webp_url,
        "breakable": breakable,
        "capitalised": capitalised,
    }
    made = environment(_FOLDER, visible, filters)
    made.globals["ROWS"] = ROWS
    return made


def visible(text: str) -> str:
    """Return text in which invisible, reordering and control characters are replaced by their codes. Line breaks are
    kept."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    is_space = char == "\t" or unicodedata.category(char) == "Zs"
    return " " if is_space else f"\\x{ord(char):02x}"


def clipped(text: str, most: int) -> str:
    """Return untrusted text cut to `most` characters, followed by the number of characters left out."""
    more = f"… ({len(text) - most:,} more characters left out)"
    return text if len(text) <= most else text[:most] + more


def short(text: str, most: int) -> str:
    """Return a label cut to `most` characters. A table next to it shows the full name."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def breakable(key: str) -> Markup:
    """Return a key that may be broken after each underscore, as it is written in a terminal."""
    return Markup(escape(key).replace("_", Markup("_<wbr>")))  # noqa: S704


def capitalised(text: str) -> str:
    """Capitalise the first letter of a sentence. Unlike Jinja's own filter, it leaves the rest unchanged."""
    return text[:1].upper() + text[1:]


def pixels(value: float) -> str:
    """Return a coordinate with two decimals, which is finer than a screen and the same on every machine."""
    return f"{round(value, 2):g}"


def webp_url(data: bytes) -> str:
    return f"data:image/webp;base64,{base64.b64encode(data).decode()}"
