"""`editjudge agree --preferences`: judges against people who say which of two edits is better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults import shows

from .stores import Call, Spec, call, made

__all__ = ["call"]

DATA = Path(__file__).parents[3] / "shared" / "data" / "preference_pairs"


def said(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str | None:
    """The good model gets 6 and the poor one 3, but for a tie, an upset and an answer that cannot be read."""
    if model == "poor" and n == 1:
        return 6
    if model == "poor" and n == 2:
        return 7
    if model == "poor" and n == 3:
        return "invalid"
    return 6 if model == "good" else 3


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def pairs(path: Path, people: str, edits: str = "0123456789") -> Path:
    """Good against poor edits of these numbers, which people prefer so: A, B or t."""
    told = {"A": "A", "B": "b", "t": "Tie"}
    return written(
        path,
        "a,b,preference,rater",
        *(
            f"good-{n},poor-{n},{told[p]},ann"
            for n, p in zip(edits, people, strict=True)
        ),
    )


def test_a_judge_of_a_run_votes_for_the_edit_that_it_scored_higher(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(rubrics=("online",)), said)
    asked = (
        "agree",
        "r",
        "--preferences",
        pairs(tmp_path / "p.csv", "AtAAAAABBB"),
        "--store",
        store,
    )
    document = call(*asked, "--json").document
    assert (document["pairs"], document["left_out"]) == (10, 0)
    assert {"overall", "fidelity", "alignment"} <= set(document["factors"])
    for factor in ("overall", "fidelity", "alignment"):
        one = document["factors"][factor]["openai/m"]
        assert (
            one["n"],
            one["answered"],
            one["failed"],
            one["judge_ties"],
            one["human_ties"],
        ) == (10, 9, 1, 1, 1)
        # Right are 0, 4, 5, 6 and the tie; wrong the upset and where people prefer the poor one.
        assert one["accuracy"] == pytest.approx(5 / 9) and one["strict"] == 0.5
        assert one["without_ties"] == pytest.approx(4 / 8) and one[
            "first_share"
        ] == pytest.approx(7 / 8)
        assert (
            one["human_first_share"] == pytest.approx(6 / 9)
            and one["ci"][0] < one["accuracy"] < one["ci"][1]
        )
    people = document["humans"]["strengths"]
    assert [(s["model"], s["games"]) for s in people] == [("good", 10), ("poor", 10)]
    strengths = document["factors"]["overall"]["openai/m"]["strengths"]
    assert strengths[0]["model"] == "good" and strengths[0]["games"] == 9
    assert document["factors"]["alignment"]["openai/m"]["strengths"] is None


def test_small_differences_are_called_ties_where_that_is_better(
    call: Call, tmp_path: Path
) -> None:
    def close(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return 5 if model == "good" else 4 if n < 6 else 1

    store = made(tmp_path / "s.db", say=close)
    asked = (
        "agree",
        "r",
        "--preferences",
        pairs(tmp_path / "p.csv", "ttttttAAAA"),
        "--store",
        store,
        "--json",
    )
    one = call(*asked).document["factors"]["overall"]["openai/m"]
    assert one["accuracy"] == 0.4
    assert one["tie_calibrated"] == {
        "n": 10,
        "accuracy": 1.0,
        "epsilon": 1.0,
        "held_out": 1.0,
    }


def test_equal_means_over_repeats_are_a_tie(call: Call, tmp_path: Path) -> None:
    # 3/3 and 5/3 have the same mean as 4/3 and 4/3, but for the last digit of a float.
    spoken = {"good": [(1, 1, 1), (1, 1, 3)], "poor": [(1, 1, 2), (1, 1, 2)]}

    def thirds(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return spoken[model][repeat][
            ("alignment", "completeness", "plausibility").index(factor)
        ]

    store = made(tmp_path / "s.db", Spec(repeats=2), thirds)
    asked = (
        "agree",
        "r",
        "--preferences",
        pairs(tmp_path / "p.csv", "tt", "01"),
        "--store",
        store,
        "--json",
    )
    assert call(*asked).document["factors"]["overall"]["openai/m"]["judge_ties"] == 2


def test_a_person_reads_tables_that_fit(call: Call, tmp_path: Path) -> None:
    store = made(
        tmp_path / "s.db",
        Spec(rubrics=("online",), judges=("openai/m", "anthropic/a-longer-name")),
        said,
    )
    done = call(
        "agree",
        "r",
        "--preferences",
        pairs(tmp_path / "p.csv", "AtAAAAABBB"),
        "--store",
        store,
    )
    assert done.code == 0 and done.widest <= 100 and "nan" not in done.out
    assert "9/10" in done.out and shows(done.out, "A in 0.67", "1 a tie")
    for result in (
        "without ties",
        "takes A",
        "tie-calibrated",
        "held out",
        "Bradley-Terry",
        "openai/m, overall",
    ):
        assert result in done.out


def test_pairs_of_edits_that_the_run_does_not_have_are_left_out_and_told(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", say=said)
    file = tmp_path / "p.csv"
    written(file, "a,b,preference", "good-0,poor-0,A", "good-1,porr-1,A")
    asked = ("agree", "r", "--preferences", file, "--store", store)
    assert call(*asked, "--json").document["left_out"] == 1
    told = " ".join(call(*asked).out.split())
    assert f"1 of 2 pairs are left out; the first at {file}:3: found 'porr-1'" in told
    written(file, "a,b,preference", "x,poor-1,A")
    done = call(*asked)
    assert (done.code, done.out) == (1, "") and f"{file}:2: found 'x'" in done.err


def test_judges_whose_votes_are_in_the_file_need_no_run(
    call: Call, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"human_preference": "A", "judge_votes": {"j": "[[A>B]]", "k": "[[B>A]]"}},
        {"human_preference": "B", "judge_votes": {"j": "[[B>A]]", "k": None}},
        {
            "human_preference": "tie",
            "judge_votes": {"j": "[[A=B=Bad]]", "k": "[[A=B=Good]]"},
        },
        {"human_preference": "A", "judge_votes": {"j": "A is better, or [[B>A]]"}},
    ]
    models = {"model_a": "m", "model_b": "n", "group": "g"}
    lines = written(
        tmp_path / "p.jsonl", *(json.dumps({**models, **row}) for row in rows)
    )
    table = written(
        tmp_path / "p.csv",
        "model_a,model_b,group,preference,vote:j,vote:k",
        *("m,n,g,A,A,B", "m,n,g,B,B,", "m,n,g,tie,tie,tie", "m,n,g,A,neither,"),
    )
    document = call("agree", "--preferences", lines, "--json").document
    assert document == call("agree", "--preferences", table, "--json").document
    j, k = (document["factors"]["vote"][name] for name in "jk")
    assert (j["answered"], j["failed"], j["accuracy"], j["strict"]) == (3, 1, 1.0, 0.75)
    assert (k["answered"], k["failed"], k["accuracy"], k["strict"]) == (2, 2, 0.5, 0.25)
    assert j["tie_calibrated"] is None and j["ci"] is None
    assert [s["model"] for s in document["humans"]["strengths"]] == ["m", "n"]
    shown = call("agree", "--preferences", table).out
    assert "3/4" in shown and "only one source image" in shown


def test_a_file_without_groups_says_what_that_does_to_intervals(
    call: Call, tmp_path: Path
) -> None:
    file = written(
        tmp_path / "p.csv", "model_a,model_b,preference,vote:j", "m,n,A,A", "m,m,B,A"
    )
    done = call("agree", "--preferences", file)
    assert done.code == 0 and shows(done.out, "source images", "their own")
    # A model is not stronger than itself, and what never lost is only known to be strong.
    assert "never lost" in done.out and "never won" in done.out


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["model_a,model_b,preference,vote:j", "m,n,A,A", "m,n,left,A"],
            ":3: field \"preference\": found 'left'",
        ),
        (
            ["model_a,model_b,vote:j", "m,n,A"],
            ':2: field "preference": found None, expected A, B or tie',
        ),
        (["model_a,preference,vote:j", "m,A,A"], ':2: field "model_b": is missing'),
        (
            ["model_a,model_b,preference,vote:j", "m,,A,A"],
            ':2: field "model_b": found None, expected a name',
        ),
        (
            ["model_a,model_b,preference,judge_votes", "m,n,A,A"],
            ":2: field \"judge_votes\": found 'A'",
        ),
        (["model_a,model_b,preference", "m,n,A"], "has no votes of judges; name a RUN"),
        (["model_a,model_b,preference"], "has no rows"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_line_and_field(
    call: Call, tmp_path: Path, lines: list[str], told: str
) -> None:
    file = written(tmp_path / "p.csv", *lines)
    done = call("agree", "--preferences", file)
    assert (
        (done.code, done.out) == (1, "") and str(file) in done.err and told in done.err
    )


@pytest.mark.parametrize(
    "more",
    [["--ratings", "r.csv"], ["--scores", "s.csv"], ["--calibrate"], ["--estimate"]],
)
def test_preferences_are_not_mixed_with_ratings(call: Call, more: list[str]) -> None:
    done = call("agree", "r", "--preferences", "p.csv", *more)
    assert (done.code, done.out) == (2, "") and "--preferences" in done.err


@pytest.mark.skipif(not DATA.is_dir(), reason="the pairs are not here")
def test_real_votes_give_the_reference_figures(call: Call) -> None:
    found = call("agree", "--preferences", DATA / "manifest.jsonl", "--json").document[
        "factors"
    ]["vote"]
    # Over all pairs, of which these are half, 72.0 and 65.0 % were published.
    assert found["gpt4o"]["strict"] == pytest.approx(0.7105, abs=5e-5)
    assert found["gemini-1.5-pro"]["strict"] == pytest.approx(0.6228, abs=5e-5)


def test_a_judge_prefers_the_lower_score_where_lower_is_better(
    call: Call, tmp_path: Path
) -> None:
    def distance(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return 0 if model == "good" else 1

    store = made(tmp_path / "s.db", Spec(rubrics=("metrics",)), distance)
    file = pairs(tmp_path / "p.csv", "AAAAAAAAAA")
    found = call(
        "agree", "r", "--preferences", file, "--store", store, "--json"
    ).document["factors"]
    assert (
        found["l1"]["openai/m"]["accuracy"] == 1
        and found["ssim"]["openai/m"]["accuracy"] == 0
    )


@pytest.mark.skipif(not DATA.is_dir(), reason="the pairs are not here")
def test_every_recorded_judge_is_counted_as_a_direct_recount_counts_it(
    call: Call,
) -> None:
    found = call("agree", "--preferences", DATA / "manifest.jsonl", "--json").document[
        "factors"
    ]["vote"]
    rows = [
        json.loads(line)
        for line in (DATA / "manifest.jsonl").read_text("utf-8").splitlines()
    ]
    meaning = {
        "[[A>B]]": "A",
        "[[B>A]]": "B",
        "[[A=B=Good]]": "tie",
        "[[A=B=Bad]]": "tie",
    }
    judges = {name for row in rows for name in row["judge_votes"]}
    assert set(found) == judges and len(judges) == 18
    for judge in judges:
        votes = [
            (row["human_preference"], meaning.get(row["judge_votes"].get(judge) or ""))
            for row in rows
        ]
        answered = [(human, vote) for human, vote in votes if vote]
        decided = [
            (human, vote) for human, vote in answered if "tie" not in (human, vote)
        ]
        one = found[judge]
        assert (one["n"], one["answered"], one["decided"]) == (
            len(rows),
            len(answered),
            len(decided),
        )
        assert one["judge_ties"] == sum(vote == "tie" for _, vote in answered)
        for name, some in (
            ("accuracy", answered),
            ("strict", votes),
            ("without_ties", decided),
        ):
            right = sum(human == vote for human, vote in some)
            assert one[name] == (pytest.approx(right / len(some)) if some else None), (
                judge,
                name,
            )
