"""The columns of a run that goes on while they are made."""

from __future__ import annotations

from pathlib import Path

from editjudge.judgement import Task
from editjudge.store.store import Item, Store
from editjudge.web.listing import build


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
