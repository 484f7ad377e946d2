"""`editjudge gate`: pass, fail, or not enough evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.faults import check_error, shows

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(tmp_path / "s.db", Spec(models=("good",), edits=60))


@pytest.mark.parametrize(
    ("minimum", "unsure", "outcome", "code"),
    [
        ("alignment=4", None, "pass", 0),
        ("alignment=6.5", None, "fail", 100),
        ("alignment=5.5", None, "not enough evidence", 0),
        ("alignment=5.5", "fail", "not enough evidence", 100),
        ("alignment=5.5", "pass", "not enough evidence", 0),
        ("overall=4", None, "pass", 0),
    ],
)
def test_there_are_three_outcomes(
    call: Call, store: Path, minimum: str, unsure: str | None, outcome: str, code: int
) -> None:
    asked = [
        "gate",
        "r",
        "--min",
        minimum,
        "--store",
        store,
        *(["--if-unsure", unsure] if unsure else []),
    ]
    done = call(*asked)
    assert (
        done.code == code
        and done.out.startswith(f"gate: {outcome}\n")
        and done.widest <= 100
    )
    document = call(*asked, "--json")
    assert (document.code, document.document["outcome"]) == (code, outcome)
    assert {
        "factor",
        "rule",
        "outcome",
        "estimate",
        "ci",
        "n",
        "failed",
        "reason",
    } <= set(document.document["checks"][0])


def test_the_worst_check_decides_and_stands_first(call: Call, store: Path) -> None:
    done = call(
        "gate",
        "r",
        "--min",
        "alignment=4",
        "--min",
        "completeness=6.9",
        "--store",
        store,
    )
    assert done.code == 100
    rows = done.out.splitlines()
    assert next(line for line in rows if "alignment >= 4" in line).startswith("pass")
    assert done.out.index("completeness >= 6.9") < done.out.index("alignment >= 4")
    assert len(rows) < 24


def test_a_baseline_is_compared_edit_by_edit(call: Call, store: Path) -> None:
    def worse(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return max(
            1,
            quality(model, n, judge, factor, repeat + 1) - 2 * (factor == "alignment"),
        )

    def same(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return quality(model, n, judge, factor, repeat + 1)

    made(store, Spec("worse", models=("good",), edits=60, salt="2"), worse)
    made(store, Spec("same", models=("good",), edits=60, salt="3"), same)
    done = call(
        "gate",
        "worse",
        "--baseline",
        "r",
        "--max-drop",
        "alignment=0.9",
        "--store",
        store,
    )
    assert done.code == 100 and shows(done.out, "alignment", "at most 0.9")
    done = call(
        "gate", "same", "--baseline", "r", "--max-drop", "0.9", "--store", store
    )
    assert done.code == 0 and done.out.startswith("gate: pass")


def test_primary_scores_are_compared_with_the_baseline_unless_others_are_named(
    call: Call, store: Path
) -> None:
    made(store, Spec("again", models=("good",), edits=60, salt="2"))
    asked = (
        "gate",
        "again",
        "--baseline",
        "r",
        "--max-drop",
        "0.5",
        "--store",
        store,
        "--json",
    )
    assert [check["factor"] for check in call(*asked).document["checks"]] == ["overall"]
    assert [
        c["factor"] for c in call(*asked, "--primary", "alignment").document["checks"]
    ] == ["alignment"]


def test_a_run_against_itself_passes_by_identity(call: Call, store: Path) -> None:
    done = call(
        "gate",
        "r",
        "--baseline",
        "r",
        "--max-drop",
        "0",
        "--if-unsure",
        "fail",
        "--store",
        store,
        "--json",
    )
    assert (done.code, done.document["outcome"]) == (0, "pass")
    assert {(check["method"], check["ci"]) for check in done.document["checks"]} == {
        ("identity", None)
    }


def test_another_model_is_paired_by_source_image_and_instruction(
    call: Call, store: Path
) -> None:
    made(store, Spec("other", models=("poor",), edits=60, salt="2"))
    done = call(
        "gate",
        "other",
        "--baseline",
        "r",
        "--max-drop",
        "0",
        "--store",
        store,
        "--json",
    )
    assert done.code == 100 and done.document["checks"][0]["n"] == 60


def test_a_baseline_may_lie_in_another_store(
    call: Call, store: Path, tmp_path: Path
) -> None:
    other = made(tmp_path / "other.db", Spec("old", models=("good",), edits=60))
    asked = (
        "gate",
        "r",
        "--baseline",
        "old",
        "--baseline-store",
        other,
        "--max-drop",
        "1",
        "--store",
        store,
    )
    assert call(*asked).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--min", "alignment"],
        ["--min", "alignment=high"],
        ["--min", "alignment=nan"],
        ["--min", "alignmant=5"],
        ["--min", "alignment=9"],
        ["--min", "overall=9"],
        ["--min", "alignment=4", "--min", "alignment=5"],
        ["--max-drop", "1"],
        ["--min", "alignment=4", "--model", "none"],
        ["--min", "alignment=4", "--judge", "none"],
    ],
)
def test_a_gate_that_cannot_be_meant_exits_with_2(
    call: Call, store: Path, arguments: list[str]
) -> None:
    done = call("gate", "r", "--store", store, *arguments)
    assert (done.code, done.out) == (2, "") and done.err


def test_a_mistyped_aggregate_is_told_what_was_meant(call: Call, store: Path) -> None:
    assert (
        'did you mean "overall"?'
        in call("gate", "r", "--min", "overal=4", "--store", store).err
    )


def pixels(model: str, n: int, judge: str, factor: str, repeat: int) -> int | None:
    """A judge that abstains from what takes understanding, but for an edit that is another one for each model."""
    fidelity = factor in ("alignment", "completeness", "plausibility")
    return (
        None
        if fidelity and n != len(model)
        else quality(model, n, judge, factor, repeat)
    )


def test_a_judge_that_abstains_from_factors_gates_on_the_others(
    call: Call, tmp_path: Path
) -> None:
    spec = Spec(
        "main",
        models=("good",),
        edits=150,
        rubrics=("quality", "fidelity"),
        judges=("measured",),
    )
    store = made(tmp_path / "s.db", spec, pixels)
    made(store, replace(spec, name="worse", models=("worse",), salt="2"), pixels)
    command = (
        "--baseline",
        "main",
        "--max-drop",
        "0.1",
        "--min",
        "image_quality=3",
        "--store",
        store,
    )
    done = call("gate", "worse", *command)
    assert (done.code, done.err) == (100, "")
    assert shows(done.out, "both sides", "fidelity, overall")
    document = call("gate", "worse", *command, "--json").document
    assert document["error"] is None and document["left_out"] == ["fidelity", "overall"]
    assert {check["factor"] for check in document["checks"]} == {
        "quality",
        "image_quality",
    }


def test_a_check_that_fails_fails_also_beside_one_without_scores(
    call: Call, tmp_path: Path
) -> None:
    store = made(
        tmp_path / "s.db",
        Spec(edits=60),
        lambda *said: None if said[3] == "alignment" else quality(*said),
    )
    command = ("gate", "r", "--min", "alignment=4", "--store", store, "--min")
    assert call(*command, "completeness=6.9").code == 100
    done = call(*command, "completeness=2")
    assert done.code == 1 and "alignment >= 4" in done.err


def test_runs_of_different_judges_are_not_compared(call: Call, store: Path) -> None:
    made(
        store,
        Spec("other", models=("good",), edits=60, judges=("anthropic/c",), salt="2"),
    )
    done = call("gate", "other", "--baseline", "r", "--store", store)
    assert (done.code, done.out) == (2, "")
    check_error(done.error, "different_judges", "other", "anthropic/c", "r by openai/m")
    made(
        store,
        Spec(
            "both",
            models=("good",),
            edits=60,
            judges=("anthropic/c", "openai/m"),
            salt="3",
        ),
    )
    done = call("gate", "both", "--baseline", "r", "--max-drop", "1", "--store", store)
    assert done.code == 0 and "Checks by openai/m" in done.out, (
        "the one that they have in common"
    )
    assert (
        call(
            "gate",
            "both",
            "--baseline",
            "r",
            "--judge",
            "anthropic/c",
            "--store",
            store,
        ).code
        == 2
    )


def test_recorded_replies_are_compared_and_both_files_are_named(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec("then", judges=("replay:a.jsonl",)))
    made(store, Spec("now", judges=("replay:b.jsonl",), salt="2"))
    done = call(
        "gate", "now", "--baseline", "then", "--max-drop", "1", "--store", store
    )
    assert (
        done.code == 0
        and "Checks by replay:b.jsonl" in done.out
        and "judged by replay:a.jsonl" in done.out
    )


def test_several_judges_decide_by_their_mean_and_several_models_are_pooled(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(judges=("openai/m", "anthropic/c"), edits=60))
    done = call("gate", "r", "--min", "alignment=4", "--store", store)
    assert done.code == 0 and "Checks by panel" in done.out
    asked = (
        "gate",
        "r",
        "--min",
        "alignment=4.7",
        "--judge",
        "openai/m",
        "--store",
        store,
    )
    assert "2 models are pooled" in call(*asked).out
    assert call(*asked, "--model", "poor", "--alpha", "0.2").code == 100


def test_failures_are_told_beside_the_estimate(call: Call, tmp_path: Path) -> None:
    def some(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str:
        return "refused" if n % 4 == 0 else quality(model, n, judge, factor, repeat)

    store = made(tmp_path / "s.db", Spec(models=("good",)), some)
    done = call("gate", "r", "--min", "alignment=6.9", "--store", store)
    assert shows(done.out, "alignment >= 6.9", "6 failed judgements")


def test_many_checks_that_wait_for_more_images_are_told_in_one_line(
    call: Call, tmp_path: Path
) -> None:
    store = made(
        tmp_path / "s.db", Spec(models=("good",), rubrics=("fidelity", "preservation"))
    )
    names = ("alignment", "completeness", "plausibility", "unchanged_regions")
    minima = [word for name in names for word in ("--min", f"{name}=5.4")]
    few = " ".join(call("gate", "r", *minima[:6], "--store", store).out.split())
    assert few.count("which contains 5.4: ") == 3
    many = " ".join(call("gate", "r", *minima, "--store", store).out.split())
    assert "which contains" not in many
    assert shows(many, "4 checks are inconclusive", "completeness >= 5.4 about")


def test_a_gate_without_a_single_score_does_not_pass_by_silence(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", say=lambda *_: "unreachable")
    command = ("gate", "r", "--min", "alignment=4", "--store", store)
    done = call(*command)
    assert done.code == 100 and shows(done.out, "48 of 48 judgements failed")
    allowed = (*command, "--max-failures", "1")
    done = call(*allowed)
    assert (
        done.code == 1
        and "nothing to decide on" in done.err
        and "not enough evidence" in done.out
    )
    done = call(
        "gate", "r", "--min", "overall=4", "--max-failures", "1", "--store", store
    )
    assert shows(done.err, "overall", "openai/m", "none of these: alignment")
    assert call(*allowed, "--if-unsure", "pass").code == 0
    assert call(*allowed, "--if-unsure", "fail").code == 100


def test_a_gate_of_refusals_fails_with_their_count_unless_they_are_allowed(
    call: Call, tmp_path: Path
) -> None:
    def mostly(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str:
        return 7 if n < 30 else "refused"

    store = made(
        tmp_path / "s.db", Spec(models=("good",), edits=300, per_group=1), mostly
    )
    command = ("gate", "r", "--min", "alignment=5", "--store", store)
    done = call(*command, "--json")
    assert done.code == 100 and done.document["outcome"] == "fail"
    counts = {"judgements": 300, "failed": 270, "pending": 0}
    assert done.document["failures"] == {**counts, "allowed": 0.0, "too_many": True}
    (check,) = done.document["checks"]
    assert (
        check["bounds"] == {"worst": pytest.approx((30 * 7 + 270) / 300), "best": 7}
        and check["overturnable"]
    )
    allowed = call(*command, "--max-failures", "0.9")
    assert allowed.code == 0 and shows(allowed.out, "overturn", "alignment >= 5")


def test_one_source_image_and_equal_scores_are_not_enough_evidence(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "one.db", Spec(models=("good",), per_group=24))
    assert (
        "only one source image"
        in call("gate", "r", "--min", "alignment=4", "--store", store).out
    )
    store = made(
        tmp_path / "equal.db",
        Spec(models=("good",), edits=4, per_group=1),
        lambda *_: 7,
    )
    assert (
        call(
            "gate", "r", "--min", "alignment=6", "--store", store, "--if-unsure", "fail"
        ).code
        == 100
    )


def test_a_factor_whose_lower_scores_are_better_is_held_to_a_ceiling(
    call: Call, tmp_path: Path
) -> None:
    def distance(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return int(n % 10 == 0)

    store = made(
        tmp_path / "s.db",
        Spec(rubrics=("metrics",), models=("good",), edits=200),
        distance,
    )
    for most, outcome, code in ((0.5, "pass", 0), (0.01, "fail", 100)):
        done = call("gate", "r", "--min", f"l1={most}", "--store", store, "--json")
        assert (done.code, done.document["outcome"]) == (code, outcome)
        assert done.document["checks"][0]["rule"] == f"l1 <= {most}"


@pytest.mark.parametrize(
    ("allowed", "outcome", "code"), [(None, "fail", 100), ("0.5", "pass", 0)]
)
def test_an_unfinished_run_counts_what_is_pending(
    call: Call, tmp_path: Path, allowed: str | None, outcome: str, code: int
) -> None:
    def unfinished(
        model: str, n: int, judge: str, factor: str, repeat: int
    ) -> int | str:
        return "pending" if n >= 25 else 7 - n % 2

    store = made(
        tmp_path / "s.db",
        Spec(models=("good",), edits=40, spec={"asked_for": ["fidelity"]}),
        unfinished,
    )
    command = [
        "gate",
        "r",
        "--min",
        "alignment=4",
        "--store",
        store,
        *(["--max-failures", allowed] if allowed else []),
    ]
    done = call(*command, "--json")
    document = done.document
    assert (done.code, document["outcome"], document["pending"]) == (code, outcome, 15)
    assert (document["failures"]["failed"], document["failures"]["pending"]) == (15, 15)
    (check,) = document["checks"]
    assert check["failed"] == 15 and check["bounds"]["worst"] == pytest.approx(
        (6.52 * 25 + 15) / 40
    )
    assert shows(call(*command).out, "15 judgements", "`editjudge runs again r`")


def test_every_verdict_on_an_unfinished_run_counts_what_is_pending(
    call: Call, tmp_path: Path
) -> None:
    def unfinished(
        model: str, n: int, judge: str, factor: str, repeat: int
    ) -> int | str:
        return "pending" if n >= 20 else quality(model, n, judge, factor, repeat)

    store = made(tmp_path / "s.db", say=unfinished)
    (alignment, *_) = (
        document := call("compare", "r", "--store", store, "--json").document
    )["comparisons"]
    assert document["pending"] == 8 and (
        alignment["failed_a"],
        alignment["failed_b"],
    ) == (4, 4)
    assert (
        alignment["bounds"]["worst"]
        < alignment["difference"]
        < alignment["bounds"]["best"]
    )
    ratings = tmp_path / "ratings.csv"
    rows = [
        f"good-{n},{rater},alignment,{1 + n % 7}" for n in range(24) for rater in "ab"
    ]
    ratings.write_text("\n".join(["item,rater,factor,score", *rows]))
    document = call(
        "agree", "r", "--ratings", ratings, "--store", store, "--json"
    ).document
    (agreement,) = document["factors"]["alignment"].values()
    assert (document["pending"], agreement["failed"]) == (8, 4)


@pytest.mark.parametrize("unsure", [None, "fail"])
def test_junit_has_a_test_for_each_check(
    unsure: str | None, call: Call, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gate.xml"
    limits = ("alignment=4", "completeness=6.9", "overall=5.5")
    typed = [part for limit in limits for part in ("--min", limit)]
    typed += ["--if-unsure", unsure] if unsure else []
    done = call("gate", "r", *typed, "--junit", file, "--store", store, "--json")
    suite = ElementTree.fromstring(file.read_text())  # noqa: S314  (our own file)
    kinds = {
        case.attrib["name"]: [child.tag for child in case]
        for case in suite.iter("testcase")
    }
    expected = {"pass": [], "fail": ["failure"]}
    expected["not enough evidence"] = ["failure" if unsure else "skipped"]
    for check in done.document["checks"]:
        assert kinds.pop(check["rule"]) == expected[check["outcome"]]
    assert kinds == {"failed judgements": []}
    assert {check["outcome"] for check in done.document["checks"]} == expected.keys()
    assert suite.attrib["failures"] == ("2" if unsure else "1")


def test_junit_is_xml_whatever_a_run_is_called(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", Spec('<r & "s">\x01', models=("good",)))
    file = tmp_path / "gate.xml"
    call("gate", "1", "--min", "alignment=1", "--junit", file, "--store", store)
    suite = ElementTree.fromstring(file.read_text())  # noqa: S314  (our own file)
    assert '<r & "s">' in suite.attrib["name"]


def test_markdown_is_for_a_comment(call: Call, store: Path) -> None:
    typed = ("gate", "r", "--min", "alignment=4", "--store", store)
    done = call(*typed, "--format", "md")
    assert done.code == 0 and done.out.startswith("# Gate of r: pass\n")
    assert "| pass | alignment" in done.out
    assert call(*typed, "--format", "md", "--json").document["outcome"] == "pass"
