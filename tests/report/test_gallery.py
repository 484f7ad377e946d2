"""Which edits a report shows first, and by what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from editjudge.errors import UsageError
from editjudge.judgement import instruction_warning
from editjudge.report.gallery import Gallery, choices
from editjudge.report.run_data import RunData, common_judges
from editjudge.stats.columns import Scores
from editjudge.store.store import Store
from tests.faults import shows
from tests.measured.made import photograph, recoloured
from tests.running.made import editjudge, write_manifest

SCALE = tuple(range(1, 8))


def ranked(
    folder: Path,
    rows: Sequence[tuple[str, str, float | None]],
    judge: str = "openai/m",
    unchanged: frozenset[str] = frozenset(),
) -> dict[str, Gallery]:
    """The galleries of edits with these scores, by item and factor."""
    items, factors, scores = zip(*rows, strict=True)
    columns = Scores.of(items, factors, scores, judge=[judge] * len(rows))
    with Store.open(folder / "s.db") as store:
        run = store.open_run("r", {"judges": [judge]})
        scales = dict.fromkeys(factors, SCALE)
        judged = RunData(
            run, columns, scales, {}, {}, {}, frozenset(), unchanged=unchanged
        )
        return {choice.name: choice for choice in choices(judged)}


def test_the_highest_scores_leave_out_outputs_that_show_the_input(
    tmp_path: Path,
) -> None:
    rows = [("a", "image_quality", 4.0), ("b", "image_quality", 7.0)]
    found = ranked(tmp_path, rows, "measured", frozenset({"b"}))
    assert found["best"].items == ["a"] and found["best"].of == 1
    assert shows(found["best"].reason, "left out: 1")
    assert found["worst"].items == ["a", "b"]


@pytest.mark.parametrize("versions", [("3", "4"), (None, "4")])
def test_two_versions_of_the_embedded_judge_are_two_judges(
    tmp_path: Path, versions: tuple[str | None, str]
) -> None:
    columns = Scores.of(["a"], ["image_quality"], [4.0], judge=["measured"])
    runs = []
    with Store.open(tmp_path / "s.db") as store:
        for name, version in zip(("old", "new"), versions, strict=True):
            about = {} if version is None else {"version of measured": version}
            run = store.open_run(name, {"judges": ["measured"]})
            runs.append(RunData(run, columns, {}, {}, {}, about, frozenset()))
    with pytest.raises(UsageError) as error:
        common_judges(*runs)
    assert error.value.code == "different_judges"
    assert shows(str(error.value), "measured (version 4)")
    assert common_judges(runs[1], runs[1]) == {"measured": "measured"}


def test_edits_are_ranked_only_beside_those_with_the_same_factors_scored(
    tmp_path: Path,
) -> None:
    rows = [(item, factor, score) for item, score in (("a", 4.0), ("b", 6.0), ("c", 5.0))
            for factor in ("alignment", "image_quality")]  # fmt: skip
    result = ranked(
        tmp_path,
        [
            *rows,
            ("d", "image_quality", 7.0),
            ("d", "alignment", None),
            ("e", "alignment", None),
        ],
    )
    assert result["best"].items == ["b", "c", "a"] and result["worst"].items == [
        "a",
        "c",
        "b",
    ]
    assert (
        result["best"].title == "Best"
        and "alignment, image_quality" in result["best"].reason
    )
    assert shows(result["best"].reason, "1 edit is not ranked")


def test_an_edit_with_a_score_on_a_further_factor_is_not_ranked_without_it(
    tmp_path: Path,
) -> None:
    rows = [
        ("a", "image_quality", 5.0),
        ("b", "image_quality", 6.0),
        ("c", "image_quality", 7.0),
    ]
    result = ranked(tmp_path, [*rows, ("c", "alignment", 1.0)])
    assert result["best"].items == ["b", "a"] and shows(result["best"].reason, "1 edit")


def test_no_edit_is_called_best_where_nobody_looked_at_the_instruction(
    tmp_path: Path,
) -> None:
    rows = [
        (item, factor, float(n))
        for n, item in enumerate("abc", 2)
        for factor in ("unchanged_regions", "seamlessness")
    ]
    result = ranked(tmp_path, rows, "measured")
    assert shows(result["best"].title, "Highest scores", "not judged")
    assert shows(result["worst"].title, "Lowest scores", "not judged")


@pytest.mark.parametrize(
    ("judges", "named"),
    [
        (["measured"], "measured does not look"),
        (["measured@quality", "metrics"], "measured and metrics do not look"),
        (["measured", "openai/gpt-4.1"], None),
        ([], None),
    ],
)
def test_a_summary_says_when_nobody_looked_at_the_instruction(
    judges: list[str], named: str | None
) -> None:
    line = instruction_warning(judges)
    assert (line is None) if named is None else (line is not None and named in line)


def test_run_and_report_of_the_embedded_judge_say_first_what_it_did_not_look_at(
    tmp_path: Path,
) -> None:
    for name, picture in {
        "input": photograph(),
        "edited": recoloured(photograph()),
    }.items():
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    rows = [
        {
            "id": "a",
            "input": "input.png",
            "edited": "edited.png",
            "instruction": "make the cup blue",
            "model": "m",
        }
    ]
    store = ("--store", tmp_path / "s.db")
    run = editjudge(
        "run",
        write_manifest(tmp_path, rows),
        "--rubric",
        "online",
        "--judge",
        "measured",
        "--name",
        "r",
        *store,
    )
    arguments = "ot judged: whether the instruction was followed."
    assert run.out[1:].startswith(arguments)
    page = tmp_path / "r.html"
    assert editjudge("report", "r", *store, "-o", page).code == 0
    text = page.read_text("utf-8")
    assert text.index(arguments) < text.index("Coverage and failures")
    assert "verdicts" not in text[text.index("<body") : text.index(arguments)], (
        "what was not judged comes first"
    )
    assert shows(text, "Highest scores", "not judged") and ">Best<" not in text
    assert arguments in editjudge("report", "r", *store).out
