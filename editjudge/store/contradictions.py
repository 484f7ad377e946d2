"""Verdicts and the measured evidence of the same pictures, side by side: what there is to be contradicted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from editjudge.rubrics.model import Scale
from editjudge.store.records import RunRecord
from editjudge.store.schema import items, judgements, tasks
from editjudge.store.store import Store, _chunks

EMBEDDED = "measured"
"""The judge whose evidence others are held against."""
_SEEN = {"input", "edited"}
"""What a rubric must show for the evidence to be about the same two pictures, and nothing beside."""
_BATCH = 400
"""Verdicts looked at together: their evidence, some 3 kB each, is all that is held in memory."""

_Images = Mapping[str, Mapping[str, str | None]]
Held = tuple[str, str, str]
"""Factor, what the verdict says, what was measured."""


@dataclass(frozen=True, slots=True)
class CheckedVerdict:
    """A verdict, and the evidence of the same pictures."""

    item: str
    position: int
    """Of the edit in its run."""
    judge: str
    rubric: str
    model: str
    key: str
    scores: Mapping[str, float]
    justifications: Mapping[str, str]
    evidence: Mapping[str, Any]
    scales: Mapping[str, Scale]
    """Of the rubric that was asked, by factor."""


@dataclass(frozen=True, slots=True)
class Count:
    """Of one judge, rubric, editing model and factor."""

    judge: str
    rubric: str
    model: str
    factor: str
    checked: int
    contradicted: int


def runs_alike(store: Store, run: RunRecord) -> list[RunRecord]:
    """Runs over the same manifest, this one first, then the newest."""
    place = run.spec.get("manifest")
    others = [one for one in store.runs() if one.id != run.id and place and one.spec.get("manifest") == place]
    return [run, *reversed(others)]


def verdicts_with_evidence(
    store: Store, run: RunRecord, edits: Collection[str] | None = None
) -> Iterator[CheckedVerdict]:
    """Verdicts of other judges for which there is evidence, in the order of their tasks: of these edits, or of all."""
    # Nearly every page is of a run without evidence: that is found out first, by one look into an index.
    sources = [one.id for one in runs_alike(store, run)]
    if edits is None:
        sources = [one for one in sources if _has_evidence(store, one)]
    elif not _has_evidence(store, *sources, edits=edits):
        return
    if not sources:
        return
    scales = {
        hash_: {factor["key"]: Scale.of(factor["scale"]) for factor in rubric["content"]["factors"]}
        for hash_, rubric in store.rubrics().items()
        if set(rubric["content"]["images"]) == _SEEN
    }
    fitting = list(scales)
    names = [name for name, hash_ in dict(run.spec.get("rubrics", {})).items() if hash_ in fitting]
    if not names:
        return
    columns = (tasks.c.item, items.c.position, tasks.c.judge, tasks.c.rubric, items.c.model, tasks.c.key)
    query = (
        sa.select(*columns, tasks.c.position.label("place"))
        .select_from(tasks.join(items, sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)))
        .where(tasks.c.run_id == run.id, tasks.c.judge != EMBEDDED, tasks.c.rubric.in_(names))
    )
    if edits is None:
        rows = store._stream(query.order_by(tasks.c.position))
    else:  # sorted here: asked for this order, SQLite walks through the whole run in it
        rows = iter(sorted(store._stream(query.where(tasks.c.item.in_(list(edits)))), key=lambda row: row.place))
    for some in _chunks(rows, _BATCH):
        evidence_keys = _evidence_keys(store, run.id, sources, fitting, {row.item for row in some})
        with_evidence = [row for row in some if row.item in evidence_keys]
        evidence = {key: row.evidence for key, row in _said(store, set(evidence_keys.values()))}
        keys = {row.key for row in with_evidence}
        verdicts, given = dict(_said(store, keys)), store.scores(keys)
        for row in with_evidence:
            verdict = verdicts.get(row.key)
            if verdict is not None and verdict.status == "ok" and verdict.rubric_hash in scales:
                yield CheckedVerdict(
                    row.item,
                    row.position,
                    row.judge,
                    row.rubric,
                    row.model or "",
                    row.key,
                    given.get(row.key, {}),
                    verdict.justifications or {},
                    evidence[evidence_keys[row.item]],
                    scales[verdict.rubric_hash],
                )


def _has_evidence(store: Store, *runs: int, edits: Collection[str] | None = None) -> bool:
    query = sa.select(tasks.c.key).where(tasks.c.run_id.in_(runs), tasks.c.judge == EMBEDDED).limit(1)
    if edits is not None:
        query = query.where(tasks.c.item.in_(list(edits)))
    return next(store._stream(query), None) is not None


def _evidence_keys(
    store: Store, run_id: int, sources: Sequence[int], fitting: Sequence[str], wanted: set[str]
) -> dict[str, str]:
    """For each edit the judgement whose evidence counts: of this run, else of the newest one with the same pictures."""
    query = (
        sa.select(tasks.c.run_id, tasks.c.item, tasks.c.key, tasks.c.position, items.c.images)
        .select_from(
            tasks.join(items, sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item)).join(
                judgements, judgements.c.key == tasks.c.key
            )
        )
        .where(tasks.c.run_id.in_(sources), tasks.c.item.in_(wanted), tasks.c.judge == EMBEDDED)
        .where(judgements.c.rubric_hash.in_(fitting), judgements.c.evidence != {})
    )
    # Not ordered by the database: SQLite would walk all positions of the run for each batch.
    rows = sorted(store._stream(query), key=lambda row: (sources.index(row.run_id), row.position))
    own = sa.select(items.c.item, items.c.images).where(items.c.run_id == run_id, items.c.item.in_(wanted))
    mine = {row.item: row.images for row in store._stream(own)}
    keys: dict[str, str] = {}
    for row in rows:
        if row.run_id == run_id or _alike(mine[row.item], row.images):
            keys.setdefault(row.item, row.key)
    return keys


def _alike(mine: _Images, theirs: _Images) -> bool:
    """Whether no picture is another one. A recorded judge is not shown any, so not all of them are known."""
    known = {role: mine.get(role, {}).get("digest") for role in _SEEN}
    return all(digest in (None, theirs.get(role, {}).get("digest")) for role, digest in known.items())


def _said(store: Store, keys: set[str]) -> Iterator[tuple[str, sa.Row[Any]]]:
    names = ("key", "status", "justifications", "evidence", "rubric_hash")
    query = sa.select(*(judgements.c[name] for name in names)).where(judgements.c.key.in_(keys))
    for row in store._stream(query) if keys else ():
        yield row.key, row
