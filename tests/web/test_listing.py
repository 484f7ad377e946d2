"""The columns of a run: filters, search and disagreement, also while the run goes on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import sqlalchemy as sa

from editjudge.judgement import Judgement, Status, Task
from editjudge.rubrics.files import resolve
from editjudge.rubrics.verdict import Remark
from editjudge.store.listing import FactorColumn
from editjudge.store.ratings import add_ratings
from editjudge.store.records import Item
from editjudge.store.schema import edit_score_fills
from editjudge.store.store import Store
from editjudge.web.listing import Browser, Query
from tests.running.made import edits, stub
from tests.running.made import run as judge_edits


def names(browser: Browser, store: Store, **query: str) -> list[str]:
    return [row.item.item for row in browser.page(store.runs()[0], Query(**query)).rows]


def test_a_search_finds_the_edits_that_came_since(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        run = store.open_run("rewards", {"judges": ["measured"], "rubrics": {}})
        found = []
        for name in ("red car", "house", "blue car"):
            store.append(run, [Item(name, "m", "t", name)])
            found.append(names(Browser(store), store, q="CAR"))
    assert found == [["red car"], ["red car"], ["red car", "blue car"]]


def test_an_edit_that_came_since_is_listed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        run = store.open_run("rewards", {"judges": ["measured"], "rubrics": {}})
        browser = Browser(store)
        seen = []
        for name in ("a", "b"):
            store.append(run, [Item(name, "m", "t", name)])
            store.append(run, [Task(name, "fidelity", "measured", 0, name)])
            seen.append(names(browser, store, status="pending"))
        store.write([Judgement("a", "invalid", "measured", "fidelity", "f" * 64)])
        seen.append(names(browser, store, status="pending"))
    assert seen == [["a"], ["a", "b"], ["b"]]


def test_a_long_list_is_not_filled_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editjudge.store.listing._QUICK", 0.0)
    monkeypatch.setattr("editjudge.store.listing._SHARE", 1e6)
    with Store.open(tmp_path / "s.db") as store:
        run = store.open_run("rewards", {"judges": ["measured"], "rubrics": {}})
        browser = Browser(store)
        seen = []
        for name in ("a", "b"):
            store.append(run, [Item(name, "m", "t", name)])
            store.append(run, [Task(name, "fidelity", "measured", 0, name)])
            seen.append(names(browser, store, status="pending"))
    assert seen == [["a"], ["a"]]


def test_people_widen_a_factor_by_their_extremes_on_its_own_scale(
    tmp_path: Path,
) -> None:
    """What is on another scale, as imported ratings may be, says nothing."""
    (rubric,) = resolve(["fidelity"])
    factor = rubric.factors[0]
    low = min(factor.scale.values)
    high = max(factor.scale.values)
    said = {
        "agreed": [high] * 3,
        "disputed": [low, high, high],
        "off the scale": [high, high + 50, low - 50],
    }
    with Store.open(tmp_path / "s.db") as store:
        store.add_rubrics([rubric])
        run = store.open_run(
            "r", {"judges": ["measured"], "rubrics": {rubric.name: rubric.hash}}
        )
        store.append(run, [Item(name, "m", "t", name) for name in said])
        rated = [
            (item, f"rater {n}", factor.key, score)
            for item, scores in said.items()
            for n, score in enumerate(scores)
        ]
        add_ratings(store, [*rated, ("disputed", "rater 0", "a factor of nobody", 3)])
        browser = Browser(store)
        assert names(browser, store, sort="-spread") == [
            "disputed",
            "agreed",
            "off the scale",
        ]
        assert [row.spread for row in browser.page(run, Query()).rows] == [
            0.0,
            1.0,
            0.0,
        ]
        assert names(browser, store, disputed="1") == ["disputed"]


def test_a_rating_that_came_since_changes_the_order(tmp_path: Path) -> None:
    (rubric,) = resolve(["fidelity"])
    factor = rubric.factors[0].key
    with Store.open(tmp_path / "s.db") as store:
        store.add_rubrics([rubric])
        run = store.open_run(
            "r", {"judges": ["measured"], "rubrics": {rubric.name: rubric.hash}}
        )
        store.append(run, [Item(name, "m", "t", name) for name in "ab"])
        browser = Browser(store)
        seen = []
        for score in (2, 6):
            add_ratings(store, [("a", "ann", factor, 4), ("b", "ann", factor, score)])
            seen.append(names(browser, store, sort=f"-people:{factor}"))
            seen.append(names(browser, store, factor=f"people:{factor}", least="5"))
    assert seen == [["a", "b"], [], ["b", "a"], ["b"]]


def test_the_list_of_a_run_is_filled_when_the_run_finishes(tmp_path: Path) -> None:
    with stub():
        judge_edits(edits(tmp_path, 3), tmp_path / "s.db", rubrics=("fidelity",))
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        fills = list(store.stream(sa.select(edit_score_fills)))
        assert [(fill.judge, fill.stale) for fill in fills] == [("", False)]
        assert names(Browser(store), store, status="ok") == ["e0", "e1", "e2"]


def test_filters_by_status_violation_and_score_and_their_order(tmp_path: Path) -> None:
    (rubric,) = resolve(["fidelity"])
    key = rubric.factors[0].key
    with Store.open(tmp_path / "s.db") as store:
        store.add_rubrics([rubric])
        run = store.open_run(
            "r", {"judges": ["m", "n"], "rubrics": {rubric.name: rubric.hash}}
        )
        store.append(run, [Item(name, f"model {name}", "t", name) for name in "abcd"])
        for item, judge, score in (
            ("a", "m", 2),
            ("a", "n", 4),
            ("b", "m", 5),
            ("c", "m", None),
        ):
            store.append(run, [Task(item, rubric.name, judge, 0, item + judge)])
            scores = None if score is None else {f.key: score for f in rubric.factors}
            remarks = (
                (Remark("too_long", 'says "code":"other"'),) if item == "b" else ()
            )
            status: Status = "invalid" if score is None else "ok"
            store.write([Judgement(item + judge, status, judge, rubric.name, rubric.hash, scores=scores,
                                   violations=remarks)])  # fmt: skip
        store.append(run, [Task("d", rubric.name, "m", 0, "dm")])
        browser = Browser(store)
        assert names(browser, store, status="failed") == ["c"] and names(
            browser, store, status="pending"
        ) == ["d"]
        assert (
            names(browser, store, violation="too_long") == ["b"]
            and names(browser, store, violation="other") == []
        )
        assert names(browser, store, factor=key, least="3") == ["a", "b"]
        assert names(browser, store, factor=key, least="3", judge="m") == ["b"]
        assert names(browser, store, sort=f"-{key}") == ["b", "a", "c", "d"]
        assert names(browser, store, sort="-model") == ["d", "c", "b", "a"]
        assert names(browser, store, sort="-position", status="ok") == ["b", "a"]
        assert browser.neighbours(run, Query(sort=f"-{key}"), "a").after == "c"
        choices = browser.page(run, Query()).listing
        assert choices.models == {f"model {name}": 1 for name in "abcd"}
        assert choices.statuses == {"invalid": 1, "ok": 2, "pending": 1}
        assert choices.edit_types == {"t": 4} and choices.violations == {"too_long": 1}
        assert choices.marks == {"disputed": 1, "contradicted": 0, "flipped": 0}
        assert browser.page(run, Query(judge="n")).listing.violations == {}


def test_a_colour_follows_the_direction_of_a_scale_and_an_open_end_has_none() -> None:
    up = FactorColumn("a", "r", "a", 0, 1)
    down = FactorColumn("a", "r", "a", 0, 1, "down")
    assert [up.level(score) for score in (0, 0.5, 1, 9)] == [0, 3, 6, 6]
    assert [down.level(score) for score in (0, 0.5, 1)] == [6, 3, 0]
    assert FactorColumn("a", "r", "psnr", 0, math.inf).level(30) is None
