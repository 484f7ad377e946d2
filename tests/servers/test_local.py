"""`--judge gguf:MODEL.gguf`: a judge in a file, with the contract, the store and the keys of every judge."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench import tiny_model
from tests.faults import check_error
from tests.running.made import Told, editjudge, edits


def judge(spec: object, folder: Path, *words: object) -> Told:
    manifest = edits(folder, 1, referring_expression="the car")
    return editjudge(
        *(
            "judge",
            "--input",
            manifest.parent / "input-0.png",
            "--edited",
            manifest.parent / "edited-0.png",
        ),
        *(
            "--instruction",
            "Paint the car red.",
            "--referring-expression",
            "the car",
            "--rubric",
            "compliance",
        ),
        *("--judge", f"gguf:{spec}", "--json", "-J", "threads=1", *words),
    )


def run(spec: object, folder: Path, *words: object) -> Any:
    manifest = edits(folder, 2, referring_expression="the car")
    told = editjudge(
        *(
            "run",
            manifest,
            "--rubric",
            "compliance",
            "--judge",
            f"gguf:{spec}",
            "--store",
            folder / "s.db",
        ),
        *("--name", "r", "--json", "-J", "threads=1", *words),
    )
    assert told.out, told.err
    return told.json


def test_one_edit_is_judged_without_a_server_and_the_schema_is_enforced(
    tmp_path: Path, models: Path
) -> None:
    told = judge(models / "tiny" / "tiny.gguf", tmp_path)
    assert told.code == 0, told.err
    assert told.json["status"] == "ok" and set(told.json["scores"].values()) <= {
        1,
        3,
        5,
    }
    assert (told.json["schema_mode"], told.json["cost"]) == ("enforced", 0)
    assert "loading tiny.gguf and mmproj-tiny.gguf" in told.err


def test_a_run_resumes_by_the_digests_of_both_files_wherever_they_are(
    tmp_path: Path, models: Path
) -> None:
    first = run(models / "tiny" / "tiny.gguf", tmp_path)
    assert (first["statuses"], first["asked"], first["cost_usd"]) == ({"ok": 2}, 2, 0)
    shutil.copytree(models / "tiny", tmp_path / "copy")
    moved = run(tmp_path / "copy" / "tiny.gguf", tmp_path, "--name", "moved")
    assert (moved["asked"], moved["cached"]) == (0, 2)
    tiny_model.write(tmp_path / "other", seed=1)
    (tmp_path / "other" / "tiny.gguf").unlink()
    projector = tmp_path / "other" / "mmproj-tiny.gguf"
    other = run(
        models / "tiny" / "tiny.gguf",
        tmp_path,
        "--name",
        "other",
        "-J",
        f"mmproj={projector}",
    )
    assert (other["asked"], other["cached"]) == (2, 0)


def test_a_question_that_does_not_fit_names_the_option_of_this_judge(
    tmp_path: Path, models: Path
) -> None:
    (reason,) = judge(
        models / "tiny" / "tiny.gguf", tmp_path, "-J", "context=256"
    ).json["reasons"]
    assert reason["code"] == "context_too_small"
    assert (
        "256 tokens" in reason["message"] and "-J context=TOKENS" in reason["message"]
    )


@pytest.mark.parametrize(
    ("files", "words", "message"),
    [
        (["tiny.gguf"], [], "no projector (mmproj*.gguf) is beside it"),
        (["mmproj-tiny.gguf"], [], "is a projector; name the text model"),
        (
            ["tiny.gguf"],
            ["-J", "mmproj={folder}/tiny.gguf"],
            "is not a projector: its architecture is llama",
        ),
        (
            ["tiny.gguf"],
            ["-J", "mmproj={folder}/none.gguf"],
            "cannot be read: No such file",
        ),
        ([], [], "cannot be read: No such file"),
    ],
)
def test_wrong_files_are_named_before_anything_is_loaded(
    tmp_path: Path, models: Path, files: list[str], words: list[str], message: str
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in files:
        shutil.copy(models / "tiny" / name, folder)
    told = judge(
        folder / (files or ["tiny.gguf"])[0],
        tmp_path,
        *(word.format(folder=folder) for word in words),
    )
    assert told.code == 2 and message in told.err and "loading" not in told.err


def test_a_file_that_is_no_gguf_is_said(tmp_path: Path) -> None:
    (tmp_path / "weights.gguf").write_bytes(b"PK\x03\x04")
    result = judge(tmp_path / "weights.gguf", tmp_path)
    assert result.code == 2
    check_error(result.error, "not_gguf", "weights.gguf")


def test_two_projectors_must_be_told_apart(tmp_path: Path, models: Path) -> None:
    shutil.copytree(models / "tiny", tmp_path / "two")
    shutil.copy(
        tmp_path / "two" / "mmproj-tiny.gguf", tmp_path / "two" / "mmproj-other.gguf"
    )
    told = judge(tmp_path / "two" / "tiny.gguf", tmp_path)
    assert (
        told.code == 2
        and "several projectors" in told.err
        and "-J mmproj=FILE" in told.err
    )


def test_a_damaged_model_ends_the_run_with_the_reason(
    tmp_path: Path, models: Path
) -> None:
    shutil.copytree(models / "tiny", tmp_path / "cut")
    model = tmp_path / "cut" / "tiny.gguf"
    model.write_bytes(model.read_bytes()[:100_000])
    told = judge(model, tmp_path)
    assert told.code == 1 and "llama.cpp cannot load it" in told.err


def test_without_the_extra_its_name_is_said(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "xllamacpp" else found(name),
    )
    told = judge(models / "tiny" / "tiny.gguf", tmp_path)
    assert told.code == 2 and "pip install 'editjudge[local]'" in told.err


@pytest.mark.parametrize("word", ["threads=0", "parallel=x", "context=-1"])
def test_settings_of_the_engine_are_numbers(
    word: str, tmp_path: Path, models: Path
) -> None:
    told = judge(models / "tiny" / "tiny.gguf", tmp_path, "-J", word)
    assert told.code == 2 and f"-J {word}: expected a number" in told.err


def test_questions_are_answered_at_the_same_time_with_the_keys_of_one_at_a_time(
    tmp_path: Path, models: Path
) -> None:
    first = run(
        models / "tiny" / "tiny.gguf",
        tmp_path,
        "-J",
        "parallel=3",
        "-J",
        "context=4096",
        "--repeats",
        4,
    )
    assert (first["statuses"], first["asked"]) == ({"ok": 8}, 8)
    again = run(
        models / "tiny" / "tiny.gguf",
        tmp_path,
        "-J",
        "parallel=1",
        "--repeats",
        4,
        "--name",
        "again",
    )
    assert (again["asked"], again["cached"]) == (0, 8)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-signal.SIGILL, "this CPU lacks instructions"),
        (1, "cannot be used here: ImportError: libgomp"),
    ],
)
def test_an_engine_that_cannot_run_on_this_machine_ends_no_process_of_ours(
    code: int,
    message: str,
    tmp_path: Path,
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = subprocess.CompletedProcess((), code, "", "Traceback\nImportError: libgomp")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    told = judge(models / "tiny" / "tiny.gguf", tmp_path)
    assert told.code == 1 and message in told.err
