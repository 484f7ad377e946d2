"""Scores that are derived from a run's judgements: verdicts on pairs, and the scores of rubric sets.

NumPy is imported only when a formula is computed.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from editjudge.errors import UsageError, did_you_mean
from editjudge.judgement import DONE, JudgementRow
from editjudge.orders import (
    ORDERS,
    Choice,
    Decision,
    decide,
    majority,
    read_choice,
)
from editjudge.rubrics.evaluation import (
    ABSTAINED,
    FAILED,
    NO_ELEMENT,
    NOT_ASKED,
    OK,
    REASONS,
    Quantity,
    column_rows,
    columns,
    evaluate,
    was_asked,
)
from editjudge.rubrics.expression import Member, Ref
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.sets import Formula
from editjudge.rubrics.sets import formulas as parse_formulas
from editjudge.store.records import PENDING
from editjudge.values import column, listed

if TYPE_CHECKING:
    from editjudge.store.records import RunRecord, RunSpec
    from editjudge.store.store import Store

# --- pairs ----------------------------------------------------------------------------------------------------

_PAIR_FIELDS = ("item", "judge", "rubric", "status", "choices", "variant")


@dataclass(frozen=True)
class PairAnswers:
    """One judge's answers about one pair. Choices name the outputs as the item does (a, b)."""

    item: str
    judge: str
    """Spec of the judge, or `SPEC@RUBRIC` if the judge answered several pair rubrics."""
    orders: tuple[str, ...]
    """Orders in which the pair was shown."""
    answers: Mapping[str, Mapping[str, Choice | None]]
    """Choices, keyed by factor and order. A choice is None if no repeat in that order was answered."""
    statuses: Mapping[str, tuple[str, ...]]
    """Statuses of all repeats, keyed by order."""

    def decision(self, factor: str) -> Decision:
        """Return the decision on a factor. If the pair was shown in one order, it is the answer; otherwise it is
        derived from both orders.
        """
        answers = self.answers[factor]
        if len(self.orders) == 1:
            return Decision(answers[self.orders[0]])
        return decide(*(answers[order] for order in ORDERS))


def pair_answers(
    store: Store, run: RunRecord, items: Collection[str] | None = None
) -> list[PairAnswers]:
    """Return every judge's answers about all pairs, in the order of the manifest. With `items`, return only the answers
    about these pairs. The list is empty if the run has no pairs.
    """
    factors = store.questions_of(run).pair_factors
    if not factors:
        return []
    where = {} if items is None else {"item": items}
    groups: dict[tuple[str, str, str], dict[str, list[JudgementRow]]] = {}
    rubrics: dict[str, set[str]] = {}
    for row in store.judgements(run, fields=_PAIR_FIELDS, **where):
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
        present = tuple(order for order in ORDERS if order in orders)
        pairs.append(PairAnswers(item, name, present, answers, statuses))
    return pairs


def answers_about(
    store: Store, run: RunRecord, items: Collection[str]
) -> dict[str, list[PairAnswers]]:
    """Return the answers about these pairs of a run, keyed by item id."""
    by_item: dict[str, list[PairAnswers]] = {}
    for pair in pair_answers(store, run, items):
        by_item.setdefault(pair.item, []).append(pair)
    return by_item


def item_verdicts(pairs: Iterable[PairAnswers]) -> dict[str, dict[str, Any]]:
    """Return the fields of `items.jsonl` for each pair, keyed by item id: verdicts, factors whose answer changed with
    the order, and half ties.
    """
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
    """Return the factor by which to rank: the requested one, or `overall`, or the last factor of the rubric."""
    factors = list(dict.fromkeys(factor for pair in pairs for factor in pair.answers))
    if wanted is not None and wanted not in factors:
        raise UsageError(
            f"no factor {wanted!r} in this run{did_you_mean(wanted, factors)} There are {', '.join(factors)}"
        )
    return wanted or ("overall" if "overall" in factors else factors[-1])


# --- rubric sets ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetScore:
    """One score of an edit, computed from one judge's answers."""

    item: str
    judge: str
    name: str
    repeat: int
    value: float | None
    reason: str
    """`ok`, or the reason why there is no value: `not_asked`, `abstained`, `undefined`, or the status of a failure."""


@dataclass
class SetScorer:
    """Collects a run's judgements, and computes the scores of its rubric sets."""

    formulas: Sequence[Formula]
    choices: Mapping[Ref, tuple[str, ...]] = field(default_factory=dict)
    """Options, in order, of the factors that are choices instead of scores."""
    lists: Mapping[str, str] = field(default_factory=dict)
    """Column with the list, for each rubric whose question is asked once for each element of a list."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """Number of questions in each repeat of the run, keyed by rubric."""

    def __post_init__(self) -> None:
        self._indices = {
            ref: _option_indices(options) for ref, options in self.choices.items()
        }
        self._keys: dict[str, set[str]] = defaultdict(set)
        self._fields: set[Ref] = set()
        self._columns: set[str] = set()
        for formula in self.formulas:
            self._fields |= formula.element_fields
            self._columns |= formula.columns
            for rubric, key in formula.refs:
                self._keys[rubric].add(key)
        self._judges: dict[str, _JudgeAnswers] = defaultdict(_JudgeAnswers)
        self._reasons = [*REASONS]

    def add(self, row: JudgementRow) -> None:
        """Add a judgement in the form that the store returns: item, judge, rubric, repeat, status, scores, choices and
        columns.
        """
        judge = self._judges[row["judge"]]
        if row["item"] not in judge.items:
            self._describe(judge, row)
        item = judge.items[row["item"]]
        variant = row.get("variant") or ""
        repeat, sample = divmod(
            int(row["repeat"] or 0), self.samples.get(row["rubric"], 1)
        )
        if variant in ORDERS:
            # Both orders of a pair are asked equally often, and count equally.
            sample = len(ORDERS) * sample + ORDERS.index(variant)
        element = int(variant) if variant.isdecimal() else 0
        for key in self._keys.get(row["rubric"], ()):
            ref = row["rubric"], key
            value, code = self._value(row, ref)
            judge.answers[ref].append(
                _FactorAnswer(item, repeat, sample, element, value, code)
            )

    def _describe(self, judge: _JudgeAnswers, row: JudgementRow) -> None:
        """Store the fields of an edit that formulas refer to."""
        judge.items[row["item"]] = len(judge.items)
        for name in self._columns:
            judge.columns[name].append(_column_value(row, name))
        for ref in self._fields:
            elements = listed(column(row.get("metadata") or {}, self.lists[ref[0]]))
            judge.elements[ref].append(
                [
                    column(element, ref[1]) if isinstance(element, dict) else None
                    for element in elements or ()
                ]
            )

    def _value(self, row: JudgementRow, ref: Ref) -> tuple[float, int]:
        status = row["status"]
        if status == PENDING:
            return math.nan, _NOT_FINAL
        if status not in DONE:
            if status not in self._reasons[FAILED:]:
                self._reasons.append(status)
            return math.nan, self._reasons.index(status, FAILED)
        answers: Mapping[str, str | float] | None = row.get("scores")
        if ref in self.choices:
            answers = row.get("choices")
        answer = (answers or {}).get(ref[1])
        if answer is None:
            return math.nan, ABSTAINED
        if isinstance(answer, str):
            return self._indices[ref].get(answer, math.nan), OK
        return float(answer), OK

    def scores(self) -> Iterator[SetScore]:
        """Yield the scores of every edit to which a set applies. An edit has no scores if none of the set's questions
        were asked about it.
        """
        for name, judge in self._judges.items():
            for formula in self.formulas:
                yield from self._scores_of(name, judge, formula)

    def _scores_of(
        self, name: str, judge: _JudgeAnswers, formula: Formula
    ) -> Iterator[SetScore]:
        import numpy as np

        answers = {
            ref: judge.answers[ref] for ref in formula.refs if judge.answers[ref]
        }
        if not answers:
            return
        n = len(judge.items)
        elements = {
            ref: list(itertools.zip_longest(*lists, fillvalue=NO_ELEMENT))
            for ref, lists in judge.elements.items()
        }
        results: list[Quantity] = []
        applies = []
        for cells in _passes(answers, n, formula.repeats, self.choices):
            rows = column_rows(n, cells, judge.columns, elements)
            result = evaluate(formula.term, rows)
            results.append(result)
            applies.append((result.code != NOT_ASKED) | was_asked(formula.term, rows))
        # The mean over an edit's repeats is pending until all of them are known.
        not_final = np.any([result.code == _NOT_FINAL for result in results], axis=0)
        for repeat, (result, exists) in enumerate(zip(results, applies, strict=True)):
            codes = np.where(not_final, _NOT_FINAL, result.code)
            for item, value, code, there in zip(
                judge.items, result.value, codes, exists, strict=True
            ):
                if there or code == _NOT_FINAL:
                    reason = PENDING if code == _NOT_FINAL else self._reasons[code]
                    number = float(value) if code == OK else None
                    yield SetScore(item, name, formula.name, repeat, number, reason)


_NOT_FINAL = 255
"""Code of a pending answer. It is higher than all other codes, so a score that needs the answer is pending, whatever
else failed.
"""


class _FactorAnswer(NamedTuple):
    """One answer about one factor: its value, or a code that says why it is missing."""

    item: int
    repeat: int
    """Number of the repeat in the run."""
    sample: int
    """Index within the repeat: the sample of the rubric and, for a pair, the order."""
    element: int
    """Index of the list element, if the rubric's question is asked for each element of a list."""
    value: float
    code: int
    """OK, or a code that says why the value is missing."""


@dataclass
class _JudgeAnswers:
    """One judge's answers, and the fields of the edits that formulas refer to."""

    items: dict[str, int] = field(default_factory=dict)
    columns: dict[str, list[object]] = field(default_factory=lambda: defaultdict(list))
    elements: dict[Ref, list[list[object]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    answers: dict[Ref, list[_FactorAnswer]] = field(
        default_factory=lambda: defaultdict(list)
    )


def _option_indices(options: Sequence[str]) -> dict[str, float]:
    """Return the index of each option. For a choice between two outputs, the names that the store uses (such as a, b or
    tie) are keys too.
    """
    indices = {option: float(index) for index, option in enumerate(options)}
    stored = {read_choice(option): index for option, index in indices.items()}
    return {name: index for name, index in stored.items() if name} | indices


def _passes(
    answers: Mapping[Ref, Sequence[_FactorAnswer]],
    n: int,
    means: str,
    chosen: Collection[Ref],
) -> Iterator[dict[Ref, list[Quantity]]]:
    """Yield the inputs for each evaluation of a formula. With `before`, there is one evaluation, on the means of all
    answers. Otherwise each repeat is evaluated as often as its rubrics are asked.

    For the rubrics that are asked most often in a repeat, each evaluation uses one sample. For a rubric that is asked
    less often, it uses the mean over the same repeat, so every evaluation has all rubrics. Choices have no mean, so
    their samples are used in turn, and all combinations are equally frequent.
    """
    if means == "before":
        yield {ref: _cells(of_factor, n) for ref, of_factor in answers.items()}
        return
    samples: dict[Ref, list[int]] = {}
    repeats: dict[Ref, int] = {}
    for ref, of_factor in answers.items():
        samples[ref] = sorted({answer.sample for answer in of_factor})
        repeats[ref] = 1 + max(answer.repeat for answer in of_factor)
    most = max(map(len, samples.values()))
    in_turn = {
        ref for ref, numbers in samples.items() if ref in chosen or len(numbers) == most
    }
    count = math.lcm(*(len(samples[ref]) for ref in in_turn))
    all_repeats = {answer.repeat for part in answers.values() for answer in part}
    for repeat, number in itertools.product(sorted(all_repeats), range(count)):
        cells = {}
        for ref, of_factor in answers.items():
            part = [a for a in of_factor if a.repeat == repeat % repeats[ref]]
            if ref in in_turn:
                sample = samples[ref][number % len(samples[ref])]
                part = [answer for answer in part if answer.sample == sample]
            cells[ref] = _cells(part, n)
        yield cells


def _cells(answers: Sequence[_FactorAnswer], n: int) -> list[Quantity]:
    """Return a column with the mean of each edit's values, or such a column for each element of a list.

    If an answer failed, there is no mean, since the mean of the others would be a different quantity and hide the
    failure. An abstention is not a failure. It matters only if there is no number.
    """
    import numpy as np

    width = 1 + max((answer.element for answer in answers), default=0)
    total = np.zeros((width, n))
    count = np.zeros((width, n))
    codes = np.full((width, n), NOT_ASKED, np.uint8)
    for item, _, _, element, value, code in answers:
        at = element, item
        if code == OK:
            total[at] += value
            count[at] += 1
        worst = max(code, codes[at])
        codes[at] = OK if worst < FAILED and count[at] else worst
    means = total / np.maximum(count, 1)
    return [columns().cell(*pair) for pair in zip(means, codes, strict=True)]


def _column_value(row: JudgementRow, name: str) -> object:
    """Return the value that an edit has in a manifest column. Other fields of a row belong to the judgement."""
    if name == "id":
        return row["item"]
    if name in ("edit_type", "model"):
        return row.get(name)
    return column(row.get("metadata") or {}, name)


SetScores = dict[str, dict[str, dict[str, float | None]]]
"""Scores, keyed by item, judge and score name."""


def by_item(scores: Iterable[SetScore]) -> SetScores:
    """Return the mean score over repeats. It is None if no repeat has a value, or if one is pending."""
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for score in scores:
        repeats = values[score.item, score.judge, score.name]
        repeats += [] if score.value is None else [score.value]
    means: SetScores = {}
    for (item, judge, name), repeats in values.items():
        mean = sum(repeats) / len(repeats) if repeats else None
        means.setdefault(item, {}).setdefault(judge, {})[name] = mean
    return means


def scorer_of(spec: RunSpec, rubrics: Mapping[str, Rubric]) -> SetScorer | None:
    """Return the scorer for a run's rubric sets, or None if no set defines a score."""
    formulas: dict[str, Formula] = {}
    choices: dict[Ref, tuple[str, ...]] = {}
    lists: dict[str, str] = {}
    samples: dict[str, int] = {}
    for name, content in spec.get("sets", {}).items():
        members = []
        for entry in content["rubrics"]:
            rubric = entry["name"]
            scales = {factor.key: factor.scale for factor in rubrics[rubric].factors}
            members.append(Member(rubric, scales, bool(entry.get("for_each"))))
            lists[rubric] = entry.get("for_each", "")
            samples[rubric] = entry.get("samples", 1)
            for key, scale in scales.items():
                if scale.choices:
                    choices[rubric, key] = scale.choices
        for formula in parse_formulas(content["score"], members):
            if formula.name in formulas:
                raise UsageError(
                    f'two sets of the run have a score "{formula.name}", one of them {name}: run them apart'
                )
            formulas[formula.name] = formula
    if not formulas:
        return None
    return SetScorer(list(formulas.values()), choices, lists, samples)


_SET_FIELDS = (
    "item", "judge", "rubric", "repeat", "variant", "status", "scores", "choices", "edit_type", "model", "metadata",
)  # fmt: skip


def run_set_scores(
    store: Store, run: RunRecord, items: Collection[str] | None = None
) -> SetScores | None:
    """Return the set scores of all edits, or only of the edits in `items`. Return None if the run's rubric sets define
    no score.
    """
    scorer = scorer_of(run.spec, store.questions_of(run).rubrics)
    if scorer is None:
        return None
    where = {} if items is None else {"item": items}
    for row in store.judgements(run, fields=_SET_FIELDS, **where):
        scorer.add(row)
    return by_item(scorer.scores())
