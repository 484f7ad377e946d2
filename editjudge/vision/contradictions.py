"""Verdicts of other judges that the measured evidence of the same images refutes.

Nothing of it is stored: whoever looks sees what the rules of this version say of all evidence that there is by now."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from editjudge.rubrics.scale import Scale
from editjudge.store.records import CheckedVerdict, RunRecord
from editjudge.store.schema import items, judgements, tasks
from editjudge.store.store import Store
from editjudge.vision.measured.phrasing import first_match
from editjudge.vision.measured.verdict import DONE, LIGHTING, SPOILT


@dataclass(frozen=True)
class Contradiction:
    factor: str
    says: str
    measured: str

    def as_json(self) -> dict[str, str]:
        return {"factor": self.factor, "says": self.says, "measured": self.measured}


class _Rule(NamedTuple):
    """A claim, by score, that a measure refutes. Limits leave no room for taste: each is far beyond visible."""

    factor: str
    claims: Callable[[float], bool]
    says: str
    measure: str
    limit: float
    """From which on the measure refutes praise; one that is below it refutes blame."""
    measured: str

    def refuted(self, value: float) -> bool:
        return value >= self.limit if self.claims is _praises else value < self.limit


def _praises(share: float) -> bool:
    """6 and 7 of 7, and the best of any short scale."""
    return share >= 5 / 6 - 1e-9


def _condemns(share: float) -> bool:
    """1 to 3 of 7."""
    return share <= 2 / 6 + 1e-9


def _half(share: float) -> bool:
    """4 of 7, 3 of 5/3/1, 1 of 0/1."""
    return share >= 0.5


_RULES = (
    _Rule("unchanged_regions", _praises, "nothing outside the edit changed",
          "change.visible outside", 0.15, "{:.0%} of the picture outside the region did"),
    _Rule("unchanged_regions", _condemns, "much outside the edit changed",
          "change.visible share", 0.002, "only {:.1%} of the whole picture visibly differs"),
    _Rule("global_consistency", _praises, "the palette stayed",
          "change.tint", 15, "all colours shifted by {:.0f} Lab units"),
    _Rule("identity_preservation", _praises, "everything is still recognisable",
          "structure.lost outside", 0.4, "{:.0%} of the recognisable structure outside the edit is gone"),
    _Rule("image_quality", _praises, "the picture is technically sound",
          "overall.blur", 1.2, "the whole picture lost {:.1f} octaves of fine detail"),
    _Rule("image_quality", _praises, "the picture is technically sound",
          "overall.noise", 2.5, "noise in smooth areas grew by {:.1f} octaves"),
    _Rule("seamlessness", _praises, "no seam can be seen",
          "seam.step", 6, "colours jump by {:.1f} Lab units within a pixel along the boundary"),
)  # fmt: skip
FACTORS = frozenset(
    {
        *(rule.factor for rule in _RULES),
        *DONE,
        *(f for some in SPOILT.values() for f in some),
    }
)
"""Factors that some rule is about."""
_LIKERT = Scale(tuple(range(1, 8)))
_USUAL = {"effect_score": Scale((5, 3, 1)), LIGHTING: Scale((0, 1))}
"""Scales of the built-in rubrics, for verdicts that come without their own."""
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
    """Every claim of a verdict that the measured evidence of the same edit refutes.

    `scales` are those of the verdict's rubric, by factor; without them those of the built-in rubrics are meant.
    """
    known = {**_USUAL, **(scales or {})}
    placed = {
        factor: known.get(factor, _LIKERT).share(score)
        for factor, score in scores.items()
    }
    shares = {factor: share for factor, share in placed.items() if share is not None}
    output = evidence.get("degenerate") or {}
    # nothing but its own fault was measured, so that nothing refutes who finds fault
    if output.get("kind") in SPOILT:
        return _by_output(shares, output)
    if not evidence.get("measures"):
        return []
    return [*_by_score(shares, evidence), *_by_words(shares, justifications, evidence)]


def _by_output(
    shares: Mapping[str, float], output: Mapping[str, str]
) -> list[Contradiction]:
    """Praise of a picture that is no edit at all."""
    praised = [
        factor
        for factor, share in shares.items()
        if factor in SPOILT[output["kind"]] and _half(share)
    ]
    return [
        Contradiction(
            factor, "it is at least half good", f"the output {output['words']}"
        )
        for factor in praised
    ]


def _by_score(
    shares: Mapping[str, float], evidence: Mapping[str, Any]
) -> Iterator[Contradiction]:
    for rule in _RULES:
        measure = evidence["measures"].get(rule.measure)
        claimed = rule.factor in shares and rule.claims(shares[rule.factor])
        if evidence.get("asked of the whole picture") and rule.claims is _praises:
            continue  # what differs everywhere may be what was asked for
        if claimed and measure and rule.refuted(measure["value"]):
            yield Contradiction(
                rule.factor, rule.says, rule.measured.format(measure["value"])
            )
    output = evidence.get("degenerate") or {}
    if output.get("kind") == "mirrored" and _praises(
        shares.get("unchanged_regions", 0.0)
    ):
        yield Contradiction(
            "unchanged_regions",
            "nothing outside the edit changed",
            f"the output {output['words']}",
        )
    if evidence.get("nothing changed"):
        for factor in DONE:
            if _half(shares.get(factor, 0.0)):
                yield Contradiction(
                    factor, "what was asked for was done", "nothing visible changed"
                )


def _by_words(
    shares: Mapping[str, float],
    justifications: Mapping[str, str],
    evidence: Mapping[str, Any],
) -> Iterator[Contradiction]:
    """A reason that says nothing changed, about a picture in which much did."""
    share = evidence["measures"].get("change.visible share", {}).get("value", 0.0)
    for factor in DONE:
        if (
            share >= 0.05
            and shares.get(factor) == 0
            and _says_nothing_changed(justifications.get(factor, ""))
        ):
            yield Contradiction(
                factor, "nothing changed", f"{share:.0%} of the picture visibly did"
            )


def _says_nothing_changed(reason: str) -> bool:
    """Whether a sentence says so of the whole picture: "no change was made to the car" leaves the sky open."""
    sentences = (sentence.strip() for sentence in re.split(r"[.;!?\n]+", reason))
    return not _ELSEWHERE.search(reason) and any(
        first_match("nothing_changed", sentence) for sentence in sentences
    )


# --- a run ----------------------------------------------------------------------------------------------------

EMBEDDED = "measured"
"""The judge whose evidence others are compared with."""
_COMPARED = {"input", "edited"}
"""Images that a rubric must show, and nothing beside, for the evidence to be about the same images."""
_BATCH = 400
"""Verdicts looked at together: their evidence, some 3 kB each, is all that is held in memory."""
_TASKS = tasks.join(
    items, sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)
)

_Images = Mapping[str, Mapping[str, str | None]]
_Scales = Mapping[str, Mapping[str, Scale]]
"""Scales by the hash of a rubric, then by factor."""


def checked_verdicts(
    store: Store, run: RunRecord, edits: Collection[str] | None = None
) -> Iterator[CheckedVerdict]:
    """Check the verdicts of other judges for which there is evidence, of these edits or of all.

    They come in the order of their tasks."""
    # Nearly every page is of a run without evidence: that is found out first, by one look into an index.
    sources = [alike.id for alike in _runs_alike(store, run)]
    if edits is None:
        sources = [source for source in sources if _has_evidence(store, [source])]
    elif not _has_evidence(store, sources, edits):
        return
    scales = {
        hash_: {factor.key: factor.scale for factor in rubric.factors}
        for hash_, rubric in store.rubrics().items()
        if set(rubric.images) == _COMPARED
    }
    asked = dict(run.spec.get("rubrics", {}))
    names = [name for name, hash_ in asked.items() if hash_ in scales]
    if not sources or not names:
        return
    query = (
        sa.select(tasks.c.item, items.c.position, tasks.c.judge, tasks.c.rubric)
        .add_columns(items.c.model, tasks.c.key, tasks.c.position.label("order"))
        .select_from(_TASKS)
        .where(
            tasks.c.run_id == run.id,
            tasks.c.judge != EMBEDDED,
            tasks.c.rubric.in_(names),
        )
    )
    if edits is None:
        rows = store.stream(query.order_by(tasks.c.position))
    else:  # sorted here: asked for this order, SQLite walks through the whole run in it
        some = store.stream(query.where(tasks.c.item.in_(list(edits))))
        rows = iter(sorted(some, key=lambda row: row.order))
    while batch := list(islice(rows, _BATCH)):
        yield from _checked(store, run, sources, scales, batch)


def _checked(
    store: Store,
    run: RunRecord,
    sources: Sequence[int],
    scales: _Scales,
    rows: Sequence[sa.Row[Any]],
) -> Iterator[CheckedVerdict]:
    measured = _evidence_keys(
        store, run.id, sources, scales, {row.item for row in rows}
    )
    keys = {row.key for row in rows if row.item in measured}
    stored = _judgements(store, keys | set(measured.values()))
    scores = store.scores(keys)
    for row in rows:
        verdict = stored.get(row.key)
        if (
            row.item not in measured
            or verdict is None
            or verdict.status != "ok"
            or verdict.rubric_hash not in scales
        ):
            continue
        given = scores.get(row.key, {})
        try:
            refuted = contradictions(
                given,
                verdict.justifications or {},
                stored[measured[row.item]].evidence,
                scales[verdict.rubric_hash],
            )
        except (AttributeError, LookupError, TypeError, ValueError):
            continue  # an imported run, with evidence that no judge of ours writes: nothing can be checked
        yield CheckedVerdict(
            row.item,
            row.position,
            row.judge,
            row.rubric,
            row.model or "",
            row.key,
            [factor for factor in given if factor in FACTORS],
            sorted({(claim.factor, claim.says, claim.measured) for claim in refuted}),
        )


def _runs_alike(store: Store, run: RunRecord) -> list[RunRecord]:
    """Return the runs over the same manifest, this one first, then the newest."""
    manifest = run.spec.get("manifest")
    others = [
        other
        for other in store.runs()
        if other.id != run.id and manifest and other.spec.get("manifest") == manifest
    ]
    return [run, *reversed(others)]


def _has_evidence(
    store: Store, runs: Sequence[int], edits: Collection[str] | None = None
) -> bool:
    query = sa.select(tasks.c.key).where(
        tasks.c.run_id.in_(runs), tasks.c.judge == EMBEDDED
    )
    if edits is not None:
        query = query.where(tasks.c.item.in_(list(edits)))
    return next(store.stream(query.limit(1)), None) is not None


def _evidence_keys(
    store: Store,
    run_id: int,
    sources: Sequence[int],
    rubric_hashes: Collection[str],
    wanted: set[str],
) -> dict[str, str]:
    """Return, by edit, the judgement whose evidence counts: of this run, else of the newest one with the same images."""
    query = (
        sa.select(tasks.c.run_id, tasks.c.item, tasks.c.key, tasks.c.position)
        .add_columns(items.c.images)
        .select_from(_TASKS.join(judgements, judgements.c.key == tasks.c.key))
        .where(
            tasks.c.run_id.in_(sources),
            tasks.c.item.in_(wanted),
            tasks.c.judge == EMBEDDED,
            judgements.c.rubric_hash.in_(rubric_hashes),
            judgements.c.evidence != {},
        )
    )
    # Not ordered by the database: SQLite would walk all positions of the run for each batch.
    rows = sorted(
        store.stream(query), key=lambda row: (sources.index(row.run_id), row.position)
    )
    of_run = sa.select(items.c.item, items.c.images).where(
        items.c.run_id == run_id, items.c.item.in_(wanted)
    )
    images = {row.item: row.images for row in store.stream(of_run)}
    keys: dict[str, str] = {}
    for row in rows:
        if row.run_id == run_id or _alike(images[row.item], row.images):
            keys.setdefault(row.item, row.key)
    return keys


def _alike(images: _Images, others: _Images) -> bool:
    """Whether no image differs. A recorded judge is not shown any, so not all digests are known."""
    digests = {role: images.get(role, {}).get("digest") for role in _COMPARED}
    return all(
        digest in (None, others.get(role, {}).get("digest"))
        for role, digest in digests.items()
    )


def _judgements(store: Store, keys: set[str]) -> dict[str, sa.Row[Any]]:
    names = ("key", "status", "justifications", "evidence", "rubric_hash")
    query = sa.select(*(judgements.c[name] for name in names)).where(
        judgements.c.key.in_(keys)
    )
    return {row.key: row for row in store.stream(query)} if keys else {}
