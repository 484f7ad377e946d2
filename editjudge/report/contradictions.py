"""Verdicts that contradict measured evidence, as found by plug-ins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from editjudge import plugins
from editjudge.store.records import CheckedVerdict, Count, Refutation, RunRecord
from editjudge.store.store import Store


@dataclass(frozen=True, slots=True)
class Contradictions:
    """Contradicted verdicts of one run."""

    counts: Sequence[Count] = ()
    edits: Sequence[str] = ()
    """Edits with a contradicted verdict, most contradictions first."""


def checked_verdicts(
    store: Store, run: RunRecord, edits: Collection[str] | None = None
) -> Iterator[CheckedVerdict]:
    """Yield the result of the check for every verdict in a run that can be checked. If edits are given, only their
    verdicts are checked."""
    for check in plugins.usable("contradictions"):
        yield from check(store, run, edits)


def contradictions_of(store: Store, run: RunRecord) -> Contradictions:
    """Count the checked and the contradicted verdicts of a run in a single pass."""
    checked = Counter[tuple[str, str, str, str]]()
    contradicted = Counter[tuple[str, str, str, str]]()
    edits = Counter[str]()
    for verdict in checked_verdicts(store, run):
        source = (verdict.judge, verdict.rubric, verdict.model)
        checked.update((*source, factor) for factor in verdict.factors)
        refuted = {factor for factor, _, _ in verdict.refuted}
        contradicted.update((*source, factor) for factor in refuted)
        if verdict.refuted:
            edits[verdict.item] += len(verdict.refuted)
    counts = [
        Count(*cell, n, contradicted[cell]) for cell, n in sorted(checked.items())
    ]
    return Contradictions(counts, [item for item, _ in edits.most_common()])


def refutations(
    store: Store, run: RunRecord, edits: Collection[str]
) -> dict[str, Sequence[Refutation]]:
    """Return the refutations of verdicts on these edits, keyed by judgement."""
    return {
        verdict.key: verdict.refuted
        for verdict in checked_verdicts(store, run, edits)
        if verdict.refuted
    }
