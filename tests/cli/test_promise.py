"""`export --good`: filters with a promise."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.running.made import Told, editjudge, picture, write_manifest, write_old

RUBRIC = """
name: hub
images: [input, edited]
texts: [instruction]
scale: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
factors:
  - {key: done, definition: Whether it was done.}
  - {key: clean, definition: Whether it is clean.}
answer: {words: [0, 50]}
"""
EDITS = 240


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run in which people find exactly the edits good that the judge gives 6 or more."""
    (tmp_path / "hub.yaml").write_text(RUBRIC)
    write_old(tmp_path / "image.png", picture("image"))
    rows = []
    replies = []
    ratings = ["item,rater,factor,score"]
    for number in range(EDITS):
        score = number % 11
        row = {"id": f"e{number}", "group": f"g{number}", "instruction": "Paint it."}
        rows.append(row | {"input": "image.png", "edited": "image.png"})
        factor = {"score": score, "justification": "seen"}
        reply = json.dumps({"done": factor, "clean": factor})
        replies.append({"item": f"e{number}", "rubric": "hub", "reply": reply})
        ratings.append(f"e{number},ann,done,{9 if score >= 6 else 2}")
    (tmp_path / "replies.jsonl").write_text("\n".join(map(json.dumps, replies)))
    (tmp_path / "ratings.csv").write_text("\n".join(ratings))
    told = editjudge(
        "run", write_manifest(tmp_path, rows), "--rubric", tmp_path / "hub.yaml",
        "--judge", f"replay:{tmp_path / 'replies.jsonl'}", "--store", tmp_path / "s.db",
        "--name", "mine",
    )  # fmt: skip
    assert told.code == 0
    return tmp_path


def export(folder: Path, *words: object) -> Told:
    return editjudge(
        "export", "mine", "--store", folder / "s.db", "-o", folder / "out",
        "--ratings", folder / "ratings.csv", *words,
    )  # fmt: skip


def test_the_most_lenient_cut_that_ratings_support_is_promised_and_written(
    folder: Path,
) -> None:
    told = export(folder, "--good", "done>=3", "--precision", ".9", "--json")
    document = told.json
    lines = (folder / "out" / "kept.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in lines]
    good = [row for row in kept if int(row["id"][1:]) % 11 >= 6]
    assert told.code == 0
    assert document["refused"] is None
    assert (document["kept"], document["of"]) == (len(kept), EDITS)
    assert document["rated"] == EDITS
    assert len(good) / len(kept) >= 0.9
    digest = sha256((folder / "ratings.csv").read_bytes()).hexdigest()
    assert kept[0]["filter"] == {
        "rule": document["rule"],
        "good": "done >= 3",
        "precision_at_least": 0.9,
        "confidence": 0.95,
        "ratings": digest,
    }


def test_too_few_ratings_are_refused_with_1_and_the_number_that_would_do(
    folder: Path,
) -> None:
    ratings = (folder / "ratings.csv").read_text().splitlines()
    (folder / "ratings.csv").write_text("\n".join(ratings[:40]))
    told = export(folder, "--good", "done>=6", "--precision", ".9", "--json")
    assert told.code == 1
    assert told.json["refused"] == "too_few_ratings"
    assert told.json["further_ratings"] > 0
    assert told.json["kept"] == 0
    assert not (folder / "out").exists()


def test_a_precision_that_no_cut_reaches_is_refused_without_such_a_number(
    folder: Path,
) -> None:
    told = export(
        folder, "--good", "done>=5", "--people-good", "done<1", "--precision", ".5",
        "--json",
    )  # fmt: skip
    assert told.code == 1
    assert told.json["refused"] == "precision_too_low"
    assert told.json["further_ratings"] is None


def test_one_rule_may_have_several_factors(folder: Path) -> None:
    told = export(
        folder, "--good", "done>=6 and min(done, clean)>=6", "--people-good", "done>=6",
        "--precision", ".9", "--json",
    )  # fmt: skip
    assert told.code == 0
    assert told.json["refused"] is None
    assert " and " in told.json["rule"]


def test_ratings_of_other_edits_than_the_rest_are_pointed_out(folder: Path) -> None:
    header, *rows = (folder / "ratings.csv").read_text().splitlines()
    best = [row for row in rows if int(row.split(",")[0][1:]) % 11 >= 7]
    (folder / "ratings.csv").write_text("\n".join([header, *best]))
    told = export(folder, "--good", "done>=6", "--precision", ".8", "--json")
    assert told.json["differing"]["done"] > 3


@pytest.mark.parametrize(
    "words",
    [
        ("--good", "done>=5"),
        ("--good", "dome>=5", "--precision", ".9"),
        ("--good", "clean>=5", "--precision", ".9"),
        ("--good", "done>=5", "--precision", ".9", "--where", "done>=1"),
        ("--good", "done>=5", "--precision", ".9", "--format", "csv"),
        ("--good", "done", "--precision", ".9"),
    ],
)
def test_a_rule_that_cannot_be_tested_is_2(
    folder: Path, words: tuple[str, ...]
) -> None:
    assert export(folder, *words).code == 2
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--good", ("--good", "dome>=5")),
        ("--good", ("--good", "done>=")),
        ("--people-good", ("--good", "done>=5", "--people-good", "done>=")),
    ],
)
def test_the_option_whose_condition_is_wrong_is_named(
    folder: Path, option: str, words: tuple[str, ...]
) -> None:
    result = export(folder, *words, "--precision", ".9")
    assert result.code == 2
    assert result.err.startswith(f"editjudge: {option}")
