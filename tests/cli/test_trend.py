"""`editjudge trend`: scores over the checkpoints of a training."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from editjudge.store.store import Store
from tests.faults import check_error
from tests.running.made import edits, run, stub

from .stores import Call, Spec, call, made

__all__ = ["call"]

LEVELS = {"ckpt-1000": 2.5, "ckpt-2000": 5.5, "ckpt-10000": 5.5, "base": 2.0}


def by_checkpoint(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
    noise = np.random.default_rng([n, len(model), len(factor)]).normal(0, 0.8)
    return int(np.clip(round(LEVELS[model] + (n % 5 - 2) / 2 + noise), 1, 7))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """One run with three checkpoints and the model they began from."""
    return made(tmp_path / "s.db", Spec("all", models=[*LEVELS]), by_checkpoint)


@pytest.fixture
def separate(tmp_path: Path) -> Path:
    """A run for each checkpoint."""
    store = tmp_path / "s.db"
    for model in ("ckpt-10000", "ckpt-1000", "ckpt-2000"):
        step = int(model.removeprefix("ckpt-"))
        made(store, Spec(model, models=[model], spec={"step": step}), by_checkpoint)
    return store


FROM = ("--step-from", r"ckpt-(\d+)")


def test_steps_are_in_the_order_of_their_numbers_with_intervals(
    call: Call, store: Path
) -> None:
    document = call("trend", "all", *FROM, "--store", store, "--json").document
    points = document["factors"]["alignment"]
    assert [point["step"] for point in points] == [1000, 2000, 10000]
    for point in points:
        assert point["ci"][0] < point["mean"] < point["ci"][1] and point["n"] == 24
    assert document["left_out"] == ["base"]
    assert document["shared_edits"] == 24


def test_the_best_step_is_given_with_those_that_cannot_be_told_from_it(
    call: Call, store: Path
) -> None:
    best = call("trend", "all", *FROM, "--store", store, "--json").document["best"]
    for name in ("alignment", "overall"):
        steps = {best[name]["step"], *best[name]["ties"]}
        assert steps == {2000, 10000}


def test_runs_of_a_step_each_give_what_one_run_of_them_all_gives(
    call: Call, store: Path, separate: Path
) -> None:
    together = call("trend", "all", *FROM, "--store", store, "--json").document
    names = ("ckpt-1000", "ckpt-10000", "ckpt-2000")
    apart = call("trend", *names, "--store", separate, "--json").document
    assert apart["factors"] == together["factors"]
    assert apart["best"] == together["best"]
    assert [step["run"] for step in apart["steps"]] == [
        "ckpt-1000",
        "ckpt-2000",
        "ckpt-10000",
    ]


def test_failures_stay_in_the_denominator_of_their_step(
    call: Call, tmp_path: Path
) -> None:
    def failing(model: str, n: int, *rest: object) -> float | str:
        return "invalid" if model == "ckpt-2" and n < 6 else 4

    store = made(tmp_path / "s.db", Spec(models=["ckpt-1", "ckpt-2"]), failing)
    document = call("trend", "r", *FROM, "--store", store, "--json").document
    first, second = document["steps"]
    assert (first["failed"], second["failed"], second["judgements"]) == (0, 6, 24)
    point = document["factors"]["alignment"][1]
    assert (point["ok"], point["n"]) == (18, 24)


def test_the_page_has_a_chart_for_each_score(
    call: Call, store: Path, tmp_path: Path
) -> None:
    page = tmp_path / "trend.html"
    assert call("trend", "all", *FROM, "--store", store, "-o", page).code == 0
    text = page.read_text()
    assert text.count('class="trend"') == 6 and "<script" not in text
    table = tmp_path / "trend.csv"
    assert call("trend", "all", *FROM, "--store", store, "-o", table).code == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["step"] for row in rows} == {"1000.0", "2000.0", "10000.0"}


def test_one_step_is_the_only_one(call: Call, separate: Path) -> None:
    done = call("trend", "ckpt-1000", "--store", separate)
    assert (done.code, "the only step" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (["all"], "--step"),
        (["all", "--step-from", "ckpt-("], "regular expression"),
        (["all", "--step-from", "ckpt-.(.)"], "not a number"),
        (["all", "--step-from", "step(\\d+)"], "ckpt-1000"),
        (["ckpt-1000"], "ckpt-1000"),
    ],
    ids=["no step", "bad pattern", "no number", "nothing", "several models"],
)
def test_what_is_no_step_is_an_error(
    typed: list[str], named: str, call: Call, store: Path
) -> None:
    made(
        store,
        Spec("ckpt-1000", models=["ckpt-1000", "base"], spec={"step": 1}),
        by_checkpoint,
    )
    if typed[-1].endswith("(.)"):
        made(store, Spec("named", models=["base"]), by_checkpoint)
        typed = ["named", "--step-from", "b(.)se"]
    done = call("trend", *typed, "--store", store)
    assert done.code in (1, 2) and named in done.err


def test_two_runs_of_one_step_are_an_error_that_names_both(
    call: Call, separate: Path
) -> None:
    made(
        separate,
        Spec("twin", models=["ckpt-1000"], salt="x", spec={"step": 1000}),
        by_checkpoint,
    )
    done = call("trend", "ckpt-1000", "twin", "--store", separate)
    assert done.code == 2 and "ckpt-1000" in done.err and "twin" in done.err


def test_a_run_stores_its_step_and_another_step_is_another_spec(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 2)
    store = tmp_path / "s.db"
    with stub():
        run(manifest, store, step=2000.0, rubrics=("fidelity",))
    with Store.open(store, readonly=True) as opened:
        (record,) = opened.runs()
    assert record.spec["step"] == 2000


def test_outputs_that_are_their_input_are_counted_as_unchanged(
    call: Call, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 3)
    (tmp_path / "edited-1.png").write_bytes((tmp_path / "input-0.png").read_bytes())
    store = tmp_path / "s.db"
    with stub():
        run(manifest, store, rubrics=("fidelity",), manner={"name": "r"})
    typed = ("trend", "r", "--step-from", r"m(\d)", "--store", store, "--json")
    steps = call(*typed).document["steps"]
    assert [(step["edits"], step["unchanged"]) for step in steps] == [(2, 0), (1, 1)]


@pytest.mark.parametrize("step", ["nan", "inf"])
def test_a_step_is_a_finite_number(step: str, call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec(models=[step]))
    done = call("trend", "r", "--step-from", "(.*)", "--store", store, "--json")
    assert done.code == 2 and step in done.err + done.out


def test_steps_without_a_score_are_an_error(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec(models=["ckpt-1"]), lambda *_: "invalid")
    done = call("trend", "r", *FROM, "--store", store)
    assert done.code == 1
    check_error(done.error, "no_scores")


def test_an_unknown_model_is_named(call: Call, store: Path) -> None:
    done = call("trend", "all", *FROM, "--model", "bas", "--store", store)
    assert done.code == 2 and '"base"' in done.err


def test_failures_are_those_of_the_judge_that_decides(
    call: Call, tmp_path: Path
) -> None:
    def say(model: str, n: int, judge: str, *rest: object) -> float | str:
        return "invalid" if judge == "openai/b" else 1 + n % 7

    judges = ("openai/a", "openai/b")
    store = made(tmp_path / "s.db", Spec(models=["ckpt-1"], judges=judges), say)
    typed = ("trend", "r", *FROM, "--store", store, "--json", "--judge", "openai/a")
    (step,) = call(*typed).document["steps"]
    assert (step["failed"], step["judgements"]) == (0, 24)
