"""The simulations behind the tables of docs/statistics.md: that they draw and count what they say."""

from __future__ import annotations

import numpy as np
import pytest

from bench import coverage
from bench.coverage import Drawn, Sample
from editjudge.report.selection import panel_mean
from editjudge.stats.columns import Scores
from editjudge.stats.compare import compare


@pytest.mark.parametrize("name", coverage.families())
def test_a_family_is_drawn_about_its_truth(name: str) -> None:
    family = coverage.families()[name]
    rng = np.random.default_rng(0)
    means = [np.nanmean(family.draw(rng, 400).values) for _ in range(200)]
    error = np.std(means) / np.sqrt(len(means))
    assert np.mean(means) == pytest.approx(family.truth, abs=5 * error)


def test_a_sample_of_a_batch_is_compared_as_if_it_were_alone() -> None:
    family = coverage.families()["realistic"]
    samples = coverage.drawn(family, 40, 3)
    batch = coverage.compared(samples)
    for sample, d in zip(samples, batch, strict=True):
        items = range(len(sample.values))
        factor = ["f"] * len(sample.values)
        before = Scores.of(
            items, factor, np.zeros(len(sample.values)), group=sample.images
        )
        after = Scores.of(items, factor, sample.values, group=sample.images)
        (alone,) = compare(before, after, on="item", scales={"f": coverage.SEVEN})
        assert d.ci == pytest.approx(alone.ci)
        assert d.p == pytest.approx(alone.p)
        assert (d.level, d.method) == (alone.level, alone.method)


def test_coverage_counts_truths_inside_and_widths_beside_students_t() -> None:
    sample = Sample(np.tile([-1.0, 1.0], 50), np.arange(100))
    rows = coverage.compared([sample])
    inside = coverage.coverage_of(rows, 0.0)
    outside = coverage.coverage_of(rows, 3.0)
    assert (inside["coverage"], outside["coverage"]) == (1.0, 0.0)
    assert inside["studentised"] == 1.0
    assert inside["width_to_t"] == pytest.approx(1, abs=0.1)


def test_a_choice_of_the_method_counts_misses_of_the_samples_that_it_studentises() -> (
    None
):
    hit = Drawn(kurtosis=0.05, skewness=0.0, even=60, hit=True)
    miss = Drawn(kurtosis=0.1, skewness=0.1, even=60, hit=False)
    cells = {images: [hit, miss, None, hit] for images in (30, 60, 100)}
    assert coverage.chosen(cells, 0, 7) == {
        "least_coverage": 0.75,
        "studentised": {"30": 0.75, "60": 0.75, "100": 0.75},
    }
    assert coverage.chosen(cells, 2, 7)["least_coverage"] == 1.0


def test_pairs_of_scored_edits_differ_by_the_usual_noise_and_the_drop() -> None:
    before, after, image = coverage.scored_edits(np.random.default_rng(0), 20_000, -0.3)
    gaps = after - before
    assert gaps[:, :3].std(axis=0) == pytest.approx(0.9, abs=0.03)
    assert gaps.mean(axis=0) == pytest.approx(-0.3, abs=0.03)
    assert set(np.bincount(image)) == {1, 2, 3}


def test_a_gate_fails_a_large_drop_and_passes_none() -> None:
    rng = np.random.default_rng(0)
    assert coverage.gate_outcome(rng, 60, 1.5, 0.3) == "fail"
    assert coverage.gate_outcome(rng, 300, 0.0, 0.5) == "pass"


def test_a_panel_has_the_mean_of_its_judges_on_every_edit() -> None:
    judges = [np.array([[1.0], [2.0]]), np.array([[3.0], [6.0]])]
    table = coverage.judged_table(judges, np.array([0, 1]))
    panel = panel_mean(table)
    assert panel.score.tolist() == [2.0, 4.0]
    assert panel.group.present() == ("0", "1")


def test_the_help_names_every_part() -> None:
    assert coverage.__doc__ is not None
    for name in coverage.PARTS:
        assert name in coverage.__doc__
