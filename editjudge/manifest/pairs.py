"""Pairs of edits with the same input and instruction. They are chosen so that models and source images are balanced."""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, cycle, islice
from typing import TypeAlias

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError, ManifestError, UsageError, did_you_mean
from editjudge.manifest.reader import MAX_ID
from editjudge.media.cache import DigestCache
from editjudge.media.source import is_url

ModelPair: TypeAlias = tuple[str, str]
"""Two models in alphabetical order. The name is empty for an edit without a model."""


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two edits with the same input and instruction."""

    source: str
    x: Edit
    y: Edit

    @property
    def models(self) -> ModelPair:
        first, second = sorted((self.x.model or "", self.y.model or ""))
        return first, second


@dataclass
class PairPool:
    """All possible pairs, keyed by the models that they compare."""

    candidates: list[CandidatePair]
    same_model: int = 0
    """Number of pairs that were left out because both outputs are from the same model."""
    alone: int = 0
    """Number of edits that share their input and instruction with no other edit."""
    by_models: dict[ModelPair, list[CandidatePair]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_models = {}
        for pair in self.candidates:
            self.by_models.setdefault(pair.models, []).append(pair)

    @property
    def models(self) -> list[str]:
        return sorted({name for pair in self.by_models for name in pair})


def pool(
    edits: Iterable[Edit],
    digest: Callable[[ImageSource], str],
    *,
    against: str | None = None,
) -> PairPool:
    """Return all pairs of edits with the same instruction and the same input. Inputs are compared by content. With
    `against`, return only pairs that include that model.

    Edits of the same model are not paired, but edits without a model are.
    """
    sources: dict[tuple[str, str], list[Edit]] = {}
    for edit in edits:
        if edit.input is not None:
            sources.setdefault((digest(edit.input), edit.instruction), []).append(edit)
    named = {edit.model for members in sources.values() for edit in members}
    if against is not None and against not in named:
        models = sorted(name for name in named if name)
        raise UsageError(
            f"--against {against}: no edit is of that model{did_you_mean(against, models)} Models: {', '.join(models)}"
        )
    candidates = []
    same = 0
    alone = 0
    for (mark, _), members in sources.items():
        alone += len(members) == 1
        for x, y in combinations(members, 2):
            if x.model is not None and x.model == y.model:
                same += 1
            elif against is None or against in (x.model, y.model):
                candidates.append(CandidatePair(mark, x, y))
    return PairPool(candidates, same, alone)


def content_marks() -> Callable[[ImageSource], str]:
    """Return a function that identifies an input by its content, or by its path if it cannot be read."""
    digests = DigestCache()

    def mark(source: ImageSource) -> str:
        with suppress(ImageError):
            if not is_url(source) and (digest := digests.of(source)):
                return digest
        return f"place:{source!s}"

    return mark


def identifiers(pair: CandidatePair) -> set[str]:
    """Return both ids that a pair can have, since either edit may be the output a."""
    return {f"{pair.x.id}|{pair.y.id}", f"{pair.y.id}|{pair.x.id}"}


def sampled(candidates: PairPool, wanted: int, seed: int) -> list[CandidatePair]:
    """Return `wanted` pairs. All pairs of models, and all source images, occur about equally often."""
    rng = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    names = list(candidates.by_models)
    rng.shuffle(names)
    rounds = islice(cycle(names), len(candidates.candidates))
    return chosen(candidates, rounds, rng, wanted=wanted)


def chosen(
    candidates: PairPool,
    games: Iterable[ModelPair],
    rng: random.Random,
    *,
    wanted: int,
    used: Mapping[str, int] | None = None,
) -> list[CandidatePair]:
    """Return a pair for each requested comparison of two models, on the least used source image. A comparison is
    skipped if its models have no pair left. `used` counts earlier questions for each source image.
    """
    times = Counter(used or {})
    left = {
        names: rng.sample(members, len(members))
        for names, members in candidates.by_models.items()
    }
    picked: list[CandidatePair] = []
    waiting = [names for names in games if names in left]
    # If the manifest is uneven, longer lists make up for shorter ones.
    waiting += [names for names, members in sorted(left.items()) for _ in members]
    for names in waiting:
        if len(picked) == wanted:
            break
        if members := left[names]:
            at = min(range(len(members)), key=lambda i: times[members[i].source])
            pair = members.pop(at)
            times[pair.source] += 1
            picked.append(pair)
    return picked


def oriented(picked: Sequence[CandidatePair], seed: int) -> list[tuple[Edit, Edit]]:
    """Choose which edit of each pair is a, and return the pairs in that order. Each model is a and b about equally
    often, both overall and against every other model.
    """
    rng = random.Random(f"{seed}:orientation")  # noqa: S311  (the same)
    against: Counter[ModelPair] = Counter()
    overall: Counter[str] = Counter()
    pairs = []
    for pair in picked:
        x, y = sorted((pair.x, pair.y), key=lambda edit: edit.model or "")
        first, second = pair.models
        lead = against[pair.models] or overall[first] - overall[second]
        swapped = lead > 0 or (lead == 0 and rng.random() < 0.5)
        pairs.append((y, x) if swapped else (x, y))
        if first != second:
            step = -1 if swapped else 1
            against[pair.models] += step
            overall[first] += step
            overall[second] -= step
    return pairs


def pair_row(a: Edit, b: Edit) -> dict[str, object]:
    """Return a pair as a row of a manifest, with unchanged paths. Metadata that differs between the two edits is left
    out.
    """
    identifier = f"{a.id}|{b.id}"
    if len(identifier) > MAX_ID:
        raise ManifestError(
            f"{a.id!r:.80} and {b.id!r:.80}: the id of their pair has {len(identifier):,} characters; "
            f"expected at most {MAX_ID}: give the edits shorter ids"
        )
    row: dict[str, object] = {
        "id": identifier,
        "input": _as_text(a.input),
        "edited_a": _as_text(a.edited),
        "edited_b": _as_text(b.edited),
        "instruction": a.instruction,
    }
    optional = {
        "model_a": a.model,
        "model_b": b.model,
        "ground_truth": _as_text(a.ground_truth or b.ground_truth),
        "mask": _as_text(a.mask or b.mask),
        "referring_expression": a.referring_expression
        or b.referring_expression
        or None,
        "edit_type": a.edit_type if a.edit_type == b.edit_type else None,
        "group": a.group if a.group == b.group else None,
    }
    row |= {name: value for name, value in optional.items() if value is not None}
    for name, value in a.metadata.items():
        taken = name in row or name in optional
        if not taken and name in b.metadata and b.metadata[name] == value:
            row[name] = value
    return row


def _as_text(source: ImageSource | None) -> ImageSource | None:
    """Return an image that is given as bytes as a `data:` URL. Other sources are returned unchanged."""
    if not isinstance(source, bytes):
        return source
    return f"data:application/octet-stream;base64,{base64.b64encode(source).decode()}"
