"""The methods of a run in Python answer what the verbs print with `--json`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import sys
from base64 import b64encode
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas
import pytest
from PIL import Image

import editjudge as ej
from editjudge.errors import UsageError
from editjudge.running.progress import RunTally
from tests.faults import raises, shows

from .stores import Call, Spec, call, made

__all__ = ["call"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(made(tmp_path / "s.db"), Spec(name="again", salt="x"))


def test_a_run_of_a_store_is_opened_by_name_and_has_its_table(store: Path) -> None:
    run = ej.open("r", store=store)
    assert (run.name, run.ending, run.summary.total) == ("r", "finished", 48)
    frame = run.table(by="model")
    assert list(frame.columns) == [
        "model",
        "factor",
        "mean",
        "ok",
        "n",
        "mean_lo",
        "mean_hi",
    ]
    assert set(frame["n"]) == {24}
    with raises(UsageError, "unknown_run", "reely"):
        ej.open("reely", store=store)


def test_a_plain_table_has_the_intervals_of_the_report(store: Path) -> None:
    run = ej.open("r", store=store)
    columns = ["model", "factor", "mean", "mean_lo", "mean_hi"]
    plain = run.table(by="model")[columns].sort_values(columns[:2], ignore_index=True)
    report = run.table(by="model", use="scores").frame()
    report = report[report["factor"].isin(plain["factor"])][columns].sort_values(
        columns[:2], ignore_index=True
    )
    pandas.testing.assert_frame_equal(plain, report, check_dtype=False)
    assert (plain["mean_lo"] < plain["mean"]).all() and (
        plain["mean"] < plain["mean_hi"]
    ).all()


@pytest.mark.parametrize("by", ["model", "judge", "rubric"])
def test_a_table_without_its_store_has_the_same_means_and_no_intervals(
    store: Path, by: str
) -> None:
    run = ej.open("r", store=store)
    columns = [by, "factor", "mean", "ok", "n"]
    before = run.table(by=by).sort_values(columns[:2], ignore_index=True)
    store.unlink()
    after = run.table(by=by).sort_values(columns[:2], ignore_index=True)
    pandas.testing.assert_frame_equal(before[columns], after[columns])
    assert before["mean_lo"].notna().all() and after["mean_lo"].isna().all()


@pytest.mark.parametrize("by", ["judge", "rubric"])
def test_a_mean_over_models_has_an_interval_too(store: Path, by: str) -> None:
    frame = ej.open("r", store=store).table(by=by)
    assert (
        len(frame)
        and (frame["mean_lo"] <= frame["mean"]).all()
        and (frame["mean"] <= frame["mean_hi"]).all()
    )


def test_compare_answers_what_the_verb_prints(call: Call, store: Path) -> None:
    result = ej.open("r", store=store).compare("poor", "good")
    document = call(
        "compare", "r", "--a", "poor", "--b", "good", "--store", store, "--json"
    ).document
    assert dict(result) == document
    frame = result.frame()
    assert len(frame) == 4 and {"factor", "b - a", "b - a_lo"} <= set(frame.columns)
    counts = [
        (one["wins"], one["ties"], one["losses"]) for one in document["comparisons"]
    ]
    assert counts == list(
        zip(frame["wins"], frame["ties"], frame["losses"], strict=True)
    )
    assert shows(repr(result), "poor and good", "no evidence", "overall"), (
        "of 12 source images"
    )
    assert "<table" in result._repr_html_()
    with raises(UsageError, "unknown_grouping", "weather"):
        ej.open("r", store=store).compare(by="weather")  # type: ignore[arg-type]


def test_two_runs_are_compared_as_two_sides(call: Call, store: Path) -> None:
    result = ej.open("again", store=store).compare(ej.open("r", store=store))
    document = call("compare", "r", "again", "--store", store, "--json").document
    assert dict(result) == document


def test_gate_answers_what_the_verb_prints(call: Call, store: Path) -> None:
    run = ej.open("r", store=store)
    result = run.gate({"alignment": 3}, model="good")
    document = call(
        "gate",
        "r",
        "--min",
        "alignment=3",
        "--model",
        "good",
        "--store",
        store,
        "--json",
    ).document
    assert dict(result) == document and result["outcome"] == "pass"
    assert run.gate({"alignment": 6.9})["outcome"] == "fail"
    assert (
        run.gate(baseline=ej.open("again", store=store), max_drop=1.0)["baseline"]
        == "again"
    )


def test_agree_answers_what_the_verb_prints(
    call: Call, store: Path, tmp_path: Path
) -> None:
    run = ej.open("r", store=store)
    ratings = tmp_path / "ratings.csv"
    with ratings.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["item", "rater", "factor", "score"])
        for row in run.judgements():
            scores = row["scores"] or {}
            rows.writerow([row["item"], "ann", "SC", scores["alignment"]])
    result = run.agree(ratings, map_factor={"SC": "alignment"})
    document = call(
        "agree",
        "r",
        "--ratings",
        ratings,
        "--map-factor",
        "SC=alignment",
        "--store",
        store,
        "--json",
    ).document
    assert dict(result) == document
    assert result["factors"]["alignment"]["openai/m"]["spearman"] == pytest.approx(1.0)


def test_a_slice_has_every_figure_with_its_interval(store: Path) -> None:
    frame = ej.open("r", store=store).table(by="edit_type", use="scores").frame()
    assert {"add", "remove"} <= set(frame["slice"]) and {
        "mean",
        "mean_lo",
        "mean_hi",
        "ok",
        "n",
    } <= set(frame.columns)


def test_a_slice_shows_the_tables_of_the_terminal_and_not_its_wide_rows(
    store: Path,
) -> None:
    table = ej.open("r", store=store).table(by="edit_type")
    assert shows(repr(table), "Scores by edit_type", "95 % CI")
    assert "slice_by" not in repr(table)
    assert (
        "Scores by edit_type" in table._repr_html_()
        and "slice_by" not in table._repr_html_()
    )


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.json", "r.csv", "r.tex"])
def test_a_report_is_written_in_the_format_of_its_name(
    store: Path, tmp_path: Path, name: str
) -> None:
    path = ej.open("r", store=store).report(tmp_path / name)
    assert path.read_text("utf-8").strip()
    with raises(UsageError, "unknown_ending"):
        ej.open("r", store=store).report(tmp_path / "r.doc")


def test_the_plot_has_a_mark_for_every_difference_and_its_interval(
    store: Path, tmp_path: Path
) -> None:
    plot = ej.open("r", store=store).plot("poor", "good")
    assert (
        len(re.findall('class="interval', plot.html)) == 4
        and "good − poor" in plot.html
    )
    saved = plot.save(tmp_path / "plot.html").read_text("utf-8")
    assert "<svg" in saved and "<style>" in saved


def test_a_fragment_is_one_frame_that_carries_its_page(
    call: Call, store: Path, tmp_path: Path
) -> None:
    done = call(
        "report",
        "r",
        "--store",
        store,
        "--format",
        "fragment",
        "-o",
        tmp_path / "part.html",
    )
    text = (tmp_path / "part.html").read_text("utf-8")
    assert (
        done.code == 0
        and text.startswith("<iframe ")
        and text.count("<iframe") == 1
        and "sandbox" in text
    )
    assert "&lt;!doctype html&gt;" in text and "<script" not in text


def test_completion_lists_the_public_names_and_nothing_else() -> None:
    assert [name for name in dir(ej) if not name.startswith("__")] == sorted(ej.__all__)


def test_the_interval_of_a_claim_excludes_zero_and_no_other_does(
    tmp_path: Path,
) -> None:
    from editjudge.report.comparison import conclusions, differences

    store = made(tmp_path / "s.db", Spec(models=("good", "poor", "third"), edits=40))
    found = differences(ej.open("r", store=store)._load())
    for d in (one.difference for one in found):
        assert d.ci is None or d.evident == (d.ci.lo > 0 or d.ci.hi < 0), d
    claims = [
        low
        for line in conclusions(found)
        for low in re.findall(r"by [\d.]+ \[(-?[\d.]+), -?[\d.]+\]", line)
    ]
    assert claims and all(float(low) > 0 for low in claims), claims


# --- pictures, notebooks and terminals --------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """A judge with a reply for the edit `edit` alone, whose reason is hostile."""
    reason = f"{HOSTILE} follows the light"
    answer = {"Contextual_Preservation": {"reason": reason, "score": 1}}
    reply = f"## Difference Analysis\n- {reason}: allowed\n\n## CP Decision\nIt follows.\n\n## JSON\n{json.dumps(answer)}"
    path = tmp_path / "replies.jsonl"
    path.write_text(
        json.dumps({"item": "edit", "rubric": "lighting", "reply": reply}) + "\n"
    )
    return f"replay:{path}"


PICTURE = Image.effect_noise((48, 32), 60).convert("RGB")


def png() -> bytes:
    PICTURE.save(out := io.BytesIO(), "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    "given",
    [
        PICTURE,
        np.asarray(PICTURE),
        np.asarray(PICTURE) / 255,
        png(),
        f"data:image/png;base64,{b64encode(png()).decode()}",
    ],
    ids=["PIL", "array", "floats", "bytes", "data: URL"],
)
def test_a_picture_of_any_kind_is_judged_and_shown(recorded: str, given: Any) -> None:
    verdict = ej.judge(input=given, edited=given, rubrics="lighting", judge=recorded)
    assert verdict["lighting"].status == "ok" and verdict["lighting"].scores == {
        "Contextual_Preservation": 1
    }
    assert "Contextual_Preservation: 1 of 1" in repr(verdict)
    page = verdict._repr_html_()
    assert (
        page.count('<img src="data:image/webp;base64,') == 2
        and "1&nbsp;of&nbsp;1" in page
    )


def test_what_a_judge_writes_is_escaped_in_a_notebook(recorded: str) -> None:
    page = ej.judge(
        input=PICTURE,
        edited=PICTURE,
        instruction=HOSTILE,
        rubrics="lighting",
        judge=recorded,
    )._repr_html_()
    assert (
        "<script" not in page
        and page.count("&lt;script&gt;") == 2
        and "\u202e" not in page
    )


def test_a_failure_is_shown_with_its_status_and_reason(recorded: str) -> None:
    verdict = ej.judge(
        input=PICTURE, edited=PICTURE, id="other", rubrics="lighting", judge=recorded
    )
    assert (
        "unreachable" in repr(verdict) and "no_recorded_reply" in verdict._repr_html_()
    )


@pytest.mark.parametrize("make", [list, pandas.DataFrame])
def test_rows_with_pictures_are_run_shown_and_resumed_inside_a_running_loop(
    recorded: str, make: Any, tmp_path: Path
) -> None:
    rows = make(
        [
            {"id": "edit", "input": PICTURE, "edited": PICTURE, "model": "m"},
            {"id": "other", "input": PICTURE},
        ]
    )

    async def cell() -> tuple[ej.Run, ej.Run]:
        arguments: dict[str, Any] = {
            "rubrics": "lighting",
            "judges": recorded,
            "store": tmp_path / "s.db",
        }
        return ej.run(rows, **arguments), await ej.arun(rows, **arguments)

    first, again = asyncio.run(cell())
    assert (first.id, first.name) == (again.id, again.name)
    assert dict(first.summary.statuses) == {"ok": 1, "unreachable": 1}
    page = first._repr_html_()
    assert page.count("<img") == 3 and "unreachable" in page and "<script" not in page
    assert (
        ej.open(first.name, store=tmp_path / "s.db")
        ._repr_html_()
        .count("not kept in the store")
        == 3
    )


def test_errors_of_a_run_name_arguments(tmp_path: Path, recorded: str) -> None:
    rows = [{"id": "a", "source": PICTURE, "target": PICTURE, "instruction": "x"}]
    with pytest.raises(
        ej.InputError,
        match=re.escape('Map it with columns={"input": "source", "edited": "target"}'),
    ):
        ej.run(rows, judges=recorded, store=tmp_path / "s.db")
    with raises(ej.InputError, "bad_number", "repeats=0"):
        ej.run(rows, judges=recorded, repeats=0)
    with raises(UsageError, "not_a_manifest"):
        ej.run({"id": "a"})
    columns = {"input": "source", "edited": "target"}
    run = ej.run(
        rows,
        judges=recorded,
        rubrics="lighting",
        columns=columns,
        store=tmp_path / "s.db",
    )
    assert run.summary.total == 1


def test_a_gate_without_a_score_says_so_without_options(
    store: Path, tmp_path: Path, recorded: str
) -> None:
    run = ej.run([{"id": "x", "input": PICTURE, "edited": PICTURE}], rubrics="lighting", judges=recorded,
                 store=tmp_path / "s.db")  # fmt: skip
    result = run.gate({"Contextual_Preservation": 1}, max_failures=1.0)
    assert "nothing to decide on" in result["error"] and "--" not in result["error"]
    assert "--" not in " ".join(result.lead)


def test_a_plot_as_a_picture_needs_matplotlib_and_says_so(
    store: Path, tmp_path: Path
) -> None:
    plot = ej.open("r", store=store).plot("poor", "good")
    with raises(UsageError, "not_installed"):
        plot.save(tmp_path / ("plot.doc" if find_spec("matplotlib") else "plot.png"))


def test_a_notebook_sees_how_many_how_long_and_what_failed() -> None:
    from editjudge.running.progress import NotebookBar

    display = Mock()
    progress = NotebookBar(display)
    tally = RunTally(Counter(ok=3, refused=1), asked=4, cached=1, expected=8)
    progress(tally)
    tally.statuses["unreachable"] += 1
    progress.close()
    drawn = display.return_value.update.call_args.args[0]
    assert drawn["text/plain"].startswith("5 of 8 judged, ")
    assert drawn["text/plain"].endswith(
        " left, 1 cached, $0.00, failed: 1 refused, 1 unreachable"
    )
    assert drawn["text/html"].startswith(
        '<progress value="5" max="8"></progress> 5 of 8 judged'
    )


def test_a_former_argument_works_and_names_the_present_one(store: Path) -> None:
    run = ej.open("r", store=store)
    with pytest.warns(FutureWarning, match="of= works until 1.0; write use="):
        former = run.table(by="model", of="scores")  # type: ignore[call-arg]
    assert former.document == run.table(by="model", use="scores").document
    with pytest.warns(FutureWarning, match="write format="):
        run.report(store.with_suffix(".txt"), form="md")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument 'of'"):
        ej.open("r", of="scores")  # type: ignore[call-arg]


# --- rows of a run --------------------------------------------------------------------------------------------


def test_scores_have_a_row_for_each_factor_of_each_judgement(tmp_path: Path) -> None:
    def say(
        model: str, n: int, judge: str, factor: str, repeat: int
    ) -> float | str | None:
        if n == 0:
            return "invalid"
        return None if factor == "plausibility" else 4

    store = made(tmp_path / "s.db", Spec(models=("good",), edits=3, repeats=2), say)
    frame = ej.open("r", store=store).scores()
    columns = "item model judge rubric factor repeat score status"
    assert [*frame.columns] == columns.split()
    assert len(frame) == 3 * 2 * 3
    failed = frame[frame["item"] == "good-0"]
    assert {*failed["status"]} == {"invalid"} and failed["score"].isna().all()
    rest = frame[frame["item"] != "good-0"]
    unsure = rest[rest["factor"] == "plausibility"]
    assert {*unsure["status"]} == {"abstained"} and unsure["score"].isna().all()
    assert {*rest[rest["factor"] == "alignment"]["score"]} == {4}


def test_edits_have_a_row_each_with_their_means(store: Path) -> None:
    run = ej.open("r", store=store)
    frame = run.edits().set_index("item")
    assert len(frame) == 48 and {*frame["judgements"]} == {1}
    scores = run.scores()
    means = scores.groupby("item")["score"].mean()
    pandas.testing.assert_series_equal(
        frame["overall"].sort_index(), means.sort_index(), check_names=False
    )
    assert {"model", "edit_type", "group", "instruction", "failed"} <= {*frame.columns}


def test_rows_are_dicts_without_pandas(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = ej.open("r", store=store)
    assert run.scores()[0]["factor"] == "alignment"
    assert run.edits()[0]["item"] == "good-0"


def test_drift_answers_what_the_verb_prints(call: Call, store: Path) -> None:
    answer = ej.open("again", store=store).drift(ej.open("r", store=store))
    printed = call("drift", "again", "--against", "r", "--store", store, "--json")
    assert dict(answer) == printed.document


def test_a_comparison_is_of_the_factors_that_are_named(store: Path) -> None:
    answer = ej.open("r", store=store).compare("poor", "good", factor="alignment")
    assert {row["factor"] for row in answer["comparisons"]} == {"alignment"}


def test_an_export_is_what_the_verb_writes(
    call: Call, store: Path, tmp_path: Path
) -> None:
    files = ej.open("r", store=store).export(tmp_path / "python", format="csv")
    call("export", "r", "-o", tmp_path / "verb", "--format", "csv", "--store", store)
    for file in files:
        if file.suffix == ".csv":
            assert file.read_bytes() == (tmp_path / "verb" / file.name).read_bytes()
    with raises(UsageError):
        ej.open("again", store=store).export(tmp_path / "python", format="csv")


def test_pairs_of_a_run_of_scores_are_an_error(store: Path) -> None:
    with raises(UsageError):
        ej.open("r", store=store).pairs()


@pytest.mark.parametrize("judge", ["judge", "judges"])
@pytest.mark.parametrize("rubric", ["rubric", "rubrics"])
def test_singular_and_plural_are_the_same(
    judge: str, rubric: str, recorded: str
) -> None:
    arguments: dict[str, Any] = {judge: [recorded], rubric: ["lighting"]}
    if judge == "judge":
        arguments[judge] = recorded
    verdict = ej.judge(edited=PICTURE, input=PICTURE, **arguments)
    assert verdict["lighting"].status == "ok"


def test_a_mistyped_column_is_corrected(store: Path) -> None:
    with raises(UsageError) as caught:
        ej.open("r", store=store).table(by="modle")
    assert '"model"' in str(caught.value)


def test_absolute_paths_in_rows_need_no_permission(
    tmp_path: Path, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    Image.new("RGB", (40, 30), "red").save(tmp_path / "a.png")
    path = str(tmp_path / "a.png")
    row = {"id": "edit", "input": path, "edited": path, "instruction": "x"}
    arguments: dict[str, Any] = {"rubric": "lighting", "judge": recorded}
    run = ej.run([row], store="s.db", **arguments)
    assert run.summary.statuses == {"ok": 1}


def test_an_error_is_one_line_in_a_notebook(store: Path) -> None:
    """IPython shows what this method returns instead of a traceback."""
    with pytest.raises(UsageError) as caught:
        ej.open("reely", store=store)
    (line,) = caught.value._render_traceback_()
    assert line == f"UsageError: {caught.value}"
