"""Runs that asked otherwise are not paired: `compare`, `gate --baseline`, `drift --against`, Python and the browser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import editjudge as ej
from editjudge.errors import UsageError
from editjudge.rubrics.files import dump, load
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.scale import Scale
from editjudge.store import Store
from editjudge.web.app import create
from editjudge.web.site import Site

from .stores import Call, Spec, call, made

__all__ = ["call"]

TEN = Scale(values=tuple(range(1, 11)))
FIDELITY = load("fidelity")


def changed(rubric: Rubric, change: Callable[[Factor], Factor]) -> Rubric:
    return replace(rubric, factors=tuple(map(change, rubric.factors)))


def rescaled(*keys: str) -> Rubric:
    """`fidelity` with some factors from 1 to 10."""
    return changed(
        FIDELITY,
        lambda factor: replace(factor, scale=TEN) if factor.key in keys else factor,
    )


def reworded() -> Rubric:
    return replace(FIDELITY, task=f"{FIDELITY.task} Look twice.")


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    """A store with the run `old` by `fidelity`, and `new` by another rubric of that name."""

    def filled(rubric: Rubric, name: str = "fidelity") -> Path:
        path = tmp_path / "s.db"
        file = tmp_path / f"{name}.yaml"
        file.write_text(dump(replace(rubric, name=name)), "utf-8")
        made(path, Spec("old", models=("m",)), lambda *_: 5)
        made(
            path,
            Spec("new", models=("m",), rubrics=(str(file),), salt="new"),
            lambda *_: 6,
        )
        return path

    return filled


VERBS = [
    ("compare", "old", "new"),
    ("gate", "new", "--baseline", "old"),
    ("drift", "new", "--against", "old"),
]


@pytest.mark.parametrize("verb", VERBS)
def test_a_rubric_of_another_hash_is_refused_by_name(
    store: Callable[..., Path], call: Call, verb: tuple[str, ...]
) -> None:
    told = call(*verb, "--store", store(reworded()))
    assert told.code == 2
    for part in (
        '"fidelity"',
        FIDELITY.hash[:12],
        reworded().hash[:12],
        "alignment",
        "--across-rubrics",
    ):
        assert part in told.err


@pytest.mark.parametrize("verb", VERBS)
def test_across_rubrics_compares_the_same_scale_and_says_so_first(
    store: Callable[..., Path], call: Call, verb: tuple[str, ...]
) -> None:
    path = store(reworded())
    told = call(*verb, "--across-rubrics", "--json", "--store", path)
    assert told.code == 0, told.err
    assert told.document["across_rubrics"] == sorted(
        factor.key for factor in FIDELITY.factors
    )
    assert told.document["other_scales"] == []
    lead = call(*verb, "--across-rubrics", "--store", path).out.partition("\n\n")[0]
    assert "different rubrics" in lead


@pytest.mark.parametrize("verb", VERBS)
def test_another_scale_is_never_compared(
    store: Callable[..., Path], call: Call, verb: tuple[str, ...]
) -> None:
    path = store(rescaled(*(factor.key for factor in FIDELITY.factors)))
    for across in ((), ("--across-rubrics",)):
        told = call(*verb, *across, "--store", path)
        assert told.code == 2
        assert "from 1 to 10" in told.err and "from 1 to 7" in told.err


@pytest.mark.parametrize("verb", VERBS)
def test_one_factor_of_another_scale_is_left_out_of_a_comparison_across_rubrics(
    store: Callable[..., Path], call: Call, verb: tuple[str, ...]
) -> None:
    path = store(rescaled("alignment"))
    assert call(*verb, "--store", path).code == 2
    told = call(*verb, "--across-rubrics", "--json", "--store", path)
    assert told.code == 0, told.err
    assert told.document["other_scales"] == ["alignment"]
    assert set(told.document["across_rubrics"]) == {"completeness", "plausibility"}
    rows = told.document.get("comparisons") or told.document.get("checks")
    if rows is not None:
        assert "alignment" not in {row["factor"] for row in rows}


def test_a_gate_still_holds_a_limit_on_a_factor_that_its_baseline_scales_otherwise(
    store: Callable[..., Path], call: Call
) -> None:
    words = (
        "gate",
        "new",
        "--min",
        "alignment=9",
        "--baseline",
        "old",
        "--across-rubrics",
        "--json",
    )
    told = call(*words, "--store", store(rescaled("alignment")))
    assert told.code == 100
    assert [
        check["outcome"]
        for check in told.document["checks"]
        if check["factor"] == "alignment"
    ] == ["fail"]


def test_factors_that_are_not_compared_may_differ(
    store: Callable[..., Path], call: Call, tmp_path: Path
) -> None:
    path = store(reworded())
    made(
        path,
        Spec("both", models=("m",), rubrics=("fidelity", "preservation"), salt="b"),
        lambda *_: 5,
    )
    other = replace(load("preservation"), task="Another task.")
    (tmp_path / "preservation.yaml").write_text(dump(other), "utf-8")
    rubrics = ("fidelity", str(tmp_path / "preservation.yaml"))
    made(path, Spec("half", models=("m",), rubrics=rubrics, salt="h"), lambda *_: 5)
    assert call("compare", "both", "half", "--store", path).code == 2
    assert (
        call("compare", "both", "half", "--factor", "alignment", "--store", path).code
        == 0
    )
    assert call("gate", "both", "--baseline", "half", "--store", path).code == 2
    assert (
        call(
            "gate",
            "both",
            "--baseline",
            "half",
            "--max-drop",
            "alignment=0.5",
            "--store",
            path,
        ).code
        == 0
    )


def test_the_same_rubric_under_another_name_is_compared(
    store: Callable[..., Path], call: Call
) -> None:
    told = call("compare", "old", "new", "--json", "--store", store(FIDELITY, "mine"))
    assert told.code == 0 and told.document["across_rubrics"] == []


def test_two_rubrics_of_one_run_are_compared_on_factors_of_one_scale_alone(
    tmp_path: Path, call: Call
) -> None:
    other = replace(rescaled("alignment"), name="ten")
    (tmp_path / "ten.yaml").write_text(dump(other), "utf-8")
    path = made(
        tmp_path / "s.db",
        Spec(models=("m",), rubrics=("fidelity", str(tmp_path / "ten.yaml"))),
    )
    told = call("compare", "r", "--by", "rubric", "--json", "--store", path)
    assert told.code == 0, told.err
    assert {row["factor"] for row in told.document["comparisons"]} == {
        "completeness",
        "overall",
        "plausibility",
    }
    lead = call("compare", "r", "--by", "rubric", "--store", path).out
    assert "alignment" in lead


def test_python_refuses_and_compares_as_the_verbs_do(
    store: Callable[..., Path],
) -> None:
    path = str(store(reworded()))
    old = ej.open("old", store=path)
    new = ej.open("new", store=path)
    with pytest.raises(UsageError):
        new.compare(old)
    with pytest.raises(UsageError):
        new.gate(baseline=old)
    assert "alignment" in new.compare(old, across_rubrics=True)["across_rubrics"]
    assert "alignment" in new.gate(baseline=old, across_rubrics=True)["across_rubrics"]


def test_the_page_that_compares_runs_shows_no_difference_of_other_rubrics(
    store: Callable[..., Path],
) -> None:
    with Store.open(store(rescaled("alignment"))) as opened:
        page = TestClient(create(Site(opened)), base_url="http://127.0.0.1").get(
            "/compare?a=1&b=2"
        )
    assert page.status_code == 200
    assert FIDELITY.hash[:12] in page.text
    assert "sort=alignment" not in page.text
