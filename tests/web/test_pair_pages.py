"""Pairs in the browser: a leaderboard, a pair's page, and people who say which of two is better."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from editjudge.vision.probes.making import better_output
from editjudge.web.questionnaire import all_controls
from tests import patient
from tests.cli.test_pairs import made, manifest
from tests.running.made import editjudge
from tests.running.test_pair_runs import FACTORS, line
from tests.web.served import Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving_pairs(tmp_path) as server:
        yield server


@contextmanager
def serving_pairs(tmp_path: Path) -> Iterator[Served]:
    """Twelve pairs of three models: ann beats bob beats cat, but for one pair that flips and one that failed."""
    manifest(tmp_path)
    rows = made(tmp_path)
    lines = []
    for n, row in enumerate(rows):
        best = "a" if row["model_a"] < row["model_b"] else "b"
        for order in ("ab", "ba"):
            shown = best if order == "ab" else {"a": "b", "b": "a"}[best]
            if n != 1 or order == "ab":
                lines.append(line(row["id"], order, "a" if n == 0 else shown))
    (tmp_path / "replies.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in lines)
    )
    words = (
        "--rubric",
        "preference",
        "--judge",
        f"replay:{tmp_path}/replies.jsonl",
        "--name",
        "p",
    )
    run = editjudge(
        "run",
        tmp_path / "pairs.jsonl",
        *words,
        "--store",
        tmp_path / "s.db",
        "--max-failures",
        "1",
    )
    assert run.code == 0, run.err
    with serving(tmp_path / "s.db", judge="measured") as server:
        server.client.headers["accept"] = "text/html"
        server.client.follow_redirects = True
        yield server


@contextmanager
def study(
    served: Served, rater: str, *, controls: int = 0, rubric: str = "preference"
) -> Iterator[httpx.Client]:
    setup = {
        "run": "1",
        "rubric": rubric,
        "name": "people",
        "quota": 12,
        "overlap": 2,
        "controls": controls,
    }
    if not served.client.get(f"{served.url}/rate/1/progress").is_success:
        answer = served.client.post(
            f"{served.url}/rate/new", data={k: str(v) for k, v in setup.items()}
        )
        assert answer.status_code == 200, answer.text
    with patient.Client(
        base_url=served.url,
        timeout=60,
        follow_redirects=True,
        headers={"accept": "text/html"},
    ) as person:
        person.post("/rate/name", data={"name": rater})
        person.get("/rate/1")
        yield person


def picture(person: httpx.Client, number: int, role: str) -> bytes:
    return person.get(f"/rate/1/{number}/images/{role}").content


def stored(served: Served) -> dict[tuple[str, str, str], tuple[str | None, float]]:
    from editjudge.store.schema import ratings

    columns = (
        ratings.c.item,
        ratings.c.rater,
        ratings.c.factor,
        ratings.c.choice,
        ratings.c.score,
    )
    return {
        (i, r, f): (c, s)
        for i, r, f, c, s in served.store.stream(
            ratings.select().with_only_columns(*columns)
        )
    }


def test_left_and_right_are_by_chance_and_answers_in_the_items_own_naming(
    served: Served, tmp_path: Path
) -> None:
    from editjudge.store.studies import assignments_of, find_study

    with study(served, "ann") as ann:
        lefts = []
        for place in assignments_of(served.store, find_study(served.store, 1), "ann"):
            ann.post(f"/rate/1/{place.number}", data=dict.fromkeys(FACTORS, "a"))
            a, b = place.item.split("|")
            left, right = (
                picture(ann, place.number, role) for role in ("edited_a", "edited_b")
            )
            assert left != right
            kept = stored(served)[place.item, "ann", "overall"]
            turned = kept == ("b", 0.0)
            assert turned or kept == ("a", 1.0)
            # The picture on the left is that of the output whose name was kept.
            from editjudge.web.images import blind

            assert (
                left
                == blind((tmp_path / f"out-{b if turned else a}.png").read_bytes())[0]
            )
            lefts.append(turned)
            again = ann.get(f"/rate/1/{place.number}").text
            assert len(re.findall(r'value="a" data-key="1" checked', again)) == 4
        assert {*lefts} == {True, False}


def test_both_bad_is_kept_as_such_and_counts_as_a_tie(
    served: Served, tmp_path: Path
) -> None:
    for name in ("ann", "bob"):
        with study(served, name) as person:
            for number in range(1, 13):
                choices = dict.fromkeys(
                    FACTORS, "both_bad" if number % 2 else "tie"
                ) | {"quality": ""}
                assert person.post(f"/rate/1/{number}", data=choices).is_success
    kept = stored(served)
    assert {choice for choice, _ in kept.values()} == {"both_bad", "tie"} and len(
        kept
    ) == 72
    assert all(score == 0.5 for _, score in kept.values())
    table = served.client.get(f"{served.url}/ratings.csv").text.splitlines()
    assert (
        table[0] == "item,rater,factor,score,choice"
        and sum(line.endswith(",0.5,both_bad") for line in table) == 36
    )
    file = tmp_path / "ratings.csv"
    assert editjudge("ratings", "export", file, "--store", tmp_path / "s.db").code == 0
    assert sorted(file.read_text().splitlines()) == sorted(table)
    agreed = editjudge("agree", "p", "--store", tmp_path / "s.db", "--json").json
    overall = agreed["factors"]["overall"][f"replay:{tmp_path}/replies.jsonl"]
    # Eleven pairs have a verdict, one of them a flip: a tie, as all people say.
    assert (overall["n"], overall["answered"], overall["human_ties"]) == (24, 22, 24)
    assert overall["accuracy"] == pytest.approx(2 / 22) and overall["flips"][
        "share"
    ] == pytest.approx(1 / 11)
    assert agreed["humans"]["raters"] == 2 and agreed["humans"]["agreement"] == 1
    assert "quality" not in agreed["factors"]


def test_an_answer_that_was_not_offered_is_refused(served: Served) -> None:
    with study(served, "ann") as ann:
        assert ann.post("/rate/1/1", data={"overall": "left"}).status_code == 422
    assert stored(served) == {}


def test_a_study_without_ties_offers_none_and_accepts_none(served: Served) -> None:
    with study(served, "ann", rubric="preference_forced") as person:
        page = person.get("/rate/1/1").text
        assert 'value="a"' in page and 'value="b"' in page
        assert 'value="tie"' not in page and 'value="both_bad"' not in page
        assert person.post("/rate/1/1", data={"overall": "tie"}).status_code == 422
        assert person.post("/rate/1/1", data={"overall": "a"}).status_code == 200


def test_a_rater_learns_no_name(served: Served) -> None:
    with study(served, "zoe") as zoe:
        text = zoe.get("/rate/1/1").text
    assert "Left is better" in text and "Both bad" in text
    assert not re.search(r"\b(ann|bob|cat)\b|out-(?!of-sight)|pairs\.jsonl", text)


def test_controls_of_pairs_have_one_better_output(served: Served) -> None:
    controls = all_controls(pairs=True)
    assert controls and all(made.expected for made in controls.values())
    assert {
        winner for made in controls.values() for winner in made.expected.values()
    } == {"a"}
    with study(served, "ann", controls=2) as ann:
        from editjudge.store.studies import assignments_of, find_study

        given = [
            place
            for place in assignments_of(
                served.store, find_study(served.store, 1), "ann"
            )
            if place.control
        ]
        assert len(given) == 2 and all(
            picture(ann, place.number, "edited_a") for place in given
        )
        for place in given:
            ann.post(f"/rate/1/{place.number}", data=dict.fromkeys(FACTORS, "tie"))
        assert re.search(r'class="bad">0 of \d', ann.get("/rate/1/progress").text)
    assert stored(served) == {} and better_output({}, {}, "x") == ""


def test_the_leaderboard_ranks_models_and_says_what_flips(served: Served) -> None:
    text = served.client.get(f"{served.url}/runs/1/leaderboard").text
    names = re.findall(
        r'<th scope="row" class="said">(\w+)</th>\s*<td class="strength">', text
    )
    assert names == ["ann", "bob", "cat"]
    assert "11 of 12" in text and "1 flipped" in text
    assert served.client.get(f"{served.url}/runs/2/leaderboard").status_code == 404


def test_a_run_of_scores_has_no_leaderboard_of_pairs(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "none.jsonl").write_text("")
    words = (
        "--rubric",
        "quality",
        "--judge",
        f"replay:{tmp_path}/none.jsonl",
        "--store",
        tmp_path / "s.db",
    )
    editjudge(
        "run", tmp_path / "edits.jsonl", *words, "--name", "q", "--max-failures", "1"
    )
    answer = served.client.get(f"{served.url}/runs/2/leaderboard")
    assert answer.status_code == 404 and "asks for scores" in answer.text


def test_a_pairs_page_shows_both_outputs_the_verdict_and_each_order(
    served: Served,
) -> None:
    items = [item.item for item in served.store.items(1)]
    table = served.client.get(f"{served.url}/runs/1").text
    assert "Input, A, B" in table and "flipped" in table and "no verdict" in table
    text = served.client.get(f"{served.url}/runs/1/edits/{items[0]}").text
    assert (
        "flipped with the order" in text
        and "replies.jsonl, A first" in text
        and "replies.jsonl, B first" in text
    )
    assert (
        "Output A, " in text
        and "Output B, " in text
        and "produced no image" not in text
    )
    assert "B as its A" in text


def test_pairs_are_filtered_by_model_winner_and_flips(served: Served) -> None:
    items = {item.item: item.metadata for item in served.store.items(1)}

    def listed(query: str) -> set[str]:
        text = served.client.get(f"{served.url}/runs/1/export.jsonl?{query}").text
        return {json.loads(row)["item"] for row in text.splitlines()}

    of_cat = {
        n for n, row in items.items() if "cat" in (row["model_a"], row["model_b"])
    }
    assert listed("model=cat") == of_cat and 0 < len(of_cat) < len(items)
    flipped, failed = list(items)[:2]
    assert listed("flipped=1") == {flipped}
    of_ann = {
        n for n, row in items.items() if "ann" in (row["model_a"], row["model_b"])
    }
    assert listed("winner=ann") == of_ann - {flipped, failed}
    assert listed("winner=cat") == set()


def test_the_first_page_counts_pairs_and_the_report_begins_with_the_verdict(
    served: Served,
) -> None:
    text = served.client.get(f"{served.url}/").text
    assert "12 pairs ·" in text and "12 edits" not in text
    assert "24 judgements" in text and "23 ok" in text and "1 unreachable" in text
    verdict = "overall: ann ranks first"
    assert verdict in text
    report = served.client.get(f"{served.url}/runs/1/report").text
    assert 0 < report.index(verdict) < report.index("24 judgements")
