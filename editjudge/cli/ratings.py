"""`editjudge ratings`: import, export and delete people's ratings, and invite raters."""

from __future__ import annotations

import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import NewFile, columns_option, open_store, store_option
from editjudge.cli.output import agreed, emit, json_option, safe, tell
from editjudge.cli.reading import need_statistics
from editjudge.errors import InputError, UsageError

if TYPE_CHECKING:
    from editjudge.manifest import Columns


@click.group()
def command() -> None:
    """People's ratings: one for each edit, rater and factor."""


@command.command("import", epilog="\b\nExample: editjudge ratings import ratings.csv")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--run",
    metavar="RUN",
    shell_complete=runs,
    help="The items are the edits of this run.",
)
@click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    help="The items are the edits of this manifest.",
)
@columns_option
@store_option
@json_option
def import_(
    file: Path,
    run: str | None,
    manifest: Path | None,
    columns: Columns,
    store_place: str,
    as_json: bool,
) -> None:
    """Import people's ratings into the store.

    CSV, JSONL or Parquet, with columns item, rater, factor and score. The whole file is checked before anything is
    stored. Importing again changes nothing; a rating that exists takes the new score.

    A rating belongs to an edit: its input, output and instruction. --run or --manifest tells which edits the items are;
    without either, each id must belong to one edit of the store. A rating whose id no run has is stored by that id and
    belongs to no run until it is imported again; one that contradicts it is refused.
    """
    need_statistics()
    from editjudge.ratings import by_content, unique_ratings
    from editjudge.store.ratings import (
        StoredRating,
        add_ratings,
        check_unbound,
        contents_in,
        contents_of,
        count_ratings,
    )

    if run is not None and manifest is not None:
        raise UsageError("--run and --manifest both name the items: give one of them")
    ratings = list(unique_ratings(file))
    if not ratings:
        raise InputError(f"{file}: every score is empty: expected at least one rating")
    if manifest is not None:
        from editjudge.running.plan import contents_of_manifest

        contents = contents_of_manifest(manifest, columns)
    with open_store(store_place) as store:
        if run is not None:
            contents = contents_in(store, store.find_run(run))
        elif manifest is None:
            contents = contents_of(
                store, (rating.item for rating in ratings if not rating.content)
            )
        # which may say what was rated itself
        by_file = run is None and manifest is None
        unscoped = (
            ratings if by_file else [replace(rating, content="") for rating in ratings]
        )
        scoped = by_content(file, unscoped, contents)
        rows = [StoredRating(*astuple(rating)) for rating in scoped]
        if not rows:
            where = f"the run {run}" if run is not None else str(manifest)
            example = f"the first is of {ratings[0].item!r:.80}"
            raise InputError(
                f"{file}: none of its {len(ratings):,} ratings is of an item of {where}; {example}"
            )
        unbound = check_unbound(store, rows)
        before = count_ratings(store)
        add_ratings(store, rows)
        stored = count_ratings(store)
    raters = len({row.rater for row in rows})
    items = len({row.item for row in rows})
    document = {
        "file": str(file),
        "ratings": len(rows),
        "raters": raters,
        "items": items,
    }
    counts = f"{len(rows):,} ratings of {items:,} items by {raters:,} raters"
    left_out = len(ratings) - len(rows)
    remarks = f"; {left_out:,} of other items are left out" if left_out else ""
    remarks += f"; {unbound:,} belong to no run: no run has their id" if unbound else ""
    new = max(0, stored - before)
    tell(
        as_json,
        document
        | {"new": new, "kept": stored}
        | ({"left_out": left_out} if left_out else {})
        | ({"unbound": unbound} if unbound else {}),
        f"{file}: {counts}; {new:,} new, the store has {stored:,}{remarks}",
    )


@command.command("export", epilog="\b\nExample: editjudge ratings export ratings.csv")
@click.argument("file", type=NewFile())
@click.option(
    "--run", metavar="RUN", shell_complete=runs, help="Only those of this run's edits."
)
@store_option
@json_option
def export(file: Path, run: str | None, store_place: str, as_json: bool) -> None:
    """Write every rating of the store as CSV.

    The columns are item, rater, factor and score. If one id belongs to several edits, or was rated by several rubrics,
    the columns content and rubric tell them apart. Pairs have a column choice.

    With --run: only ratings of that run's edits, by their ids in the run.
    """
    from editjudge.store.ratings import csv_lines, ratings_of, read_ratings

    with open_store(store_place, readonly=True) as store:
        if run is None:
            rows = read_ratings(store)
        else:
            of_run = ratings_of(store, store.find_run(run))
            rows = [row._replace(rubric="", choice="") for row in of_run]
    file.write_text("".join(csv_lines(rows)), "utf-8", newline="")
    tell(
        as_json,
        {"written": str(file), "ratings": len(rows)},
        f"wrote {file}: {len(rows):,} ratings",
    )


@command.command(
    epilog="\b\nExample: editjudge ratings invite pilot Ann --server https://rate.example.org"
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
@json_option
def invite(
    study: str, rater: str, server: str, store_place: str, as_json: bool
) -> None:
    """Make a link for one rater of one study.

    It opens that study and nothing else, and is shown only now: the store keeps a hash of it. Inviting the same rater
    again makes a new link, and the old one is no longer valid. STUDY is a study's name or number.
    """
    from editjudge.store.studies import clean_name, named_study
    from editjudge.store.studies import invite as make_link

    with open_store(store_place, create=False) as store:
        place = named_study(store, study)
        code = make_link(store, place, rater)
    link = f"{server.rstrip('/')}/rate/{code}"
    document = {
        "study": place.id,
        "rater": clean_name(rater),
        "path": f"/rate/{code}",
        "link": link,
    }
    tell(as_json, document, f"{clean_name(rater)} rates {place.name} at {link}")


@command.command(epilog="\b\nExample: editjudge ratings links")
@click.argument("study", required=False)
@store_option
@json_option
def links(study: str | None, store_place: str, as_json: bool) -> None:
    """List raters' links to studies."""
    from editjudge.store.studies import list_invitations, list_studies, named_study

    with open_store(store_place, readonly=True) as store:
        rows = list_invitations(store, named_study(store, study) if study else None)
        names = {one.id: one.name for one in list_studies(store)}
    if as_json:
        names_of = ("study_id", "rater", "created", "revoked")
        emit(
            {"links": [{name: getattr(row, name) for name in names_of} for row in rows]}
        )
        return
    for row in rows:
        state = "valid" if row.revoked is None else "withdrawn"
        click.echo(f"{safe(names[row.study_id])}  {safe(row.rater)}  {state}")


@command.command(epilog="\b\nExample: editjudge ratings revoke pilot Ann")
@click.argument("study")
@click.argument("rater")
@store_option
@json_option
def revoke(study: str, rater: str, store_place: str, as_json: bool) -> None:
    """Withdraw a rater's link; their answers stay."""
    from editjudge.store.studies import named_study
    from editjudge.store.studies import revoke as withdraw

    with open_store(store_place, create=False) as store:
        place = named_study(store, study)
        if not withdraw(store, place, rater):
            raise UsageError(
                f"{safe(rater)} has no link to {safe(place.name)}; `editjudge ratings links` lists them"
            )
    tell(
        as_json,
        {"study": place.id, "rater": rater, "revoked": True},
        f"the link of {rater} to {place.name} is withdrawn",
    )


@command.command(epilog="\b\nExample: editjudge ratings rm --rater Ann --study pilot")
@click.option("--rater", required=True, help="Whose answers.")
@click.option(
    "--study",
    help="Only answers in this study. Default: in all studies, and imported ratings.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def rm(
    rater: str, study: str | None, yes: bool, store_place: str, as_json: bool
) -> None:
    """Delete a rater's answers and ratings for good.

    Edits that were given to them can be given to others again. Their link, if they have one, stays valid until it is
    withdrawn with `ratings revoke`.
    """
    from editjudge.store.studies import named_study, remove_answers

    with open_store(store_place, create=False) as store:
        place = named_study(store, study) if study else None
        count = remove_answers(store, rater, place, dry_run=True)
        if not (count.answers or count.ratings):
            raise UsageError(
                f"{safe(rater)} answered nothing{' in this study' if place else ''}: nothing was deleted"
            )
        what = (
            f"{count.answers:,} answers and {count.ratings:,} ratings of {safe(rater)}"
        )
        if not (yes or as_json or agreed(f"Delete {what}?")):
            click.echo(f"kept {what}", err=True)
            sys.exit(1)
        count = remove_answers(store, rater, place)
    document = {
        "rater": rater,
        "study": place.id if place else None,
        "answers": count.answers,
        "ratings": count.ratings,
    }
    tell(
        as_json,
        document,
        f"deleted {count.answers:,} answers and {count.ratings:,} ratings of {rater}",
    )
