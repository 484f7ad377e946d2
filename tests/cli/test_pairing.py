"""Two runs are paired by what their edits are, whatever the ids: real manifests, pictures and recorded replies."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults import check_error, shows
from tests.running.made import Told, editjudge, picture

Row = dict[str, Any]


def rows(kind: str, count: int, **more: Any) -> list[Row]:
    """Edits without ids, so that every manifest has the same ones."""
    return [
        {
            "input": f"{kind}-{n}.png",
            "edited": f"{kind}-{n}-edited.png",
            "instruction": "Paint it blue.",
            **more,
        }
        for n in range(count)
    ]


def judged(
    folder: Path,
    name: str,
    edits: Sequence[Row],
    score: Callable[[int], int],
    pictures: bool = True,
) -> Told:
    """A run of these edits by recorded replies."""
    folder.mkdir(exist_ok=True)
    manifest = folder / f"{name}.jsonl"
    replies = folder / f"{name}-replies.jsonl"
    for row in edits if pictures else ():
        for role in ("input", "edited", "ground_truth"):
            if role in row:
                (folder / row[role]).write_bytes(
                    picture(row.get(f"_{role}", row[role]))
                )
    lines = [
        {key: value for key, value in row.items() if not key.startswith("_")}
        for row in edits
    ]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines))
    entry = {
        "justification": "It is as it was asked for, as far as one can see in the two pictures here."
    }
    said = []
    for n, row in enumerate(lines, 1):
        factors = {
            key: {"score": score(n), **entry}
            for key in ("alignment", "completeness", "plausibility")
        }
        item = row.get("id", f"line-{n}")
        reply = json.dumps({"image_id": item, "online_factor_results": factors})
        said.append({"item": item, "rubric": "fidelity", "reply": reply})
    replies.write_text("".join(json.dumps(one) + "\n" for one in said))
    words = (
        "--rubric",
        "fidelity",
        "--judge",
        f"replay:{replies}",
        "--name",
        name,
        "--store",
        folder.parent / "s.db",
    )
    done = editjudge("run", manifest, *words, "-q", "--max-failures", 1)
    assert "none failed" in done.out, done.out
    return done


def high(n: int) -> int:
    return 5 + n % 3


def low(n: int) -> int:
    return 2 + n % 3


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def drift(store: Path, run: str, against: str) -> Told:
    return editjudge("drift", run, "--against", against, "--store", store, "--json")


def test_other_pictures_with_the_same_ids_are_no_drift(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "cats", "cats", rows("cat", 30), high)
    judged(tmp_path / "dogs", "dogs", rows("dog", 30), low)
    done = drift(store, "dogs", "cats")
    assert done.code == 1
    check_error(done.error, "no_common_edit", "30 edits of dogs", "30 of cats")


def test_the_same_pictures_under_other_ids_and_names_are_paired(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "then", "then", rows("cat", 12), high)
    again = [{**row, "id": f"cat {n}"} for n, row in enumerate(rows("cat", 12))][::-1]
    judged(tmp_path / "now", "now", again, low)
    document = drift(store, "now", "then").json
    assert (
        document["matched"],
        document["unmatched_a"],
        document["unmatched_b"],
        document["unread"],
    ) == (12, 0, 0, 0)
    (shifts,) = (one["shifts"] for one in document["judges"].values())
    assert {shift["n"] for shift in shifts} == {12}


def test_what_has_no_counterpart_is_counted_and_left_out(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "f", "then", rows("cat", 12), high)
    judged(tmp_path / "f", "now", [*rows("cat", 9), *rows("dog", 5)], high)
    document = drift(store, "now", "then").json
    assert (document["matched"], document["unmatched_a"], document["unmatched_b"]) == (
        9,
        5,
        3,
    )
    printed = editjudge("drift", "now", "--against", "then", "--store", store).out
    assert shows(printed, "9 edits", "5 of now", "3 of then")


def test_an_output_that_is_another_one_is_no_drift_but_has_the_same_baseline(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "then", "then", rows("cat", 12), high)
    remade = [{**row, "_edited": ("remade", row["edited"])} for row in rows("cat", 12)]
    judged(tmp_path / "now", "now", remade, low)
    assert drift(store, "now", "then").code == 1
    gate = editjudge("gate", "now", "--baseline", "then", "--store", store, "--json")
    assert gate.code == 100
    assert (
        gate.json["matched"],
        gate.json["unmatched_a"],
        gate.json["unmatched_b"],
    ) == (12, 0, 0)


def test_a_baseline_of_other_edits_is_refused(tmp_path: Path, store: Path) -> None:
    judged(tmp_path / "cats", "cats", rows("cat", 12), high)
    judged(tmp_path / "dogs", "dogs", rows("dog", 12), low)
    done = editjudge("gate", "dogs", "--baseline", "cats", "--store", store)
    assert done.code == 1
    check_error(done.error, "no_common_edit", "12 edits of dogs", "12 of cats")


@pytest.mark.parametrize("verb", ["drift", "gate", "compare"])
def test_another_instruction_is_another_edit(
    verb: str, tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "then", "then", rows("cat", 12), high)
    judged(tmp_path / "now", "now", rows("cat", 12, instruction="Paint it red."), high)
    arguments = {
        "drift": ("--against", "then"),
        "gate": ("--baseline", "then"),
        "compare": ("then",),
    }[verb]
    done = editjudge(verb, "now", *arguments, "--store", store)
    assert done.code == 1
    check_error(done.error, "no_common_edit", "12 edits of now", "12 of then")


def test_another_ground_truth_is_another_task(tmp_path: Path, store: Path) -> None:
    for name in ("then", "now"):
        aims = [
            {**row, "ground_truth": f"aim-{n}.png"}
            for n, row in enumerate(rows("cat", 8))
        ]
        aims = [
            {**row, "_ground_truth": ("same", n) if n < 4 else (name, n)}
            for n, row in enumerate(aims)
        ]
        judged(tmp_path / name, name, aims, high)
    document = editjudge("compare", "then", "now", "--store", store, "--json").json
    assert (document["matched"], document["unmatched_a"], document["unmatched_b"]) == (
        4,
        4,
        4,
    )


def test_two_runs_are_compared_side_by_side(tmp_path: Path, store: Path) -> None:
    judged(tmp_path / "old", "old", rows("cat", 12, model="v1"), low)
    remade = [
        {**row, "_edited": ("v2", row["edited"])} for row in rows("cat", 12, model="v2")
    ]
    judged(tmp_path / "new", "new", remade, high)
    document = editjudge("compare", "old", "new", "--store", store, "--json").json
    assert (document["run_a"], document["run_b"], document["matched"]) == (
        "old",
        "new",
        12,
    )
    by_factor = {one["factor"]: one for one in document["comparisons"]}
    assert set(by_factor) == {"alignment", "completeness", "plausibility", "overall"}
    assert (
        by_factor["alignment"]["difference"] == 3
        and by_factor["alignment"]["a"] == "old"
    )
    assert by_factor["overall"]["p_holm"] == by_factor["overall"]["p"]
    told = " ".join(editjudge("compare", "old", "new", "--store", store).out.split())
    assert re.match(
        r"new scores higher than old on overall by 3\.00 \[[\d.]+, [\d.]+\] \(95 % CI, n = 12\)",
        told,
    )


def test_models_that_both_runs_have_are_paired_with_themselves(
    tmp_path: Path, store: Path
) -> None:
    def both(name: str, models: Sequence[str]) -> list[Row]:
        return [
            {
                **row,
                "edited": f"{model}-{row['edited']}",
                "_edited": (name, model, row["edited"]),
                "model": model,
            }
            for model in models
            for row in rows("cat", 8)
        ]

    # The first eight edits are of one model, the others of the other: pairing across would show a difference.
    def by_model(n: int) -> int:
        return 2 if n <= 8 else 6

    judged(tmp_path / "then", "then", both("then", ["m", "n"]), by_model)
    judged(tmp_path / "now", "now", both("now", ["m", "n", "new"]), by_model)
    document = editjudge("compare", "then", "now", "--store", store, "--json").json
    assert (document["matched"], document["unmatched_a"], document["unmatched_b"]) == (
        16,
        0,
        8,
    )
    assert all(
        one["difference"] == 0 and one["n"] == 16 for one in document["comparisons"]
    )


def test_several_edits_of_one_task_count_as_their_mean(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "then", "then", rows("cat", 8), lambda _: 3)
    twice = [
        {**row, "id": f"{n} {row['input']}", "edited": f"{n}-{row['edited']}"}
        for row in rows("cat", 8)
        for n in "ab"
    ]
    judged(tmp_path / "now", "now", twice, lambda n: 2 + 2 * (n % 2))
    document = editjudge("compare", "then", "now", "--store", store, "--json").json
    assert (document["matched"], document["unmatched_a"], document["unmatched_b"]) == (
        8,
        0,
        0,
    )
    assert all(
        one["difference"] == 0 and one["n"] == 8 for one in document["comparisons"]
    )


def test_pictures_that_nobody_read_are_paired_by_their_names_and_it_is_said(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "then", "then", rows("cat", 8), high, pictures=False)
    judged(tmp_path / "now", "now", rows("cat", 8), high, pictures=False)
    done = editjudge("drift", "now", "--against", "then", "--store", store)
    assert done.code == 0
    assert shows(done.out, "8 of the edits", "names of images")
    command = ("--store", store, "--json")
    for verb in (
        ("drift", "now", "--against", "then"),
        ("compare", "then", "now"),
        ("gate", "now", "--baseline", "then"),
    ):
        assert editjudge(*verb, *command).json["unread"] == 8
    judged(tmp_path / "other", "other", rows("dog", 8), high, pictures=False)
    assert drift(store, "other", "then").code == 1


def test_a_picture_that_one_run_read_is_the_one_that_the_other_names(
    tmp_path: Path, store: Path
) -> None:
    judged(tmp_path / "f", "before", rows("cat", 8), high, pictures=False)
    judged(tmp_path / "f", "after", rows("cat", 8), high)
    assert drift(store, "after", "before").json["matched"] == 8


# --- ratings --------------------------------------------------------------------------------------------------


def ratings_file(folder: Path, score: Callable[[int], int], count: int = 8) -> Path:
    path = folder / "ratings.csv"
    lines = [
        f"line-{n},{rater},alignment,{score(n)}"
        for n in range(1, count + 1)
        for rater in ("ann", "bob")
    ]
    path.write_text("\n".join(["item,rater,factor,score", *lines]) + "\n")
    return path


@pytest.fixture
def animals(tmp_path: Path, store: Path) -> Path:
    judged(tmp_path / "cats", "cats", rows("cat", 8), high)
    judged(tmp_path / "dogs", "dogs", rows("dog", 8), high)
    return store


def agreed(store: Path, run: str) -> dict[str, Any]:
    done = editjudge("agree", run, "--store", store, "--json")
    assert done.code == 0, done.err
    (judge,) = done.json["factors"]["alignment"].values()
    return dict(judge)


def test_ratings_of_two_studies_with_the_same_ids_do_not_meet(
    tmp_path: Path, animals: Path
) -> None:
    for name, score in (("cats", high), ("dogs", lambda n: 8 - high(n))):
        done = editjudge(
            "ratings",
            "import",
            ratings_file(tmp_path, score),
            "--run",
            name,
            "--store",
            animals,
            "--json",
        )
        assert (done.json["new"], done.code) == (16, 0)
    assert agreed(animals, "cats")["spearman"] == pytest.approx(1)
    assert agreed(animals, "dogs")["spearman"] == pytest.approx(-1)


def test_ids_of_several_edits_are_refused_without_a_run_or_manifest(
    tmp_path: Path, animals: Path
) -> None:
    done = editjudge(
        "ratings", "import", ratings_file(tmp_path, high), "--store", animals
    )
    assert done.code == 2
    check_error(done.error, "several_edits_of_one_id", "8 of", "'line-1'")
    assert shows(done.err, "--run RUN", "--manifest FILE")


def test_a_manifest_says_what_the_items_are(tmp_path: Path, animals: Path) -> None:
    manifest = tmp_path / "dogs" / "dogs.jsonl"
    done = editjudge(
        "ratings",
        "import",
        ratings_file(tmp_path, high),
        "--manifest",
        manifest,
        "--store",
        animals,
    )
    assert done.code == 0, done.err
    assert agreed(animals, "dogs")["n"] == 8
    none = editjudge("agree", "cats", "--store", animals)
    assert none.code == 2
    check_error(none.error, "no_ratings", "16 ratings", "cats")


def test_two_scores_of_one_content_by_one_rater_are_refused(
    tmp_path: Path, store: Path
) -> None:
    unchanged = [{**row, "edited": row["input"], "id": f"{row['input']} {m}", "model": m}
                 for row in rows("cat", 5) for m in "ab"]  # fmt: skip
    judged(tmp_path / "cats", "cats", unchanged, high)

    def imported(second: int) -> Told:
        lines = [
            f"cat-{n}.png {m},ann,alignment,{score}"
            for n in range(5)
            for m, score in (("a", 6), ("b", second))
        ]
        (tmp_path / "r.csv").write_text("\n".join(["item,rater,factor,score", *lines]))
        return editjudge(
            "ratings",
            "import",
            tmp_path / "r.csv",
            "--run",
            "cats",
            "--store",
            store,
            "--json",
        )

    done = imported(2)
    assert done.code == 1
    check_error(done.error, "rated_twice", "6 as 'cat-0.png a'", "2 as 'cat-0.png b'")
    check_error(editjudge("agree", "cats", "--store", store).error, "no_ratings")
    done = imported(6)
    assert (done.code, done.json["ratings"], done.json["new"]) == (0, 10, 5)
    assert agreed(store, "cats")["n"] == 10


def test_items_that_the_run_does_not_have_are_counted_or_refused(
    tmp_path: Path, animals: Path
) -> None:
    more = ratings_file(tmp_path, high, count=10)
    done = editjudge(
        "ratings", "import", more, "--run", "cats", "--store", animals, "--json"
    )
    assert (done.json["ratings"], done.json["left_out"]) == (16, 4)
    (tmp_path / "other.csv").write_text("item,rater,factor,score\nx,ann,alignment,3\n")
    done = editjudge(
        "ratings", "import", tmp_path / "other.csv", "--run", "cats", "--store", animals
    )
    assert done.code == 1
    check_error(done.error, "no_common_item", "1 ratings", "cats", "'x'")


def test_what_is_exported_tells_edits_of_one_id_apart_and_comes_back(
    tmp_path: Path, animals: Path
) -> None:
    for name in ("cats", "dogs"):
        editjudge(
            "ratings",
            "import",
            ratings_file(tmp_path, high),
            "--run",
            name,
            "--store",
            animals,
        )
    whole = tmp_path / "all.csv"
    part = tmp_path / "dogs.csv"
    other = tmp_path / "other.db"
    editjudge("ratings", "export", whole, "--store", animals)
    assert whole.read_text().splitlines()[0] == "item,rater,factor,score,content,rubric"
    editjudge("ratings", "export", part, "--run", "dogs", "--store", animals)
    assert (
        part.read_text().splitlines()[0] == "item,rater,factor,score"
        and len(part.read_text().splitlines()) == 17
    )
    done = editjudge("ratings", "import", whole, "--store", other, "--json")
    assert (done.json["new"], done.json["items"]) == (32, 8)
    assert editjudge(
        "agree", "dogs", "--ratings", whole, "--store", animals, "--json"
    ).json["humans"]["alignment"]


def test_models_are_paired_by_inputs_that_nobody_read(
    tmp_path: Path, store: Path
) -> None:
    edits = [
        row | {"id": f"{model}-{n}", "model": model}
        for model in "ab"
        for n, row in enumerate(rows("cat", 8))
    ]
    judged(
        tmp_path / "edits",
        "unread",
        edits,
        lambda n: 3 if n <= 8 else 6,
        pictures=False,
    )
    document = json.loads(
        editjudge("compare", "unread", "--store", store, "--json").out
    )
    first = document["comparisons"][0]
    assert (first["n"], first["groups"], first["difference"]) == (8, 8, 3)


def test_edits_of_one_input_that_nobody_read_are_one_group(
    tmp_path: Path, store: Path
) -> None:
    edits = [row | {"input": "cat.png"} for row in rows("cat", 6)]
    judged(tmp_path / "edits", "unread", edits, high, pictures=False)
    (check,) = json.loads(
        editjudge(
            "gate", "unread", "--min", "alignment=2", "--store", store, "--json"
        ).out
    )["checks"]
    assert (check["n"], check["groups"], check["ci"]) == (6, 1, None)
