"""One kind of table for all that people, papers and programs read, and its forms.

Terminal, Markdown and LaTeX are rounded to what the intervals of a column support; CSV and JSON have full precision.
"""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from editjudge.judgement import DONE, STATUSES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from editjudge.stats.columns import FailureBounds, Interval

WIDTH = 100
"""Columns of a terminal that every table fits into."""
_GAP = 2
"""Columns between two columns."""
_NARROWEST = 6
"""A column is not squeezed below this: single letters under each other are no text."""


def decimals(interval: Interval | None) -> int:
    """Return the decimals that an interval supports: its half-width to one digit, or two if that digit is 1 or 2."""
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
    """Return a figure as text, '5.31 [5.10, 5.52]', rounded to what the interval supports unless `digits` says how."""
    if value is None:
        return "undefined"
    digits = decimals(interval) if digits is None else digits
    plus = "+" if sign else ""

    def rounded(number: float, digits: int) -> str:
        # Adding zero makes -0.00 a plain one.
        return f"{round(number, digits) + 0.0:{plus}.{digits}f}"

    def limit(end: float) -> str:
        """Round to as many decimals as it takes to show on which side of 0 it is."""
        enough = digits
        while end and not round(end, enough) and enough < digits + 3:
            enough += 1
        return rounded(end, enough if round(end, enough) else digits)

    ends = "" if interval is None else f" [{limit(interval.lo)}, {limit(interval.hi)}]"
    return rounded(value, digits) + ends


@dataclass(frozen=True)
class Figure:
    """A number with what is known about it."""

    value: float | None
    ci: Interval | None = None
    sign: bool = False
    text: str | None = None
    """Text for people instead of the rounded number."""
    digits: int | None = None
    """Decimals of its own, where its column holds figures on different scales."""
    significant: bool = False
    """Whether a terminal marks it."""
    parts: tuple[tuple[str, float], ...] = ()
    """The numbers in the text by name: a data frame has a column for each."""

    def __str__(self) -> str:
        return self.rounded(decimals(self.ci))

    def rounded(self, digits: int) -> str:
        if self.text is not None:
            return self.text
        digits = digits if self.digits is None else self.digits
        return (
            "-"
            if self.value is None
            else figure_text(self.value, self.ci, sign=self.sign, digits=digits)
        )


Cell: TypeAlias = str | int | float | Figure | None


def p_value(p: float | None) -> Figure:
    if p is None:
        return Figure(None, text="-")
    text = f"{p:.2f}"
    if p < 0.1:
        text = "<.0001" if p < 0.0001 else f"{p:.2g}"
    return Figure(p, text=text, significant=p < 0.05)


def between(bounds: FailureBounds | None, digits: int, *, sign: bool = False) -> Figure:
    """Show the bounds of a figure, whatever the failed judgements had said."""
    if bounds is None or bounds.worst is None or bounds.best is None:
        return Figure(None)
    worst, best = (
        figure_text(end, sign=sign, digits=digits)
        for end in (bounds.worst, bounds.best)
    )
    return Figure(bounds.worst, text=f"{worst}..{best}")


def in_line(intervals: Iterable[Interval | None]) -> int:
    """The decimals of a whole column: those that its typical interval supports; one without width supports none."""
    digits = [decimals(one) for one in intervals if one and one.hi > one.lo]
    return statistics.median_low(digits) if digits else 2


def noted(notes: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Each note once, with whom it is about where that is not everybody."""
    about: dict[str, list[str]] = {}
    for cell, lines in notes.items():
        for note in lines:
            about.setdefault(note, []).append(cell)
    for note, cells in about.items():
        some = f"{', '.join(cells[:3])}{' ...' if len(cells) > 3 else ''}: "
        yield note if len(cells) == len(notes) else some + note


def counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def covered(ok: int, n: int) -> Figure:
    return Figure(ok, text=f"{ok:,}/{n:,}")


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()
    stub: int = 0
    """Leading columns that name the row; people are spared a name that stands in the row above already."""
    spare: tuple[str | tuple[str, ...], ...] = ()
    """Columns, or columns that go together, that a terminal does without, the first one first, before names are
    broken into lines."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Meaning of each column, printed under the table if the column is shown."""

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Iterable[Sequence[Cell]],
        caption: str = "",
        **more: Any,
    ) -> Table:
        return cls(tuple(columns), tuple(tuple(row) for row in rows), caption, **more)

    def folded(self, *names: str) -> Table:
        """Without those columns that say the same in every row: the caption says it once."""
        table = self
        for name in names:
            at = table.columns.index(name)
            values = {row[at] for row in table.rows}
            if len(values) != 1:
                continue
            value = str(values.pop())
            caption = (
                f"{table.caption}; {name} {value}"
                if value not in ("", "-")
                else table.caption
            )
            table = replace(table.without(name), caption=caption)
        return table

    def trimmed(self, *names: str) -> Table:
        """Without those columns that have nothing to say: every row is empty or zero."""
        table = self
        for name in names:
            at = table.columns.index(name)
            if all(str(row[at]) in ("", "-", "0", "None") for row in table.rows):
                table = table.without(name)
        return table

    def without(self, name: str) -> Table:
        at = self.columns.index(name)
        return replace(
            self,
            columns=self.columns[:at] + self.columns[at + 1 :],
            rows=tuple(row[:at] + row[at + 1 :] for row in self.rows),
            stub=self.stub - (at < self.stub),
        )

    @property
    def footnotes(self) -> tuple[str, ...]:
        """Lines under the table."""
        return (
            *self.notes,
            *(
                f"{name}: {words}"
                for name, words in self.legend.items()
                if name in self.columns
            ),
        )

    # --- for people ---------------------------------------------------------------------------------------------

    def text(self, width: int = WIDTH) -> str:
        """Plain text, never wider than asked: no column is cut, a name that is too wide is broken into lines."""
        from rich.console import Console

        # In a notebook Rich would display what is captured here, too.
        plain: dict[str, Any] = {
            "color_system": None,
            "legacy_windows": False,
            "force_jupyter": False,
        }
        console = Console(file=io.StringIO(), width=width, **plain)
        with console.capture() as capture:
            console.print(self.renderable(width))
        return "\n".join(line.rstrip() for line in capture.get().splitlines())

    def renderable(self, width: int = WIDTH) -> RenderableType:
        """The same for a Rich console, which colours failures and significant differences where it may."""
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        table = self._fitting(width)
        parts: list[RenderableType] = (
            [Text(clean(self.caption), style="bold")] if self.caption else []
        )
        parts += [table._grid(width)] if self.rows else []
        left_out = [name for name in self.columns if name not in table.columns]
        notes = [
            *table.footnotes,
            *(
                [f"left out for width: {', '.join(left_out)}; JSON has all"]
                if left_out
                else []
            ),
        ]
        if notes:
            listed = Grid.grid(padding=(0, 1, 0, 0))
            for note in notes:
                listed.add_row("-", Text(clean(note)))
            parts.append(listed)
        return Group(*parts)

    def _fitting(self, width: int) -> Table:
        table = self
        for names in self.spare:
            if table.width() > width:
                for name in (names,) if isinstance(names, str) else names:
                    table = table.without(name) if name in table.columns else table
        return table

    def width(self) -> int:
        """Columns that the terminal form takes if nothing is squeezed."""
        return sum(self._widths()) + _GAP * (len(self.columns) - 1)

    def _widths(self) -> list[int]:
        from rich.cells import cell_len

        return [
            max(map(cell_len, column))
            for column in zip(map(clean, self.columns), *self._shown(), strict=True)
        ]

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
            head = Text(_broken(clean(name), w))
            grid.add_column(
                head, justify="left" if is_text else "right", width=w, overflow="fold"
            )
        for cells, row in zip(self.rows, self._shown(), strict=True):
            styles = map(_style, self.columns, cells)
            lines = (
                Text(_broken(t, w), style)
                for t, w, style in zip(row, widths, styles, strict=True)
            )
            grid.add_row(
                *lines, style="green" if any(map(_is_significant, cells)) else None
            )
        return grid

    def _is_text(self, column: int) -> bool:
        return any(isinstance(row[column], str) for row in self.rows)

    def _shown(self) -> list[list[str]]:
        digits = [self._digits(n) for n in range(len(self.columns))]
        rows = [
            [clean(_text(cell, most)) for cell, most in zip(row, digits, strict=True)]
            for row in self.rows
        ]
        out = []
        for i, row in enumerate(rows):
            same = 0
            while i and same < self.stub and row[same] == rows[i - 1][same]:
                same += 1
            # The last name stays even where it repeats: a row without any name would belong to nobody.
            same = min(same, max(self.stub - 1, 0))
            out.append([""] * same + row[same:])
        return out

    def cells(self, most: int) -> list[list[str]]:
        """The first rows as people read them."""
        return self._shown()[:most]

    def text_columns(self) -> list[bool]:
        """Which columns hold words, and not numbers."""
        return [*map(self._is_text, range(len(self.columns)))]

    def _digits(self, column: int) -> int:
        cells = (row[column] for row in self.rows)
        return in_line(
            cell.ci
            for cell in cells
            if isinstance(cell, Figure) and cell.digits is None
        )

    def markdown(self) -> str:
        def line(cells: Iterable[str]) -> str:
            return f"| {' | '.join(cells)} |"

        marks = [":--" if self._is_text(n) else "--:" for n in range(len(self.columns))]
        rows = [line(map(_markdown, row)) for row in self._shown()]
        head = [line(map(_markdown, self.columns)), line(marks)] if self.rows else []
        caption = [f"**{_markdown(clean(self.caption))}**", ""] if self.caption else []
        notes = (
            ["", *(f"- {_markdown(clean(note))}" for note in self.footnotes)]
            if self.footnotes
            else []
        )
        return "\n".join([*caption, *head, *rows, *notes])

    def latex(self) -> str:
        r"""A `table` with booktabs rules: the document needs `\usepackage{booktabs}`."""
        notes = [
            rf"\par\smallskip\footnotesize {_latex(clean(note))}"
            for note in self.footnotes
        ]
        caption = (
            [rf"\caption{{{_latex(clean(self.caption))}}}"] if self.caption else []
        )
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                *caption,
                *self._tabular(),
                *notes,
                r"\end{table}",
            ]
        )

    def _tabular(self) -> list[str]:
        if not self.rows:
            return []
        marks = "".join(
            "l" if self._is_text(n) else "r" for n in range(len(self.columns))
        )
        rows = [
            " & ".join(map(_latex, row)) + r" \\"
            for row in [[*map(clean, self.columns)], *self._shown()]
        ]
        return [
            rf"\begin{{tabular}}{{{marks}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule",
            r"\end{tabular}",
        ]  # fmt: skip

    # --- for programs -------------------------------------------------------------------------------------------

    def records(self) -> list[dict[str, Any]]:
        """At full precision; a figure that has intervals somewhere has its limits in columns of their own."""
        limits = {
            name
            for n, name in enumerate(self.columns)
            if any(isinstance(row[n], Figure) and row[n].ci for row in self.rows)  # type: ignore[union-attr]
        }
        out = []
        for row in self.rows:
            record: dict[str, Any] = {}
            for name, cell in zip(self.columns, row, strict=True):
                if isinstance(cell, Figure) and cell.parts:
                    record |= dict(cell.parts)
                    continue
                record[name] = cell.value if isinstance(cell, Figure) else cell
                if name in limits:
                    ci = cell.ci if isinstance(cell, Figure) else None
                    record |= {f"{name}_lo": ci and ci.lo, f"{name}_hi": ci and ci.hi}
            out.append(record)
        return out

    def as_json(self) -> dict[str, Any]:
        return {
            "caption": self.caption,
            "rows": self.records(),
            "notes": list(self.footnotes),
        }

    def csv(self) -> str:
        """No cell is a formula to a spreadsheet, whatever a model or an item is called."""
        from editjudge.files import spreadsheet_safe

        file = io.StringIO()
        records = self.records()
        writer = csv.writer(file)
        writer.writerow(
            [
                spreadsheet_safe(name)
                for name in (records[0] if records else self.columns)
            ]
        )
        writer.writerows(
            [spreadsheet_safe(value) for value in record.values()] for record in records
        )
        return file.getvalue()


def clean(text: str) -> str:
    """One line, without anything that a terminal obeys."""
    return "".join(
        c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split())
    )


_FAILURES = frozenset(
    {*STATUSES, "failed", "missed", "swayed", "not judged", "contradicted"}
) - {*DONE}
"""Columns whose counts are bad news."""


def _is_significant(cell: Cell) -> bool:
    return isinstance(cell, Figure) and cell.significant


def _style(column: str, cell: Cell) -> str:
    """The Rich style of a cell: failures are red, a significant p is bold in its green row."""
    value = cell.value if isinstance(cell, Figure) else cell
    if (column in _FAILURES and isinstance(value, int) and value) or value == "fail":
        return "red"
    if _is_significant(cell):
        return "bold green"
    return "green" if value == "pass" else ""


def _text(cell: Cell, digits: int) -> str:
    if isinstance(cell, bool | str):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    if cell is None:
        return "-"
    return (cell if isinstance(cell, Figure) else Figure(cell)).rounded(digits)


def _squeezed(widths: list[int], texts: Sequence[bool], width: int) -> list[int]:
    """Take from the widest column of words until the row fits, and from numbers only when nothing else is left."""
    widths = list(widths)
    while sum(widths) + _GAP * (len(widths) - 1) > width:
        wide = [n for n, w in enumerate(widths) if w > 2 * _NARROWEST and texts[n]]
        wide = wide or [n for n, w in enumerate(widths) if w > _NARROWEST]
        if not wide:
            break
        widths[max(wide, key=lambda n: widths[n])] -= 1
    return widths


def _broken(text: str, width: int) -> str:
    """With line breaks after `_`, `/` and `-`: Rich would break a long name anywhere."""
    from rich.cells import cell_len

    lines = [""]
    for part in (
        re.findall(r"[^\s_/-]*[\s_/-]*", text) if cell_len(text) > width else [text]
    ):
        if lines[-1] and cell_len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


_LATEX = {
    "\\": r"\textbackslash{}",
    **{char: f"\\{char}" for char in "{}$&#%_"},
    "\u2193": r"$\downarrow$",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # at the start of a row it would be an option of the line break before it
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(char, char) for char in text)


def _markdown(text: str) -> str:
    escaped = re.sub(r"([\\`*_|~])|\[(?=[^]]*\]\()", r"\\\g<0>", text)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def together_markdown(title: str, lead: Sequence[str], tables: Sequence[Table]) -> str:
    parts = [f"# {_markdown(clean(title))}", *(_markdown(clean(line)) for line in lead)]
    return "\n\n".join([*parts, *(table.markdown() for table in tables)]) + "\n"


def together_latex(title: str, lead: Sequence[str], tables: Sequence[Table]) -> str:
    parts = [
        "% needs \\usepackage{booktabs}",
        *(f"% {clean(line)}" for line in (title, *lead)),
    ]
    return "\n\n".join(["\n".join(parts), *(table.latex() for table in tables)]) + "\n"


PROSE: Mapping[str, Callable[[str, Sequence[str], Sequence[Table]], str]] = {
    "md": together_markdown,
    "latex": together_latex,
}
"""Forms of a whole report: a title, leading lines and tables become one text. Another form is another entry."""
