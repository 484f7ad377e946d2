"""Audit of a manifest before a run. It checks every line and image, and finds edits that repeat or contradict each
other.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from editjudge import plugins
from editjudge.edit import OUTPUT_ROLES, DegenerateImage, Edit, ImageSource
from editjudge.errors import ImageError
from editjudge.manifest import (
    LABELS,
    PAIR_LABELS,
    Columns,
    LineError,
    NamedInputs,
    Reader,
    Row,
    rows,
)
from editjudge.media.image import decode, probe
from editjudge.media.source import name_of, read

if TYPE_CHECKING:
    from concurrent.futures import Future

Screen: TypeAlias = Callable[[Edit], list[DegenerateImage]]
"""Plug-in function that finds degenerate images in an edit. It ignores images that cannot be read."""

BROKEN = ("bad_line", "duplicate_id", "missing_file", "broken_file")
"""Kinds of findings that must be corrected before a run. All other findings should be reviewed."""

MEANINGS: Mapping[str, tuple[str, str]] = {
    "bad_line": (
        "Lines that cannot be read",
        "correct or remove them; a run stops at the first",
    ),
    "duplicate_id": ("Ids that occur twice", "give each edit a unique id"),
    "missing_file": ("Files that are missing", "correct the path, or add the file"),
    "broken_file": (
        "Images that cannot be read",
        "save them again, or remove the edit",
    ),
    "missing_input": (
        "Edits without an input",
        "add the image before the edit: most rubrics show it",
    ),
    "missing_output": (
        "Edits without an output",
        "correct the path; a run counts them as failures of the model",
    ),
    "not_fetched": (
        "Images at an address",
        "not checked, since an audit downloads nothing",
    ),
    "empty_instruction": (
        "Empty instructions",
        "add the requested edit as a text: most rubrics show it",
    ),
    "contradictory_labels": (
        "One edit with different labels",
        "correct the labels, or remove one of the edits",
    ),
    "duplicate_output": (
        "Outputs that are the same image",
        "check that each edit names its own output",
    ),
    "size_change": (
        "Outputs of another size than their input",
        "check that the model was meant to change the size",
    ),
    "no_op": (
        "Outputs that are their input",
        "check the path; the model may have changed nothing",
    ),
    "same_outputs": (
        "Pairs with the same image twice",
        "remove them: neither output can be better",
    ),
    "same_model": ("Pairs of the same model", "correct model_a or model_b"),
    "flat": (
        "Images that show nothing",
        "look at them: an image of one colour is a degenerate output",
    ),
}
"""Kinds of findings, each with a title and a remedy."""
_DEGENERATE = ("Degenerate outputs", "look at them: the model may have failed")


def meaning(kind: str) -> tuple[str, str]:
    """Return the title and the remedy for a kind of finding."""
    return MEANINGS.get(kind, _DEGENERATE)


@dataclass(frozen=True, slots=True)
class AuditFinding:
    kind: str
    line: int
    id: str
    field: str
    message: str


@dataclass(slots=True)
class Audit:
    """Statistics of a manifest, and the findings about it."""

    manifest: str
    edits: int = 0
    models: dict[str, int] = field(default_factory=dict)
    edit_types: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Number of findings of each kind, including those that are not listed."""
    findings: list[AuditFinding] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    unit: str = "line"
    """Unit of the findings' line numbers: line, row or edit."""

    @property
    def sound(self) -> bool:
        return not any(self.counts.get(kind) for kind in BROKEN)

    def as_json(self) -> dict[str, object]:
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
    """Check every line and every image, and collect all findings instead of stopping at the first.

    With `pixels`, each image is decoded. This finds damage behind a valid header, edits that changed bytes but no
    pixel, and degenerate outputs. If the extra `measured` is not installed, degenerate outputs are not found, and a
    notice says so. At most `listed` findings of each kind are listed, but all are counted. `progress` is called with
    the number of edits checked so far.
    """
    from concurrent.futures import ThreadPoolExecutor

    result = Audit(name_of(str(path)))
    reader = Reader(
        path,
        allow_outside=allow_outside,
        allow_urls=allow_urls,
        notify=result.notices.append,
        named=NamedInputs(columns=columns),
    )
    if pixels and plugins.missing("measured"):
        result.notices.append(
            "degenerate outputs were not searched for: pip install 'editjudge[measured]'"
        )
    auditor = _Auditor(result, listed, reader, pixels)
    waiting: deque[tuple[int, Edit, Future[_Examined]]] = deque()

    def check_next() -> None:
        line, edit, examined = waiting.popleft()
        auditor.check(line, edit, examined.result())
        if progress:
            progress(result.edits)

    with ThreadPoolExecutor() as threads:
        for line, edit in auditor.edits(rows(path, reader)):
            waiting.append((line, edit, threads.submit(auditor.examine, edit)))
            # Enough to keep the threads busy, and few enough to fit into memory.
            if len(waiting) > 64:
                check_next()
        while waiting:
            check_next()
    result.findings.sort(key=lambda finding: finding.line)
    result.unit = reader.unit
    return result


@dataclass(frozen=True, slots=True)
class _Fact:
    """Digests, size and problem of an image, or whether it is missing."""

    digest: bytes = b""
    pixels: bytes = b""
    """Digest of the decoded pixels, or of the file if pixels are not decoded."""
    size: tuple[int, int] = (0, 0)
    problem: str = ""
    missing: bool = False


_Facts: TypeAlias = Mapping[str, _Fact]
"""Facts about an edit's images, keyed by role."""
_Examined: TypeAlias = tuple[_Facts, list[DegenerateImage]]
_Finding: TypeAlias = tuple[str, str, str]
"""Kind, field and message of a finding."""


class _Auditor:
    """Examines the images of edits in several threads, and checks each edit both on its own and against earlier ones."""

    def __init__(self, audit: Audit, listed: int, reader: Reader, pixels: bool) -> None:
        self._audit = audit
        self._listed = listed
        self._reader = reader
        self._pixels = pixels
        self._screens: list[Screen] = plugins.usable("screens") if pixels else []
        self._file_fact = functools.lru_cache(50_000)(self._fact)
        self._outputs: dict[bytes, int] = {}
        self._labels: dict[bytes, tuple[int, tuple[str, ...], bytes]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def examine(self, edit: Edit) -> _Examined:
        facts = {}
        for role, source in edit.all_images().items():
            fact_of = self._file_fact if isinstance(source, Path) else self._fact
            facts[role] = fact_of(source)
        images = [image for screen in self._screens for image in screen(edit)]
        # A nearly unchanged output may be a small edit, which is not a fault of the manifest.
        faults = [
            image for image in images if image.set_aside or image.kind != "unchanged"
        ]
        return facts, faults

    def _fact(self, source: ImageSource) -> _Fact:
        if isinstance(source, str):
            return _Fact(problem="is an address, which an audit does not fetch")
        if isinstance(source, Path) and not os.path.exists(source):
            return _Fact(missing=True)
        name = name_of(source)
        try:
            data = read(source)
            digest = hashlib.sha256(data).digest()[:16]
            size = probe(data, name=name).display_size
            if not self._pixels:
                return _Fact(digest, digest, size)
            image = decode(data, name=name)
        except ImageError as error:
            return _Fact(problem=str(error))
        key = repr(image.size).encode()
        pixels = hashlib.blake2b(image.tobytes(), digest_size=16, key=key).digest()
        return _Fact(digest, pixels, size)

    def edits(self, source: Iterator[Row]) -> Iterator[tuple[int, Edit]]:
        """Yield the edits with their line numbers. Invalid lines are recorded as findings."""
        while True:
            try:
                for line, row in source:
                    if isinstance(row, LineError):
                        raise row
                    yield line, self._reader.edit(line, row)
                return
            except LineError as error:
                self._add(error.kind, error.line, error.id, error.field, error.message)

    def _add(
        self, kind: str, line: int, identifier: str, name: str, message: str
    ) -> None:
        _count(self._audit.counts, kind)
        if self._audit.counts[kind] <= self._listed:
            finding = AuditFinding(kind, line, identifier, name, message)
            self._audit.findings.append(finding)

    def check(self, line: int, edit: Edit, examined: _Examined) -> None:
        facts, degenerate = examined
        self._audit.edits += 1
        models: list[object] = [edit.model]
        if len(edit.outputs) > 1:
            models = [edit.metadata.get(name) for name in PAIR_LABELS]
        for model in models:
            _count(self._audit.models, str(model or ""))
        _count(self._audit.edit_types, edit.edit_type or "")
        for kind, name, message in self._findings(line, edit, facts):
            self._add(kind, line, edit.id, name, message)
        for image in degenerate:
            self._add(image.kind, line, edit.id, image.role, image.words)

    def _findings(self, line: int, edit: Edit, facts: _Facts) -> Iterator[_Finding]:
        if not edit.instruction.strip():
            yield "empty_instruction", "instruction", "is empty"
        if edit.input is None:
            yield "missing_input", "input", "is absent: most rubrics look at it"
        for role in edit.outputs:
            if edit.image(role) is None:
                yield "missing_output", role, "is absent: the model produced nothing"
        for role, source in edit.all_images().items():
            yield from _unreadable(role, source, facts[role])
        if len(edit.outputs) > 1:
            yield from _same_twice(edit, facts)
        source_fact = facts.get("input", _Fact())
        for role in edit.outputs:
            output = facts.get(role, _Fact())
            # An output may be in several pairs.
            if output.digest and len(edit.outputs) == 1:
                yield from self._repeated(line, output)
            if output.digest and source_fact.digest:
                yield from _compared(role, source_fact, output)
                if role == "edited":
                    yield from self._contradiction(line, edit, source_fact, output)

    def _repeated(self, line: int, output: _Fact) -> Iterator[_Finding]:
        first = self._outputs.setdefault(output.pixels, line)
        if first != line:
            message = f"the same image as the output on {self._reader.unit} {first}"
            yield "duplicate_output", "edited", message

    def _contradiction(
        self, line: int, edit: Edit, source: _Fact, output: _Fact
    ) -> Iterator[_Finding]:
        labels = {name: getattr(edit, name) for name in LABELS} | dict(edit.metadata)
        # Names are shared and a label takes four bytes, so that a million edits fit into memory.
        names = tuple(sorted(labels))
        names = self._names.setdefault(names, names)
        values = b"".join(_checksum(labels[name]) for name in names)
        content = source.digest + output.digest + edit.instruction.encode()
        key = hashlib.blake2b(content, digest_size=16).digest()
        first, names_before, values_before = self._labels.setdefault(
            key, (line, names, values)
        )
        differing = _by_name(names, values) ^ _by_name(names_before, values_before)
        if odd := sorted({name for name, _ in differing}):
            message = f"the same images and instruction as {self._reader.unit} {first}, but another {', '.join(odd)}"
            yield "contradictory_labels", odd[0], message


def _count(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1


def _by_name(names: Sequence[str], values: bytes) -> set[tuple[str, bytes]]:
    return {(name, values[4 * n : 4 * n + 4]) for n, name in enumerate(names)}


def _unreadable(role: str, source: ImageSource, fact: _Fact) -> Iterator[_Finding]:
    name = name_of(source)
    if fact.missing and role in OUTPUT_ROLES:
        message = f"{name} is not there: the model produced nothing"
        yield "missing_output", role, message
    elif fact.missing:
        yield "missing_file", role, f"{name} is not there"
    elif fact.problem:
        kind = "not_fetched" if isinstance(source, str) else "broken_file"
        yield kind, role, fact.problem


def _same_twice(edit: Edit, facts: _Facts) -> Iterator[_Finding]:
    """Yield findings that make it impossible to choose between the outputs of a pair."""
    a, b = (facts.get(role, _Fact()).pixels for role in edit.outputs)
    if a and a == b:
        message = "shows the same image as edited_a: neither can be better"
        yield "same_outputs", "edited_b", message
    model = edit.metadata.get("model_a")
    if model and model == edit.metadata.get("model_b"):
        yield "same_model", "model_b", f"is {model!r:.80}, like model_a"


def _compared(role: str, source: _Fact, output: _Fact) -> Iterator[_Finding]:
    if source.pixels == output.pixels:
        same_file = source.digest == output.digest
        how = "the same file" if same_file else "another file with the same pixels"
        yield "no_op", role, f"{how} as the input: nothing was edited"
    if source.size != output.size:
        before = "{} x {}".format(*source.size)
        after = "{} x {}".format(*output.size)
        yield "size_change", role, f"{before} became {after}"


def _checksum(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, default=str)
    return zlib.crc32(text.encode()).to_bytes(4, "big")
