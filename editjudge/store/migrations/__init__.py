"""Migrations of a store from older versions of the schema, one step for each version.

Steps never change once they are released. NNNN.sql turns the previous version into version NNNN, in SQL that both
databases accept. NNNN.sqlite.sql and NNNN.postgresql.sql are run after it, each for one database. Steps that SQL cannot
express are functions below, with literal SQL, and are run last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from editjudge.errors import Option, StoreError
from editjudge.matching import Content
from editjudge.store.records import Item
from editjudge.store.schema import (
    escaped,
    from_json,
    items,
    judgements,
    meta,
    metadata,
    replies,
    runs,
    tasks,
    unescaped,
    upsert,
)

FIRST = 5
"""Schema version of editjudge 0.1; older versions were never released."""
RELEASES = {5: "0.1"}
"""Last release that wrote each schema version."""
LEGACY = "0.1:"
"""Prefix of the content key of a rating from 0.1 that may belong to several edits or to a deleted one. Such a rating
does not belong to a run.
"""


def migrate(connection: sa.Connection, stored: int) -> None:
    """Migrate a store from the stored version to this one."""
    for version in range(stored + 1, VERSION + 1):
        for statement in _statements(version, connection.dialect.name):
            connection.execute(sa.text(statement))
        if version in STEPS:
            STEPS[version](connection)


def release_of(version: int) -> str:
    """Return the release that wrote a schema version."""
    return RELEASES.get(version, f"schema-{version}")


def _statements(version: int, dialect: str) -> Iterator[str]:
    for end in ("sql", f"{dialect}.sql"):
        path = Path(__file__).with_name(f"{version:04}.{end}")
        if path.exists():
            lines = path.read_text("utf-8").splitlines()
            text = "\n".join(line for line in lines if not line.startswith("--"))
            yield from filter(None, map(str.strip, text.split(";")))


def _edits(connection: sa.Connection) -> Iterator[tuple[int, str, Content]]:
    """Yield the run, the stored id and the content of every edit."""
    for (run,) in connection.execute(sa.text("SELECT id FROM runs")).all():
        rows = connection.execute(
            sa.text(
                "SELECT item, model, group_, instruction, images FROM items WHERE run_id = :run"
            ),
            {"run": run},
        ).all()
        for item, model, group, instruction, images in rows:
            edit = Item(
                unescaped(item),
                model=None if model is None else unescaped(model),
                group=None if group is None else unescaped(group),
                instruction=unescaped(instruction),
                images=from_json(images),
            )
            yield run, item, Content.of(edit)


def _give_items_contents_and_ratings_a_scope(connection: sa.Connection) -> None:
    """Add the content key to ratings from 0.1, which had only an item's id. The answers in a form identify the rated
    edit, even if another study overwrote the rating. A rating from a file belongs to the edit with its id, if there is
    exactly one.
    """
    contents: dict[str, set[str]] = {}
    by_run: dict[tuple[int, str], str] = {}
    for run, item, content in _edits(connection):
        by_run[run, item] = content.key()
        contents.setdefault(item, set()).add(content.key())
    fill = sa.text(
        "UPDATE items SET content = :content WHERE run_id = :run AND item = :item"
    )
    for (run, item), key in by_run.items():
        connection.execute(fill, {"run": run, "item": item, "content": key})
    scoped = list(_rated_in_forms(connection, by_run))
    names = ("item", "rater", "factor", "created")
    of_forms = {tuple(row[name] for name in names) for row in scoped}
    ratings = connection.execute(
        sa.text("SELECT item, rater, factor, score, created FROM old_ratings")
    )
    for row in ratings.mappings():
        if tuple(row[name] for name in names) not in of_forms:
            of_id = contents.get(row["item"], set())
            content_key = (
                next(iter(of_id)) if len(of_id) == 1 else _unbound(row["item"])
            )
            scope = {"content": content_key, "rubric": "", "study_id": None}
            scoped.append({**row, **scope})
    insert = sa.text(
        "INSERT INTO ratings (content, rubric, rater, factor, item, score, created, study_id) "
        "VALUES (:content, :rubric, :rater, :factor, :item, :score, :created, :study_id) "
        "ON CONFLICT (content, rubric, rater, factor) DO UPDATE SET item = excluded.item, score = excluded.score, "
        "created = excluded.created, study_id = excluded.study_id"
    )
    for values in sorted(scoped, key=lambda row: float(row["created"])):
        connection.execute(insert, values)
    connection.execute(sa.text("DROP TABLE old_ratings"))
    unbound = connection.scalar(
        sa.text("SELECT count(*) FROM ratings WHERE substr(content, 1, 4) = :mark"),
        {"mark": LEGACY},
    )
    if unbound:
        logging.getLogger(__name__).warning(
            "%s ratings have the id of no edit of the store, or of several: they stay, but belong to no run. To assign "
            "them to edits: `ratings export`, then `ratings import --run RUN`",
            f"{unbound:,}",
        )


def _unbound(item: str) -> str:
    """Return the content key for a rating that does not belong to a run. Both parts are escaped, as they are in the
    store.
    """
    return escaped(LEGACY + unescaped(item))


def _rated_in_forms(
    connection: sa.Connection, contents: dict[tuple[int, str], str]
) -> Iterator[dict[str, Any]]:
    factors = {
        key: {escaped(factor["key"]) for factor in from_json(content)["factors"]}
        for key, content in connection.execute(
            sa.text("SELECT hash, content FROM rubrics")
        )
    }
    rows = connection.execute(
        sa.text(
            "SELECT answers.study_id, studies.run_id, studies.rubrics, assignments.item, answers.rater, answers.factor, "
            "answers.score, answers.created FROM answers JOIN assignments ON assignments.study_id = answers.study_id "
            "AND assignments.rater = answers.rater AND assignments.number = answers.number JOIN studies "
            "ON studies.id = answers.study_id WHERE NOT assignments.control AND answers.score IS NOT NULL"
        )
    )
    for row in rows.mappings():
        values = dict(row)
        run = values.pop("run_id")
        hashes = from_json(values.pop("rubrics"))
        candidates = (key for key in hashes if row["factor"] in factors.get(key, ()))
        values["rubric"] = next(candidates, "")
        values["content"] = contents.get((run, row["item"]), _unbound(row["item"]))
        yield values


def _join_doubled_ratings(connection: sa.Connection) -> None:
    """Delete ratings that name only an id and were repeated after a run added the edit, since both were counted. A
    rating is deleted if its id belongs to only one edit in the store, and the same person has a later rating of that
    edit.
    """
    deleted = connection.execute(
        sa.text(
            "DELETE FROM ratings WHERE substr(content, 1, 3) = :by_id AND EXISTS (SELECT 1 FROM ratings later "
            "WHERE later.item = ratings.item AND later.rubric = ratings.rubric AND later.rater = ratings.rater "
            "AND later.factor = ratings.factor AND later.content <> ratings.content "
            "AND later.created >= ratings.created AND later.content = (SELECT min(content) FROM items "
            "WHERE items.item = ratings.item HAVING count(DISTINCT content) = 1))"
        ),
        {"by_id": "id:"},
    ).rowcount
    if deleted:
        logging.getLogger(__name__).warning(
            "%s ratings by id were given again for the edit of that id: the later ones stay",
            f"{deleted:,}",
        )


def _give_items_tasks(connection: sa.Connection) -> None:
    fill = sa.text("UPDATE items SET task = :task WHERE run_id = :run AND item = :item")
    for run, item, content in _edits(connection):
        values = {"run": run, "item": item, "task": content.key("task")}
        connection.execute(fill, values)


STEPS: dict[int, Callable[[sa.Connection], None]] = {
    6: _give_items_contents_and_ratings_a_scope,
    12: _join_doubled_ratings,
    13: _give_items_tasks,
}
VERSION = 13
"""Schema version that this program writes."""

# --- versions -------------------------------------------------------------------------------------------------


def version_of(connection: sa.Connection, store_name: str) -> int | None:
    """Return the schema version of a connected store, or None if it is empty."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    stored = _stored_version(connection, tables)
    other = "name another store with --store"
    if stored is None:
        code = "another_program"
        problem = (
            "a database, but not a store of editjudge: name another one with --store"
        )
    elif stored < FIRST:
        code = "too_old"
        problem = f"written before editjudge 0.1 (schema {stored}): {other}"
    elif stored > VERSION:
        code = "too_new"
        problem = (
            f"written by a newer editjudge (schema {stored}; this one knows up to {VERSION}): upgrade editjudge, or "
            f"{other}"
        )
    else:
        return stored
    raise StoreError(f"{store_name}: {problem}", code=code, options=[Option("store")])


_OF_EVERY_VERSION = (meta, runs, items, tasks, judgements, replies)


def _stored_version(connection: sa.Connection, tables: Collection[str]) -> int | None:
    """Return the schema version of a database, or None if it is not a store. Another program's database may also have a
    table `meta`.
    """
    if any(table.name not in tables for table in _OF_EVERY_VERSION):
        return None
    columns = sa.inspect(connection).get_columns(meta.name)
    if not {column["name"] for column in columns} >= {*meta.columns.keys()}:
        return None
    value = str(
        connection.scalar(
            sa.select(meta.c.value).where(meta.c.name == "schema_version")
        )
    )
    return int(value) if value.isascii() and value.isdecimal() else None


def bring_up_to_date(connection: sa.Connection, store_name: str) -> None:
    """Create the tables, or migrate them. Everything happens in one transaction, so a migration that is killed changes
    nothing.
    """
    if connection.dialect.name == "postgresql":
        # Processes that open the store at the same time take turns; the number is arbitrary.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x65646974)))
        if (encoding := connection.scalar(sa.text("SHOW server_encoding"))) != "UTF8":
            raise StoreError(
                f"{store_name}: has the encoding {encoding}: make one with `createdb --encoding=UTF8`"
            )
    stored = version_of(connection, store_name)
    if stored is None:
        metadata.create_all(connection)
    else:
        migrate(connection, stored)
    row = {"name": "schema_version", "value": str(VERSION)}
    connection.execute(upsert(connection.dialect.name, meta, ["value"]), row)
