"""A whole report in one of its formats: HTML, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from editjudge.report.comparison import compare_tables
from editjudge.report.summary import SummaryReport, document, long, tables
from editjudge.report.tables import PROSE
from editjudge.store.store import Store


def rendered(means: SummaryReport, form: str, store: Store | None = None, mappings: Sequence[str] = ()) -> str:
    """The report as text. HTML reads pictures, questions and ratings from the store."""
    judged = means.judged
    if form == "csv":
        return long(means).csv()
    if form == "json":
        return json.dumps(document(means), indent=2, allow_nan=False) + "\n"
    if form == "html" and store is not None:
        from editjudge.report.edit_view import EditView
        from editjudge.report.page import page
        from editjudge.report.people import agreement_of

        view = EditView(judged.run, store)
        return page(means, store, view.picture, view.question, *agreement_of(judged, store, mappings))
    shown = [*tables(means, full=True), *compare_tables(means.compared, "model")]
    return PROSE[form](f"Run {judged.run.name}", judged.lead(), shown)
