"""Ratings belong to what was rated: the same input, output and instruction, and where it was a form, what it asked."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
import sqlalchemy as sa

from editjudge.errors import StoreError, UsageError
from editjudge.rubrics.files import load
from editjudge.store import Store, migrations, schema
from editjudge.store import ratings as ratings_module
from editjudge.store.ratings import (
    add_ratings,
    contents_in,
    contents_of,
    ratings_of,
    read_ratings,
)
from editjudge.store.records import Item, RunRecord
from editjudge.store.studies import (
    FilledForm,
    create_study,
    fill_in,
    find_study,
    join,
    remove_answers,
)
from tests.faults import raises
from tests.running.made import until

from .samples import sample, task


def item(
    name: str, picture: str, instruction: str = "Paint it.", **more: str | None
) -> Item:
    images = {
        role: {"source": f"/{picture}/{role}", "digest": f"{role} of {picture}"}
        for role in ("input", "edited")
    }
    return Item(name, instruction=instruction, images=images, **more)  # type: ignore[arg-type]


def run_of(
    store: Store, name: str, *edits: Item, rubrics: tuple[str, ...] = ("fidelity",)
) -> RunRecord:
    asked = [load(word) for word in rubrics]
    run = store.open_run(
        name, {"rubrics": {rubric.name: rubric.hash for rubric in asked}, "name": name}
    )
    store.add_rubrics(asked)
    store.add_items(run, edits)
    return run


def rated(store: Store, run: RunRecord) -> list[tuple[str, str, str, float]]:
    return [row[:4] for row in ratings_of(store, run)]


def test_a_rating_belongs_to_every_run_that_has_the_very_edit_and_to_no_other(
    store: Store,
) -> None:
    cats = run_of(store, "cats", item("1", "cat"))
    dogs = run_of(store, "dogs", item("1", "dog"))
    again = run_of(store, "again", item("seven", "cat"))
    reworded = run_of(store, "reworded", item("1", "cat", "Paint it red."))
    add_ratings(store, [("1", "ann", "alignment", 6.0, contents_in(store, cats)["1"])])
    add_ratings(store, [("1", "ann", "alignment", 2.0, contents_in(store, dogs)["1"])])
    assert rated(store, cats) == [("1", "ann", "alignment", 6.0)]
    assert rated(store, dogs) == [("1", "ann", "alignment", 2.0)]
    assert rated(store, again) == [("seven", "ann", "alignment", 6.0)]
    assert rated(store, reworded) == []


def test_an_id_of_several_edits_must_be_told_apart(store: Store) -> None:
    run_of(store, "cats", item("1", "cat"), item("2", "cat 2"))
    run_of(store, "dogs", item("1", "dog"))
    with raises(UsageError, "several_edits_of_one_id", "'1'"):
        add_ratings(store, [("1", "ann", "alignment", 6.0)])
    add_ratings(store, [("2", "ann", "alignment", 6.0)])
    assert [row[:4] for row in read_ratings(store)] == [("2", "ann", "alignment", 6.0)]


def test_no_run_takes_over_what_was_rated_by_id_before(store: Store) -> None:
    add_ratings(store, [("1", "ann", "alignment", 6.0)])
    cats = run_of(store, "cats", item("1", "cat"))
    dogs = run_of(store, "dogs", item("1", "dog"))
    assert rated(store, cats) == rated(store, dogs) == []
    assert [row[:4] for row in read_ratings(store)] == [("1", "ann", "alignment", 6.0)]


def test_a_rating_of_a_missing_output_does_not_move_to_the_picture_made_later(
    store: Store,
) -> None:
    def output(digest: str | None) -> Item:
        return Item(
            "1",
            instruction="Paint it.",
            images={"edited": {"source": "/a/b.png", "digest": digest}},
        )

    run = run_of(store, "r", output(None))
    store.add_tasks(run, [task(1, item="1")])
    store.write([sample(1, "missing_output")])
    add_ratings(store, [("1", "ann", "alignment", 1.0)])
    store.add_items(run, [output("d")])
    assert rated(store, run) == []


def test_ratings_stay_with_an_edit_whose_pictures_are_read_at_last(
    store: Store,
) -> None:
    unread = Item(
        "1",
        instruction="Paint it.",
        images={"edited": {"source": "/a/b.png", "digest": None}},
    )
    run = run_of(store, "r", unread)
    add_ratings(store, [("1", "ann", "alignment", 6.0)])
    store.add_items(
        run,
        [
            Item(
                "1",
                instruction="Paint it.",
                images={"edited": {"source": "/a/b.png", "digest": "d"}},
            )
        ],
    )
    assert rated(store, run) == [("1", "ann", "alignment", 6.0)]


def test_what_was_asked_in_a_form_is_part_of_its_rating(
    store: Store, tmp_path: Path
) -> None:
    from editjudge.rubrics.files import dump, load_one

    path = tmp_path / "fidelity.yaml"
    path.write_text(
        dump(load("fidelity")).replace("definition:", "definition: Otherwise.", 1),
        "utf-8",
    )
    other = load_one(str(path))
    assert other.hash != load("fidelity").hash
    run = run_of(store, "r", item("1", "cat"))
    store.add_rubrics([other])
    for rubric, score in ((load("fidelity"), 6.0), (other, 1.0)):
        study = create_study(
            store, rubric.hash, run.id, [rubric.hash], overlap=1, quota=1, controls=0
        )
        (place,) = join(store, study, "ann")
        fill_in(
            store, study, "ann", place, "alignment", FilledForm(score, ""), rubric.hash
        )
    assert len(read_ratings(store)) == 2
    assert rated(store, run) == [("1", "ann", "alignment", 6.0)]


def test_a_form_changes_ratings_of_its_own_study_alone(store: Store) -> None:
    """Two links may bear one name for two people."""
    run = run_of(store, "r", item("1", "cat"))
    rubric = load("fidelity").hash
    first, second = (
        create_study(store, name, run.id, [rubric], overlap=2, quota=1, controls=0)
        for name in ("first", "second")
    )
    for study, score in ((first, 2.0), (second, 7.0), (second, None)):
        (place,) = join(store, study, "ann")
        fill_in(store, study, "ann", place, "alignment", FilledForm(score, ""), rubric)
        assert rated(store, run) == [("1", "ann", "alignment", 2.0)]
    (place,) = join(store, first, "ann")
    fill_in(store, first, "ann", place, "alignment", FilledForm(3.0, ""), rubric)
    assert rated(store, run) == [("1", "ann", "alignment", 3.0)]
    fill_in(store, first, "ann", place, "alignment", FilledForm(None, ""), rubric)
    assert rated(store, run) == []


def test_a_rater_can_be_deleted_from_one_study_or_from_all(store: Store) -> None:
    run = run_of(store, "r", item("1", "cat"), item("2", "dog"))
    for number, rater in ((1, "ann"), (2, "ann"), (3, "bob")):
        study = create_study(
            store,
            f"study {number}",
            run.id,
            [f"{number}"],
            overlap=1,
            quota=1,
            controls=0,
        )
        (place,) = join(store, study, rater)
        fill_in(
            store, study, rater, place, "alignment", FilledForm(4.0, ""), f"{number}"
        )
    assert remove_answers(store, "ann", find_study(store, 1)).ratings == 1
    assert {(row[1], row[5]) for row in read_ratings(store)} == {
        ("ann", "2"),
        ("bob", "3"),
    }
    assert remove_answers(store, "ann").ratings == 1
    assert [row[1] for row in read_ratings(store)] == ["bob"]


def test_an_answer_by_id_that_is_given_again_once_a_run_has_the_edit_is_one_rating(
    store: Store,
) -> None:
    add_ratings(
        store,
        [
            ("1", "ann", "alignment", 6.0),
            ("2", "ann", "alignment", 3.0),
            ("1", "bob", "alignment", 5.0),
        ],
    )
    run = run_of(store, "cats", item("1", "cat"))
    add_ratings(store, [("1", "ann", "alignment", 2.0)])
    stored = {(row.item, row.rater): row.score for row in read_ratings(store)}
    assert stored == {("1", "ann"): 2.0, ("1", "bob"): 5.0, ("2", "ann"): 3.0}
    assert len(read_ratings(store)) == 3
    assert rated(store, run) == [("1", "ann", "alignment", 2.0)]


def test_an_edit_that_a_run_brings_between_the_look_and_the_rating_is_the_one_that_is_rated(
    store: Store,
) -> None:
    contents = contents_of(store, ["1"])
    run_of(store, "cats", item("1", "cat"))
    add_ratings(store, [("1", "ann", "alignment", 6.0, contents["1"])])
    assert rated(store, store.find_run("cats")) == [("1", "ann", "alignment", 6.0)]
    assert len(read_ratings(store)) == 1


def test_two_who_rate_for_one_person_while_the_edits_are_planned_leave_one_rating(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has found no edit of the id when a run brings it; the second finds it."""
    forget = ratings_module._forget_unbound
    has_looked = threading.Event()
    go_on = threading.Event()

    def hesitate(
        connection: sa.Connection, rows: Iterable[ratings_module.StoredRating]
    ) -> None:
        forget(connection, rows)
        if threading.current_thread() is first:
            has_looked.set()
            go_on.wait()

    def rate(score: float) -> None:
        with Store.open(place) as mine:
            add_ratings(mine, [("1", "ann", "alignment", score)])

    Store.open(place).close()
    monkeypatch.setattr(ratings_module, "_forget_unbound", hesitate)
    first, second = (
        threading.Thread(target=rate, args=(score,)) for score in (6.0, 2.0)
    )
    first.start()
    has_looked.wait()
    with Store.open(place) as store:
        # in SQLite whoever plans waits for whoever rates
        if store._dialect == "postgresql":
            run_of(store, "cats", item("1", "cat"))
            second.start()
            until(lambda: not second.is_alive() or _somebody_waits(store))
            go_on.set()
            second.join()
        go_on.set()
        first.join()
        if store._dialect == "sqlite":
            run_of(store, "cats", item("1", "cat"))
            second.start()
            second.join()
        assert rated(store, store.find_run("cats")) == [("1", "ann", "alignment", 2.0)]
        assert [row[:4] for row in read_ratings(store)] == [
            ("1", "ann", "alignment", 2.0)
        ]


def _somebody_waits(store: Store) -> bool:
    with store._reading() as connection:
        return bool(
            connection.scalar(
                sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            )
        )


def test_ratings_move_with_their_edit_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def edit(digest: str | None) -> Item:
        return Item(
            "1",
            instruction="Paint it.",
            images={"edited": {"source": "/a/b.png", "digest": digest}},
        )

    def fail(*_: object) -> None:
        raise StoreError("not moved")

    run = run_of(store, "r", edit(None))
    add_ratings(store, [("1", "ann", "alignment", 6.0)])
    before = contents_in(store, run)
    with monkeypatch.context() as patch:
        patch.setattr("editjudge.store.store.lock_ratings", fail)
        with pytest.raises(StoreError, match="not moved"):
            store.add_items(run, [edit("d")])
    assert contents_in(store, run) == before
    assert rated(store, run) == [("1", "ann", "alignment", 6.0)]
    store.add_items(run, [edit("d")])
    assert contents_in(store, run) != before
    assert rated(store, run) == [("1", "ann", "alignment", 6.0)]


def test_a_form_that_is_filled_in_while_its_edit_is_not_in_the_run_has_one_answer(
    store: Store,
) -> None:
    run = run_of(store, "r", item("1", "cat"))
    rubric = load("fidelity").hash
    study = create_study(store, "s", run.id, [rubric], overlap=1, quota=1, controls=0)
    (place,) = join(store, study, "ann")
    store.drop_items(run, ["1"])
    fill_in(store, study, "ann", place, "alignment", FilledForm(6.0, ""), rubric)
    store.add_items(run, [item("1", "cat")])
    fill_in(store, study, "ann", place, "alignment", FilledForm(2.0, ""), rubric)
    assert [row[:4] for row in read_ratings(store)] == [("1", "ann", "alignment", 2.0)]
    fill_in(store, study, "ann", place, "alignment", FilledForm(None, ""), rubric)
    assert read_ratings(store) == []


def test_doubled_ratings_of_an_older_store_are_joined_where_it_is_sure_what_they_are_of(
    place: str,
) -> None:
    with Store.open(place) as store:
        run = run_of(
            store, "cats", item("1", "cat"), item("2", "cat 2"), item("3", "cat 3")
        )
        run_of(store, "dogs", item("2", "dog"))
        contents = contents_in(store, run)
        rows = [
            ("id:1", "1", "ann", 6.0, 10.0),
            (contents["1"], "1", "ann", 2.0, 20.0),
            ("id:1", "1", "bob", 6.0, 10.0),  # given once
            ("id:2", "2", "ann", 6.0, 10.0),  # perhaps of the dog
            (contents["2"], "2", "ann", 2.0, 20.0),
            (contents["3"], "3", "ann", 2.0, 10.0),
            ("id:3", "3", "ann", 6.0, 20.0),  # given when the run was gone
        ]
        names = ("content", "item", "rater", "score", "created")
        values = [
            dict(zip(names, row, strict=True)) | {"rubric": "", "factor": "alignment"}
            for row in rows
        ]
        store._transact(
            lambda connection: connection.execute(sa.insert(schema.ratings), values)
        )
        store._transact(migrations.STEPS[12])
        left = {(row.content, row.rater) for row in read_ratings(store)}
        assert left == {(row[0], row[2]) for row in rows[1:]}


def test_an_edit_that_another_run_has_not_read_yet_makes_its_id_no_other_edit(
    store: Store,
) -> None:
    read = Item(
        "1",
        instruction="Paint it.",
        images={"edited": {"source": "/a/b.png", "digest": "d"}},
    )
    unread = read._replace(images={"edited": {"source": "/a/b.png", "digest": None}})
    run_of(store, "first", read)
    second = run_of(store, "second", unread)
    add_ratings(store, [("1", "ann", "alignment", 5)])
    store.add_items(second, [read])
    add_ratings(store, [("1", "ann", "alignment", 6)])
    assert [row[:4] for row in read_ratings(store)] == [("1", "ann", "alignment", 6)]
