"""Galleries of edits, such as the best and the failed ones: selection of the edits, and a card with images for each."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from editjudge import plugins
from editjudge.edit import PAIR_ROLES, Edit
from editjudge.errors import EditjudgeError, ImageError
from editjudge.judgement import DONE, JudgementRow, instruction_warning
from editjudge.media.image import decode, digest
from editjudge.orders import ORDERS
from editjudge.report.contradictions import refutations
from editjudge.report.run_data import RunData
from editjudge.rubrics.prompt import ask
from editjudge.running.images import image_of
from editjudge.stats.columns import Floats, Mask
from editjudge.store.records import PENDING, Item, Refutation, RunRecord
from editjudge.store.store import Store

CARDS = 6
"""Number of edits in one gallery: two rows of three on a wide page."""
THUMBNAIL = 320
"""Pixels on the longer side of a thumbnail. As WebP, a thumbnail has 6 to 20 kB."""
_ROLES = {
    "input": "Input",
    "edited": "Edited",
    "ground_truth": "Ground truth",
    "change": "What changed",
}
_SHOWN_REPLIES = 3
_VERDICTS = 40
"""Maximum number of judgements on the card of an edit."""
BESIDE = frozenset({
    "unchanged_regions", "global_consistency", "identity_preservation", "scale_realism", "spatial_relationship",
    "texture_and_detail", "image_quality", "color_and_lighting", "seamlessness", "plausibility",
    "Contextual_Preservation",
})  # fmt: skip
"""Factors of the built-in rubrics that are not about whether the instruction was followed."""


@dataclass(frozen=True)
class Gallery:
    """Ids of the selected edits, and the number of edits from which they were selected."""

    name: str
    title: str
    reason: str
    items: Sequence[str]
    of: int
    rivals: Mapping[str, str] = field(default_factory=dict)
    """The other edit on a card, made by another model from the same input and instruction."""


def choices(run: RunData) -> list[Gallery]:
    """Return the galleries that are not empty."""
    scores = run.scores
    value = _values(run)
    spread = _spread(run, value)
    level, compared = _levels(run, value)
    by = f"mean of {', '.join(dict.fromkeys(f for _, f in compared))}, each on its own scale."
    failed = ~scores.status.among(DONE)
    against = run.contradictions.edits
    rivals = _rivals(run, level)
    galleries = [
        *_extremes(run, level, compared, by),
        Gallery(
            "between",
            "Largest disagreement between models",
            f"The same input and instruction, edited by two models: the largest difference in the {by}",
            list(rivals)[:CARDS],
            len(rivals),
            rivals,
        ),
        Gallery(
            "disputed",
            "Largest disagreement between judges or repeats",
            "The widest spread of scores of one factor.",
            _top(scores.item.labels, np.where(spread > 0, spread, np.nan)),
            int(np.sum(spread > 0)),
        ),
        Gallery(
            "failed",
            "Failed",
            "Edits without a verdict by a judge or rubric, alternating between kinds of failure.",
            _each_kind(run, failed),
            len(np.unique(scores.item.codes[failed])),
        ),
        Gallery(
            "contradicted",
            "Contradicted by evidence",
            "Verdicts that the measured evidence of the same images refutes, most contradictions first.",
            against[:CARDS],
            len(against),
        ),
    ]
    return [gallery for gallery in galleries if gallery.items]


def _extremes(
    run: RunData, level: Floats, compared: Sequence[tuple[str, str]], by: str
) -> list[Gallery]:
    """Return the galleries of the highest and lowest scores. They are called best and worst only if a judge saw the
    instruction."""
    scores = run.scores
    copies = np.array([name in run.unchanged for name in scores.item.labels], bool)
    edited = np.where(copies, np.nan, level)
    best = ("best", "Highest scores, instruction not judged", "highest", edited)
    worst = ("worst", "Lowest scores, instruction not judged", "lowest", -level)
    unjudged = instruction_warning(judge for judge, _ in compared)
    is_judged = not unjudged and any(factor not in BESIDE for _, factor in compared)
    ranked = int(np.isfinite(level).sum())
    others = len(np.unique(scores.item.codes[np.isfinite(scores.score)])) - ranked
    apart = ""
    if others:
        verb = " is" if others == 1 else "s are"
        apart = f" {others:,} edit{verb} not ranked: other factors were scored."
    left_out = {"best": ""}
    if unedited := int((copies & np.isfinite(level)).sum()):
        left_out["best"] = (
            f" Outputs that show the input, unchanged or nearly so, are left out: {unedited:,}."
        )
    return [
        Gallery(
            name,
            name.capitalize() if is_judged else title,
            f"The {end} {by}{apart}{left_out.get(name, '')}",
            _top(scores.item.labels, value),
            int(np.isfinite(value).sum()),
        )
        for name, title, end, value in (best, worst)
    ]


def _rivals(run: RunData, level: Floats) -> dict[str, str]:
    """Return pairs of edits that share input and instruction: the edit with the lowest level, keyed by the edit with
    the highest. The largest gap comes first.
    """
    scores = run.scores
    codes, rows = np.unique(scores.item.codes, return_index=True)
    tasks: dict[int, list[tuple[float, str, str]]] = {}
    for code, row in zip(codes, rows, strict=True):
        if np.isfinite(level[code]):
            model = scores.model.labels[scores.model.codes[row]]
            edit = (float(level[code]), model, scores.item.labels[code])
            tasks.setdefault(int(scores.pair.codes[row]), []).append(edit)
    apart = []
    for edits in tasks.values():
        best, best_model, name = max(edits)
        worst, worst_model, rival = min(edits)
        if best > worst and best_model != worst_model:
            apart.append((worst - best, _lot(name), name, rival))
    return {name: rival for _, _, name, rival in sorted(apart)}


def _values(run: RunData) -> Floats:
    """Return each score as a share of its scale, from 0 (worst) to 1 (best)."""
    scores = run.scores
    worst = np.zeros(len(scores.factor.labels))
    best = np.ones(len(scores.factor.labels))
    for n, factor in enumerate(scores.factor.labels):
        values = scores.score[scores.factor.codes == n]
        if np.isfinite(values).any():
            scale = run.scales.get(factor) or (np.nanmin(values), np.nanmax(values))
            worst[n] = min(scale)
            best[n] = max(scale) if max(scale) > min(scale) else min(scale) + 1
            if factor in run.falling:
                worst[n], best[n] = best[n], worst[n]
    codes = scores.factor.codes
    shares: Floats = (scores.score - worst[codes]) / (best - worst)[codes]
    return shares


def _spread(run: RunData, value: Floats) -> Floats:
    """Return, for each edit, the widest spread among the scores of one factor."""
    scores = run.scores
    shape = (len(scores.item.labels), max(1, len(scores.factor.labels)))
    most = np.full(shape, -np.inf)
    least = np.full(shape, np.inf)
    good = np.isfinite(value)
    cell = (scores.item.codes[good], scores.factor.codes[good])
    np.maximum.at(most, cell, value[good])
    np.minimum.at(least, cell, value[good])
    gap = np.subtract(most, least, out=np.zeros(shape), where=most >= least)
    # Rounding errors are not a disagreement.
    spread: Floats = np.where(gap > 1e-9, gap, 0.0).max(axis=1, initial=0.0)
    return spread


def _levels(run: RunData, value: Floats) -> tuple[Floats, list[tuple[str, str]]]:
    """Return the level of each edit (its mean score), and the judges and factors that the mean is taken over. Only
    edits scored on the most common set of factors have a level.

    Means over different factors are not comparable, so an edit with an extra score, such as an alignment that is proven
    to be 1, is not ranked. Computed metrics are ignored, because the smallest change is not necessarily the best edit.
    """
    scores = run.scores
    good = np.isfinite(value) & ~scores.factor.among(run.computed)
    width = len(scores.factor.labels)
    columns = scores.judge.codes.astype(np.int64) * width + scores.factor.codes
    kinds, column = np.unique(columns[good], return_inverse=True)
    shape = (len(scores.item.labels), len(kinds))
    if not len(kinds):
        return np.full(shape[0], np.nan), []
    cell = (scores.item.codes[good], column)
    counts = np.zeros(shape)
    np.add.at(counts, cell, 1)
    sums = np.zeros(shape)
    np.add.at(sums, cell, value[good])
    has = counts > 0
    sets, often = np.unique(has[has.any(axis=1)], axis=0, return_counts=True)
    most = sets[max(range(len(sets)), key=lambda n: (often[n], sets[n].sum()))]
    means = np.divide(sums, counts, out=np.zeros(shape), where=has)[:, most]
    other = ~np.isin(kinds % width, kinds[most] % width)
    alike = (has | ~most).all(axis=1) & ~has[:, other].any(axis=1)
    return np.where(alike, means.mean(axis=1), np.nan), [
        (scores.judge.labels[kind // width], scores.factor.labels[kind % width])
        for kind in kinds[most]
    ]


def _top(names: Sequence[str], value: Floats) -> list[str]:
    """Return the names with the highest values. Ties are broken by hash, so the order of the manifest has no effect."""
    rows = np.flatnonzero(np.isfinite(value))
    if len(rows) > CARDS:
        limit = np.partition(value[rows], -CARDS)[-CARDS]
        rows = rows[value[rows] >= limit]
    ordered = sorted(map(int, rows), key=lambda n: (-value[n], _lot(names[n])))
    return [names[n] for n in ordered[:CARDS]]


def _lot(name: str) -> bytes:
    return hashlib.blake2b(
        name.encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()


def _each_kind(run: RunData, failed: Mask) -> list[str]:
    """Return one edit for each kind of failure, then a second one for each, and so on."""
    scores = run.scores.take(failed)
    kinds = [
        sorted(scores.where(status=status).item.present(), key=_lot)
        for status in scores.status.present()
    ]
    turns = [kind[n] for n in range(CARDS) for kind in kinds if n < len(kind)]
    return list(dict.fromkeys(turns))[:CARDS]


# --- cards ----------------------------------------------------------------------------------------------------


class EditView:
    """Thumbnails and questions for the edits of a run."""

    def __init__(self, run: RunRecord, store: Store) -> None:
        self._layout = run.spec.get("layout")
        self._rubrics = store.rubrics()
        self._run = run
        manifest = Path(str(run.spec.get("manifest", ".")))
        self._folder = run.imported_from or str(manifest.parent)

    def thumbnail(self, item: Item, role: str) -> bytes | str | None:
        """Return a thumbnail, or the reason why it cannot be shown. Return None if the edit has no such image."""
        try:
            if role == "change":
                return self._change(item)
            if role in item.images:
                return _thumbnail(self.read(item, role), role)
        except ImageError as error:
            # Without the folder, because reports are shared with others.
            message = str(error).replace(f"{self._folder}{os.sep}", "")
            return message.replace(self._folder, "the manifest's folder")
        return "the editing model produced no image" if role == "edited" else None

    def question(self, item: Item, rubric_hash: str) -> str | None:
        """Return a rubric's question as stored with the run, even if the rubric's file has changed since. Return None
        if the store does not have it."""
        if rubric_hash not in self._rubrics:
            return None
        edit = Edit(
            item.item,
            instruction=item.instruction,
            referring_expression=item.referring_expression,
        )
        digests = {
            role: str(entry.get("digest") or "") for role, entry in item.images.items()
        }
        return str(ask(self._rubrics[rubric_hash], edit, digests, self._layout))

    def read(self, item: Item, role: str) -> bytes:
        """Return an image as it was judged. Raise `ImageError` if it cannot be read or has changed since."""
        data = image_of(self._run, item, role)
        if item.images[role].get("digest") not in (None, digest(data)):
            name = Path(str(item.images[role]["source"])).name
            raise ImageError(f"{name}: the file has changed since it was judged")
        return data

    def _change(self, item: Item) -> bytes | None:
        before = "input" if "input" in item.images else "ground_truth"
        if not {before, "edited"} <= set(item.images):
            return None
        try:
            draw = plugins.load("evidence", "measured", "the map of changes")
        except plugins.MissingExtra:
            return None
        mask = self.read(item, "mask") if "mask" in item.images else None
        try:
            images: dict[str, bytes] = draw(
                self.read(item, before), self.read(item, "edited"), mask
            )
        except EditjudgeError:
            return None  # the thumbnails of the images show the error
        return _thumbnail(images["change"], "change") if "change" in images else None


def _thumbnail(data: bytes, name: str) -> bytes:
    image = decode(data, name=name)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "WEBP", quality=75, method=4)
    return out.getvalue()


@dataclass(frozen=True)
class Card:
    """One edit on a page, or two edits of the same input, with images, scores, reasons and failures."""

    anchor: str
    items: Sequence[Item]
    images: Sequence[tuple[str, bytes | str]]
    """Captions, each with its image or the reason why there is none."""
    judgements: Sequence[JudgementRow]
    left_out: int
    contradictions: Sequence[tuple[JudgementRow, Refutation]]
    replies: Mapping[str, Sequence[str]]
    """Last raw reply of each failed judgement, keyed by the judgement's key."""

    @property
    def item(self) -> Item:
        return self.items[0]

    @property
    def failures(self) -> list[JudgementRow]:
        return [row for row in self.judgements if row["status"] not in DONE]

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(map(self._column, self.judgements)))

    def _column(self, row: JudgementRow) -> str:
        """Return the heading of the judgement's score column, which is the judge's name. On a card with two edits it is
        the model's name, followed by the judge's if there are several judges. On a card with a pair it says which
        output was shown first."""
        several = len({other["judge"] for other in self.judgements}) > 1
        if row["variant"] in ORDERS:
            order = f"{row['variant'][0].upper()} first"
            return f"{row['judge']}, {order}" if several else order
        if len(self.items) == 1:
            return str(row["judge"])
        return f"{row['model']} by {row['judge']}" if several else str(row["model"])

    @property
    def abstained(self) -> list[str]:
        """Factors without any score, which have no row in the table."""
        rated = {factor for row in self.judgements for factor in row["scores"] or ()}
        silent = (factor for row in self.judgements for factor in row["abstained"])
        return [factor for factor in dict.fromkeys(silent) if factor not in rated]

    def scores(self) -> dict[str, dict[str, list[str]]]:
        """Return the scores keyed by factor and column. Repeats are listed side by side."""
        table: dict[str, dict[str, list[str]]] = {}
        for row in self.judgements:
            values: dict[str, object] = dict.fromkeys(row["abstained"], "abstained")
            values |= row["scores"] or {}
            for factor, choice in (row["choices"] or {}).items():
                values[factor] = choice.upper() if choice in ("a", "b") else choice
            for factor, value in values.items():
                cells = table.setdefault(factor, {})
                cells.setdefault(self._column(row), []).append(str(value))
        for factor in self.abstained:
            del table[factor]
        return table


def sections(
    run: RunRecord, store: Store, view: EditView, galleries: Sequence[Gallery]
) -> list[dict[str, object]]:
    """Return the galleries with their cards. Edits that already have a card in an earlier gallery are listed in `again`
    as links."""
    cards: dict[tuple[str, ...], Card] = {}
    parts = []
    for gallery in galleries:
        fresh = []
        again = []
        for item in gallery.items:
            names = (item, *([gallery.rivals[item]] if item in gallery.rivals else []))
            if names in cards:
                again.append(cards[names])
            else:
                cards[names] = _card(run, store, view, names, f"edit-{len(cards) + 1}")
                fresh.append(cards[names])
        content = {"shown": len(gallery.items), "cards": fresh, "again": again}
        parts.append(vars(gallery) | content)
    return parts


def _card(
    run: RunRecord, store: Store, view: EditView, names: Sequence[str], anchor: str
) -> Card:
    items = [next(store.items(run, name), Item(name)) for name in names]
    rows = [
        row
        for name in names
        for row in store.judgements(run, item=name)
        if row["status"] != PENDING
    ]
    visible = rows[:_VERDICTS]
    refuted = refutations(store, run, list(names))
    images = [(items[0], role, caption) for role, caption in _ROLES.items()]
    if len(items) > 1:
        images = [(item, "edited", item.model or "Edited") for item in items]
        images.insert(0, (items[0], "input", "Input"))
    if PAIR_ROLES[0] in items[0].images:
        images = [(items[0], "input", "Input")]
        for role, side in zip(PAIR_ROLES, "ab", strict=True):
            model = items[0].metadata.get(f"model_{side}")
            caption = f"{side.upper()} · {model}" if model else side.upper()
            images.append((items[0], role, caption))
    thumbnails = (
        (caption, view.thumbnail(item, role)) for item, role, caption in images
    )
    return Card(
        anchor,
        items,
        [(caption, image) for caption, image in thumbnails if image is not None],
        visible,
        len(rows) - len(visible),
        [(row, held) for row in visible for held in refuted.get(row["key"], ())],
        {
            row["key"]: [reply.text for reply in store.replies(row["key"])][
                -_SHOWN_REPLIES:
            ]
            for row in visible
            if row["status"] not in DONE
        },
    )
