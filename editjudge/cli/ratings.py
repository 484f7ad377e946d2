"""`editjudge ratings`: import, export and delete people's ratings, and invite raters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import (
    FILE,
    NewFile,
    VerbGroup,
    columns_option,
    json_option,
    open_run,
    open_store,
    run_argument,
    run_option,
    store_option,
    wants_json,
    warn,
)
from editjudge.cli.output import ExitCode, VerbReply, confirmed
from editjudge.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editjudge.manifest import Columns
    from editjudge.store.ratings import StoredRating


@click.group("ratings", cls=VerbGroup)
@store_option
@json_option
def command() -> None:
    """People's ratings: one for each edit, rater and factor."""


@command.command("import", example="editjudge ratings import ratings.csv")
@click.argument("file", type=FILE)
@run_option("--run", help="The items are the edits of this run.")
@click.option("--manifest", type=FILE, help="The items are the edits of this manifest.")
@columns_option
@store_option
def import_(
    file: Path, run: str | None, manifest: Path | None, columns: Columns
) -> VerbReply:
    """Import people's ratings into the store.

    CSV, JSONL or Parquet, with columns item, rater, factor and score. The whole file is checked before anything is
    stored. Importing the same file again changes nothing. If a rating already exists, its score is replaced.

    A rating belongs to an edit, identified by its input, output and instruction. --run or --manifest says which edits
    the items are. Without either, each id must belong to one edit in the store. If no run has the id, the rating is
    stored under the id alone, and belongs to no run until it is imported again; a rating that contradicts it is
    refused.
    """
    from editjudge.ratings import by_content, unique_ratings
    from editjudge.store import ratings as people

    if run is not None and manifest is not None:
        raise UsageError("--run and --manifest both name the items: give one of them")
    ratings = list(unique_ratings(file))
    if not ratings:
        raise InputError(f"{file}: every score is empty: expected at least one rating")
    if manifest is not None:
        from editjudge.running.plan import contents_of_manifest

        contents = contents_of_manifest(manifest, columns)
    with open_store() as store:
        if run is not None:
            contents = people.contents_in(store, store.find_run(run))
        elif manifest is None:
            unnamed = (rating.item for rating in ratings if not rating.content)
            contents = people.contents_of(store, unnamed)
        # The file itself may say what was rated, unless an option does.
        if run is None and manifest is None:
            rows = by_content(file, ratings, contents)
        else:
            bare = [rating._replace(content="") for rating in ratings]
            rows = by_content(file, bare, contents)
        if not rows:
            where = f"the run {run}" if run is not None else str(manifest)
            example = f"the first is of {ratings[0].item!r:.80}"
            raise InputError(
                f"{file}: none of its {len(ratings):,} ratings is of an item of {where}; {example}",
                code="no_common_item",
            )
        unbound = people.check_unbound(store, rows)
        before = people.count_ratings(store)
        people.add_ratings(store, rows)
        stored = people.count_ratings(store)
    return _imported(file, rows, len(ratings) - len(rows), before, stored, unbound)


def _imported(
    file: Path,
    rows: Sequence[StoredRating],
    left_out: int,
    before: int,
    stored: int,
    unbound: int,
) -> VerbReply:
    raters = len({row.rater for row in rows})
    items = len({row.item for row in rows})
    new = max(0, stored - before)
    document = {
        "file": str(file),
        "ratings": len(rows),
        "raters": raters,
        "items": items,
        "new": new,
        "kept": stored,
    }
    line = f"{file}: {len(rows):,} ratings of {items:,} items by {raters:,} raters; {new:,} new, the store has {stored:,}"
    if left_out:
        document["left_out"] = left_out
        line += f"; {left_out:,} of other items are left out"
    if unbound:
        document["unbound"] = unbound
        line += f"; {unbound:,} belong to no run: no run has their id"
    return VerbReply(document, [line])


@command.command("export", example="editjudge ratings export ratings.csv")
@click.argument("file", type=NewFile())
@run_option("--run", help="Only those of this run's edits.")
@store_option
def export(file: Path, run: str | None) -> VerbReply:
    """Write every rating in the store as CSV.

    The columns are item, rater, factor and score. If one id belongs to several edits, or was rated with several
    rubrics, the columns content and rubric distinguish them. Pairs also have the column choice.

    With --run: writes only ratings of that run's edits, with their ids in the run.
    """
    from editjudge.store.ratings import csv_lines, ratings_of, read_ratings

    with open_store(readonly=True) as store:
        if run is None:
            rows = read_ratings(store)
        else:
            of_run = ratings_of(store, store.find_run(run))
            rows = [row._replace(rubric="", choice="") for row in of_run]
    file.write_text("".join(csv_lines(rows)), "utf-8", newline="")
    document = {"written": str(file), "ratings": len(rows)}
    return VerbReply(document, [f"wrote {file}: {len(rows):,} ratings"])


@command.command(example="editjudge ratings plan mine --budget 200 -o study.jsonl")
@run_argument
@click.option(
    "--budget", type=click.IntRange(1), required=True, help="Number of edits to rate."
)
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    required=True,
    help="FILE.jsonl, FILE.csv (a row to fill in for each factor) or FILE.json (tasks for Label Studio).",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Of the sample.",
)
@store_option
def plan(run: str, budget: int, output: Path, seed: int) -> VerbReply:
    """Choose which edits of a run people should rate.

    They are drawn at random, more of those on which judges or repeats disagree. Each edit is written with the
    probability with which it was chosen. `agree RUN --ratings BACK --estimate --plan FILE` counts with it, so that the
    estimates are unbiased. Ratings come back as CSV, or as the JSON that Label Studio exports, in which the name of a
    control is the factor.
    """
    from editjudge.report import plan as planning
    from editjudge.report.run_data import load

    store, name = open_run(run)
    with store:
        data = load(store, name)
        planned = planning.plan(store, data, budget, seed)
    factors = data.scores.factor.present()
    planning.write_plan(output, planned, factors)
    edits = len(data.scores.item.present())
    document = {
        "run": data.run.name,
        "written": str(output),
        "edits": len(planned),
        "of": edits,
        "seed": seed,
    }
    line = f"wrote {output}: {len(planned):,} of {edits:,} edits to rate"
    return VerbReply(document, [line])


@command.command(
    example="editjudge ratings invite pilot Ann --server https://rate.example.org"
)
@click.argument("study")
@click.argument("rater")
@click.option(
    "--server",
    default="http://127.0.0.1:8427",
    show_default=True,
    help="Where raters reach `serve`.",
)
@store_option
def invite(study: str, rater: str, server: str) -> VerbReply:
    """Make a link for one rater of one study.

    The link opens that study and nothing else. It is shown only now, since the store keeps only a hash of it. Inviting
    the same rater again makes a new link, and the old one is no longer valid. STUDY is a study's name or number.
    """
    from editjudge.store import studies

    with open_store(create=False) as store:
        record = studies.named_study(store, study)
        code = studies.invite(store, record, rater)
    name = studies.clean_name(rater)
    path = f"/rate/{code}"
    link = f"{server.rstrip('/')}{path}"
    document = {"study": record.id, "rater": name, "path": path, "link": link}
    return VerbReply(document, [f"{name} rates {record.name} at {link}"])


@command.command(example="editjudge ratings links")
@click.argument("study", required=False)
@store_option
def links(study: str | None) -> VerbReply:
    """List raters' links to studies."""
    from editjudge.store import studies

    with open_store(readonly=True) as store:
        record = studies.named_study(store, study) if study else None
        rows = studies.list_invitations(store, record)
        names = {study.id: study.name for study in studies.list_studies(store)}
    fields = ("study_id", "rater", "created", "revoked")
    document = [{field: getattr(row, field) for field in fields} for row in rows]
    lines = []
    for row in rows:
        state = "valid" if row.revoked is None else "withdrawn"
        lines.append(f"{names[row.study_id]}  {row.rater}  {state}")
    return VerbReply({"links": document}, lines)


@command.command(example="editjudge ratings revoke pilot Ann")
@click.argument("study")
@click.argument("rater")
@store_option
def revoke(study: str, rater: str) -> VerbReply:
    """Withdraw a rater's link; their answers stay."""
    from editjudge.store import studies

    with open_store(create=False) as store:
        record = studies.named_study(store, study)
        if not studies.revoke(store, record, rater):
            raise UsageError(
                f"{rater} has no link to {record.name}; `editjudge ratings links` lists them"
            )
    document = {"study": record.id, "rater": rater, "revoked": True}
    return VerbReply(document, [f"the link of {rater} to {record.name} is withdrawn"])


@command.command(example="editjudge ratings rm --rater Ann --study pilot")
@click.option("--rater", required=True, help="Whose answers.")
@click.option(
    "--study",
    help="Only answers in this study. Default: in all studies, and imported ratings.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
def rm(rater: str, study: str | None, yes: bool) -> VerbReply:
    """Delete a rater's answers and ratings for good.

    Edits that were assigned to this rater can be assigned to others again. The rater's link, if there is one, stays
    valid until it is withdrawn with `ratings revoke`.
    """
    from editjudge.store import studies

    with open_store(create=False) as store:
        record = studies.named_study(store, study) if study else None
        count = studies.remove_answers(store, rater, record, dry_run=True)
        if not (count.answers or count.ratings):
            scope = " in this study" if record else ""
            raise UsageError(f"{rater} answered nothing{scope}: nothing was deleted")
        question = f"Delete {count.answers:,} answers and {count.ratings:,} ratings of {rater}?"
        if not (yes or wants_json() or confirmed(question)):
            warn(f"kept the answers of {rater}")
            return VerbReply(None, code=ExitCode.ERROR)
        count = studies.remove_answers(store, rater, record)
    document = {
        "rater": rater,
        "study": record.id if record else None,
        "answers": count.answers,
        "ratings": count.ratings,
    }
    line = f"deleted {count.answers:,} answers and {count.ratings:,} ratings of {rater}"
    return VerbReply(document, [line])
