"""A whole report in one of its formats: HTML, as a page or to be put into one, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path

from editjudge.errors import UsageError
from editjudge.report.comparison import compare_tables, conclusions
from editjudge.report.summary import SummaryReport, document, long, not_scored, tables
from editjudge.report.tables import PROSE, clean
from editjudge.store.store import Store

FORMS = {".html": "html", ".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}
"""The format that a file's name stands for."""


def form_of(path: Path) -> str:
    if path.suffix not in FORMS:
        raise UsageError(f"{clean(str(path))}: the name ends in none of {', '.join(FORMS)}; give --format")
    return FORMS[path.suffix]


def rendered(means: SummaryReport, form: str, store: Store | None = None, mappings: Sequence[str] = ()) -> str:
    """The report as text. HTML reads pictures, questions and ratings from the store."""
    judged = means.judged
    if form == "csv":
        return long(means).csv()
    if form == "json":
        return json.dumps(document(means), indent=2, allow_nan=False) + "\n"
    if form == "fragment":
        # A frame of its own: the page's style changes nothing around it, and nothing around it changes the page.
        inside = html.escape(rendered(means, "html", store, mappings))
        name = html.escape(judged.run.name)
        frame = f'<iframe title="Report of {name}" sandbox srcdoc="{inside}" style="width:100%;height:900px;border:0">'
        return f"{frame}</iframe>\n"
    if form == "html" and store is not None:
        from editjudge.report.edit_view import EditView
        from editjudge.report.page import page
        from editjudge.report.people import agreement_of

        view = EditView(judged.run, store)
        return page(means, store, view.picture, view.question, *agreement_of(judged, store, mappings))
    parts = [*tables(means, full=True), *compare_tables(means.compared, "model")]
    lead = [*judged.unjudged(), *conclusions(means.compared), not_scored(means), *judged.lead()]
    return PROSE[form](f"Run {judged.run.name}", lead, parts)
