"""Check a manifest before a run: every line, every picture, and edits that repeat or contradict each other."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from editjudge import measured
from editjudge.edit import OUTPUT_ROLES, PAIR_ROLES, Edit, ImageSource
from editjudge.errors import ImageError
from editjudge.manifest import LABELS, PAIR_LABELS, Columns, LineError, NamedInputs, Reader, Row, rows
from editjudge.media import image as images

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

BROKEN = ("bad_line", "duplicate_id", "missing_file", "broken_file")
"""Findings to correct before a run; the others are worth a look."""

MEANINGS: Mapping[str, tuple[str, str]] = {
    "bad_line": ("Lines that cannot be read", "correct or remove them; a run stops at the first"),
    "duplicate_id": ("Ids that occur twice", "give each edit an id of its own"),
    "missing_file": ("Files that are missing", "correct the path, or add the file"),
    "broken_file": ("Pictures that cannot be read", "save them again, or remove the edit"),
    "missing_input": ("Edits without an input", "add the picture before the edit: most rubrics show it"),
    "missing_output": ("Edits without an output", "correct the path; a run counts them as failures of the model"),
    "not_fetched": ("Pictures at an address", "not checked, since an audit downloads nothing"),
    "empty_instruction": ("Empty instructions", "add what was asked for: most rubrics show it"),
    "contradictory_labels": ("One edit with different labels", "correct the labels, or remove one of the edits"),
    "duplicate_output": ("Outputs that are the same picture", "check that each edit names its own output"),
    "size_change": ("Outputs of another size than their input", "check that the model was meant to change the size"),
    "no_op": ("Outputs that are their input", "check the path; the model may have changed nothing"),
    "same_outputs": ("Pairs of the same picture", "remove them: neither output can be better"),
    "same_model": ("Pairs of one model", "correct model_a or model_b"),
    "flat": ("Pictures that show nothing", "look at them: a picture of one colour is no edit"),
}
"""Kinds of findings: what was found, and what to do."""
_NO_EDIT = ("Outputs that are no edit", "look at them: the model may have failed")


def meaning(kind: str) -> tuple[str, str]:
    """What a kind of finding is, and what to do about it."""
    return MEANINGS.get(kind, _NO_EDIT)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    kind: str
    line: int
    id: str
    field: str
    message: str


@dataclass(slots=True)
class Audit:
    """What a manifest holds, and what is odd about it."""

    manifest: str
    edits: int = 0
    models: dict[str, int] = field(default_factory=dict)
    edit_types: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """How often each kind of finding occurs, also beyond those that are listed."""
    findings: list[AuditFinding] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    unit: str = "line"
    """What the findings' numbers count: lines, rows or edits."""

    @property
    def sound(self) -> bool:
        return not any(self.counts.get(kind) for kind in BROKEN)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.sound}


def audit(
    path: str | Path,
    *,
    allow_outside: bool = False,
    allow_urls: bool = False,
    pixels: bool = True,
    listed: int = 1000,
    columns: Columns = (),
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Check every line and every picture, and collect the findings instead of stopping at the first.

    `pixels` decodes each picture, which finds damage behind a sound header, edits that changed bytes but no pixel, and
    outputs that are no edit at all; the last needs the extra `measured`, and says so where it is not installed.
    Of each kind at most `listed` findings are kept; all are counted. `progress` is called with the number of edits that
    were checked so far.
    """
    from concurrent.futures import ThreadPoolExecutor

    done = Audit(images.name_of(str(path)))
    named = NamedInputs(columns=columns)
    reader = Reader(path, allow_outside=allow_outside, allow_urls=allow_urls, notify=done.notices.append, named=named)
    look = _Look(done, listed, reader)
    with ThreadPoolExecutor() as threads:
        facts = _Facts(threads, pixels)
        if pixels and not facts.measuring:
            done.notices.append("outputs that are no edit were not looked for: pip install 'editjudge[measured]'")
        waiting: deque[tuple[int, Edit, dict[str, Future[_Fact]], Future[_Oddities]]] = deque()
        for line, edit in _collecting(reader, rows(path, reader), look):
            waiting.append((line, edit, facts.of(edit), facts.oddities(edit)))
            if len(waiting) > 64:  # enough to keep the threads busy, few enough for memory
                look.at(*waiting.popleft())
                if progress:
                    progress(done.edits)
        while waiting:
            look.at(*waiting.popleft())
            if progress:
                progress(done.edits)
    done.findings.sort(key=lambda finding: finding.line)
    done.unit = reader.unit
    return done


def _collecting(reader: Reader, source: Iterator[Row], look: _Look) -> Iterator[tuple[int, Edit]]:
    """The edits, while the lines that are none become findings."""
    while True:
        try:
            line, row = next(source)
            if isinstance(row, LineError):
                raise row
            edit = reader.edit(line, row)
        except StopIteration:
            return
        except LineError as error:
            look.add(error.kind, error.line, error.id, error.field, error.message)
        else:
            yield line, edit


@dataclass(frozen=True, slots=True)
class _Fact:
    """What an audit keeps of a picture."""

    digest: bytes = b""
    pixels: bytes = b""
    """Of what is seen, whatever it is encoded as; the digest again where pixels were not looked at."""
    size: tuple[int, int] = (0, 0)
    problem: str = ""
    missing: bool = False


class _Facts:
    """Looks at pictures in threads, each file once."""

    def __init__(self, threads: ThreadPoolExecutor, pixels: bool) -> None:
        self._threads, self._pixels = threads, pixels
        self.measuring = not measured.missing()
        self._files: OrderedDict[Path, Future[_Fact]] = OrderedDict()

    def of(self, edit: Edit) -> dict[str, Future[_Fact]]:
        return {role: self._fact(source) for role, source in edit.all_pictures().items()}

    def oddities(self, edit: Edit) -> Future[_Oddities]:
        return self._threads.submit(_oddities, edit if self._pixels and self.measuring else None, _outputs(edit))

    def _fact(self, source: ImageSource) -> Future[_Fact]:
        if not isinstance(source, Path):
            return self._threads.submit(_fact, source, self._pixels)
        if source not in self._files:
            self._files[source] = self._threads.submit(_fact, source, self._pixels)
            if len(self._files) > 50_000:
                self._files.popitem(last=False)
        return self._files[source]


def _fact(source: ImageSource, pixels: bool) -> _Fact:
    if isinstance(source, str):
        return _Fact(problem="is an address, which an audit does not fetch")
    if isinstance(source, Path) and not os.path.exists(source):
        return _Fact(missing=True)
    try:
        data = images.read(source)
        short, name = hashlib.sha256(data).digest()[:16], images.name_of(source)
        size = images.probe(data, name=name).shown
        if not pixels:
            return _Fact(short, short, size)
        image = images.decode(data, name=name)
        return _Fact(
            short, hashlib.blake2b(image.tobytes(), digest_size=16, key=repr(image.size).encode()).digest(), size
        )
    except ImageError as error:
        return _Fact(problem=str(error))


_Oddities: TypeAlias = list[tuple[str, str, str]]
"""Kind, field and words of what makes a picture no input or no edit."""


def _outputs(edit: Edit) -> tuple[str, ...]:
    """The names of what models made: one output, or the two of a pair."""
    return PAIR_ROLES if edit.edited is None and edit.pictures.keys() & {*PAIR_ROLES} else ("edited",)


def _oddities(edit: Edit | None, outputs: Sequence[str]) -> _Oddities:
    """Of an edit whose pictures can be read; those that cannot are findings already."""
    if edit is None or all(edit.picture(role) is None for role in outputs):
        return []
    from editjudge.measured.degenerate import find_degenerate, find_flat, glance

    odd: _Oddities = []
    with suppress(ImageError):
        before = glance(edit.input)
        blank = None if before is None else find_flat(before)
        for role in outputs:
            edited = None if (source := edit.picture(role)) is None else glance(source)
            output = None if edited is None else find_degenerate(before, edited, edit.instruction)
            odd += [(output.kind, role, output.words)] if output else []
        odd[:0] = [("flat", "input", blank)] if blank else []
    return odd


class _Look:
    """What is odd about one edit, by itself and beside those before it."""

    def __init__(self, audit: Audit, listed: int, reader: Reader) -> None:
        self._audit, self._listed, self._reader = audit, listed, reader
        self._outputs: dict[bytes, int] = {}
        self._labels: dict[bytes, tuple[int, tuple[str, ...], bytes]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def add(self, kind: str, line: int, identifier: str, name: str, message: str) -> None:
        counts = self._audit.counts
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= self._listed:
            self._audit.findings.append(AuditFinding(kind, line, identifier, name, message))

    def at(self, line: int, edit: Edit, looked: Mapping[str, Future[_Fact]], oddities: Future[_Oddities]) -> None:
        facts = {role: future.result() for role, future in looked.items()}
        self._count(edit)
        if not edit.instruction.strip():
            self.add("empty_instruction", line, edit.id, "instruction", "is empty")
        if edit.input is None:
            self.add("missing_input", line, edit.id, "input", "is absent: most rubrics look at it")
        outputs = _outputs(edit)
        for role in outputs:
            if edit.picture(role) is None:
                self.add("missing_output", line, edit.id, role, "is absent: the model produced nothing")
        for role, fact in facts.items():
            self._file(line, edit, role, fact)
        if len(outputs) > 1:
            self._two_outputs(line, edit, [facts.get(role) for role in outputs])
        source = facts.get("input")
        for role in outputs:
            edited = facts.get(role)
            if edited and edited.digest:
                if len(outputs) == 1:  # of pairs, every output stands in several
                    self._repeated(line, edit, edited)
                if source and source.digest:
                    self._pair(line, edit, role, source, edited)
        for kind, name, words in oddities.result():
            self.add(kind, line, edit.id, name, words)

    def _count(self, edit: Edit) -> None:
        self._audit.edits += 1
        named = [edit.metadata.get(name) for name in PAIR_LABELS] if len(_outputs(edit)) > 1 else [edit.model]
        for counts, labels in ((self._audit.models, named), (self._audit.edit_types, [edit.edit_type])):
            for label in labels:
                counts[str(label or "")] = counts.get(str(label or ""), 0) + 1

    def _file(self, line: int, edit: Edit, role: str, fact: _Fact) -> None:
        name = images.name_of(edit.all_pictures()[role])
        if fact.missing and role in OUTPUT_ROLES:
            self.add("missing_output", line, edit.id, role, f"{name} is not there: the model produced nothing")
        elif fact.missing:
            self.add("missing_file", line, edit.id, role, f"{name} is not there")
        elif fact.problem:
            kind = "not_fetched" if isinstance(edit.picture(role), str) else "broken_file"
            self.add(kind, line, edit.id, role, fact.problem)

    def _repeated(self, line: int, edit: Edit, edited: _Fact) -> None:
        first = self._outputs.setdefault(edited.pixels, line)
        if first != line:
            message = f"the same picture as the output on {self._reader.unit} {first}"
            self.add("duplicate_output", line, edit.id, "edited", message)

    def _two_outputs(self, line: int, edit: Edit, outputs: Sequence[_Fact | None]) -> None:
        """What makes a pair no question."""
        a, b = outputs
        if a and b and a.pixels and a.pixels == b.pixels:
            message = "shows the same picture as edited_a: neither can be better"
            self.add("same_outputs", line, edit.id, "edited_b", message)
        if (model := edit.metadata.get("model_a")) and model == edit.metadata.get("model_b"):
            self.add("same_model", line, edit.id, "model_b", f"is {model!r:.80}, like model_a")

    def _pair(self, line: int, edit: Edit, role: str, source: _Fact, edited: _Fact) -> None:
        if source.pixels == edited.pixels:
            how = "the same file" if source.digest == edited.digest else "another file with the same pixels"
            self.add("no_op", line, edit.id, role, f"{how} as the input: nothing was edited")
        if source.size != edited.size:
            (width, height), (wide, high) = source.size, edited.size
            self.add("size_change", line, edit.id, role, f"{width} x {height} became {wide} x {high}")
        if role == "edited":
            self._contradiction(line, edit, source, edited)

    def _contradiction(self, line: int, edit: Edit, source: _Fact, edited: _Fact) -> None:
        labels = {name: getattr(edit, name) for name in LABELS} | dict(edit.metadata)
        names = self._names.setdefault(shape := tuple(sorted(labels)), shape)
        values = b"".join(_checksum(labels[name]) for name in names)
        key = hashlib.blake2b(source.digest + edited.digest + edit.instruction.encode(), digest_size=16).digest()
        first, other_names, others = self._labels.setdefault(key, (line, names, values))
        before = {name: others[4 * at : 4 * at + 4] for at, name in enumerate(other_names)}
        now = {name: values[4 * at : 4 * at + 4] for at, name in enumerate(names)}
        if odd := sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)):
            message = f"the same pictures and instruction as {self._reader.unit} {first}, but another {', '.join(odd)}"
            self.add("contradictory_labels", line, edit.id, odd[0], message)


def _checksum(value: Any) -> bytes:
    # Four bytes a label: they are only ever compared between two rows about the same pictures.
    return zlib.crc32(json.dumps(value, sort_keys=True, default=str).encode()).to_bytes(4, "big")
