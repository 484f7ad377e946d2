"""The answer of a verb: a document for programs, leading lines and tables for people.

The command line prints an answer, the Python interface returns it, and the browser renders it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.errors import Option, UsageError, one_line
from editjudge.report.tables import WIDTH, Table, markdown_text

if TYPE_CHECKING:
    from editjudge.report.charts import Chart

FORMATS = {
    ".html": "html",
    ".md": "md",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
}
"""Report formats keyed by file extension."""


@dataclass(frozen=True, repr=False)
class Answer(Mapping[str, Any]):
    """The answer of a verb: a mapping with the keys that `--json` prints.

    answer["comparisons"][0]["difference"]
    answer.frame()      # a pandas data frame if pandas is installed, else a list of dicts
    print(answer)       # as in the terminal
    """

    document: Mapping[str, object]
    lead: Sequence[str]
    tables: Sequence[Table]
    rows: Table | None = None
    """Every statistic at full precision, in a table that is too wide for people to read."""
    conclusions: Sequence[str] = ()
    """The leading lines that state a result."""
    charts: Sequence[Chart] = ()

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    def frame(self, table: int = 0) -> Any:
        """Return the rows of a table at full precision. Table 0 is the table of all statistics or, if there is no such
        table, the first table."""
        tables = [*([self.rows] if self.rows else []), *self.tables]
        return framed(tables[table].records() if tables else [])

    def __repr__(self) -> str:
        tables = (table.text(WIDTH) for table in self.tables)
        return "\n\n".join(["\n".join(self.lead), *tables])

    def _repr_html_(self) -> str:
        from editjudge.report.templating import render_macro

        lead = (f"<p>{html.escape(line)}</p>" for line in self.lead)
        tables = (render_macro("tables.html", "table", table) for table in self.tables)
        return "".join([*lead, *tables])


def framed(rows: list[dict[str, object]]) -> Any:
    """Return a pandas data frame if pandas is installed, else the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def format_of(path: Path) -> str:
    """Return the report format for a file's extension."""
    if path.suffix not in FORMATS:
        raise UsageError(
            f"{one_line(str(path))}: unknown ending; expected one of {', '.join(FORMATS)}, or give --format",
            options=[Option("format")],
            code="unknown_ending",
        )
    return FORMATS[path.suffix]


def together_markdown(title: str, lead: Sequence[str], tables: Sequence[Table]) -> str:
    parts = [f"# {markdown_text(title)}", *map(markdown_text, lead)]
    return "\n\n".join([*parts, *(table.markdown() for table in tables)]) + "\n"


def together_latex(title: str, lead: Sequence[str], tables: Sequence[Table]) -> str:
    comments = ["needs \\usepackage{booktabs}", *map(one_line, (title, *lead))]
    head = "\n".join(f"% {line}" for line in comments)
    return "\n\n".join([head, *(table.latex() for table in tables)]) + "\n"


PROSE = {"md": together_markdown, "latex": together_latex}
"""Formats that combine title, leading lines and tables in one text."""


def written(
    form: str,
    title: str,
    lead: Sequence[str],
    tables: Sequence[Table],
    rows: Table,
    document: Mapping[str, object],
) -> str:
    """Return a report as text: `rows` as CSV, `document` as JSON, or title, leading lines and tables in any other
    format."""
    if form == "csv":
        return rows.csv()
    if form == "json":
        return json.dumps(document, indent=2, allow_nan=False) + "\n"
    return PROSE[form](title, lead, tables)
