"""Figures from made-up judges: what is said of a judge follows from what it said."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache

import pytest

from editjudge.rubrics.files import load
from editjudge.vision.probes.making import AnsweredProbe, Probe
from editjudge.vision.probes.result import (
    ProbeResult,
    Sensitivity,
    figures,
    html,
    lead,
    tables,
)
from tests.faults import shows

from .made import Rule, answers, perfect, several


@cache
def judged(rule: Rule) -> ProbeResult:
    made = several()
    return figures(made, answers(made, rule), judge="made-up", made_from="nothing")


def own(result: ProbeResult, family: str, factor: str) -> Sensitivity:
    return next(
        s
        for s in result.sensitivities
        if (s.own.family, s.own.factor) == (family, factor)
    )


def constant(probe: Probe, rubric: str, factor: str) -> int:
    return sorted(load(rubric).factor(factor).scale.values)[-2]


def obedient(probe: Probe, rubric: str, factor: str) -> int:
    """Does as it is told by whoever wrote into the instruction, or painted into the picture."""
    values = load(rubric).factor(factor).scale.values
    return max(values) if probe.twin else min(values)


def test_a_perfect_judge_is_sensitive_specific_and_monotone() -> None:
    result = judged(perfect)
    assert len(result.sensitivities) > 19
    for s in result.sensitivities:
        assert (
            s.own.slope is not None
            and s.own.slope < -0.9
            and (s.own.ci is None or s.own.ci.hi < 0)
        )
        assert s.own.spearman is not None and s.own.spearman < -0.94
        assert s.own.within == pytest.approx(s.own.spearman)
        assert s.own.ok == s.own.n == 6 * 5 and not s.own.abstained and not s.own.failed
        assert s.off_ratio in (0.0, None) and (s.off_ratio is None) == (
            s.own.rubric == "compliance"
        )
    leak = own(result, "leak", "unchanged_regions")
    assert leak.own.means == [7, 6, 5, 4, 3] and leak.own.slope == pytest.approx(-1)


def test_a_perfect_judge_passes_every_control_and_resists_every_attempt() -> None:
    result = judged(perfect)
    assert {c.outcome for c in result.controls} == {"passed"}
    assert {a.outcome for a in result.attempts} == {"resisted"} and result.rise == 0
    assert len(result.attempts) == 6 * 4 * 5


def test_a_constant_judge_is_sensitive_to_nothing() -> None:
    result = judged(constant)
    for s in result.sensitivities:
        assert (
            s.own.slope == pytest.approx(0)
            and s.own.spearman is None
            and s.off_ratio is None
        )
    assert "missed" in {c.outcome for c in result.controls}
    assert {a.outcome for a in result.attempts} == {"resisted"}


def test_a_random_judge_is_not_mistaken_for_a_good_one() -> None:
    drawn = random.Random(4)
    result = judged(
        lambda _, rubric, factor: drawn.choice(load(rubric).factor(factor).scale.values)
    )
    # one in forty by chance
    assert (
        sum(s.own.ci is not None and s.own.ci.hi < 0 for s in result.sensitivities) <= 5
    )
    assert all(
        s.own.spearman is None or abs(s.own.spearman) < 0.6
        for s in result.sensitivities
    )
    assert all(s.off_ratio is None or s.off_ratio > 0.3 for s in result.sensitivities)


def test_a_judge_that_obeys_attempts_has_resisted_none() -> None:
    result = judged(obedient)
    assert {a.outcome for a in result.attempts} == {"swayed"} and result.rise == 1
    assert "0 of 120 resisted" in lead(result)[1]


def test_a_small_rise_everywhere_is_a_rise() -> None:
    result = judged(
        lambda probe, rubric, _: (
            3 if probe.twin else 2 if rubric in ("preservation", "quality") else None
        )
    )
    assert {a.outcome for a in result.attempts if a.rubric == "preservation"} == {
        "swayed"
    }


def test_a_factor_that_falls_with_anothers_defect_is_named() -> None:
    def rule(probe: Probe, rubric: str, factor: str) -> int:
        return (
            7 - probe.dose
            if (probe.family, factor) == ("leak", "seamlessness")
            else perfect(probe, rubric, factor)
        )

    leak = own(judged(rule), "leak", "unchanged_regions")
    assert leak.off_target == "seamlessness"
    assert leak.off_ratio == pytest.approx(1)


def test_what_a_defect_breaks_by_definition_is_not_held_against_the_judge() -> None:
    def rule(probe: Probe, rubric: str, factor: str) -> int:
        spread = (probe.family, factor) == ("blurred", "unchanged_regions")
        return 7 - probe.dose if spread else perfect(probe, rubric, factor)

    assert own(judged(rule), "blurred", "image_quality").off_ratio == 0


def test_abstentions_are_counted_and_are_no_numbers() -> None:
    result = judged(
        lambda probe, rubric, factor: (
            None if probe.dose > 1 else perfect(probe, rubric, factor)
        )
    )
    leak = own(result, "leak", "unchanged_regions").own
    assert (leak.ok, leak.abstained, leak.failed) == (12, 18, 0)
    assert leak.means[2:] == [None, None, None] and leak.slope is None


def test_a_judge_that_is_silent_on_the_clean_edit_has_no_slope() -> None:
    result = judged(
        lambda probe, rubric, factor: (
            perfect(probe, rubric, factor) if probe.dose else None
        )
    )
    assert all(s.own.slope is None for s in result.sensitivities)
    assert Counter(c.outcome for c in result.controls).keys() == {"abstained"}


def test_a_judge_that_fails_stays_failing() -> None:
    made = several(2)
    failed = [
        AnsweredProbe(probe.edit.id, rubric, "invalid", {})
        for probe in made
        for rubric in probe.rubrics
    ]
    result = figures(made, failed, judge="down")
    assert result.statuses == {"invalid": len(failed)}
    for s in result.sensitivities:
        assert (
            s.own.failed == s.own.n
            and s.own.ok == 0
            and s.own.slope is None
            and s.own.spearman is None
        )
        assert set(s.own.means) == {None}
    assert {c.outcome for c in result.controls} == {"not judged"} and {
        c.score for c in result.controls
    } == {None}
    assert {a.outcome for a in result.attempts} == {
        "not judged"
    } and result.rise is None


def test_a_result_is_plain_json() -> None:
    document = json.loads(json.dumps(judged(perfect).as_json(), allow_nan=False))
    assert document["sensitivities"][0]["own"]["family"] == "leak"
    assert document["sensitivities"][0]["doses"] == [0.05, 0.1, 0.2, 0.4]


def test_every_table_fits_a_terminal() -> None:
    for rule in (perfect, constant, obedient):
        for table in tables(judged(rule)):
            assert max(map(len, table.text().splitlines())) <= 100


def test_missed_controls_say_what_was_said() -> None:
    controls = next(
        table
        for table in tables(judged(constant))
        if table.caption.startswith("Controls")
    )
    row = next(row for row in controls.rows if row[0] == "no-op")
    assert shows(str(row[-1]), "unchanged_regions 6 for 7", "p0")


def test_the_page_stands_alone_and_shows_strangers_names_as_text() -> None:
    made = several(2)
    page = html(
        figures(made, answers(made, perfect), judge="<script>alert(1)</script>")
    )
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "") and page.count("<svg") == 2
