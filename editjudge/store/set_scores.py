"""The scores of rubric sets: each formula's value for each edit, judge and repeat, from what the store keeps."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from editjudge.errors import UsageError
from editjudge.orders import ORDERS, read_choice
from editjudge.rubrics.formula import Formula, Member, Ref
from editjudge.rubrics.formula import formulas as parse_formulas
from editjudge.rubrics.model import Scale
from editjudge.rubrics.scoring import (
    ABSTAINED,
    FAILED,
    NO_ELEMENT,
    NOT_ASKED,
    OK,
    REASONS,
    Cells,
    Rows,
    evaluate,
    something_asked,
)
from editjudge.store.records import PENDING
from editjudge.values import column, listed

if TYPE_CHECKING:
    from editjudge.store.records import RunRecord
    from editjudge.store.store import Store


@dataclass(frozen=True, slots=True)
class SetScore:
    """One score of one edit by one judge."""

    item: str
    judge: str
    name: str
    repeat: int
    value: float | None
    reason: str
    """`ok`, or why there is no value: `not_asked`, `abstained`, `undefined`, or the status of what failed."""


@dataclass
class SetScorer:
    """Takes the judgements of a run one by one, and then gives the scores of its sets."""

    formulas: Sequence[Formula]
    choices: Mapping[Ref, tuple[str, ...]] = field(default_factory=dict)
    """Of the factors that are chosen and not scored, their words in order."""
    lists: Mapping[str, str] = field(default_factory=dict)
    """Of the rubrics that are asked for each element of a list, the column that holds it."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """How often a rubric is asked in each repeat of the run, where that is not once."""

    def __post_init__(self) -> None:
        self._places = {ref: _word_places(words) for ref, words in self.choices.items()}
        self._fields = sorted({ref for formula in self.formulas for ref in formula.element_fields})
        self._keys: dict[str, list[str]] = {}
        for rubric, key in sorted({ref for formula in self.formulas for ref in formula.refs}):
            self._keys.setdefault(rubric, []).append(key)
        self._columns = sorted({column for formula in self.formulas for column in formula.columns})
        self._judges: dict[str, _JudgeColumns] = defaultdict(_JudgeColumns)
        self._reasons = [*REASONS]

    def add(self, row: Mapping[str, Any]) -> None:
        """A judgement as the store gives it: item, judge, rubric, repeat, status, scores, choices, and its columns."""
        keys = self._keys.get(row["rubric"])
        judge = self._judges[row["judge"]]
        item = judge.items.setdefault(row["item"], len(judge.items))
        if item == len(judge.columns):
            judge.columns.append(tuple(_column_value(row, name) for name in self._columns))
            judge.elements.append({ref: self._element_values(row, ref) for ref in self._fields})
        variant = row.get("variant") or ""
        repeat, sample = divmod(int(row["repeat"] or 0), self.samples.get(row["rubric"], 1))
        if variant in ORDERS:  # each order of a pair is asked as often as the other, and counts alike
            sample = len(ORDERS) * sample + ORDERS.index(variant)
        element = int(variant) if variant.isdecimal() else 0
        for key in keys or ():
            ref = row["rubric"], key
            value, code = self._value(row, ref)
            judge.values[ref].append(_FactorAnswer(item, repeat, sample, element, value, code))

    def _element_values(self, row: Mapping[str, Any], ref: Ref) -> list[Any]:
        elements = listed(column(row.get("metadata") or {}, self.lists[ref[0]])) or []
        return [column(element, ref[1]) if isinstance(element, dict) else None for element in elements]

    def _value(self, row: Mapping[str, Any], ref: Ref) -> tuple[float, int]:
        status, key = row["status"], ref[1]
        if status == PENDING:
            return np.nan, _NOT_FINAL
        if status not in ("ok", "abstained"):
            if status not in self._reasons[FAILED:]:
                self._reasons.append(status)
            return np.nan, self._reasons.index(status, FAILED)
        if ref in self.choices:
            word = (row.get("choices") or {}).get(key)
            return (np.nan, ABSTAINED) if word is None else (self._places[ref].get(word, np.nan), OK)
        score = (row.get("scores") or {}).get(key)
        return (np.nan, ABSTAINED) if score is None else (float(score), OK)

    def scores(self) -> Iterator[SetScore]:
        """Of every edit to which a score applies; one to which none of its rubrics was put has none."""
        for name, judge in self._judges.items():
            for formula in self.formulas:
                yield from self._of(name, judge, formula)

    def _of(self, judge: str, judged: _JudgeColumns, formula: Formula) -> Iterator[SetScore]:
        values = {ref: judged.values[ref] for ref in formula.refs if judged.values[ref]}
        if not values:
            return
        n = len(judged.items)
        columns = dict(zip(self._columns, zip(*judged.columns, strict=True), strict=True)) if self._columns else {}
        results: list[Cells] = []
        applies = []
        for cells in _passes(values, n, formula.repeats, self.choices):
            elements = {ref: _labels(judged.elements, ref, cells) for ref in formula.element_fields}
            rows = Rows(n, cells, columns, elements)
            result = evaluate(formula.term, rows)
            exists = result.codes[:, 0] != NOT_ASKED
            if not exists.all():
                exists |= something_asked(formula.term, rows)
            results.append(result)
            applies.append(exists)
        # The mean of an edit's repeats is not known either, before each of them is.
        not_final = np.any([result.codes[:, 0] == _NOT_FINAL for result in results], axis=0)
        for repeat, (result, exists) in enumerate(zip(results, applies, strict=True)):
            codes = np.where(not_final, _NOT_FINAL, result.codes[:, 0])
            for item, value, code, there in zip(judged.items, result.values[:, 0], codes, exists, strict=True):
                if there or code == _NOT_FINAL:
                    number = float(value) if code == OK else None
                    yield SetScore(item, judge, formula.name, repeat, number, self._reason(code))

    def _reason(self, code: int) -> str:
        return PENDING if code == _NOT_FINAL else self._reasons[code]


_NOT_FINAL = np.iinfo(np.uint8).max
"""The code of what is pending: above all others, so that a score which needs it is pending, whatever else failed."""


class _FactorAnswer(NamedTuple):
    """One answer about one factor: its value, or the reason for none."""

    item: int
    repeat: int
    """Number of the repeat in the run."""
    sample: int
    """Within the repeat: which of the rubric's samples, and of a pair which order."""
    element: int
    """Index of the list element, if the rubric is asked for each of them."""
    value: float
    code: int
    """The reason for no value."""


@dataclass
class _JudgeColumns:
    items: dict[str, int] = field(default_factory=dict)
    columns: list[tuple[Any, ...]] = field(default_factory=list)
    elements: list[dict[Ref, list[Any]]] = field(default_factory=list)
    values: dict[Ref, list[_FactorAnswer]] = field(default_factory=lambda: defaultdict(list))


def _word_places(words: Sequence[str]) -> dict[str, float]:
    """Each word to its place; of a choice between two outputs also what the store calls it, such as a, b or tie."""
    own = {word: float(place) for place, word in enumerate(words)}
    return {choice: place for word, place in own.items() if (choice := read_choice(word))} | own


def _labels(elements: Sequence[Mapping[Ref, Sequence[Any]]], ref: Ref, cells: Mapping[Ref, Cells]) -> Any:
    """A field of the elements, as wide as the values of the rubric that was asked about them."""
    width = next(values.codes.shape[1] for (name, _), values in cells.items() if name == ref[0])
    table = np.full((len(elements), width), NO_ELEMENT, dtype=object)
    for at, one in enumerate(elements):
        for place, value in enumerate(one[ref][:width]):
            table[at, place] = value
    return table


def _passes(
    values: Mapping[Ref, Sequence[_FactorAnswer]], n: int, means: str, words: Collection[Ref]
) -> Iterator[dict[Ref, Cells]]:
    """Yield what each value of a formula is computed from: once from the means of all (`before`), or for each repeat of
    the run as often as the rubrics are asked in it.

    Rubrics that are asked most often in a repeat go in sample by sample, the first of one with the first of another. A
    rubric that is asked less often goes in with its mean over the same repeat, so that each pass has all of them. Words
    have no mean: their samples take turns, as long as each of them has met each of the others equally often.
    """
    if means == "before":
        yield {ref: _cells(some, n) for ref, some in values.items()}
        return
    repeats = {ref: 1 + max(one.repeat for one in some) for ref, some in values.items()}
    samples = {ref: sorted({one.sample for one in some}) for ref, some in values.items()}
    most = max(map(len, samples.values()))
    in_turn = {ref for ref, numbers in samples.items() if ref in words or len(numbers) == most}
    count = math.lcm(*(len(samples[ref]) for ref in in_turn))
    for repeat in sorted({one.repeat for some in values.values() for one in some}):
        mine = {ref: [one for one in some if one.repeat == repeat % repeats[ref]] for ref, some in values.items()}
        for number in range(count):
            cells = {ref: _cells(some, n) for ref, some in mine.items() if ref not in in_turn}
            for ref in in_turn:
                sample = samples[ref][number % len(samples[ref])]
                cells[ref] = _cells([one for one in mine[ref] if one.sample == sample], n)
            yield cells


def _cells(values: Sequence[_FactorAnswer], n: int) -> Cells:
    """Return one column, or one for each element of a list, with the mean of each edit's values.

    An answer that failed leaves no mean: that of the others would be another quantity, and the failure uncounted. An
    abstention is no failure, and counts only where there is no number.
    """
    width = 1 + max((one.element for one in values), default=0)
    total, count = np.zeros((n, width)), np.zeros((n, width))
    codes = np.full((n, width), NOT_ASKED, np.uint8)
    for item, _, _, element, value, code in values:
        so_far = codes[item, element]
        if code == OK:
            total[item, element] += value
            count[item, element] += 1
        if code >= FAILED or so_far >= FAILED:
            codes[item, element] = max(code, so_far)
        elif count[item, element]:
            codes[item, element] = OK
        else:
            codes[item, element] = max(code, so_far)
    return Cells.of(total / np.maximum(count, 1), codes)


def _column_value(row: Mapping[str, Any], name: str) -> Any:
    """Return a column of the manifest; other fields of a row are the judgement's own."""
    if name == "id":
        return row["item"]
    return row.get(name) if name in ("edit_type", "model") else column(row.get("metadata") or {}, name)


def by_item(scores: Iterable[SetScore]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Item, judge and name to the mean over repeats; None where no repeat has a value, or one is pending."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for one in scores:
        some = values.setdefault((one.item, one.judge, one.name), [])
        if one.value is not None:
            some.append(one.value)
    means: dict[str, dict[str, dict[str, float | None]]] = {}
    for (item, judge, name), some in values.items():
        means.setdefault(item, {}).setdefault(judge, {})[name] = sum(some) / len(some) if some else None
    return means


def scorer_of(spec: Mapping[str, Any], rubrics: Mapping[str, Mapping[str, Any]]) -> SetScorer | None:
    """Of a run's sets, from its frozen spec and the rubrics that the store keeps; None where no set has a score."""
    formulas: dict[str, Formula] = {}
    choices: dict[Ref, tuple[str, ...]] = {}
    lists: dict[str, str] = {}
    samples: dict[str, int] = {}
    for name, content in spec.get("sets", {}).items():
        members = [_member(one, spec["rubrics"], rubrics) for one in content["rubrics"]]
        lists |= {one["name"]: one["for_each"] for one in content["rubrics"] if one.get("for_each")}
        samples |= {one["name"]: one["samples"] for one in content["rubrics"] if one.get("samples")}
        for formula in parse_formulas(content["score"], members):
            if formula.name in formulas:
                raise UsageError(
                    f'two sets of the run have a score "{formula.name}", one of them {name}: run them apart'
                )
            formulas[formula.name] = formula
        choices |= {(m.name, key): scale.choices for m in members for key, scale in m.factors.items() if scale.choices}
    return SetScorer(list(formulas.values()), choices, lists, samples) if formulas else None


def _member(entry: Mapping[str, Any], hashes: Mapping[str, str], rubrics: Mapping[str, Mapping[str, Any]]) -> Member:
    content = rubrics[hashes[entry["name"]]]["content"]
    scales = {factor["key"]: Scale.of(factor["scale"]) for factor in content["factors"]}
    return Member(entry["name"], scales, bool(entry.get("for_each")))


_FIELDS = (
    "item", "judge", "rubric", "repeat", "variant", "status", "scores", "choices", "edit_type", "model", "metadata",
)  # fmt: skip


def run_set_scores(
    store: Store, run: RunRecord, items: Collection[str] | None = None
) -> dict[str, dict[str, dict[str, float | None]]] | None:
    """Item, judge and name of a score to its value, of all edits or of some; None where the run has no such score."""
    scorer = scorer_of(run.spec, store.rubrics())
    if scorer is None:
        return None
    for row in store.judgements(run, fields=_FIELDS, **({} if items is None else {"item": items})):
        scorer.add(row)
    return by_item(scorer.scores())
