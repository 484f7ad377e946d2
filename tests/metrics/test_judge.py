"""The judge `metrics` in runs, stores, tables and exports: as any other, with decimals and a direction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from skimage import data

import editjudge as ej
from editjudge.errors import UsageError
from tests.faults import raises, shows
from tests.running.made import editjudge

PHOTOGRAPH = np.asarray(data.astronaut()[:200, :220])
MASK = np.zeros(PHOTOGRAPH.shape, np.uint8)
MASK[80:120, 80:120] = 255
TRUTH = np.where(MASK > 0, 255 - PHOTOGRAPH, PHOTOGRAPH)


def saved(folder: Path, name: str, picture: Any) -> str:
    cv2.imwrite(str(folder / name), np.asarray(picture, np.uint8)[..., ::-1])
    return name


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 photographs; `near` adds little noise, `far` much; each has a mask, every second one a ground truth."""
    tmp_path = tmp_path_factory.mktemp("edits")
    rng = np.random.default_rng(0)
    rows = []
    mask = saved(tmp_path, "mask.png", MASK)
    for n in range(40):
        before = np.roll(PHOTOGRAPH, 5 * n, axis=1)
        truth = np.where(MASK > 0, 255 - before, before)
        shared = {
            "input": saved(tmp_path, f"in{n}.png", before),
            "mask": mask,
            "instruction": "invert the square",
        }
        if n % 2 == 0:
            shared["ground_truth"] = saved(tmp_path, f"gt{n}.png", truth)
        for model, strength in (("near", 3), ("far", 30)):
            edited = np.clip(truth + rng.normal(0, strength, truth.shape), 0, 255)
            name = saved(tmp_path, f"{model}{n}.png", edited)
            rows.append({"id": f"{model}{n}", "model": model, "edited": name, **shared})
    path = tmp_path / "edits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def store(manifest: Path) -> Path:
    place = manifest.with_name("s.db")
    done = editjudge(
        "run", manifest, "--judge", "metrics", "--name", "m", "--store", place
    )
    assert done.code == 0, done.err
    return place


def judged(**edit: Any) -> dict[str, Any]:
    return dict(ej.judge(judge="metrics", **pictures(**edit)))


def pictures(**edit: Any) -> dict[str, Any]:
    return {
        role: cv2.imencode(".png", picture[..., ::-1])[1].tobytes()
        for role, picture in edit.items()
    }


def test_a_black_frame_is_bad_and_an_unchanged_output_is_best_but_for_psnr() -> None:
    black = judged(input=PHOTOGRAPH, edited=np.zeros_like(PHOTOGRAPH))["metrics"]
    assert (
        black.scores["l1"] > 0.3
        and black.scores["psnr"] < 10
        and black.scores["ssim"] < 0.2
    )
    same = judged(input=PHOTOGRAPH, edited=PHOTOGRAPH)["metrics"]
    assert (same.scores["l1"], same.scores["ssim"]) == (0.0, 1.0)
    assert "infinite" in same.abstained["psnr"] and "psnr" not in same.scores


def test_without_a_ground_truth_its_metrics_abstain_and_nothing_fails() -> None:
    result = judged(input=PHOTOGRAPH, edited=TRUTH)
    assert result["metrics_truth"].status == "abstained"
    assert set(result["metrics_truth"].abstained.values()) == {
        "the edit has no ground truth that can be read"
    }
    assert "mask" in result["metrics"].abstained["ssim_outside"]


def test_inside_and_outside_the_mask_against_input_and_ground_truth() -> None:
    found = judged(input=PHOTOGRAPH, edited=TRUTH, ground_truth=TRUTH, mask=MASK)
    assert (
        found["metrics"].scores["l1_outside"] == 0.0
        and found["metrics"].scores["l1"] > 0
    )
    assert found["metrics_truth"].scores["l1_inside_truth"] == 0.0


def test_the_metrics_of_a_run_are_exported_as_decimals_and_read_back(
    store: Path, tmp_path: Path
) -> None:
    for form in ("jsonl", "parquet"):
        out = tmp_path / form
        assert (
            editjudge("export", "m", "--store", store, "-o", out, "--format", form).code
            == 0
        )
        done = editjudge("import-run", out, "--store", tmp_path / f"{form}.db")
        assert done.code == 0, done.err
    reports = [
        editjudge("report", "m", "--json", "--store", tmp_path / f"{form}.db").out
        for form in ("jsonl", "parquet")
    ]
    factors = [json.loads(report)["factors"] for report in reports]
    assert factors[0] == factors[1] and any(
        0 < (cell["mean"] or 0) < 1 for cell in factors[0]
    )


def test_metrics_are_never_added_up(store: Path) -> None:
    answer = json.loads(editjudge("report", "m", "--json", "--store", store).out)
    assert (
        answer["aggregates"] == []
        and answer["formulas"] == []
        and answer["pass_rates"] == []
    )


def test_the_same_pictures_are_not_computed_twice(manifest: Path, store: Path) -> None:
    again = editjudge(
        "run", manifest, "--judge", "metrics", "--name", "m", "--store", store, "--json"
    )
    assert json.loads(again.out)["asked"] == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("--judge", "measured", "--rubric", "metrics"),
            "only --judge metrics answers it",
        ),
        (("--judge", "metrics", "--rubric", "online"), "cannot answer preservation"),
        (("--judge", "metrics", "--judge", "measured"), "cannot answer preservation"),
    ],
)
def test_a_judge_is_not_asked_for_what_it_cannot_answer(
    manifest: Path, words: tuple[str, ...], complaint: str
) -> None:
    done = editjudge("run", manifest, *words, "--store", manifest.with_name("t.db"))
    assert done.code == 2 and complaint in done.err
    assert not manifest.with_name("t.db").exists()


def test_a_rubric_of_ones_own_takes_the_metrics_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: mine\nimages: [input, edited]\ncomputed_by: metrics\nanswer: {}\n"
        "factors: [{key: mse_inside, scale: {range: [0, 1]}}, {key: beauty, scale: {range: [0, 1]}}]\n"
    )
    encoded = pictures(input=PHOTOGRAPH, edited=TRUTH, mask=MASK)
    result = ej.judge(judge="metrics", rubrics=str(path), **encoded)["mine"]
    assert result.scores and result.scores["mse_inside"] > 0
    assert result.abstained == {"beauty": 'no metric is called "beauty"'}
    with raises(UsageError, "computed_rubric", 'judge="metrics"'):
        ej.judge(judge="measured", rubrics=str(path), **encoded)


def test_tables_mark_what_is_better_when_lower_and_round_each_factor_by_itself(
    store: Path,
) -> None:
    report = editjudge("report", "m", "--store", store).out
    assert (
        "l1 \u2193" in report
        and "ssim \u2193" not in report
        and "\u2193: lower is better" in report
    )
    lines = {
        line.split()[0]: line
        for line in report.splitlines()
        if line.startswith(("psnr ", "mse "))
    }
    assert (
        "0.00 [" not in lines["mse"]
        and len(lines["psnr"].split("[")[0].split()[-1].split(".")[1]) < 4
    )


def test_compare_says_in_words_and_fields_which_direction_is_better(
    store: Path,
) -> None:
    words = (
        "compare",
        "m",
        "--a",
        "near",
        "--b",
        "far",
        "--factor",
        "l1",
        "--factor",
        "psnr",
        "--store",
        store,
    )
    answer = json.loads(editjudge(*words, "--json").out)
    found = {one["factor"]: one for one in answer["comparisons"]}
    assert found["l1"]["direction"] == "down" and found["psnr"]["direction"] == "up"
    assert found["l1"]["verdict"].startswith("far scores higher than near")
    assert found["l1"]["verdict"].endswith("; lower is better")
    assert found["psnr"]["verdict"].startswith("far scores lower than near")
    assert "l1 \u2193" in editjudge("compare", "m", "--store", store).out


def test_an_interval_of_a_figure_does_not_reach_for_the_ends_of_its_scale(
    store: Path,
) -> None:
    cells = json.loads(editjudge("report", "m", "--json", "--store", store).out)[
        "factors"
    ]
    (cell,) = (
        cell for cell in cells if (cell["factor"], cell["model"]) == ("l1", "near")
    )
    assert cell["ci"] is not None and cell["ci"][1] - cell["ci"][0] < 0.2 * cell["mean"]


def test_ranks_follow_the_direction(store: Path) -> None:
    ranks = json.loads(editjudge("report", "m", "--json", "--store", store).out)[
        "ranks"
    ]
    first = {one["factor"]: one["model"] for one in ranks if one["rank"] == 1}
    assert {first[factor] for factor in ("l1", "mse", "psnr", "ssim", "l1_truth")} == {
        "near"
    }


def test_a_page_has_no_best_edits_by_what_did_not_look_at_the_instruction(
    store: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    assert editjudge("report", "m", "--store", store, "-o", page).code == 0
    text = page.read_text()
    assert 'id="best"' not in text and 'id="worst"' not in text and "ms_ssim" in text


def gate(store: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = editjudge("gate", "m", "--store", store, "--json", *words)
    return done.code, json.loads(done.out)


def test_a_gate_holds_a_distance_against_a_maximum(store: Path) -> None:
    code, answer = gate(store, "--model", "far", "--max", "l1=0.01")
    (check,) = answer["checks"]
    assert (
        code == 100
        and check["rule"] == "l1 <= 0.01"
        and "wholly above 0.01" in check["reason"]
    )
    assert (
        check["ci"][0] <= check["estimate"] <= check["ci"][1]
        and check["estimate"] > 0.01
    )
    code, answer = gate(store, "--model", "near", "--max", "l1=0.4", "--min", "psnr=5")
    assert code == 0 and {check["outcome"] for check in answer["checks"]} == {"pass"}
    assert all(check["estimate"] > 0 for check in answer["checks"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--max", "l1=0.1", "--min", "l1=0.1"), "l1 has two limits"),
        (("--max", "psnr=30"), "--min psnr=30"),
        (("--max", "l1=7"), "from 0 to 1"),
    ],
)
def test_a_limit_that_cannot_be_meant_says_what_can(
    store: Path, words: tuple[str, ...], complaint: str
) -> None:
    done = editjudge("gate", "m", "--store", store, *words)
    assert done.code == 2 and complaint in done.err


def test_against_a_baseline_a_distance_may_not_rise(
    manifest: Path, store: Path
) -> None:
    place = ("--store", store, "--judge", "metrics")
    for model in ("near", "far"):
        assert (
            editjudge("run", manifest, *place, "--model", model, "--name", model).code
            == 0
        )
    arguments = ("gate", "far", "--store", store, "--baseline", "near", "--json")
    worse = editjudge(*arguments, "--max-drop", "l1=0.001", "--max-drop", "psnr=1")
    checks = {check["factor"]: check for check in json.loads(worse.out)["checks"]}
    assert worse.code == 100 and set(checks) == {"l1", "psnr"}
    assert (
        shows(checks["l1"]["rule"], "l1 rises", 0.001)
        and checks["l1"]["outcome"] == "fail"
    )
    assert checks["l1"]["estimate"] > 0 > checks["psnr"]["estimate"]
    back = (
        "gate",
        "near",
        "--store",
        store,
        "--baseline",
        "far",
        "--max-drop",
        "l1=0.001",
        "--json",
    )
    assert json.loads(editjudge(*back).out)["outcome"] != "fail"
