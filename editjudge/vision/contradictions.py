"""Checks whether evidence measured on the same images refutes the verdicts of other judges.

Results are not stored. They are computed with the rules of this version from all evidence in the store.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from editjudge.rubrics.scale import Scale
from editjudge.store.records import CheckedVerdict, RunRecord
from editjudge.store.schema import items, judgements, tasks
from editjudge.store.store import Store
from editjudge.vision.measured.factors import DONE, LIGHTING, SPOILT
from editjudge.vision.measured.phrasing import first_match


class Contradiction(NamedTuple):
    factor: str
    says: str
    measured: str

    def as_json(self) -> dict[str, str]:
        return self._asdict()


class _Rule(NamedTuple):
    """A rule by which a measurement refutes a score. Limits are set far beyond what anyone would overlook, so a
    violation is not a matter of taste."""

    factor: str
    says: str
    measure: str
    limit: float
    """Limit of the measure. Values at or above it refute praise; values below it refute blame."""
    measured: str
    blame: bool = False


_RULES = (
    _Rule("unchanged_regions", "nothing outside the edit changed",
          "change.visible outside", 0.15, "{:.0%} of the image outside the region did"),
    _Rule("unchanged_regions", "much outside the edit changed",
          "change.differing", 0.002, "only {:.1%} of the whole image visibly differs", blame=True),
    _Rule("global_consistency", "the palette stayed",
          "change.tint", 15, "all colours shifted by {:.0f} Lab units"),
    _Rule("identity_preservation", "everything is still recognisable",
          "structure.lost outside", 0.4, "{:.0%} of the recognisable structure outside the edit is gone"),
    _Rule("image_quality", "the image is technically sound",
          "overall.blur", 1.2, "the whole image lost {:.1f} octaves of fine detail"),
    _Rule("image_quality", "the image is technically sound",
          "overall.noise", 2.5, "noise in smooth areas grew by {:.1f} octaves"),
    _Rule("seamlessness", "no seam can be seen",
          "seam.step", 6, "lightness jumps by {:.1f} units of 100 along the boundary"),
)  # fmt: skip
FACTORS = frozenset({*(rule.factor for rule in _RULES), *DONE}).union(*SPOILT.values())
"""Factors that have a rule."""
_PRAISE = 5 / 6 - 1e-9
"""Minimum share of the scale for a score to count as praise: 6 and 7 of 7, and the best score of a short scale."""
_BLAME = 2 / 6 + 1e-9
"""Maximum share of the scale for a score to count as blame: 1 to 3 of 7."""
_HALF = 0.5
"""Minimum share of the scale for a score to count as at least half good: 4 on 1 to 7, 3 on 5/3/1, 1 on 0/1."""
_MUCH = 0.05
"""Minimum share of visibly changed pixels for a reason that says "nothing changed" to be wrong."""
_LIKERT = Scale(tuple(range(1, 8)))
_USUAL = {"effect_score": Scale((5, 3, 1)), LIGHTING: Scale((0, 1))}
"""Scales of the built-in rubrics, for verdicts whose rubric is unknown."""
_ELSEWHERE = re.compile(
    r"\b(?:instead|but|however|except|only|although|though|elsewhere|other)\b",
    re.IGNORECASE,
)


def contradictions(
    scores: Mapping[str, float],
    justifications: Mapping[str, str],
    evidence: Mapping[str, Any],
    scales: Mapping[str, Scale] | None = None,
) -> list[Contradiction]:
    """Return every claim in a verdict that the measured evidence of the same edit refutes.

    `scales` has the scale of each factor in the verdict's rubric. By default, the scales of the built-in rubrics are
    used.
    """
    by_factor = {**_USUAL, **(scales or {})}
    shares = {}
    for factor, score in scores.items():
        share = by_factor.get(factor, _LIKERT).share(score)
        if share is not None:
            shares[factor] = share
    output = evidence.get("degenerate") or {}
    # Of a degenerate output only the fault was measured, so nothing refutes a judge that finds fault.
    if output.get("kind") in SPOILT:
        spoilt = SPOILT[output["kind"]]
        return [
            Contradiction(
                factor, "it is at least half good", f"the output {output['words']}"
            )
            for factor, share in shares.items()
            if factor in spoilt and share >= _HALF
        ]
    if not evidence.get("measures"):
        return []
    return [*_by_score(shares, evidence), *_by_words(shares, justifications, evidence)]


def _by_score(
    shares: Mapping[str, float], evidence: Mapping[str, Any]
) -> Iterator[Contradiction]:
    for rule in _RULES:
        measure = evidence["measures"].get(rule.measure)
        if not measure or rule.factor not in shares:
            continue
        value = measure["value"]
        share = shares[rule.factor]
        if rule.blame:
            refuted = share <= _BLAME and value < rule.limit
        else:
            # A difference everywhere may have been requested.
            excused = evidence.get("asked of the whole picture")
            refuted = share >= _PRAISE and value >= rule.limit and not excused
        if refuted:
            yield Contradiction(rule.factor, rule.says, rule.measured.format(value))
    output = evidence.get("degenerate") or {}
    praised = shares.get("unchanged_regions", 0.0) >= _PRAISE
    if output.get("kind") == "mirrored" and praised:
        yield Contradiction(
            "unchanged_regions",
            "nothing outside the edit changed",
            f"the output {output['words']}",
        )
    if evidence.get("nothing changed"):
        for factor in DONE:
            if shares.get(factor, 0.0) >= _HALF:
                yield Contradiction(
                    factor, "what was asked for was done", "nothing visible changed"
                )


def _by_words(
    shares: Mapping[str, float],
    justifications: Mapping[str, str],
    evidence: Mapping[str, Any],
) -> Iterator[Contradiction]:
    """Yield a contradiction for each reason that wrongly says that nothing in the image changed. A reason such as "No
    change was made to the car" does not count."""
    changed = evidence["measures"].get("change.visible share", {}).get("value", 0.0)
    for factor in DONE:
        if changed < _MUCH or shares.get(factor) != 0:
            continue
        reason = justifications.get(factor, "")
        sentences = re.split(r"[.;!?\n]+", reason)
        if not _ELSEWHERE.search(reason) and any(
            first_match("nothing_changed", sentence.strip()) for sentence in sentences
        ):
            yield Contradiction(
                factor, "nothing changed", f"{changed:.0%} of the image visibly did"
            )


# --- a run ----------------------------------------------------------------------------------------------------

EMBEDDED = "measured"
"""Name of the judge whose evidence is compared with other judges' verdicts."""
_COMPARED = {"input", "edited"}
"""Images that a rubric may show. If it shows others, the evidence would not be about the same images."""
_BATCH = 400
"""Number of verdicts checked together. Only their evidence, about 3 kB each, is held in memory."""
_JUDGED = tasks.join(
    items, sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
).join(judgements, judgements.c.key == tasks.c.key)

_Images = Mapping[str, Mapping[str, str | None]]


def checked_verdicts(
    store: Store, run: RunRecord, edits: Collection[str] | None = None
) -> Iterator[CheckedVerdict]:
    """Check other judges' verdicts for which there is evidence, and yield the results. Without `edits`, the verdicts on
    all edits are checked.

    Results are in the order of the tasks.
    """
    # Nearly all runs have no evidence, which one index lookup per run finds out.
    sources = [
        source.id
        for source in _runs_alike(store, run)
        if _has_evidence(store, source.id, edits)
    ]
    if not sources:
        return
    scales = {
        digest: {factor.key: factor.scale for factor in rubric.factors}
        for digest, rubric in store.rubrics().items()
        if set(rubric.images) == _COMPARED
    }
    query = (
        sa.select(tasks.c.item, tasks.c.judge, tasks.c.rubric, tasks.c.key)
        .add_columns(tasks.c.position.label("order"), items.c.position, items.c.model)
        .add_columns(items.c.images, judgements.c.justifications)
        .add_columns(judgements.c.rubric_hash)
        .select_from(_JUDGED)
        .where(
            tasks.c.run_id == run.id,
            tasks.c.judge != EMBEDDED,
            judgements.c.status == "ok",
            judgements.c.rubric_hash.in_(scales),
        )
    )
    if edits is None:
        rows = store.stream(query.order_by(tasks.c.position))
    else:  # sorted here, because with ORDER BY SQLite scans the entire run
        chosen = store.stream(query.where(tasks.c.item.in_(list(edits))))
        rows = iter(sorted(chosen, key=lambda row: row.order))
    while batch := list(islice(rows, _BATCH)):
        evidence = _evidence(store, sources, scales, run, batch)
        scores = store.scores(row.key for row in batch if row.item in evidence)
        for row in batch:
            if row.item not in evidence:
                continue
            by_factor = scores.get(row.key, {})
            try:
                refuted = contradictions(
                    by_factor,
                    row.justifications or {},
                    evidence[row.item],
                    scales[row.rubric_hash],
                )
            except (AttributeError, LookupError, TypeError, ValueError):
                continue  # evidence in an imported run that this judge did not write
            yield CheckedVerdict(
                row.item,
                row.position,
                row.judge,
                row.rubric,
                row.model or "",
                row.key,
                [factor for factor in by_factor if factor in FACTORS],
                sorted({*refuted}),
            )


def _runs_alike(store: Store, run: RunRecord) -> list[RunRecord]:
    """Return the runs over the same manifest: this one first, then the others, newest first."""
    manifest = run.spec.get("manifest")
    others = [
        other
        for other in store.runs()
        if other.id != run.id and manifest and other.spec.get("manifest") == manifest
    ]
    return [run, *reversed(others)]


def _has_evidence(store: Store, run: int, edits: Collection[str] | None) -> bool:
    query = sa.select(tasks.c.key).where(
        tasks.c.run_id == run, tasks.c.judge == EMBEDDED
    )
    if edits is not None:
        query = query.where(tasks.c.item.in_(list(edits)))
    return next(store.stream(query.limit(1)), None) is not None


def _evidence(
    store: Store,
    sources: Sequence[int],
    rubric_hashes: Collection[str],
    run: RunRecord,
    batch: Sequence[sa.Row[Any]],
) -> dict[str, Any]:
    """Return the evidence for each edit. It is taken from this run or, if this run has none, from the newest run with
    the same images."""
    images = {row.item: row.images for row in batch}
    query = (
        sa.select(tasks.c.run_id, tasks.c.item, tasks.c.position, items.c.images)
        .add_columns(judgements.c.evidence)
        .select_from(_JUDGED)
        .where(
            tasks.c.run_id.in_(sources),
            tasks.c.item.in_(images),
            tasks.c.judge == EMBEDDED,
            judgements.c.rubric_hash.in_(rubric_hashes),
            judgements.c.evidence != {},
        )
    )
    # Not sorted by the database, because SQLite would scan all positions of the run for each batch.
    rows = sorted(
        store.stream(query), key=lambda row: (sources.index(row.run_id), row.position)
    )
    evidence: dict[str, Any] = {}
    for row in rows:
        if row.run_id == run.id or _is_same(images[row.item], row.images):
            evidence.setdefault(row.item, row.evidence)
    return evidence


def _is_same(images: _Images, others: _Images) -> bool:
    """Whether none of the images differ. A judge that replays recorded replies sees no images, so digests may be
    missing."""
    digests = {role: images.get(role, {}).get("digest") for role in _COMPARED}
    return all(
        digest in (None, others.get(role, {}).get("digest"))
        for role, digest in digests.items()
    )
