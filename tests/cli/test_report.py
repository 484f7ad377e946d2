"""`editjudge report`: what the scores of a run add up to."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from tests.faults import shows

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]


def flawed(
    model: str, n: int, judge: str, factor: str, repeat: int
) -> int | str | None:
    """Some judgements of the poor model are invalid, one of each is refused, one factor of each is abstained from."""
    if n % 7 == 3 and model == "poor":
        return "invalid"
    if n == 5:
        return "refused"
    return (
        None
        if factor == "plausibility" and n == 6
        else quality(model, n, judge, factor, repeat)
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(tmp_path / "s.db", say=flawed)


def test_statuses_come_before_any_mean(call: Call, store: Path) -> None:
    done = call("report", "r", "--store", store)
    assert done.code == 0 and done.widest <= 100
    lines = done.out.splitlines()
    assert shows(lines[0], "run r (1)", "48", "43 ok, 3 invalid, 2 refused")
    assert lines[1].startswith("good and poor: no evidence of a difference on "), (
        "the conclusion above the tables"
    )
    first = next(
        n for n, line in enumerate(lines) if line.startswith("Judgements by status")
    )
    assert "invalid" in lines[first + 1] and "refused" in lines[first + 1]
    assert (
        done.out.index("Judgements by status")
        < done.out.index("Aggregates")
        < done.out.index("Scores by factor")
    )


def test_each_mean_stands_beside_its_failures_and_what_they_could_change(
    call: Call, store: Path
) -> None:
    done = call("report", "r", "--store", store)
    head = next(
        line
        for line in done.out.splitlines()
        if line.startswith("factor") and "abst." in line
    )
    assert head.split() == [
        "factor",
        "model",
        "ok/n",
        "abst.",
        "failed",
        "bounds",
        "mean",
        "median",
        "rank",
    ]
    assert shows(done.out, "overall = (alignment + completeness", "- bounds: ")


def test_the_document_has_full_precision_and_every_failure(
    call: Call, store: Path
) -> None:
    document = call("report", "r", "--store", store, "--json").document
    cells = {(c["factor"], c["model"]): c for c in document["factors"]}
    poor = cells["plausibility", "poor"]
    assert (poor["n"], poor["ok"], poor["abstained"], poor["failed"]) == (
        24,
        19,
        1,
        {"invalid": 3, "refused": 1},
    )
    assert poor["worst_case"] < poor["mean"] < poor["best_case"]
    assert sum(poor["distribution"].values()) == 19 and list(
        poor["distribution"]
    ) == list("1234567")
    assert document["judgements"][0].keys() == {
        "judge",
        "rubric",
        "model",
        "status",
        "n",
    }
    assert {c["slice"] for c in document["slices"]["edit_type"]} == {"add", "remove"}
    assert {r["model"] for r in document["ranks"]} == {"good", "poor"}


@pytest.mark.parametrize(
    ("name", "mark"),
    [("r.md", "| factor |"), ("r.tex", r"\toprule"), ("r.json", '"factors"')],
)
def test_a_file_is_written_in_the_form_that_its_name_says(
    call: Call, store: Path, name: str, mark: str
) -> None:
    path = store.parent / name
    done = call("report", "r", "--store", store, "-o", path)
    assert (done.code, done.out) == (0, f"wrote {path}\n")
    assert mark in path.read_text("utf-8")
    assert "Distribution" in path.read_text("utf-8") or name == "r.json"


def test_csv_is_one_long_table_at_full_precision(call: Call, store: Path) -> None:
    rows = list(
        csv.DictReader(
            io.StringIO(call("report", "r", "--store", store, "--format", "csv").out)
        )
    )
    assert list(rows[0])[:8] == [
        "judge",
        "model",
        "factor",
        "slice_by",
        "slice",
        "n",
        "ok",
        "abstained",
    ]
    document = call("report", "r", "--store", store, "--json").document
    found = {
        (r["factor"], r["model"]): float(r["mean"]) for r in rows if not r["slice_by"]
    }
    assert found["alignment", "poor"] == next(
        c["mean"]
        for c in document["factors"]
        if (c["factor"], c["model"]) == ("alignment", "poor")
    )
    assert {
        "failed_invalid",
        "failed_refused",
        "worst_case",
        "mean_lo",
        "mean_hi",
    } <= set(rows[0])


def test_two_models_are_compared_in_every_form_but_the_terminal_and_csv(
    call: Call, store: Path
) -> None:
    expected = call("compare", "r", "--store", store, "--json").document["comparisons"]
    assert (
        call("report", "r", "--store", store, "--json").document["comparisons"]
        == expected
    )
    for form in ("md", "latex", "html"):
        out = call("report", "r", "--store", store, "--format", form).out
        assert shows(out, "no evidence", "overall") and "guaranteed" in out
        assert shows(out, "Primary scores by model", "Factors (exploratory) by model")
    for more in ([], ["--format", "csv"]):
        assert (
            "Primary scores by model"
            not in call("report", "r", "--store", store, *more).out
        )


@pytest.mark.parametrize(("models", "compared"), [(1, 0), (4, 6), (5, 0)])
def test_only_as_many_models_are_compared_as_can_be_read(
    call: Call, tmp_path: Path, models: int, compared: int
) -> None:
    store = made(
        tmp_path / "s.db", Spec(models=[f"m{n}" for n in range(models)], edits=4)
    )
    document = call("report", "r", "--store", store, "--json").document
    assert len({(c["a"], c["b"]) for c in document["comparisons"]}) == compared
    page = call("report", "r", "--store", store, "--format", "html").out
    assert ("more than 4 models" in page) == (models > 4)
    out = call("report", "r", "--store", store).out
    assert ("ranks first on overall" in out) == (models > 4)


def test_a_mean_of_what_a_judge_scored_has_a_name_of_its_own(
    call: Call, tmp_path: Path
) -> None:
    def measured(
        model: str, n: int, judge: str, factor: str, repeat: int
    ) -> int | None:
        silent = factor in ("scale_realism", "spatial_relationship")
        return None if silent else quality(model, n, judge, factor, repeat)

    rubrics = ("quality", "preservation")
    store = made(tmp_path / "s.db", Spec(rubrics=rubrics), measured)
    document = call("report", "r", "--store", store, "--json").document
    means = {cell["factor"]: cell["mean"] for cell in document["aggregates"]}
    assert means["quality"] is None
    assert means["quality: scored mean of 4 of 6"] is not None
    assert not any("scored mean" in c["factor"] for c in document["comparisons"])


def test_slices_are_of_the_widest_aggregate_that_half_of_the_edits_have(
    call: Call, tmp_path: Path
) -> None:
    def pixels(model: str, n: int, judge: str, factor: str, repeat: int) -> int | None:
        return (
            None
            if factor == "alignment" and n
            else quality(model, n, judge, factor, repeat)
        )

    store = made(tmp_path / "s.db", Spec(rubrics=("preservation", "fidelity")), pixels)
    out = call("report", "r", "--store", store).out
    sliced = out[out.index("Scores by edit_type") :]
    assert "preservation" in sliced and "overall" not in sliced and "0/" not in sliced
    store = made(tmp_path / "all.db", Spec(rubrics=("preservation", "fidelity")))
    out = call("report", "r", "--store", store).out
    assert "overall" in out[out.index("Scores by edit_type") :]


def test_bounds_have_the_decimals_of_the_means(call: Call, store: Path) -> None:
    out = call("report", "r", "--store", store, "--format", "md").out
    for table in out.split("**Scores by")[1:]:
        ends = re.findall(r"(\d+\.?\d*)\.\.(\d+\.?\d*)", table.partition("\n\n**")[0])
        means = re.findall(r"(\d+\.?\d*) \[", table.partition("\n\n**")[0])
        places = {
            len(one.partition(".")[2])
            for one in [*means, *(end for pair in ends for end in pair)]
        }
        assert len(places) == 1, places


def test_a_form_that_cannot_be_meant_is_told(call: Call, store: Path) -> None:
    assert call("report", "r", "--store", store, "-o", store.parent / "r.pdf").code == 2
    assert call("report", "r", "--store", store, "--json", "--format", "md").code == 2
    done = call("report", "none", "--store", store)
    assert (done.code, done.out) == (2, "") and 'no run "none"' in done.err


def test_metadata_can_be_sliced_by(call: Call, tmp_path: Path) -> None:
    store = made(
        tmp_path / "s.db",
        Spec(metadata=lambda n: {"size": "large" if n % 3 else "small"}),
    )
    document = call("report", "r", "--store", store, "--by", "size", "--json").document
    assert {c["slice"] for c in document["slices"]["size"]} == {"large", "small"}
    done = call("report", "r", "--store", store, "--by", "sise")
    assert done.code == 2 and 'did you mean "size"?' in done.err


def test_a_judge_that_scores_a_factor_under_two_rubrics_is_told_apart(
    call: Call, tmp_path: Path
) -> None:
    def say(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
        return (
            n % 2
            if factor == "Contextual_Preservation"
            else quality(model, n, judge, factor, repeat)
        )

    store = made(
        tmp_path / "s.db", Spec(rubrics=("fidelity", "reference", "lighting")), say
    )
    document = call("report", "r", "--store", store, "--json").document
    judges: dict[str, set[str]] = {}
    for cell in document["factors"]:
        judges.setdefault(cell["factor"], set()).add(cell["judge"])
    assert judges["alignment"] == {"openai/m@fidelity", "openai/m@reference"}
    assert judges["seamlessness"] == judges["Contextual_Preservation"] == {"openai/m"}
    assert {p["rule"] for p in document["pass_rates"]} == {
        "Contextual_Preservation == 1"
    }
    assert call("report", "r", "--store", store).widest <= 100


def test_repeats_are_split_into_variances_and_say_how_many_more_are_needed(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(repeats=3))
    document = call(
        "report", "r", "--store", store, "--width", "0.2", "--json"
    ).document
    noise = document["noise"][0]
    assert (
        noise["repeat_variance"] > 0
        and 0 < noise["reliability"]["1"] < noise["reliability"]["3"] < 1
    )
    assert noise["needed_edits"] > 48
    done = call("report", "r", "--store", store, "--width", "0.2")
    assert "want edits" in done.out and "0.2 wide" in done.out and done.widest <= 100


def test_many_long_names_still_fit_into_a_hundred_columns(
    call: Call, tmp_path: Path
) -> None:
    models = [
        f"some-laboratory/an-editing-model-with-a-very-long-name-{n}" for n in range(4)
    ]
    store = made(
        tmp_path / "s.db", Spec(models=models, edits=6, rubrics=("online",)), flawed
    )
    assert call("report", "r", "--store", store).widest <= 100


def failing(model: str, n: int, judge: str, factor: str, repeat: int) -> str:
    return "unreachable"


def abstaining(model: str, n: int, judge: str, factor: str, repeat: int) -> None:
    return None


def constant(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
    return 7


@pytest.mark.parametrize(
    ("spec", "say", "said"),
    [
        (Spec(), failing, "no scores: nothing to estimate"),
        (Spec(), abstaining, "no scores: nothing to estimate"),
        (Spec(), constant, "7.0 [5."),
        (Spec(per_group=24), quality, "only one source image"),
        (Spec(edits=3, per_group=1), quality, "3/3"),
        (Spec(models=("",), edits=1), quality, "only one source image"),
    ],
    ids=[
        "all failed",
        "all abstained",
        "constant",
        "one image",
        "three edits",
        "one edit without a model",
    ],
)
def test_degenerate_data_are_answered_in_words(
    call: Call, tmp_path: Path, spec: Spec, say: object, said: str
) -> None:
    store = made(tmp_path / "s.db", spec, say)  # type: ignore[arg-type]
    done = call("report", "r", "--store", store)
    assert (
        done.code == 0
        and said in done.out
        and "nan" not in done.out.lower()
        and done.widest <= 100
    )
    document = call("report", "r", "--store", store, "--json")
    assert document.code == 0 and "NaN" not in document.out
    for form in ("md", "latex", "csv"):
        assert call("report", "r", "--store", store, "--format", form).code == 0


def test_what_is_pending_is_counted_like_a_failure(call: Call, tmp_path: Path) -> None:
    def half(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str:
        return "pending" if n % 2 else quality(model, n, judge, factor, repeat)

    store = made(tmp_path / "s.db", say=half)
    done = call("report", "r", "--store", store)
    assert shows(done.out, "24 judgements are pending", "command")
    document = json.loads(call("report", "r", "--store", store, "--json").out)
    cell = document["factors"][0]
    assert document["pending"] == 24
    assert (cell["n"], cell["ok"], cell["failed"]) == (24, 12, {"pending": 12})
    assert cell["worst_case"] < cell["mean"] < cell["best_case"]


def test_the_command_that_finishes_a_run_is_named_whole(
    call: Call, tmp_path: Path
) -> None:
    store = made(
        tmp_path / "s.db",
        Spec("my run", spec={"asked_for": ["fidelity"]}),
        lambda *_: "pending",
    )
    printed = call("report", "1", "--store", store).out
    assert shows(printed, "`editjudge runs again 'my run'`", "--store")


def test_ratings_under_other_names_are_said_and_can_be_said_to_be_the_same(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(rubrics=("fidelity", "preservation")))
    ratings = tmp_path / "r.csv"
    rows = [
        f"good-{n},{rater},{f},{1 + n % 3}"
        for n in range(9)
        for rater in "ab"
        for f in ("PQ", "SC")
    ]
    ratings.write_text("\n".join(["item,rater,factor,score", "another,a,SC,1", *rows]))
    call("ratings", "import", ratings, "--store", store)
    page = tmp_path / "r.html"
    asked = ("report", "r", "--store", store, "-o", tmp_path / "r.html")
    assert call(*asked).code == 0
    said = "The store has {} ratings of these edits under {}, which no rubric of this run has"
    text = page.read_text("utf-8")
    assert (
        said.format(36, "PQ, SC") in text
        and "such as --map-factor SC=fidelity." in text
        and 'href="#people"' in text
    )
    assert "Agreement with people" not in text
    assert call(*asked, "--map-factor", "SC=fidelity").code == 0
    text = page.read_text("utf-8")
    assert said.format(18, "PQ") in text and "Agreement with people" in text
    assert 'did you mean "fidelity"?' in call(*asked, "--map-factor", "SC=fidelty").err
    refused = call("report", "r", "--store", store, "--map-factor", "SC=fidelity")
    assert refused.code == 2 and "--map-factor is for HTML" in refused.err


def test_a_note_of_several_rows_is_told_once(call: Call, tmp_path: Path) -> None:
    def some(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str:
        return (
            "refused" if model == "poor" else quality(model, n, judge, factor, repeat)
        )

    store = made(tmp_path / "s.db", Spec(edits=12, edit_types=()), some)
    out = call("report", "r", "--store", store).out
    table = out[out.index("Scores by factor") :]
    assert table.count("no scores: nothing to estimate (3 of 6 rows)") == 1


def test_a_run_without_judgements_is_told_in_words(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "s.db", say=lambda *_: "pending")
    done = call("report", "r", "--store", store)
    assert done.code == 0 and "48 judgements: 48 pending" in done.out
    cells = call("report", "r", "--store", store, "--json").document["factors"]
    assert {(cell["ok"], cell["mean"], cell["ci"]) for cell in cells} == {
        (0, None, None)
    }


def test_names_of_strangers_never_reach_the_terminal_as_commands(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(models=("\x1b[31mred\x07", "=1+1"), edits=4))
    for form in (
        [],
        ["--format", "md"],
        ["--format", "latex"],
        ["--format", "csv"],
        ["--json"],
    ):
        out = call("report", "r", "--store", store, *form).out
        assert not set(out) & set("\x1b\x07") or form == ["--format", "csv"]


def test_guaranteed_intervals_are_as_wide_as_any_unseen_score_allows(
    call: Call, tmp_path: Path
) -> None:
    store = made(tmp_path / "s.db", Spec(edits=60, per_group=1))
    usual = call("report", "r", "--store", store, "--json").document
    bound = call("report", "r", "--guaranteed", "--store", store, "--json").document
    assert {cell["method"] for cell in usual["factors"]} == {"studentised"}
    assert {cell["method"] for cell in bound["factors"]} == {"guaranteed"}
    for mine, theirs in zip(usual["factors"], bound["factors"], strict=True):
        assert theirs["ci"][1] - theirs["ci"][0] > mine["ci"][1] - mine["ci"][0]
    assert {one["method"] for one in bound["comparisons"]} == {"guaranteed"}
