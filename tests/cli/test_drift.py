"""`editjudge drift`: the same edits, judged at another time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import check_error, shows

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]


def harsher(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
    return max(1, quality(model, n, judge, factor, repeat) - (factor == "alignment"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = made(tmp_path / "s.db", Spec("then", edits=100))
    return made(
        store,
        Spec(
            "now",
            edits=100,
            salt="later",
            server_model="m-2",
            spec={"layout": "published"},
        ),
        harsher,
    )


def test_what_changed_is_told_before_what_moved(call: Call, store: Path) -> None:
    done = call("drift", "now", "--against", "then", "--store", store)
    lines = done.out.splitlines()
    assert done.code == 0 and done.widest <= 100
    assert lines[:2] == [
        "changed: layout: images-first -> published",
        "changed: server model of openai/m: m-1 -> m-2",
    ]
    assert shows(lines[2], "openai/m", "moved", "alignment", "1 of 3")


def test_the_document_has_each_judge_and_factor(call: Call, store: Path) -> None:
    document = call(
        "drift", "now", "--against", "then", "--store", store, "--json"
    ).document
    assert (document["run"], document["against"], document["same_answers"]) == (
        "now",
        "then",
        0,
    )
    shifts = {d["factor"]: d for d in document["judges"]["openai/m"]["shifts"]}
    assert (
        shifts["alignment"]["difference"] < -0.9
        and shifts["alignment"]["p_holm"] < 0.05
    )
    assert shifts["completeness"]["difference"] == 0


def test_answers_that_were_not_asked_twice_are_called_out(
    call: Call, store: Path
) -> None:
    made(store, Spec("again", edits=100))
    done = call("drift", "again", "--against", "then", "--store", store)
    assert "->" not in done.out, "nothing about the judging changed"
    assert shows(done.out, "200 of 200 judgements", "no evidence", "3 factors")


def test_a_changed_rubric_is_called_out(
    call: Call, store: Path, tmp_path: Path
) -> None:
    from editjudge.rubrics.files import dump, load

    path = tmp_path / "fidelity.yaml"
    path.write_text(
        dump(load("fidelity")).replace("role:", "role: Careful.", 1), "utf-8"
    )
    made(store, Spec("reworded", rubrics=(str(path),), salt="x"))
    done = call(
        "drift", "reworded", "--against", "then", "--across-rubrics", "--store", store
    )
    assert "changed: rubric fidelity:" in done.out


def test_the_earlier_run_may_lie_in_another_store(
    call: Call, store: Path, tmp_path: Path
) -> None:
    other = made(tmp_path / "other.db", Spec("then", edits=100))
    done = call(
        "drift", "now", "--against", "then", "--against-store", other, "--store", store
    )
    assert done.code == 0 and "moved beyond noise: alignment" in done.out


def test_runs_of_other_edits_or_judges_cannot_be_compared_and_say_so(
    call: Call, store: Path
) -> None:
    made(store, Spec("elsewhere", models=("third",)))
    done = call("drift", "elsewhere", "--against", "then", "--store", store)
    assert (done.code, done.out) == (1, "")
    check_error(done.error, "no_common_edit", "24 edits of elsewhere", "200 of then")
    made(store, Spec("two", judges=("a/b", "c/d")))
    done = call("drift", "two", "--against", "then", "--store", store)
    assert done.code == 2
    check_error(done.error, "no_common_judge")
    assert call("drift", "now", "--store", store).code == 2


def test_one_judge_against_another_is_compared_and_called_a_change(
    call: Call, store: Path
) -> None:
    made(store, Spec("successor", judges=("openai/m2",)))
    done = call("drift", "successor", "--against", "then", "--store", store)
    sides = "openai/m2 (b) against openai/m (a)"
    assert shows(done.out, "openai/m -> openai/m2", sides, "then (a)", sides)
    command = ("drift", "successor", "--against", "then", "--store", store, "--json")
    assert call(*command).document["earlier_judges"] == {"openai/m2": "openai/m"}


def test_a_server_that_changed_its_model_within_a_run_splits_it(
    call: Call, tmp_path: Path
) -> None:
    """The server ran m-1 for the model `good`, then m-2, which is harsher, for the model `poor`."""

    def changing(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        score = harsher if model == "poor" else quality
        return score(model, n, judge, factor, repeat)

    def reported(model: str, _: int) -> str:
        return {"good": "m-1", "poor": "m-2"}[model]

    store = made(tmp_path / "s.db", Spec("then", edits=60))
    spec = Spec("now", edits=60, salt="later", server_model=reported)
    made(store, spec, changing)
    done = call("drift", "now", "--against", "then", "--store", store)
    assert shows(done.out, "within now", "m-1", "60 edits", "m-2", "60 edits")
    splits = call(
        "drift", "now", "--against", "then", "--store", store, "--json"
    ).document["by_reported_model"]
    assert [(s["then"], s["now"], s["edits"]) for s in splits] == [
        ("m-1", "m-1", 60),
        ("m-1", "m-2", 60),
    ]
    same, other = (
        {d["factor"]: d for d in s["shifts"]}["alignment"]["difference"] for s in splits
    )
    assert same == 0 and other < -0.9


def test_one_reported_model_is_not_split(call: Call, store: Path) -> None:
    document = call(
        "drift", "now", "--against", "then", "--store", store, "--json"
    ).document
    assert document["by_reported_model"] == []
