"""Runs of pairs: asked in both orders, answered in the item's own naming, resumable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editjudge.rubrics.files import load
from editjudge.rubrics.prompt import ask
from tests.cli.test_pairs import made, manifest
from tests.faults import check_error

from .made import editjudge, rows_of

FACTORS = ("instruction", "preservation", "quality", "overall")
WORDS = "the gate is green in one of them and stays brown in the other one"
TURNED = {"a": "b", "b": "a", "tie": "tie"}


def reply(item: str, choice: str, **by_factor: str) -> str:
    entries = {
        f: {"justification": WORDS, "choice": by_factor.get(f, choice)} for f in FACTORS
    }
    return json.dumps({"image_id": item, "preference_results": entries})


def line(item: str, order: str | None, choice: str, **more: Any) -> dict[str, Any]:
    """A recorded reply that names the outputs as they are shown."""
    named = {"order": order} if order else {}
    return {
        "item": item,
        "rubric": "preference",
        "reply": reply(item, choice),
        **named,
        **more,
    }


def replayed(
    folder: Path,
    lines: list[dict[str, Any]],
    *words: object,
    rubric: str = "preference",
) -> Any:
    (folder / "replies.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in lines)
    )
    return editjudge(
        *(
            "run",
            folder / "pairs.jsonl",
            "--rubric",
            rubric,
            "--judge",
            f"replay:{folder}/replies.jsonl",
        ),
        *(
            "--store",
            folder / "s.db",
            "--name",
            "p",
            "--max-failures",
            "1",
            "--json",
            *words,
        ),
    )


def exported(
    folder: Path,
) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, dict[str, Any]]]:
    done = editjudge(
        "export",
        "p",
        "--store",
        folder / "s.db",
        "-o",
        folder / "out",
        "--format",
        "jsonl",
    )
    assert done.code == 0, done.err
    rows = {
        (row["item"], row["order"]): row
        for row in rows_of(folder / "out" / "judgements.jsonl")
    }
    return rows, {row["item"]: row for row in rows_of(folder / "out" / "items.jsonl")}


@pytest.fixture
def pairs(tmp_path: Path) -> list[str]:
    manifest(tmp_path, models=("ann", "bob"), sources=5)
    return [row["id"] for row in made(tmp_path)]


def test_both_orders_are_asked_and_answers_are_in_the_items_own_naming(
    tmp_path: Path, pairs: list[str]
) -> None:
    agree, flip, half, failed, tie = pairs
    lines = [
        line(agree, "ab", "a"),
        line(agree, "ba", "b"),
        line(flip, "ab", "a"),
        line(flip, "ba", "a"),
    ]
    lines += [line(half, "ab", "tie"), line(half, "ba", "a"), line(failed, None, "a")]
    lines += [line(tie, "ab", "tie"), line(tie, "ba", "tie")]
    done = replayed(tmp_path, lines)
    assert (
        done.json["statuses"] == {"ok": 9, "unreachable": 1}
        and done.json["factors"] == []
    )
    rows, items = exported(tmp_path)
    assert len(rows) == 10
    assert (
        rows[agree, "ab"]["choices"]
        == rows[agree, "ba"]["choices"]
        == dict.fromkeys(FACTORS, "a")
    )
    assert (
        rows[flip, "ab"]["choices"]["overall"] == "a"
        and rows[flip, "ba"]["choices"]["overall"] == "b"
    )
    assert all(row["scores"] is None for row in rows.values())
    assert (
        rows[failed, "ba"]["status"] == "unreachable"
        and rows[failed, "ba"]["choices"] is None
    )
    judge = f"replay:{tmp_path}/replies.jsonl"
    verdicts = {name: items[name]["verdict"][judge]["overall"] for name in pairs}
    assert verdicts == {agree: "a", flip: "tie", half: "tie", failed: None, tie: "tie"}
    assert [name for name in pairs if items[name]["flipped"][judge]] == [flip]
    assert [name for name in pairs if items[name]["half"][judge]] == [half]
    assert items[flip]["flipped"][judge] == list(FACTORS)


def test_each_factor_is_decided_on_its_own(tmp_path: Path, pairs: list[str]) -> None:
    one = pairs[0]
    lines = [
        line(one, "ab", "a"),
        {**line(one, "ba", "b"), "reply": reply(one, "b", quality="a", overall="tie")},
    ]
    replayed(tmp_path, lines, "--limit", 1)
    judge = f"replay:{tmp_path}/replies.jsonl"
    item = exported(tmp_path)[1][one]
    assert item["verdict"][judge] == {
        "instruction": "a",
        "preservation": "a",
        "quality": "tie",
        "overall": "tie",
    }
    assert (item["flipped"][judge], item["half"][judge]) == (["quality"], ["overall"])


def test_a_forced_choice_has_no_tie_and_one_that_goes_by_the_place_is_flipped(
    tmp_path: Path, pairs: list[str]
) -> None:
    agree, flip, half = pairs[:3]
    lines = [
        line(agree, "ab", "a"),
        line(agree, "ba", "b"),
        line(flip, "ab", "b"),
        line(flip, "ba", "b"),
        line(half, "ab", "tie"),
        line(half, "ba", "a"),
    ]
    forced = [{**each, "rubric": "preference_forced"} for each in lines]
    done = replayed(tmp_path, forced, "--limit", 3, rubric="preference_forced")
    assert done.json["statuses"] == {"ok": 5, "invalid": 1}
    items = exported(tmp_path)[1]
    judge = f"replay:{tmp_path}/replies.jsonl"
    verdicts = [items[name]["verdict"][judge]["overall"] for name in pairs[:3]]
    assert verdicts == ["a", "tie", None]
    assert [bool(items[name]["flipped"][judge]) for name in pairs[:3]] == [0, 1, 0]
    report = editjudge("report", "p", "--store", tmp_path / "s.db", "--json")
    assert report.code == 0, report.err


def test_one_order_if_only_that_is_wanted(tmp_path: Path, pairs: list[str]) -> None:
    done = replayed(
        tmp_path, [line(name, None, "b") for name in pairs], "--order", "given"
    )
    assert done.json["statuses"] == {"ok": 5}
    rows, items = exported(tmp_path)
    assert {order for _, order in rows} == {"ab"}
    assert all(
        next(iter(item["verdict"].values()))["overall"] == "b"
        for item in items.values()
    )


def test_running_again_asks_nothing_and_a_missing_order_alone_is_asked(
    tmp_path: Path, pairs: list[str]
) -> None:
    lines = [line(name, order, "a") for name in pairs for order in ("ab", "ba")]
    assert replayed(tmp_path, lines).json["asked"] == 10
    assert replayed(tmp_path, lines).json["asked"] == 0
    given = replayed(tmp_path, lines, "--order", "given", "--name", "q")
    assert (given.json["asked"], given.json["cached"]) == (0, 5)


def test_what_is_shown_first_is_another_question_and_no_name_of_a_model_is_in_it(
    tmp_path: Path, pairs: list[str]
) -> None:
    import editjudge as package
    from editjudge import manifest as manifests

    (edit, *_) = manifests.read(tmp_path / "pairs.jsonl")
    digests = {"input": "0", "edited_a": "1", "edited_b": "2"}
    turned = {"input": "0", "edited_a": "2", "edited_b": "1"}
    rubric = load("preference")
    first = ask(rubric, edit, digests)
    second = ask(rubric, edit.with_outputs_swapped(), turned)
    assert first.identifier != second.identifier and package.__version__
    for question in (first, second):
        text = str(question).replace("[image: ", "")
        assert (
            "ann" not in text.split()
            and "bob" not in text.split()
            and edit.id not in text
        )
    assert str(first).replace(first.identifier or "", "") == str(second).replace(
        second.identifier or "", ""
    )


def test_a_dry_run_prices_both_orders(tmp_path: Path, pairs: list[str]) -> None:
    words = (
        "run",
        tmp_path / "pairs.jsonl",
        "--rubric",
        "preference",
        "--judge",
        "openai/gpt-4.1",
        "--dry-run",
        "--json",
    )
    both = editjudge(*words).json
    given = editjudge(*words, "--order", "given").json
    assert (both["tasks"], given["tasks"]) == (10, 5) and both["judges"][0][
        "images"
    ] == 30
    assert both["judges"][0]["price"] == pytest.approx(2 * given["judges"][0]["price"])


def test_an_order_of_a_recorded_reply_is_ab_or_ba(
    tmp_path: Path, pairs: list[str]
) -> None:
    done = replayed(tmp_path, [line(pairs[0], "xy", "a")])
    assert done.code == 1
    check_error(done.error, "bad_reply", '"order"', "'xy'")


def test_an_exported_run_of_pairs_can_be_imported(
    tmp_path: Path, pairs: list[str]
) -> None:
    replayed(
        tmp_path, [line(name, order, "a") for name in pairs for order in ("ab", "ba")]
    )
    before = exported(tmp_path)
    done = editjudge("import-run", tmp_path / "out", "--store", tmp_path / "t.db")
    assert done.code == 0, done.err
    (tmp_path / "s.db").unlink()
    (tmp_path / "t.db").rename(tmp_path / "s.db")
    after = exported(tmp_path)
    assert {place: row["choices"] for place, row in after[0].items()} == {
        place: row["choices"] for place, row in before[0].items()
    }
    assert {name: row["verdict"] for name, row in after[1].items()} == {
        n: r["verdict"] for n, r in before[1].items()
    }


def test_a_model_that_produced_nothing_leaves_no_verdict(
    tmp_path: Path, pairs: list[str]
) -> None:
    (tmp_path / f"out-{pairs[0].split('|')[1]}.png").unlink()
    done = editjudge(
        *(
            "run",
            tmp_path / "pairs.jsonl",
            "--rubric",
            "preference",
            "--judge",
            "measured",
            "--limit",
            1,
        ),
        *("--store", tmp_path / "s.db", "--name", "p", "--max-failures", "1", "--json"),
    )
    assert done.json["statuses"] == {"missing_output": 2}
    ((_, item),) = exported(tmp_path)[1].items()
    assert item["verdict"]["measured"] == dict.fromkeys(FACTORS)


def test_a_rubric_of_pairs_that_asks_for_something_else_is_refused(
    tmp_path: Path, pairs: list[str]
) -> None:
    text = "name: d\nimages: [edited_a, edited_b]\nscale: {choices: [up, down]}\nfactors: [{key: best}]\nanswer: {}\n"
    (tmp_path / "r.yaml").write_text(text)
    done = editjudge(
        "run",
        tmp_path / "pairs.jsonl",
        "--rubric",
        tmp_path / "r.yaml",
        "--judge",
        "measured",
    )
    assert done.code == 2
    check_error(done.error, "bad_choices", "up, down")


def test_words_of_another_rubric_mean_the_same_three_choices(
    tmp_path: Path, pairs: list[str]
) -> None:
    text = (
        "name: d\nimages: [input, edited_a, edited_b]\nscale: {choices: ['A>B', 'B>A', 'A=B=Bad']}\n"
        "factors: [{key: best}]\nanswer: {form: scores}\n"
    )
    (tmp_path / "r.yaml").write_text(text)
    said = [
        {
            "item": pairs[0],
            "rubric": "d",
            "order": o,
            "reply": json.dumps({"best": "B>A"}),
        }
        for o in ("ab", "ba")
    ]
    (tmp_path / "replies.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in said)
    )
    editjudge(
        *("run", tmp_path / "pairs.jsonl", "--rubric", tmp_path / "r.yaml", "--judge"),
        *(
            f"replay:{tmp_path}/replies.jsonl",
            "--store",
            tmp_path / "s.db",
            "--name",
            "p",
            "--limit",
            1,
        ),
    )
    rows, _ = exported(tmp_path)
    assert [rows[pairs[0], order]["choices"] for order in ("ab", "ba")] == [
        {"best": "b"},
        {"best": "a"},
    ]


FOUR = """
name: four
rubrics:
  - name: which
    images: [edited_a, edited_b]
    texts: [instruction]
    scale: {choices: [A, B, tie, both_bad]}
    factors: [{key: better, definition: Which is better.}]
    answer: {form: token}
score:
  bad: better == "both_bad"
  tied: better == "tie"
"""


def test_both_bad_is_kept_as_such_scored_as_such_and_counted_as_a_tie(
    tmp_path: Path, pairs: list[str]
) -> None:
    (tmp_path / "four.yaml").write_text(FOUR)
    said = dict(zip(pairs, ("both_bad", "tie", "A", "B", "both_bad"), strict=True))
    lines = [
        {"item": item, "rubric": "which", "reply": word, "order": o}
        for item, word in said.items()
        for o in ("ab", "ba")
    ]
    (tmp_path / "four.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in lines)
    )
    words = (
        "--rubric",
        tmp_path / "four.yaml",
        "--judge",
        f"replay:{tmp_path}/four.jsonl",
        "--name",
        "p",
    )
    told = editjudge(
        "run", tmp_path / "pairs.jsonl", *words, "--store", tmp_path / "s.db"
    )
    assert told.code == 0, told.err
    rows, items = exported(tmp_path)
    bad = pairs[0]
    assert (
        rows[bad, "ab"]["choices"]
        == rows[bad, "ba"]["choices"]
        == {"better": "both_bad"}
    )
    (verdict,) = items[bad]["verdict"].values()
    assert verdict == {"better": "tie"}
    scores = [next(iter(items[item]["set_scores"].values())) for item in pairs]
    assert [(one["bad"], one["tied"]) for one in scores] == [
        (1, 0),
        (0, 1),
        (0, 0),
        (0, 0),
        (1, 0),
    ]
    again = editjudge("import-run", tmp_path / "out", "--store", tmp_path / "copy.db")
    assert again.code == 0, again.err
    assert editjudge("report", "p", "--store", tmp_path / "s.db", "--json").code == 0


def test_two_choices_that_mean_the_same_are_refused(
    tmp_path: Path, pairs: list[str]
) -> None:
    (tmp_path / "four.yaml").write_text(
        FOUR.replace("both_bad]", "equal]").replace('"both_bad"', '"equal"')
    )
    words = (
        "--rubric",
        tmp_path / "four.yaml",
        "--judge",
        f"replay:{tmp_path}/none.jsonl",
        "--store",
        tmp_path / "s.db",
    )
    (tmp_path / "none.jsonl").write_text("")
    assert editjudge("run", tmp_path / "pairs.jsonl", *words).code == 2


@pytest.mark.parametrize(
    ("file", "rubric"), [("edits.jsonl", "preference"), ("pairs.jsonl", "fidelity")]
)
def test_recorded_replies_to_the_other_kind_of_rubric_are_missing_outputs_as_for_a_live_judge(
    tmp_path: Path, pairs: list[str], file: str, rubric: str
) -> None:
    item = rows_of(tmp_path / file)[0]["id"]
    (tmp_path / "r.jsonl").write_text(
        json.dumps({"item": item, "rubric": rubric, "reply": reply(item, "a")})
    )
    statuses = []
    for judge in (f"replay:{tmp_path}/r.jsonl", "measured"):
        store = tmp_path / f"{judge[:6]}.db"
        done = editjudge(
            *("run", tmp_path / file, "--rubric", rubric, "--judge", judge),
            *("--store", store, "--limit", "1", "--json"),
        )
        assert done.code == 3, done.err
        statuses.append(done.json["statuses"])
    assert statuses[0] == statuses[1] and set(statuses[0]) == {"missing_output"}
