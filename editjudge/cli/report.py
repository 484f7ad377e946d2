"""`editjudge report`: what the scores of a run add up to."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import NewFile, open_store, run_argument, store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.reading import as_option, load_run, names_folder, renamed, show, such_as
from editjudge.errors import EditjudgeError, ImageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image

    from editjudge.report.agreement import AgreementReport
    from editjudge.report.run_data import RunData
    from editjudge.report.summary import SummaryReport
    from editjudge.store.store import Item, RunRecord, Store

FORMS = {".html": "html", ".md": "md", ".tex": "latex", ".csv": "csv", ".json": "json"}
"""The form that a file's name asks for where --format does not."""
THUMBNAIL = 320
"""Pixels on the longer side of a picture in a page: 6 to 20 kB each as WebP."""


@click.command(epilog="\b\nExample: editjudge report mine -o report.html")
@run_argument
@click.option("-o", "--output", type=NewFile(), help="File to write.")
@click.option("--format", "form", type=click.Choice([*FORMS.values()]), help="Without it, what the file's name says.")
@click.option("--by", multiple=True, metavar="NAME", help="Slice by this metadata too; repeatable.")
@click.option(
    "--width",
    type=click.FloatRange(min=0, min_open=True),
    help="Also say how many edits or repeats would make a mean's interval this wide.",
)
@as_option
@store_option
@json_option
def command(
    run: str,
    output: Path | None,
    form: str | None,
    by: tuple[str, ...],
    width: float | None,
    called: tuple[str, ...],
    store_place: str,
    as_json: bool,
) -> None:
    """Means with intervals per model, factor and edit type, and what failed.

    Coverage and failures come first. Tables for people are rounded to what the intervals support; CSV and JSON have
    full precision. HTML is one file with charts and the edits worth looking at. Two to four models are also compared
    pair by pair, as `compare` does it, in every form but CSV and the terminal. HTML also holds judges against the
    ratings of the store, as `agree` does it.
    """
    form = _form(output, form, as_json)
    if called and form != "html":
        raise UsageError("--as is for HTML, the form that has people's ratings in it; elsewhere `agree` takes it")
    if form == "html" and names_folder(store_place, run):
        raise UsageError(
            f"{safe(run)}: a page looks edits up one by one, which shards are not made for: "
            f"bring the run into a store with `editjudge import-run`, and report from there"
        )
    judged = load_run(store_place, run, by)
    from editjudge.report.summary import document, measure, tables

    means = measure(judged, by, width=width)
    if form is None:
        show(judged.lead(), tables(means))
        return
    text = looked_at(means, store_place, called) if form == "html" else rendered(means, form)
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, "utf-8", newline="")
    if as_json:
        emit(document(means) | {"written": str(output)})
    else:
        click.echo(f"wrote {safe(str(output))}")


def rendered(means: SummaryReport, form: str) -> str:
    """The whole report in one form that has no pictures."""
    from editjudge.report.comparison import compare_tables
    from editjudge.report.summary import document, long, tables
    from editjudge.report.tables import PROSE

    if form == "csv":
        return long(means).csv()
    if form == "json":
        return json.dumps(document(means), indent=2, allow_nan=False) + "\n"
    judged = means.judged
    shown = [*tables(means, full=True), *compare_tables(means.compared, "model")]
    return PROSE[form](f"Run {judged.run.name}", judged.lead(), shown)


def looked_at(means: SummaryReport, store_place: str, called: Sequence[str] = ()) -> str:
    """The report as a page, with pictures of the edits worth looking at."""
    from editjudge.report.page import page

    with open_store(store_place, readonly=True) as store:
        sight = ReportOptions(means.judged.run, store)
        return page(means, store, sight.picture, sight.question, *_agreed(means.judged, store, called))


def _form(output: Path | None, form: str | None, as_json: bool) -> str | None:
    if as_json and output is None:
        if form not in (None, "json"):
            raise UsageError(f"--json and --format {form} want the same standard output; write one to a file with -o")
        return "json"
    if form is not None or output is None:
        return form
    if output.suffix not in FORMS:
        known = ", ".join(FORMS)
        raise UsageError(f"{safe(str(output))}: the name ends in none of {known}; say the form with --format")
    return FORMS[output.suffix]


def _agreed(judged: RunData, store: Store, called: Sequence[str]) -> tuple[AgreementReport | None, str]:
    """Judges against people, where the store has ratings of these edits and factors; and what it has besides."""
    from editjudge.ratings import Rating, ratings_columns
    from editjudge.report.agreement import agreed
    from editjudge.store.ratings import contents_in, ratings_of

    known, contents = (*judged.scores.factor.present(), *judged.sums()), contents_in(store.items(judged.run))
    rated = ratings_columns(Rating(*row) for row in ratings_of(store, judged.run, contents))
    rated = renamed(rated, called, known)
    own = [name for name in rated.factor.present() if name in known]
    others = [name for name in rated.factor.present() if name not in known]
    apart = ""
    if others:
        n = len(rated.where(factor=others))
        apart = f"The store has {n:,} ratings of these edits under {', '.join(others)}, which no rubric of this run has"
        apart += f". `report` and `agree` take what is alike, such as {such_as(others, known)}." if known else "."
    scores, _ = judged.with_aggregates(own)
    scales, between = judged.all_scales(), judged.continuous | {*judged.sums()}
    return agreed(rated.where(factor=own), scores, scales=scales, continuous=between) if own else None, apart


class ReportOptions:
    """What a page shows of an edit: its pictures, from where the run had them, and the question asked about it."""

    def __init__(self, run: RunRecord, store: Store) -> None:
        self._layout: Any = run.spec.get("layout", "images-first")
        self._rubrics = store.rubrics()
        self._run = run
        self._folder = run.imported_from or str(Path(str(run.spec.get("manifest", "."))).parent)

    def picture(self, item: Item, role: str) -> bytes | str | None:
        try:
            if role == "change":
                return self._change(item)
            if role not in item.images:
                return "the editing model produced no picture" if role == "edited" else None
            return _small(self._read(item, role), role)
        except ImageError as error:
            return self._private(str(error))

    def question(self, item: Item, rubric_hash: str) -> str | None:
        """From the rubric as it was kept, whatever its file says today."""
        from pydantic import TypeAdapter

        from editjudge.edit import Edit
        from editjudge.rubrics.model import Rubric
        from editjudge.rubrics.prompt import ask

        if rubric_hash not in self._rubrics:
            return None
        rubric = TypeAdapter(Rubric).validate_json(json.dumps(self._rubrics[rubric_hash]["content"]))
        edit = Edit(item.item, instruction=item.instruction, referring_expression=item.referring_expression)
        digests = {role: str(entry.get("digest") or "") for role, entry in item.images.items()}
        return str(ask(rubric, edit, digests, self._layout))

    def _private(self, words: str) -> str:
        """Without the folder: a report is sent around, and where somebody keeps their files is nobody's business."""
        return words.replace(f"{self._folder}{os.sep}", "").replace(self._folder, "the manifest's folder")

    def _read(self, item: Item, role: str) -> bytes:
        """As it was judged, or words: a picture that is another one by now is not shown in its place."""
        from editjudge.media.image import digest
        from editjudge.run.picture_sources import picture_of

        data = picture_of(self._run, item, role)
        if item.images[role].get("digest") not in (None, digest(data)):
            raise ImageError(
                f"{Path(str(item.images[role]['source'])).name}: is another picture than the one that was judged"
            )
        return data

    def _change(self, item: Item) -> bytes | None:
        from editjudge import measured

        before = "input" if "input" in item.images else "ground_truth"
        if not {before, "edited"} <= set(item.images) or measured.missing():
            return None
        mask = self._read(item, "mask") if "mask" in item.images else None
        try:
            drawn = measured.evidence_pictures(self._read(item, before), self._read(item, "edited"), mask)
        except EditjudgeError:
            return None  # the pictures themselves say why
        return _small(drawn["change"], "change") if "change" in drawn else None


def _small(data: bytes, name: str) -> bytes:
    from editjudge.media.image import decode

    image: Image = decode(data, name=name)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "WEBP", quality=75, method=4)
    return out.getvalue()
