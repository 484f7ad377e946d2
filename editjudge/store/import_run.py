"""Import an exported run into a store. Every row is checked before the first is written; importing is idempotent."""

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

from editjudge.canonical import json_hash
from editjudge.errors import ManifestError
from editjudge.files import read_jsonl
from editjudge.judgement import (
    DONE,
    EMPTY_ROW,
    FIELDS,
    PER_FACTOR,
    Kind,
    Task,
    Usage,
    inconsistency,
)
from editjudge.judgement import Field as JudgementField
from editjudge.matching import Content
from editjudge.orders import read_choice
from editjudge.redaction import redacted_address, redacted_metadata, redacted_settings
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import LAYOUTS, Layout
from editjudge.rubrics.scale import Scale
from editjudge.store.annotations import NOTE, clean_tags
from editjudge.store.database import chunks
from editjudge.store.export import about_run, file_digest
from editjudge.store.records import PENDING, RunRecord, State
from editjudge.store.rows import as_fields, packed
from editjudge.store.schema import (
    edit_annotations,
    items,
    judgements,
    rubrics,
    runs,
    tasks,
    upsert,
)
from editjudge.store.store import Store, _at_run, _refresh

Key = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Text = InstanceOf[str]
"""Any text: pydantic's own refuses half a surrogate pair, which models write and a store keeps."""
Time = Annotated[float, Field(ge=0, lt=253_402_300_800)]
"""Seconds since 1970, before the year 10,000, which no calendar shows."""
Score = Annotated[int, Field(ge=-(2**53), le=2**53)] | float
Amount = Annotated[float, Field(ge=0)]
"""Money, or seconds."""
Tokens = Annotated[int, Field(ge=0, lt=2**63)]


def _is_json(value: dict[str, Any]) -> dict[str, Any]:
    """Raise a ValueError for NaN and Infinity, which a store does not keep."""
    json.dumps(value, allow_nan=False)
    return value


Document = Annotated[dict[Text, Any], AfterValidator(_is_json)]
_BATCH = 2_000


class _StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class RemarkRow(_StrictModel):
    code: Text
    message: Text
    factor: Text | None = None


DERIVED = ("verdict", "flipped", "half", "set_scores")
"""Fields of items.jsonl that follow from the judgements and are computed again."""


def _bounded(note: str) -> str:
    if len(note) > NOTE:
        raise ValueError(f"longer than {NOTE:,} letters")
    return note


class _ItemRow(_StrictModel):
    item: Text
    model: Text | None
    edit_type: Text | None
    group: Text | None
    instruction: Text
    referring_expression: Text
    images: dict[Text, dict[Text, Text | None]]
    metadata: Document
    tags: list[Text] = []
    note: Annotated[Text, AfterValidator(_bounded)] = ""

    @field_validator("tags")
    @classmethod
    def tags_are_as_they_are_kept(cls, tags: list[str]) -> list[str]:
        if list(clean_tags(tags)) != tags:
            raise ValueError(
                "a tag has neither commas nor line breaks, and stands once"
            )
        return tags

    @field_validator("images")
    @classmethod
    def addresses_are_kept_without_secrets(
        cls, images: dict[str, dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        for image in images.values():
            if image.get("source"):
                image["source"] = redacted_address(image["source"])
        return images

    @field_validator("metadata")
    @classmethod
    def metadata_is_kept_without_secrets(
        cls, metadata: dict[str, Any]
    ) -> dict[str, Any]:
        kept: dict[str, Any] = redacted_metadata(metadata)
        return kept

    @model_validator(mode="before")
    @classmethod
    def without_what_is_derived(cls, row: Any) -> Any:
        return (
            {name: row[name] for name in row if name not in DERIVED}
            if isinstance(row, dict)
            else row
        )

    @model_validator(mode="after")
    def a_picture_lies_somewhere(self) -> _ItemRow:
        for role, image in self.images.items():
            if image.get("source") is None:
                raise ValueError(f"images.{role!r:.80} has no source")
        return self


_ANNOTATION = {"tags", "note"}

_TYPES: dict[Kind, Any] = {
    "text": Text,
    "hash": Key,
    "count": Count,
    "number": Amount,
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


def _declared(field: JudgementField) -> tuple[Any, Any]:
    values = (*field.values, *([PENDING] if field.name == "status" else []))
    kind = Literal[values] if values else _TYPES[field.kind]
    return (
        kind | None if field.optional or field.name in _OF_AN_ANSWER else kind,
        EMPTY_ROW[field.name] if field.added else ...,
    )


class _CheckedRow(_StrictModel):
    if TYPE_CHECKING:  # its fields are those of the table

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="after")
    def a_score_exists_only_in_ok(self) -> _CheckedRow:
        if problem := inconsistency(self):
            raise ValueError(f"a row that is {self.status} {problem}")
        if self.status == "ok" and not self.scores and not self.choices:
            raise ValueError("a row that is ok has no scores")
        lettering = self.evidence.get("lettering", {})
        if not isinstance(lettering, dict) or not all(
            _is_lines(lines) for lines in lettering.values()
        ):
            raise ValueError(
                "evidence.lettering has to be an object with a list of lines, each with its box"
            )
        if self.status != PENDING and (
            self.rubric_hash is None or self.created is None
        ):
            raise ValueError("an answer has a rubric_hash and says when it was created")
        return self


JudgementRow: type[_CheckedRow] = create_model(  # type: ignore[call-overload]  # fields known at run time alone
    "JudgementRow",
    __base__=_CheckedRow,
    **{field.name: _declared(field) for field in FIELDS},
    edit_type=(Text | None, None),
    position=(Annotated[int, Field(ge=0)] | None, None),
)
"""A judgement as an export has it."""


def _is_lines(value: Any) -> bool:
    """Lines of text that were read in a picture, each with the box that is drawn around it."""
    boxes = (
        [line.get("box") if isinstance(line, dict) else None for line in value]
        if isinstance(value, list)
        else [0]
    )
    return all(
        isinstance(box, list)
        and len(box) == 4
        and all(type(x) in (int, float) for x in box)
        for box in boxes
    )


class _ReplyRow(_StrictModel):
    key: Key
    mark: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    at: Time
    outcome: Text
    finish: Text
    text: Text
    usage: dict[Literal[Usage.__slots__], Tokens | None]  # type: ignore[valid-type]  # known at run time
    model: Text | None
    request_id: Text | None
    latency: Amount | None
    retries: Count
    reasons: list[RemarkRow]


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
"""Name of a file in an export: nothing outside its folder."""


class _RunFile(_StrictModel):
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
    """None where a cluster wrote its shards itself."""
    files: dict[FileName, _FileRow] | None = None
    """None where an earlier version exported it, or a cluster."""


def _encodable(text: str) -> str:
    text.encode()  # raises a ValueError for half a surrogate pair
    return text


class _Spec(_StrictModel):
    """Fields of a spec or a summary that pages and tables look up; the rest is only shown."""

    model_config = ConfigDict(extra="allow")
    judges: list[Annotated[Text, AfterValidator(_encodable)]] = []
    options: Document = {}
    rubrics: dict[Text, Text] = {}
    manifest: Text = ""
    layout: Layout = LAYOUTS[0]
    statuses: dict[Text, Count] = {}


R = TypeVar("R", bound=_StrictModel)
Placed = tuple[tuple[Path, int], R]
"""A row, with its file and number."""


def check_run(folder: Path, store: Store | None = None) -> _RunFile:
    """Read a folder's run, all of whose rows can be stored.

    One that contradicts itself, its rubric, its item or the store, if there is one, is refused with its file and
    number.
    """
    about = read_about(folder)
    _check(store, about, folder)
    return about


def import_run(
    store: Store, about: _RunFile, folder: Path, pictures: Path | None = None
) -> tuple[RunRecord, int]:
    """Keep a run that was checked, and answer it with the number of its tasks.

    What the store has already stays as it is. Its pictures may lie in `pictures`, or else in the folder itself.
    """
    # Until all of it is there, it is a run that was interrupted.
    new = about.model_dump(exclude={"rubrics", "counts", "files"}) | {
        "imported_from": str((pictures or folder).resolve())
    }
    run = store.import_record({**new, "state": "interrupted"})
    if pictures and run.imported_from is not None:
        here = _at_run(run).values(imported_from=new["imported_from"])
        store._transact(lambda connection: connection.execute(here))
    questions = [
        {"hash": key, **rubric.model_dump()} for key, rubric in about.rubrics.items()
    ]
    store._insert(upsert(store._dialect, rubrics), questions)
    numbered = enumerate(_rows(folder, about, "items", _ItemRow))
    edits = (
        {
            "run_id": run.id,
            "position": n,
            **row.model_dump(exclude=_ANNOTATION),
            "content": Content.of(row).key(),
            "task": Content.of(row).key("task"),
        }
        for n, (_, row) in numbered
    )
    store._insert(_refresh(store._dialect, items), edits)
    annotated = (
        {
            "content": Content.of(row).key(),
            "tags": row.tags,
            "note": row.note,
            "updated": about.updated,
        }
        for _, row in _rows(folder, about, "items", _ItemRow)
        if row.tags or row.note
    )
    store._insert(upsert(store._dialect, edit_annotations), annotated)
    count = 0
    for some in chunks(_rows(folder, about, "judgements", JudgementRow), _BATCH):
        planned = [_task(run.id, count + n, row) for n, (_, row) in enumerate(some)]
        store._insert(_refresh(store._dialect, tasks), planned)
        answers = {row.key: _answer(row) for _, row in some if row.status != PENDING}
        given = {
            row.key: {name: getattr(row, name) for name in PER_FACTOR}
            for _, row in some
            if row.status == "ok"
        }
        store.write_rows(
            [answers[key] for key in sorted(answers)],
            given,
            [],
        )
        count += len(some)
    for replies in chunks(_rows(folder, about, "replies", _ReplyRow), _BATCH):
        store.write_rows(
            [],
            {},
            [{**row.model_dump(), "text": packed(row.text)} for _, row in replies],
        )
    here = _at_run(run).where(runs.c.updated <= about.updated)
    store._transact(
        lambda connection: connection.execute(
            here.values(state=about.state, summary=about.summary)
        )
    )
    return store.find_run(about.name), count


def _task(run_id: int, position: int, row: _CheckedRow) -> Document:
    shared = {name: getattr(row, name) for name in Task._fields}
    return {
        "run_id": run_id,
        "position": position if row.position is None else row.position,
        **shared,
    }


def _answer(row: _CheckedRow) -> Document:
    values = {
        name: value
        for name, value in row.model_dump().items()
        if name in judgements.columns
    }
    # Of a violation an export has the code alone.
    return values | {
        "violations": [
            {"code": code, "message": "", "factor": None} for code in row.violations
        ]
    }


# --- reading --------------------------------------------------------------------------------------------------


def read_about(folder: Path) -> _RunFile:
    """Read a folder's run. Raise if the folder has none."""
    if (
        not (folder / "judgements").is_dir()
        and not (folder / "judgements.jsonl").is_file()
    ):
        expected = "expected judgements/ or judgements.jsonl, as `editjudge export` writes them"
        if (folder / "judgements.csv").is_file():
            expected += "; judgements.csv has less than a run needs: export it with --format jsonl or parquet"
        raise ManifestError(f"{folder}: found no run; {expected}")
    about: _RunFile = _read((folder / "run.json", 0), about_run(folder), _RunFile)
    for looked_up in (about.spec, about.summary or {}):
        _read((folder / "run.json", 0), looked_up, _Spec)
    if json_hash(about.spec) != about.spec_hash:
        raise ManifestError(
            f"{folder / 'run.json'}: spec is not what spec_hash was made from"
        )
    if about.spec.get("options"):  # an earlier version may have kept a secret
        about.spec["options"] = redacted_settings(about.spec["options"])
        about.spec_hash = json_hash(about.spec)
    return about


def _is_parquet(folder: Path, about: _RunFile) -> bool:
    """Whether the run is read from Parquet: run.json names its files, since a folder may hold a run twice."""
    if about.files is None:
        return (folder / "judgements").is_dir()
    return any(name.endswith(".parquet") for name in about.files)


def _rows(
    folder: Path, about: _RunFile, table: str, kind: type[R]
) -> Iterator[Placed[R]]:
    placed = _read_lines(folder / f"{table}.jsonl")
    if _is_parquet(folder, about):
        from editjudge.store.parquet import read_table

        placed = read_table(folder, table)
    return ((place, _read(place, values, kind)) for place, values in placed)


def _read_lines(path: Path) -> Iterator[tuple[tuple[Path, int], Any]]:
    if path.exists():
        yield from (((path, number), value) for number, value in read_jsonl(path))


def _read(place: tuple[Path, int], values: Any, kind: type[R]) -> R:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise _wrong(
            place,
            f"{where}: {first['msg']}; found {first['input']!r:.80}".removeprefix(": "),
        ) from None


def _wrong(place: tuple[Path, int], message: str) -> ManifestError:
    path, number = place
    return ManifestError(
        f"{path}:{number}: {message}" if number else f"{path}: {message}"
    )


# --- what contradicts -----------------------------------------------------------------------------------------


def _check(store: Store | None, about: _RunFile, folder: Path) -> None:
    _check_names(folder, about)
    known = _checked_items(folder, about)
    if store:
        _check_own(store, about, folder)
    keys = _checked_judgements(store, about, folder, known)
    _check_replies(folder, about, keys)
    for name in about.files or {}:
        if name.startswith("scores/"):  # which are for others to read
            _check_digest(folder, about, name)


def _checked_items(folder: Path, about: _RunFile) -> dict[str, _ItemRow]:
    """The edits by their ids, each of which stands once."""
    known: dict[str, _ItemRow] = {}
    lines = Counter[Path]()
    for place, row in _rows(folder, about, "items", _ItemRow):
        if row.item in known:
            raise _wrong(place, f"the item {row.item!r:.80} stands twice")
        known[row.item] = row
        lines[place[0]] += 1
    _check_files(folder, about, "items", lines)
    return known


def _checked_judgements(
    store: Store | None, about: _RunFile, folder: Path, known: Mapping[str, _ItemRow]
) -> Collection[str]:
    """The keys of all judgements, none of which contradicts itself, another one, the rubric, the edit or the store."""
    scales = _scales(about, folder / "run.json")
    names = {key: rubric.name for key, rubric in about.rubrics.items()}
    seen: set[bytes] = set()
    answers: dict[str, bytes] = {}
    counts = Counter[tuple[str, str, str]]()
    lines = Counter[Path]()
    for some in chunks(_rows(folder, about, "judgements", JudgementRow), _BATCH):
        for place, row in some:
            _check_score(place, row, scales, names)
            _check_item(place, row, known.get(row.item))
            # Sixteen bytes a task, so that a million of them fit into memory.
            mark = _mark(_task_place(row))
            if mark in seen:
                question = (
                    f"{row.item!r:.80}, {row.rubric}, {row.judge}, repeat {row.repeat}"
                )
                raise _wrong(
                    place, f"{question} and variant {row.variant!r:.80} stand twice"
                )
            seen.add(mark)
            answer = _mark((row.status, row.scores, row.choices, row.abstained))
            if answers.setdefault(row.key, answer) != answer:
                raise _wrong(
                    place, f"key {row.key[:12]} has another answer on an earlier row"
                )
            counts[row.judge, row.rubric, row.status] += 1
            lines[place[0]] += 1
        if store:
            _check_stored(store, about.name, some)
    _check_files(folder, about, "judgements", lines)
    _check_counts(folder, about, counts)
    return answers.keys()


def _check_replies(folder: Path, about: _RunFile, keys: Collection[str]) -> None:
    seen: set[bytes] = set()
    lines = Counter[Path]()
    for place, row in _rows(folder, about, "replies", _ReplyRow):
        mark = _mark((row.key, row.mark))
        if mark in seen:
            raise _wrong(
                place, f"the reply {row.mark} of key {row.key[:12]} stands twice"
            )
        if row.key not in keys:
            raise _wrong(
                place, f"no judgement has the key {row.key[:12]} of this reply"
            )
        seen.add(mark)
        lines[place[0]] += 1
    _check_files(folder, about, "replies", lines)


def _mark(value: object) -> bytes:
    return hashlib.blake2b(
        repr(value).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()


def _check_names(folder: Path, about: _RunFile) -> None:
    """Raise `ManifestError` where files of the export are missing, or there are files that it did not write."""
    if about.files is None:
        return
    for name in about.files:
        if not (folder / name).is_file():
            raise ManifestError(
                f"{folder / name}: is missing, and run.json names it: copy the whole export, or export again"
            )
    patterns = (
        ["*/part-*.parquet"]
        if _is_parquet(folder, about)
        else ["judgements.jsonl", "items.jsonl", "replies.jsonl"]
    )
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        if path.relative_to(folder).as_posix() not in about.files:
            raise ManifestError(
                f"{path}: is not a file of this export: run.json does not name it"
            )


def _check_files(
    folder: Path, about: _RunFile, table: str, lines: Mapping[Path, int]
) -> None:
    """Raise `ManifestError` where a file of a table is not what was exported, by its rows and its digest."""
    for name, expected in (about.files or {}).items():
        if name != f"{table}.jsonl" and not name.startswith(f"{table}/"):
            continue
        rows = lines.get(folder / name, 0)
        if rows != expected.rows:
            raise ManifestError(
                f"{folder / name}: found {rows:,} rows, and run.json counts {expected.rows:,}"
            )
        _check_digest(folder, about, name)


def _check_digest(folder: Path, about: _RunFile, name: str) -> None:
    if about.files and file_digest(folder / name) != about.files[name].sha256:
        raise ManifestError(
            f"{folder / name}: was changed after the export: its SHA-256 is not the one in run.json"
        )


def _check_counts(
    folder: Path, about: _RunFile, found: Counter[tuple[str, str, str]]
) -> None:
    """Raise `ManifestError` where there are more or fewer judgements of some status than run.json counts."""
    if about.counts is not None:
        expected = Counter(
            {(row.judge, row.rubric, row.status): row.count for row in about.counts}
        )
        _check_equal(folder, expected, found)
    elif about.state == "finished" and about.summary and "statuses" in about.summary:
        statuses = Counter[tuple[str, ...]]()
        for (_, _, status), count in found.items():
            statuses[(status,)] += count
        _check_equal(
            folder,
            Counter({(status,): n for status, n in about.summary["statuses"].items()}),
            statuses,
        )


def _check_equal(folder: Path, expected: Counter[Any], found: Counter[Any]) -> None:
    for place in sorted(expected.keys() | found.keys()):
        if expected[place] != found[place]:
            what = ", ".join(place)
            counted = (
                f"run.json counts {expected[place]:,}, the files have {found[place]:,}"
            )
            raise ManifestError(
                f"{folder / 'run.json'}: judgements of {what}: {counted}"
            )


def _scales(about: _RunFile, path: Path) -> dict[str, dict[str, Scale]]:
    """The scores that each rubric allows, by its hash and factor."""
    scales = {}
    for key, row in about.rubrics.items():
        try:
            rubric = TypeAdapter(Rubric).validate_python(row.content)
        except ValidationError as error:
            raise ManifestError(
                f"{path}: rubric {row.name!r:.80} cannot be read: {error.errors()[0]['msg']}"
            ) from None
        if rubric.hash != key:
            raise ManifestError(
                f"{path}: rubric {row.name!r:.80} is not what its hash {key[:12]} was made from"
            )
        scales[key] = {factor.key: factor.scale for factor in rubric.factors}
    return scales


def _check_score(
    place: tuple[Path, int],
    row: _CheckedRow,
    scales: Mapping[str, Mapping[str, Scale]],
    names: Mapping[str, str],
) -> None:
    if row.status == PENDING:
        return
    if (known := scales.get(row.rubric_hash or "")) is None:
        if row.status == "ok":
            raise _wrong(
                place,
                f"run.json has no rubric {str(row.rubric_hash)[:12]}, so that its scores cannot be checked",
            )
        return
    if names.get(row.rubric_hash) != row.rubric:
        called = (
            f"run.json calls the rubric of this hash {names.get(row.rubric_hash)!r:.80}"
        )
        raise _wrong(place, f"rubric: found {row.rubric!r:.80}, and {called}")
    for name, is_legal in _LEGAL.items():
        for factor, value in (getattr(row, name) or {}).items():
            if factor not in known or not is_legal(known[factor], value):
                what = name.removesuffix("s")
                raise _wrong(
                    place,
                    f"{factor!r:.80}: found {value!r:.80}, which is no {what} of the rubric {row.rubric}",
                )


def _is_between(scale: Scale, mean: float) -> bool:
    low = scale.low
    high = scale.high
    return (
        not scale.choices
        and (low is None or low <= mean)
        and (high is None or mean <= high)
    )


_LEGAL: dict[str, Callable[[Scale, Any], bool]] = {
    "scores": Scale.accepts,
    # Of a choice between two outputs the row has the item's own naming, whatever the rubric's words.
    "choices": lambda scale, choice: (
        choice in (*scale.choices, *map(read_choice, scale.choices))
    ),
    "expected": _is_between,
    "mass": lambda _, mass: 0 <= mass <= 1,
}


def _check_item(
    place: tuple[Path, int], row: _CheckedRow, item: _ItemRow | None
) -> None:
    if item is None:
        raise _wrong(place, f"the export has no item {row.item!r:.80}")
    stated = {
        "model": row.model,
        "group": row.group,
        **({"edit_type": row.edit_type} if row.edit_type else {}),
    }
    for name, value in stated.items():
        if value != getattr(item, name, None):
            raise _wrong(
                place,
                f"{name}: found {value!r:.80}, and of the same item {getattr(item, name, None)!r:.80}",
            )


def _check_own(store: Store, about: _RunFile, folder: Path) -> None:
    """A run of our own may show pictures that an imported one may not: nobody else's edits get into it."""
    same = (
        run
        for run in store.runs()
        if (run.name, run.spec_hash) == (about.name, about.spec_hash)
    )
    own = next((run for run in same if run.imported_from is None), None)
    pictures = {item.item: item.images for item in store.items(own)} if own else {}
    for place, row in _rows(folder, about, "items", _ItemRow) if own else ():
        if pictures.get(row.item) != row.images:
            what = f"{row.item!r:.80} has other pictures in the run {about.name!r:.80} that was made in this store"
            raise _wrong(place, f"{what}: import into one of its own")


def _task_place(row: Any) -> tuple[str, str, str, int, str]:
    return row.item, row.rubric, row.judge, row.repeat, row.variant


def _check_stored(store: Store, name: str, some: Sequence[Placed[_CheckedRow]]) -> None:
    """Check that the store has the same answer under each key, and that the run's tasks have the same keys."""
    columns = [judgements.c[name] for name in ("key", "status", "abstained")]
    keys = {row.key for _, row in some}
    answers: dict[str, Any] = {}
    done = sa.select(*columns).where(judgements.c.status.in_(DONE))
    rows = list(store._read_among(done, judgements.c.key, sorted(keys)))
    given = store.factor_values(key for key, *_ in rows)
    for key, status, abstained in rows:
        fields = as_fields(given.get(key, {}), status)
        answers[key] = status, fields["scores"], fields["choices"], abstained
    mine = (
        sa.select(tasks)
        .join(runs, runs.c.id == tasks.c.run_id)
        .where(runs.c.name == name)
    )
    named = store._read_among(mine, tasks.c.item, sorted({row.item for _, row in some}))
    keys_of_tasks = {_task_place(task): task.key for task in named}
    for place, row in some:
        answer = row.status, row.scores, row.choices, row.abstained
        if row.status in DONE and answers.get(row.key, answer) != answer:
            raise _wrong(
                place,
                f"the store has another answer under key {row.key[:12]}: import into one of its own",
            )
        if keys_of_tasks.get(_task_place(row), row.key) != row.key:
            raise _wrong(
                place,
                f"the run {name!r:.80} of the store asked this with another key: rename one of them",
            )
