"""`run --until`: runs that end once their claims are decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editjudge.store.store import Store
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
IMAGES = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A manifest of two models on many source images, with recorded replies in which `new` is better by 6 or so."""
    (tmp_path / "hub.yaml").write_text(RUBRIC)
    write_old(tmp_path / "image.png", picture("image"))
    rows = []
    replies = []
    for number in range(IMAGES):
        for model, score in (("old", number % 3), ("new", 6 + number % 4)):
            row = {"id": f"{model}{number}", "model": model, "group": f"g{number}"}
            row |= {"input": "image.png", "edited": "image.png"}
            rows.append(row | {"instruction": "Paint it."})
            factor = {"score": score, "justification": "seen"}
            reply = json.dumps({"done": factor, "clean": factor})
            replies.append({"item": row["id"], "rubric": "hub", "reply": reply})
    lines = "\n".join(map(json.dumps, replies))
    (tmp_path / "replies.jsonl").write_text(lines)
    write_manifest(tmp_path, rows)
    return tmp_path


def run(folder: Path, *words: object, name: str = "early") -> Told:
    return editjudge(
        "run", folder / "edits.jsonl",
        "--rubric", folder / "hub.yaml", "--judge", f"replay:{folder / 'replies.jsonl'}",
        "--store", folder / "store.db", "--name", name, *words,
    )  # fmt: skip


@pytest.mark.parametrize("score", ["hub", "overall", "done"])
def test_a_claim_about_the_mean_of_the_only_rubric_is_decided_as_one_about_overall(
    folder: Path, score: str
) -> None:
    told = run(folder, "--until", f"{score}: new > old", "--json")
    assert told.json["until"][0]["decided"] is True


@pytest.mark.parametrize("score", ["hub", "overall"])
def test_a_claim_is_not_decided_by_nothing_but_failures(
    folder: Path, score: str
) -> None:
    (folder / "replies.jsonl").write_text("")
    told = run(folder, "--until", f"{score}: new > old", "--json")
    assert told.code == 3
    (claim,) = told.json["until"]
    assert (claim["decided"], claim["images"]) == (None, 0)


def test_a_run_ends_with_0_once_its_claim_is_decided_and_says_what_it_saved(
    folder: Path,
) -> None:
    told = run(folder, "--until", "overall: new > old", "--json")
    document = told.json
    (claim,) = document["until"]
    assert told.code == 0
    assert claim["claim"] == "overall: new > old"
    assert claim["decided"] is True
    assert claim["sequence"][0] > 0
    assert claim["e_value"] >= 20
    assert claim["images"] < IMAGES
    saved = document["saved"]["judgements"]
    assert saved == 2 * (IMAGES - claim["images"]) > 0
    assert document["statuses"] == {"ok": 2 * IMAGES - saved}


def test_the_same_command_continues_the_same_sequence_and_asks_nothing_more(
    folder: Path,
) -> None:
    first = run(folder, "--until", "done: new > old", "--json").json
    again = run(folder, "--until", "done: new > old", "--json").json
    assert again["asked"] == 0
    assert again["until"] == first["until"]
    assert again["saved"]["judgements"] == first["saved"]["judgements"]
    with Store.open(folder / "store.db") as store:
        assert store.find_run("early").spec["until"]["seed"] == 1


def test_a_run_whose_claim_stays_open_uses_up_the_edits_and_ends_with_0(
    folder: Path,
) -> None:
    told = run(folder, "--until", "done: new ~ old", "--margin", "6.5", "--json")
    assert told.code == 0
    assert told.json["until"][0]["decided"] is None
    assert told.json["saved"] == {"judgements": 0, "usd": None}


def test_every_claim_must_be_decided_and_each_has_its_share_of_alpha(
    folder: Path,
) -> None:
    one = run(folder, "--until", "done: new > old", "--json", name="one").json
    two = run(
        folder, "--until", "done: new > old", "--until", "clean: old > new", "--json",
        name="two",
    ).json  # fmt: skip
    assert [claim["decided"] for claim in two["until"]] == [True, False]
    assert one["until"][0]["level"] == pytest.approx(0.9)
    assert two["until"][0]["level"] == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (("--until", "done: nwe > old"), "new"),
        (("--until", "dome: new > old"), "done"),
        (("--until", "new > old"), ""),
        (("--until", "done: new > new"), ""),
        (("--until", "done: new ~ old"), ""),
        (("--until", "done: new > old", "--margin", "1"), ""),
        (("--until", "done: new > old", "--limit", "4"), ""),
        (("--until", "done: new > old", "--part", "1/2"), ""),
        (("--alpha", ".1"), ""),
    ],
)
def test_a_claim_that_cannot_be_tested_is_2_before_any_question(
    folder: Path, words: tuple[str, ...], near: str
) -> None:
    told = run(folder, *words)
    assert told.code == 2
    assert near in str(told.error)
    assert not (folder / "store.db").exists()


def test_images_without_a_complete_pair_are_counted_and_not_numbers(
    folder: Path,
) -> None:
    replies = (folder / "replies.jsonl").read_text().splitlines()
    failed = [line for line in replies if '"new1' not in line]
    (folder / "replies.jsonl").write_text("\n".join(failed))
    told = run(
        folder, "--until", "done: new > old", "--until", "done: old > new",
        "--alpha", "1e-30", "--max-failures", "1", "--json",
    )  # fmt: skip
    claim = told.json["until"][0]
    assert claim["images"] + claim["incomplete"] == IMAGES
    assert claim["incomplete"] == 11


def test_report_and_compare_show_the_sequence_and_no_interval_for_a_fixed_number(
    folder: Path,
) -> None:
    claims = run(folder, "--until", "overall: new > old", "--json").json["until"]
    where = ("--store", folder / "store.db", "--json")
    report = editjudge("report", "early", *where).json
    compared = editjudge("compare", "early", *where).json
    assert report["until"] == compared["until"] == claims
    assert report["comparisons"] == []
    cells = [*report["factors"], *report["aggregates"], *report["ranks"]]
    assert {cell["ci"] for cell in cells} == {None}
    assert {d["difference"]["ci"] if isinstance(d["difference"], dict) else d["ci"]
            for d in compared["comparisons"]} == {None}  # fmt: skip
    assert {d["p_holm"] for d in compared["comparisons"]} == {None}
    page = folder / "page.html"
    editjudge("report", "early", *where[:2], "-o", page)
    assert "overall: new &gt; old" in page.read_text()
