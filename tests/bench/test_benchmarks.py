"""The page of benchmarks says what the figures say, and measuring one thing again loses nothing of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import benchmarks, benchmarks_page, peers
from bench.benchmarks_page import cell, page
from tests.faults import shows

FIGURES = benchmarks.DOCS / "benchmarks.json"


def section(
    found: dict[str, Any], command: str = "python -m bench.some"
) -> dict[str, Any]:
    stamp = {
        "command": command,
        "date": "2026-01-02",
        "minutes": 1.5,
        "load_before": 0.1,
    }
    machine = {"processor": "P", "cores": 2, "memory_gb": 4, "system": "Linux"}
    return {**stamp, "machine": machine, "versions": {"editjudge": "1"}, "found": found}


def contest(**contenders: dict[str, Any]) -> dict[str, Any]:
    return {
        "throughput": section(
            {"ideal_rate": 128.0, "sizes": [4, 8], "rounds": 1, "jpeg": contenders}
        )
    }


def test_the_page_is_what_its_figures_give() -> None:
    written = FIGURES.with_suffix(".md").read_text("utf-8")
    assert written == page(benchmarks.kept(FIGURES)), (
        "python -m bench.benchmarks --page"
    )


def test_every_section_has_its_place_on_the_page() -> None:
    assert list(benchmarks.COMMANDS) == list(benchmarks_page.RENDERED)


def test_a_section_measured_again_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "figures.json"
    store = section({"writes_per_s": 5})
    benchmarks.keep(into, "store", store)
    monkeypatch.setattr(
        "sys.argv", ["bench", "resume", "--with=--edits 3", "--into", str(into)]
    )
    assert benchmarks.main() == 0
    kept = json.loads(into.read_text())
    assert kept["store"] == store and kept["resume"]["found"]["judgements"] == 9
    assert kept["resume"]["command"] == "python -m bench.resume --edits 3"
    assert list(kept) == ["resume", "store"]  # the order of the page, not of the day
    assert "`python -m bench.resume --edits 3`" in into.with_suffix(".md").read_text()


def test_a_benchmark_that_fails_keeps_its_old_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "figures.json"
    benchmarks.keep(into, "resume", section({"judgements": 7}))
    monkeypatch.setattr(
        "sys.argv", ["bench", "resume", "--with=--no-such-option", "--into", str(into)]
    )
    assert benchmarks.main() == 1
    assert benchmarks.kept(into)["resume"]["found"] == {"judgements": 7}


def test_figures_printed_before_are_taken_with_the_command_that_gives_them(
    tmp_path: Path,
) -> None:
    printed = tmp_path / "printed.json"
    small = {"seconds": 2.0, "edits_per_second": 5.0, "cpu_ms": 4.0, "peak_mb": 100.0}
    runs = [
        {"edits": 10, "local": small},
        {"edits": 1000, "local": {**small, "peak_mb": 110.0}},
    ]
    result = {"load": 3.5, "stub": runs}
    printed.write_text(json.dumps(result))
    read = benchmarks.read("million", printed)
    assert read["found"] == result and read["command"].endswith(
        benchmarks.COMMANDS["million"]
    )
    shown = page({"million": read})
    assert shows(shown, "1.1 times the memory", "1 times the CPU") and shows(
        shown, "load was 3.5"
    )


def test_a_peer_that_could_not_be_run_is_listed_with_the_reason() -> None:
    figures = {"rate": 100.0, "cpu_ms": 4.0, "peak_mb": 80.0}
    text = page(contest(editjudge=figures, deepeval={"could_not_be_run": "it broke"}))
    assert "| deepeval | not run: it broke |" in text


@pytest.mark.parametrize(
    ("theirs", "more", "bold"),
    [(1.5, True, True), (1.01, True, False), (0.5, False, True), (1.5, False, False)],
)
def test_a_peer_that_is_better_stands_out(
    theirs: float, more: bool, bold: bool
) -> None:
    assert (
        cell({"editjudge": 1.0, "peer": theirs}, "peer", more).startswith("**") is bold
    )


def test_a_peer_that_makes_something_up_where_we_do_not_has_its_figure_without_a_ratio() -> (
    None
):
    assert cell({"editjudge": 0.0, "peer": 3.0}, "peer", more=False) == "3"


def test_what_was_not_measured_is_said_not_to_be() -> None:
    assert page({}).count("Not measured yet.") == len(benchmarks.COMMANDS)


def test_no_absolute_path_is_in_the_figures() -> None:
    assert (
        str(peers.ROOT) not in FIGURES.read_text() and "/tmp" not in FIGURES.read_text()  # noqa: S108
    )
