"""Functions of the user's own as judges: what each fault becomes, and that a fault stays with its edit."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from textwrap import dedent

import pytest

from editjudge.judges.judge import Options
from tests.running.made import Done, editjudge, edits, run

FIVES = "{factor.key: 5 for factor in rubric.factors}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(
    folder: Path,
    code: str,
    *,
    count: int = 1,
    timeout: float = 30.0,
    extra: dict[str, object] | None = None,
    name: str = "one",
) -> Done:
    """A run of the function `score` that the code defines."""
    (folder / "mine.py").write_text(dedent(code))
    return run(
        edits(folder, count),
        folder / f"{name}.db",
        judges=("python:mine:score",),
        rubrics=("quality",),
        options=Options(timeout=timeout, extra=extra or {}),
    )


def body(statement: str) -> str:
    return f"""
        import os, subprocess, sys, time
        def score(*, images, texts, rubric, edit):
            fives = {FIVES}
            if edit.id == "e1":
                {statement}
            return fives
    """


FAULTS = {
    "raises": ("raise KeyError('colour')", "error", "unexpected_exception"),
    "8 of 7": ("fives['seamlessness'] = 8", "invalid", "score_out_of_scale"),
    "NaN": ("fives['seamlessness'] = float('nan')", "invalid", "score_out_of_scale"),
    "a fraction": ("fives['seamlessness'] = 4.37", "invalid", "score_out_of_scale"),
    "text": ("fives['seamlessness'] = '5'", "invalid", "not_a_number"),
    "true": ("fives['seamlessness'] = True", "invalid", "not_a_number"),
    "misses": ("del fives['seamlessness']", "invalid", "missing_factor"),
    "invents": ("fives['beauty'] = 5", "invalid", "unknown_factor"),
    "returns nothing": ("return None", "invalid", "not_a_dict"),
    "returns no score": ("return {'seamlessness': {}}", "invalid", "no_score"),
    "hangs": ("time.sleep(1000)", "error", "timeout"),
    "exits": ("os._exit(0)", "error", "worker_ended"),
    "leaves": ("sys.exit(3)", "error", "worker_ended"),
    "crashes": ("os.kill(os.getpid(), 11)", "error", "worker_ended"),
    "closes everything": ("os.closerange(0, 100)", "error", "worker_ended"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_function_is_a_failure_of_its_edit_alone(
    fault: str, folder: Path
) -> None:
    statement, status, code = FAULTS[fault]
    done = judged(folder, body(statement), count=3, timeout=4.0)
    assert done.row("e1")["status"] == status
    assert done.row("e1")["scores"] is None
    assert {reason["code"] for reason in done.row("e1")["reasons"]} == {code}
    assert [done.row(item)["status"] for item in ("e0", "e2")] == ["ok", "ok"]


@pytest.mark.parametrize(
    "statement",
    [
        "os.fork()",
        "subprocess.Popen(['sleep', '60'], start_new_session=True)",
        "input() if sys.stdin.read() else print('x' * 100_000)",
        "os.write(1, b'not a pickle')",
    ],
)
def test_forks_children_prints_and_reads_change_no_answer(
    statement: str, folder: Path
) -> None:
    done = judged(folder, body(statement), count=6, timeout=20.0)
    assert done.statuses() == {"ok": 6}


def test_a_function_that_needs_too_much_memory_fails(folder: Path) -> None:
    done = judged(folder, body("bytes(4_000_000_000)"), count=2, extra={"memory": 2})
    assert done.row("e1")["reasons"][0]["message"].startswith("MemoryError")
    assert done.row("e0")["status"] == "ok"


def test_children_of_a_function_that_hangs_are_ended_too(folder: Path) -> None:
    statement = "child = subprocess.Popen(['sleep', '1000']); open('pid', 'w').write(str(child.pid)); time.sleep(1000)"
    judged(folder, body(statement), count=2, timeout=3.0)
    status = Path(f"/proc/{(folder / 'pid').read_text()}/stat")
    end = time.monotonic() + 20
    while status.exists() and status.read_text().split()[2] != "Z":
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_function_gets_images_texts_rubric_and_edit(folder: Path) -> None:
    code = """
        import json
        def score(*, images, texts, rubric, edit):
            print(json.dumps({
                "images": {role: [image.mode, *image.size] for role, image in images.items()},
                "texts": texts, "rubric": rubric.name, "edit": edit.id, "camera": edit.metadata["camera"],
                "best": rubric.factors[0].scale.best,
            }), file=open("seen.json", "w"))
            return {factor.key: {"score": 3, "reason": "as it is"} for factor in rubric.factors}
    """
    (folder / "mine.py").write_text(dedent(code))
    manifest = edits(folder, 1, camera="old")
    done = run(
        manifest,
        folder / "a.db",
        judges=("python:mine:score",),
        rubrics=("preservation",),
    )
    assert json.loads((folder / "seen.json").read_text()) == {
        "images": {"input": ["RGB", 8, 8], "edited": ["RGB", 8, 8]},
        "texts": {"instruction": "Paint car 0 red."},
        "rubric": "preservation",
        "edit": "e0",
        "camera": "old",
        "best": 7,
    }
    assert set(done.rows[0]["justifications"].values()) == {"as it is"}


def test_none_abstains_and_numbers_of_libraries_are_numbers(folder: Path) -> None:
    code = """
        import numpy
        def score(*, images, texts, rubric, edit):
            first, second, *others = [factor.key for factor in rubric.factors]
            return {first: None, second: numpy.float32(6.0), **dict.fromkeys(others, numpy.int64(2))}
    """
    row = judged(folder, code).rows[0]
    assert row["status"] == "ok"
    assert list(row["abstained"]) == ["scale_realism"]
    assert row["scores"]["spatial_relationship"] == 6


def test_an_async_function_answers_several_edits_at_the_same_time(
    folder: Path,
) -> None:
    code = """
        import asyncio
        running = most = 0
        async def score(*, images, texts, rubric, edit):
            global running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.3)
            running -= 1
            if edit.id == "e3":
                await asyncio.sleep(1000)
            return {factor.key: {"score": 5, "reason": str(most)} for factor in rubric.factors}
    """
    done = judged(folder, code, count=8, timeout=3.0, extra={"workers": 1})
    assert done.statuses() == {"ok": 7, "error": 1}
    assert done.row("e3")["reasons"][0]["code"] == "timeout"
    most = max(
        int(r["justifications"]["seamlessness"]) for r in done.rows if r["scores"]
    )
    assert most > 1


BATCH = """
    import os
    class Scorer:
        def __call__(self, **call):
            raise AssertionError("the batch form is there")
        def batch(self, calls):
            ids = [call["edit"].id for call in calls]
            if "e5" in ids:
                FAULT
            five = {"score": 5, "reason": str(len(calls))}
            return [{factor.key: five for factor in call["rubric"].factors} for call in calls]
    class score:
        version = "v1"
        batch = Scorer.batch
        batch_size = 4
        @staticmethod
        def load():
            open("loads", "a").write("x")
            return Scorer()
"""


@pytest.mark.parametrize(
    ("fault", "code", "loads"),
    [
        ("raise ValueError('e5')", "unexpected_exception", 1),
        ("os._exit(1)", "worker_ended", 3),
        ("return []", "wrong_batch", 1),
    ],
)
def test_a_batch_is_loaded_once_and_its_fault_stays_with_one_edit(
    fault: str, code: str, loads: int, folder: Path
) -> None:
    done = judged(folder, BATCH.replace("FAULT", fault), count=12)
    assert done.row("e5")["reasons"][0]["code"] == code
    assert done.statuses() == {"ok": 11, "error": 1} or code == "wrong_batch"
    sizes = {int(r["justifications"]["seamlessness"]) for r in done.rows if r["scores"]}
    assert max(sizes) <= 4
    assert len((folder / "loads").read_text()) <= loads


def test_a_load_that_raises_ends_the_run_at_once(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "def score(**_): pass\ndef load():\n    open('loads', 'a').write('x')\n    raise OSError('none')\n"
        "score.load = load\n"
    )
    edits(folder, 8)
    told = editjudge(
        "run", "edits.jsonl", "--judge", "python:mine:score", "--rubric", "quality"
    )
    assert told.code == 1
    assert len((folder / "loads").read_text()) == 1


def test_source_version_id_and_metadata_are_in_the_key(folder: Path) -> None:
    plain = f"def score(*, rubric, **_): return {FIVES}\n"
    keys = [
        judged(folder, code, name=f"run-{number}").rows[0]["key"]
        for number, code in enumerate(
            (plain, plain, f"{plain}# edited\n", f"{plain}score.version = 2\n")
        )
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("python:mind:score", "unknown_module"),
        ("python:mine:scor", "unknown_function"),
        ("python:mine:LIST", "unknown_function"),
        ("python:mine", "bad_python_judge"),
        ("python:broken:score", "import_failed"),
        ("python:dies:score", "import_failed"),
        ("python:needs:score", "import_failed"),
    ],
)
def test_what_cannot_be_imported_ends_with_exit_2_before_anything_else(
    spec: str, code: str, folder: Path
) -> None:
    (folder / "mine.py").write_text("LIST = []\ndef score(**_): pass\n")
    (folder / "broken.py").write_text("def score(:\n")
    (folder / "dies.py").write_text("import os; os._exit(0)\n")
    (folder / "needs.py").write_text("import a_module_that_nobody_has\n")
    edits(folder, 1)
    told = editjudge("run", "edits.jsonl", "--judge", spec)
    assert told.code == 2
    assert getattr(told.error, "code", "") == code
    assert not (folder / "editjudge.db").exists()


def test_a_near_miss_of_module_and_function_is_named(folder: Path) -> None:
    (folder / "sharpness.py").write_text("def score(**_): pass\n")
    edits(folder, 1)
    for spec in ("python:sharpnes:score", "python:sharpness:scor"):
        told = editjudge("run", "edits.jsonl", "--judge", spec)
        assert "did you mean" in told.err


def test_prints_of_the_function_are_not_in_the_json(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import os\nprint('import')\n"
        f"def score(*, rubric, **_):\n    print('call')\n    os.system('echo child')\n    return {FIVES}\n"
    )
    edits(folder, 1)
    words = ["run", "edits.jsonl", "--judge", "python:mine:score"]
    told = editjudge(*words, "--rubric", "quality", "--json")
    assert told.code == 0
    assert told.json["statuses"]["ok"] == 1


def test_a_rubric_of_choices_is_refused(folder: Path) -> None:
    (folder / "mine.py").write_text("def score(**_): pass\n")
    edits(folder, 1)
    words = ["run", "edits.jsonl", "--judge", "python:mine:score"]
    told = editjudge(*words, "--rubric", "preference")
    assert told.code == 2


def test_an_image_that_cannot_be_read_is_a_bad_image(folder: Path) -> None:
    manifest = edits(folder, 1)
    whole = (folder / "edited-0.png").read_bytes()
    (folder / "edited-0.png").write_bytes(whole[:60])
    (folder / "mine.py").write_text(f"def score(*, rubric, **_): return {FIVES}\n")
    done = run(
        manifest,
        folder / "one.db",
        judges=("python:mine:score",),
        rubrics=("quality",),
    )
    assert done.rows[0]["status"] == "bad_image"


def test_it_is_one_judge_of_a_panel(folder: Path) -> None:
    (folder / "mine.py").write_text(f"def score(*, rubric, **_): return {FIVES}\n")
    (folder / "other.py").write_text(
        "def score(*, rubric, **_): return {factor.key: 3 for factor in rubric.factors}\n"
    )
    done = run(
        edits(folder, 2),
        folder / "one.db",
        judges=("python:mine:score", "python:other:score"),
        rubrics=("quality",),
    )
    assert done.statuses() == {"ok": 4}
    assert {row["judge"]: row["scores"]["seamlessness"] for row in done.rows} == {
        "python:mine:score": 5,
        "python:other:score": 3,
    }
    assert os.getcwd() == str(folder)
