"""What other judges said, held against what was measured of the same pictures. Nothing of it is stored: whoever looks
sees what the rules of this version say of all evidence that there is by now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from editjudge.measured.contradictions import FACTORS, contradictions
from editjudge.store.contradictions import CheckedVerdict, Count, Held, verdicts_with_evidence
from editjudge.store.records import RunRecord
from editjudge.store.store import Store


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Of one run."""

    counts: Sequence[Count] = ()
    edits: Sequence[str] = ()
    """Those of which a verdict is contradicted, most contradictions first."""


def held_against_evidence(
    store: Store, run: RunRecord, edits: Collection[str] | None = None
) -> Iterator[tuple[CheckedVerdict, list[Held]]]:
    """Each verdict that can be checked, with what contradicts it in the order of factors."""
    for verdict in verdicts_with_evidence(store, run, edits):
        try:
            contradicted = contradictions(verdict.scores, verdict.justifications, verdict.evidence, verdict.scales)
        except (AttributeError, LookupError, TypeError, ValueError):
            continue  # of a run that others made, with evidence that no judge of ours writes: nothing can be checked
        yield verdict, sorted({(one.factor, one.says, one.measured) for one in contradicted})


def contradictions_of(store: Store, run: RunRecord) -> Contradictions:
    """How many verdicts of a run could be checked, and how many are contradicted; one pass over the run."""
    checked, contradicted = Counter[tuple[str, str, str, str]](), Counter[tuple[str, str, str, str]]()
    edits = Counter[str]()
    for verdict, held in held_against_evidence(store, run):
        place = (verdict.judge, verdict.rubric, verdict.model)
        checked.update((*place, factor) for factor in verdict.scores if factor in FACTORS)
        contradicted.update((*place, factor) for factor in {factor for factor, _, _ in held})
        if held:
            edits[verdict.item] += len(held)
    counts = [Count(*place, n, contradicted[place]) for place, n in sorted(checked.items())]
    return Contradictions(counts, [item for item, _ in edits.most_common()])


def contradicted_verdicts(store: Store, run: RunRecord, edits: Collection[str]) -> dict[str, list[Held]]:
    """What contradicts the verdicts of these edits, by key."""
    return {verdict.key: held for verdict, held in held_against_evidence(store, run, edits) if held}
