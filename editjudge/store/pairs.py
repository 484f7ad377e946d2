"""The pairs of a run: the answers of each judge in each order, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from editjudge.errors import UsageError, near_miss
from editjudge.orders import ORDERS, Choice, Decision, decide, majority

if TYPE_CHECKING:
    from editjudge.store.records import RunRecord
    from editjudge.store.store import Store

_FIELDS = ("item", "judge", "rubric", "rubric_hash", "status", "choices", "variant")


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
        given = self.answers[factor]
        if len(self.orders) == 1:
            return Decision(given[self.orders[0]])
        return decide(*(given[order] for order in ORDERS))


def answers_about(
    store: Store, run: RunRecord, items: Collection[str]
) -> dict[str, list[PairAnswers]]:
    """Return the answers on some pairs of a run, by id; none if the run asks for scores alone."""
    factors = store.questions_of(run).pair_factors
    by_item: dict[str, list[PairAnswers]] = {}
    for pair in (
        gathered(store.judgements(run, fields=_FIELDS, item=items), factors)
        if factors and items
        else ()
    ):
        by_item.setdefault(pair.item, []).append(pair)
    return by_item


def pair_answers(store: Store, run: RunRecord) -> list[PairAnswers]:
    """Return the answers of every judge on every pair, in the manifest's order; none if the run asks for scores alone."""
    factors = store.questions_of(run).pair_factors
    if not factors:
        return []
    return gathered(store.judgements(run, fields=_FIELDS), factors)


def gathered(
    rows: Iterable[Mapping[str, Any]], factors: Mapping[str, tuple[str, ...]]
) -> list[PairAnswers]:
    """Rows of judgements as answers to pairs; `factors` are those of each rubric, by its name."""
    groups: dict[tuple[str, str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in (row for row in rows if row["variant"] in ORDERS):
        place = row["judge"], row["rubric"], row["item"]
        groups.setdefault(place, {}).setdefault(row["variant"], []).append(row)
    rubrics: dict[str, set[str]] = {}
    for judge, rubric, _ in groups:
        rubrics.setdefault(judge, set()).add(rubric)
    pairs = []
    for (judge, rubric, item), orders in groups.items():
        chosen = {
            key
            for members in orders.values()
            for row in members
            for key in row["choices"] or ()
        }
        keys = factors.get(rubric) or tuple(sorted(chosen))
        answers = {
            factor: {
                order: majority((row["choices"] or {}).get(factor) for row in members)
                for order, members in orders.items()
            }
            for factor in keys
        }
        pairs.append(
            PairAnswers(
                item,
                f"{judge}@{rubric}" if len(rubrics[judge]) > 1 else judge,
                tuple(order for order in ORDERS if order in orders),
                answers,
                {
                    order: tuple(row["status"] for row in members)
                    for order, members in orders.items()
                },
            )
        )
    return pairs


def item_verdicts(pairs: Iterable[PairAnswers]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields of `items.jsonl` for each pair, by its id: verdicts, what flipped with the order, and half ties."""
    by_item: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        entry = by_item.setdefault(
            pair.item, {"verdict": {}, "flipped": {}, "half": {}}
        )
        decisions = {factor: pair.decision(factor) for factor in pair.answers}
        entry["verdict"][pair.judge] = {
            factor: one.verdict for factor, one in decisions.items()
        }
        entry["flipped"][pair.judge] = [
            factor for factor, one in decisions.items() if one.flipped
        ]
        entry["half"][pair.judge] = [
            factor for factor, one in decisions.items() if one.half
        ]
    yield from by_item.items()


def ranking_factor(pairs: Iterable[PairAnswers], wanted: str | None = None) -> str:
    """The factor that ranks: the one that is wanted, else `overall`, else the last of the rubric."""
    factors = list(dict.fromkeys(factor for pair in pairs for factor in pair.answers))
    if wanted is not None and wanted not in factors:
        raise UsageError(
            f"no factor {wanted!r} in this run{near_miss(wanted, factors)} There are {', '.join(factors)}"
        )
    return wanted or ("overall" if "overall" in factors else factors[-1])
