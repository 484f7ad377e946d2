"""Pairs of edits that share input and instruction, chosen so that models and source images are balanced."""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeAlias

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError, ManifestError, UsageError, near_miss
from editjudge.media.cache import DigestCache
from editjudge.media.image import is_url

ModelPair: TypeAlias = tuple[str, str]
"""Two models in the order of their names; empty where an edit names none."""
MAX_ID = 512
"""As long as a manifest's ids may be."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two edits of one input by one instruction."""

    source: str
    x: Edit
    y: Edit

    @property
    def models(self) -> ModelPair:
        first, second = sorted((self.x.model or "", self.y.model or ""))
        return first, second


@dataclass
class PairPool:
    """All pairs that can be made, by the models that they compare."""

    candidates: list[CandidatePair]
    same_model: int = 0
    """Pairs that were left out because one model made both."""
    alone: int = 0
    """Edits that no other edit shares input and instruction with."""
    by_models: dict[ModelPair, list[CandidatePair]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_models = {}
        for one in self.candidates:
            self.by_models.setdefault(one.models, []).append(one)

    @property
    def models(self) -> list[str]:
        return sorted({name for pair in self.by_models for name in pair})


def pool(edits: Iterable[Edit], digest: Callable[[ImageSource], str], *, against: str | None = None) -> PairPool:
    """Every two edits that share input, by content, and instruction; with `against`, those of that model and another.

    Edits of one model are not compared; edits that name no model are.
    """
    sources: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        if edit.input is not None:
            sources.setdefault((digest(edit.input), edit.instruction), []).append(edit)
    named = {edit.model for members in sources.values() for edit in members}
    if against is not None and against not in named:
        known = sorted(name for name in named if name)
        raise UsageError(
            f"--against {against}: no edit is of that model{near_miss(against, known)} Models: {', '.join(known)}"
        )
    candidates, same, alone = [], 0, 0
    for (mark, _), members in sources.items():
        alone += len(members) == 1
        for x, y in combinations(members, 2):
            if x.model is not None and x.model == y.model:
                same += 1
            elif against is None or against in (x.model, y.model):
                candidates.append(CandidatePair(mark, x, y))
    return PairPool(candidates, same, alone)


def content_marks() -> Callable[[ImageSource], str]:
    """By what an input is known: its content, or its place where it cannot be read."""
    digests = DigestCache()

    def mark(source: ImageSource) -> str:
        with suppress(ImageError):
            if not is_url(source) and (digest := digests.of(source)):
                return digest
        return f"place:{source!s}"

    return mark


def identifiers(one: CandidatePair) -> set[str]:
    """The ids that a pair may have, whichever of its edits is a."""
    return {f"{one.x.id}|{one.y.id}", f"{one.y.id}|{one.x.id}"}


def sampled(candidates: PairPool, wanted: int, seed: int) -> list[CandidatePair]:
    """So many pairs, each two models and each source image about equally often."""
    rng = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    names = list(candidates.by_models)
    rng.shuffle(names)
    rounds = [names[i % len(names)] for i in range(len(candidates.candidates))] if names else []
    return chosen(candidates, rounds, rng, wanted=wanted)


def chosen(
    candidates: PairPool,
    games: Iterable[ModelPair],
    rng: random.Random,
    *,
    wanted: int,
    used: Mapping[str, int] | None = None,
) -> list[CandidatePair]:
    """One pair for each game of two models, on the source image that was asked about least; games of models that have
    no pair left are passed over. `used` counts what was asked before, by source."""
    times = Counter(used or {})
    left = {names: rng.sample(members, len(members)) for names, members in candidates.by_models.items()}
    picked: list[CandidatePair] = []
    waiting = [names for names in games if names in left]
    # Of uneven manifests, what the short lists lack is taken from the longer ones.
    waiting += [names for names, members in sorted(left.items()) for _ in members]
    for names in waiting:
        if len(picked) == wanted:
            break
        if members := left[names]:
            at = min(range(len(members)), key=lambda i: times[members[i].source])
            one = members.pop(at)
            times[one.source] += 1
            picked.append(one)
    return picked


def oriented(picked: Sequence[CandidatePair], seed: int) -> list[tuple[Edit, Edit]]:
    """Which edit of each pair is a: each model about as often as b, against every other model and in all."""
    rng = random.Random(f"{seed}:orientation")  # noqa: S311  (the same)
    against: Counter[ModelPair] = Counter()
    overall: Counter[str] = Counter()
    pairs = []
    for one in picked:
        x, y = (one.x, one.y) if (one.x.model or "") <= (one.y.model or "") else (one.y, one.x)
        first, second = one.models
        lead = against[one.models] or overall[first] - overall[second]
        if lead > 0 or (lead == 0 and rng.random() < 0.5):
            pairs.append((y, x))
            step = -1
        else:
            pairs.append((x, y))
            step = 1
        if first != second:
            against[one.models] += step
            overall[first] += step
            overall[second] -= step
    return pairs


def pair_row(a: Edit, b: Edit) -> dict[str, Any]:
    """The pair as a manifest's row, paths as they are; what the two edits say differently is left out."""
    identifier = f"{a.id}|{b.id}"
    if len(identifier) > MAX_ID:
        raise ManifestError(f"{a.id!r:.80} and {b.id!r:.80}: the id of their pair has {len(identifier):,} characters; "
                            f"expected at most {MAX_ID}: give the edits shorter ids")  # fmt: skip
    shared = {
        name: a.metadata[name] for name in a.metadata if name in b.metadata and a.metadata[name] == b.metadata[name]
    }
    row: dict[str, Any] = {
        "id": identifier, "input": a.input, "edited_a": a.edited, "edited_b": b.edited, "instruction": a.instruction,
        "model_a": a.model, "model_b": b.model,
    }  # fmt: skip
    for name in ("ground_truth", "mask", "referring_expression"):
        row[name] = getattr(a, name) or getattr(b, name) or None
    for name in ("edit_type", "group"):
        row[name] = getattr(a, name) if getattr(a, name) == getattr(b, name) else None
    written = {name: _written(value) for name, value in row.items()}
    usual = ("id", "input", "edited_a", "edited_b", "instruction")
    return {name: value for name, value in written.items() if value is not None or name in usual} | {
        name: value for name, value in shared.items() if name not in row
    }


def _written(value: Any) -> Any:
    """A picture that came as bytes as a data: URL."""
    if not isinstance(value, bytes):
        return value
    return f"data:application/octet-stream;base64,{base64.b64encode(value).decode()}"
