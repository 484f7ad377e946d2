"""Import of an exported run into a store. All rows are checked before the first one is written. Importing a run again
changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import sqlalchemy as sa
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from editjudge.canonical import json_hash, read_json
from editjudge.errors import ManifestError
from editjudge.judgement import (
    DONE,
    EMPTY_ROW,
    PER_FACTOR,
    Kind,
    Task,
    Usage,
    inconsistency,
)
from editjudge.judgement import Field as Column
from editjudge.matching import Content
from editjudge.orders import read_choice
from editjudge.redaction import redacted_address, redacted_metadata, redacted_settings
from editjudge.rubrics.model import Layout, Rubric
from editjudge.rubrics.scale import Scale
from editjudge.store.database import chunks
from editjudge.store.judgements import Values, factor_fields
from editjudge.store.ratings import NOTE, clean_tags
from editjudge.store.records import PENDING, Item, RunRecord, State
from editjudge.store.schema import (
    edit_annotations,
    judgements,
    packed,
    runs,
    tasks,
    upsert,
)
from editjudge.store.store import Store, update_run
from editjudge.store.tables import TABLES, file_digest, read_file, table_files

_BATCH = 2_000

# --- rows -----------------------------------------------------------------------------------------------------

Key = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Text = InstanceOf[str]
"""Any string. Pydantic's own type rejects unpaired surrogates, which models produce and a store keeps."""
Time = Annotated[float, Field(ge=0, lt=253_402_300_800)]
"""Seconds since 1970, before the year 10,000, which `datetime` cannot represent."""
Score = Annotated[int, Field(ge=-(2**53), le=2**53)] | float
Tokens = Annotated[int, Field(ge=0, lt=2**63)]


def _is_json(value: dict[str, object]) -> dict[str, object]:
    """Return the value. Raise `ValueError` if it contains NaN or Infinity, which a store cannot represent."""
    json.dumps(value, allow_nan=False)
    return value


Document = Annotated[dict[Text, Any], AfterValidator(_is_json)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    if TYPE_CHECKING:  # the fields of a row are the columns of its table

        def __getattr__(self, name: str) -> Any: ...


R = TypeVar("R", bound=_StrictModel)


class RemarkRow(_StrictModel):
    code: Text
    message: Text
    factor: Text | None = None


_TYPES: dict[Kind, Any] = {
    "text": Text,
    "hash": Key,
    "count": Count,
    "integer": Annotated[int, Field(ge=-(2**63), lt=2**63)],
    "number": Annotated[float, Field(ge=0)],
    "time": Time,
    "flag": bool,
    "texts": dict[Text, Text],
    "numbers": dict[Text, Score],
    "document": Document,
    "counts": dict[Literal[Usage.__slots__], Tokens | None],  # type: ignore[valid-type]  # known at run time
    "remarks": list[RemarkRow],
    "codes": list[Text],
}
_OF_AN_ANSWER = {"rubric_hash", "created"}
"""Fields that a pending task does not have."""


def _row_model(name: str, table: str, base: type[_StrictModel]) -> type[_StrictModel]:
    """Return the pydantic model of a table's rows."""
    fields = {
        column.name: _declared(column)
        for column in TABLES[table]
        if column.name not in base.model_fields
    }
    return create_model(name, __base__=base, **fields)  # type: ignore[call-overload, no-any-return]  # known at run time


def _declared(column: Column) -> tuple[Any, Any]:
    values = (*column.values, *([PENDING] if column.name == "status" else []))
    kind = Literal[values] if values else _TYPES[column.kind]
    if column.optional or column.name in _OF_AN_ANSWER:
        kind = kind | None
    return kind, EMPTY_ROW.get(column.name) if column.added else ...


class _JudgementChecks(_StrictModel):
    @model_validator(mode="after")
    def a_score_exists_only_in_ok(self) -> _JudgementChecks:
        problem = inconsistency(
            self.status, self.scores, self.choices, self.expected, self.mass
        )
        if problem:
            raise ValueError(f"a row that is {self.status} {problem}")
        if self.status != PENDING and None in (self.rubric_hash, self.created):
            raise ValueError("an answer has a rubric_hash and says when it was created")
        lettering = self.evidence.get("lettering", {})
        if not isinstance(lettering, dict) or not all(
            map(_is_lines, lettering.values())
        ):
            raise ValueError(
                "evidence.lettering has to be an object with a list of lines, each with its box"
            )
        return self


def _is_lines(lines: object) -> bool:
    """Whether a value is a list of lines of text found in an image, each with a bounding box."""
    if not isinstance(lines, list):
        return False
    boxes = [line.get("box") if isinstance(line, dict) else None for line in lines]
    return all(
        isinstance(box, list) and [type(x) in (int, float) for x in box] == [True] * 4
        for box in boxes
    )


class _ItemChecks(_StrictModel):
    images: dict[Text, dict[Text, Text | None]]
    metadata: Document
    tags: list[Text] = []
    note: Annotated[Text, Field(max_length=NOTE)] = ""

    @model_validator(mode="before")
    @classmethod
    def drop_derived(cls, row: object) -> object:
        """Remove fields that are derived from judgements, since they are computed again."""
        derived = ("verdict", "flipped", "half", "set_scores")
        if isinstance(row, dict):
            return {name: row[name] for name in row if name not in derived}
        return row

    @field_validator("tags")
    @classmethod
    def tags_are_clean(cls, tags: list[str]) -> list[str]:
        if list(clean_tags(tags)) != tags:
            raise ValueError("a tag has no commas and no line breaks, and occurs once")
        return tags

    @model_validator(mode="after")
    def redact(self) -> _ItemChecks:
        """Remove secrets from addresses and metadata. Raise `ValueError` if an image has no source."""
        for role, image in self.images.items():
            source = image.get("source")
            if source is None:
                raise ValueError(f"images.{role!r:.80} has no source")
            image["source"] = redacted_address(source)
        self.metadata = dict(redacted_metadata(self.metadata))
        return self


ImportedJudgement = _row_model("ImportedJudgement", "judgements", _JudgementChecks)
"""Model of an exported judgement."""
_MODELS = {
    "items": _row_model("ItemRow", "items", _ItemChecks),
    "judgements": ImportedJudgement,
    "replies": _row_model("ReplyRow", "replies", _StrictModel),
}
_TASK_KEY = ("item", "rubric", "judge", "repeat", "variant")
_ROW_KEYS = {"items": ("item",), "judgements": _TASK_KEY, "replies": ("key", "mark")}
"""Columns that identify a row of a table."""

# --- run.json -------------------------------------------------------------------------------------------------


class _RubricRow(_StrictModel):
    name: Text
    content: Document


class _CountRow(_StrictModel):
    judge: Text
    rubric: Text
    status: Text
    count: Count


class _FileRow(_StrictModel):
    rows: Count
    sha256: Key


FileName = Annotated[
    str,
    Field(
        pattern=r"^(judgements\.csv|(judgements|items|replies)\.jsonl|[a-z]{1,20}/part-[0-9]{5,9}\.parquet)$"
    ),
]
"""Name of a file in an export. It cannot refer to a file outside the folder."""


class RunFile(_StrictModel):
    """Content of run.json."""

    model_config = ConfigDict(extra="ignore")
    name: Text
    spec: Document
    spec_hash: Key
    state: State
    created: Time
    updated: Time
    summary: Document | None
    version: str
    rubrics: dict[Key, _RubricRow]
    counts: list[_CountRow] | None = None
    files: dict[FileName, _FileRow] | None = None
    """Row counts and digests of the exported files; None in exports by earlier versions."""

    def parse_rubrics(self) -> dict[str, Rubric]:
        """Return the rubrics, keyed by hash. Raise `ValueError` if a rubric cannot be parsed or does not match its
        hash.
        """
        parsed = {}
        for key, row in self.rubrics.items():
            try:
                rubric = TypeAdapter(Rubric).validate_python(row.content)
            except ValidationError as error:
                raise ValueError(
                    f"rubric {row.name!r:.80} cannot be read: {error.errors()[0]['msg']}"
                ) from None
            if rubric.hash != key:
                raise ValueError(
                    f"rubric {row.name!r:.80} does not match its hash {key[:12]}"
                )
            parsed[key] = rubric
        return parsed


def _encodable(text: str) -> str:
    text.encode()  # raises a ValueError for an unpaired surrogate
    return text


class _Spec(_StrictModel):
    """Fields of a spec or summary that web pages and tables read. Other fields are only displayed."""

    model_config = ConfigDict(extra="allow")
    judges: list[Annotated[Text, AfterValidator(_encodable)]] = []
    options: Document = {}
    rubrics: dict[Text, Text] = {}
    manifest: Text = ""
    layout: Layout | None = None
    statuses: dict[Text, Count] = {}


def _read_about(folder: Path) -> RunFile:
    """Read a folder's run.json. Raise `ManifestError` if it is missing or invalid."""
    path = folder / "run.json"
    if not any((folder / name).exists() for name in ("judgements", "judgements.jsonl")):
        expected = "expected judgements/ or judgements.jsonl, as `editjudge export` writes them"
        if (folder / "judgements.csv").is_file():
            expected += "; judgements.csv has less than a run needs: export it with --format jsonl or parquet"
        raise ManifestError(f"{folder}: found no run; {expected}", code="no_run")
    try:
        content = read_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ManifestError(
            f"{path}: expected what `editjudge export` writes last: {error}",
            code="unfinished_export",
        ) from None
    about = _validated(f"{path}", content, RunFile)
    for document in (about.spec, about.summary or {}):
        _validated(f"{path}", document, _Spec)
    if json_hash(about.spec) != about.spec_hash:
        raise ManifestError(f"{path}: spec does not match spec_hash")
    if about.spec.get("options"):  # an earlier version may have stored a secret
        about.spec["options"] = redacted_settings(about.spec["options"])
        about.spec_hash = json_hash(about.spec)
    return about


def _validated(source: str, values: object, kind: type[R]) -> R:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        problem = f"{first['msg']}; found {first['input']!r:.80}"
        raise ManifestError(
            ": ".join(filter(None, (source, field, problem))), code="bad_row"
        ) from None


# --- checks ---------------------------------------------------------------------------------------------------

Placed = tuple[str, _StrictModel]
"""A row with its file and line number."""


def check_run(folder: Path, store: Store | None = None) -> RunFile:
    """Read the run in a folder, and check that all its rows can be stored.

    Raises `ManifestError` if a row contradicts the run, its rubric or the store (if one is passed). The message names
    the file and the line number.
    """
    about = _read_about(folder)
    _check_names(folder, about.files or {})
    try:
        rubrics = about.parse_rubrics()
    except ValueError as error:
        raise ManifestError(f"{folder / 'run.json'}: {error}") from None
    made_here = _images_of_own_run(store, about) if store else None
    items = set()
    for source, row in _checked(folder, about, "items"):
        items.add(row.item)
        if made_here is not None and made_here.get(row.item) != row.images:
            raise ManifestError(
                f"{source}: {row.item!r:.80} has other images in the run {about.name!r:.80} that was made in this "
                "store: import into another store",
                code="other_images",
            )
    counts = Counter[tuple[str, str, str]]()
    answers: dict[str, bytes] = {}
    for chunk in chunks(_checked(folder, about, "judgements"), _BATCH):
        for source, row in chunk:
            if row.item not in items:
                raise ManifestError(
                    f"{source}: the export has no item {row.item!r:.80}"
                )
            _check_scores(source, row, rubrics)
            answer = _mark(row, ("status", "scores", "choices", "abstained"))
            if answers.setdefault(row.key, answer) != answer:
                raise ManifestError(
                    f"{source}: key {row.key[:12]} has another answer on an earlier row"
                )
            counts[row.judge, row.rubric, row.status] += 1
        if store:
            _check_stored(store, about.name, chunk)
    _check_counts(folder, about, counts)
    for source, row in _checked(folder, about, "replies"):
        if row.key not in answers:
            raise ManifestError(
                f"{source}: no judgement has the key {row.key[:12]} of this reply"
            )
    for name, file in (about.files or {}).items():
        if file_digest(folder / name) != file.sha256:
            raise ManifestError(
                f"{folder / name}: was changed after the export: its SHA-256 is not the one in run.json"
            )
    return about


def _check_names(folder: Path, names: Collection[str]) -> None:
    """Raise `ManifestError` if files of the export are missing, or if the folder has files that the export did not
    write.
    """
    for name in names:
        if not (folder / name).is_file():
            raise ManifestError(
                f"{folder / name}: is missing, and run.json names it: copy all files of the export, or export again"
            )
    # A folder may contain a run in two formats, but run.json names the files of only one.
    suffixes = {Path(name).suffix for name in names}
    tables = [folder / f"{table}.jsonl" for table in TABLES]
    for path in sorted(
        [*folder.glob("*/part-*.parquet"), *filter(Path.exists, tables)]
    ):
        if path.suffix in suffixes and path.relative_to(folder).as_posix() not in names:
            raise ManifestError(
                f"{path}: is not a file of this export: run.json does not name it"
            )


def _check_counts(
    folder: Path, about: RunFile, counts: Counter[tuple[str, str, str]]
) -> None:
    """Raise `ManifestError` if the number of judgements for any judge, rubric and status differs from the number in
    run.json.
    """
    if about.counts is None:
        return
    expected = Counter(
        {(row.judge, row.rubric, row.status): row.count for row in about.counts}
    )
    for cell in sorted(expected.keys() | counts.keys()):
        if expected[cell] != counts[cell]:
            raise ManifestError(
                f"{folder / 'run.json'}: judgements of {', '.join(cell)}: run.json counts {expected[cell]:,}, the "
                f"files have {counts[cell]:,}"
            )


def _rows(folder: Path, about: RunFile, table: str) -> Iterator[Placed]:
    for name in table_files(folder, table, about.files):
        for number, values in read_file(folder / name, table):
            source = f"{folder / name}:{number}"
            yield source, _validated(source, values, _MODELS[table])


def _checked(folder: Path, about: RunFile, table: str) -> Iterator[Placed]:
    """Yield the rows of a table. Raise `ManifestError` if a row occurs twice."""
    seen: set[bytes] = set()
    for source, row in _rows(folder, about, table):
        # 16 bytes a row, so that the keys of a million rows fit into memory.
        mark = _mark(row, _ROW_KEYS[table])
        if mark in seen:
            key = ", ".join(f"{name} {getattr(row, name)!r:.80}" for name in _ROW_KEYS[table])  # fmt: skip
            raise ManifestError(
                f"{source}: rows of {table} occur once: {key} is a copy"
            )
        seen.add(mark)
        yield source, row


def _mark(row: _StrictModel, names: Sequence[str]) -> bytes:
    text = repr([getattr(row, name) for name in names])
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def _is_between(scale: Scale, mean: float) -> bool:
    low = -float("inf") if scale.low is None else scale.low
    high = float("inf") if scale.high is None else scale.high
    return not scale.choices and low <= mean <= high


_LEGAL: dict[str, Callable[[Scale, Any], bool]] = {
    "scores": Scale.accepts,
    # For a choice between two outputs, the row names them as the item does (a, b), whatever the options of the
    # rubric.
    "choices": lambda scale, choice: (
        choice in (*scale.choices, *map(read_choice, scale.choices))
    ),
    "expected": _is_between,
    "mass": lambda _, mass: 0 <= mass <= 1,
}


def _check_scores(
    source: str, row: _StrictModel, rubrics: Mapping[str, Rubric]
) -> None:
    if row.status != "ok":
        return
    if row.rubric_hash not in rubrics:
        raise ManifestError(
            f"{source}: run.json has no rubric {row.rubric_hash[:12]}, so its scores cannot be checked"
        )
    scales = {factor.key: factor.scale for factor in rubrics[row.rubric_hash].factors}
    if scales and not row.scores and not row.choices:
        raise ManifestError(f"{source}: a row that is ok has no scores")
    for name, is_legal in _LEGAL.items():
        for factor, value in (getattr(row, name) or {}).items():
            if factor not in scales or not is_legal(scales[factor], value):
                raise ManifestError(
                    f"{source}: {name} of {factor!r:.80}: found {value!r:.80}, which the rubric {row.rubric} does not "
                    "allow"
                )


def _images_of_own_run(
    store: Store, about: RunFile
) -> dict[str, Mapping[str, Mapping[str, str | None]]] | None:
    """Return the images of each edit in the run with this name, if that run was made in this store. Otherwise return
    None.

    Such a run may show images that an imported run may not, so no further edits may be added to it.
    """
    for run in store.runs():
        same = (run.name, run.spec_hash) == (about.name, about.spec_hash)
        if same and run.imported_from is None:
            return {item.item: item.images for item in store.items(run)}
    return None


def _check_stored(store: Store, name: str, chunk: Sequence[Placed]) -> None:
    """Check rows against the store. An answer that is already stored under a row's key must equal the row's answer. A
    row's task that is already stored in this run must have the row's key.
    """
    columns = [judgements.c[name] for name in ("key", "status", "abstained")]
    done = sa.select(*columns).where(judgements.c.status.in_(DONE))
    keys = sorted({row.key for _, row in chunk})
    rows = list(store._read_among(done, judgements.c.key, keys))
    values = store.factor_values(key for key, *_ in rows)
    answers = {}
    for key, status, abstained in rows:
        fields = factor_fields(values.get(key, {}), status)
        answers[key] = status, fields["scores"], fields["choices"], abstained
    of_run = (
        sa.select(tasks)
        .join(runs, runs.c.id == tasks.c.run_id)
        .where(runs.c.name == name)
    )
    edits = sorted({row.item for _, row in chunk})
    stored_keys = {
        tuple(getattr(task, name) for name in _TASK_KEY): task.key
        for task in store._read_among(of_run, tasks.c.item, edits)
    }
    for source, row in chunk:
        answer = row.status, row.scores, row.choices, row.abstained
        if row.status in DONE and answers.get(row.key, answer) != answer:
            raise ManifestError(
                f"{source}: the store has another answer for the key {row.key[:12]}: import into another store",
                code="another_answer",
            )
        task = tuple(getattr(row, name) for name in _TASK_KEY)
        if stored_keys.get(task, row.key) != row.key:
            raise ManifestError(
                f"{source}: the run {name!r:.80} of the store asked this with another key: rename one of them",
                code="another_key",
            )


# --- writing --------------------------------------------------------------------------------------------------


def import_run(
    store: Store, about: RunFile, folder: Path, images: Path | None = None
) -> tuple[RunRecord, int]:
    """Store a run that `check_run` has checked. Return the run and the number of its tasks.

    Existing rows of the store are not changed. `images` is the folder with the images; by default, the export's folder.
    """
    values = about.model_dump(exclude={"rubrics", "counts", "files"})
    values["imported_from"] = str((images or folder).resolve())
    # The run counts as interrupted until it is complete.
    run = store.import_record({**values, "state": "interrupted"})
    if images and run.imported_from is not None:
        store._execute(update_run(run, imported_from=values["imported_from"]))
    store.add_rubrics(about.parse_rubrics().values())
    _import_items(store, run, about, folder)
    count = 0
    for chunk in chunks(_rows(folder, about, "judgements"), _BATCH):
        rows = [row for _, row in chunk]
        planned = [
            (
                count + number if row.position is None else row.position,
                Task(**row.model_dump(include={*Task._fields})),
            )
            for number, row in enumerate(rows)
        ]
        store.add_batch(run, [], planned, {})
        answers = {row.key: row for row in rows if row.status != PENDING}
        store.write_rows(
            [_judgement_row(answers[key]) for key in sorted(answers)],
            {
                row.key: {name: getattr(row, name) for name in PER_FACTOR}
                for row in answers.values()
                if row.status == "ok"
            },
            [],
        )
        count += len(rows)
    for chunk in chunks(_rows(folder, about, "replies"), _BATCH):
        replies = [row.model_dump() | {"text": packed(row.text)} for _, row in chunk]
        store.write_rows([], {}, replies)
    finish = update_run(run, state=about.state, summary=about.summary)
    store._execute(finish.where(runs.c.updated <= about.updated))
    return store.find_run(about.name), count


def _import_items(store: Store, run: RunRecord, about: RunFile, folder: Path) -> None:
    annotated = []

    def edits() -> Iterator[Item]:
        for _, row in _rows(folder, about, "items"):
            item = Item(**row.model_dump(include={*Item._fields}))
            if row.tags or row.note:
                annotation = {"tags": row.tags, "note": row.note}
                content = Content.of(item).key()
                annotated.append(
                    {"content": content, "updated": about.updated, **annotation}
                )
            yield item

    store.add_items(run, edits())
    store._insert(upsert(store._dialect, edit_annotations), annotated)


def _judgement_row(row: _StrictModel) -> Values:
    values = row.model_dump(include={*judgements.columns.keys()})
    # An export has only the codes of violations.
    violations = [
        {"code": code, "message": "", "factor": None} for code in row.violations
    ]
    return values | {"violations": violations}
