"""A run's table, page by page: its URL query string, its rows, and the cells of a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from urllib.parse import parse_qsl, urlencode

from editjudge.judgement import DONE, STATUSES
from editjudge.report.contradictions import checked_verdicts
from editjudge.running.sums import OVERALL, run_sums
from editjudge.store import listing
from editjudge.store.listing import (
    Choices,
    Columns,
    EditList,
    EditSummary,
    FactorColumn,
    Neighbours,
)
from editjudge.store.ratings import Annotation, annotations_of
from editjudge.store.records import PENDING, Item, RunRecord
from editjudge.store.store import Store
from editjudge.web.values import whole_number

ALL_STATUSES = (*STATUSES, PENDING)
PAGE = 50
_CHUNK = 500
"""Number of edits that an export reads at a time."""


@dataclass(frozen=True)
class Query(listing.ListFilter):
    """Filters, order and page of a run's table, as given in its URL query string."""

    look: str = ""
    """`grid` for large images instead of rows."""
    page: str = ""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Query:
        return cls(
            **{
                f.name: parameters[f.name][:300]
                for f in fields(cls)
                if f.name in parameters
            }
        )

    @classmethod
    def parse(cls, address: str) -> Query:
        """Parse a URL query string, with or without its question mark."""
        return cls.of(
            dict(
                parse_qsl(
                    address.removeprefix("?"), max_num_fields=50, errors="replace"
                )
            )
        )

    def address(self, **changes: object) -> str:
        """Return the URL query string with its question mark, or an empty string if no parameter is set."""
        values = vars(self) | changes
        parameters = {
            name: str(value)
            for name, value in values.items()
            if value not in ("", None)
        }
        return "?" + urlencode(parameters, errors="surrogatepass") if parameters else ""

    def selection(self) -> dict[str, str]:
        """Return only the filters, keyed by name, without the sort order, page number and layout."""
        apart = ("page", "sort", "look")
        return {
            name: value
            for name, value in vars(self).items()
            if name not in apart and value
        }

    @property
    def number(self) -> int:
        return max(1, whole_number(self.page) or 1)


@dataclass(frozen=True)
class ListedEdit:
    """An edit in a table."""

    item: Item
    scores: list[float]
    """Mean score for each column; NaN if there is none."""
    overall: float
    people: list[float]
    """Mean of people's ratings for each column."""
    statuses: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    contradicted: bool = False
    spread: float = 0.0
    annotation: Annotation = field(default_factory=Annotation)

    @property
    def scored_overall(self) -> bool:
        return not math.isnan(self.overall)

    @property
    def abstained(self) -> str:
        """Text such as `2 factors abstained` if only some factors have a score, otherwise empty."""
        unscored = sum(map(math.isnan, self.scores))
        if "ok" not in self.statuses or not (unscored or "abstained" in self.statuses):
            return ""
        # if not, the others have no score because a judgement failed
        if unscored and set(self.statuses) <= set(DONE):
            return f"{unscored} factor{'' if unscored == 1 else 's'} abstained"
        return "abstained in part" if "abstained" in self.statuses else ""


@dataclass(frozen=True)
class Page:
    """A page of a run's table."""

    rows: list[ListedEdit]
    columns: Columns
    total: int
    """Number of edits that match the query."""
    listing: Choices

    @property
    def factors(self) -> list[tuple[int, FactorColumn]]:
        """Columns with a score on this page, each with its index in a row; all of them if the page has no score."""
        numbered = list(enumerate(self.columns.factors))
        return [
            (number, column)
            for number, column in numbered
            if any(not math.isnan(row.scores[number]) for row in self.rows)
        ] or numbered

    @property
    def overall(self) -> bool:
        return any(row.scored_overall for row in self.rows)

    @property
    def spread(self) -> bool:
        return any(row.spread for row in self.rows)


class Browser:
    """Reads the tables of a store's runs, page by page."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def page(self, run: RunRecord, query: Query, size: int = PAGE) -> Page:
        columns = self.columns(run)
        edits = self._list(run, query, columns)
        positions = edits.positions(size * (query.number - 1), size)
        rows = self._rows(run, query, positions, columns)
        return Page(rows, columns, edits.total(), edits.choices())

    def every(
        self, run: RunRecord, query: Query
    ) -> tuple[Columns, Iterator[ListedEdit]]:
        """Return the columns and all edits that match a query, without a limit, for an export."""
        columns = self.columns(run)
        positions = self._list(run, query, columns).positions()
        starts = range(0, len(positions), _CHUNK)
        chunks = (positions[start : start + _CHUNK] for start in starts)
        return columns, (
            row for chunk in chunks for row in self._rows(run, query, chunk, columns)
        )

    def neighbours(self, run: RunRecord, query: Query, item: str) -> Neighbours:
        """Return the edits before and after an edit in the order of the query."""
        return self._list(run, query, self.columns(run)).neighbours(item)

    def siblings(self, run: RunRecord, item: Item) -> list[Item]:
        """Return the edits with the same input and instruction, including this one, in manifest order. There is at most
        a page of them."""
        return listing.siblings_of(self._store, run, item, PAGE)

    def positions(
        self, run: RunRecord, query: Query, models: Sequence[str] = ()
    ) -> list[int]:
        """Return the positions of the edits that match a query. If models are given, only their edits are included."""
        return self._list(run, query, self.columns(run), models).positions()

    def columns(self, run: RunRecord) -> Columns:
        overall = run_sums(self._store, run).get(OVERALL, ())
        return listing.columns_of(self._store, run, overall)

    def fill(self, run: RunRecord, judge: str, columns: Columns) -> None:
        """Update the stored facts by which edits are filtered and sorted."""
        listing.fill(self._store, run, judge, columns)

    def _list(
        self,
        run: RunRecord,
        query: Query,
        columns: Columns,
        models: Sequence[str] = (),
    ) -> EditList:
        self.fill(run, query.judge, columns)
        return EditList(self._store, run, query, columns, models)

    def _rows(
        self, run: RunRecord, query: Query, positions: Sequence[int], columns: Columns
    ) -> list[ListedEdit]:
        edits = listing.items_at(self._store, run, positions)
        names = [item.item for item in edits]
        summaries = listing.summaries(self._store, run, query.judge, names, columns)
        contradicted = {
            verdict.item
            for verdict in checked_verdicts(self._store, run, names)
            if verdict.refuted
        }
        annotated = annotations_of(self._store, run, names)
        return [
            _listed(
                item,
                summaries[item.item],
                columns,
                item.item in contradicted,
                annotated.get(item.item, Annotation()),
            )
            for item in edits
        ]


def _listed(
    item: Item,
    summary: EditSummary,
    columns: Columns,
    contradicted: bool,
    annotation: Annotation,
) -> ListedEdit:
    means = {
        column.id: _mean(summary.scores.get(column.id, ()))
        for column in columns.factors
    }
    return ListedEdit(
        item,
        list(means.values()),
        _mean([means[part.id] for part in columns.parts]),
        [_mean(summary.people.get(column.factor, ())) for column in columns.people],
        [status for status in ALL_STATUSES if status in summary.statuses],
        [*summary.violations],
        contradicted,
        summary.spread(columns.factors),
        annotation,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
