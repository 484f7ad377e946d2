"""Ratings belong to what was rated: the same input, output and instruction, and where it was a form, what it asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from editjudge.errors import UsageError
from editjudge.rubrics.files import load
from editjudge.store import Store
from editjudge.store.invitations import remove_answers
from editjudge.store.ratings import add_ratings, contents_in, ratings_of, read_ratings, read_scoped
from editjudge.store.records import Item, RunRecord
from editjudge.store.studies import FilledForm, create_study, fill_in, find_study, join

from .samples import sample, task


def item(name: str, picture: str, instruction: str = "Paint it.", **more: str | None) -> Item:
    images = {role: {"source": f"/{picture}/{role}", "digest": f"{role} of {picture}"} for role in ("input", "edited")}
    return Item(name, instruction=instruction, images=images, **more)  # type: ignore[arg-type]


def run_of(store: Store, name: str, *edits: Item, rubrics: tuple[str, ...] = ("fidelity",)) -> RunRecord:
    asked = [load(word) for word in rubrics]
    run = store.open_run(name, {"rubrics": {rubric.name: rubric.hash for rubric in asked}, "name": name})
    store.add_rubrics(asked)
    store.add_items(run, edits)
    return run


def rated(store: Store, run: RunRecord) -> list[tuple[str, str, str, float]]:
    return ratings_of(store, run, contents_in(store.items(run)))


def test_a_rating_belongs_to_every_run_that_has_the_very_edit_and_to_no_other(store: Store) -> None:
    cats = run_of(store, "cats", item("1", "cat"))
    dogs = run_of(store, "dogs", item("1", "dog"))
    again = run_of(store, "again", item("seven", "cat"))
    reworded = run_of(store, "reworded", item("1", "cat", "Paint it red."))
    add_ratings(store, [("1", "ann", "alignment", 6.0)], contents_in(store.items(cats)))
    add_ratings(store, [("1", "ann", "alignment", 2.0)], contents_in(store.items(dogs)))
    assert rated(store, cats) == [("1", "ann", "alignment", 6.0)]
    assert rated(store, dogs) == [("1", "ann", "alignment", 2.0)]
    assert rated(store, again) == [("seven", "ann", "alignment", 6.0)]
    assert rated(store, reworded) == []


def test_an_id_of_several_edits_must_be_told_apart(store: Store) -> None:
    run_of(store, "cats", item("1", "cat"), item("2", "cat 2"))
    run_of(store, "dogs", item("1", "dog"))
    with pytest.raises(
        UsageError, match="1 of the ids are of several different edits, such as '1': say what was rated"
    ):
        add_ratings(store, [("1", "ann", "alignment", 6.0)])
    add_ratings(store, [("2", "ann", "alignment", 6.0)])
    assert read_ratings(store) == [("2", "ann", "alignment", 6.0)]


def test_no_run_takes_over_what_was_rated_by_id_before(store: Store) -> None:
    add_ratings(store, [("1", "ann", "alignment", 6.0)])
    cats, dogs = run_of(store, "cats", item("1", "cat")), run_of(store, "dogs", item("1", "dog"))
    assert rated(store, cats) == rated(store, dogs) == []
    assert read_ratings(store) == [("1", "ann", "alignment", 6.0)]


def test_a_rating_of_a_missing_output_does_not_move_to_the_picture_made_later(store: Store) -> None:
    def output(digest: str | None) -> Item:
        return Item("1", instruction="Paint it.", images={"edited": {"source": "/a/b.png", "digest": digest}})

    run = run_of(store, "r", output(None))
    store.add_tasks(run, [task(1, item="1")])
    store.write([sample(1, "missing_output")])
    add_ratings(store, [("1", "ann", "alignment", 1.0)])
    store.add_items(run, [output("d")])
    assert rated(store, run) == []


def test_ratings_stay_with_an_edit_whose_pictures_are_read_at_last(store: Store) -> None:
    unread = Item("1", instruction="Paint it.", images={"edited": {"source": "/a/b.png", "digest": None}})
    run = run_of(store, "r", unread)
    add_ratings(store, [("1", "ann", "alignment", 6.0)])
    store.add_items(run, [Item("1", instruction="Paint it.", images={"edited": {"source": "/a/b.png", "digest": "d"}})])
    assert rated(store, run) == [("1", "ann", "alignment", 6.0)]


def test_what_was_asked_in_a_form_is_part_of_its_rating(store: Store, tmp_path: Path) -> None:
    from editjudge.rubrics.files import dump, load_one

    path = tmp_path / "fidelity.yaml"
    path.write_text(dump(load("fidelity")).replace("definition:", "definition: Otherwise.", 1), "utf-8")
    other = load_one(str(path))
    assert other.hash != load("fidelity").hash
    run = run_of(store, "r", item("1", "cat"))
    store.add_rubrics([other])
    for rubric, score in ((load("fidelity"), 6.0), (other, 1.0)):
        study = create_study(store, rubric.hash, run.id, [rubric.hash], overlap=1, quota=1, controls=0)
        (place,) = join(store, study, "ann")
        fill_in(store, study, "ann", place, "alignment", FilledForm(score, ""), rubric.hash)
    assert len(read_scoped(store)) == 2
    assert rated(store, run) == [("1", "ann", "alignment", 6.0)]


def test_a_form_changes_ratings_of_its_own_study_alone(store: Store) -> None:
    """Two links may bear one name for two people."""
    run, rubric = run_of(store, "r", item("1", "cat")), load("fidelity").hash
    first, second = (
        create_study(store, name, run.id, [rubric], overlap=2, quota=1, controls=0) for name in ("first", "second")
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
        study = create_study(store, f"study {number}", run.id, [f"{number}"], overlap=1, quota=1, controls=0)
        (place,) = join(store, study, rater)
        fill_in(store, study, rater, place, "alignment", FilledForm(4.0, ""), f"{number}")
    assert remove_answers(store, "ann", find_study(store, 1)).ratings == 1
    assert {(row[1], row[5]) for row in read_scoped(store)} == {("ann", "2"), ("bob", "3")}
    assert remove_answers(store, "ann").ratings == 1
    assert [row[1] for row in read_scoped(store)] == ["bob"]
