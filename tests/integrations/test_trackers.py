"""Runs are logged to the trackers themselves, offline, and read back with their own readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editjudge import plugins
from tests.running.made import editjudge, edits, expected, stub

KEY = "key-that-must-not-leave-the-process"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with six edits of two models in `data`, the first of which has no output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    (tmp_path / "data").mkdir()
    edits(tmp_path / "data", 6)
    return tmp_path


def run(folder: Path, *more: object, name: str = "r", fails: int = 1) -> Any:
    manifest = folder / "data" / "edits.jsonl"
    if fails:
        (folder / "data" / "edited-0.png").unlink(missing_ok=True)
    common = ("--judge", "openai/stub", "--store", folder / "s.db", "--json")
    with stub():
        return editjudge(
            "run", manifest, "--name", name, "--max-failures", "1", *common, *more
        )


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: {event.step: event.value for event in events.Scalars(tag)}
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_s_reader_finds_means_intervals_and_failures_at_each_step(
    folder: Path,
) -> None:
    right = expected(folder / "data" / "edits.jsonl")
    for step in (1000, 2000):
        told = run(folder, "--step", step, "--log", "tensorboard:tb", name=f"r{step}")
        assert told.code == 0, told.err
    logged = scalars(folder / "tb")
    scores = [right[f"e{n}", "fidelity"]["alignment"] for n in (1, 3, 5)]
    mean = logged["m1/alignment/mean"]
    assert mean == {step: pytest.approx(sum(scores) / 3) for step in (1000, 2000)}
    assert (
        logged["m1/alignment/lo"][1000] <= mean[1000] <= logged["m1/alignment/hi"][1000]
    )
    assert (logged["m0/alignment/ok"][1000], logged["m0/alignment/n"][1000]) == (2, 3)
    assert logged["m0/failures/missing_output"][1000] == 3  # once for each rubric
    assert logged["m1/failures/missing_output"][1000] == 0


def test_steps_are_read_from_the_names_of_models(folder: Path) -> None:
    run(folder, "--step-from", r"m(\d+)", "--log", "tensorboard:tb")
    assert {*scalars(folder / "tb")["alignment/mean"]} == {0, 1}


def test_a_score_that_nobody_gave_is_no_metric(folder: Path) -> None:
    for path in (folder / "data").glob("edited-*.png"):
        path.unlink()
    run(folder, "--log", "tensorboard:tb")
    logged = scalars(folder / "tb")
    assert "m0/alignment/mean" not in logged
    assert (logged["m0/alignment/ok"][0], logged["m0/alignment/n"][0]) == (0, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_s_client_finds_metrics_facts_and_the_worst_images(folder: Path) -> None:
    import mlflow

    told = run(folder, "--step", 7, "--log", f"mlflow:sqlite:///{folder}/m.db")
    assert told.code == 0 and told.json["logged"][0]["error"] is None, told.err
    client = mlflow.MlflowClient(f"sqlite:///{folder}/m.db")
    (stored,) = client.search_runs(["0"])
    metric = client.get_metric_history(stored.info.run_id, "m1/alignment/mean")
    assert [point.step for point in metric] == [7]
    assert stored.data.metrics["m0/failures/missing_output"] == 3
    assert stored.data.tags["editjudge.judges"] == "openai/stub"
    names = [f.path for f in client.list_artifacts(stored.info.run_id, "worst/step-7")]
    assert "worst/step-7/captions.json" in names and "worst/step-7/0.png" in names


def test_wandb_keeps_metrics_and_images_offline_and_no_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = run(folder, "--step", 7, "--log", "wandb:mine", "-J", f"api_token={KEY}")
    assert told.code == 0 and told.json["logged"][0]["error"] is None, told.err
    (log,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    data = log.read_bytes()
    for text in (b"m1/alignment/mean", b"m0/failures/missing_output", b"openai/stub"):
        assert text in data
    assert list((folder / "wandb").glob("offline-run-*/files/media/images/*.png"))
    for path in (folder / "wandb").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert KEY.encode() not in content and b"key-of-the-stub" not in content


@pytest.mark.parametrize("name", ["mlfow", ""])
def test_an_unknown_tracker_is_refused_before_a_judge_is_asked(
    folder: Path, name: str
) -> None:
    told = run(folder, "--log", name)
    assert told.code == 2 and "tensorboard" in told.err
    assert not (folder / "s.db").exists()


@pytest.mark.parametrize("name", ["mlflow", "wandb", "tensorboard"])
def test_a_missing_extra_is_named_before_a_judge_is_asked(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plugins.EXTRAS, name, {"no_such_module": "no-such-package"})
    told = run(folder, "--log", name)
    assert told.code == 2 and f"editjudge[{name}]" in told.err
    assert not (folder / "s.db").exists()


def test_a_step_with_decimals_is_refused_since_trackers_would_cut_it(
    folder: Path,
) -> None:
    assert run(folder, "--step", 0.5, "--log", "tensorboard").code == 2


def test_a_tracker_that_fails_is_reported_and_the_run_stays_as_it_was(
    folder: Path,
) -> None:
    (folder / "file").write_text("not a folder")
    told = run(folder, "--log", "tensorboard:file", "--log", "tensorboard:tb")
    assert told.code == 0
    failed, logged = told.json["logged"]
    assert failed["place"] is None and "Error" in failed["error"]
    assert "not logged to tensorboard" in told.err
    assert logged == {"tracker": "tensorboard", "place": "tb", "error": None}
    assert scalars(folder / "tb")


def test_exit_code_of_failed_judgements_is_the_same_with_a_tracker(
    folder: Path,
) -> None:
    told = run(folder, "--log", "tensorboard:tb", "--max-failures", "0")
    assert told.code == 3 and told.json["logged"][0]["place"] == "tb"


def test_win_rates_of_pairs_are_logged(folder: Path) -> None:
    from tests.running.made import edit_pairs

    edit_pairs(folder / "data", 4)
    told = run(folder, "--rubric", "preference", "--log", "tensorboard:tb", fails=0)
    assert told.code == 0, told.err
    logged = scalars(folder / "tb")
    rates = [logged[f"{model}/overall/win_rate"][0] for model in ("m0", "m1")]
    assert sum(rates) == pytest.approx(1)
