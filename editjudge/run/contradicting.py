"""After a run: what other judges said, held against what was measured of the same pictures."""

from __future__ import annotations

from collections.abc import Iterator

from editjudge.measured.contradictions import FACTORS, RULES, contradictions
from editjudge.store.contradictions import EMBEDDED, Check, keep, pairs, runs_alike
from editjudge.store.store import RunRecord, Store


def hold_against_evidence(store: Store, run: RunRecord) -> int:
    """Record every contradiction of the run's verdicts and, where the run brought evidence, of those of other runs
    over the same manifest. What was held already is not held again. Answers how many are new."""
    alike = runs_alike(store, run) if EMBEDDED in run.spec.get("judges", ()) else [run]
    return sum(keep(store, _checks(store, one)) for one in alike)


def _checks(store: Store, run: RunRecord) -> Iterator[Check]:
    for pair in pairs(store, run, RULES):
        found = contradictions(pair.scores, pair.justifications, pair.evidence, pair.scales)
        held = [(one.factor, one.says, one.measured) for one in found]
        yield Check(pair, RULES, [factor for factor in pair.scores if factor in FACTORS], held)
