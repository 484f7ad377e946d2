"""`editjudge ratings`: what people said, into the store and out of it; who may say it, and how to take it back."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from editjudge.cli.options import NewFile, open_store, store_option
from editjudge.cli.output import agreed, emit, json_option, safe, tell
from editjudge.cli.shown import need_statistics
from editjudge.errors import UsageError


@click.group()
def command() -> None:
    """People's ratings: one for each item, rater and factor."""


@command.command("import", epilog="\b\nExample: editjudge ratings import ratings.csv")
@click.argument("file", type=click.Path(path_type=Path))
@store_option
@json_option
def import_(file: Path, store_place: str, as_json: bool) -> None:
    """Bring a file of people's ratings into the store.

    CSV, JSONL or Parquet, with item, rater, factor and score. Twice is once; a rating that is there already takes the
    new score. The file is checked whole before any is kept.
    """
    need_statistics()
    from editjudge.ratings import unique_ratings
    from editjudge.store.ratings import add_ratings, count_ratings

    found = list(unique_ratings(file))
    with open_store(store_place) as store:
        before = count_ratings(store)
        add_ratings(store, ((r.item, r.rater, r.factor, r.score) for r in found))
        kept = count_ratings(store)
    raters, items = len({r.rater for r in found}), len({r.item for r in found})
    document = {"file": str(file), "ratings": len(found), "raters": raters, "items": items}
    told = f"{len(found):,} ratings of {items:,} items by {raters:,} raters"
    tell(
        as_json,
        document | {"new": kept - before, "kept": kept},
        f"{file}: {told}; {kept - before:,} new, the store has {kept:,}",
    )


@command.command("export", epilog="\b\nExample: editjudge ratings export ratings.csv")
@click.argument("file", type=NewFile())
@store_option
@json_option
def export(file: Path, store_place: str, as_json: bool) -> None:
    """Write every rating of the store as CSV.

    With the columns item, rater, factor and score.
    """
    from editjudge.store.ratings import csv_lines, read_ratings

    with open_store(store_place, readonly=True) as store:
        rows = read_ratings(store)
    file.write_text("".join(csv_lines(rows)), "utf-8", newline="")
    tell(as_json, {"written": str(file), "ratings": len(rows)}, f"wrote {file}: {len(rows):,} ratings")


@command.command(epilog="\b\nExample: editjudge ratings invite pilot Ann --server https://rate.example.org")
@click.argument("study")
@click.argument("rater")
@click.option("--server", default="http://127.0.0.1:8427", show_default=True, help="Where raters reach `serve`.")
@store_option
@json_option
def invite(study: str, rater: str, server: str, store_place: str, as_json: bool) -> None:
    """Make a link for one rater of one study.

    It opens that study and nothing else, and is shown only now: the store keeps a hash of it. Inviting the same rater
    again makes a new link, and the old one is no longer valid. STUDY is a study's name or number.
    """
    from editjudge.store.invitations import clean_name, named_study
    from editjudge.store.invitations import invite as make_link

    with open_store(store_place, create=False) as store:
        place = named_study(store, study)
        code = make_link(store, place, rater)
    link = f"{server.rstrip('/')}/rate/{code}"
    document = {"study": place.id, "rater": clean_name(rater), "path": f"/rate/{code}", "link": link}
    tell(as_json, document, f"{clean_name(rater)} rates {place.name} at {link}")


@command.command(epilog="\b\nExample: editjudge ratings links")
@click.argument("study", required=False)
@store_option
@json_option
def links(study: str | None, store_place: str, as_json: bool) -> None:
    """Who has a link to which study, and whose was withdrawn."""
    from editjudge.store.invitations import list_invitations, named_study
    from editjudge.store.studies import list_studies

    with open_store(store_place, readonly=True) as store:
        rows = list_invitations(store, named_study(store, study) if study else None)
        names = {one.id: one.name for one in list_studies(store)}
    if as_json:
        names_of = ("study_id", "rater", "created", "revoked")
        emit({"links": [{name: getattr(row, name) for name in names_of} for row in rows]})
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
    """Withdraw a rater's link; what they answered stays."""
    from editjudge.store.invitations import named_study
    from editjudge.store.invitations import revoke as withdraw

    with open_store(store_place, create=False) as store:
        place = named_study(store, study)
        if not withdraw(store, place, rater):
            raise UsageError(f"{safe(rater)} has no link to {safe(place.name)}; `editjudge ratings links` lists them")
    tell(
        as_json,
        {"study": place.id, "rater": rater, "revoked": True},
        f"the link of {rater} to {place.name} is withdrawn",
    )


@command.command(epilog="\b\nExample: editjudge ratings rm --rater Ann --study pilot")
@click.option("--rater", required=True, help="Whose answers.")
@click.option("--study", help="Only those of this study; everywhere without it, imported ratings included.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def rm(rater: str, study: str | None, yes: bool, store_place: str, as_json: bool) -> None:
    """Delete a rater's answers and ratings for good.

    Edits that were given to them can be given to others again. Their link, if they have one, stays valid until it is
    withdrawn with `ratings revoke`.
    """
    from editjudge.store.invitations import named_study, remove_answers

    with open_store(store_place, create=False) as store:
        place = named_study(store, study) if study else None
        count = remove_answers(store, rater, place, dry_run=True)
        if not (count.answers or count.ratings):
            raise UsageError(f"{safe(rater)} answered nothing{' in this study' if place else ''}: nothing was deleted")
        what = f"{count.answers:,} answers and {count.ratings:,} ratings of {safe(rater)}"
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
    tell(as_json, document, f"deleted {count.answers:,} answers and {count.ratings:,} ratings of {rater}")
