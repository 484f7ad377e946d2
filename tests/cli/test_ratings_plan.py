"""`ratings plan`, and its way out to a crowd and back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.running.made import Told, editjudge, picture, write_manifest, write_old

RUBRIC = """
name: hub
images: [input, edited]
texts: [instruction]
scale: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
factors: [{key: done, definition: Whether it was done.}]
answer: {words: [0, 50]}
"""
EDITS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two judges that disagree on every other edit."""
    (tmp_path / "hub.yaml").write_text(RUBRIC)
    write_old(tmp_path / "image.png", picture("image"))
    rows = []
    replies: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(EDITS):
        row = {"id": f"e{number}", "group": f"g{number}", "instruction": "=Paint it."}
        rows.append(row | {"input": "image.png", "edited": "image.png", "model": "m"})
        for judge, score in (("a", 4), ("b", 4 + 3 * (number % 2))):
            factor = {"score": score, "justification": "seen"}
            reply = {"item": row["id"], "rubric": "hub"}
            reply["reply"] = json.dumps({"done": factor})
            replies[judge].append(json.dumps(reply))
    words: list[object] = []
    for judge, lines in replies.items():
        (tmp_path / f"{judge}.jsonl").write_text("\n".join(lines))
        words += ["--judge", f"replay:{tmp_path / judge}.jsonl"]
    told = editjudge(
        "run", write_manifest(tmp_path, rows), "--rubric", tmp_path / "hub.yaml",
        "--store", tmp_path / "s.db", "--name", "mine", *words,
    )  # fmt: skip
    assert told.code == 0
    return tmp_path


def plan(folder: Path, name: str, *words: object) -> Told:
    return editjudge(
        "ratings", "plan", "mine", "--budget", "30", "-o", folder / name,
        "--store", folder / "s.db", *words,
    )  # fmt: skip


def test_a_plan_is_a_sample_with_probabilities_that_is_denser_where_judges_disagree(
    folder: Path,
) -> None:
    told = plan(folder, "study.jsonl", "--json")
    lines = (folder / "study.jsonl").read_text().splitlines()
    chances = {row["item"]: row["probability"] for row in map(json.loads, lines)}
    odd = {chance for item, chance in chances.items() if int(item[1:]) % 2}
    even = {chance for item, chance in chances.items() if not int(item[1:]) % 2}
    assert told.json["edits"] == len(chances) == 30
    assert min(odd) > max(even)


def test_ratings_come_back_as_csv_and_from_label_studio_with_the_same_estimates(
    folder: Path,
) -> None:
    for name in ("study.jsonl", "study.csv", "study.json"):
        assert plan(folder, name).code == 0
    with (folder / "study.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["instruction"] == "'=Paint it."
    for number, row in enumerate(rows):
        row |= {"rater": "ann", "score": str(number % 7)}
    with (folder / "back.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    tasks = json.loads((folder / "study.json").read_text())
    for task, row in zip(tasks, rows, strict=True):
        answer = {"from_name": "done", "value": {"rating": int(row["score"])}}
        task["annotations"] = [{"completed_by": {"email": "ann"}, "result": [answer]}]
    (folder / "back.json").write_text(json.dumps(tasks))
    documents = [
        editjudge(
            "agree", "mine", "--store", folder / "s.db", "--ratings", folder / ratings,
            "--estimate", "--plan", folder / planned, "--json",
        ).json
        for ratings, planned in (("back.csv", "study.jsonl"), ("back.json", "study.json"))
    ]  # fmt: skip
    assert documents[0]["estimates"] == documents[1]["estimates"]
    estimate = documents[0]["estimates"]["done"]["panel"]["m"]
    assert estimate["rated"] == 30
    assert estimate["ci"] is not None
    bare = editjudge(
        "agree", "mine", "--store", folder / "s.db", "--ratings", folder / "back.csv",
        "--estimate", "--json",
    ).json  # fmt: skip
    unweighted = bare["estimates"]["done"]["panel"]["m"]["human_mean"]
    assert estimate["human_mean"] != pytest.approx(unweighted)


@pytest.mark.parametrize(
    "text",
    ["{}", "[1]", "[{}]", '[{"data": {"item": "e1"}, "annotations": [{}]}]', "x"],
)
def test_a_file_that_is_not_from_label_studio_is_refused(
    folder: Path, text: str
) -> None:
    path = folder / "odd.json"
    path.write_text(text)
    told = editjudge("agree", "mine", "--store", folder / "s.db", "--ratings", path)
    assert told.code in (1, 2)


def test_a_plan_without_probabilities_is_refused(folder: Path) -> None:
    plan(folder, "study.jsonl")
    (folder / "bare.jsonl").write_text('{"item": "e1", "probability": 2}')
    (folder / "ratings.csv").write_text("item,rater,factor,score\ne1,ann,done,4\n")
    told = editjudge(
        "agree", "mine", "--store", folder / "s.db", "--ratings",
        folder / "ratings.csv", "--estimate", "--plan", folder / "bare.jsonl",
    )  # fmt: skip
    assert told.code in (1, 2)
    assert plan(folder, "study.txt").code == 2
