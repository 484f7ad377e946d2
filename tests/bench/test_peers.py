"""What can be said of the contest with other tools where none of them is installed: the accounts and their shape."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import faults, peers, throughput
from bench.peers.install import planned
from tests.stub.server import Behaviour, serve_in_thread

A, B, C, D = (f"edit-{number:016x}" for number in range(4))
SAID = {"alignment": 5, "completeness": 6, "plausibility": 7}


def told(*answers: tuple[str, str]) -> dict[str, Any]:
    """A ledger in which the server said SAID of each, in the way named."""
    listed = [
        {"identifier": name, "outcome": outcome, "scores": SAID}
        for name, outcome in answers
    ]
    return {"answers": listed, "paid": len(listed), "requests": len(listed) + 3}


def figures(**given: Any) -> dict[str, Any]:
    counts = {
        "right": 8,
        "fabricated": 1,
        "missing": 1,
        "paid": 12,
        "spoilt": 3,
        "requests": 20,
        "seconds": 1.0,
    }
    return counts | given


def test_every_edit_is_right_fabricated_or_missing() -> None:
    given = {A: SAID, B: SAID | {"alignment": 1}, C: {"alignment": 5}}
    counts = peers.account(
        [A, B, C, D],
        given,
        told((A, "garbage"), (A, "right"), (B, "right"), (C, "right")),
    )
    assert counts == {
        "right": 1,
        "fabricated": 1,
        "missing": 2,
        "paid": 4,
        "spoilt": 1,
        "requests": 7,
    }


def test_a_score_for_an_edit_that_the_server_never_spoke_of_is_fabricated() -> None:
    assert peers.account([A], {A: SAID}, told())["fabricated"] == 1


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (SAID, "right"),
        ({}, "missing"),
        ({"alignment": 5}, "missing"),
        ({"alignment": 4}, "fabricated"),
        (SAID | {"beauty": 5}, "fabricated"),
        ({"alignment": 0, "completeness": 0, "plausibility": 0}, "fabricated"),
    ],
)
def test_an_edit_is_judged_by_all_its_scores(
    given: dict[str, int], verdict: str
) -> None:
    assert peers.verdict(given, SAID) == verdict


def test_scores_are_read_out_of_a_fence() -> None:
    answer = {
        "image_id": A,
        "online_factor_results": {
            name: {"score": score} for name, score in SAID.items()
        },
    }
    assert peers.read_scores(f"```json\n{json.dumps(answer)}\n```") == SAID


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I rate it highly.",
        "<html>",
        '{"image_id": "x"',
        '{"online_factor_results": {}}',
        "{}",
        "[1] {2}",
    ],
)
def test_what_holds_no_answer_gives_no_score(reply: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        peers.read_scores(reply)


def test_shares_are_of_all_edits_and_payments_of_the_right_ones() -> None:
    shares = faults.shares(figures(), 10)
    assert (shares["right"], shares["made_up"], shares["missing"]) == (0.8, 0.1, 0.1)
    assert (shares["paid_per_answer"], shares["paid_to_least"]) == (
        1.5,
        round(12 / 11, 3),
    )


def test_who_asks_two_questions_an_edit_is_not_said_to_waste_one_of_them() -> None:
    shares = faults.shares(figures(paid=19), 10, questions=2)
    assert (shares["paid_to_least"], shares["paid_per_answer"]) == (1.0, 2.375)


def test_without_a_right_answer_there_is_no_price_of_one() -> None:
    shares = faults.shares(figures(right=0, missing=9), 10)
    assert shares["paid_per_answer"] is None and shares["paid_to_least"] is None


def test_a_peer_that_failed_says_why_in_place_of_figures() -> None:
    failed = peers.outcome(1, "progress", "Traceback\nImportError: no module\n")
    assert (
        failed
        == {"could_not_be_run": "ImportError: no module"}
        == faults.shares(failed, 10)
    )


@pytest.mark.parametrize("printed", ["", "all done\n", "[1]\n"])
def test_a_peer_that_printed_no_figures_could_not_be_run(printed: str) -> None:
    assert set(peers.outcome(0, printed, "")) == {"could_not_be_run"}


def test_figures_are_the_last_line_whatever_a_peer_prints_before() -> None:
    assert peers.outcome(0, 'a banner\n{"rate": 1.5}\n\n', "a warning") == {"rate": 1.5}


def test_a_contender_is_measured_and_accounted_for(tmp_path: Path) -> None:
    """With a judge that knows one answer, makes one up and loses one."""
    manifest = throughput.make_edits(tmp_path, "jpeg", 3, side=64)

    def judge(
        asked: list[peers.Asked], url: str, patient: bool
    ) -> dict[str, peers.Scores]:
        assert url.endswith("/v1") and not patient
        assert all(path.exists() for a in asked for path in a.pictures)
        return {asked[0].identifier: SAID, asked[1].identifier: SAID}

    with serve_in_thread(Behaviour()) as stub:
        line = peers.measured(judge, manifest, stub.url)
    assert set(line) == {
        *("rate", "cpu_ms", "peak_mb", "answered", "seconds"),
        *("right", "fabricated", "missing", "paid", "spoilt", "requests"),
    }
    # The server was never asked, so both answers are made up.
    assert (line["answered"], line["fabricated"], line["missing"], line["paid"]) == (
        2,
        2,
        1,
        0,
    )


def test_absent_peers_are_said_to_be_absent(tmp_path: Path) -> None:
    python = peers.python_of("deepeval", tmp_path)
    python.parent.mkdir(parents=True)
    python.touch()
    assert peers.installed(tmp_path) == (
        ["deepeval", "deepeval ImageEditing"],
        ["inspect_ai", "evalscope", "pydantic_evals"],
    )


def test_a_peer_gets_no_key_and_no_proxy_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "CONFIDENT_API_KEY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "secret")
    assert "secret" not in peers.environment("/nowhere").values()


def test_a_contender_reaches_nothing_but_this_machine() -> None:
    def look_up(host: str) -> subprocess.CompletedProcess[str]:
        code = f"import socket; from bench.peers import stay_here; stay_here(); socket.getaddrinfo({host!r}, 80)"
        return subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            cwd=peers.ROOT,
            capture_output=True,
            text=True,
        )

    assert look_up("127.0.0.1").returncode == 0
    assert "stays on the loopback interface" in look_up("example.org").stderr


@pytest.mark.parametrize("peer", peers.PEERS.values(), ids=list(peers.PEERS))
def test_contenders_import_nothing_at_the_top_that_a_peers_venv_may_lack(
    peer: peers.Peer,
) -> None:
    tree = ast.parse(
        (peers.ROOT / Path(*peer.module.split("."))).with_suffix(".py").read_text()
    )
    names = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    names |= {
        name.name
        for node in tree.body
        if isinstance(node, ast.Import)
        for name in node.names
    }
    foreign = {str(name).split(".")[0] for name in names} - {
        "bench",
        *sys.stdlib_module_names,
    }
    assert not foreign and peer.requirements and peer.patience


def test_our_own_edits_are_right_and_paid_once_under_the_faults(tmp_path: Path) -> None:
    manifest = throughput.make_edits(tmp_path, "jpeg", 6, side=64)
    # With this seed the first reply is garbage and the seven after it are not, whichever edit comes first.
    with serve_in_thread(Behaviour(garbage=0.3), seed=1) as stub:
        shares = faults.shares(faults.ours(manifest, stub.url), 6)
    assert (
        shares["right"],
        shares["made_up"],
        shares["missing"],
        shares["paid_to_least"],
    ) == (1.0, 0.0, 0.0, 1.0)
    assert shares["paid"] == 7 and shares["statuses"] == {"ok": 6}


def test_one_failed_round_stands_for_all() -> None:
    rounds: list[dict[str, Any]] = [{"rate": 2.0}, {"could_not_be_run": "it broke"}]
    assert throughput._medians(rounds) == {"could_not_be_run": "it broke"}
    ratios = throughput._with_ratios(
        {
            "bare-aiohttp": {"rate": 1.0, "cpu_ms": 1.0, "peak_mb": 1.0},
            "peer": rounds[1],
        }
    )
    assert ratios["peer"] == {"could_not_be_run": "it broke"}


def test_what_pip_would_install_is_read_from_its_report() -> None:
    report = json.dumps(
        {
            "install": [
                {"metadata": {"name": "Torch"}},
                {"metadata": {"name": "evalscope"}},
            ]
        }
    )
    assert planned(report) == {"torch", "evalscope"}


def test_what_it_asks_for_counts_unless_only_an_extra_does() -> None:
    needs = ["torch>=2.1", "torchvision (>=0.16) ; extra == 'all'", "numpy"]
    report = json.dumps(
        {"install": [{"metadata": {"name": "lmms-eval", "requires_dist": needs}}]}
    )
    assert planned(report) == {"lmms-eval", "torch", "numpy"}
