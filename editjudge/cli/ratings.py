"""`editjudge ratings`: what people said, into the store and out of it."""

from __future__ import annotations

from pathlib import Path

import click

from editjudge.cli.options import NewFile, open_store, store_option
from editjudge.cli.output import json_option, tell
from editjudge.cli.shown import need_statistics


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
