"""The pairs of a run: the answers of each judge in each order, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from editjudge.errors import UsageError, near_miss
from editjudge.orders import ORDERS, Choice, Decision, decide, majority

if TYPE_CHECKING:
    from editjudge.store.records import RunRecord
    from editjudge.store.store import Store

_FIELDS = ("item", "judge", "rubric", "status", "choices", "variant")


@dataclass(frozen=True)
class PairAnswers:
    """One judge's answers to one pair, in the item's own naming."""

    item: str
    judge: str
    """`SPEC@RUBRIC` where the judge was asked by several rubrics of pairs."""
    orders: tuple[str, ...]
    """Orders that were asked."""
    answers: Mapping[str, Mapping[str, Choice | None]]
    """Choices by factor and order; None if no repeat of the order was answered."""
    statuses: Mapping[str, tuple[str, ...]]
    """Statuses of all repeats, by order."""

    def decision(self, factor: str) -> Decision:
        """Return the verdict; with one order, its answer."""
        answers = self.answers[factor]
        if len(self.orders) == 1:
            return Decision(answers[self.orders[0]])
        return decide(*(answers[order] for order in ORDERS))


def pair_answers(
    store: Store, run: RunRecord, items: Collection[str] | None = None
) -> list[PairAnswers]:
    """Return the answers of every judge on every pair, or on these, in the manifest's order; none if the run asks for
    scores alone."""
    factors = store.questions_of(run).pair_factors
    if not factors:
        return []
    where = {} if items is None else {"item": items}
    groups: dict[tuple[str, str, str], dict[str, list[Mapping[str, Any]]]] = {}
    rubrics: dict[str, set[str]] = {}
    for row in store.judgements(run, fields=_FIELDS, **where):
        if row["variant"] in ORDERS:
            key = row["judge"], row["rubric"], row["item"]
            groups.setdefault(key, {}).setdefault(row["variant"], []).append(row)
            rubrics.setdefault(row["judge"], set()).add(row["rubric"])
    pairs = []
    for (judge, rubric, item), orders in groups.items():
        name = f"{judge}@{rubric}" if len(rubrics[judge]) > 1 else judge
        answers = {
            factor: {
                order: majority((row["choices"] or {}).get(factor) for row in rows)
                for order, rows in orders.items()
            }
            for factor in factors.get(rubric, ())
        }
        statuses = {
            order: tuple(row["status"] for row in rows)
            for order, rows in orders.items()
        }
        asked = tuple(order for order in ORDERS if order in orders)
        pairs.append(PairAnswers(item, name, asked, answers, statuses))
    return pairs


def answers_about(
    store: Store, run: RunRecord, items: Collection[str]
) -> dict[str, list[PairAnswers]]:
    """Return the answers on some pairs of a run, by id."""
    by_item: dict[str, list[PairAnswers]] = {}
    for pair in pair_answers(store, run, items):
        by_item.setdefault(pair.item, []).append(pair)
    return by_item


def item_verdicts(pairs: Iterable[PairAnswers]) -> dict[str, dict[str, Any]]:
    """Return the fields of `items.jsonl` for each pair, by its id: verdicts, what flipped with the order, half ties."""
    by_item: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        fields = by_item.setdefault(
            pair.item, {"verdict": {}, "flipped": {}, "half": {}}
        )
        decisions = {factor: pair.decision(factor) for factor in pair.answers}
        flipped = [factor for factor, d in decisions.items() if d.flipped]
        half = [factor for factor, d in decisions.items() if d.half]
        fields["verdict"][pair.judge] = {f: d.verdict for f, d in decisions.items()}
        fields["flipped"][pair.judge] = flipped
        fields["half"][pair.judge] = half
    return by_item


def ranking_factor(pairs: Iterable[PairAnswers], wanted: str | None = None) -> str:
    """Return the factor that ranks: the one that is wanted, else `overall`, else the last of the rubric."""
    factors = list(dict.fromkeys(factor for pair in pairs for factor in pair.answers))
    if wanted is not None and wanted not in factors:
        raise UsageError(
            f"no factor {wanted!r} in this run{near_miss(wanted, factors)} There are {', '.join(factors)}"
        )
    return wanted or ("overall" if "overall" in factors else factors[-1])
