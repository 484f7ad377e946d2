"""The best of several outputs, each compared with every other."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from editjudge.orders import Choice
from editjudge.running.best_of import Pair, Verdicts, play
from tests.cli.test_pairs import manifest

from .made import editjudge, rows_of
from .test_pair_runs import line


def by_name(pairs: Any) -> Verdicts:
    """The earlier letter wins."""
    return {pair: "a" if pair[0] < pair[1] else "b" for pair in pairs}


@pytest.mark.parametrize("names", ["ba", "cab", "dbca", "edcba", "hgfedcba"])
def test_the_strongest_is_found_whatever_the_order(names: str) -> None:
    (found,) = play({"g": list(names)}, by_name)
    assert (
        found.best == "a"
        and found.candidates[0].id == "a"
        and found.candidates[0].rank == 1
    )
    assert {one.id for one in found.candidates} == set(names) and found.reason == ""


def test_every_two_candidates_of_a_group_are_compared_once() -> None:
    compared: list[Pair] = []

    def ask(pairs: Any) -> Verdicts:
        compared.extend(pairs)
        return by_name(pairs)

    rankings = play({"g": list("hgfedcba"), "single": ["x"], "two": ["y", "z"]}, ask)
    assert len(compared) == len(set(compared)) == 28 + 0 + 1
    assert [ranking.best for ranking in rankings] == ["a", "x", "y"]


def test_all_against_all_ranks_everybody() -> None:
    (found,) = play({"g": list("cab")}, by_name)
    assert [(one.id, one.points, one.rank) for one in found.candidates] == [
        ("a", 2, 1),
        ("b", 1, 2),
        ("c", 0, 3),
    ]


@pytest.mark.parametrize(("verdict", "told"), [("tie", "equal"), (None, "failed")])
def test_what_is_not_decided_has_no_best(verdict: Choice | None, told: str) -> None:
    (found,) = play({"g": ["x", "y"]}, lambda pairs: dict.fromkeys(pairs, verdict))
    assert found.best is None and told in found.reason


def test_a_failure_that_cannot_change_the_best_does_not_hide_it() -> None:
    def ask(pairs: Any) -> Verdicts:
        return {**by_name(pairs), ("b", "c"): None}

    (found,) = play({"g": ["a", "b", "c"]}, ask)
    assert found.best == "a" and [one.failed for one in found.candidates] == [0, 1, 1]


@pytest.mark.parametrize("option", [("--best-of", "all"), ("--best-of",)])
def test_a_run_ranks_the_candidates_of_each_input(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    path = manifest(tmp_path, sources=2)
    rows = rows_of(path)
    lines = []
    for a, b in combinations(rows, 2):
        if a["instruction"] == b["instruction"]:
            for x, y in ((a, b), (b, a)):
                better = "a" if x["model"] > y["model"] else "b"  # cat is best
                turned = {"a": "b", "b": "a"}[better]
                pair = f"{x['id']}|{y['id']}"
                lines += [line(pair, "ab", better), line(pair, "ba", turned)]
    (tmp_path / "replies.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in lines)
    )
    words = ("run", path, *option, "--judge", f"replay:{tmp_path}/replies.jsonl",
             "--store", tmp_path / "s.db", "--name", "best")  # fmt: skip
    done = editjudge(*words, "--json")
    assert done.code == 0, done.err
    found = done.json["best_of"]
    assert [group["best"] for group in found["groups"]] == ["cat-0", "cat-1"]
    assert (found["method"], found["questions"]) == ("all", 6)
    again = editjudge(*words)
    assert "0 asked" in again.out and "best cat-0" in again.out
    assert editjudge("runs", "again", "best", "--store", tmp_path / "s.db").code == 2


def test_best_of_needs_several_candidates_and_a_rubric_of_pairs(tmp_path: Path) -> None:
    path = manifest(tmp_path, models=("ann",), sources=2)
    words = (
        "run",
        path,
        "--best-of",
        "--judge",
        "measured",
        "--store",
        tmp_path / "s.db",
    )
    done = editjudge(*words)
    assert done.code == 1 and "nothing to rank" in done.err
    done = editjudge(*words, "--rubric", "quality")
    assert done.code == 2 and "about one edit" in done.err


def test_a_way_of_ranking_that_is_not_offered_is_refused_with_the_one_that_is(
    tmp_path: Path,
) -> None:
    path = manifest(tmp_path, sources=2)
    done = editjudge(
        "run",
        path,
        "--best-of",
        "knockout",
        "--judge",
        "measured",
        "--store",
        tmp_path / "s.db",
    )
    assert done.code == 2 and "--best-of all" in done.err
    assert not (tmp_path / "s.db").exists()
