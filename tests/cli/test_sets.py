"""Rubric sets from the command line: imported from a checkout, run, and scored in every verb that knows factors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.faults import shows
from tests.running.made import editjudge, picture, rows_of

RECIPE = """
name: ours
title: Our bench
repository: someone/ours
commit: 0123abc
texts:
  semantics: {file: prompts.py, constant: SEMANTICS}
  quality: {file: prompts.py, constant: QUALITY}
rubrics:
  - name: SC
    prompt: [semantics]
    slots: {<wish>: instruction}
    images: [input, edited]
    texts: [instruction]
    factors: [{key: success}, {key: care}]
    scale: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
    answer: {form: list, envelope: score, texts: [reasoning]}
  - name: PQ
    prompt: [quality]
    when: edit_type != sketch
    images: [edited]
    factors: [{key: natural}]
    scale: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}
    answer: {form: list, envelope: score, texts: [reasoning]}
score:
  semantics: min(SC.*)
  overall: if(asked(PQ), sqrt(semantics * natural), semantics)
"""
PROMPTS = 'SEMANTICS = "Wished: <wish>. Two numbers."\nQUALITY = "One number."\n'
SCORES = {
    "a": ([9, 4], [9]),
    "b": ([2, 8], [2]),
    "c": ([6, 6], None),
    "d": ([5, 7], None),
}
"""Of `c` no reply on quality is recorded; `d` is a sketch, of which it is not asked."""


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "prompts.py").write_text(PROMPTS, "utf-8")
    (tmp_path / "recipe.yaml").write_text(RECIPE, "utf-8")
    told = editjudge(
        *(
            "rubric",
            "import",
            tmp_path / "recipe.yaml",
            "--from",
            tmp_path / "checkout",
            "-o",
            tmp_path / "ours.yaml",
        )
    )
    assert told.code == 0, told.err
    return tmp_path


@pytest.fixture
def store(ours: Path) -> Path:
    edits = []
    replies = []
    for number, (name, (semantics, quality)) in enumerate(SCORES.items()):
        for role in ("input", "edited"):
            (ours / f"{name}-{role}.png").write_bytes(picture(f"{name}-{role}"))
        row = {
            "id": name,
            "input": f"{name}-input.png",
            "edited": f"{name}-edited.png",
            "instruction": "redder",
        }
        edits.append(
            {
                **row,
                "model": f"m{number % 2}",
                "edit_type": "sketch" if name == "d" else "photo",
            }
        )
        for rubric, scores in (("SC", semantics), ("PQ", quality)):
            if scores:
                reply = json.dumps({"score": scores, "reasoning": "seen"})
                replies.append({"item": name, "rubric": rubric, "reply": reply})
    (ours / "edits.jsonl").write_text("\n".join(map(json.dumps, edits)), "utf-8")
    (ours / "replies.jsonl").write_text("\n".join(map(json.dumps, replies)), "utf-8")
    run = editjudge(
        *(
            "run",
            ours / "edits.jsonl",
            "--rubric",
            ours / "ours.yaml",
            "--judge",
            f"replay:{ours / 'replies.jsonl'}",
        ),
        *("--store", ours / "s.db", "--name", "r", "--max-failures", "1", "--json"),
    )
    assert run.code == 0, run.err
    return ours / "s.db"


def exported(store: Path, folder: Path) -> dict[str, Any]:
    assert editjudge("export", "r", "--store", store, "-o", folder).code == 0
    return {
        row["item"]: next(iter(row["set_scores"].values()))
        for row in rows_of(folder / "items.jsonl")
    }


def test_an_imported_set_runs_and_its_scores_are_those_of_the_formula(
    store: Path, tmp_path: Path
) -> None:
    scores = exported(store, tmp_path / "out")
    assert scores["a"] == {"semantics": 4.0, "overall": pytest.approx(6.0)}
    assert scores["b"]["overall"] == pytest.approx(2.0)
    assert scores["c"] == {"semantics": 6.0, "overall": None}
    assert scores["d"]["overall"] == 5.0


def test_a_run_of_a_set_ends_with_the_set_s_scores_by_model(store: Path) -> None:
    folder = store.parent
    done = editjudge(
        *("run", folder / "edits.jsonl", "--rubric", folder / "ours.yaml", "-q"),
        *("--judge", f"replay:{folder / 'replies.jsonl'}", "--name", "r"),
        *("--store", store, "--max-failures", "1"),
    )
    assert done.code == 0, done.err
    # Of m0, a has 6 and c none; of m1, b and d have a score.
    assert shows(done.out, "PQ.natural", "overall m0 1/2 1 3..8 6 6 m1 2/2")


def test_every_verb_knows_a_set_s_scores_by_name(store: Path) -> None:
    report = editjudge("report", "r", "--store", store, "--format", "json", "--json")
    cells = [cell for cell in report.json["aggregates"] if cell["factor"] == "overall"]
    assert sum(cell["n"] for cell in cells) == 4
    assert sum(cell["ok"] for cell in cells) == 3
    assert {kind for cell in cells for kind in cell["failed"]} == {"unreachable"}
    wanted = "overall = sqrt(min SC x natural) if PQ was asked, else min SC; undefined: 1 unreachable"
    assert wanted in report.json["formulas"]
    gate = editjudge(
        "gate", "r", "--store", store, "--min", "overall=9", "--max-failures", "1"
    )
    assert gate.code == 100, gate.err
    compared = editjudge("compare", "r", "--store", store, "--json")
    assert "overall" in {row["factor"] for row in compared.json["comparisons"]}
    (store.parent / "ratings.csv").write_text(
        "item,rater,factor,score\n"
        + "".join(f"{item},p,overall,{n}\n" for n, item in enumerate("abd", 1)),
        "utf-8",
    )
    agreed = editjudge(
        "agree",
        "r",
        "--store",
        store,
        "--ratings",
        store.parent / "ratings.csv",
        "--json",
    )
    assert agreed.code == 0, agreed.err
    assert next(iter(agreed.json["factors"]["overall"].values()))["n"] == 3


def test_a_data_set_is_filtered_by_a_set_s_score(store: Path, tmp_path: Path) -> None:
    told = editjudge(
        "export",
        "r",
        "--store",
        store,
        "-o",
        tmp_path / "kept",
        "--where",
        "overall>=5",
        "--json",
    )
    assert told.code == 0, told.err
    assert (told.json["kept"], told.json["unscored"]) == (2, 1)


def test_show_says_what_a_set_is_made_of(ours: Path) -> None:
    contract = editjudge("rubric", "show", ours / "ours.yaml", "--json").json
    assert [member["name"] for member in contract["members"]] == ["SC", "PQ"]
    assert contract["members"][0]["factors"][0] == {
        "key": "success",
        "values": list(range(11)),
    }
    assert contract["scores"] == ["semantics", "overall"]
    printed = editjudge("rubric", "show", ours / "ours.yaml").out
    assert shows(printed, "overall", "sqrt(min SC x natural)")
    questions = editjudge(
        "rubric", "show", ours / "ours.yaml", "--prompt", "--json"
    ).json["questions"]
    assert "Two numbers." in json.dumps(questions[0])
    online = editjudge("rubric", "show", "online", "--json").json
    assert [member["name"] for member in online["members"]] == [
        "preservation",
        "quality",
        "fidelity",
    ]
    assert online["factors"]
    assert online["scores"] == []


def test_recipes_are_listed(ours: Path) -> None:
    recipes = {
        one["name"]: one
        for one in editjudge("rubric", "recipes", "--json").json["recipes"]
    }
    assert recipes["gedit"]["scores"] == ["semantics", "quality", "overall"]
    assert "gedit" in editjudge("rubric", "recipes").out


def test_a_checkout_of_another_repository_is_refused_and_writes_nothing(
    ours: Path,
) -> None:
    told = editjudge(
        "rubric",
        "import",
        "gedit",
        "--from",
        ours / "checkout",
        "-o",
        ours / "gedit.yaml",
    )
    assert told.code == 1
    assert "vie_prompts.py" in told.err
    assert not (ours / "gedit.yaml").exists()
    both = editjudge(
        "rubric", "import", "gedit", "--from", ours / "checkout", "--factor", "x"
    )
    assert both.code == 2


def test_the_mean_over_edits_is_that_of_plain_python(store: Path) -> None:
    report = editjudge(
        "report", "r", "--store", store, "--format", "json", "--json"
    ).json
    means = {
        cell["model"]: cell["mean"]
        for cell in report["aggregates"]
        if cell["factor"] == "overall"
    }
    assert means == {
        "m0": pytest.approx(math.sqrt(4 * 9)),
        "m1": pytest.approx((2 + 5) / 2),
    }


LIMBS = """
name: limbs
rubrics:
  - name: pose
    template: {text: Compare the limbs.}
    images: [input, edited]
    factors: [{key: arm}, {key: leg}]
    scale: {choices: [MATCH, MISMATCH, N/A]}
    answer: {form: scores, envelope: pose}
score:
  matches: sum(pose.* == "MATCH")
  compared: matches + sum(pose.* == "MISMATCH")
  consistency: if(compared == 0, 0, matches / compared)
"""


def test_choices_about_one_output_become_numbers_in_a_formula_alone(ours: Path) -> None:
    (ours / "limbs.yaml").write_text(LIMBS, "utf-8")
    for name in ("in", "out1", "out2"):
        (ours / f"{name}.png").write_bytes(picture(name))
    edits = [
        {"id": n, "input": "in.png", "edited": f"{n}.png", "instruction": "bow"}
        for n in ("out1", "out2")
    ]
    poses = {
        "out1": {"arm": "MATCH", "leg": "MISMATCH"},
        "out2": {"arm": "N/A", "leg": "N/A"},
    }
    replies = [
        {"item": n, "rubric": "pose", "reply": json.dumps({"pose": pose})}
        for n, pose in poses.items()
    ]
    for name, rows in (("edits", edits), ("replies", replies)):
        (ours / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    run = editjudge(
        *(
            "run",
            ours / "edits.jsonl",
            "--rubric",
            ours / "limbs.yaml",
            "--judge",
            f"replay:{ours / 'replies.jsonl'}",
        ),
        *("--store", ours / "s.db", "--name", "r", "--json"),
    )
    assert run.code == 0, run.err
    scores = exported(ours / "s.db", ours / "out")
    assert [scores[n]["consistency"] for n in poses] == [0.5, 0.0]
    report = editjudge(
        "report", "r", "--store", ours / "s.db", "--format", "json", "--json"
    )
    assert report.code == 0, report.err
    assert report.json["factors"] == []
    means = {cell["factor"]: cell["mean"] for cell in report.json["aggregates"]}
    assert means["consistency"] == 0.25
