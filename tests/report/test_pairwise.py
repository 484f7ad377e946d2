"""`report`, `agree` and others on runs of pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_pairs import made, manifest
from tests.faults import check_error, shows
from tests.running.made import Told, editjudge
from tests.running.test_pair_runs import FACTORS, line


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ann beats bob beats cat on 24 source images, but for one pair that flips and one that failed."""
    manifest(tmp_path, sources=24)
    lines = []
    for n, row in enumerate(made(tmp_path)):
        best = "a" if row["model_a"] < row["model_b"] else "b"
        if n % 5 == 4:
            best = {"a": "b", "b": "a"}[best]
        for order in ("ab", "ba"):
            shown = best if order == "ab" else {"a": "b", "b": "a"}[best]
            if n != 1 or order == "ab":
                lines.append(line(row["id"], order, "a" if n == 0 else shown))
    (tmp_path / "replies.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in lines)
    )
    words = (
        "--rubric",
        "preference",
        "--judge",
        f"replay:{tmp_path}/replies.jsonl",
        "--name",
        "p",
    )
    done = editjudge(
        "run",
        tmp_path / "pairs.jsonl",
        *words,
        "--store",
        tmp_path / "s.db",
        "--max-failures",
        "1",
    )
    assert done.code == 0, done.err
    return tmp_path / "s.db"


def report(store: Path, *words: object) -> Told:
    done = editjudge("report", "p", "--store", store, *words)
    assert done.code == 0, done.err
    return done


def test_a_page_shows_decided_and_flipped_pairs_with_their_images(
    store: Path,
) -> None:
    page = report(store, "--format", "html").out
    decided, flipped = page.split('id="decided"')[1].split('id="flipped"')
    assert decided.count("<article") == 6 and decided.count("<img") == 18
    assert flipped.partition("</section>")[0].count("<article") == 1
    assert shows(decided, "A · ann", "B · bob", "A first", "B first")


def test_every_form_has_flips_win_rates_and_strengths(
    store: Path, tmp_path: Path
) -> None:
    shown = report(store).out
    for words in (
        "71/72",
        "flip rate",
        "win rate",
        "strength",
        "Win rate of the row over the column",
        "ann",
    ):
        assert words in shown
    found = report(store, "--json").json["judges"][f"replay:{tmp_path}/replies.jsonl"]
    assert list(found) == ["overall", "instruction", "preservation", "quality"]
    assert (
        found["overall"]["n"],
        found["overall"]["failed"],
        found["overall"]["flipped"],
    ) == (72, 1, 1)
    assert [one["model"] for one in found["overall"]["models"]] == ["ann", "bob", "cat"]
    assert all(one["strength_ci"] and one["ci"] for one in found["overall"]["models"])
    csv = report(store, "--format", "csv").out
    assert (
        csv.startswith("judge,factor,model,rank") and len(csv.splitlines()) == 1 + 4 * 3
    )
    assert (
        "| ann" in report(store, "--format", "md").out
        and r"\begin{" in report(store, "--format", "latex").out
    )
    page = tmp_path / "r.html"
    report(store, "-o", page)
    assert (
        "<svg" in page.read_text()
        and "flip rate" in page.read_text()
        and "<script" not in page.read_text()
    )


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "p"),
        ("gate", "p", "--min", "overall=1"),
        ("report", "p", "--by", "x"),
    ],
)
def test_what_needs_scores_says_that_there_are_none(
    store: Path, words: tuple[str, ...]
) -> None:
    done = editjudge(*words, "--store", store)
    assert done.code == 2 and ("has no scores" in done.err or "has none" in done.err)


def test_judges_of_pairs_beside_people(store: Path, tmp_path: Path) -> None:
    rows = [
        json.loads(text) for text in (tmp_path / "pairs.jsonl").read_text().splitlines()
    ]
    votes = [
        f"{row['id']},{who},{'A' if row['model_a'] < row['model_b'] else 'B'}"
        for row in rows
        for who in "xy"
    ]
    votes[0] = f"{rows[0]['id']},x,both_bad"
    people = tmp_path / "people.csv"
    people.write_text(
        "\n".join(["item,rater,preference", *votes, "nobody|knows,x,A"]) + "\n"
    )
    command = ("agree", "p", "--preferences", people, "--store", store)
    result = editjudge(*command, "--json").json
    one = result["factors"]["overall"][f"replay:{tmp_path}/replies.jsonl"]
    assert (
        result["votes"],
        result["left_out"],
        one["n"],
        one["answered"],
        one["human_ties"],
    ) == (145, 1, 144, 142, 1)
    assert one["flips"]["share"] == pytest.approx(1 / 71)
    # Of 71 verdicts 14 are upsets, and the flip is the tie that one of two people says.
    assert one["accuracy"] == pytest.approx((2 * (71 - 14 - 1) + 1) / 142)
    assert one["without_ties"] == pytest.approx(2 * 56 / (2 * 70))
    assert (
        result["humans"]["agreement"] == pytest.approx(71 / 72)
        and result["humans"]["raters"] == 2
    )
    printed = editjudge(*command).out
    assert shows(printed, "1 of 145 votes") and shows(printed, "two people")
    people.write_text("item,preference\nx|y,A\n")
    assert editjudge(*command).code == 1
    assert set(FACTORS) == set(result["factors"])


def test_a_run_that_nobody_rated_says_so(store: Path) -> None:
    done = editjudge("agree", "p", "--store", store)
    assert done.code == 2
    check_error(done.error, "no_ratings", "run p")


def test_a_run_of_pairs_has_no_scores_to_map(store: Path, tmp_path: Path) -> None:
    words = ("--map-factor", "PQ=quality", "-o", tmp_path / "r.html")
    done = editjudge("report", "p", "--store", store, *words)
    assert done.code == 2
    check_error(done.error, "no_scores", "--map-factor")


def test_a_run_of_pairs_ends_with_the_win_rates_of_its_report(
    store: Path, tmp_path: Path
) -> None:
    words = ("run", tmp_path / "pairs.jsonl", "--rubric", "preference", "--name", "p")
    judge = f"replay:{tmp_path}/replies.jsonl"
    done = editjudge(
        *words, "--judge", judge, "--store", store, "--max-failures", "1", "-q"
    )
    assert done.code == 0, done.err
    (strengths,) = [
        part for part in report(store).out.split("\n\n") if "win rate" in part
    ]
    assert strengths.strip() in done.out
