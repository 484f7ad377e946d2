"""A run as statistics take it: its judgements as columns, its scales, and how it was made."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from editjudge.errors import InputError, Option, UsageError, near_miss
from editjudge.judgement import instruction_warning
from editjudge.matching import Match, MatchBy, RunEdits, match
from editjudge.report.contradictions import Contradictions, contradictions_of
from editjudge.report.tables import counted
from editjudge.rubrics.sets import Formula
from editjudge.running.sums import OVERALL, RubricFactor, RunFactors, sums_of
from editjudge.stats.columns import Column, FarEnds, Scores, combinations
from editjudge.stats.summary import Aggregate, aggregate, stacked
from editjudge.store.records import PENDING, Count, RunRecord
from editjudge.store.set_scores import SetScore, SetScorer, scorer_of
from editjudge.store.store import Store

OWN = ("rubric", "edit_type")
"""Columns that every run can be sliced by."""

FALLS = "\u2193"
"""Stands after a factor of which lower scores are better."""
FALLS_NOTE = f"{FALLS}: lower is better"
SPEC = "spec"
"""The slice that holds a judge's own name, without the rubric that tells it apart."""

Of = Literal["scores", "expected"]
"""Values that statistics are about: the scores that judges wrote, or their means by token probabilities."""

_FIELDS = (
    "item", "model", "group", "repeat", "status", "scores", "abstained", "judge", "rubric", "rubric_hash", "key",
    "server_model", "schema_mode", "prepared", "edit_type", "metadata", "choices", "variant",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RunData:
    """A run's judgements. Those still pending have no score and count as failed, with the status `pending`."""

    run: RunRecord
    scores: Scores
    """If one judge scores a factor under two rubrics, the judge is called `SPEC@RUBRIC` there."""
    scales: Mapping[str, tuple[float, ...]]
    """Every legal score of each factor, or the two ends where any decimal between them is one; none where an end is
    open, or where two rubrics give it different scales."""
    rubrics: Mapping[str, tuple[str, ...]]
    """Each rubric of the run and its factors."""
    statuses: Mapping[tuple[str, str, str, str], int]
    """How many judgements, by judge, rubric, model and status."""
    provenance: Mapping[str, str]
    """How the scores came about: rubric hashes, what servers say they ran, how pictures were prepared, settings."""
    keys: frozenset[str]
    against_evidence: Contradictions = field(default_factory=Contradictions)
    """Contradictions of measured evidence with of the run's verdicts, where it was asked for."""
    falling: frozenset[str] = frozenset()
    """Factors whose lower scores are the better ones."""
    continuous: frozenset[str] = frozenset()
    """Factors whose scores are decimals without steps."""
    computed: frozenset[str] = frozenset()
    """Factors of rubrics that a program computes: figures of different kinds, which add up to nothing."""
    side: RunEdits = field(default_factory=lambda: RunEdits({}))
    """Identity of its edits, if the run is to be paired with another one."""
    formulas: Sequence[Formula] = ()
    """The scores of its rubric sets, which stand among its scores as factors do."""
    of: Of = "scores"
    questions: Mapping[str, Mapping[str, RubricFactor]] = field(default_factory=dict)
    """How each factor was asked for, by factor and rubric."""

    @property
    def set_scores(self) -> frozenset[str]:
        return frozenset(formula.name for formula in self.formulas)

    @property
    def pending(self) -> int:
        """Judgements that were planned and have no answer yet."""
        return sum(n for (*_, status), n in self.statuses.items() if status == PENDING)

    def with_aggregates(
        self, wanted: Container[str] | None = None
    ) -> tuple[Scores, dict[str, list[Aggregate]]]:
        """The scores with what they add up to (or what is wanted of that) as further factors, and each judge's sums."""
        added = {
            judge: [
                one
                for one in aggregates(self, judge)
                if wanted is None or one.name in wanted
            ]
            for judge in self.scores.judge.present()
        }
        parts = [
            aggregate(self.scores.where(judge=judge), some)
            for judge, some in added.items()
        ]
        return stacked(parts) if parts else self.scores, added

    def all_scales(self) -> dict[str, tuple[float, ...]]:
        """From the worst score to the best; of aggregates the ends of their factors' scale, if they share one."""
        ends: dict[str, tuple[float, ...]] = {}
        for judge in self.scores.judge.present():
            for one in aggregates(self, judge):
                scales = {self.scales.get(factor) for factor in one.factors}
                if len(scales) == 1 and (scale := scales.pop()):
                    ends[one.name] = (min(scale), max(scale))
        own = {
            f: scale[::-1] if f in self.falling else scale
            for f, scale in self.scales.items()
        }
        return ends | {
            f: FarEnds(scale) if f in self.computed else scale
            for f, scale in own.items()
        }

    def sums(self) -> tuple[str, ...]:
        """The names of all that factors add up to, by any judge."""
        return tuple(
            dict.fromkeys(
                one.name
                for j in self.scores.judge.present()
                for one in aggregates(self, j)
            )
        )

    def label(self, factor: str) -> str:
        """A factor as tables name it: an arrow where lower is better, which a note explains."""
        return f"{factor} {FALLS}" if factor in self.falling else factor

    @property
    def contradictions(self) -> Sequence[Count]:
        """How many verdicts could be checked against measured evidence, and how many it contradicts."""
        return self.against_evidence.counts

    def contradicted(self, *by: str) -> dict[tuple[str, ...], tuple[int, int]]:
        """Checked and contradicted verdicts, added up by these fields of a count."""
        sums: dict[tuple[str, ...], tuple[int, int]] = {}
        for count in self.contradictions:
            place = tuple(getattr(count, name) for name in by)
            checked, n = sums.get(place, (0, 0))
            sums[place] = checked + count.checked, n + count.contradicted
        return sums

    def unjudged(self) -> list[str]:
        """Return the line that names what no judge looked at; it comes before every conclusion."""
        line = instruction_warning(self.scores.slices[SPEC].present())
        return [line] if line else []

    def lead(self) -> list[str]:
        """The run's judgements by status, and what limits its scores."""
        counts = Counter[str]()
        for (*_, status), n in self.statuses.items():
            counts[status] += n
        outcome = (
            ", ".join(f"{n:,} {status}" for status, n in counts.most_common()) or "none"
        )
        total = counted(counts.total(), "judgement")
        lines = [
            f"run {self.run.name} ({self.run.id}), {self.run.state}: {total}: {outcome}"
        ]
        if self.pending:
            again = f"editjudge runs again {shlex.quote(self.run.name)}"
            how = (
                f"`{again}`, with the same --store"
                if "asked_for" in self.run.spec
                else "the command that began it"
            )
            lines.append(
                f"{self.pending:,} judgements are pending and count as failed: finish the run with {how}"
            )
        if self.of == "expected":
            lines.append(
                "of expected scores: the means over what each judge might have written, by its probabilities"
            )
        return lines


def load(
    store: Store,
    word: str,
    by: Sequence[str] = (),
    *,
    pairing: bool = False,
    of: Of = "scores",
    evidence: bool = False,
) -> RunData:
    """The run of this name or id; `by` names metadata to slice by. `evidence`: hold verdicts against it, which takes as
    long as reading them."""
    run = store.find_run(word)
    words = {item.item: item.instruction for item in store.items(run)}
    known = RunFactors.of(store, run)
    scorer = scorer_of(run.spec, store.questions_of(run).rubrics)
    gathered = _Gathered(scorer=scorer)
    parts = [
        Scores.from_judgements(done, factors=known.rubrics, slices=(*OWN, *by))
        for done in gathered.through(_rows(store, run, of), words, by)
    ]
    _check_slices(gathered.metadata, by)
    if of == "expected":  # a mean is any number between the ends of its scale
        scales = {
            factor: replace(
                scale, values=(), range=(scale.low, scale.high), step=None, labels={}
            )
            for factor, scale in known.scales.items()
            if not scale.choices
        }
        known = replace(known, scales=scales)
    scores = _told_apart(
        stacked(parts) if parts else Scores.from_judgements([], slices=(*OWN, *by))
    )
    formulas = scorer.formulas if scorer else ()
    return RunData(
        run,
        stacked([scores, _as_factors(list(scorer.scores()), gathered.first, by)])
        if scorer
        else scores,
        known.legal | {one.name: one.term.ends for one in formulas if one.term.ends},
        known.rubrics,
        gathered.statuses,
        _provenance(run, gathered.seen),
        frozenset(gathered.keys),
        contradictions_of(store, run) if evidence else Contradictions(),
        known.falling | {one.name for one in formulas if one.direction == "down"},
        frozenset(factor for factor, scale in known.scales.items() if not scale.steps)
        | {one.name for one in formulas},
        known.computed,
        RunEdits.of(store.items(run) if pairing else (), run.spec.get("manifest")),
        formulas,
        of,
        known.questions,
    )


def _as_factors(
    values: Sequence[SetScore],
    edits: Mapping[str, Mapping[str, Any]],
    by: Sequence[str],
) -> Scores:
    """Set scores as rows, with the edit's own model, group and slices."""
    rows = [edits[one.item] for one in values]
    groups = [str(row["group"] or row["item"]) for row in rows]
    judges = Column.of(one.judge for one in values)
    slices: dict[str, Any] = {name: [row[name] for row in rows] for name in (*OWN, *by)}
    return Scores.of(
        [one.item for one in values], [one.name for one in values], [one.value for one in values],
        judge=judges, status=[one.reason for one in values], model=[row["model"] or "" for row in rows], group=groups,
        pair=[f"{group}\x1f{row['instruction']}" for group, row in zip(groups, rows, strict=True)],
        repeat=[one.repeat for one in values],
        slices=slices | {"rubric": Column.constant("", len(values)), SPEC: judges},
    )  # fmt: skip


def _rows(store: Store, run: RunRecord, of: Of) -> Iterator[dict[str, Any]]:
    """The judgements; with `expected`, what was read from probabilities stands in the place of the scores."""
    if of == "scores":
        yield from store.judgements(run, fields=_FIELDS)
        return
    has_any = False
    for row in store.judgements(run, fields=(*_FIELDS, "expected")):
        has_any = has_any or bool(row["expected"])
        yield {**row, "scores": row["expected"] if row["scores"] is not None else None}
    if not has_any:
        raise InputError(
            f"run {run.name} has no expected scores: judge it with --read logprobs, by a server that gives token "
            "probabilities",
            options=[Option("read", "logprobs")],
        )


def common_judges(a: RunData, b: RunData) -> dict[str, str]:
    """The judges of both runs: what the second calls each of the first."""
    mine = a.scores.judge.present()
    theirs = b.scores.judge.present()
    for judged, judges in ((a, mine), (b, theirs)):
        if not judges:
            raise InputError(f"run {judged.run.name} has no judgements to decide on")
    same = {name: name for name in mine if name in theirs}
    # A file of recorded replies does not say who wrote them, and two runs cannot share one: the table names both.
    recorded = [
        [name for name in side if name.startswith("replay:")] for side in (mine, theirs)
    ]
    if not same and all(len(side) == 1 for side in recorded):
        same = {recorded[0][0]: recorded[1][0]}
    if not same:
        raise UsageError(
            f"run {a.run.name} is judged by {', '.join(mine)}, run {b.run.name} by {', '.join(theirs)}: "
            "scores of different judges cannot be compared. Judge both runs with the same judge"
        )
    return same


def pair_runs(a: RunData, b: RunData, same: MatchBy) -> tuple[Scores, Scores, Match]:
    """The scores of both runs with the content that they share in the column `pair`, empty where they share none."""
    pairing = match(a.side, b.side, same)
    if not pairing.matched:
        what = (
            "input, output and instruction"
            if same == "edit"
            else "input and instruction"
        )
        counted = f"{pairing.unmatched_a:,} edits of {a.run.name} and {pairing.unmatched_b:,} of {b.run.name}"
        raise InputError(
            f"no edit is in both runs: {counted}, none with the same {what}. Ids do not count: judge the same edits"
        )
    return _paired(a.scores, pairing.a), _paired(b.scores, pairing.b), pairing


def _paired(scores: Scores, keys: Mapping[str, str]) -> Scores:
    labels = Column.of(keys.get(label, "") for label in scores.item.labels)
    return replace(scores, pair=Column(labels.codes[scores.item.codes], labels.labels))


def shared(scores: Scores) -> Scores:
    """Return the scores on what both runs have, of scores that were paired with another run's."""
    return scores.take(
        np.array([label != "" for label in scores.pair.labels] or [False])[
            scores.pair.codes
        ]
    )


_AT_ONCE = 5_000
"""Judgements that are rows at a time; as columns a hundred times as many take the same memory."""


@dataclass
class _Gathered:
    """Counts and sets gathered while judgements are read."""

    statuses: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    seen: dict[str, set[str]] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    metadata: set[str] = field(default_factory=set)
    scorer: SetScorer | None = None
    first: dict[str, dict[str, Any]] = field(default_factory=dict)
    """A row of each edit if scores of sets are wanted, for its model, group and columns."""

    def through(
        self,
        rows: Iterator[dict[str, Any]],
        words: Mapping[str, str],
        by: Sequence[str],
    ) -> Iterator[list[dict[str, Any]]]:
        while some := list(islice(rows, _AT_ONCE)):
            self.metadata.update(name for row in some for name in row["metadata"] or ())
            for row in some:
                self.statuses[
                    row["judge"], row["rubric"], row["model"] or "", row["status"]
                ] += 1
                if self.scorer:
                    self.scorer.add(row)
                    self.first.setdefault(row["item"], _row(row, words, by))
                if row["status"] == PENDING:
                    continue
                self.keys.add(row["key"])
                for name, value in _marks(row):
                    self.seen.setdefault(name, set()).add(value)
            yield [_row(row, words, by) for row in some]


def aggregates(judged: RunData, judge: str) -> list[Aggregate]:
    """Return what the factors of a judge add up to: the published groups, rubrics of one's own, and all on one scale."""
    # A set says itself what its factors add up to: a mean beside it would be a figure that nobody published.
    scored = judged.set_scores | {
        key for formula in judged.formulas for _, key in formula.refs
    }
    left_out = judged.computed | scored
    have = [
        f
        for f in judged.scores.where(judge=judge).factor.present()
        if f not in left_out
    ]
    sums = sums_of(have, judged.rubrics, judged.scales, judged.falling)
    parts = [
        Aggregate(name, factors)
        for name, factors in sums.groups.items()
        if set(factors) < set(sums.alike)
    ]
    return parts + (
        _overall(judge, sums.alike, sums.groups, sums.scale)
        if sums.scale and len(sums.alike) > 1
        else []
    )


def _overall(
    judge: str,
    factors: tuple[str, ...],
    groups: Mapping[str, tuple[str, ...]],
    scale: tuple[float, ...],
) -> list[Aggregate]:
    """All factors in one number, three ways. A judge told apart by rubric has a part only, and that part's name."""
    same = [
        name
        for name, group in groups.items()
        if set(group) == set(factors) and "@" in judge
    ]
    name = same[0] if same else OVERALL
    overall = [
        Aggregate(name, factors),
        Aggregate(f"{name}_minimum", factors, "minimum"),
    ]
    if min(scale) >= 0:
        overall.insert(1, Aggregate(f"{name}_geometric", factors, "geometric"))
    return overall


def _check_slices(metadata: set[str], by: Sequence[str]) -> None:
    known = metadata | {*OWN}
    for name in by:
        if name not in known:
            raise UsageError(
                f"the run has no column {name!r}{near_miss(name, known)} There are {', '.join(sorted(known))}"
            )


def _row(
    row: dict[str, Any], words: Mapping[str, str], by: Sequence[str]
) -> dict[str, Any]:
    extra = {
        name: (row["metadata"] or {}).get(name, "") for name in by if name not in OWN
    }
    return {
        **row,
        "instruction": words.get(row["item"], ""),
        "edit_type": row["edit_type"] or "",
        **extra,
    }


def _told_apart(scores: Scores) -> Scores:
    """With `SPEC@RUBRIC` for a judge wherever it scores a factor under more than one rubric."""
    rows, places = combinations(scores.judge, scores.slices["rubric"], scores.factor)
    rubrics = Counter((judge, factor) for judge, _, factor in places)
    names = Column.of(
        f"{judge}@{rubric}" if rubrics[judge, factor] > 1 else judge
        for judge, rubric, factor in places
    )
    judge = Column(names.codes[rows], names.labels)
    return replace(scores, judge=judge, slices={**scores.slices, SPEC: scores.judge})


def _provenance(run: RunRecord, seen: Mapping[str, set[str]]) -> dict[str, str]:
    settings = {
        name: run.spec[name]
        for name in ("layout", "fuse", "repeats")
        if name in run.spec
    }
    settings |= {
        "judges": ", ".join(run.spec.get("judges", ())),
        "version": run.version,
    }
    settings |= {
        f"option {name}": value for name, value in _flat(run.spec.get("options", {}))
    }
    return {name: str(value) for name, value in settings.items()} | {
        n: ", ".join(sorted(v)) for n, v in seen.items()
    }


def _marks(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield f"rubric {row['rubric']}", row["rubric_hash"][:12]
    if row["server_model"]:
        yield f"server model of {row['judge']}", row["server_model"]
    if row["schema_mode"]:
        yield f"schema of {row['judge']}", row["schema_mode"]
    for role, recipe in (row["prepared"] or {}).items():
        yield f"preparation of {role}", recipe


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
