"""The columns of a run that goes on while they are made."""

from __future__ import annotations

import math
from pathlib import Path

from editjudge.judgement import Task
from editjudge.rubrics.files import resolve
from editjudge.store.ratings import add_ratings
from editjudge.store.store import Item, Store
from editjudge.web.browse import _Search
from editjudge.web.listing import Column, build


def test_edits_that_come_while_a_listing_is_made_are_left_for_the_next(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        run = store.open_run("rewards", {"judges": ["measured"], "rubrics": {}})
        come = iter(range(100))

        def comes(_: float = 0.0) -> None:
            name = f"e{next(come)}"
            store.append(run, [Item(name, "m", "t", name)])
            store.append(run, [Task(name, "fidelity", "measured", 0, name)])

        comes()
        begun = build(store, run, progress=comes)
        later = build(store, run)
    assert [len(listing.there) for listing in (begun, later)] == [1, next(come)]
    assert begun.statuses_of(0) == ["pending"] and later.there.all()


def test_a_search_goes_on_with_the_edits_that_came_since(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        run = store.open_run("rewards", {"judges": ["measured"], "rubrics": {}})
        search = _Search(store, run, "car")
        found = []
        for name in ("red car", "house", "blue car"):
            store.append(run, [Item(name, "m", "t", name)])
            found.append(search.advance(build(store, run), 60.0).tolist())
    assert found == [[True], [True, False], [True, False, True]]
    assert search.progress == 1.0


def test_people_widen_a_factor_by_their_extremes_on_its_own_scale(tmp_path: Path) -> None:
    """An edit's ratings are read as two numbers; what is on another scale, as imported ratings may be, says nothing."""
    (rubric,) = resolve(["fidelity"])
    factor = rubric.factors[0]
    low, high = min(factor.scale.values), max(factor.scale.values)
    said = {"agreed": [high] * 3, "disputed": [low, high, high], "off the scale": [high, high + 50, low - 50]}
    with Store.open(tmp_path / "s.db") as store:
        store.add_rubrics([rubric])
        run = store.open_run("r", {"judges": ["measured"], "rubrics": {rubric.name: rubric.hash}})
        store.append(run, [Item(name, "m", "t", name) for name in said])
        rated = [
            (item, f"rater {n}", factor.key, score) for item, scores in said.items() for n, score in enumerate(scores)
        ]
        add_ratings(store, [*rated, ("disputed", "rater 0", "a factor of nobody", 3)])
        whole, one = build(store, run), build(store, run, only=["disputed"])
    assert whole.spread.tolist() == [0.0, 1.0, 0.0]
    assert one.spread.tolist() == [1.0]


def test_a_colour_follows_the_direction_of_a_scale_and_an_open_end_has_none() -> None:
    up, down = Column("a", "r", "a", 0, 1), Column("a", "r", "a", 0, 1, "down")
    assert [up.level(score) for score in (0, 0.5, 1)] == [0, 3, 6]
    assert [down.level(score) for score in (0, 0.5, 1)] == [6, 3, 0]
    assert Column("a", "r", "psnr", 0, math.inf).level(30) is None
