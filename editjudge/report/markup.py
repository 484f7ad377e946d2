"""HTML and SVG as nested calls: whatever is not made here is text, and is escaped.

Written by hand, and not with a template engine, so that the core install can write reports; what it must do is
escape text and attributes, which the standard library does.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable
from typing import TypeAlias

from editjudge.report.tables import Table

ROWS = 60
"""Rows of one table that a page shows."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | int | float | Iterable[Child] | None"
_VOID = frozenset({"meta", "img", "br", "hr"})


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element; `class_` is class, `aria_label` is aria-label; an attribute that is None or False is left out."""
    given = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def joined(child: Child) -> Markup:
    if isinstance(child, Markup):
        return child
    if child is None:
        return Markup("")
    if isinstance(child, str | int | float):
        return Markup(html.escape(visible(str(child))))
    return Markup("".join(map(joined, child)))


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    # Two decimals of a pixel are more than a screen shows, and the same on every machine.
    text = f"{round(value, 2):g}" if isinstance(value, float) else str(value)
    return f' {name}="{html.escape(visible(text))}"'


def visible(text: str) -> str:
    """Characters that hide, reorder or are no text shown as their codes; lines stay lines."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    return " " if char == "\t" or unicodedata.category(char) == "Zs" else f"\\x{ord(char):02x}"


def clipped(text: str, most: int) -> str:
    """A stranger's text at a length that a page can carry, and how much of it is left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters left out)"


def short(text: str, most: int) -> str:
    """A name where there is no room for more; its whole stands in a table."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def table(shown: Table, most: int = ROWS) -> Markup:
    """The same table as in the other forms; what is beyond `most` rows is counted."""
    rows, texts = shown.cells(most), shown.texts()
    kinds = ["text" if text else "number" for text in texts]
    head = [
        tag("th", clipped(name, 60), class_=kind, scope="col") for name, kind in zip(shown.columns, kinds, strict=True)
    ]
    body = [
        tag(
            "tr",
            [tag("td", clipped(cell, 120), class_=kind) for cell, kind in zip(row, kinds, strict=True)],
            class_="first" if row[0] else None,
        )
        for row in rows
    ]
    notes = list(shown.told)
    if len(shown.rows) > most:
        notes.append(f"and {len(shown.rows) - most:,} more rows left out; `--format csv` and `--format json` have all")
    return tag(
        "figure",
        tag("figcaption", clipped(shown.caption, 300)),
        # A table that is wider than the page scrolls by itself, also by keyboard.
        tag("div", tag("table", tag("thead", tag("tr", head)), tag("tbody", body)), class_="scroll", tabindex="0",
            role="region", aria_label=clipped(shown.caption, 120) or "table") if rows else None,
        tag("ul", [tag("li", clipped(note, 400)) for note in notes], class_="notes") if notes else None,
        class_="table",
    )  # fmt: skip
