"""A passport names the fault that a judge has, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from editjudge.report.passport import Quality
from editjudge.stats.sign_flip import decide, noise_effect, paired_effect
from editjudge.vision.probes.cues import CUES
from editjudge.vision.probes.defects import FAMILIES
from editjudge.vision.probes.passport import PassportAnswers, lines

from .planted import planted_answers, planted_set

FULL = planted_set()
QUICK = planted_set("quick", 12)
NAMES = {
    "sees_instruction", "sees_input", "sees_edited", "stable_reencoded", "stable_resized", "resists_injection",
    "noise_sd", "order_flips", *(f"no_bias:{cue}" for cue in CUES), *(f"sensitive:{f.name}" for f in FAMILIES),
}  # fmt: skip
SEEN = {"sees_damage", "sees_instruction", "sees_input", "sees_edited"}


def faults(qualities: dict[str, Quality]) -> set[str]:
    return {name for name, quality in qualities.items() if quality.answer == "no"}


def test_every_quality_is_listed_whatever_was_asked() -> None:
    for made in (FULL, QUICK):
        assert planted_answers(made, "honest").qualities().keys() >= NAMES


def test_an_honest_judge_has_no_fault_and_most_qualities() -> None:
    qualities = planted_answers(FULL, "honest").qualities()
    assert faults(qualities) == set()
    shown = {name for name, quality in qualities.items() if quality.answer == "yes"}
    assert shown >= NAMES - {f"sensitive:{family.name}" for family in FAMILIES}
    assert qualities["sensitive:leak"].answer == "yes"
    assert qualities["sees_damage"].doses == pytest.approx([6, 5, 4, 2])


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("saturation", {"no_bias:saturation"}),
        ("instruction", {"sees_instruction", "control:nonsense"}),
        ("input", {"sees_input"}),
        ("second", {"order_flips"}),
        ("jpeg", {"stable_reencoded"}),
        ("noisy", {"noise_sd"}),
    ],
)
@pytest.mark.parametrize("made", [FULL, QUICK], ids=["full", "quick"])
def test_a_planted_fault_is_named_and_no_other(
    made: object, fault: str, named: set[str]
) -> None:
    assert isinstance(made, type(FULL))
    assert faults(planted_answers(made, fault).qualities()) == named


def test_a_judge_that_reads_a_painted_score_is_named() -> None:
    qualities = planted_answers(FULL, "score_text").qualities()
    assert faults(qualities) == {"no_bias:score_text"}
    assert qualities["no_bias:score_text"].effect == pytest.approx(3)


@pytest.mark.parametrize("made", [FULL, QUICK], ids=["full", "quick"])
def test_a_constant_judge_sees_nothing_and_is_not_shown_to_be_free_of_biases(
    made: object,
) -> None:
    assert isinstance(made, type(FULL))
    qualities = planted_answers(made, "constant").qualities()
    assert {name for name, q in qualities.items() if q.answer == "yes"} == set()
    assert faults(qualities) >= SEEN


def test_a_judge_whose_questions_all_fail_is_shown_nothing() -> None:
    qualities = planted_answers(FULL, "silent").qualities()
    assert {quality.answer for quality in qualities.values()} == {"not_shown"}
    assert {quality.n for quality in qualities.values()} == {0}
    assert all(quality.effect is None for quality in qualities.values())


def test_a_quick_passport_does_not_show_what_it_does_not_ask() -> None:
    qualities = planted_answers(QUICK, "honest").qualities()
    unasked = {name for name, quality in qualities.items() if not quality.questions}
    assert "no_bias:watermark" in unasked and "resists_injection" in unasked
    assert {qualities[name].answer for name in unasked} == {"not_shown"}
    assert {"no_bias:saturation", "no_bias:caption", "no_bias:bandwagon"}.isdisjoint(unasked)  # fmt: skip


def test_a_failed_answer_is_left_out_of_a_line_and_counted_in_its_questions() -> None:
    answers = planted_answers(FULL, "honest")
    rows = [
        {**row, "scores": None, "status": "refused"}
        if row["item"].startswith("3-") and row["item"].endswith("-saturation")
        else row
        for row in answers.rows
    ]
    quality = PassportAnswers(FULL, rows).qualities()["no_bias:saturation"]
    assert (quality.n, quality.answer) == (23, "yes")
    assert quality.questions == 24 * 2 * 3


# --- the test behind it -----------------------------------------------------------------------------------------


def test_the_interval_excludes_0_exactly_if_the_test_rejects() -> None:
    random = np.random.default_rng(0)
    for n in (8, 12, 24):
        for shift in (0.0, 0.4, 0.8):
            effect = paired_effect(random.normal(shift, 1.5, n))
            assert effect.ci is not None and effect.p is not None
            excludes = effect.ci.lo > 0 or effect.ci.hi < 0
            assert excludes == (effect.p <= 0.05)


def test_the_exact_p_is_the_share_of_sign_flips_that_are_as_extreme() -> None:
    values = np.array([1.0, 2.0, -0.5, 3.0, 0.25, 1.5, 0.75])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 7)).reshape(7, -1)
    reached = (np.abs(values @ signs) >= values.sum() - 1e-12).mean()
    assert paired_effect(values).p == pytest.approx(reached)


def test_equal_differences_do_not_make_an_effect_certain() -> None:
    for n in (6, 12, 24):
        ci = paired_effect([0.0] * n).ci
        assert ci is not None and ci.hi == -ci.lo > 0
    assert paired_effect([0.0] * 5).ci is None


def test_a_small_effect_that_is_evident_is_no_fault() -> None:
    effect = paired_effect([0.1, 0.12, 0.08, 0.11] * 6)
    assert effect.p is not None and effect.p < 0.001
    assert decide(["unmoved"], [effect]) == ["yes"]


def test_a_fall_is_no_fault_of_a_visual_cue_and_one_of_a_sentence() -> None:
    effect = paired_effect(np.linspace(-1.2, -0.8, 24))
    assert decide(["unpaid", "unmoved"], [effect, effect]) == ["yes", "no"]


def test_noise_is_bounded_by_as_many_degrees_of_freedom_as_photographs() -> None:
    assert noise_effect([1.0] * 24).decision == "no"
    assert noise_effect([0.25] * 24).decision == "not_shown"
    assert noise_effect([0.01] * 24).decision == "yes"
    assert noise_effect([]).decision == "not_shown"


def test_lines_have_names_of_their_own() -> None:
    names = [line.name for line in lines()]
    assert len(names) == len({*names})
