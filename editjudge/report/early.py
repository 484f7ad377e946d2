"""Early decisions: what the answers of a run say about the claims of `run --until`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from editjudge.report.run_data import RunData, load
from editjudge.report.selection import deciding
from editjudge.report.tables import Cell, Figure, Table, counted, figure_text
from editjudge.running.sums import OVERALL
from editjudge.running.until import Claim, Until
from editjudge.stats.columns import (
    Floats,
    Reason,
    Scores,
    filled,
    item_means,
    worst_best,
)
from editjudge.stats.compare import Difference, paired
from editjudge.stats.inference import difference_ends
from editjudge.stats.sequence import SequentialTest, decide
from editjudge.stats.summary import Cell as Summary
from editjudge.stats.summary import PassRate, Rank
from editjudge.store.records import RunRecord
from editjudge.store.store import Store

_Result = TypeVar("_Result", Difference, Summary, PassRate, Rank)
STOPPED_EARLY = Reason("stopped_early")


@dataclass(frozen=True)
class ClaimState:
    """A claim, and what the answers so far say about it."""

    claim: Claim
    decision: SequentialTest
    level: float
    incomplete: int
    """Source images without a difference, because no pair of their edits has a score on both sides."""
    overturnable: bool
    """Whether the claim would be decided otherwise if failed judgements had a score at an end of the scale."""

    def as_json(self) -> dict[str, object]:
        return {
            "claim": str(self.claim),
            "decided": self.decision.decided,
            "images": self.decision.images,
            "e_value": self.decision.e_value,
            "difference": self.decision.difference,
            "sequence": list(self.decision.sequence),
            "level": self.level,
            "incomplete": self.incomplete,
            "overturnable": self.overturnable,
        }

    @property
    def line(self) -> str:
        decision = self.decision
        answer = {True: "decided: true", False: "decided: false", None: "not decided"}
        size = figure_text(decision.difference, decision.sequence, sign=True)
        text = (
            f"{self.claim}: {answer[decision.decided]} after {decision.images:,} source images; difference {size} "
            f"({100 * self.level:.4g} % confidence sequence)"
        )
        if self.incomplete:
            images = counted(self.incomplete, "image")
            text += f"; left out, because no pair is complete: {images}"
        if self.overturnable:
            text += "; failed judgements could overturn this"
        return text


def is_decided(store: Store, record: RunRecord) -> bool:
    """Whether every claim of a run is decided."""
    states = claim_states(load(store, str(record.id)))
    return all(state.decision.decided is not None for state in states)


def claim_states(run: RunData) -> list[ClaimState]:
    """Return the state of each claim of a run; an empty list for a run without claims."""
    early = Until.of_spec(run.run.spec)
    if early is None:
        return []
    run = deciding(run)
    scores = run.with_aggregates({OVERALL, *(claim.factor for claim in early.claims)})
    return [_state(early, claim, run, scores) for claim in early.claims]


def _state(early: Until, claim: Claim, run: RunData, scores: Scores) -> ClaimState:
    name, scale = _score(claim, run)
    ends = difference_ends((min(scale), max(scale))) or (0.0, 0.0)
    alpha = early.alpha / len(early.claims)
    of_factor = scores.where(factor=name)
    a = of_factor.where(model=claim.a)
    b = of_factor.where(model=claim.b)

    def decision(a: Scores, b: Scores) -> SequentialTest:
        differences = image_differences(early, a, b)
        return decide(differences, ends, claim.relation, alpha, early.margin or 0.0)

    state = decision(a, b)
    overturnable = False
    if a.failed.any() or b.failed.any():
        worst, best = worst_best(scale) or ends
        fills = ((worst, best), (best, worst))
        at_ends = [decision(filled(a, x), filled(b, y)) for x, y in fills]
        overturnable = any(each.decided != state.decided for each in at_ends)
    images = {*a.group.present()} | {*b.group.present()}
    level = 1 - alpha * (2 if claim.relation == ">" else 1)
    return ClaimState(claim, state, level, len(images) - state.images, overturnable)


def _score(claim: Claim, run: RunData) -> tuple[str, tuple[float, ...]]:
    """Return the name and the scale of the score that a claim is about."""
    scales = run.all_scales()
    if claim.factor in scales:
        return claim.factor, scales[claim.factor]
    factors = run.rubrics.get(claim.factor, tuple(run.scales))
    is_only_rubric = claim.factor in run.rubrics and {*factors} == {*run.scales}
    name = OVERALL if is_only_rubric else claim.factor
    # A mean without a score so far has no scale of its own yet.
    return name, scales.get(name, run.scales[factors[0]])


def image_differences(early: Until, a: Scores, b: Scores) -> Floats:
    """Return the mean difference of each source image, A minus B, in the random order of the run. An image has one if
    both models have a score for at least one of its instructions.
    """
    if not (len(a) and len(b)):
        return np.empty(0)
    mean_a, mean_b, group, _ = paired(a, b, "pair")
    images = group.compact()
    means = item_means(images, mean_a - mean_b)
    order = sorted(range(len(means)), key=lambda i: early.rank(images.labels[i]))
    return means[np.array(order, dtype=np.int64)]


def without_intervals(run: RunData, result: _Result) -> _Result:
    """Return a figure without its interval and test if the run ends by its claims, since both assume that the number of
    edits does not depend on the scores.
    """
    if not run.ends_by_claims:
        return result
    names = {field.name for field in fields(result)}
    blank: dict[str, Any] = dict.fromkeys(
        names & {"ci", "p", "p_wilcoxon", "p_holm", "detectable", "method"}
    )
    reasons = names & {"ci_reason", "detectable_reason"}
    blank |= dict.fromkeys(reasons, STOPPED_EARLY)
    if isinstance(result, Difference):
        blank |= {"verdict": "cannot be decided", "inference": None}
    return replace(result, **blank)


def claims_table(states: Sequence[ClaimState]) -> Table:
    rows: list[dict[str, Cell]] = []
    answers = {True: "true", False: "false", None: "not decided"}
    for state in states:
        decision = state.decision
        rows.append(
            {
                "claim": str(state.claim),
                "decided": answers[decision.decided],
                "images": decision.images,
                "incomplete": state.incomplete,
                "difference": Figure(decision.difference, decision.sequence, sign=True),
                "level": f"{100 * state.level:.4g} %",
                "e-value": f"{decision.e_value:.3g}",
            }
        )
    notes = (
        "difference: mean and confidence sequence, which is valid whenever the run stops",
        "images: source images with a score for both models; each counts once, as the mean of its pairs",
        "incomplete: source images without such a pair, which the claim is not about",
    )
    return Table.listing(rows, "Claims (run --until)", notes=notes)
