"""The tables of a store, how values become columns, and how a file of an older version becomes one of this version.

    runs ──< items                   the edits of a run, in the order of the manifest: (run_id, item), by position
         └─< tasks >── judgements    what a run asks: (run_id, item, rubric, judge, repeat, variant) has the `key` of
                       │             its answer; the same key in two runs is one answer. A task without a judgement is
                       │             pending; until it is planned, its key is one that no answer has
                       ├─< scores    (key, factor): one row for each factor that has a score or a choice
                       └─< replies   every raw reply, also those of failed tries
    rubrics                          by hash; `judgements.rubric_hash` says which was asked
    ratings                          people's scores of an edit, by `items.content`, rater, factor and rubric
    annotations                      tags and a note on an edit, by `items.content`
    views                            saved filters of a run's table, no longer written or read
    studies ──< assignments, answers, invitations
    batches ──< batch_lines          handed in to a provider; claims: which process asks which key
    digests                          of picture files; meta: the version of the schema, and which runs are outlined

A score exists only where the judgement's status is `ok`: `scores` refers to (key, status) of `judgements`, and its
status is always `ok`. To filter or sort a run by a factor, join `tasks` to `scores` on `key`.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from editjudge.edit import Content
from editjudge.errors import StoreError
from editjudge.judgement import FIELDS, PER_FACTOR, Kind
from editjudge.store.rows import SCORE_COLUMNS, BulkInsert, escaped, from_json, json_column, score_rows, unescaped

# --- types ----------------------------------------------------------------------------------------------------


class EscapedText(sa.types.TypeDecorator[str]):
    """Text that others wrote, given back to the character."""

    impl = sa.Text
    cache_ok = True
    encode = staticmethod(escaped)

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[str]:
        # Sorted by bytes, as SQLite does, and not by the custom of the server's country.
        return dialect.type_descriptor(sa.Text(collation="C" if dialect.name == "postgresql" else None))

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else escaped(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else unescaped(value)


class JsonText(sa.types.TypeDecorator[Any]):
    """JSON as text of our own: the databases' JSON types refuse NUL, and reorder keys. None is NULL."""

    impl = sa.Text
    cache_ok = True
    encode = staticmethod(json_column)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else json_column(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else from_json(value)


# --- tables ---------------------------------------------------------------------------------------------------

metadata = sa.MetaData()


def _columns(kind: type[sa.types.TypeEngine[Any]], *names: str, **options: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, **options) for name in names]


meta = sa.Table(
    "meta",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", EscapedText, nullable=False, unique=True),
    sa.Column("spec", JsonText, nullable=False),
    *_columns(sa.Text, "spec_hash", "state", nullable=False),
    *_columns(sa.Double, "created", "updated", nullable=False),
    sa.Column("summary", JsonText),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("imported_from", EscapedText),  # the folder that its pictures may lie in; NULL for a run of our own
    sqlite_autoincrement=True,  # the number of a run that was removed is not given to another
)

rubrics = sa.Table(
    "rubrics",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("name", EscapedText, nullable=False),
    sa.Column("content", JsonText, nullable=False),
)

items = sa.Table(
    "items",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("item", EscapedText, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    *_columns(EscapedText, "model", "edit_type"),
    sa.Column("group_", EscapedText, key="group"),  # a word of SQL
    *_columns(EscapedText, "instruction", "referring_expression", nullable=False),
    *_columns(JsonText, "images", "metadata", nullable=False),
    sa.Column("content", sa.Text, nullable=False, server_default=""),  # the key of `editjudge.edit`
    sa.Index("items_by_position", "run_id", "position"),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id"), primary_key=True),
    *_columns(EscapedText, "item", "rubric", "judge", primary_key=True),
    sa.Column("repeat", sa.Integer, primary_key=True),
    sa.Column("variant", EscapedText, primary_key=True, server_default=""),  # empty where a rubric asks one question
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Index("tasks_by_key", "key"),
    sa.Index("tasks_by_position", "run_id", "position"),
)

_TYPES: dict[Kind, type[sa.types.TypeEngine[Any]]] = {
    "text": EscapedText,
    "code": sa.Text,
    "hash": sa.Text,
    "count": sa.Integer,
    "number": sa.Double,
    "time": sa.Double,
}
"""All other kinds are JSON."""

judgements = sa.Table(
    "judgements",
    metadata,
    *(
        sa.Column(
            field.name, _TYPES.get(field.kind, JsonText), primary_key=field.name == "key", nullable=field.optional
        )
        for field in FIELDS
        if field.table == "judgements"
    ),
    # Resuming looks up statuses alone: from here, without a page of the table for each. Unique, so that a score can
    # refer to it.
    sa.Index("judgements_by_status", "key", "status", unique=True),
)

scores = sa.Table(
    "scores",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("factor", EscapedText, primary_key=True),
    sa.Column("position", sa.SmallInteger, nullable=False),  # of the factor among those of its judgement
    # A whole number is read back as an integer; NULL beside a choice.
    *(
        sa.Column(field.column, sa.Double if field.kind == "numbers" else EscapedText)
        for field in FIELDS
        if field.table == "scores"
    ),
    sa.Column("status", sa.Text, nullable=False, server_default="ok"),  # always `ok`: half of the reference below
    sa.CheckConstraint("status = 'ok'", name="a_score_exists_only_in_ok"),
    sa.ForeignKeyConstraint(["key", "status"], ["judgements.key", "judgements.status"], ondelete="CASCADE"),
    # Filters and sorts by one factor without a page of the table for each.
    sa.Index("scores_by_factor", "factor", "score", "key"),
    sqlite_with_rowid=False,  # one tree instead of two
)

replies = sa.Table(
    "replies",
    metadata,
    # Not BigInteger in SQLite: only INTEGER PRIMARY KEY is the row's own number there.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("mark", sa.BigInteger, nullable=False),  # of its content: the same exchange is kept once
    sa.Column("at", sa.Double, nullable=False),  # the `created` of the judgement that it was part of
    *_columns(EscapedText, "outcome", "finish", nullable=False),
    sa.Column("text", sa.LargeBinary, nullable=False),
    sa.Column("usage", JsonText, nullable=False),
    *_columns(EscapedText, "model", "request_id"),
    sa.Column("latency", sa.Double),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("reasons", JsonText, nullable=False),
    sa.Index("replies_by_key", "key", "mark", unique=True),
)

digests = sa.Table(
    "digests",
    metadata,
    sa.Column("path", EscapedText, primary_key=True),
    *_columns(sa.BigInteger, "size", "mtime_ns", nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("info", JsonText),
    sa.Column("problem", EscapedText, nullable=False),
    sa.Column("ctime_ns", sa.BigInteger),  # these two are NULL in rows of 0.1, which are not trusted
    sa.Column("inode", sa.BigInteger),
)

BY_ID = "id:"
"""Opens the content of a rating of an id that no run had at its import: it belongs to no run."""
LEGACY = "0.1:"
"""Opens the content of a rating of 0.1 that may be of several edits, or of one that is gone: it belongs to no run."""

ratings = sa.Table(
    "ratings",
    metadata,
    sa.Column("content", EscapedText, primary_key=True),  # what was rated: that of an item, or one of the two above
    sa.Column("rubric", sa.Text, primary_key=True),  # the hash of what was asked in the form; else empty
    *_columns(EscapedText, "rater", "factor", primary_key=True),
    sa.Column("item", EscapedText, nullable=False),  # what it was called
    sa.Column("score", sa.Double, nullable=False),  # of a pair: 1 for a, 0 for b, a half for neither
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("study_id", sa.Integer),
    sa.Column("choice", sa.Text),  # of a pair: a, b, tie or both_bad
)

batches = sa.Table(  # handed in to a provider, to be fetched later
    "batches",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.Integer, nullable=False),  # who asked first; others may wait for the same answers
    sa.Column("judge", EscapedText, nullable=False),
    sa.Column("mark", sa.Text, nullable=False, unique=True),  # ours, by which it is found at the provider
    sa.Column("provider_id", EscapedText),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("questions", sa.Integer, nullable=False),
    *_columns(sa.Double, "created", "updated", nullable=False),
    sqlite_autoincrement=True,
)

batch_lines = sa.Table(  # questions without a judgement yet; a key's asks are in the order of their batches
    "batch_lines",
    metadata,
    sa.Column("batch_id", sa.ForeignKey("batches.id"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("status", sa.Integer),
    sa.Column("answer", sa.LargeBinary),
    sa.Index("batch_lines_by_key", "key"),
)

claims = sa.Table(  # questions that a process is asking, or is about to
    "claims",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("until", sa.Double, nullable=False),  # seconds since 1970, by the clock of the database
    sa.Column("until_here", sa.Double),  # the same by the owner's machine, in seconds since that was started
)

studies = sa.Table(  # of people who rate: which edits, by which rubrics, by how many
    "studies",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", EscapedText, nullable=False, unique=True),
    sa.Column("run_id", sa.Integer, nullable=False),
    sa.Column("rubrics", JsonText, nullable=False),
    *_columns(sa.Integer, "overlap", "quota", "controls", nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("models", JsonText),  # only edits of these; NULL: of all
    sa.Column("query", EscapedText),  # only edits that match it, as in the address of a table; NULL: all
    sa.Column("closed", sa.Double),  # when it ended
    sqlite_autoincrement=True,
)

assignments = sa.Table(  # a rater's own order
    "assignments",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True),
    sa.Column("rater", EscapedText, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("item", EscapedText, nullable=False),
    sa.Column("control", sa.Boolean, nullable=False),
)

answers = sa.Table(  # of the rating form
    "answers",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True),
    sa.Column("rater", EscapedText, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("factor", EscapedText, primary_key=True),
    sa.Column("score", sa.Double),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("choice", sa.Text),  # of a pair, as of a rating
)

invitations = sa.Table(  # links of raters; a person has one for each study
    "invitations",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True),
    sa.Column("rater", EscapedText, primary_key=True),
    sa.Column("code", sa.Text, nullable=False, unique=True),  # the hash of it
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
)

edit_annotations = sa.Table(  # what reviewers say of an edit
    "annotations",
    metadata,
    sa.Column("content", EscapedText, primary_key=True),  # that of an item, as of a rating
    sa.Column("tags", JsonText, nullable=False),
    sa.Column("note", EscapedText, nullable=False),
    sa.Column("updated", sa.Double, nullable=False),
)

views = sa.Table(  # no longer written or read; rows of older stores stay until their run is removed
    "views",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id"), primary_key=True),
    sa.Column("name", EscapedText, primary_key=True),
    sa.Column("query", EscapedText, nullable=False),  # of the table's address
    sa.Column("created", sa.Double, nullable=False),
)


def upsert(
    dialect: str,
    table: sa.Table,
    replace: Sequence[str] = (),
    unless: Callable[[sa.Table, Any], sa.ColumnElement[bool]] | None = None,
) -> sa.Insert:
    """INSERT that leaves a row already there alone, or takes the columns `replace` over, unless `unless` holds for it.

    The one place that knows that SQLite and PostgreSQL say it alike and SQLAlchemy has it twice. Only one is imported:
    the dialect of PostgreSQL would be a twentieth of the time in which a run starts.
    """
    insert: Any
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        insert = postgresql.insert(table)
    else:
        from sqlalchemy.dialects import sqlite

        insert = sqlite.insert(table)
    statement: sa.Insert = insert.on_conflict_do_nothing()
    if replace:
        statement = insert.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: insert.excluded[name] for name in replace},
            where=sa.not_(unless(table, insert.excluded)) if unless else None,
        )
    return statement


_DECODERS: dict[type, Callable[[Any], Any]] = {EscapedText: unescaped, JsonText: from_json}


def stored(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A column as the database holds it, for those who decode it themselves or compare it with what is stored."""
    return sa.type_coerce(column, sa.Text) if type(column.type) in _DECODERS else column


def decoder(column: sa.ColumnElement[Any]) -> Callable[[Any], Any] | None:
    """What makes a value of what `stored` reads; None where it is the value itself."""
    return _DECODERS.get(type(column.type))


# --- versions -------------------------------------------------------------------------------------------------


class _EditRow(NamedTuple):
    item: str
    model: str | None
    group: str | None
    instruction: str
    images: Mapping[str, Mapping[str, str | None]]


def _know_items_by_content(connection: sa.Connection) -> None:
    add_columns(connection, items, "content")
    columns = [items.c[name] for name in ("run_id", *_EditRow._fields)]
    place = (items.c.run_id == sa.bindparam("run"), items.c.item == sa.bindparam("edit"))
    fill = sa.update(items).where(*place).values(content=sa.bindparam("key"))
    for (run,) in connection.execute(sa.select(runs.c.id)).all():
        rows = connection.execute(sa.select(*columns).where(items.c.run_id == run)).all()
        keys = [{"run": run, "edit": row[1], "key": Content.of(_EditRow(*row[1:])).key()} for row in rows]
        if keys:
            connection.execute(fill, keys)


def _scope_ratings(connection: sa.Connection) -> None:
    """Ratings of 0.1 knew an item's id alone. What a form asked is in its answers, also where a rating was overwritten;
    a rating from a file belongs to the one edit of its id, if there is one."""
    if "content" in {column["name"] for column in sa.inspect(connection).get_columns("ratings")}:
        return
    names = (
        ("item", EscapedText),
        ("rater", EscapedText),
        ("factor", EscapedText),
        ("score", sa.Double),
        ("created", sa.Double),
    )
    old = connection.execute(sa.select(*(sa.column(n, k) for n, k in names)).select_from(sa.table("ratings"))).all()
    contents: dict[str, set[str]] = {}
    by_run: dict[tuple[int, str], str] = {}
    for run, item, content in connection.execute(sa.select(items.c.run_id, items.c.item, items.c.content)):
        contents.setdefault(item, set()).add(content)
        by_run[run, item] = content
    scoped = list(_rated_in_forms(connection, by_run))
    of_forms = {(row["item"], row["rater"], row["factor"], row["created"]) for row in scoped}
    for item, rater, factor, score, created in old:
        if (item, rater, factor, created) not in of_forms:
            known = contents.get(item, set())
            content = next(iter(known)) if len(known) == 1 else LEGACY + item
            row = {"content": content, "rubric": "", "rater": rater, "factor": factor, "item": item, "score": score}
            scoped.append({**row, "created": created, "study_id": None})
    connection.execute(sa.text("DROP TABLE ratings"))
    ratings.create(connection)
    latest = {tuple(row[c.name] for c in ratings.primary_key): row for row in sorted(scoped, key=_created)}
    if latest:
        connection.execute(sa.insert(ratings), list(latest.values()))
    if lost := sum(row["content"].startswith(LEGACY) for row in latest.values()):
        logging.getLogger(__name__).warning(
            "%s ratings name an item that is no edit of the store, or several: they are kept and belong to no run. To "
            "say what they are of: `ratings export`, then `ratings import --run RUN`",
            f"{lost:,}",
        )


def _created(row: Mapping[str, Any]) -> float:
    return float(row["created"])


def _rated_in_forms(connection: sa.Connection, contents: Mapping[tuple[int, str], str]) -> Iterator[dict[str, Any]]:
    factors = {
        hash_: {factor["key"] for factor in content["factors"]}
        for hash_, content in connection.execute(sa.select(rubrics.c.hash, rubrics.c.content))
    }
    place = [answers.c[name] == assignments.c[name] for name in ("study_id", "rater", "number")]
    joined = answers.join(assignments, sa.and_(*place)).join(studies, studies.c.id == answers.c.study_id)
    columns = (
        *(answers.c.study_id, studies.c.run_id, studies.c.rubrics),
        *(assignments.c.item, answers.c.rater, answers.c.factor, answers.c.score, answers.c.created),
    )
    query = (
        sa.select(*columns).select_from(joined).where(assignments.c.control.is_(False), answers.c.score.is_not(None))
    )
    for study, run, hashes, item, rater, factor, score, created in connection.execute(query):
        rubric = next((hash_ for hash_ in hashes if factor in factors.get(hash_, ())), "")
        row = {"content": contents.get((run, item), LEGACY + item), "rubric": rubric, "rater": rater, "factor": factor}
        yield {**row, "item": item, "score": score, "created": created, "study_id": study}


def _rebuild(connection: sa.Connection, table: sa.Table) -> None:
    """Make the table anew with the rows that it has: SQLite changes neither a key nor a constraint in place."""
    inspected = sa.inspect(connection)
    old = {column["name"] for column in inspected.get_columns(table.name)}
    names = ", ".join(map(connection.dialect.identifier_preparer.format_column, _present(table, old)))
    for index in inspected.get_indexes(table.name):
        connection.execute(sa.text(f"DROP INDEX {index['name']}"))
    connection.execute(sa.text(f"ALTER TABLE {table.name} RENAME TO old_{table.name}"))
    table.create(connection)
    connection.execute(sa.text(f"INSERT INTO {table.name} ({names}) SELECT {names} FROM old_{table.name}"))  # noqa: S608


def _present(table: sa.Table, names: Collection[str]) -> list[sa.Column[Any]]:
    return [column for column in table.columns if column.name in names]


def _give_scores_a_table(connection: sa.Connection) -> None:
    """Until now a judgement held its scores as JSON."""
    if "scores" not in {column["name"] for column in sa.inspect(connection).get_columns("judgements")}:
        return
    rebuild = connection.dialect.name == "sqlite"  # which drops no column that a constraint names
    old = sa.table(
        "old_judgements" if rebuild else "judgements", sa.column("key", sa.Text), sa.column("scores", JsonText)
    )
    if rebuild:
        _rebuild(connection, judgements)
    else:
        connection.execute(sa.text("DROP INDEX judgements_by_status"))
        for index in judgements.indexes:
            index.create(connection)
    scores.create(connection)
    query = sa.select(old.c.key, old.c.scores).where(old.c.scores.is_not(None))
    insert = BulkInsert(connection.dialect, sa.insert(scores), SCORE_COLUMNS)
    with connection.execute(query.execution_options(yield_per=1_000)) as rows:
        for some in rows.partitions():
            rows_of = (row for key, given in some for row in score_rows(key, {"scores": given}))
            insert.execute(connection, insert.encoded(rows_of))
    drop = "DROP TABLE old_judgements" if rebuild else "ALTER TABLE judgements DROP COLUMN scores"
    connection.execute(sa.text(drop))


def _admit_choices_and_variants(connection: sa.Connection) -> None:
    """Until now each factor had a score, and an edit was asked about once by a rubric and repeat."""
    add_columns(connection, judgements, "order")
    inspected = sa.inspect(connection)
    for table, column in ((scores, "mass"), (tasks, "variant")):
        if column in {present["name"] for present in inspected.get_columns(table.name)}:
            continue
        if connection.dialect.name == "sqlite":
            _rebuild(connection, table)
            connection.execute(sa.text(f"DROP TABLE old_{table.name}"))
        else:
            add_columns(connection, table, column)
            if table is scores:
                connection.execute(sa.text("ALTER TABLE scores ALTER COLUMN score DROP NOT NULL, DROP COLUMN spread"))
            else:
                key = ", ".join(part.name for part in tasks.primary_key)
                connection.execute(sa.text(f"ALTER TABLE tasks DROP CONSTRAINT tasks_pkey, ADD PRIMARY KEY ({key})"))


def _join_doubled_ratings(connection: sa.Connection) -> None:
    """Delete ratings by id that were given again once a run had the edit: until now both counted.

    Only where the id is of one edit in the store, and that very edit has the later rating of the same person."""
    bound = ratings.alias("bound")
    scope = ("item", "rubric", "rater", "factor")
    twice = sa.and_(
        *(bound.c[name] == ratings.c[name] for name in scope),
        bound.c.content != ratings.c.content,
        bound.c.created >= ratings.c.created,
    )
    query = sa.select(ratings.c.content, *(ratings.c[name] for name in scope), bound.c.content.label("edit"))
    query = query.select_from(ratings.join(bound, twice)).where(ratings.c.content.startswith(BY_ID, autoescape=True))
    doubled = connection.execute(query).all()
    contents: dict[str, set[str]] = {row.item: set() for row in doubled}
    for item, known in contents.items():
        known.update(connection.scalars(sa.select(items.c.content).where(items.c.item == item).distinct()))
    names = ("content", "rubric", "rater", "factor")
    same = (ratings.c[name] == sa.bindparam(f"its_{name}") for name in names)
    gone = [
        {f"its_{name}": getattr(row, name) for name in names} for row in doubled if contents[row.item] == {row.edit}
    ]
    if gone:
        connection.execute(sa.delete(ratings).where(*same), gone)
        logging.getLogger(__name__).warning(
            "%s ratings by id were given again for the edit of that id: the later ones stay", f"{len(gone):,}"
        )


FactorValues = dict[str, dict[str, Any]]
"""Of one judgement: values by factor, by the fields that have some."""


def of_factors(rows: Iterable[Sequence[Any]]) -> FactorValues:
    """Values by field and factor, of rows of `scores`: the factor, then the columns of `PER_FACTOR` in order."""
    given: FactorValues = {}
    for factor, *values in rows:
        for name, value in zip(PER_FACTOR, values, strict=True):
            if value is not None:
                number = as_number(value) if name == "scores" else value
                given.setdefault(name, {})[factor] = number
    return given


def as_fields(
    given: Mapping[str, Mapping[str, Any]], status: str, names: Iterable[str] = PER_FACTOR
) -> dict[str, dict[str, Any] | None]:
    """The fields of `PER_FACTOR` of a judgement; each has dictionaries of its own."""
    fields = {name: dict(given[name]) if name in given else None if name in _OPTIONAL else {} for name in names}
    if status == "ok" and "scores" in fields and "scores" not in given and "choices" not in given:
        fields["scores"] = {}  # each factor abstained
    return fields


_OPTIONAL = {field.name for field in FIELDS if field.optional}

_EXACT = 2.0**53
"""Up to here a double holds every whole number."""


def as_number(score: float) -> float:
    """A score as it is shown: whole numbers are integers, as judges give them."""
    return int(score) if score.is_integer() and abs(score) <= _EXACT else score


def scores_as_json(dialect: str, key: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """The scores and choices of a judgement in one text, for `scores_from_json`: three times as fast to read as three
    rows."""
    factor, choice = (sa.type_coerce(scores.c[name], sa.Text) for name in ("factor", "choice"))
    score: sa.ColumnElement[float] = scores.c.score
    more: list[sa.ColumnElement[bool]]
    more = [scores.c[column].is_not(None) for column in PER_FACTOR.values() if column not in ("score", "choice")]
    if dialect == "postgresql":  # which writes a double to the last digit
        as_array, as_list = sa.func.json_build_array, sa.func.json_agg
    else:  # SQLite may lose the last one: a score that is no whole number is read from its row
        score = sa.cast(scores.c.score, sa.Integer)
        more.append(scores.c.score != score)
        as_array, as_list = sa.func.json_array, sa.func.json_group_array
    entry = as_array(scores.c.position, factor, score, choice, sa.case((sa.or_(*more), 1), else_=0))
    rows = sa.cast(as_list(entry), sa.Text)
    return sa.select(rows).where(scores.c.key == key).correlate_except(scores).scalar_subquery()


@functools.lru_cache(maxsize=4_096)
def scores_from_json(text: str | None) -> FactorValues | None:
    """Values by field and factor; None where they have to be read from their rows."""
    entries = sorted(json.loads(text or "[]"))
    if any(has_more for *_, has_more in entries):
        return None
    given: FactorValues = {}
    for _, factor, score, choice, _ in entries:
        if score is not None:
            given.setdefault("scores", {})[unescaped(factor)] = as_number(float(score))
        if choice is not None:
            given.setdefault("choices", {})[unescaped(factor)] = unescaped(choice)
    return given


Step = Callable[[sa.Connection], None]
"""A part of a migration. It may find itself done already."""


def _new_tables(*tables: sa.Table) -> Step:
    return lambda connection: metadata.create_all(connection, tables)


def _new_columns(table: sa.Table, *names: str) -> Step:
    return lambda connection: add_columns(connection, table, *names)


def _steps(*steps: Step) -> Step:
    def migrate(connection: sa.Connection) -> None:
        for step in steps:
            step(connection)

    return migrate


def _drop_contradictions(connection: sa.Connection) -> None:
    """They are computed when somebody looks."""
    for table in ("checks", "contradictions"):
        connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))


CHANGES_OF_0_2: list[Step] = [
    _new_columns(digests, "ctime_ns", "inode"),
    _new_tables(claims),
    _new_columns(runs, "imported_from"),
    _new_tables(invitations),
    _know_items_by_content,
    _scope_ratings,
]
"""Together they make a store of 0.2 out of one of 0.1: one version, so that users migrate once. Each may be added to
until 0.2 is released, and never after."""


def _migrate_to_0_2(connection: sa.Connection) -> None:
    _steps(*CHANGES_OF_0_2)(connection)


MIGRATIONS: list[Step] = [
    _new_tables(ratings),
    _steps(),  # added tables of contradictions, which are no more
    _new_tables(batches, batch_lines),
    _new_tables(studies, assignments, answers),
    _migrate_to_0_2,
    _give_scores_a_table,
    _admit_choices_and_variants,
    _steps(_new_columns(ratings, "choice"), _new_columns(answers, "choice")),
    _drop_contradictions,
    _steps(_new_tables(edit_annotations, views), _new_columns(studies, "models", "query", "closed")),
    _steps(_new_columns(claims, "until_here"), _join_doubled_ratings),
]
"""The first makes a store of version 2 out of one of version 1, and so on. What was released is never changed."""

RELEASES = {5: "0.1"}
"""The schema that each released version wrote last; older ones were never released."""


def add_columns(connection: sa.Connection, table: sa.Table, *names: str) -> None:
    """Add columns that the table has by now; they are nullable or have a server default."""
    present = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    for name in names:
        if name not in present:
            column = sa.schema.CreateColumn(table.c[name]).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column}")


def release_of(stored: int) -> str:
    """The version of editjudge that wrote a schema."""
    return next((name for version, name in sorted(RELEASES.items()) if stored <= version), f"schema-{stored}")


def version() -> int:
    """Of the schema that this program writes."""
    return 1 + len(MIGRATIONS)


def found(connection: sa.Connection, place: str) -> int | None:
    """The version of the store at the other end; None where there is nothing yet."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    stored = _stored_version(connection, tables)
    if stored is None:
        raise StoreError(f"{place}: a database, but not a store of editjudge: name another one with --store")
    if stored > version():
        raise StoreError(
            f"{place}: written by a newer editjudge (schema {stored}; this one knows up to {version()}): "
            "upgrade editjudge, or name another store with --store"
        )
    return stored


_OF_EVERY_VERSION = (meta, runs, items, tasks, judgements, replies)


def _stored_version(connection: sa.Connection, tables: Collection[str]) -> int | None:
    """The version that a database names; None where it is not a store: other programs have a table `meta`, too."""
    if any(table.name not in tables for table in _OF_EVERY_VERSION):
        return None
    columns = {column["name"] for column in sa.inspect(connection).get_columns(meta.name)}
    if not columns >= {column.name for column in meta.columns}:
        return None
    value = str(connection.scalar(sa.select(meta.c.value).where(meta.c.name == "schema_version")))
    return int(value) if value.isascii() and value.isdecimal() else None


def bring_up_to_date(connection: sa.Connection, place: str) -> None:
    """Make the tables, or migrate them. Runs in one transaction, so that a killed migration has not happened."""
    if connection.dialect.name == "postgresql":
        # Those who come at once take turns; the number is of no other meaning.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(0x65646974)))
        if (encoding := connection.scalar(sa.text("SHOW server_encoding"))) != "UTF8":
            raise StoreError(f"{place}: has the encoding {encoding}: make one with `createdb --encoding=UTF8`")
    stored = found(connection, place)
    if stored is None:
        metadata.create_all(connection)
        connection.execute(sa.insert(meta).values(name="schema_version", value=str(version())))
        return
    _steps(*MIGRATIONS[stored - 1 :])(connection)
    if stored != version():
        connection.execute(sa.update(meta).where(meta.c.name == "schema_version").values(value=str(version())))
