"""A run as input for statistics: judgements as columns, scales and provenance."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal

from editjudge.errors import InputError, Option, UsageError, did_you_mean
from editjudge.judgement import JudgementRow, instruction_warning
from editjudge.matching import Match, MatchBy, RunEdits, match
from editjudge.report.contradictions import Contradictions, contradictions_of
from editjudge.report.tables import counted
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import EXACT_NOTICE, is_any_exact
from editjudge.rubrics.sets import Formula, RunScore
from editjudge.running.sums import OVERALL, RubricFactor, RunFactors, sums_of
from editjudge.stats.columns import Column, FarEnds, Scores, combinations, stacked
from editjudge.stats.summary import Aggregate, aggregate
from editjudge.store.records import PENDING, RunRecord
from editjudge.store.scores import SetScore, SetScorer, scorer_of
from editjudge.store.store import Store

if TYPE_CHECKING:
    from editjudge.report.passport import Passport

COLUMNS = ("rubric", "edit_type")
"""Columns that every run can be sliced by."""

FALLS = "\u2193"
"""Mark after the name of a factor for which lower scores are better."""
FALLS_NOTE = f"{FALLS}: lower is better"
SPEC = "spec"
"""Slice that contains the judge's name without the `@RUBRIC` that may follow it."""
REPORTED = "reported"
"""Slice that contains the model that the judge's server reported, or nothing."""

Of = Literal["scores", "expected"]
"""Values that statistics use: the scores that judges wrote, or expected scores from token probabilities."""

_FIELDS = (
    "item", "model", "group", "repeat", "status", "scores", "abstained", "judge", "rubric", "rubric_hash", "key",
    "server_model", "schema_mode", "prepared", "edit_type", "metadata", "choices", "variant",
)  # fmt: skip
_AT_ONCE = 5_000
"""Number of rows converted to columns at a time. Columns take a hundredth of the memory of rows."""


@dataclass(frozen=True, eq=False)
class RunData:
    """The judgements of a run. Pending ones have no score and count as failed, with status `pending`."""

    run: RunRecord
    scores: Scores
    """Scores of all judges. A judge that scores a factor under two rubrics is named `SPEC@RUBRIC`."""
    scales: Mapping[str, tuple[float, ...]]
    """Legal scores of each factor, or the two ends of a decimal scale. Factors with an open end, or with different
    scales in two rubrics, are left out."""
    rubrics: Mapping[str, tuple[str, ...]]
    """Factors of each rubric."""
    statuses: Mapping[tuple[str, str, str, str], int]
    """Number of judgements for each judge, rubric, model and status."""
    provenance: Mapping[str, str]
    """Provenance of the scores: rubric hashes, models that servers report, image preparation, settings."""
    keys: frozenset[str]
    contradictions: Contradictions = field(default_factory=Contradictions)
    """Verdicts that measured evidence contradicts, if the run was loaded with `evidence`."""
    falling: frozenset[str] = frozenset()
    """Factors for which lower scores are better."""
    continuous: frozenset[str] = frozenset()
    """Factors whose scores are decimals without fixed steps."""
    computed: frozenset[str] = frozenset()
    """Factors computed by a program. They are different kinds of quantities, so no mean over them is computed."""
    side: RunEdits = field(default_factory=lambda: RunEdits({}))
    """Identities of the run's edits, if the run is to be paired with another run."""
    formulas: Sequence[Formula] = ()
    """Formulas of the run's rubric sets; their values are factors in `scores`."""
    run_scores: Mapping[str, RunScore] = field(default_factory=dict)
    """Scores of the whole run that its sets define."""
    of: Of = "scores"
    questions: Mapping[str, Mapping[str, RubricFactor]] = field(default_factory=dict)
    """Questions about each factor, keyed by factor and rubric."""
    unchanged: frozenset[str] = frozenset()
    """Edits whose output shows the input, unchanged or nearly so, if the run was loaded with `evidence`."""
    passports: tuple[Passport, ...] = ()
    """Passports of the run's judges."""

    @property
    def set_scores(self) -> frozenset[str]:
        return frozenset(formula.name for formula in self.formulas)

    def version(self, judge: str) -> str | None:
        """Return the version of the scores of a judge; None if the judge has none, or is older than its versions."""
        spec = judge.partition("@")[0]
        return self.provenance.get(f"version of {spec}")

    def reported(self, judge: str) -> tuple[str, ...]:
        """Return the models that the server of a judge reported, in the order in which the run has them."""
        mine = self.scores.slices[SPEC].among((judge,))
        return tuple(filter(None, self.scores.slices[REPORTED].take(mine).present()))

    def with_passports(self, passports: Iterable[Passport]) -> RunData:
        """Return the run with the passports of its judges. Raise `UsageError` for a passport of another judge."""
        checked = tuple(passports)
        for passport in checked:
            passport.check_judge(self.run.spec)
            version = self.version(passport.judge)
            models = self.reported(passport.judge)
            passport.check_model([f"version {version}"] if version else models)
        return replace(self, passports=checked)

    def named(self, judges: Iterable[str]) -> str:
        """Return the names of the judges with their versions, separated by commas."""
        names = []
        for judge in judges:
            version = self.version(judge)
            names.append(judge if version is None else f"{judge} (version {version})")
        return ", ".join(names)

    @property
    def status_counts(self) -> Counter[str]:
        """Number of judgements with each status."""
        counts = Counter[str]()
        for (*_, status), n in self.statuses.items():
            counts[status] += n
        return counts

    @property
    def pending(self) -> int:
        """Number of planned judgements without an answer."""
        return self.status_counts[PENDING]

    @property
    def ends_by_claims(self) -> bool:
        """Whether the number of edits depends on the scores, because claims end the run."""
        return bool(self.run.spec.get("until"))

    @cached_property
    def aggregates(self) -> Mapping[str, Sequence[Aggregate]]:
        """Aggregates of factors, keyed by judge. They are means of published groups and of other rubrics, and
        statistics over all factors that share one scale."""
        # A set defines its own scores, so its factors are not averaged in other ways.
        left_out = self.computed | self.set_scores
        left_out |= {key for formula in self.formulas for _, key in formula.refs}
        by_judge = {}
        for judge in self.scores.judge.present():
            factors = self.scores.where(judge=judge).factor.present()
            rest = [factor for factor in factors if factor not in left_out]
            by_judge[judge] = self._aggregates(judge, rest)
        return by_judge

    def _aggregates(self, judge: str, factors: Sequence[str]) -> list[Aggregate]:
        sums = sums_of(factors, self.rubrics, self.scales, self.falling)
        alike = {*sums.alike}
        means = [
            Aggregate(name, parts)
            for name, parts in sums.groups.items()
            if {*parts} < alike
        ]
        if sums.scale is None or len(alike) < 2:
            return means
        # A judge named `SPEC@RUBRIC` has only the factors of that rubric, and their mean is named after the rubric.
        full = [name for name, parts in sums.groups.items() if {*parts} == alike]
        overall = full[0] if full and "@" in judge else OVERALL
        means.append(Aggregate(overall, sums.alike))
        if min(sums.scale) >= 0:
            means.append(Aggregate(f"{overall}_geometric", sums.alike, "geometric"))
        means.append(Aggregate(f"{overall}_minimum", sums.alike, "minimum"))
        return means

    @cached_property
    def scored_means(self) -> Mapping[str, Sequence[Aggregate]]:
        """Means over the factors of a rubric that a judge scores on at least half of the edits, if it leaves out others.
        They are keyed by judge.

        Such a mean is not the rubric's, so it is shown under a name of its own and is not compared.
        """
        means: dict[str, list[Aggregate]] = {}
        for judge, aggregates in self.aggregates.items():
            scores = self.scores.where(judge=judge)
            asked = Counter(scores.factor)
            scored = Counter(scores.take(scores.ok).factor)
            rubrics = [a for a in aggregates if a.how == "mean" and a.name != OVERALL]
            for mean in rubrics or aggregates[:1]:
                usual = [f for f in mean.factors if 2 * scored[f] >= asked[f]]
                if 1 < len(usual) < len(mean.factors):
                    name = f"{mean.name}: scored mean of {len(usual)} of {len(mean.factors)}"
                    means.setdefault(judge, []).append(Aggregate(name, tuple(usual)))
        return means

    @property
    def sums(self) -> dict[str, Aggregate]:
        """Aggregates of all judges, keyed by name."""
        return {mean.name: mean for sums in self.aggregates.values() for mean in sums}

    def with_aggregates(self, wanted: Container[str] | None = None) -> Scores:
        """Return the scores with aggregates as additional factors. If `wanted` is given, only these aggregates are
        added."""
        parts = [
            aggregate(
                self.scores.where(judge=judge),
                [mean for mean in sums if wanted is None or mean.name in wanted],
            )
            for judge, sums in self.aggregates.items()
        ]
        return stacked(parts) if parts else self.scores

    def all_scales(self) -> dict[str, tuple[float, ...]]:
        """Return all scales, each from worst to best score. A mean has the ends of its factors' scale, if they share
        one."""
        all_scales: dict[str, tuple[float, ...]] = {}
        for sums in self.aggregates.values():
            for mean in sums:
                scales = {self.scales.get(factor) for factor in mean.factors}
                if len(scales) == 1 and (scale := scales.pop()):
                    all_scales[mean.name] = (min(scale), max(scale))
        for factor, scale in self.scales.items():
            ordered = scale[::-1] if factor in self.falling else scale
            all_scales[factor] = (
                FarEnds(ordered) if factor in self.computed else ordered
            )
        return all_scales

    def label(self, factor: str) -> str:
        """Return the name of a factor in tables, with an arrow if lower is better."""
        return f"{factor} {FALLS}" if factor in self.falling else factor

    def contradicted(self, *by: str) -> dict[tuple[str, ...], tuple[int, int]]:
        """Return the numbers of checked and of contradicted verdicts for each combination of the fields in `by`."""
        sums: dict[tuple[str, ...], tuple[int, int]] = {}
        for count in self.contradictions.counts:
            key = tuple(getattr(count, name) for name in by)
            checked, contradicted = sums.get(key, (0, 0))
            sums[key] = (checked + count.checked, contradicted + count.contradicted)
        return sums

    def unjudged(self) -> list[str]:
        """Return a warning if no judge saw the instruction. It precedes every conclusion."""
        line = instruction_warning(self.scores.slices[SPEC].present())
        return [line] if line else []

    def lead(self) -> list[str]:
        """Return lines about the number of judgements for each status, pending judgements and expected scores."""
        lines = [status_line(self.run, self.status_counts)]
        if self.pending:
            command = f"`{again(self.run)}`, with the same --store"
            how = (
                command if "asked_for" in self.run.spec else "the command that began it"
            )
            lines.append(
                f"{self.pending:,} judgements are pending and count as failed: finish the run with {how}"
            )
        if self.ends_by_claims:
            lines.append(
                f"run {self.run.name} ends by its claims (--until): its confidence sequences hold whenever it stops, and "
                "no interval or test for a fixed number of edits does"
            )
        if self.of == "expected":
            lines.append(
                "based on expected scores: means of the scores that a judge might have written, by its probabilities, "
                "or scores before rounding"
            )
        return [*lines, *(passport.summary for passport in self.passports)]


def status_line(run: RunRecord, counts: Counter[str], more: str = "") -> str:
    """Return a line with the number of a run's judgements for each status."""
    outcome = ", ".join(f"{n:,} {status}" for status, n in counts.most_common())
    total = counted(counts.total(), "judgement")
    return f"run {run.name} ({run.id}), {run.state}: {more}{total}: {outcome or 'none'}"


def again(run: RunRecord) -> str:
    """Return the command that resumes a run."""
    return f"editjudge runs again {shlex.quote(run.name)}"


def check_name(
    kind: str, name: str, names: Iterable[str], *, near: Iterable[str] = ()
) -> None:
    """Raise `UsageError` if `name` is not one of the run's `names`. `near` lists additional names to suggest."""
    legal = list(names)
    if name not in legal:
        hint = did_you_mean(name, [*legal, *(other for other in near if other != name)])
        raise UsageError(
            f"the run has no {kind} {name!r}{hint} It has {', '.join(legal)}"
        )


# --- loading --------------------------------------------------------------------------------------------------


def load(
    store: Store,
    name_or_id: str,
    by: Sequence[str] = (),
    *,
    pairing: bool = False,
    of: Of = "scores",
    evidence: bool = False,
) -> RunData:
    """Load the run with this name or id.

    `by` names the metadata to slice by. `pairing` computes the identities of the run's edits. `evidence` checks its
    verdicts against measured evidence, which doubles the time.
    """
    run = store.find_run(name_or_id)
    factors = RunFactors.of(store, run)
    rubrics = store.questions_of(run).rubrics
    scorer = scorer_of(run.spec, rubrics)
    run_scores: dict[str, RunScore] = {}
    for content in run.spec.get("sets", {}).values():
        for name, fields in content.get("run", {}).items():
            run_scores[name] = RunScore(**fields)
    columns = [each.by for each in run_scores.values() if each.by != "edit_type"]
    by = list(dict.fromkeys([*by, *columns]))
    reading = _Reading(store, run, by, scorer)
    scores = reading.scores(_rows(store, run, of), factors.rubrics)
    if of == "expected":  # a mean is any number between the ends of its scale
        scales = {
            factor: replace(
                scale, values=(), range=(scale.low, scale.high), step=None, labels={}
            )
            for factor, scale in factors.scales.items()
            if not scale.choices
        }
        factors = replace(factors, scales=scales)
    formulas = scorer.formulas if scorer else ()
    falling = {formula.name for formula in formulas if formula.direction == "down"}
    continuous = {factor for factor, scale in factors.scales.items() if not scale.steps}
    ends = {
        formula.name: formula.term.ends for formula in formulas if formula.term.ends
    }
    return RunData(
        run,
        scores,
        factors.legal | ends,
        factors.rubrics,
        reading.statuses,
        _provenance(run, reading.seen, rubrics.values()) | _versions(store, run),
        frozenset(reading.keys),
        contradictions_of(store, run) if evidence else Contradictions(),
        factors.falling | falling,
        frozenset({*continuous, *(formula.name for formula in formulas)}),
        factors.computed,
        RunEdits.of(store.items(run) if pairing else (), run.spec.get("manifest")),
        formulas,
        run_scores,
        of,
        factors.questions,
        unchanged_outputs(store, run) if evidence else frozenset(),
    )


def _rows(store: Store, run: RunRecord, of: Of) -> Iterator[JudgementRow]:
    """Yield the judgements. With `expected`, their scores are replaced by means under the token probabilities."""
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
            "probabilities, or by measured",
            options=[Option("read", "logprobs")],
        )


class _Reading:
    """Counts judgements as they are read, and converts them to columns."""

    def __init__(
        self,
        store: Store,
        run: RunRecord,
        by: Sequence[str],
        scorer: SetScorer | None,
    ) -> None:
        self.statuses = Counter[tuple[str, str, str, str]]()
        self.seen: dict[str, set[str]] = defaultdict(set)
        self.keys: set[str] = set()
        self._instructions = {item.item: item.instruction for item in store.items(run)}
        self._by = by
        self._metadata = {*COLUMNS}
        self._scorer = scorer
        # For the scores of sets: a row for each edit, with its model, group and columns.
        self._edits: dict[str, dict[str, object]] = {}

    def scores(
        self, rows: Iterator[JudgementRow], factors: Mapping[str, Sequence[str]]
    ) -> Scores:
        slices = (*COLUMNS, REPORTED, *self._by)
        parts = []
        while chunk := list(islice(rows, _AT_ONCE)):
            taken = map(self._take, chunk)
            parts.append(Scores.from_judgements(taken, factors=factors, slices=slices))
        for name in self._by:
            sides = ("judge", "model")
            check_name("column", name, sorted(self._metadata), near=sides)
        if not parts:
            parts.append(Scores.from_judgements([], slices=slices))
        scores = _told_apart(stacked(parts))
        if self._scorer is None:
            return scores
        return stacked([scores, self._set_scores(list(self._scorer.scores()))])

    def _take(self, row: JudgementRow) -> dict[str, object]:
        """Count a judgement, and return it with the columns by which scores are sliced and paired."""
        metadata = row["metadata"] or {}
        self._metadata.update(metadata)
        model = row["model"] or ""
        self.statuses[row["judge"], row["rubric"], model, row["status"]] += 1
        if row["status"] != PENDING:
            self.keys.add(row["key"])
            for name, value in _marks(row):
                self.seen[name].add(value)
        slices = {name: metadata.get(name, "") for name in self._by}
        edit: dict[str, object] = {
            **row,
            **slices,
            "rubric": row["rubric"],
            "edit_type": row["edit_type"] or "",
            REPORTED: row["server_model"] or "",
            "instruction": self._instructions.get(row["item"], ""),
        }
        if self._scorer:
            self._scorer.add(row)
            self._edits.setdefault(row["item"], edit)
        return edit

    def _set_scores(self, values: Sequence[SetScore]) -> Scores:
        """Return the scores of sets as rows, with each edit's model, group and slices."""
        edits = [self._edits[value.item] for value in values]
        judges = Column.of(value.judge for value in values)
        groups = [str(edit["group"] or edit["item"]) for edit in edits]
        pairs = (
            f"{group}\x1f{edit['instruction']}"
            for group, edit in zip(groups, edits, strict=True)
        )
        slices: dict[str, Iterable[object]] = {
            name: [edit[name] for edit in edits] for name in (*COLUMNS, *self._by)
        }
        slices[REPORTED] = [""] * len(values)
        return Scores.of(
            [value.item for value in values],
            [value.name for value in values],
            [value.value for value in values],
            judge=judges,
            status=[value.reason for value in values],
            model=[edit["model"] or "" for edit in edits],
            group=groups,
            pair=pairs,
            repeat=[value.repeat for value in values],
            slices=slices | {"rubric": [""] * len(values), SPEC: judges},
        )


def _told_apart(scores: Scores) -> Scores:
    """Rename a judge to `SPEC@RUBRIC` in all scores of a factor that it scores under more than one rubric."""
    rows, cells = combinations(scores.judge, scores.slices["rubric"], scores.factor)
    rubrics = Counter((judge, factor) for judge, _, factor in cells)
    names = Column.of(
        f"{judge}@{rubric}" if rubrics[judge, factor] > 1 else judge
        for judge, rubric, factor in cells
    )
    judge = Column(names.codes[rows], names.labels)
    return replace(scores, judge=judge, slices={**scores.slices, SPEC: scores.judge})


def _provenance(
    run: RunRecord, seen: Mapping[str, set[str]], rubrics: Iterable[Rubric]
) -> dict[str, str]:
    spec = run.spec
    names = [name for name in ("layout", "fuse", "repeats") if name in spec]
    settings: dict[str, str] = {name: str(spec[name]) for name in names}
    if spec.get("layout", "") is None:
        settings["layout"] = "each rubric's own"
    if is_any_exact(rubrics, spec.get("layout")):
        settings["caution"] = EXACT_NOTICE
    settings["judges"] = ", ".join(spec.get("judges", ()))
    settings["version"] = run.version
    for name, value in _flat(spec.get("options", {})):
        settings[f"option {name}"] = str(value)
    return settings | {name: ", ".join(sorted(values)) for name, values in seen.items()}


EMBEDDED = "measured"
"""Judge whose evidence has the version of its scores, and the kind of a degenerate output."""


def unchanged_outputs(store: Store, run: RunRecord) -> frozenset[str]:
    """Return the edits whose output is the same or nearly the same as the input, according to measured evidence."""
    if EMBEDDED not in run.spec.get("judges", ()):
        return frozenset()
    rows = store.judgements(run, fields=("item", "evidence"), judge=EMBEDDED)
    return frozenset(
        row["item"]
        for row in rows
        if (row["evidence"].get("degenerate") or {}).get("kind") == "unchanged"
    )


def _versions(store: Store, run: RunRecord) -> dict[str, str]:
    """Return the version of the embedded judge, which scores the same images differently from one to the next."""
    if EMBEDDED not in run.spec.get("judges", ()):
        return {}
    rows = store.judgements(run, fields=("evidence",), judge=EMBEDDED)
    version = next((row["evidence"].get("version") for row in rows), None)
    return {} if version is None else {f"version of {EMBEDDED}": str(version)}


def _marks(row: JudgementRow) -> Iterator[tuple[str, str]]:
    yield f"rubric {row['rubric']}", row["rubric_hash"][:12]
    if row["server_model"]:
        yield f"server model of {row['judge']}", row["server_model"]
    if row["schema_mode"]:
        yield f"schema of {row['judge']}", row["schema_mode"]
    for role, recipe in (row["prepared"] or {}).items():
        yield f"preparation of {role}", recipe


def _flat(
    values: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


# --- two runs -------------------------------------------------------------------------------------------------


def common_judges(a: RunData, b: RunData) -> dict[str, str]:
    """Map the first run's judges to the same judges in the second run, where their names may differ."""
    sides = []
    for run in (a, b):
        judges = run.scores.judge.present()
        if not judges:
            raise InputError(f"run {run.run.name} has no judgements to decide on")
        sides.append(judges)
    same = {
        name: name
        for name in sides[0]
        if name in sides[1] and a.version(name) == b.version(name)
    }
    # Recorded replies do not name their judge, and each run has its own file. The table names both files.
    recorded = [[name for name in side if name.startswith("replay:")] for side in sides]
    if not same and all(len(side) == 1 for side in recorded):
        same = {recorded[0][0]: recorded[1][0]}
    if not same:
        raise UsageError(
            f"run {a.run.name} is judged by {a.named(sides[0])}, run {b.run.name} by {b.named(sides[1])}: "
            "scores of different judges cannot be compared. Judge both runs with the same judge, or map one to the other: "
            "`editjudge bridge` on edits that both judged, then `compare --through`",
            code="different_judges",
        )
    return same


def pair_runs(a: RunData, b: RunData, same: MatchBy) -> tuple[Scores, Scores, Match]:
    """Return the scores of both runs, and the match of their edits. The column `pair` identifies the edits that both
    runs have, and is empty for other edits."""
    pairing = match(a.side, b.side, same)
    if not pairing.matched:
        task = "input and instruction"
        content = "input, output and instruction" if same == "edit" else task
        raise InputError(
            f"no edit is in both runs: {pairing.unmatched_a:,} edits of {a.run.name} and {pairing.unmatched_b:,} of "
            f"{b.run.name}, none with the same {content}. Ids do not count: judge the same edits",
            code="no_common_edit",
        )
    return _paired(a.scores, pairing.a), _paired(b.scores, pairing.b), pairing


def _paired(scores: Scores, keys: Mapping[str, str]) -> Scores:
    labels = Column.of(keys.get(label, "") for label in scores.item.labels)
    return replace(scores, pair=Column(labels.codes[scores.item.codes], labels.labels))


def shared(scores: Scores) -> Scores:
    """Return the scores of edits that both runs have. Requires scores from `pair_runs`."""
    return scores.take(~scores.pair.among(("",)))
