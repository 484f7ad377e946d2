"""The best of several outputs: all against all, and knock-out."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from cli.test_pairs import manifest

from editjudge.orders import Choice
from editjudge.run.best_of import Method, Pair, Verdicts, play

from .made import editjudge, rows_of
from .test_pair_runs import line


def by_name(pairs: Any) -> Verdicts:
    """The earlier letter wins."""
    return {pair: "a" if pair[0] < pair[1] else "b" for pair in pairs}


@pytest.mark.parametrize("method", ["all", "knockout"])
@pytest.mark.parametrize("names", ["ba", "cab", "dbca", "edcba", "hgfedcba"])
def test_the_strongest_is_found_whatever_the_order(method: Method, names: str) -> None:
    (found,) = play({"g": list(names)}, method, by_name)
    assert found.best == "a" and found.candidates[0].id == "a" and found.candidates[0].rank == 1
    assert {one.id for one in found.candidates} == set(names) and found.reason == ""


def test_knock_out_asks_one_question_less_than_there_are_candidates() -> None:
    asked: list[Pair] = []

    def ask(pairs: Any) -> Verdicts:
        asked.extend(pairs)
        return by_name(pairs)

    play({"g": list("hgfedcba"), "one": ["x"], "two": ["y", "z"]}, "knockout", ask)
    assert len(asked) == 7 + 0 + 1
    asked.clear()
    play({"g": list("hgfedcba")}, "all", ask)
    assert len(asked) == 28


def test_all_against_all_ranks_everybody() -> None:
    (found,) = play({"g": list("cab")}, "all", by_name)
    assert [(one.id, one.points, one.rank) for one in found.candidates] == [("a", 2, 1), ("b", 1, 2), ("c", 0, 3)]


@pytest.mark.parametrize("method", ["all", "knockout"])
@pytest.mark.parametrize(("verdict", "told"), [("tie", "equal|tie"), (None, "failed")])
def test_what_is_not_decided_has_no_best(method: Method, verdict: Choice | None, told: str) -> None:
    import re

    (found,) = play({"g": ["x", "y"]}, method, lambda pairs: dict.fromkeys(pairs, verdict))
    assert found.best is None and re.search(told, found.reason)


def test_a_failure_that_cannot_change_the_best_does_not_hide_it() -> None:
    def ask(pairs: Any) -> Verdicts:
        return {**by_name(pairs), ("b", "c"): None}

    (found,) = play({"g": ["a", "b", "c"]}, "all", ask)
    assert found.best == "a" and [one.failed for one in found.candidates] == [0, 1, 1]


@pytest.mark.parametrize(("method", "asked"), [("all", 6), ("knockout", 4)])
def test_a_run_ranks_the_candidates_of_each_input(tmp_path: Path, method: str, asked: int) -> None:
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
    (tmp_path / "replies.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    words = ("run", path, "--best-of", method, "--judge", f"replay:{tmp_path}/replies.jsonl",
             "--store", tmp_path / "s.db", "--name", "best")  # fmt: skip
    done = editjudge(*words, "--json")
    assert done.code == 0, done.err
    found = done.json["best_of"]
    assert [group["best"] for group in found["groups"]] == ["cat-0", "cat-1"] and found["questions"] == asked
    again = editjudge(*words)
    assert "0 asked" in again.out and "best cat-0" in again.out
    assert editjudge("runs", "again", "best", "--store", tmp_path / "s.db").code == 2


def test_best_of_needs_several_candidates_and_a_rubric_of_pairs(tmp_path: Path) -> None:
    path = manifest(tmp_path, models=("ann",), sources=2)
    words = ("run", path, "--best-of", "--judge", "measured", "--store", tmp_path / "s.db")
    done = editjudge(*words)
    assert done.code == 1 and "nothing to rank" in done.err
    done = editjudge(*words, "--rubric", "quality")
    assert done.code == 2 and "about one edit" in done.err
