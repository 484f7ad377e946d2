"""The tables of a store, and the conversion of values to columns.

    runs ──< items                   the edits of a run, in the order of the manifest: (run_id, item), by position
         └─< tasks >── judgements    questions of a run: (run_id, item, rubric, judge, repeat, variant) has the `key` of
                       │             its answer; the same key in two runs is one answer. A task without a judgement is
                       │             pending; until it is planned, its key is a placeholder without an answer
                       ├─< scores    (key, factor): one row for each factor that has a score or a choice
                       └─< replies   every raw reply, including those of failed attempts
    rubrics                          keyed by hash, to which `judgements.rubric_hash` refers
    ratings                          people's scores of an edit, keyed by `items.content`, rater, factor and rubric
    annotations                      tags and a note on an edit, keyed by `items.content`
    edit_scores, edit_score_fills    derived: the mean score of each edit, for lists in the browser
    studies ──< assignments, answers, invitations
    batches ──< batch_lines          submitted to a provider; claims: which process asks which key
    digests                          of image files; meta: the version of the schema, and which runs are outlined

A score exists only if the judgement's status is `ok`: `scores` refers to (key, status) of `judgements`, and its
status is always `ok`. To filter or sort a run by a factor, join `tasks` to `scores` on `key`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.judgement import FIELDS, Kind, Usage
from editjudge.rubrics.verdict import Remark

Column: TypeAlias = sa.ColumnElement[Any]
"""A column or an expression. Its values have the types of the rows into which it is read."""

# --- values -------------------------------------------------------------------------------------------------

_ESCAPED = "\x01"
"""Prefix of a string that is stored in escaped form. It is a character that PostgreSQL can store and people do not
type.
"""


def escaped(text: str) -> str:
    """Return a string in a form that every database can store. PostgreSQL rejects NUL, and an unpaired surrogate is not
    valid UTF-8.
    """
    if "\0" not in text and not text.startswith(_ESCAPED):
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    # Not JSON's escapes, since JSON would join two adjacent unpaired surrogates into one character.
    return _ESCAPED + text.encode("unicode_escape").decode("ascii")


def unescaped(stored: str) -> str:
    return (
        stored[1:].encode("ascii").decode("unicode_escape")
        if stored.startswith(_ESCAPED)
        else stored
    )


def json_column(value: object) -> str:
    return escaped(as_json(value))


def from_json(stored: str) -> Any:
    return json.loads(unescaped(stored))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Usage | Remark):
        return value.as_json()
    raise TypeError(f"{value!r} is not JSON")


# One encoder for all values, since json.dumps with options creates a new one at each call.
as_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode

_RAW = b"\x00"
_ZLIB = b"\x01"


def packed(text: str) -> bytes:
    """Return a raw reply as compressed bytes. The first byte identifies the codec, so other codecs can be added later."""
    data = text.encode("utf-8", "surrogatepass")
    small = zlib.compress(data)
    return _ZLIB + small if len(small) < len(data) else _RAW + data


def unpacked(stored: bytes) -> str:
    codec = stored[:1]
    data = stored[1:]
    if codec not in (_RAW, _ZLIB):
        raise StoreError(
            f"a reply is stored with the codec {codec!r}, which this version does not know: upgrade",
            code="unknown_codec",
        )
    return (zlib.decompress(data) if codec == _ZLIB else data).decode(
        "utf-8", "surrogatepass"
    )


# --- types ----------------------------------------------------------------------------------------------------


class EscapedText(sa.types.TypeDecorator[str]):
    """Column type for untrusted text. Reading returns exactly the characters that were written."""

    impl = sa.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[str]:
        # Sorted by bytes, as in SQLite, and not by the server's locale.
        return dialect.type_descriptor(
            sa.Text(collation="C" if dialect.name == "postgresql" else None)
        )

    # Not `process_bind_param`, which two more calls lead to: a run binds fifty values an edit.
    def bind_processor(self, dialect: sa.Dialect) -> Callable[[str | None], str | None]:
        return lambda value: None if value is None else escaped(value)

    def process_result_value(
        self, value: str | None, dialect: sa.Dialect
    ) -> str | None:
        return None if value is None else unescaped(value)


class JsonText(sa.types.TypeDecorator[object]):
    """Column type for JSON, stored as plain text because the databases' JSON types reject NUL and reorder keys. None is
    NULL.
    """

    impl = sa.Text
    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[object], str | None]:
        return lambda value: None if value is None else json_column(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> object:
        return None if value is None else from_json(value)


# --- tables ---------------------------------------------------------------------------------------------------

metadata = sa.MetaData()


_Type: TypeAlias = type[sa.types.TypeEngine[Any]]


def _columns(
    kind: _Type,
    *names: str,
    nullable: bool = True,
    primary_key: bool = False,
) -> list[sa.Column[Any]]:
    is_null = nullable and not primary_key
    return [
        sa.Column(name, kind, nullable=is_null, primary_key=primary_key)
        for name in names
    ]


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
    sa.Column(
        "imported_from", EscapedText
    ),  # the folder that its images may be in; NULL if it was not imported
    sqlite_autoincrement=True,  # the id of a removed run is not used again
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
    sa.Column("group_", EscapedText, key="group"),  # a reserved word
    *_columns(EscapedText, "instruction", "referring_expression", nullable=False),
    *_columns(JsonText, "images", "metadata", nullable=False),
    sa.Column(
        "content", sa.Text, nullable=False, server_default=""
    ),  # identity of the edit, by `editjudge.edit`
    sa.Column(
        "task", sa.Text, nullable=False, server_default=""
    ),  # identity of input and instruction: equal for all models
    sa.Index("items_by_position", "run_id", "position"),
    sa.Index("items_by_task", "run_id", "task"),
    sa.Index("items_by_content", "run_id", "content"),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("run_id", sa.ForeignKey("runs.id"), primary_key=True),
    *_columns(EscapedText, "item", "rubric", "judge", primary_key=True),
    sa.Column("repeat", sa.Integer, primary_key=True),
    sa.Column(
        "variant", EscapedText, primary_key=True, server_default=""
    ),  # empty if the rubric asks a single question
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Index("tasks_by_key", "key"),
    sa.Index("tasks_by_position", "run_id", "position"),
)

_TYPES: dict[Kind, _Type] = {
    "text": EscapedText,
    "code": sa.Text,
    "hash": sa.Text,
    "count": sa.Integer,
    "number": sa.Double,
    "time": sa.Double,
}
"""Column types for some kinds of values. All other kinds are stored as JSON."""

judgements = sa.Table(
    "judgements",
    metadata,
    *(
        sa.Column(
            field.name,
            _TYPES.get(field.kind, JsonText),
            primary_key=field.name == "key",
            nullable=field.optional,
        )
        for field in FIELDS
        if field.table == "judgements"
    ),
    # A resumed run reads only statuses, from this index instead of the table. It is unique, so that a score can refer
    # to it.
    sa.Index("judgements_by_status", "key", "status", unique=True),
)

scores = sa.Table(
    "scores",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("factor", EscapedText, primary_key=True),
    sa.Column(
        "position", sa.SmallInteger, nullable=False
    ),  # position among the factors of its judgement
    # Whole numbers are read as integers; NULL if there is a choice instead.
    *(
        sa.Column(field.column, sa.Double if field.kind == "numbers" else EscapedText)
        for field in FIELDS
        if field.table == "scores"
    ),
    sa.Column(
        "status", sa.Text, nullable=False, server_default="ok"
    ),  # always `ok`: part of the foreign key below
    sa.CheckConstraint("status = 'ok'", name="a_score_exists_only_in_ok"),
    sa.ForeignKeyConstraint(
        ["key", "status"], ["judgements.key", "judgements.status"], ondelete="CASCADE"
    ),
    # For filters and sorting by one factor without reading the table for each row.
    sa.Index("scores_by_factor", "factor", "score", "key"),
    sqlite_with_rowid=False,  # one B-tree instead of two
)

replies = sa.Table(
    "replies",
    metadata,
    # Not BigInteger in SQLite, since only INTEGER PRIMARY KEY is an alias of the row id.
    sa.Column(
        "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True
    ),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column(
        "mark", sa.BigInteger, nullable=False
    ),  # digest of the content: the same exchange is stored once
    sa.Column("at", sa.Double, nullable=False),  # `created` of its judgement
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
    sa.Column(
        "ctime_ns", sa.BigInteger
    ),  # both are NULL in rows of 0.1, which are not used
    sa.Column("inode", sa.BigInteger),
)

BY_ID = "id:"
"""Prefix of the content key of a rating whose id was not in any run when it was imported. Such a rating does not belong
to a run.
"""

ratings = sa.Table(
    "ratings",
    metadata,
    sa.Column(
        "content", EscapedText, primary_key=True
    ),  # content of an item, or one of the two prefixes above
    sa.Column(
        "rubric", sa.Text, primary_key=True
    ),  # hash of the rubric of the form; else empty
    *_columns(EscapedText, "rater", "factor", primary_key=True),
    sa.Column("item", EscapedText, nullable=False),  # id when it was rated
    sa.Column(
        "score", sa.Double, nullable=False
    ),  # for a pair: 1 for a, 0 for b, 0.5 for neither
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("study_id", sa.Integer),
    sa.Column("choice", sa.Text),  # for a pair: a, b, tie or both_bad
)

batches = sa.Table(  # submitted to a provider, to be collected later
    "batches",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "run_id", sa.Integer, nullable=False
    ),  # the first run that asked; others may wait for the same answers
    sa.Column("judge", EscapedText, nullable=False),
    sa.Column(
        "mark", sa.Text, nullable=False, unique=True
    ),  # our mark, by which it is found at the provider
    sa.Column("provider_id", EscapedText),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("questions", sa.Integer, nullable=False),
    *_columns(sa.Double, "created", "updated", nullable=False),
    sqlite_autoincrement=True,
)

batch_lines = sa.Table(  # questions without a judgement yet; repeated questions are in the order of their batches
    "batch_lines",
    metadata,
    sa.Column("batch_id", sa.ForeignKey("batches.id"), primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("status", sa.Integer),
    sa.Column("answer", sa.LargeBinary),
    sa.Index("batch_lines_by_key", "key"),
)

claims = sa.Table(  # questions that a process is asking or will ask
    "claims",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column(
        "until", sa.Double, nullable=False
    ),  # seconds since 1970, by the clock of the database
    sa.Column(
        "until_here", sa.Double
    ),  # the same by the owner's machine, in seconds since its boot
)

studies = sa.Table(  # what raters rate: edits, rubrics, number of raters
    "studies",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", EscapedText, nullable=False, unique=True),
    sa.Column("run_id", sa.Integer, nullable=False),
    sa.Column("rubrics", JsonText, nullable=False),
    *_columns(sa.Integer, "overlap", "quota", "controls", nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("models", JsonText),  # only edits of these models; NULL: all
    sa.Column(
        "query", EscapedText
    ),  # only edits that match this query of a table's address; NULL: all
    sa.Column("closed", sa.Double),  # time of the end
    sqlite_autoincrement=True,
)

assignments = sa.Table(  # edits of each rater, in order
    "assignments",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True),
    sa.Column("rater", EscapedText, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("item", EscapedText, nullable=False),
    sa.Column("control", sa.Boolean, nullable=False),
)

answers = sa.Table(  # answers in the rating form
    "answers",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True),
    sa.Column("rater", EscapedText, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("factor", EscapedText, primary_key=True),
    sa.Column("score", sa.Double),
    sa.Column("reason", EscapedText, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("choice", sa.Text),  # for a pair, as in `ratings`
)

invitations = sa.Table(  # links of raters; one for each person and study
    "invitations",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True),
    sa.Column("rater", EscapedText, primary_key=True),
    sa.Column("code", sa.Text, nullable=False, unique=True),  # hash of the code
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
)

edit_annotations = sa.Table(  # tags and notes of reviewers
    "annotations",
    metadata,
    sa.Column(
        "content", EscapedText, primary_key=True
    ),  # content of an item, as in `ratings`
    sa.Column("tags", JsonText, nullable=False),
    sa.Column("note", EscapedText, nullable=False),
    sa.Column("updated", sa.Double, nullable=False),
)

edit_scores = sa.Table(  # derived scores by judge and factor, for lists
    "edit_scores",
    metadata,
    sa.Column("run_id", sa.Integer, primary_key=True, autoincrement=False),
    *_columns(EscapedText, "judge", primary_key=True),  # empty: all judges of the run
    *_columns(EscapedText, "rubric", "factor", primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    *_columns(sa.Double, "mean", "low", "high", nullable=False),
    sa.Index("edit_scores_by_mean", "run_id", "judge", "rubric", "factor", "mean"),
    sqlite_with_rowid=False,
)

edit_score_fills = sa.Table(  # which of these are filled
    "edit_score_fills",
    metadata,
    sa.Column("run_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("judge", EscapedText, primary_key=True),
    sa.Column("filled", sa.Double, nullable=False),  # time of filling; its duration
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column(
        "stale", sa.Boolean, nullable=False
    ),  # judgements or edits have changed since
    sa.Column("choices", JsonText, nullable=False),  # options of the filters
)


NewRow: TypeAlias = sa.ColumnCollection[str, Column]
"""Columns of the row that would replace an existing one."""


def upsert(
    dialect: str,
    table: sa.Table,
    replace: Sequence[str] = (),
    unless: Callable[[sa.Table, NewRow], sa.ColumnElement[bool]] | None = None,
) -> sa.Insert:
    """Return an INSERT statement for new rows. If a row exists, its columns in `replace` are updated, except if the
    condition `unless` is true for it.

    SQLite and PostgreSQL have the same syntax, but SQLAlchemy has two classes for it. Only one is imported:
    PostgreSQL's dialect would take a twentieth of a run's start-up time.
    """
    insert: postgresql.Insert | sqlite.Insert
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
