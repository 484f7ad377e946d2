"""`editjudge compare`: whether a difference is real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import shows

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(tmp_path / "s.db", Spec(edits=60))


def test_models_are_paired_by_edit_and_the_verdict_is_in_words(
    call: Call, store: Path
) -> None:
    done = call("compare", "r", "--store", store)
    assert done.code == 0 and done.widest <= 100
    assert done.out.startswith("poor scores lower than good on overall by 1.")
    assert shows(done.out, "95 % CI", "n = 60", "a good", "b poor", "edits 60")


def test_the_document_names_both_sides_and_all_figures(call: Call, store: Path) -> None:
    document = call(
        "compare", "r", "--a", "poor", "--b", "good", "--store", store, "--json"
    ).document
    assert (document["run"], document["by"], len(document["comparisons"])) == (
        "r",
        "model",
        4,
    )
    overall, first, *_ = document["comparisons"]
    assert (overall["factor"], overall["family"], overall["declared"]) == (
        "overall",
        "primary",
        False,
    )
    assert (
        overall["p_holm"] == overall["p"]
        and overall["method"] == "studentised"
        and overall["level"] == 0.95
    )
    assert {one["family"] for one in document["comparisons"][1:]} == {"exploratory"}
    assert (first["within"], first["a"], first["b"], first["n"]) == (
        "openai/m",
        "poor",
        "good",
        60,
    )
    assert (
        first["ci"][0] < first["difference"] < first["ci"][1]
        and first["difference"] > 0
    )
    assert first["p_holm"] >= first["p"] > 0
    assert {
        "wins",
        "ties",
        "losses",
        "effect",
        "detectable",
        "p_wilcoxon",
        "verdict",
    } <= set(first)
    assert (
        first["bounds"]["worst"] == first["bounds"]["best"] == first["difference"]
        and not first["overturnable"]
    )
    assert first["ci_reason"] is None


def test_no_evidence_is_said_to_be_no_evidence(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec(models=("one", "two")))
    done = call("compare", "r", "--store", store)
    assert done.out.startswith(
        "one and two: no evidence of a difference on overall; n = 24; only 0 of 12 source"
    )


def test_what_is_corrected_and_what_is_not_is_said(call: Call, store: Path) -> None:
    printed = call("compare", "r", "--store", store).out
    assert shows(printed, "CI and MDE at 95 %", "p < .05")
    assert shows(printed, "Holm-corrected within each rubric", "exploratory")
    for column in ("MDE: ", "80 % power", "- d: ", "- w/t/l: "):
        assert shows(printed, column)
    one = " ".join(
        call("compare", "r", "--factor", "overall", "--store", store).out.split()
    )
    assert "orrect" not in one


def test_a_panel_decides_by_its_mean_unless_a_judge_is_named(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(judges=("openai/m", "anthropic/c"), edits=60))
    panel = call("compare", "r", "--store", store, "--json").document["comparisons"]
    assert {one["within"] for one in panel} == {"panel"} and len(panel) == 4
    alone = call(
        "compare", "r", "--judge", "anthropic/c", "--store", store, "--json"
    ).document["comparisons"]
    assert {one["within"] for one in alone} == {"anthropic/c"}
    other = call(
        "compare", "r", "--judge", "openai/m", "--store", store, "--json"
    ).document["comparisons"]
    mean = (alone[0]["difference"] + other[0]["difference"]) / 2
    assert panel[0]["difference"] == pytest.approx(mean)
    done = call("compare", "r", "--judge", "anthropic/d", "--store", store)
    assert done.code == 2 and "anthropic/c" in done.err


def test_primary_scores_are_those_declared_else_those_chosen(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(edits=60, spec={"primary": ["alignment"]}))
    declared = call("compare", "r", "--store", store, "--json").document["comparisons"]
    assert [
        (one["factor"], one["declared"])
        for one in declared
        if one["family"] == "primary"
    ] == [("alignment", True)]
    assert "declared before the run" in " ".join(
        call("compare", "r", "--store", store).out.split()
    )
    chosen = call(
        "compare", "r", "--primary", "plausibility", "--store", store, "--json"
    ).document["comparisons"]
    assert [
        (one["factor"], one["declared"]) for one in chosen if one["family"] == "primary"
    ] == [("plausibility", False)]
    assert call("compare", "r", "--primary", "plausable", "--store", store).code == 2


def test_guaranteed_bounds_are_called_so(call: Call, store: Path) -> None:
    usual = call("compare", "r", "--store", store, "--json").document["comparisons"][0]
    bound = call("compare", "r", "--guaranteed", "--store", store, "--json").document[
        "comparisons"
    ][0]
    assert (usual["method"], bound["method"]) == ("studentised", "guaranteed")
    assert bound["detectable"] is None and bound["detectable_reason"]
    assert "guaranteed" in call("compare", "r", "--guaranteed", "--store", store).out


def test_a_narrow_terminal_loses_both_means_or_none(
    call: Call, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {}
    for columns in (60, 64, 68, 72, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        # without what is said below
        out = call("compare", "r", "--store", store).out.split("\n- ")[0]
        shown[columns] = "mean a" in out
        assert shown[columns] == ("mean b" in out), columns
    assert shown[100] and not shown[60]


def test_every_pair_is_compared_and_corrected_together(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(models=("good", "poor", "third")))
    document = call("compare", "r", "--store", store, "--json").document
    assert len({(c["a"], c["b"]) for c in document["comparisons"]}) == 3
    for family, tests in (("primary", 3), ("exploratory", 9)):
        members = [c for c in document["comparisons"] if c["family"] == family]
        least = min(members, key=lambda c: float(c["p"]))
        assert len(members) == tests and least["p_holm"] == pytest.approx(
            min(1.0, least["p"] * tests)
        )
    one = call("compare", "r", "--a", "third", "--store", store, "--json").document
    assert {(c["a"], c["b"]) for c in one["comparisons"]} == {
        ("third", "good"),
        ("third", "poor"),
    }
    assert call("compare", "r", "--store", store).widest <= 100


def test_an_aggregate_can_be_compared(call: Call, store: Path) -> None:
    document = call(
        "compare", "r", "--factor", "overall", "--store", store, "--json"
    ).document
    assert [c["factor"] for c in document["comparisons"]] == ["overall"]
    done = call("compare", "r", "--factor", "overal", "--store", store)
    assert done.code == 2 and "overal" in done.err


def test_judges_and_rubrics_are_compared_on_the_same_edits(
    call: Call, tmp_path: Path
) -> None:
    store = made(
        tmp_path / "s.db",
        Spec(judges=("openai/m", "anthropic/c"), rubrics=("fidelity", "reference")),
    )
    judges = call("compare", "r", "--by", "judge", "--store", store, "--json").document[
        "comparisons"
    ]
    assert {(c["within"], c["a"], c["b"], c["n"]) for c in judges} == {
        ("fidelity", "openai/m", "anthropic/c", 48),
        ("reference", "openai/m", "anthropic/c", 48),
    }
    rubrics = call(
        "compare", "r", "--by", "rubric", "--store", store, "--json"
    ).document["comparisons"]
    assert {c["factor"] for c in rubrics} == {
        "alignment",
        "completeness",
        "plausibility",
        "fidelity",
    }
    assert {(c["within"], c["a"], c["b"]) for c in rubrics} == {
        ("openai/m", "fidelity", "reference"),
        ("anthropic/c", "fidelity", "reference"),
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--a", "goood"], 'did you mean "good"?'),
        (["--a", "good", "--b", "good"], "the same model"),
        (["--by", "judge"], "nothing to compare: the run has one judge (openai/m)"),
        (["--by", "rubric"], "nothing to compare: the run has one rubric (fidelity)"),
    ],
)
def test_a_comparison_that_cannot_be_meant_is_told(
    call: Call, store: Path, arguments: list[str], said: str
) -> None:
    done = call("compare", "r", "--store", store, *arguments)
    assert (done.code, done.out) == (2, "") and said in done.err


def test_sides_without_common_edits_are_told_in_words(
    call: Call, tmp_path: Path
) -> None:
    def never_both(
        model: str, n: int, judge: str, factor: str, repeat: int
    ) -> int | str:
        return (
            "invalid"
            if (n % 2 == 0) == (model == "good")
            else quality(model, n, judge, factor, repeat)
        )

    store = made(tmp_path / "s.db", say=never_both)
    done = call("compare", "r", "--store", store)
    assert done.code == 0 and shows(done.out, "not compared", "overall, alignment")
    assert (
        call("compare", "r", "--store", store, "--json").document["comparisons"][0][
            "difference"
        ]
        is None
    )


@pytest.mark.parametrize(
    "spec",
    [Spec(per_group=24), Spec(edits=3, per_group=1)],
    ids=["one image", "three edits"],
)
def test_few_images_are_told_in_words(call: Call, tmp_path: Path, spec: Spec) -> None:
    done = call("compare", "r", "--store", made(tmp_path / "s.db", spec))
    assert done.code == 0 and "no evidence" in done.out and "nan" not in done.out
    assert ("only one source image" in done.out) == (spec.per_group == 24)


def test_what_failed_on_one_side_stands_beside_the_difference(
    call: Call, tmp_path: Path
) -> None:
    def hidden(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str:
        return (
            "refused"
            if model == "poor" and n % 3 == 0
            else quality(model, n, judge, factor, repeat)
        )

    store = made(tmp_path / "s.db", say=hidden)
    first = call("compare", "r", "--store", store, "--json").document["comparisons"][0]
    assert (first["n"], first["failed_a"], first["failed_b"]) == (16, 0, 8)
    assert first["bounds"]["worst"] < first["difference"] < first["bounds"]["best"]
    done = call("compare", "r", "--store", store)
    assert "0+8" in done.out and "bounds" in done.out and done.widest <= 100
