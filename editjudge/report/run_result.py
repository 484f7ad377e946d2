"""What a verb answers, for Python: the document that `--json` prints, with tables for people."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from editjudge.arguments import in_python
from editjudge.report.tables import WIDTH, Table

_ARGUMENTS = ("model", "judge", "by", "of", "a", "b", "minimum", "maximum", "max_failures", "called")
"""Of the methods of a run that answer with a result."""


@dataclass(frozen=True, repr=False)
class RunResult(Mapping[str, Any]):
    """The answer of `Run.compare`, `.agree`, `.gate` and `.table`: a mapping with the keys that `--json` prints.

    result["comparisons"][0]["difference"]
    result.frame()      # a pandas data frame where pandas is installed, else a list of dicts
    print(result)       # as in the terminal
    """

    document: Mapping[str, Any]
    lead: Sequence[str]
    tables: Sequence[Table]
    unshown: int = 0
    """Leading tables that are too wide to read, for `frame` alone."""

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    def frame(self, table: int = 0) -> Any:
        """The rows of a table, the first one unless another is named, at full precision."""
        return framed(self.tables[table].records() if self.tables else [])

    def _shown(self) -> Sequence[Table]:
        return self.tables[self.unshown :]

    def __repr__(self) -> str:
        return in_python(
            "\n\n".join(["\n".join(self.lead), *(table.text(WIDTH) for table in self._shown())]), _ARGUMENTS
        )

    def _repr_html_(self) -> str:
        from editjudge.report.templating import render_macro

        lead = "".join(f"<p>{html.escape(line)}</p>" for line in self.lead)
        tables = "".join(render_macro("tables.html", "table", table) for table in self._shown())
        return in_python(lead + tables, _ARGUMENTS)


def framed(rows: list[dict[str, Any]]) -> Any:
    """A pandas data frame where pandas is installed, else the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)
