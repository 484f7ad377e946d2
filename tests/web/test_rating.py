"""Rating: blind, resumable, each answer kept at once, and `agree` has it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.exceptions import HTTPException

from editjudge.errors import UsageError
from editjudge.rubrics.files import load
from editjudge.rubrics.model import AnswerFormat, Factor, Rubric
from editjudge.rubrics.scale import Scale
from editjudge.store.ratings import StoredRating, read_ratings
from editjudge.store.studies import assignments_of, find_study, list_studies
from editjudge.web.questionnaire import (
    ESTIMATES,
    Questionnaire,
    _score,
    check_answerable,
)
from editjudge.web.values import legend
from tests import patient
from tests.faults import raises, shows
from tests.running.made import editjudge, edits, rows_of, write_manifest
from tests.web.served import Served, serving

FACTORS = ("unchanged_regions", "global_consistency", "identity_preservation")
FIGURE = re.compile(r"\d\.\d\d")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Twenty edits of two models, judged by recorded replies, and the server over their store."""
    rows = rows_of(edits(tmp_path, 20))
    rows[0]["instruction"] = "<script>alert(1)</script>"
    manifest = write_manifest(tmp_path, rows)
    (tmp_path / "replies.jsonl").write_text(
        json.dumps({"item": "e0", "rubric": "preservation", "reply": "{}"})
    )
    judge = f"replay:{tmp_path / 'replies.jsonl'}"
    words = (
        "--rubric",
        "preservation",
        "--judge",
        judge,
        "--name",
        "r",
        "--store",
        tmp_path / "s.db",
    )
    assert editjudge("run", manifest, *words, "--max-failures", "1").code == 0
    with serving(tmp_path / "s.db", judge="measured") as server:
        yield server
        while BROWSERS:
            BROWSERS.pop().close()


BROWSERS: list[httpx.Client] = []


class Person:
    """Somebody with a browser of their own."""

    def __init__(self, served: Served, name: str) -> None:
        self.client = patient.Client(
            base_url=served.url, timeout=60, follow_redirects=True
        )
        self.client.headers["accept"] = "text/html"
        BROWSERS.append(self.client)
        self.post("/rate/name", name=name)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def post(self, path: str, **fields: object) -> httpx.Response:
        return self.client.post(
            path, data={name: str(value) for name, value in fields.items()}
        )

    def answer(self, number: int, score: object, **reasons: str) -> httpx.Response:
        return self.post(
            f"/rate/1/{number}", **dict.fromkeys(FACTORS, score), **reasons
        )


def plan(served: Served, **more: object) -> None:
    setup = {
        "run": "1",
        "rubric": "preservation",
        "name": "pilot",
        "quota": 20,
        "overlap": 2,
        "controls": 0,
    } | more
    answer = Person(served, "chief").post("/rate/new", **setup)
    assert answer.status_code == 200 and "No rater has started" in answer.text, (
        answer.text
    )


def test_a_rater_gets_every_edit_once_in_an_order_of_their_own(served: Served) -> None:
    plan(served)
    orders = []
    for name in ("ann", "bob"):
        person = Person(served, name)
        person.get("/rate/1")
        pages = [person.get(f"/rate/1/{n}").text for n in range(1, 21)]
        orders.append(
            [re.findall(r"Paint car \d+ red|&lt;script&gt;", page)[0] for page in pages]
        )
        assert person.get("/rate/1/21").status_code == 404
    assert len(set(orders[0])) == 20
    assert set(orders[0]) == set(orders[1])
    assert orders[0] != orders[1]


def test_model_item_file_and_scores_are_hidden(served: Served) -> None:
    plan(served)
    person = Person(served, "ann")
    person.get("/rate/1")
    for number in range(1, 21):
        page = person.get(f"/rate/1/{number}").text
        assert not re.search(r"\bm[01]\b|\be\d+\b|edited-\d|replay", page)
        assert (
            person.get(f"/rate/1/{number}/images/edited").headers["content-type"]
            == "image/png"
        )


def test_the_form_is_the_rubric_s_own(served: Served) -> None:
    plan(served)
    person = Person(served, "ann")
    page = person.get("/rate/1").text
    for factor in load("preservation").factors:
        assert re.findall(rf'name="{factor.key}" value="(-?\d*)"', page) == [
            *map(str, factor.scale.values),
            "",
        ]
        assert factor.title in page
        assert all(
            words.replace("'", "&#39;") in page
            for words in factor.scale.labels.values()
        )


def test_an_answer_is_kept_at_once_and_can_be_changed(served: Served) -> None:
    plan(served)
    person = Person(served, "ann")
    person.get("/rate/1")
    kept = person.client.post(
        "/rate/1/1",
        data={"unchanged_regions": "5"},
        headers={"accept": "application/json"},
    )
    assert kept.status_code == 204
    assert [
        (row.rater, row.factor, row.score) for row in read_ratings(served.store)
    ] == [("ann", "unchanged_regions", 5.0)]
    person.answer(1, 3)
    assert {row.score for row in read_ratings(served.store)} == {3.0}


def test_cannot_tell_is_an_answer_and_no_rating(served: Served) -> None:
    plan(served)
    person = Person(served, "ann")
    person.get("/rate/1")
    person.answer(1, 4)
    person.answer(1, "", **{"unchanged_regions.reason": "too dark <b>"})
    assert read_ratings(served.store) == []
    page = person.get("/rate/1/1").text
    assert "too dark &lt;b&gt;" in page
    assert str(person.get("/rate/1").url).endswith("/rate/1/2")


def test_a_rater_goes_on_where_they_stopped_from_another_browser(
    served: Served,
) -> None:
    plan(served)
    first = Person(served, "ann")
    first.get("/rate/1")
    for number in (1, 2, 3):
        first.answer(number, 6)
    assert str(Person(served, "ann").get("/rate/1").url).endswith("/rate/1/4")


def test_a_rubric_that_shows_what_no_edit_has_is_refused(served: Served) -> None:
    setup = {
        "run": "1",
        "rubric": "offline",
        "quota": "5",
        "overlap": "2",
        "controls": "0",
    }
    answer = Person(served, "chief").post("/rate/new", **setup)
    assert answer.status_code == 400
    assert shows(answer.text, "offline", "ground truth", "run r")
    assert list_studies(served.store) == []


def test_only_edits_with_all_that_the_rubric_shows_are_given_out(
    served: Served,
) -> None:
    """One has no ground truth, however its name reads; one no edited picture; one no words; the rest are whole."""
    run = served.store.find_run("r")
    stored = list(served.store.items(run))
    for number, item in enumerate(stored):
        images = dict(item.images) | {"ground_truth": item.images["input"]}
        if number == 3:
            images |= {"input": {"source": '/x/"ground_truth":{}.png', "digest": None}}
        if number < 4:
            del images["ground_truth" if number == 3 else "edited"]
        arguments = " \n" if number == 4 else item.instruction
        stored[number] = item._replace(images=images, instruction=arguments)
    served.store.append(run, stored)
    plan(served, rubric="offline", quota=18, overlap=1)
    Person(served, "ann").get("/rate/1")
    assert (
        "18 for each rater, 1 rater"
        in Person(served, "chief").get("/rate/1/progress").text
    )
    mine = assignments_of(served.store, find_study(served.store, 1), "ann")
    assert sorted(place.item for place in mine) == sorted(
        item.item for item in stored[5:]
    )


def test_a_label_that_points_to_an_anchor_says_what_the_anchor_says() -> None:
    """And loses nothing: what no label says is told below."""
    factor = load("reference").factor("unchanged_regions")
    labels, rest = legend(factor)
    (anchor,) = [anchor for anchor in factor.anchors if anchor.scores == (1,)]
    assert shows(labels[1], "Strongly disagree: ", *anchor.when)
    assert shows(labels[2], "Disagree: near 1, ")
    assert rest == []
    for other in (load("preservation").factors[0], load("compliance").factors[0]):
        assert legend(other) == (other.scale.labels, list(other.anchors))


@pytest.mark.parametrize("score", ["8", "0", "5.5", "five", "-1", "٥"])
def test_a_score_off_the_scale_is_refused_and_nothing_of_the_form_is_kept(
    served: Served, score: str
) -> None:
    plan(served)
    person = Person(served, "ann")
    person.get("/rate/1")
    fields = dict(zip(FACTORS, ("5", "5", score), strict=True))
    assert person.post("/rate/1/1", **fields).status_code == 422
    assert read_ratings(served.store) == []


def test_people_rate_decimals_by_their_steps_and_are_not_asked_for_what_has_too_many() -> (
    None
):
    halves = Factor("harm", Scale(range=(0, 1), step=0.5))
    assert [_score(halves, text) for text in ("0", "0.5", "1", "")] == [
        0.0,
        0.5,
        1.0,
        None,
    ]
    with pytest.raises(HTTPException, match=r"0\.25"):
        _score(halves, "0.25")
    check_answerable(Rubric("r", ("edited",), (halves,), AnswerFormat()))
    for scale in (
        Scale(range=(0, 1)),
        Scale(range=(0, 100), step=1),
        Scale(choices=("a", "b")),
    ):
        with raises(UsageError, "too_many_scores", "21"):
            check_answerable(
                Rubric("r", ("edited",), (Factor("harm", scale),), AnswerFormat())
            )


def test_raters_overlap_as_planned_and_nobody_gets_more(served: Served) -> None:
    plan(served, quota=8, overlap=2)
    people = ("ann", "bob", "cid", "dee", "eve", "fay")
    for name in people:
        Person(served, name).get("/rate/1")
    study = find_study(served.store, 1)
    values = [
        place.item
        for name in people
        for place in assignments_of(served.store, study, name)
    ]
    assert len(values) == 40
    assert {values.count(item) for item in values} == {2}
    late = Person(served, "gus").get("/rate/1")
    assert "Nothing is left" in late.text


def test_two_people_see_their_agreement_and_agree_uses_their_ratings(
    served: Served, tmp_path: Path
) -> None:
    plan(served)
    for name, shift in (("ann", 0), ("bob", 1)):
        person = Person(served, name)
        person.get("/rate/1")
        for number in range(1, 21):
            car = re.findall(r"Paint car (\d+)", person.get(f"/rate/1/{number}").text)
            person.answer(number, min(7, 1 + int(car[0] if car else 0) % 6 + shift))
        assert "Thank you" in person.get("/rate/1").text
    page = Person(served, "chief").get("/rate/1/progress").text
    assert len(re.findall(r'<td class="num">20</td><td class="num">20</td>', page)) == 2
    assert FIGURE.search(page) is None, "20 edits, but of 5 source images"
    assert shows(page, "5 more images")
    agreed = editjudge(
        "ratings", "export", tmp_path / "ratings.csv", "--store", tmp_path / "s.db"
    )
    assert agreed.code == 0, agreed.err
    exported = (tmp_path / "ratings.csv").read_text().splitlines()
    assert (exported[0], len(exported)) == ("item,rater,factor,score", 121)
    printed = Person(served, "chief").get("/ratings.csv")
    assert printed.text.split() == (tmp_path / "ratings.csv").read_text().split()


def test_one_shared_edit_is_counted_and_gives_no_figure(served: Served) -> None:
    plan(served)
    for name in ("ann", "bob"):
        person = Person(served, name)
        person.get("/rate/1")
        mine = assignments_of(served.store, find_study(served.store, 1), name)
        person.answer(next(place.number for place in mine if place.item == "e0"), 6)
    page = Person(served, "chief").get("/rate/1/progress").text
    assert '<td class="num">2</td><td class="num">1</td>' in page, (
        "two ratings, one edit"
    )
    assert shows(page, "9 more edits")
    assert FIGURE.search(page) is None


def test_from_enough_shared_edits_on_every_figure_has_its_interval() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(4, 1.5, 40)
    rated = [
        StoredRating(
            f"e{n}",
            rater,
            "unchanged_regions",
            float(np.clip(round(truth[n] + rng.normal(0, 0.7)), 1, 7)),
        )
        for n in range(40)
        for rater in ("ann", "bob")
    ]
    (factor,) = Questionnaire((load("preservation"),)).agreement(rated, {})
    assert (
        factor.ceiling.shared,
        factor.missing_edits,
        factor.missing_images,
        factor.silence,
    ) == (40, 0, 0, "")
    for name in ESTIMATES:
        value, ci = factor.estimate(name)
        assert value is not None and ci is not None and ci.lo < value < ci.hi
    (clustered,) = Questionnaire((load("preservation"),)).agreement(
        rated, {f"e{n}": f"image {n % 4}" for n in range(40)}
    )
    assert (clustered.missing_edits, clustered.missing_images) == (0, 6)


def test_controls_have_known_answers_and_never_become_ratings(served: Served) -> None:
    plan(served, controls=3)
    for name, score in (("careful", None), ("careless", 1)):
        person = Person(served, name)
        person.get("/rate/1")
        mine = assignments_of(served.store, find_study(served.store, 1), name)
        controls = [place for place in mine if place.control]
        assert len(controls) == 3
        assert mine[0] not in controls
        for place in controls:
            assert (
                person.get(f"/rate/1/{place.number}/images/edited").status_code == 200
            )
            assert place.item not in person.get(f"/rate/1/{place.number}").text
            person.answer(place.number, score or 7)
    page = Person(served, "chief").get("/rate/1/progress").text
    right = dict(
        re.findall(r'class="said">(\w+)</th>.*?>(\d+) of \d+<', page, re.DOTALL)
    )
    assert int(right["careful"]) > int(right["careless"]) == 0
    assert read_ratings(served.store) == []


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"run": "99"}, "no run"),
        ({"rubric": "nonsense"}, "nonsense"),
        ({"quota": "0"}, "quota"),
        ({"overlap": "x"}, "overlap"),
        ({"controls": "99"}, "controls"),
    ],
)
def test_a_study_that_cannot_be_set_up_says_why(
    served: Served, fields: dict[str, str], complaint: str
) -> None:
    setup = {
        "run": "1",
        "rubric": "preservation",
        "quota": "5",
        "overlap": "2",
        "controls": "0",
    } | fields
    answer = Person(served, "chief").post("/rate/new", **setup)
    assert answer.status_code == 400
    assert complaint in answer.text


def test_without_the_extra_controls_are_refused_at_set_up_and_none_are_proposed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "skimage", None)
    chief = Person(served, "chief")
    form = chief.get("/rate/new").text
    assert 'name="controls" type="number" min="0" max="14" value="0"' in form
    assert "editjudge[probes]" in form
    refused = chief.post(
        "/rate/new",
        run="1",
        rubric="preservation",
        quota="5",
        overlap="2",
        controls="2",
    )
    assert refused.status_code == 400
    assert "editjudge[probes]" in refused.text
    assert list_studies(served.store) == []
    plan(served, controls=0)
    assert Person(served, "ann").get("/rate/1").status_code == 200


def test_another_site_cannot_rate_for_somebody(served: Served) -> None:
    plan(served)
    person = Person(served, "ann")
    person.get("/rate/1")
    person.client.headers["origin"] = "https://evil.example"
    assert person.answer(1, 7).status_code == 403
    assert read_ratings(served.store) == []
