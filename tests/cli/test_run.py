"""`editjudge run`: documents, words, exit codes, and what never reaches any of them."""

from __future__ import annotations

import json
import os
import pty
import random
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editjudge.running.progress import RunTally, described
from editjudge.store.store import Store
from tests.faults import check_error, shows
from tests.running.made import (
    COMMAND,
    ONLINE,
    SPECS,
    Told,
    canned,
    editjudge,
    edits,
    environment,
    expected,
    pacing,
    rows_of,
    stub,
    variables,
    write_manifest,
)
from tests.stub.server import Behaviour

OPENAI = SPECS["openai"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: 10, output: 40}}\n"
    )
    return path


def judge(manifest: Path, store: Path, *words: object) -> Told:
    return editjudge("run", manifest, "--judge", OPENAI, "--store", store, *words)


# --- what it says ---------------------------------------------------------------------------------------------


def test_the_document_says_what_became_of_the_run(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 4)
    with stub():
        told = judge(manifest, store, "--name", "mine", "--json")
        again = judge(manifest, store, "--name", "mine", "--json")
    assert told.code == again.code == 0
    document = told.json
    assert (document["run"], document["ending"], document["statuses"]) == (
        "mine",
        "finished",
        {"ok": 12},
    )
    assert (
        document["asked"],
        document["cached"],
        document["replies"],
        document["failed"],
    ) == (12, 0, 12, 0)
    assert (document["cost_usd"], document["error"]) == (None, None)
    factors = {(f["model"], f["rubric"], f["factor"]): f for f in document["factors"]}
    assert len(factors) == 2 * 12
    said = expected(manifest)
    mean = (
        said["e0", "fidelity"]["alignment"] + said["e2", "fidelity"]["alignment"]
    ) / 2
    assert factors["m0", "fidelity", "alignment"]["mean"] == mean
    assert (again.json["asked"], again.json["cached"]) == (0, 12)


def test_people_see_means_with_their_coverage(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 4)
    (tmp_path / "edited-3.png").unlink()
    with stub():
        result = judge(manifest, store, "--rubric", "fidelity", "--max-failures", "0.5")
    assert result.code == 0
    assert "alignment" in result.out and "1/2" in result.out and "2/2" in result.out
    assert shows(result.out, "4 judgements, 1 missing_output", "3 asked", "0 cached")
    assert shows(result.out, "3 replies", "cost unknown")


def test_the_last_line_is_the_command_that_says_which_edits_failed(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 2)
    (tmp_path / "edited-1.png").unlink()
    with stub():
        result = judge(
            manifest, store, "--rubric", "fidelity", "--name", tmp_path / "out"
        )
    _, _, command = result.out.splitlines()[-1].partition(": ")
    assert editjudge(*shlex.split(command)[1:]).code == 0
    rows = [
        json.loads(line)
        for line in (tmp_path / "out" / "judgements.jsonl").read_text().splitlines()
    ]
    (row,) = [row for row in rows if row["status"] == "missing_output"]
    assert (row["item"], row["reasons"][0]["message"]) == (
        "e1",
        "edited-1.png is not there",
    )


def test_a_run_without_failures_ends_with_the_commands_that_show_it(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with stub():
        result = judge(edits(tmp_path, 4), store, "--rubric", "fidelity", "--name", "r")
    label, _, commands = result.out.splitlines()[-1].partition(": ")
    typed = [shlex.split(command)[1:] for command in commands.split("; ")]
    assert (label, [arguments[0] for arguments in typed]) == (
        "next",
        ["compare", "report", "serve"],
    )
    for arguments in typed[:2]:
        assert editjudge(*arguments).code == 0
    assert (tmp_path / "r.html").exists()


def test_a_run_ends_with_the_commonest_reason_of_each_status_and_an_edit_that_has_it(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    (tmp_path / "edited-1.png").unlink()
    (tmp_path / "edited-2.png").unlink()
    rude = "This is no question.\n\x1b[2J editjudge: all is well " + "so " * 200
    with canned(
        lambda *_: (400, {}, json.dumps({"error": {"message": rude}}).encode())
    ):
        result = judge(manifest, store, "--rubric", "quality", "--rubric", "fidelity")
        document = judge(
            manifest, store, "--rubric", "quality", "--rubric", "fidelity", "--json"
        ).json
    assert shows(result.out, "4 missing_output, 2 of them", "edited-1.png", "(e1)")
    (line,) = [
        line
        for line in result.out.splitlines()
        if line.startswith("  4 error: HTTP 400: This is no")
    ]
    assert line.endswith("... (e0)") and "\x1b" not in line and len(line) < 300
    assert [(r["status"], r["count"], r["item"]) for r in document["reasons"]] == [
        ("error", 4, "e0"),
        ("missing_output", 2, "e1"),
    ]


def test_nobody_is_asked_about_pictures_that_are_missing(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    (tmp_path / "edited-0.png").unlink()
    with stub():
        result = judge(manifest, store, "--rubric", "fidelity")
    assert shows(result.out, "1 missing_output", "no requests")
    assert "$" not in result.out


def test_inputs_of_which_none_is_found_are_a_wrong_manifest_and_not_the_models_fault(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    (tmp_path / "input-0.png").unlink()
    for arguments in ((), ("--dry-run",)):
        with stub():
            result = judge(manifest, store, *arguments)
        assert (result.code, result.out) == (1, "")
        check_error(
            result.error, "no_inputs", "first 4 edits", "input-0.png", f" {tmp_path}"
        )
    assert not store.exists()
    (tmp_path / "replies.jsonl").write_text("")
    replayed = editjudge(
        "run",
        manifest,
        "--judge",
        f"replay:{tmp_path / 'replies.jsonl'}",
        "--store",
        store,
    )
    assert replayed.code == 3  # what was recorded needs no pictures


# --- which edits ----------------------------------------------------------------------------------------------


def test_some_of_the_models_are_judged_and_a_limit_counts_only_theirs(
    tmp_path: Path, store: Path
) -> None:
    manifest = write_manifest(
        tmp_path,
        [
            row | {"model": f"m{n % 3}"}
            for n, row in enumerate(rows_of(edits(tmp_path, 9)))
        ],
    )
    words = (
        "--rubric",
        "fidelity",
        "--model",
        "m1",
        "--model",
        "m2",
        "--limit",
        "3",
        "--json",
    )
    with stub() as server:
        planned = judge(manifest, store, *words, "--dry-run")
        told = judge(manifest, store, *words)
        assert server.ledger.requests == 3
        swapped = judge(
            manifest,
            store,
            "--rubric",
            "fidelity",
            "--model",
            "m2",
            "--model",
            "m1",
            "--limit",
            "3",
            "--json",
        )
    assert (planned.json["tasks"], told.json["total"]) == (3, 3)
    assert [
        (f["model"], f["n"]) for f in told.json["factors"] if f["factor"] == "alignment"
    ] == [("m1", 2), ("m2", 1)]
    assert swapped.json["run"] == told.json["run"]


def test_a_model_that_is_not_there_is_2_with_the_one_that_may_be_meant(
    tmp_path: Path, store: Path
) -> None:
    with stub():
        result = judge(
            edits(tmp_path, 4, model="flux-kontext"), store, "--model", "flux-contxt"
        )
    assert result.code == 2
    check_error(result.error, "unknown_model", '"flux-contxt"', '"flux-kontext"')
    assert not store.exists()


@pytest.mark.parametrize(
    ("judges", "setting", "hint"),
    [
        (["measured"], "colour=blue", ""),
        (["measured"], "rehsh=1", "rehash"),
        (["replay:r.jsonl", "measured"], "colour=blue", ""),
    ],
)
def test_a_setting_that_no_judge_in_this_process_has_is_refused_with_the_near_miss(
    tmp_path: Path, judges: list[str], setting: str, hint: str
) -> None:
    words = [word for judge in judges for word in ("--judge", judge)]
    store = tmp_path / "s.db"
    result = editjudge(
        "run", tmp_path / "edits.jsonl", *words, "-J", setting, "--store", store
    )
    assert result.code == 2
    check_error(result.error, "unknown_setting", setting.partition("=")[0], hint)


def test_a_known_price_is_summed_up(tmp_path: Path, store: Path, prices: Path) -> None:
    with stub():
        told = judge(edits(tmp_path, 1), store, "--prices", prices, "--json")
    assert 0 < told.json["cost_usd"] < 1


def test_a_terminal_sees_a_bar_and_plain_lines_go_elsewhere(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 10)
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def watch() -> None:
        with suppress(OSError):  # the end of a terminal that nobody writes to any more
            while part := os.read(ours, 65_536):
                shown.append(part)

    watching = threading.Thread(target=watch)
    watching.start()
    with stub(Behaviour(latency=0.05)):
        command = [
            *COMMAND,
            "run",
            str(manifest),
            "--judge",
            OPENAI,
            "--store",
            str(store),
            "--json",
        ]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=theirs, check=False, cwd=tmp_path
        )
    os.close(theirs)
    watching.join()
    os.close(ours)
    assert done.returncode == 0
    assert json.loads(done.stdout)["statuses"] == {"ok": 30}
    assert b"judging" in b"".join(shown) and b"/30" in b"".join(shown)


def test_progress_says_how_many_how_fast_how_long_still_what_it_cost_and_what_failed() -> (
    None
):
    tally = RunTally(
        Counter({"ok": 1_500, "invalid": 3}),
        cached=500,
        asked=1_003,
        cost=1.234,
        expected=6_000,
    )
    tally.started = time.monotonic() - 10
    text = described(tally)
    assert shows(text, "1,503 of 6,000", "100.3/s", "0:00:45", "500 cached", "$1.23")
    assert shows(text, "failed", "3 invalid")
    assert described(RunTally(unpriced=2)).endswith("0.0/s, cost unknown, 0 failed")
    assert "$1.23 + unknown" in described(RunTally(cost=1.23, unpriced=2))


_NOTING_OPENS = """
import collections, json, os, sys
opened = collections.Counter()

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        opened[os.path.basename(arguments[0])] += 1

sys.addaudithook(note)
from editjudge.cli import main
from editjudge.media.cache import DigestCache

DigestCache._SETTLED_NS = 0  # pictures that were written just now are trusted too
try:
    main()
finally:
    print(json.dumps(opened), file=sys.stderr)
"""


def test_the_manifest_and_each_picture_are_opened_once_whatever_the_judges_and_rubrics(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 20)
    for number in range(20):  # more than is held for one judge
        noise = Image.frombytes(
            "RGB", (600, 600), random.Random(number).randbytes(3 * 600 * 600)
        )
        noise.save(tmp_path / f"edited-{number}.png", compress_level=0)
    judges = [word for spec in SPECS.values() for word in ("--judge", spec)]
    words = [
        "run",
        str(manifest),
        "--rubric",
        "online",
        *judges,
        "--store",
        str(store),
        "--json",
    ]
    command = [sys.executable, "-c", _NOTING_OPENS, *words]
    with stub():
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    opened = json.loads(done.stderr.splitlines()[-1])
    assert json.loads(done.stdout)["statuses"] == {"ok": 20 * 3 * 3}
    assert opened["edits.jsonl"] == 1
    assert {name: count for name, count in opened.items() if name.endswith(".png")} == {
        picture.name: 1 for picture in tmp_path.glob("*.png")
    }


# --- beforehand -----------------------------------------------------------------------------------------------


def test_a_dry_run_asks_and_writes_nothing(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 4)
    (tmp_path / "edited-3.png").unlink()
    before = sorted(tmp_path.iterdir())
    with stub() as server:
        told = judge(manifest, store, "--prices", prices, "--dry-run", "--json")
        shown = judge(manifest, store, "--prices", prices, "--dry-run")
        assert server.ledger.requests == 0
    assert sorted(tmp_path.iterdir()) == before
    assert (told.code, shown.code) == (0, 0)
    document = told.json
    assert (document["tasks"], document["done"], document["cannot_be_asked"]) == (
        12,
        0,
        {"missing_output": 3},
    )
    (estimate,) = document["judges"]
    assert (estimate["judge"], estimate["calls"], estimate["images"]) == (OPENAI, 9, 18)
    assert 0 < estimate["price"] < 1
    assert (
        "9 calls, 18 images" in shown.out and "list prices of 2026-01-01" in shown.out
    )


def test_a_dry_run_of_a_store_that_is_there_leaves_it_as_it_is(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 3)
    with stub():
        judge(manifest, store, "--limit", "1")
        before = store.read_bytes()
        told = judge(manifest, store, "--dry-run", "--json")
    assert store.read_bytes() == before
    assert (told.json["tasks"], told.json["done"]) == (9, 3)


def test_a_dry_run_needs_no_key_and_a_run_does(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    with environment({"OPENAI_API_KEY": None}):
        result = editjudge(
            "run",
            manifest,
            "--judge",
            "openai/gpt-4.1",
            "--dry-run",
            "--store",
            store,
            "--json",
        )
        refused = editjudge(
            "run", manifest, "--judge", "openai/gpt-4.1", "--store", store
        )
    assert result.code == 0 and result.json["judges"][0]["calls"] == 6
    assert refused.code == 2
    check_error(refused.error, "no_key", "OPENAI_API_KEY")
    assert not store.exists()


def test_an_unknown_price_is_unknown(tmp_path: Path, store: Path) -> None:
    with stub():
        told = judge(edits(tmp_path, 1), store, "--dry-run", "--json")
        shown = judge(edits(tmp_path, 1), store, "--dry-run")
    assert told.json["judges"][0]["price"] is None
    assert "unknown price" in shown.out
    assert "$0" not in shown.out


def test_an_unknown_price_comes_with_the_judge_that_may_be_meant(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    result = editjudge(
        "run", manifest, "--judge", "openai/gpt-4.11", "--dry-run", "--store", store
    )
    assert shows(result.out, "unknown price", '"openai/gpt-4.1"')
    result = editjudge(
        "run", manifest, "--judge", "vllm/gpt-4.11", "--dry-run", "--store", store
    )
    assert shows(result.out, "unknown price (")


# --- exit codes -----------------------------------------------------------------------------------------------


def test_done_is_0(tmp_path: Path, store: Path) -> None:
    with stub():
        assert judge(edits(tmp_path, 1), store).code == 0


@pytest.mark.parametrize(
    ("allowed", "code"), [(0.0, 3), (0.24, 3), (0.25, 0), (1.0, 0)]
)
def test_too_many_failures_are_3(
    allowed: float, code: int, tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 4)
    (tmp_path / "edited-0.png").unlink()
    with stub():
        assert (
            judge(
                manifest, store, "--rubric", "fidelity", "--max-failures", allowed
            ).code
            == code
        )


def test_a_budget_that_is_reached_is_4_and_the_run_goes_on(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    manifest = edits(tmp_path, 10)
    with stub() as server:
        told = judge(manifest, store, "--prices", prices, "--budget", "0.5", "--json")
        assert told.code == 4
        assert (told.json["ending"], told.json["error"]) == ("budget", None)
        assert told.json["cost_usd"] <= 0.5
        assert told.json["statuses"]["pending"] > 0
        assert (
            f"stopped (budget): ${told.json['cost_usd']:.4f} of --budget 0.5 is spent, and the next "
            in told.err
        )
        assert told.json["budget"]["spent"] + told.json["budget"]["next"] > 0.5
        assert shows(told.err, "budget again", "same command")
        assert judge(manifest, store, "--prices", prices).code == 0
        assert server.ledger.paid == 30


def test_a_budget_too_small_for_one_question_is_said_to_be(
    tmp_path: Path, store: Path, prices: Path
) -> None:
    with stub() as server:
        result = judge(
            edits(tmp_path, 1), store, "--prices", prices, "--budget", "0.01"
        )
        assert (result.code, server.ledger.requests) == (4, 0)
    assert shows(result.err, "stopped (budget)", "$0.", "--budget 0.01", "too little")
    assert "same command" not in result.err


def test_a_refused_key_is_1_with_one_clear_line(tmp_path: Path, store: Path) -> None:
    with canned(
        lambda *_: (401, {}, b'{"error": {"message": "Incorrect API key provided"}}')
    ):
        result = judge(edits(tmp_path, 4), store, "--json")
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert shows(line, "openai/stub", "401", "Incorrect API key provided")
    assert (result.json["ending"], result.json["statuses"]) == (
        "failed",
        {"pending": 12},
    )


def test_a_server_that_is_down_is_1_and_all_stays_to_be_judged(
    tmp_path: Path, store: Path
) -> None:
    with environment(variables("http://127.0.0.1:9")), pacing(patience=0.5):
        told = judge(edits(tmp_path, 8), store, "--json")
    assert told.code == 1
    assert told.json["statuses"] == {"pending": 24}
    with environment(variables("http://127.0.0.1:9")), pacing(patience=0.5):
        assert judge(edits(tmp_path, 8), store).out.startswith("run edits-"), (
            "and no table in which nothing is"
        )
    first, last = told.err.splitlines()
    assert first.startswith("openai/stub is down (no connection to 127.0.0.1:9")
    assert last.startswith("editjudge: openai/stub did not answer for 0.5 s")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--judge", "opnai/x"],
            'no provider is called "opnai"; did you mean "openai"?',
        ),
        (["--judge", OPENAI, "--rubric", "fidelty"], 'did you mean "fidelity"?'),
        (["--judge", OPENAI, "--judge", OPENAI], "named twice"),
        (
            ["--judge", OPENAI, "--concurrency", "many"],
            "many: expected auto or a number",
        ),
        (["--judge", OPENAI, "--concurrency", "0"], "0: expected auto or a number"),
        (["--judge", OPENAI, "--repeats", "0"], "repeats"),
        (["--judge", OPENAI, "--budget", "1"], "or leave out --budget"),
        (["--judge", OPENAI, "--budget", "lots"], "'lots' is not a valid number."),
        (["--judge", OPENAI, "--budget", "nan"], "nan"),
        (["--judge", OPENAI, "--temperature", "inf"], "inf"),
        (["--judge", OPENAI, "--max-failures", "nan"], "nan"),
        (["--judge", OPENAI, "-J", "top_p"], "KEY=VALUE"),
        (
            ["--judge", OPENAI, "--base-url", "http://me:pass@127.0.0.1/v1"],
            "user name or password",
        ),
        (["--judge", OPENAI, "--layout", "sideways"], "sideways"),
    ],
)
def test_what_cannot_be_meant_is_2_and_leaves_nothing(
    words: list[str], complaint: str, tmp_path: Path, store: Path
) -> None:
    with stub() as server:
        told = editjudge("run", edits(tmp_path, 1), "--store", store, *words)
        assert server.ledger.requests == 0
    assert told.code == 2
    assert complaint in told.err
    assert "Traceback" not in told.err
    if store.exists():
        with Store.open(store) as kept:
            assert kept.runs() == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--prices", "gone.yaml"], "not a price file"),
        (["--judge", "replay:gone.jsonl"], "gone.jsonl"),
    ],
)
def test_input_that_is_wrong_is_1_and_names_it(
    words: list[str], complaint: str, tmp_path: Path, store: Path
) -> None:
    with stub():
        told = judge(edits(tmp_path, 1), store, *words)
    assert told.code == 1
    assert complaint in told.err
    assert told.err.startswith("editjudge: ")


def test_a_manifest_that_is_not_there_is_1_with_the_one_that_may_be_meant(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub():
        told = judge(manifest.with_name("edit.jsonl"), store)
    assert (told.code, told.out) == (1, "")
    assert told.err.endswith(
        'edit.jsonl: cannot be read: No such file or directory; did you mean "edits.jsonl"?\n'
    )


def test_a_line_that_is_wrong_is_all_that_is_said(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    manifest.write_text(manifest.read_text() + "{broken\n")
    with stub():
        told = judge(manifest, store)
    assert (told.code, told.out) == (1, "")
    assert (
        told.err.startswith("editjudge: ")
        and "edits.jsonl:3: not JSON" in told.err
        and told.err.count("\n") == 1
    )
    assert not store.exists()


def test_another_spec_under_the_same_name_is_an_error(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub():
        judge(manifest, store, "--name", "mine")
        result = judge(manifest, store, "--name", "mine", "--temperature", "0.5")
    assert result.code == 1
    check_error(result.error, "another_spec", '"mine"', "temperature")


def test_options_that_json_does_not_have_are_text(tmp_path: Path, store: Path) -> None:
    bodies: list[Any] = []

    def listen(_: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        bodies.append(json.loads(body))
        return 401, {}, b"{}"

    words = (
        "-J",
        "a=NaN",
        "-J",
        "b=0.5",
        "-J",
        'c={"d": [1]}',
        "-J",
        "e=",
        "-J",
        "f=x=y",
    )
    with canned(listen):
        judge(edits(tmp_path, 1), store, *words)
    passed = {name: bodies[0][name] for name in ("a", "b", "c", "e", "f")}
    assert passed == {"a": "NaN", "b": 0.5, "c": {"d": [1]}, "e": "", "f": "x=y"}


def test_a_panel_keeps_the_answers_of_each_judge(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 2)
    with stub():
        told = judge(
            manifest, store, "--judge", SPECS["google"], "--repeats", "2", "--json"
        )
    assert (told.code, told.json["statuses"]) == (0, {"ok": 24})
    assert {factor["judge"] for factor in told.json["factors"]} == {
        OPENAI,
        SPECS["google"],
    }


def test_rubrics_may_be_named_sets_or_files(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 1)
    with stub():
        told = judge(
            manifest, store, "--rubric", "fidelity", "--rubric", "compliance", "--json"
        )
    assert {factor["rubric"] for factor in told.json["factors"]} == {
        "fidelity",
        "compliance",
    }
    assert set(ONLINE) >= {"fidelity"}


def test_pictures_outside_the_folder_need_permission(
    tmp_path: Path, store: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    row = rows_of(edits(tmp_path, 1))[0]
    manifest = write_manifest(
        inside, [row | {"input": "../input-0.png", "edited": "../edited-0.png"}]
    )
    with stub():
        refused = judge(manifest, store, "--rubric", "fidelity")
        allowed = judge(manifest, store, "--rubric", "fidelity", "--allow-outside")
    assert (refused.code, allowed.code) == (1, 0)
    assert "outside" in refused.err


# --- secrets --------------------------------------------------------------------------------------------------

KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "VLLM_API_KEY",
    "OPENAI_COMPATIBLE_API_KEY",
)
CANARY = "Zq9-canary.of~the/test+Xw3"


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        ("openai", 400),
        ("openai", 401),
        ("openai", 500),
        ("anthropic", 429),
        ("google", 400),
    ],
)
def test_a_key_is_in_no_file_and_on_no_screen(
    wire: str, status: int, tmp_path: Path
) -> None:
    """Not even where the server sends it back, as some do."""

    def echo(
        headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        sent = "; ".join(f"{name}: {value}" for name, value in headers.items())
        return (
            status,
            {},
            json.dumps({"error": {"message": f"You sent {sent}"}}).encode(),
        )

    store = tmp_path / "s.db"
    folder = tmp_path / "out"
    with (
        canned(echo, CANARY),
        environment(dict.fromkeys(KEYS, CANARY)),
        pacing(tries=2, patience=0.2),
    ):
        command = (
            "run",
            edits(tmp_path, 6),
            "--judge",
            SPECS[wire],
            "--store",
            store,
            "--name",
            "r",
        )
        told = [editjudge(*command, "--json"), editjudge(*command)]
        verbs: list[tuple[str, ...]] = [
            ("runs", "show", "r"),
            ("runs", "list", "--json"),
            ("runs", "again", "r"),
        ]
        verbs += [
            ("export", "r", "-o", str(folder), "--format", form)
            for form in ("jsonl", "csv")
        ]
        told += [editjudge(*verb, "--store", store) for verb in verbs]
    assert told[0].code in (1, 3)
    assert (
        any("You sent" in said.err + said.out for said in told)
        or b"You sent" in store.read_bytes()
    )
    assert all("canary" not in said.out + said.err for said in told)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 8
    assert all(b"canary" not in path.read_bytes() for path in written)
