"""The methods of a run in Python answer what the verbs print with `--json`."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

import editjudge as ej
from editjudge.errors import UsageError

from .stores import Call, Spec, call, made

__all__ = ["call"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(made(tmp_path / "s.db"), Spec(name="again", salt="x"))


def test_a_run_of_a_store_is_opened_by_name_and_has_its_table(store: Path) -> None:
    run = ej.open("r", store=store)
    assert (run.name, run.ending, run.summary.total) == ("r", "finished", 48)
    frame = run.table(by="model")
    assert list(frame.columns) == ["model", "factor", "mean", "ok", "n"] and set(frame["n"]) == {24}
    with pytest.raises(UsageError, match=r'no run.*"reely"|reely'):
        ej.open("reely", store=store)


def test_compare_answers_what_the_verb_prints(call: Call, store: Path) -> None:
    result = ej.open("r", store=store).compare("poor", "good")
    document = call("compare", "r", "--a", "poor", "--b", "good", "--store", store, "--json").document
    assert dict(result) == document
    frame = result.frame()
    assert len(frame) == 4 and {"factor", "b - a", "b - a_lo"} <= set(frame.columns)
    assert "good scores higher than poor on overall by " in repr(result)
    assert "<table" in result._repr_html_()
    with pytest.raises(UsageError, match="weather"):
        ej.open("r", store=store).compare(by="weather")  # type: ignore[arg-type]


def test_two_runs_are_compared_as_two_sides(call: Call, store: Path) -> None:
    result = ej.open("again", store=store).compare(ej.open("r", store=store))
    document = call("compare", "r", "again", "--store", store, "--json").document
    assert dict(result) == document


def test_gate_answers_what_the_verb_prints(call: Call, store: Path) -> None:
    run = ej.open("r", store=store)
    result = run.gate({"alignment": 3}, model="good")
    document = call("gate", "r", "--min", "alignment=3", "--model", "good", "--store", store, "--json").document
    assert dict(result) == document and result["outcome"] == "pass"
    assert run.gate({"alignment": 6.9})["outcome"] == "fail"
    assert run.gate(baseline=ej.open("again", store=store), max_drop=1.0)["baseline"] == "again"


def test_agree_answers_what_the_verb_prints(call: Call, store: Path, tmp_path: Path) -> None:
    run = ej.open("r", store=store)
    ratings = tmp_path / "ratings.csv"
    with ratings.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "rater", "factor", "score"])
        for row in run.judgements():
            rows.writerow([row["item"], "ann", "SC", row["scores"]["alignment"]])
    result = run.agree(ratings, called={"SC": "alignment"})
    document = call("agree", "r", "--ratings", ratings, "--as", "SC=alignment", "--store", store, "--json").document
    assert dict(result) == document
    assert result["factors"]["alignment"]["openai/m"]["spearman"] == pytest.approx(1.0)


def test_a_slice_has_every_figure_with_its_interval(store: Path) -> None:
    frame = ej.open("r", store=store).table(by="edit_type", of="scores").frame()
    assert {"add", "remove"} <= set(frame["slice"]) and {"mean", "mean_lo", "mean_hi", "ok", "n"} <= set(frame.columns)


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json", "r.csv", "r.tex"])
def test_a_report_is_written_in_the_format_of_its_name(store: Path, tmp_path: Path, name: str) -> None:
    path = ej.open("r", store=store).report(tmp_path / name)
    assert path.read_text("utf-8").strip()
    with pytest.raises(UsageError, match="none of"):
        ej.open("r", store=store).report(tmp_path / "r.doc")


def test_the_plot_has_a_mark_for_every_difference_and_its_interval(store: Path, tmp_path: Path) -> None:
    plot = ej.open("r", store=store).plot("poor", "good")
    assert len(re.findall('class="interval', plot.html)) == 4 and "good − poor" in plot.html
    saved = plot.save(tmp_path / "plot.html").read_text("utf-8")
    assert "<svg" in saved and "<style>" in saved


def test_a_fragment_is_one_frame_that_carries_its_page(call: Call, store: Path, tmp_path: Path) -> None:
    done = call("report", "r", "--store", store, "--format", "fragment", "-o", tmp_path / "part.html")
    text = (tmp_path / "part.html").read_text("utf-8")
    assert done.code == 0 and text.startswith("<iframe ") and text.count("<iframe") == 1 and "sandbox" in text
    assert "&lt;!doctype html&gt;" in text and "<script" not in text


def test_completion_lists_the_public_names_and_nothing_else() -> None:
    assert [name for name in dir(ej) if not name.startswith("__")] == sorted(ej.__all__)


def test_a_conclusion_whose_interval_contains_zero_rests_on_its_p(tmp_path: Path) -> None:
    from editjudge.report.comparison import conclusions, differences

    store = made(tmp_path / "s.db", Spec(models=("good", "poor", "third"), edits=40))
    found = differences(ej.open("r", store=store)._loaded())
    claims = [
        claim
        for line in conclusions(found)
        for claim in re.findall(r"by [\d.]+ \[(-?[\d.]+), -?[\d.]+\]( \(p [<.\de-]+\))?", line)
    ]
    assert claims and all(p or float(low) > 0 for low, p in claims), claims
