"""Tables as terminal text, Markdown, LaTeX, CSV or records.

In the terminal, Markdown and LaTeX, numbers are rounded to the precision of the intervals in their column. CSV and
records have full precision.
"""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from editjudge.errors import one_line
from editjudge.files import spreadsheet_safe
from editjudge.judgement import FAILED

if TYPE_CHECKING:
    from rich.console import RenderableType

    from editjudge.stats.columns import FailureBounds, Interval

WIDTH = 100
"""Width in characters that every table fits into."""
_GAP = 2
"""Characters between two columns."""
_NARROWEST = 6
"""Minimum width of a column. A narrower column, with single letters below each other, cannot be read."""


def decimals(interval: Interval | None) -> int:
    """Return the number of decimals that an interval supports. They show its half-width to one digit, or to two if the
    first is 1 or 2."""
    width = 0.0 if interval is None else (interval.hi - interval.lo) / 2
    if width <= 0:
        return 2
    power = math.floor(math.log10(width))
    return min(4, max(0, (1 if width / 10.0**power < 3 else 0) - power))


def figure_text(
    value: float | None,
    interval: Interval | None = None,
    *,
    sign: bool = False,
    digits: int | None = None,
) -> str:
    """Return a number as text, such as '5.31 [5.10, 5.52]', rounded to `digits` or to the precision of its interval."""
    if value is None:
        return "undefined"
    digits = decimals(interval) if digits is None else digits
    plus = "+" if sign else ""

    def rounded(number: float, digits: int) -> str:
        # Adding zero turns -0.00 into 0.00.
        return f"{round(number, digits) + 0.0:{plus}.{digits}f}"

    def limit(end: float) -> str:
        """Return a number as text, with enough decimals to show on which side of 0 it is."""
        enough = digits
        while end and not round(end, enough) and enough < digits + 3:
            enough += 1
        return rounded(end, enough if round(end, enough) else digits)

    ends = "" if interval is None else f" [{limit(interval.lo)}, {limit(interval.hi)}]"
    return rounded(value, digits) + ends


@dataclass(frozen=True)
class Figure:
    """A number with its interval, and its format in a table."""

    value: float | None
    ci: Interval | None = None
    sign: bool = False
    text: str | None = None
    """Text shown instead of the rounded number."""
    digits: int | None = None
    """Number of decimals, set if the column has numbers on different scales."""
    significant: bool = False
    """Whether a terminal highlights it."""
    parts: tuple[tuple[str, float], ...] = ()
    """Numbers in the text, keyed by name. A data frame has a column for each."""

    def __str__(self) -> str:
        return self.rounded(decimals(self.ci))

    def rounded(self, digits: int) -> str:
        if self.text is not None:
            return self.text
        if self.value is None:
            return "-"
        digits = digits if self.digits is None else self.digits
        return figure_text(self.value, self.ci, sign=self.sign, digits=digits)


Cell: TypeAlias = str | int | float | Figure | None


def p_value(p: float | None) -> Figure:
    if p is None:
        return Figure(None)
    text = f"{p:.2f}"
    if p < 0.1:
        text = "<.0001" if p < 0.0001 else f"{p:.2g}"
    return Figure(p, text=text, significant=p < 0.05)


def bounds_figure(
    bounds: FailureBounds | None, digits: int, *, sign: bool = False
) -> Figure:
    """Return the bounds of a statistic over the possible scores of failed judgements."""
    if bounds is None or bounds.worst is None or bounds.best is None:
        return Figure(None)
    worst = figure_text(bounds.worst, sign=sign, digits=digits)
    best = figure_text(bounds.best, sign=sign, digits=digits)
    return Figure(bounds.worst, text=f"{worst}..{best}")


def coverage_figure(ok: int, n: int) -> Figure:
    """Return the number of scores out of all judgements."""
    return Figure(ok, text=f"{ok:,}/{n:,}")


def column_decimals(intervals: Iterable[Interval | None]) -> int:
    """Return the number of decimals that the typical interval of a column supports. Intervals of width 0 are ignored."""
    digits = [decimals(ci) for ci in intervals if ci and ci.hi > ci.lo]
    return statistics.median_low(digits) if digits else 2


def merge_notes(notes: Mapping[str, Iterable[str]]) -> list[str]:
    """Return each note once, with the names of its rows unless it applies to all rows."""
    about: dict[str, list[str]] = {}
    for row, lines in notes.items():
        for note in lines:
            about.setdefault(note, []).append(row)
    merged = []
    for note, rows in about.items():
        names = f"{', '.join(rows[:3])}{' ...' if len(rows) > 3 else ''}: "
        merged.append(note if len(rows) == len(notes) else names + note)
    return merged


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()
    stub: int = 0
    """Number of leading columns that name the row. A name is left out if it equals the one in the row above."""
    spare: tuple[str | tuple[str, ...], ...] = ()
    """Columns, or groups of columns, that are dropped in this order in a narrow terminal, before names are broken into
    lines."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Meaning of each column. It is printed under the table if the column is shown."""

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Iterable[Sequence[Cell]],
        caption: str = "",
        *,
        notes: Iterable[str] = (),
        **more: Any,
    ) -> Table:
        cells = tuple(tuple(row) for row in rows)
        return cls(tuple(columns), cells, caption, tuple(notes), **more)

    @classmethod
    def listing(
        cls, rows: Iterable[Mapping[str, Cell]], caption: str = "", **more: Any
    ) -> Table:
        """Make a table from rows with the same columns."""
        records = list(rows)
        columns = list(records[0]) if records else []
        cells = (list(record.values()) for record in records)
        return cls.of(columns, cells, caption, **more)

    def folded(self, *names: str) -> Table:
        """Return the table with each column that has the same value in every row moved to the caption."""
        table = self
        for name in names:
            values = table._values(name)
            if len(values) == 1:
                value = str(values.pop())
                suffix = "" if value in ("", "-") else f"; {name} {value}"
                table = replace(table.without(name), caption=table.caption + suffix)
        return table

    def trimmed(self, *names: str) -> Table:
        """Return the table without the named columns whose cells are all empty or zero."""
        table = self
        for name in names:
            if all(map(_is_empty, table._values(name))):
                table = table.without(name)
        return table

    def without(self, name: str) -> Table:
        if name not in self.columns:
            return self
        at = self.columns.index(name)
        return replace(
            self,
            columns=self.columns[:at] + self.columns[at + 1 :],
            rows=tuple(row[:at] + row[at + 1 :] for row in self.rows),
            stub=self.stub - (at < self.stub),
        )

    def _values(self, name: str) -> set[Cell]:
        """Return the distinct cells of a column."""
        if name not in self.columns:
            return set()
        at = self.columns.index(name)
        return {row[at] for row in self.rows}

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Notes and legend below the table."""
        legend = self.legend.items()
        meanings = (f"{name}: {text}" for name, text in legend if name in self.columns)
        return (*self.notes, *meanings)

    # --- for people ---------------------------------------------------------------------------------------------

    def cells(self, most: int | None = None) -> list[list[str]]:
        """Return the first `most` rows as text. By default all rows are returned."""
        columns = [
            map(one_line, _texts(column)) for column in zip(*self.rows, strict=True)
        ]
        lines = []
        before: list[str] = []
        for row in map(list, zip(*columns, strict=True)):
            same = 0
            # The last name column is always shown, so that every row has a name.
            while before and same < self.stub - 1 and row[same] == before[same]:
                same += 1
            lines.append([""] * same + row[same:])
            before = row
        return lines[:most]

    def text_columns(self) -> list[bool]:
        """Return, for each column, whether it contains text."""
        return [
            any(isinstance(row[at], str) for row in self.rows)
            for at in range(len(self.columns))
        ]

    def text(self, width: int = WIDTH) -> str:
        """Return plain text with at most `width` characters per line. Columns are never cut off; wide names are broken
        into lines."""
        from rich.console import Console

        # In a notebook Rich would also display the captured text.
        console = Console(
            file=io.StringIO(),
            width=width,
            color_system=None,
            legacy_windows=False,
            force_jupyter=False,
        )
        with console.capture() as capture:
            console.print(self.renderable(width))
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    def renderable(self, width: int = WIDTH) -> RenderableType:
        """Return the table for a Rich console, which colours failures and significant differences."""
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        table = self
        for names in self.spare:
            if table.width() > width:
                for name in (names,) if isinstance(names, str) else names:
                    table = table.without(name)
        parts: list[RenderableType] = []
        if self.caption:
            parts.append(Text(one_line(self.caption), style="bold"))
        if self.rows:
            parts.append(table._grid(width))
        notes = list(table.footnotes)
        if left_out := [name for name in self.columns if name not in table.columns]:
            notes.append(f"left out for width: {', '.join(left_out)}; JSON has all")
        if notes:
            listed = Grid.grid(padding=(0, 1, 0, 0))
            for note in notes:
                listed.add_row("-", Text(one_line(note)))
            parts.append(listed)
        return Group(*parts)

    def width(self) -> int:
        """Return the width of the table in a terminal without line breaks, in characters."""
        return sum(self._widths()) + _GAP * (len(self.columns) - 1)

    def _widths(self) -> list[int]:
        from rich.cells import cell_len

        rows = [list(map(one_line, self.columns)), *self.cells()]
        return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]

    def _grid(self, width: int) -> RenderableType:
        from rich.box import Box
        from rich.table import Table as Grid
        from rich.text import Text

        rule = Box("    \n    \n ---\n    \n    \n    \n    \n    \n", ascii=True)
        grid = Grid(
            box=rule,
            show_edge=False,
            pad_edge=False,
            padding=(0, _GAP - 1, 0, 0),
            header_style="bold",
        )
        texts = self.text_columns()
        widths = _squeezed(self._widths(), texts, width)
        for name, is_text, w in zip(self.columns, texts, widths, strict=True):
            side: Literal["left", "right"] = "left" if is_text else "right"
            head = Text(_broken(one_line(name), w))
            grid.add_column(head, justify=side, width=w, overflow="fold")
        for cells, row in zip(self.rows, self.cells(), strict=True):
            styles = map(_style, self.columns, cells)
            lines = (
                Text(_broken(text, w), style)
                for text, w, style in zip(row, widths, styles, strict=True)
            )
            significant = any(isinstance(c, Figure) and c.significant for c in cells)
            grid.add_row(*lines, style="green" if significant else None)
        return grid

    def markdown(self) -> str:
        lines = []
        if self.caption:
            lines += [f"**{markdown_text(self.caption)}**", ""]
        if self.rows:
            marks = [":--" if is_text else "--:" for is_text in self.text_columns()]
            rows = [[markdown_text(cell) for cell in row] for row in self.cells()]
            head = [markdown_text(name) for name in self.columns]
            lines += [f"| {' | '.join(row)} |" for row in (head, marks, *rows)]
        if self.footnotes:
            lines += ["", *(f"- {markdown_text(note)}" for note in self.footnotes)]
        return "\n".join(lines)

    def latex(self) -> str:
        r"""Return a `table` with booktabs rules: the document needs `\usepackage{booktabs}`."""
        lines = [r"\begin{table}", r"\centering"]
        if self.caption:
            lines.append(rf"\caption{{{_latex(self.caption)}}}")
        if self.rows:
            marks = "".join("l" if is_text else "r" for is_text in self.text_columns())
            head, *rows = (
                " & ".join(map(_latex, row)) + r" \\"
                for row in (self.columns, *self.cells())
            )
            lines += [rf"\begin{{tabular}}{{{marks}}}", r"\toprule", head, r"\midrule"]
            lines += [*rows, r"\bottomrule", r"\end{tabular}"]
        lines += [
            rf"\par\smallskip\footnotesize {_latex(note)}" for note in self.footnotes
        ]
        return "\n".join([*lines, r"\end{table}"])

    # --- for programs -------------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, object]]:
        """Return the rows at full precision. Intervals have a separate column for each limit."""
        limits = {
            name
            for row in self.rows
            for name, cell in zip(self.columns, row, strict=True)
            if isinstance(cell, Figure) and cell.ci
        }
        records = []
        for row in self.rows:
            record: dict[str, object] = {}
            for name, cell in zip(self.columns, row, strict=True):
                figure = cell if isinstance(cell, Figure) else None
                if figure and figure.parts:
                    record |= figure.parts
                    continue
                record[name] = figure.value if figure else cell
                if name in limits:
                    ci = figure and figure.ci
                    record |= {f"{name}_lo": ci and ci.lo, f"{name}_hi": ci and ci.hi}
            records.append(record)
        return records

    def csv(self) -> str:
        """Return CSV. No cell can be read as a formula by a spreadsheet, whatever the models and items are called."""
        records = self.records()
        head = records[0] if records else self.columns
        file = io.StringIO()
        writer = csv.writer(file)
        for row in (head, *(record.values() for record in records)):
            writer.writerow(map(spreadsheet_safe, row))
        return file.getvalue()


_FAILURES = frozenset(
    {*FAILED, "failed", "missed", "swayed", "not judged", "contradicted"}
)
"""Columns whose counts are highlighted as failures."""


def _is_empty(cell: Cell) -> bool:
    if isinstance(cell, Figure):
        return cell.value is None
    return not cell and not isinstance(cell, float)


def _style(column: str, cell: Cell) -> str:
    """Return the Rich style of a cell: red for failures, bold green for significant results, green for a pass."""
    value = cell
    if isinstance(cell, Figure):
        if cell.significant:
            return "bold green"
        value = cell.value
    if (column in _FAILURES and isinstance(value, int) and value) or value == "fail":
        return "red"
    return "green" if value == "pass" else ""


def _texts(column: Sequence[Cell]) -> list[str]:
    """Return the cells of a column as text, with the decimals that its intervals support."""
    figures = [cell for cell in column if isinstance(cell, Figure)]
    digits = column_decimals(cell.ci for cell in figures if cell.digits is None)
    texts = []
    for cell in column:
        if isinstance(cell, bool | str):
            texts.append(str(cell))
        elif isinstance(cell, int):
            texts.append(f"{cell:,}")
        else:
            figure = cell if isinstance(cell, Figure) else Figure(cell)
            texts.append(figure.rounded(digits))
    return texts


def _squeezed(widths: list[int], texts: Sequence[bool], width: int) -> list[int]:
    """Return column widths that fit the terminal. The widest text column shrinks first, number columns last."""
    widths = list(widths)
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        wide = [n for n, w in enumerate(widths) if w > 2 * _NARROWEST and texts[n]]
        wide = wide or [n for n, w in enumerate(widths) if w > _NARROWEST]
        if not wide:
            break
        widths[max(wide, key=lambda n: widths[n])] -= 1
    return widths


def _broken(text: str, width: int) -> str:
    """Return a name with line breaks after `_`, `/` and `-`, because Rich would break it at any character."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    lines = [""]
    for part in re.findall(r"[^\s_/-]*[\s_/-]*", text):
        if lines[-1] and cell_len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{char: f"\\{char}" for char in "{}$&#%_"},
        "\u2193": r"$\downarrow$",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "[": "{[}",  # at the start of a row, LaTeX reads it as an option of the preceding line break
    }
)


def _latex(text: str) -> str:
    return one_line(text).translate(_LATEX)


def markdown_text(text: str) -> str:
    """Return text on one line, escaped for Markdown."""
    escaped = re.sub(r"([\\`*_|~])|\[(?=[^]]*\]\()", r"\\\g<0>", one_line(text))
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
