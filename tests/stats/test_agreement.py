from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, pearsonr, spearmanr

from editjudge.report.words import plain, reason_text
from editjudge.stats.agreement import OTHER_SCALE, agree, halo, spearman_bounds
from editjudge.stats.ceiling import Pairs, estimate
from editjudge.stats.columns import Ratings, Reason, Scores

from .made import likert, valid_json

MODELS = 6
GROUPS = 30


def study(
    seed: int = 0, *, model_shift: float = 1.0
) -> tuple[Ratings, Scores, dict[str, Any]]:
    """Two factors, three raters, six models on thirty images, a judge asked twice."""
    rng = np.random.default_rng(seed)
    n = MODELS * GROUPS
    model = np.repeat(np.arange(MODELS), GROUPS)
    group = np.tile(np.arange(GROUPS), MODELS)
    quality = model_shift * (model / MODELS - 0.5) + rng.normal(0, 0.8, n)
    ratings = []
    scores = []
    for factor in ("alignment", "completeness"):
        own = quality + rng.normal(0, 0.3, n)
        for rater in range(3):
            ratings += [
                (i, f"r{rater}", factor, s)
                for i, s in enumerate(likert(own + rng.normal(0, 0.5, n)))
            ]
        for repeat in range(2):
            scores += [
                (i, factor, s, repeat)
                for i, s in enumerate(likert(own + rng.normal(0, 0.6, n)))
            ]
    people = Ratings.of(*(list(c) for c in zip(*ratings, strict=True)))
    items = [i for i, *_ in scores]
    judged = Scores.of(
        items, [f for _, f, *_ in scores], [s for *_, s, _ in scores], judge=["j"] * len(items),
        model=[f"m{model[i]}" for i in items], group=[group[i] for i in items], repeat=[r for *_, r in scores],
    )  # fmt: skip
    means = {
        "people": np.array(
            [
                np.mean([s for i, _, f, s in ratings if i == k and f == "alignment"])
                for k in range(n)
            ]
        ),
        "judge": np.array(
            [
                np.mean([s for i, f, s, _ in scores if i == k and f == "alignment"])
                for k in range(n)
            ]
        ),
        "model": model,
    }
    return people, judged, means


def test_figures_are_over_one_pair_per_item_means_on_both_sides() -> None:
    people, judged, means = study()
    found = agree(people, judged, draws=50).factors["alignment"]["j"]
    x = means["judge"]
    y = means["people"]
    assert found.n == MODELS * GROUPS
    assert found.spearman == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert found.pearson == pytest.approx(pearsonr(x, y).statistic, abs=1e-12)
    assert found.kendall == pytest.approx(kendalltau(x, y).statistic, abs=1e-12)
    assert found.mae == pytest.approx(np.mean(np.abs(x - y)), abs=1e-12)
    assert found.bias == pytest.approx(np.mean(x - y), abs=1e-12)


def test_within_model_is_the_mean_over_models() -> None:
    people, judged, means = study(model_shift=4)
    found = agree(people, judged, draws=50).factors["alignment"]["j"]
    each = [
        spearmanr(
            means["judge"][means["model"] == m], means["people"][means["model"] == m]
        ).statistic
        for m in range(MODELS)
    ]
    assert found.within_model.spearman == pytest.approx(np.mean(each), abs=1e-12)
    assert found.spearman is not None and found.spearman > np.mean(each)


def test_system_level_is_over_the_means_of_models() -> None:
    people, judged, _ = study(model_shift=4)
    found = agree(people, judged, draws=200).factors["alignment"]["j"].system
    assert found.models == MODELS
    assert found.spearman is not None and found.spearman > 0.9
    assert (ci := found.ci["pearson"]) is not None and ci.lo > 0.8


def test_the_json_has_the_keys_that_others_rely_on() -> None:
    people, judged, _ = study()
    answer = json.loads(
        json.dumps(plain(agree(people, judged, draws=50)), allow_nan=False)
    )
    figures = answer["factors"]["alignment"]["j"]
    assert {"n", "spearman", "pearson", "kendall", "mae", "ci"} <= set(figures)
    assert all(
        len(figures["ci"][name]) == 2
        for name in ("spearman", "pearson", "kendall", "mae")
    )
    human = answer["humans"]["alignment"]
    assert {"raters", "alpha_interval", "alpha_ordinal", "icc1", "loo_spearman"} <= set(
        human
    )
    assert human["raters"] == 3


@pytest.mark.parametrize(("noise", "verdict"), [(2.5, "below"), (0.0, "above")])
def test_a_judge_is_below_or_above_a_further_rater_by_the_interval_of_the_difference(
    noise: float, verdict: str
) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 150)
    rows = [
        (str(n), f"r{r}", "f", s)
        for r in range(3)
        for n, s in enumerate(likert(truth + rng.normal(0, 0.9, 150)))
    ]
    people = Ratings.of(*(list(column) for column in zip(*rows, strict=True)))
    items = [str(n) for n in range(150)]
    judged = Scores.of(
        items, ["f"] * 150, truth + rng.normal(0, noise, 150), judge=["j"] * 150
    )
    one = agree(people, judged, draws=200).factors["f"]["j"]
    standing = one.against_further_rater
    assert standing.verdict == verdict and standing.ci is not None
    assert (
        one.further_rater is not None
        and one.further_rater.spearman is not None
        and one.spearman is not None
    )
    assert standing.difference == pytest.approx(
        one.spearman - one.further_rater.spearman
    )
    assert standing.ci.hi < 0 if verdict == "below" else standing.ci.lo > 0


def test_failed_scores_are_left_out_and_counted() -> None:
    people, judged, _ = study()
    part = judged.where(factor="alignment", judge="j")
    score = part.score.copy()
    score[np.isin(part.item.codes, [0, 1, 2])] = np.nan
    holes = Scores.of(
        part.item,
        part.factor,
        score,
        judge=part.judge,
        model=part.model,
        group=part.group,
    )
    found = agree(people, holes, draws=50).factors["alignment"]["j"]
    assert (found.n, found.unscored) == (MODELS * GROUPS - 3, 3)


def test_against_ratings_without_noise_a_judge_does_better() -> None:
    people, judged, _ = study()
    found = agree(people, judged, draws=50).factors["alignment"]["j"]
    assert found.corrected is not None and found.spearman is not None
    assert found.spearman < found.corrected <= 1


def test_a_judge_that_gives_one_score_is_told_so() -> None:
    people = Ratings.of("aabbcc", "rsrsrs", "ffffff", [1, 2, 3, 4, 5, 6])
    found = agree(
        people,
        Scores.of("abc", "fff", [7, 7, 7], judge="jjj"),
        scales={"f": range(1, 8)},
    )
    figures = found.factors["f"]["j"]
    assert (
        figures.spearman is None and figures.pearson is None and figures.kendall is None
    )
    assert figures.mae is not None
    assert any(
        "the judge gave every item the same score" in reason_text(note)
        for note in figures.notes
    )
    assert (figures.top, figures.floor) == (1, 0)
    valid_json(found)


def test_a_factor_that_nobody_rated_has_no_pairs_and_says_so() -> None:
    people = Ratings.of("ab", "rr", "ff", [1, 2])
    found = agree(people, Scores.of("ab", "gg", [1, 2], judge="jj")).factors["g"]["j"]
    assert found.n == 0 and found.spearman is None and set(found.ci.values()) == {None}
    assert found.notes == (Reason("nothing_in_common"),)


def test_scores_on_another_scale_are_not_rescaled_but_said_to_be() -> None:
    people = Ratings.of("abc", "rrr", "fff", [0, 0.5, 1])
    found = agree(people, Scores.of("abc", "fff", [1, 5, 9], judge="jjj")).factors["f"][
        "j"
    ]
    assert found.mae == pytest.approx(4.5)
    assert found.spearman == pytest.approx(1)
    assert OTHER_SCALE in found.notes


def test_within_one_is_one_step_of_the_peoples_scale() -> None:
    people = Ratings.of("abcd", "rrrr", "ffff", [0, 0.5, 1, 1])
    found = agree(
        people, Scores.of("abcd", "ffff", [0, 0, 0, 1], judge="jjjj")
    ).factors["f"]["j"]
    assert (found.exact, found.within_one) == (0.5, 0.75)


def test_one_impression_for_all_factors_is_a_halo() -> None:
    same = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert halo({"x": same, "y": same}) == pytest.approx(1)
    assert halo({"x": same}) is None
    people, judged, _ = study()
    found = agree(people, judged, draws=50).halo
    assert found.people is not None and 0 < found.people < 1
    assert found.judges["j"] is not None


@given(
    st.sampled_from([(0, 1), (1, 3, 5)]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=6),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
@settings(max_examples=40, deadline=None)
def test_bounds_of_spearman_are_those_of_all_fills(
    scale: tuple[int, ...], known: list[tuple[int, int]], missing: list[int]
) -> None:
    x, y = np.array([[scale[i % len(scale)], rating] for i, rating in known], float).T
    worst, best, exact = spearman_bounds(x, y, np.array(missing, float), scale)
    every = [
        estimate(
            Pairs(np.r_[x, fill], np.r_[y, missing], np.arange(len(x) + len(missing)))
        )["spearman"]
        for fill in itertools.product(scale, repeat=len(missing))
    ]
    defined = [rho for rho in every if np.isfinite(rho)]
    assert exact
    if defined:
        assert (worst, best) == pytest.approx((min(defined), max(defined)))


def half_failed(n: int) -> tuple[Ratings, Scores]:
    rating = np.random.default_rng(0).integers(1, 8, n).astype(float)
    items = [f"i{k}" for k in range(n)]
    given = [None if k % 2 else r for k, r in enumerate(rating)]
    return Ratings.of(items, ["r"] * n, ["f"] * n, rating), Scores.of(
        items, ["f"] * n, given, judge=["j"] * n
    )


def test_scores_that_failed_bound_what_agreement_may_be() -> None:
    people, scores = half_failed(80)
    found = agree(people, scores, scales={"f": range(1, 8)}).factors["f"]["j"]
    assert found.spearman == pytest.approx(1) and found.failed == 40
    assert found.bounds is not None and found.bounds.worst is not None
    assert found.bounds.best is not None and 0.85 < found.bounds.best < 1
    assert found.bounds.worst < 0.1 and found.overturnable and not found.bounds_exact
    assert (
        found.mae_bounds is not None
        and found.mae_bounds.best == 0
        and (found.mae_bounds.worst or 0) > 1.5
    )


def test_without_a_scale_failed_scores_have_no_bounds_and_may_overturn() -> None:
    found = agree(*half_failed(80)).factors["f"]["j"]
    assert found.bounds is None and found.bounds_reason and found.overturnable
    none_failed = agree(
        half_failed(80)[0], Scores.of(["i0", "i1", "i2"], "fff", [1, 2, 3], judge="jjj")
    )
    assert not none_failed.factors["f"]["j"].overturnable


def test_perfect_agreement_has_no_interval_without_width() -> None:
    people, _ = half_failed(80)
    scores = Scores.of(people.item, people.factor, people.score, judge=["j"] * 80)
    found = agree(people, scores, scales={"f": range(1, 8)}).factors["f"]["j"]
    assert (
        found.spearman == pytest.approx(1)
        and found.ci["spearman"] is None
        and found.ci_reason["spearman"]
    )
    assert found.ci["exact"] is not None and found.ci["exact"].lo == pytest.approx(
        0.025 ** (1 / 80)
    )
    assert found.ci["mae"] is not None and found.ci["mae"].hi > 0.1


def test_failed_repeats_are_counted_and_widen_the_bounds() -> None:
    items = [str(n) for n in range(40) for _ in range(3)]
    truth = np.repeat(1 + np.arange(40) % 7, 3).astype(float)
    score = [value if row % 3 == 0 else None for row, value in enumerate(truth)]
    judged = Scores.of(
        items, ["f"] * 120, score, judge=["j"] * 120, repeat=[n % 3 for n in range(120)]
    )
    people = Ratings.of(items[::3], ["p"] * 40, ["f"] * 40, truth[::3])
    found = agree(people, judged, scales={"f": range(1, 8)}, draws=200).factors["f"][
        "j"
    ]
    assert (found.n, found.failed, found.overturnable, found.bounds_exact) == (
        40,
        80,
        True,
        False,
    )
    assert (
        found.bounds is not None
        and found.bounds.worst is not None
        and found.bounds.worst < 0
    )
    assert found.bounds.best == pytest.approx(1)
    assert found.mae_bounds is not None and found.mae_bounds.best == 0
    assert found.mae_bounds.worst == pytest.approx(
        np.mean(2 / 3 * np.maximum(truth - 1, 7 - truth))
    )


@pytest.mark.parametrize(("spread", "given"), [(0.0, False), (1.0, True)])
def test_models_that_do_not_differ_have_no_interval_of_their_correlation(
    spread: float, given: bool
) -> None:
    rng = np.random.default_rng(3)
    models = 8
    images = 60
    level = np.repeat(spread * np.arange(models), images)
    items = [str(n) for n in range(models * images)]
    model = np.repeat(list("abcdefgh"), images)
    judged = Scores.of(items, ["f"] * len(items), level + rng.normal(size=len(level)), judge=["j"] * len(items),
                       model=model, group=np.tile(np.arange(images), models))  # fmt: skip
    people = Ratings.of(
        items,
        ["p"] * len(items),
        ["f"] * len(items),
        level + rng.normal(size=len(level)),
    )
    system = agree(people, judged, draws=200).factors["f"]["j"].system
    assert (system.ci["pearson"] is not None) is given
    reason = system.ci_reason.get("pearson")
    assert (reason is not None and reason.code == "models_within_error") is not given
