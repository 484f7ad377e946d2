"""Verdicts held against measured evidence: which can be, which were, and where they contradict it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from editjudge.rubrics.model import Scale
from editjudge.store.schema import checks, contradictions, items, judgements, tasks, upsert
from editjudge.store.store import RunRecord, Store, _chunks

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
class Pair:
    """A verdict and the evidence of the same pictures."""

    key: str
    scores: Mapping[str, float]
    justifications: Mapping[str, str]
    evidence_key: str
    evidence: Mapping[str, Any]
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """Of the rubric that was asked, by factor."""


@dataclass(frozen=True, slots=True)
class Check:
    pair: Pair
    rules: int
    factors: Sequence[str]
    found: Sequence[Held]


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


def pairs(store: Store, run: RunRecord, rules: int) -> Iterator[Pair]:
    """Verdicts of other judges that were not held against their evidence by these rules yet, each with it."""
    scales = {
        hash_: {factor["key"]: Scale.of(factor["scale"]) for factor in kept["content"]["factors"]}
        for hash_, kept in store.rubrics().items()
        if set(kept["content"]["images"]) == _SEEN
    }
    fitting = list(scales)
    names = [name for name, hash_ in dict(run.spec.get("rubrics", {})).items() if hash_ in fitting]
    sources = [one.id for one in runs_alike(store, run) if _has_evidence(store, one.id)]
    if not sources or not names:
        return
    # Keys alone: of a run that is resumed nearly all were held already, and what they said need not be read.
    query = (
        sa.select(tasks.c.item, tasks.c.key, checks.c.evidence)
        .outerjoin(checks, sa.and_(checks.c.key == tasks.c.key, checks.c.rules == rules))
        .where(tasks.c.run_id == run.id, tasks.c.judge != EMBEDDED, tasks.c.rubric.in_(names))
        .order_by(tasks.c.position)
    )
    for some in _chunks(store._stream(query), _BATCH):
        found = _evidence_keys(store, run.id, sources, fitting, {row.item for row in some})
        new = {row.key: found[row.item] for row in some if found.get(row.item) not in (None, row.evidence)}
        evidence = {key: row.evidence for key, row in _said(store, set(new.values()))}
        given = store.scores(new)
        for key, row in _said(store, set(new)):
            if row.status == "ok":
                verdict, proof = (given.get(key, {}), row.justifications or {}), (new[key], evidence[new[key]])
                yield Pair(key, *verdict, *proof, scales[row.rubric_hash])


def keep(store: Store, found: Iterable[Check]) -> int:
    """Each in place of what the verdict was held against before. Answers how many contradictions there are."""
    count = 0
    for some in _chunks(found, _BATCH):
        new = {check.pair.key: check for check in some}  # edits that are alike in all share a key
        held = [
            {"key": c.pair.key, "evidence": c.pair.evidence_key, "rules": c.rules, "factors": sorted(c.factors)}
            for c in new.values()
        ]
        against = [
            {"key": c.pair.key, "evidence": c.pair.evidence_key, "factor": factor, "says": says, "measured": measured}
            for c in new.values()
            for factor, says, measured in c.found
        ]
        store._transact(functools.partial(_replace, dialect=store._dialect, keys=list(new), held=held, against=against))
        count += len(against)
    return count


def _replace(
    connection: sa.Connection, dialect: str, keys: list[str], held: list[dict[str, Any]], against: list[dict[str, Any]]
) -> None:
    for table, rows in ((checks, held), (contradictions, against)):
        connection.execute(sa.delete(table).where(table.c.key.in_(keys)))
        if rows:  # not a plain insertion: on a server another run may hold the same verdicts at this moment
            connection.execute(upsert(dialect, table), rows)


def counts(store: Store, run: RunRecord) -> list[Count]:
    """How many verdicts of a run could be checked, and how many are contradicted."""
    by = (tasks.c.judge, tasks.c.rubric, items.c.model)
    mine = tasks.outerjoin(items, sa.and_(items.c.run_id == tasks.c.run_id, items.c.item == tasks.c.item))
    held = mine.join(checks, checks.c.key == tasks.c.key)
    once = sa.select(contradictions.c.key, contradictions.c.factor).distinct().subquery()
    against = mine.join(once, once.c.key == tasks.c.key)
    checked: dict[tuple[str, str, str, str], int] = {}
    query = sa.select(*by, checks.c.factors, sa.func.count()).select_from(held).group_by(*by, checks.c.factors)
    for judge, rubric, model, factors, n in store._stream(query.where(tasks.c.run_id == run.id)):
        for factor in factors:
            place = (judge, rubric, model or "", factor)
            checked[place] = checked.get(place, 0) + n
    query = sa.select(*by, once.c.factor, sa.func.count()).select_from(against).group_by(*by, once.c.factor)
    rows = store._stream(query.where(tasks.c.run_id == run.id))
    found = {(judge, rubric, model or "", factor): n for judge, rubric, model, factor, n in rows}
    return [Count(*place, n, found.get(place, 0)) for place, n in sorted(checked.items())]


def most_contradicted(store: Store, run: RunRecord, most: int) -> tuple[list[str], int]:
    """The edits with most contradictions, and how many have any."""
    query = (
        sa.select(tasks.c.item, sa.func.count(), sa.func.min(tasks.c.position))
        .select_from(tasks.join(contradictions, contradictions.c.key == tasks.c.key))
        .where(tasks.c.run_id == run.id)
        .group_by(tasks.c.item)
    )
    some = sa.select(sa.func.count()).select_from(query.subquery())
    ordered = query.order_by(sa.func.count().desc(), sa.func.min(tasks.c.position)).limit(most)
    return [row[0] for row in store._stream(ordered)], int(next(store._stream(some))[0])


def of_verdicts(store: Store, keys: Iterable[str]) -> dict[str, list[Held]]:
    """What is kept against each verdict, in order of factor."""
    found: dict[str, list[Held]] = {}
    columns = [contradictions.c[name] for name in ("key", "factor", "says", "measured")]
    for some in _chunks(keys, _BATCH):
        query = sa.select(*columns).where(contradictions.c.key.in_(some)).order_by(*columns)
        for key, *held in store._stream(query):
            found.setdefault(key, []).append((held[0], held[1], held[2]))
    return found


def _has_evidence(store: Store, run_id: int) -> bool:
    query = sa.select(tasks.c.key).where(tasks.c.run_id == run_id, tasks.c.judge == EMBEDDED).limit(1)
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
    found: dict[str, str] = {}
    for row in rows:
        if row.run_id == run_id or _alike(mine[row.item], row.images):
            found.setdefault(row.item, row.key)
    return found


def _alike(mine: _Images, theirs: _Images) -> bool:
    """Whether no picture is another one. A recorded judge is not shown any, so not all of them are known."""
    known = {role: mine.get(role, {}).get("digest") for role in _SEEN}
    return all(digest in (None, theirs.get(role, {}).get("digest")) for role, digest in known.items())


def _said(store: Store, keys: set[str]) -> Iterator[tuple[str, sa.Row[Any]]]:
    names = ("key", "status", "justifications", "evidence", "rubric_hash")
    query = sa.select(*(judgements.c[name] for name in names)).where(judgements.c.key.in_(keys))
    for row in store._stream(query) if keys else ():
        yield row.key, row
