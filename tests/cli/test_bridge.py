"""`editjudge bridge` and `compare --through`: two judges of the same edits."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import editjudge
from editjudge.rubrics.files import dump, load
from tests.faults import check_error

from .stores import Call, Spec, call, made

__all__ = ["call"]

LEVELS = {"good": 0.7, "poor": -0.7, "fair": 0.0, "late": 0.5}
MODELS = ("good", "poor", "fair")
KEYS = {"old", "new", "n", "groups", "factors", "verdict"}
FACTOR_KEYS = {
    "comparable",
    "within",
    "map",
    "spearman",
    "models_spearman",
    "same_verdicts",
}


def score(model: str, n: int, judge: str, factor: str, repeat: int) -> float | str:
    """What the judge `old`, the stricter judge `new`, and one that guesses say about an edit."""
    photo = np.random.default_rng([n // 2, len(factor)]).normal(4, 1)
    edit = np.random.default_rng([n, *map(ord, model), len(factor)])
    quality = photo + LEVELS[model] + edit.normal(0, 0.5)
    guess = np.random.default_rng([n, *map(ord, model), len(factor), 1])
    if judge == "openai/random" or (judge == "openai/new" and factor == "completeness"):
        return int(guess.integers(1, 8))
    if judge == "openai/new":
        if n == 5:
            return "refused"
        quality = 4 + (quality - 4) / 2
    return int(np.clip(round(quality), 1, 7))


@dataclass
class Stores:
    store: Path
    bridge: Path


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    store = tmp_path / "s.db"
    for name in ("old", "new", "random"):
        spec = Spec(
            name,
            models=MODELS,
            edits=60,
            judges=[f"openai/{name}"],
            salt=name,
            server_model=f"{name}-1",
        )
        made(store, spec, score)
    late = Spec(
        "late",
        models=["late"],
        edits=60,
        judges=["openai/new"],
        server_model="new-1",
    )
    made(store, late, score)
    return Stores(store, tmp_path / "bridge.json")


@pytest.fixture
def bridged(call: Call, stores: Stores) -> dict[str, Any]:
    """The document of a bridge whose limit integer scores can meet."""
    arguments = ("--within", 1.25, "-o", stores.bridge, "--store", stores.store)
    document = call("bridge", "old", "new", *arguments, "--json").document
    assert json.loads(stores.bridge.read_text()) == document
    return document


def test_the_document_has_the_agreed_keys(bridged: dict[str, Any]) -> None:
    assert bridged.keys() >= KEYS
    assert (bridged["old"], bridged["new"]) == ("old", "new")
    assert (bridged["n"], bridged["groups"]) == (180, 30)
    for factor in bridged["factors"].values():
        assert factor.keys() >= FACTOR_KEYS
        assert all(knot.keys() >= {"new", "old", "lo", "hi"} for knot in factor["map"])


def test_a_factor_is_comparable_or_has_a_reason(bridged: dict[str, Any]) -> None:
    near = bridged["factors"]["alignment"]
    assert near["comparable"] and near["reason"] is None and near["within"] < 1.25
    far = bridged["factors"]["completeness"]
    assert not far["comparable"] and far["reason"] == "bridge_ranks"
    assert "completeness" in bridged["verdict"].partition("not comparable")[2]


def test_failed_edits_are_counted_for_the_side_that_lost_them(
    bridged: dict[str, Any],
) -> None:
    near = bridged["factors"]["alignment"]
    counts = (near["n"], near["failed_old"], near["failed_new"])
    assert counts == (177, 0, 3)


def test_the_file_names_judges_models_rubrics_and_answers(
    bridged: dict[str, Any],
) -> None:
    old = bridged["sides"]["old"]
    assert old["judges"] == {"openai/old": None}
    assert old["reported"] == {"openai/old": ["old-1"]}
    [(rubric, digest)] = old["questions"]["alignment"].items()
    assert (rubric, len(digest)) == ("fidelity", 64)
    assert len(old["answers"]) == len(bridged["edits"]) == 64


def test_a_run_against_itself_maps_without_error(call: Call, stores: Stores) -> None:
    document = call("bridge", "old", "old", "--store", stores.store, "--json").document
    for factor in document["factors"].values():
        assert factor["comparable"] and factor["within"] == 0


def test_a_judge_that_guesses_is_not_comparable(call: Call, stores: Stores) -> None:
    document = call(
        "bridge", "old", "random", "--store", stores.store, "--json"
    ).document
    assert not any(factor["comparable"] for factor in document["factors"].values())


def test_the_page_draws_each_map(call: Call, stores: Stores, tmp_path: Path) -> None:
    page = tmp_path / "bridge.html"
    arguments = ("-o", page, "--store", stores.store)
    assert call("bridge", "old", "new", *arguments).code == 0
    text = page.read_text()
    assert text.count('class="trend"') == 4 and "<script" not in text


def test_ratings_say_which_judge_agrees_with_people(
    call: Call, stores: Stores, tmp_path: Path
) -> None:
    ratings = tmp_path / "ratings.csv"
    rows = [
        f"{model}-{n},ann,look,{score(model, n, 'openai/old', 'alignment', 0)}"
        for model in MODELS
        for n in range(60)
    ]
    ratings.write_text("\n".join(["item,rater,factor,score", *rows]))
    arguments = ("--ratings", ratings, "--map-factor", "look=alignment")
    document = call(
        "bridge", "old", "new", *arguments, "--store", stores.store, "--json"
    ).document
    people = document["factors"]["alignment"]["people"]
    assert people["old"] == pytest.approx(1) and people["new"] < 1
    assert people["n"] == 177
    assert document["factors"]["plausibility"]["people"] is None


# --- through it -------------------------------------------------------------------------------------------------


def test_two_judges_are_refused_without_a_bridge(call: Call, stores: Stores) -> None:
    done = call("compare", "old", "late", "--store", stores.store)
    check_error(done.error, code="different_judges")
    assert done.code == 2


def test_scores_are_mapped_and_the_interval_is_wider(
    call: Call, stores: Stores, bridged: dict[str, Any]
) -> None:
    arguments = ("--through", stores.bridge, "--store", stores.store, "--json")
    document = call("compare", "old", "late", *arguments).document
    rows = {row["factor"]: row for row in document["comparisons"]}
    assert rows.keys() == {"alignment", "plausibility"}
    for factor, row in rows.items():
        assert row["method"] == "bridged"
        error = document["through"]["factors"][factor]["error"]
        lo, hi = row["ci"]
        assert error > 0 and hi - lo > 2 * 1.96 * error
        # By the old judge, the model is better by 0.5 on average; the new judge halves that.
        assert lo < 0.5 < hi and row["difference"] > 0.3
    left_out = document["through"]["left_out"]
    assert left_out.keys() == {"completeness", "overall"}


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        (("late", "old"), "wrong_direction"),
        (("old", "random"), "other_judge"),
        (("random", "late"), "other_judge"),
    ],
)
def test_a_bridge_between_other_judges_is_refused(
    call: Call,
    stores: Stores,
    bridged: dict[str, Any],
    runs: tuple[str, str],
    code: str,
) -> None:
    arguments = ("--through", stores.bridge, "--store", stores.store)
    done = call("compare", *runs, *arguments)
    check_error(done.error, code=code)
    assert done.code == 2 and not done.out


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"server_model": "new-2"}, "other_model"),
        ({"rubrics": ["plain.yaml"]}, "other_rubric"),
    ],
)
def test_another_model_or_rubric_behind_the_same_name_is_refused(
    call: Call,
    stores: Stores,
    bridged: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    other = replace(load("fidelity"), task="Look twice.")
    Path("plain.yaml").write_text(dump(other))
    spec = {
        "name": "other",
        "models": ["late"],
        "judges": ["openai/new"],
        "salt": "o",
        "server_model": "new-1",
    }
    made(stores.store, Spec(**{**spec, **changed}), score)
    arguments = ("--through", stores.bridge, "--store", stores.store)
    done = call("compare", "old", "other", *arguments)
    check_error(done.error, code=code)


@pytest.mark.parametrize("factor", ["completeness", "natural"])
def test_a_factor_that_cannot_be_mapped_is_refused_by_name(
    call: Call, stores: Stores, bridged: dict[str, Any], factor: str
) -> None:
    arguments = ("--through", stores.bridge, "--store", stores.store)
    done = call("compare", "old", "late", "--factor", factor, *arguments)
    assert done.code == 2 and factor in done.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"factors": {}}',
        '{"factors": {}, "sides": {"old": {}, "new": {}}}',
        '{"factors": {"alignment": NaN}}',
    ],
)
def test_a_file_that_is_no_bridge_is_refused(
    call: Call, stores: Stores, text: str
) -> None:
    stores.bridge.write_text(text)
    arguments = ("--through", stores.bridge, "--store", stores.store)
    done = call("compare", "old", "late", *arguments)
    check_error(done.error, code="invalid_bridge")


@pytest.mark.parametrize("damage", ["falls", "no band", "no map"])
def test_a_map_that_was_changed_by_hand_is_refused(
    call: Call, stores: Stores, bridged: dict[str, Any], damage: str
) -> None:
    factor = bridged["factors"]["alignment"]
    if damage == "falls":
        factor["map"].reverse()
    elif damage == "no band":
        factor["map"][0]["hi"] = factor["map"][0]["old"] - 1
    else:
        factor["map"] = []
    stores.bridge.write_text(json.dumps(bridged))
    arguments = ("--through", stores.bridge, "--store", stores.store)
    done = call("compare", "old", "late", *arguments)
    check_error(done.error, code="invalid_bridge")


def test_python_answers_the_same(
    call: Call, stores: Stores, bridged: dict[str, Any]
) -> None:
    old, new, late = (
        editjudge.open(name, store=stores.store) for name in ("old", "new", "late")
    )
    assert dict(new.bridge(old, within=1.25)) == bridged
    arguments = ("--through", stores.bridge, "--store", stores.store, "--json")
    document = call("compare", "old", "late", *arguments).document
    assert dict(late.compare(old, through=stores.bridge)) == document
