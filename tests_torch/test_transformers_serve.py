"""`transformers serve` with a vision-language model of random weights: it takes the fields of a schema and of
probabilities and ignores them, so that every answer rests on what our question says and our contract holds."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tiny_llava import write

from bench.recorded_server import RawAnswer, recorded
from editjudge.rubrics.files import load_one, names
from editjudge.store.store import Store

pytest.importorskip(
    "uvicorn", reason="transformers serve needs uvicorn, fastapi and openai"
)

RUBRICS = [
    name
    for name in names()
    if name not in ("online", "offline") and not load_one(name).computed_by
]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@contextmanager
def serving(model: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "serve",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    code = (
        "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    )
    environment = {**os.environ, **ONE_THREAD, "HF_HUB_CACHE": str(model)}
    with (
        (model / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", code, *words],
            env=environment,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(address, process, model / "log")
            yield address
        finally:
            process.kill()


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.2)
    raise TimeoutError(log.read_text()[-2000:])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[str]:
    with serving(model) as address:
        yield address


def manifest_of(folder: Path, count: int) -> Path:
    for name, colour in (("in.png", "red"), ("out.png", "blue")):
        Image.new("RGB", (40, 40), colour).save(folder / name)
    row = {
        "input": "in.png",
        "edited": "out.png",
        "ground_truth": "in.png",
        "referring_expression": "the square",
    }
    rows = [
        {"id": f"e{n}", "instruction": f"Paint square {n} blue.", **row}
        for n in range(count)
    ]
    path = folder / "edits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def editjudge(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "editjudge", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=500
    )


def judge(
    folder: Path, url: str, model: object, *words: object, count: int = 1
) -> list[dict[str, Any]]:
    place = folder / "s.db"
    told = editjudge(
        *(
            "run",
            manifest_of(folder, count),
            "--judge",
            f"openai-compatible/{model}",
            "--base-url",
            url,
            "--json",
        ),
        *(
            "--store",
            place,
            "--name",
            "r",
            "--concurrency",
            1,
            "--max-tokens",
            40,
            *words,
        ),
    )
    assert told.stdout, told.stderr
    with Store.open(place) as store:
        rows = list(store.judgements(store.find_run("r")))
        return [row | {"exchanges": store.replies(row["key"])} for row in rows]


def outcome_of(raw: RawAnswer) -> str:
    """What a raw reply is, without our contract: random letters hold no answer."""
    assert not re.search(r'\{\s*"[a-z_]+"\s*:', raw.text), raw.text
    return "truncated" if raw.finish == "length" else "invalid"


def test_every_rubric_gets_the_status_that_its_raw_replies_have(
    tmp_path: Path, server: str, model: Path
) -> None:
    chosen = [word for name in RUBRICS for word in ("--rubric", name)]
    with recorded(server) as recorder:
        rows = judge(tmp_path, recorder.url, model, *chosen, "--read", "logprobs")
    assert {row["rubric"] for row in rows} == set(RUBRICS)
    raws = recorder.by_id()
    assert {answer.status for answer in recorder.answers} == {200}
    assert any(
        "response_format" in raw.request and "logprobs" in raw.request
        for raw in raws.values()
    )
    outcomes: Counter[str] = Counter()
    for row in rows:
        for exchange in row["exchanges"]:
            raw = raws[exchange.request_id]
            assert exchange.text == raw.text and exchange.outcome == outcome_of(raw)
            outcomes[exchange.outcome] += 1
        assert row["status"] == row["exchanges"][-1].outcome and row["scores"] is None
    assert outcomes["invalid"]


def test_a_model_that_never_stops_is_truncated(tmp_path: Path) -> None:
    endless = write(tmp_path / "endless", stops=False)
    with serving(endless) as address, recorded(address) as recorder:
        (row,) = judge(tmp_path, recorder.url, endless, "--rubric", "compliance")
    assert row["status"] == "truncated" and len(recorder.answers) == 3
    assert {answer.finish for answer in recorder.answers} == {"length"}


def test_another_model_than_the_one_that_is_served_ends_the_run(
    tmp_path: Path, server: str
) -> None:
    words = (
        "--judge",
        "openai-compatible/other",
        "--base-url",
        f"{server}/v1",
        "--store",
        tmp_path / "s.db",
    )
    told = editjudge("run", manifest_of(tmp_path, 2), "--rubric", "compliance", *words)
    assert told.returncode == 1 and "Server is pinned to" in told.stderr


def test_the_check_of_a_server_says_what_is_ignored(
    tmp_path: Path, server: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = editjudge(
        "doctor",
        "--server",
        f"{server}/v1",
        "--model",
        model,
        "--json",
        "--timeout",
        300,
    )
    check = json.loads(told.stdout)
    assert (check["schema"], check["logprobs"], check["limits"]["choices"]) == (
        "ignored",
        "none",
        1,
    )
    assert check["pictures"]["max"] == 16 and "png" in check["pictures"]["formats"]
