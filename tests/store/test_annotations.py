"""Tags and notes: bounded, exported, and there again after an import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editjudge.errors import ManifestError, UsageError
from editjudge.store import Store
from editjudge.store.export import export_run
from editjudge.store.import_run import check_run, import_run
from editjudge.store.listing import EditList, ListFilter, columns_of
from editjudge.store.ratings import (
    NOTE,
    TAG,
    TAGS,
    Annotation,
    annotate,
    annotations_of,
    tag_edits,
)
from editjudge.store.records import Item, RunRecord
from editjudge.store.studies import close_study, create_study, find_study, join
from editjudge.web.listing import Browser, Query
from tests.faults import raises


def item(name: str, picture: str) -> Item:
    images = {
        role: {"source": f"/{picture}/{role}", "digest": f"{role} of {picture}"}
        for role in ("input", "edited")
    }
    return Item(name, instruction="Paint it.", images=images)


@pytest.fixture
def run(store: Store) -> RunRecord:
    run = store.open_run("pilot", {"judges": []})
    store.add_items(run, [item("1", "cat"), item("2", "dog"), item("3", "cow")])
    return run


def test_tags_and_a_note_belong_to_every_run_that_has_the_very_edit(
    store: Store, run: RunRecord
) -> None:
    again = store.open_run("again", {"judges": [], "n": 2})
    store.add_items(again, [item("seven", "cat"), item("1", "dog")])
    assert annotate(
        store,
        item("1", "cat"),
        [" wrong  hue ", "seam", "seam", ""],
        "Look at\r\nthe rim. ",
    ) == Annotation(("wrong hue", "seam"), "Look at\nthe rim.")
    assert annotations_of(store, run) == {
        "1": Annotation(("wrong hue", "seam"), "Look at\nthe rim.")
    }
    assert list(annotations_of(store, again)) == ["seven"]
    assert annotations_of(store, run, ["2"]) == {}
    assert Browser(store).page(run, Query()).listing.tags == {"seam": 1, "wrong hue": 1}


def test_many_edits_are_tagged_at_once_and_their_notes_stay(
    store: Store, run: RunRecord
) -> None:
    edits = list(store.items(run))
    annotate(store, edits[0], ["seam"], "Look.")
    annotate(store, edits[1], [f"tag {n}" for n in range(TAGS)], "")
    with pytest.raises(UsageError):
        tag_edits(store, run, edits, "odd", remove=False)
    assert annotations_of(store, run)["1"].tags == ("seam",)
    annotate(store, edits[1], ["odd"], "")
    assert tag_edits(store, run, edits, " odd ", remove=False) == 2
    assert annotations_of(store, run) == {
        "1": Annotation(("seam", "odd"), "Look."),
        "2": Annotation(("odd",)),
        "3": Annotation(("odd",)),
    }
    assert tag_edits(store, run, edits, "odd", remove=True) == 3
    assert annotations_of(store, run) == {"1": Annotation(("seam",), "Look.")}
    with pytest.raises(UsageError):
        tag_edits(store, run, edits, " , ", remove=False)


def test_a_tag_is_found_whole_and_whatever_characters_it_has(
    store: Store, run: RunRecord
) -> None:
    annotate(store, item("1", "cat"), ['100 % "sure"', "seam\0"], "")
    annotate(store, item("2", "dog"), ["seamless", "日本"], "")
    columns = columns_of(store, run)
    tags = ("seam", "seamless", "日本", '100 % "sure"', "sure")
    lists = [EditList(store, run, ListFilter(tag=tag), columns) for tag in tags]
    # A NUL in a tag is a space.
    assert [listed.positions() for listed in lists] == [[0], [1], [1], [0], []]


def test_an_annotation_that_is_emptied_is_gone(store: Store, run: RunRecord) -> None:
    annotate(store, item("1", "cat"), ["seam"], "rim")
    annotate(store, item("1", "cat"), [], "  ")
    assert annotations_of(store, run) == {}


def test_tags_and_notes_are_bounded(store: Store, run: RunRecord) -> None:
    for tags, note in (
        (["x" * (TAG + 1)], ""),
        ([str(n) for n in range(13)], ""),
        ([], "x" * (NOTE + 1)),
    ):
        with pytest.raises(UsageError):
            annotate(store, item("1", "cat"), tags, note)
    assert annotations_of(store, run) == {}


def test_items_of_an_export_carry_them_and_an_import_brings_them_back(
    store: Store, run: RunRecord, tmp_path: Path
) -> None:
    annotate(store, item("2", "dog"), ["seam"], "=1+1 \ud83d")
    export_run(store, run, tmp_path / "out")
    lines = [
        json.loads(line)
        for line in (tmp_path / "out" / "items.jsonl").read_text().splitlines()
    ]
    assert [(line.get("tags"), line.get("note")) for line in lines] == [
        (None, None), (["seam"], "=1+1 \ud83d"), (None, None),
    ]  # fmt: skip
    with Store.open(tmp_path / "other.db") as other:
        back, _ = import_run(
            other, check_run(tmp_path / "out", other), tmp_path / "out"
        )
        assert annotations_of(other, back) == {
            "2": Annotation(("seam",), "=1+1 \ud83d")
        }
    path = tmp_path / "out" / "items.jsonl"
    path.write_text(path.read_text().replace('"seam"', '"a,b"'))
    with raises(ManifestError, "bad_row", "tags"):
        check_run(tmp_path / "out")


def test_a_study_of_some_positions_gives_out_no_other_edit_and_can_be_closed(
    store: Store, run: RunRecord
) -> None:
    study = create_study(
        store,
        "",
        run.id,
        [],
        overlap=2,
        quota=10,
        controls=0,
        models=["m"],
        query="?model=m",
    )
    assert (study.models, study.query, study.closed) == (["m"], "?model=m", None)
    assert {place.item for place in join(store, study, "ann", positions=[0, 2])} == {
        "1",
        "3",
    }
    assert {
        place.item
        for place in join(store, find_study(store, study.id), "bob", positions=[])
    } == {"1", "3"}
    close_study(store, study, closed=True)
    assert find_study(store, study.id).closed is not None
    close_study(store, study, closed=False)
    assert find_study(store, study.id).closed is None


def test_what_was_noted_of_an_edit_before_it_was_read_stays_with_it(
    store: Store, run: RunRecord
) -> None:
    read = item("4", "hen")
    unread = read._replace(
        images={role: {**entry, "digest": None} for role, entry in read.images.items()}
    )
    store.add_items(run, [unread], 3)
    annotate(store, unread, ["odd"], "Look again.")
    store.add_items(run, [read], 3)
    assert annotations_of(store, run)["4"] == Annotation(("odd",), "Look again.")
