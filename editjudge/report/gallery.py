"""Edits worth looking at: which ones, and what the card of each shows. `templates/gallery.html` draws them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from editjudge.judgement import DONE, instruction_warning
from editjudge.report.contradictions import refutations
from editjudge.report.run_data import RunData
from editjudge.stats.columns import Floats
from editjudge.store.records import PENDING, Item, Refutation
from editjudge.store.store import Store

CARDS = 6
"""Edits of one gallery: two rows of three on a wide page."""
_ROLES = {
    "input": "Input",
    "edited": "Edited",
    "ground_truth": "Ground truth",
    "change": "What changed",
}
_SHOWN_REPLIES = 3
_VERDICTS = 40
"""Judgements of one edit on its card."""

Look = Callable[[Item, str], "bytes | str | None"]
"""A picture of an edit by role, `change` for the map of what changed: a small WebP, words for why it cannot be
shown, or None where there is none."""


@dataclass(frozen=True)
class Gallery:
    """Edits by id, of so many that could stand there."""

    name: str
    title: str
    why: str
    items: Sequence[str]
    of: int
    rivals: Mapping[str, str] = field(default_factory=dict)
    """The edit that stands beside one on its card: another model's, of the same input and instruction."""


def choices(judged: RunData) -> list[Gallery]:
    """Return the galleries that have any edit."""
    scores = judged.scores
    level, spread, compared = _levels(judged)
    by = f"mean of {', '.join(dict.fromkeys(f for _, f in compared))}, each on its own scale."
    read = not instruction_warning(judge for judge, _ in compared) and any(
        factor not in BESIDE for _, factor in compared
    )
    title = "{}" if read else "{} scores, instruction not judged"
    failed = ~np.isin(
        scores.status.codes,
        [n for n, s in enumerate(scores.status.labels) if s in DONE],
    )
    names = scores.item.labels
    ranked = int(np.sum(np.isfinite(level)))
    apart = _apart(judged, level)
    against, rivals, rivalries = judged.against_evidence.edits, *_rivals(judged, level)
    galleries = [
        Gallery("best", title.format("Best" if read else "Highest"), f"The highest {by}{apart}",
                _top(names, level), ranked),
        Gallery("worst", title.format("Worst" if read else "Lowest"), f"The lowest {by}{apart}",
                _top(names, -level), ranked),
        Gallery("between", "Largest disagreement between models", "The same input and instruction, edited by two "
                f"models: the largest difference in the {by}", list(rivals), rivalries, rivals),
        Gallery("disputed", "Largest disagreement between judges or repeats", "The widest spread of scores of one "
                "factor.", _top(names, spread, 1e-9), int(np.sum(spread > 0))),
        Gallery("failed", "Failed", "Edits without a verdict of some judge or rubric, every kind of failure in turn.",
                _each_kind(judged, failed), len(np.unique(scores.item.codes[failed]))),
        Gallery("contradicted", "Contradicted by evidence", "Verdicts that the measured evidence of the same pictures "
                "refutes, most contradictions first.", against[:CARDS], len(against)),
    ]  # fmt: skip
    return [gallery for gallery in galleries if gallery.items]


def _rivals(judged: RunData, level: Floats) -> tuple[dict[str, str], int]:
    """Return, for the same input and instruction, the highest and the lowest model's edit, the widest apart first; and of how
    many inputs two models have a level."""
    scores = judged.scores
    codes, rows = np.unique(scores.item.codes, return_index=True)
    tasks: dict[int, list[tuple[float, str, str]]] = {}
    for code, row in zip(
        codes[np.isfinite(level[codes])], rows[np.isfinite(level[codes])], strict=True
    ):
        model = scores.model.labels[scores.model.codes[row]]
        tasks.setdefault(int(scores.pair.codes[row]), []).append(
            (float(level[code]), model, scores.item.labels[code])
        )
    ends = [
        (max(some), min(some))
        for some in tasks.values()
        if len({model for _, model, _ in some}) > 1
    ]
    ends.sort(key=lambda end: (end[1][0] - end[0][0], _lot(end[0][2])))
    apart = [
        (best[2], worst[2])
        for best, worst in ends
        if best[0] > worst[0] and best[1] != worst[1]
    ]
    return dict(apart[:CARDS]), len(apart)


BESIDE = frozenset({
    "unchanged_regions", "global_consistency", "identity_preservation", "scale_realism", "spatial_relationship",
    "texture_and_detail", "image_quality", "color_and_lighting", "seamlessness", "plausibility",
    "Contextual_Preservation",
})  # fmt: skip
"""Factors of the built-in rubrics that do not ask whether the instruction was followed."""


def _apart(judged: RunData, level: Floats) -> str:
    """How many edits have scores but are not ranked, because other factors were scored on them."""
    scored = np.unique(judged.scores.item.codes[np.isfinite(judged.scores.score)])
    n = len(scored) - int(np.sum(np.isfinite(level)))
    return (
        f" {n:,} edit{' is' if n == 1 else 's are'} not ranked: other factors were scored."
        if n
        else ""
    )


def _levels(judged: RunData) -> tuple[Floats, Floats, list[tuple[str, str]]]:
    """For each edit the mean of its scores from 0 to 1, where it was scored on the same factors as most edits; the
    widest spread between those who scored one factor; and what is in the mean, by judge and factor."""
    scores = judged.scores
    low = np.zeros(len(scores.factor.labels))
    high = np.ones(len(scores.factor.labels))
    for n, factor in enumerate(scores.factor.labels):
        mine = scores.score[scores.factor.codes == n]
        scale = (
            judged.scales.get(factor) or (np.nanmin(mine), np.nanmax(mine))
            if np.isfinite(mine).any()
            else (0, 1)
        )
        low[n] = min(scale)
        high[n] = max(scale) if max(scale) > min(scale) else min(scale) + 1
        if factor in judged.falling:
            low[n], high[n] = high[n], low[n]
    value = (scores.score - low[scores.factor.codes]) / (high - low)[
        scores.factor.codes
    ]
    place = scores.item.codes.astype(np.int64) * len(low) + scores.factor.codes
    size = len(scores.item.labels) * len(low)
    most = np.full(size, -np.inf)
    least = np.full(size, np.inf)
    good = np.isfinite(value)
    np.maximum.at(most, place[good], value[good])
    np.minimum.at(least, place[good], value[good])
    gap = (
        np.where(most >= least, most - least, 0.0).reshape(-1, len(low))
        if size
        else np.zeros((0, 1))
    )
    # Nobody looked at what a computed figure says nothing of: the least change is not the best edit.
    computed = np.array(
        [factor in judged.computed for factor in scores.factor.labels] or [False]
    )[scores.factor.codes]
    level, compared = _alike(judged, np.where(computed, np.nan, value))
    return level, gap.max(axis=1, initial=0.0), compared


def _alike(judged: RunData, value: Floats) -> tuple[Floats, list[tuple[str, str]]]:
    """Only edits with scores on the same factors are ranked: a mean of other factors is another quantity. An edit that
    has a score beyond them, such as an alignment of 1 that was proven, is not ranked without it."""
    scores = judged.scores
    good = np.isfinite(value)
    columns = (
        scores.judge.codes.astype(np.int64) * len(scores.factor.labels)
        + scores.factor.codes
    )
    kinds, column = np.unique(columns[good], return_inverse=True)
    shape = (len(scores.item.labels), len(kinds))
    if not len(kinds):
        return np.full(shape[0], np.nan), []
    place = scores.item.codes[good].astype(np.int64) * len(kinds) + column
    counts = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
    sums = np.bincount(
        place, weights=value[good], minlength=shape[0] * shape[1]
    ).reshape(shape)
    has = counts > 0
    sets, often = np.unique(has[has.any(axis=1)], axis=0, return_counts=True)
    most = sets[max(range(len(sets)), key=lambda n: (often[n], sets[n].sum()))]
    means = np.divide(sums, counts, out=np.zeros(shape), where=has)[:, most].mean(
        axis=1
    )
    width = len(scores.factor.labels)
    other = ~np.isin(kinds % width, kinds[most] % width)
    level = np.where(
        (has | ~most).all(axis=1) & ~has[:, other].any(axis=1), means, np.nan
    )
    return level, [
        (scores.judge.labels[k // width], scores.factor.labels[k % width])
        for k in kinds[most]
    ]


def _top(names: Sequence[str], value: Floats, least: float = -np.inf) -> list[str]:
    """The highest; among equals a fixed choice that does not depend on the order of the manifest."""
    known = np.flatnonzero(np.isfinite(value) & (value >= least))
    if len(known) > CARDS:
        limit = np.partition(value[known], -CARDS)[-CARDS]
        known = known[value[known] >= limit]
    ordered = sorted(map(int, known), key=lambda n: (-value[n], _lot(names[n])))
    return [names[n] for n in ordered[:CARDS]]


def _lot(name: str) -> bytes:
    return hashlib.blake2b(
        name.encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()


def _each_kind(judged: RunData, failed: Any) -> list[str]:
    """One edit of each kind of failure, then a second of each, and so on."""
    scores = judged.scores.take(failed)
    kinds: list[list[str]] = []
    for status in scores.status.present():
        items = scores.where(status=status).item.present()
        kinds.append(sorted(items, key=_lot)[:CARDS])
    turns = [kind[n] for n in range(CARDS) for kind in kinds if n < len(kind)]
    return list(dict.fromkeys(turns))[:CARDS]


# --- cards ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Card:
    """One edit as a page shows it, or two of the same input: pictures, scores, reasons, and what failed."""

    anchor: str
    items: Sequence[Item]
    pictures: Sequence[tuple[str, bytes | str]]
    """Captions with pictures, or with the reason why there is no picture to show."""
    judgements: Sequence[Mapping[str, Any]]
    left_out: int
    contradictions: Sequence[tuple[Mapping[str, Any], Refutation]]
    replies: Mapping[str, Sequence[str]]
    """The last raw replies of judgements that failed, by key."""

    @property
    def item(self) -> Item:
        return self.items[0]

    @property
    def failures(self) -> list[Mapping[str, Any]]:
        return [row for row in self.judgements if row["status"] not in DONE]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(map(self._column, self.judgements)))

    def _column(self, row: Mapping[str, Any]) -> str:
        """Return whose scores these are: a judge's; of two edits, those of a model, and by whom where judges are several."""
        if len(self.items) == 1:
            return str(row["judge"])
        alone = len({row["judge"] for row in self.judgements}) == 1
        return str(row["model"]) if alone else f"{row['model']} by {row['judge']}"

    @property
    def abstained(self) -> list[str]:
        """Factors without any score, which need no row of their own."""
        rated = {factor for row in self.judgements for factor in row["scores"] or ()}
        silent = dict.fromkeys(
            factor for row in self.judgements for factor in row["abstained"]
        )
        return [factor for factor in silent if factor not in rated]

    def scores(self) -> dict[str, dict[str, list[str]]]:
        """Return the scores by factor and column; repeats side by side."""
        table: dict[str, dict[str, list[str]]] = {}
        for row in self.judgements:
            values = dict.fromkeys(row["abstained"], "abstained") | {
                f: str(s) for f, s in (row["scores"] or {}).items()
            }
            for factor, value in values.items():
                table.setdefault(factor, {}).setdefault(self._column(row), []).append(
                    value
                )
        return {
            factor: cells
            for factor, cells in table.items()
            if factor not in self.abstained
        }


def sections(
    judged: RunData, store: Store, look: Look, galleries: Sequence[Gallery]
) -> list[dict[str, Any]]:
    """The galleries with their cards; one that stands in an earlier gallery is linked from `again`."""
    cards: dict[tuple[str, ...], Card] = {}
    out = []
    for gallery in galleries:
        names = [
            (item, *([gallery.rivals[item]] if item in gallery.rivals else []))
            for item in gallery.items
        ]
        again = [cards[name] for name in names if name in cards]
        fresh = {name: _card(judged, store, look, name, f"edit-{len(cards) + n}")
                 for n, name in enumerate((name for name in names if name not in cards), 1)}  # fmt: skip
        cards |= fresh
        out.append(
            vars(gallery)
            | {
                "shown": len(gallery.items),
                "cards": list(fresh.values()),
                "again": again,
            }
        )
    return out


def _card(
    judged: RunData, store: Store, look: Look, names: Sequence[str], anchor: str
) -> Card:
    items = [next(store.items(judged.run, name), Item(name)) for name in names]
    rows = [
        row
        for name in names
        for row in store.judgements(judged.run, item=name)
        if row["status"] != PENDING
    ]
    refuted = refutations(store, judged.run, list(names))
    visible = rows[:_VERDICTS]
    return Card(
        anchor,
        items,
        list(_pictures(items, look)),
        visible,
        len(rows) - len(visible),
        [(row, held) for row in visible for held in refuted.get(row["key"], ())],
        {row["key"]: [reply.text for reply in store.replies(row["key"])[-_SHOWN_REPLIES:]]
         for row in visible if row["status"] not in DONE},
    )  # fmt: skip


def _pictures(items: Sequence[Item], look: Look) -> Iterator[tuple[str, bytes | str]]:
    first, *others = items
    roles = [(first, role, caption) for role, caption in _ROLES.items()]
    if others:
        roles = [
            (first, "input", "Input"),
            *((item, "edited", item.model or "Edited") for item in items),
        ]
    for item, role, caption in roles:
        if (picture := look(item, role)) is not None:
            yield caption, picture
