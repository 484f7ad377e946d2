"""llama.cpp's own server with a vision-language model of random weights: every status is held against the raw reply."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from bench.recorded_server import Recorder, recorded, serve
from bench.servers import HOSTILE, measure, misreadings, rubrics
from editjudge.store.store import Store
from tests.running.made import (
    Told,
    editjudge,
    edits,
    environment,
    pacing,
    rows_of,
    start,
    until,
    write_manifest,
)

RUBRICS = rubrics()


def manifest_of(folder: Path, *instructions: str) -> Path:
    manifest = edits(
        folder,
        len(instructions),
        ground_truth="input-0.png",
        referring_expression="the car",
    )
    rows = [
        row | {"instruction": text}
        for row, text in zip(rows_of(manifest), instructions, strict=True)
    ]
    return write_manifest(folder, rows)


def judge(
    manifest: Path, url: str, *words: object, chosen: list[str] | None = None
) -> tuple[Told, list[dict[str, Any]]]:
    """What the command says, and the judgements with their exchanges."""
    named = [word for name in chosen or ["compliance"] for word in ("--rubric", name)]
    place = manifest.parent / "s.db"
    told = editjudge(
        *(
            "run",
            manifest,
            *named,
            "--judge",
            "openai-compatible/tiny",
            "--base-url",
            url,
            "--store",
            place,
        ),
        *("--name", "r", "--concurrency", 1, "--json", *words),
    )
    if not place.exists():
        return told, []
    with Store.open(place) as store:
        rows = list(store.judgements(told.json["id"]))
        return told, [row | {"exchanges": store.replies(row["key"])} for row in rows]


def hold_against_raw(row: dict[str, Any], recorder: Recorder) -> None:
    """Each exchange has the outcome that its raw reply has; the status is the outcome of the last."""
    assert list(misreadings(row, row["exchanges"], recorder)) == []


def test_every_rubric_gets_the_status_that_its_raw_replies_have(
    tmp_path: Path, tiny_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.")
    with recorded(tiny_server) as recorder:
        _, rows = judge(manifest, recorder.url, "--max-tokens", 600, chosen=RUBRICS)
    assert {row["rubric"] for row in rows} == set(RUBRICS)
    for row in rows:
        hold_against_raw(row, recorder)
    assert {row["status"] for row in rows} <= {"ok", "invalid", "truncated"}
    assert {answer.status for answer in recorder.answers} == {200}


def test_with_the_schema_enforced_a_rubric_without_identifier_is_always_answered(
    tmp_path: Path, tiny_server: str
) -> None:
    manifest = manifest_of(tmp_path, *(f"Paint car {n} red." for n in range(8)))
    with recorded(tiny_server) as recorder:
        _, rows = judge(manifest, recorder.url, "--seed", 1)
    for row in rows:
        hold_against_raw(row, recorder)
    assert Counter(row["status"] for row in rows) == {"ok": 8}
    assert {score for row in rows for score in row["scores"].values()} <= {1, 3, 5}


def test_hostile_instructions_change_no_status(
    tmp_path: Path, tiny_server: str
) -> None:
    manifest = manifest_of(tmp_path, *HOSTILE)
    with recorded(tiny_server) as recorder:
        _, rows = judge(manifest, recorder.url)
    for row in rows:
        hold_against_raw(row, recorder)
    assert Counter(row["status"] for row in rows) == {"ok": len(HOSTILE)}


def test_a_question_that_does_not_fit_is_an_error_that_names_the_limit(
    tmp_path: Path, tiny_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.", "word " * 20_000)
    with recorded(tiny_server) as recorder:
        _, rows = judge(manifest, recorder.url)
    statuses = {row["item"]: row["status"] for row in rows}
    assert statuses == {"e0": "ok", "e1": "error"}
    (reason,) = next(row["reasons"] for row in rows if row["item"] == "e1")
    assert (
        reason["code"] == "context_too_small" and "16,384 tokens" in reason["message"]
    )
    assert [answer.status for answer in recorder.answers].count(400) == 1


def test_a_small_context_is_said_for_every_edit(
    tmp_path: Path, small_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.", "Paint the car blue.")
    _, rows = judge(manifest, f"{small_server}/v1")
    assert [(row["status"], row["reasons"][0]["code"]) for row in rows] == [
        ("error", "context_too_small")
    ] * 2


def test_a_model_that_never_stops_is_truncated(
    tmp_path: Path, never_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.")
    with recorded(never_server) as recorder:
        _, (row,) = judge(manifest, recorder.url, "--max-tokens", 200, "--no-schema")
    hold_against_raw(row, recorder)
    assert row["status"] == "truncated"


def test_output_that_leaves_the_grammar_is_invalid_and_asked_once_without_the_schema(
    tmp_path: Path, no_text_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.")
    with recorded(no_text_server) as recorder:
        # Sampled at random, the second answer now and then keeps to the grammar.
        words = ("--max-tokens", 100, "--temperature", 0)
        _, (row,) = judge(manifest, recorder.url, *words)
    assert [answer.status for answer in recorder.answers[:2]] == [500, 500]
    assert b"does not match" in recorder.answers[0].body
    assert (
        "response_format" in recorder.answers[0].request
        and "response_format" not in recorder.answers[-1].request
    )
    assert (
        row["exchanges"][0].reasons[0].code == "grammar_mismatch"
        and row["schema_mode"] == "prompt only"
    )
    assert row["status"] in ("invalid", "truncated")
    hold_against_raw(row, recorder)


def test_a_server_without_a_projector_stops_the_run_with_its_own_hint(
    tmp_path: Path, blind_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.", "Paint the car blue.")
    with recorded(blind_server) as recorder:
        told, _ = judge(manifest, recorder.url)
    assert told.code == 1 and "mmproj" in told.err
    assert len(recorder.answers) <= 2  # and is not asked again and again


def test_a_request_that_takes_too_long_is_unreachable(
    tmp_path: Path, never_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.")
    with pacing(tries=2):
        _, (row,) = judge(
            manifest, f"{never_server}/v1", "--timeout", 0.3, "--no-schema"
        )
    assert (row["status"], row["reasons"][0]["code"]) == ("unreachable", "timeout")


def test_a_run_that_is_stopped_at_once_does_not_wait_for_the_server(
    tmp_path: Path, never_server: str
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.")
    process = start(
        *(
            "run",
            manifest,
            "--rubric",
            "compliance",
            "--judge",
            "openai-compatible/tiny",
            "--store",
            tmp_path / "s.db",
        ),
        *("--base-url", f"{never_server}/v1", "--no-schema"),
        folder=tmp_path,
    )
    until(lambda: busy(never_server), 60)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130


def test_the_table_of_statuses_reads_none_of_them_wrongly() -> None:
    """A small version of `python -m bench.servers`."""
    conditions = measure(
        24, ["hostile", "small context"], ["compliance", "preservation"]
    )
    assert [one["misclassified"] for one in conditions.values()] == [[]] * 2
    assert conditions["small context"]["codes"] == {"context_too_small": 2}
    assert (
        conditions["hostile"]["questions"] == 8
        and "ok" in conditions["hostile"]["statuses"]
    )


def busy(address: str) -> bool:
    with urllib.request.urlopen(f"{address}/slots", timeout=30) as response:  # noqa: S310
        return any(slot["is_processing"] for slot in json.load(response))


# --- `doctor --server` ----------------------------------------------------------------------------------------


def doctor(address: str, cache: Path) -> dict[str, Any]:
    with environment({"XDG_CACHE_HOME": str(cache)}):
        told = editjudge("doctor", "--server", address, "--json", "--timeout", 60)
    assert told.code == 0, told.err
    document: dict[str, Any] = told.json
    return document


def test_what_the_server_does_is_found_out(tmp_path: Path, tiny_server: str) -> None:
    check = doctor(tiny_server, tmp_path)
    # stb_image knows no WebP
    assert check["pictures"] == {"max": 16, "formats": ["jpeg", "png", "gif"]}
    assert (check["schema"], check["logprobs"], check["limits"]["context"]) == (
        "enforced",
        "unmasked",
        16_384,
    )
    codes = {name: error["code"] for name, error in check["errors"].items()}
    assert codes == {
        "webp": "bad_image",
        "broken_picture": "bad_image",
        "choices": "request_rejected",
        "long_question": "context_too_small",
    }


def test_a_server_without_a_projector_takes_no_pictures(
    tmp_path: Path, blind_server: str
) -> None:
    check = doctor(blind_server, tmp_path)
    assert (
        check["pictures"] == {"max": 0, "formats": []} and check["schema"] == "enforced"
    )
    assert "mmproj" in check["errors"]["png"]["message"]


def test_repeats_come_with_one_request_where_the_server_has_the_slots(
    tmp_path: Path, models: Path
) -> None:
    manifest = manifest_of(tmp_path, "Paint the car red.")
    files = models / "tiny" / "tiny.gguf", models / "tiny" / "mmproj-tiny.gguf"
    with (
        serve(*files, context=16_384, slots=3) as address,
        recorded(address) as recorder,
    ):
        _, rows = judge(manifest, recorder.url, "--repeats", 3)
    (answer,) = recorder.answers
    assert answer.request["n"] == 3 and len(answer.document["choices"]) == 3
    texts = {choice["message"]["content"] for choice in answer.document["choices"]}
    assert {row["exchanges"][0].text for row in rows} == texts
    assert [row["status"] for row in rows] == ["ok"] * 3 and len(
        {row["key"] for row in rows}
    ) == 3
    assert (
        sum(row["usage"]["output_tokens"] for row in rows)
        == answer.document["usage"]["completion_tokens"]
    )
