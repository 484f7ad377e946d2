"""A run that was stopped, or resumed with another manifest: what is not judged is pending and counted, and what the
manifest has no more is not in any figure."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editjudge.matching import Content
from editjudge.running.engine import RunControl
from editjudge.running.job import Job, RunOptions, execute
from editjudge.store.scores import run_set_scores
from editjudge.store.store import Store

from .made import (
    SPECS,
    editjudge,
    edits,
    picture,
    rows_of,
    run,
    start,
    stub,
    until,
    write_manifest,
)
from .test_rubric_sets import server

JUDGE = SPECS["openai"]


def rubric(name: str, *lines: str) -> str:
    """A rubric of a set that asks for one score, of the same name."""
    fixed = f"images: [edited], scale: {{range: [0, 10]}}, factors: [{{key: {name}, definition: It.}}]"
    more = "".join(f", {line}" for line in lines)
    return f"  - {{name: {name}, {fixed}, answer: {{form: scores}}{more}}}\n"


def write_set(folder: Path, score: str, *rubrics: str) -> Path:
    path = folder / "ours.yaml"
    path.write_text(
        f"name: ours\nrubrics:\n{''.join(rubrics)}score:\n  total: {score}\n"
    )
    return path


def says(**scores: float) -> Any:
    """Answers each rubric with its score."""

    def say(text: str) -> str:
        (name,) = [name for name in scores if f"`{name}`" in text]
        return json.dumps({name: scores[name]})

    return say


class StopAfter:
    """Ends a run like Ctrl-C, once so many judgements are committed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._control: RunControl | None = None

    def manner(self) -> dict[str, Any]:
        return {"control": self._take, "observe": self._look, "concurrency": 1}

    def _take(self, control: RunControl) -> None:
        self._control = control

    def _look(self, tally: Any) -> None:
        if self._control and tally.total >= self._count:
            self._control.stop("interrupted")


def totals(store: Path, name: str) -> dict[str, float | None]:
    """The edits that have the set's score, and its value."""
    with Store.open(store, readonly=True) as kept:
        scores = run_set_scores(kept, kept.find_run(name)) or {}
    return {
        item: by_judge[JUDGE]["total"]
        for item, by_judge in scores.items()
        if "total" in by_judge[JUDGE]
    }


def report(store: Path, name: str, *words: object) -> Any:
    told = editjudge("report", name, "--store", store, "--format", "json", *words)
    assert told.code == 0, told.err
    return told.json


def judge_set(folder: Path, rows: list[dict[str, Any]], **more: Any) -> dict[str, int]:
    """The statuses of the run `mine` with these rows for a manifest."""
    manifest = write_manifest(folder, rows)
    manner = {"name": "mine", **more}
    return run(
        manifest, folder / "s.db", rubrics=(str(folder / "ours.yaml"),), manner=manner
    ).statuses()


# --- a score whose members are not all final ------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A set whose second rubric is asked after the first, stopped while the first is being asked."""
    manifest = edits(tmp_path, 12)
    path = write_set(
        tmp_path, "min(look, fin)", rubric("look"), rubric("fin", "after: look")
    )
    with server(says(look=5, fin=1)):
        run(
            manifest,
            tmp_path / "s.db",
            rubrics=(str(path),),
            manner={"name": "mine", **StopAfter(5).manner()},
        )
    return tmp_path


def finish(folder: Path) -> None:
    with server(says(look=5, fin=1)):
        assert judge_set(folder, rows_of(folder / "edits.jsonl")) == {"ok": 24}


def test_a_score_is_pending_until_the_last_of_its_rubrics_is_answered(
    stopped: Path,
) -> None:
    values = totals(stopped / "s.db", "mine")
    assert len(values) == 12
    assert set(values.values()) == {None}
    finish(stopped)
    assert set(totals(stopped / "s.db", "mine").values()) == {1.0}


def test_a_report_counts_pending_scores(stopped: Path) -> None:
    document = report(stopped / "s.db", "mine")
    cells = [cell for cell in document["aggregates"] if cell["factor"] == "total"]
    assert sum(cell["n"] for cell in cells) == 12
    assert sum(cell["ok"] for cell in cells) == 0
    assert sum(cell["failed"]["pending"] for cell in cells) == 12
    counts = Counter[str]()
    for entry in document["judgements"]:
        counts[entry["status"]] += entry["n"]
    assert counts.total() == 24
    assert document["pending"] == counts["pending"] == 24 - counts["ok"]


def test_an_export_has_no_pending_score_and_can_be_imported(stopped: Path) -> None:
    told = editjudge(
        "export",
        "mine",
        "--store",
        stopped / "s.db",
        "-o",
        stopped / "x",
        "--format",
        "jsonl",
    )
    assert told.code == 0, told.err
    lines = (stopped / "x" / "items.jsonl").read_text().splitlines()
    assert [json.loads(line)["set_scores"] for line in lines] == [
        {JUDGE: {"total": None}}
    ] * 12
    imported = editjudge("import-run", stopped / "x", "--store", stopped / "other.db")
    assert imported.code == 0, imported.err
    assert set(totals(stopped / "other.db", "mine").values()) == {None}


def test_a_gate_does_not_pass_on_scores_that_are_pending(stopped: Path) -> None:
    told = editjudge(
        "gate", "mine", "--store", stopped / "s.db", "--min", "total=4", "--json"
    )
    assert told.code != 0
    finish(stopped)
    assert (
        editjudge(
            "gate", "mine", "--store", stopped / "s.db", "--min", "total=1", "--json"
        ).code
        == 0
    )


def test_a_comparison_and_an_agreement_have_no_pending_score_in_them(
    stopped: Path,
) -> None:
    store = ("--store", stopped / "s.db", "--json")
    compared = editjudge("compare", "mine", "mine", *store)
    assert compared.code == 0, compared.err
    (total,) = [row for row in compared.json["comparisons"] if row["factor"] == "total"]
    assert (total["n"], total["difference"]) == (0, None)
    ratings = stopped / "ratings.csv"
    ratings.write_text(
        "item,rater,factor,score\n"
        + "".join(f"e{n},ann,total,{n % 5}\n" for n in range(12))
    )
    agreed = editjudge("agree", "mine", "--ratings", ratings, *store)
    assert agreed.code == 1 and "12 pending" in agreed.json["error"]


def test_one_pending_repeat_leaves_the_score_of_an_edit_open(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 1)
    path = write_set(tmp_path, "look", rubric("look"))
    with server(says(look=5)):
        run(
            manifest,
            tmp_path / "s.db",
            rubrics=(str(path),),
            repeats=2,
            manner={"name": "mine"},
        )
    with Store.open(tmp_path / "s.db") as store:
        first = next(iter(store.judgements(store.find_run("mine"))))
        with store._writing() as connection:
            connection.exec_driver_sql(
                f"DELETE FROM judgements WHERE key = '{first['key']}'"  # noqa: S608
            )
    assert totals(tmp_path / "s.db", "mine") == {"e0": None}


# --- samples and repeats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [1, 2, 3])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (3, 1), (1, 3), (3, 3), (2, 3), (4, 2)])
def test_a_formula_has_every_rubric_whatever_samples_and_repeats_are(
    a: int, b: int, repeats: int, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 2)
    path = write_set(
        tmp_path,
        "min(a, b)",
        rubric("a", f"samples: {a}"),
        rubric("b", f"samples: {b}"),
    )
    with server(says(a=2, b=10)):
        run(
            manifest,
            tmp_path / "s.db",
            rubrics=(str(path),),
            repeats=repeats,
            manner={"name": "mine"},
        )
    assert totals(tmp_path / "s.db", "mine") == {"e0": 2.0, "e1": 2.0}
    cells = report(tmp_path / "s.db", "mine")["aggregates"]
    (cell,) = [one for one in cells if (one["factor"], one["model"]) == ("total", "m0")]
    assert (cell["mean"], cell["ok"], cell["n"]) == (2.0, cell["n"], cell["n"])


# --- a manifest that changed ----------------------------------------------------------------------------------

CHECK = rubric("check", "for_each: checks", "texts: [each]")


def is_good(text: str) -> str:
    return json.dumps({"check": int("good" in text)})


def test_elements_that_left_a_list_leave_the_view_and_come_back_unpaid(
    tmp_path: Path,
) -> None:
    write_set(tmp_path, "mean(check)", CHECK)
    row = rows_of(edits(tmp_path, 1))[0]
    four = [row | {"checks": ["good one", "bad one", "good two", "bad two"]}]
    two = [row | {"checks": ["good one", "good two"]}]
    store = tmp_path / "s.db"
    with server(is_good) as sent:
        assert judge_set(tmp_path, four) == {"ok": 4}
        assert totals(store, "mine") == {"e0": 0.5}
        assert judge_set(tmp_path, two) == {"ok": 2}
        assert totals(store, "mine") == {"e0": 1.0}
        assert sum(entry["n"] for entry in report(store, "mine")["judgements"]) == 2
        assert judge_set(tmp_path, four) == {"ok": 4}
        assert totals(store, "mine") == {"e0": 0.5}
    assert len(sent) == 4


def test_a_rubric_that_is_for_an_edit_no_more_leaves_the_view_and_comes_back_unpaid(
    tmp_path: Path,
) -> None:
    write_set(
        tmp_path,
        "min(look, extra)",
        rubric("look"),
        rubric("extra", "when: edit_type == add"),
    )
    added = [row | {"edit_type": "add"} for row in rows_of(edits(tmp_path, 2))]
    styled = [added[0], added[1] | {"edit_type": "style"}]
    store = tmp_path / "s.db"
    with server(says(look=5, extra=1)) as sent:
        assert judge_set(tmp_path, added) == {"ok": 4}
        assert totals(store, "mine") == {"e0": 1.0, "e1": 1.0}
        assert judge_set(tmp_path, styled) == {"ok": 3}
        assert totals(store, "mine") == {"e0": 1.0, "e1": 5.0}
        assert (
            editjudge(
                "export",
                "mine",
                "--store",
                store,
                "-o",
                tmp_path / "x",
                "--format",
                "jsonl",
            ).code
            == 0
        )
        assert len((tmp_path / "x" / "judgements.jsonl").read_text().splitlines()) == 3
        assert judge_set(tmp_path, added) == {"ok": 4}
        assert totals(store, "mine") == {"e0": 1.0, "e1": 1.0}
    assert len(sent) == 4


def test_the_view_follows_the_manifest_also_where_the_resumed_run_is_stopped(
    tmp_path: Path,
) -> None:
    write_set(
        tmp_path,
        "min(look, fin)",
        rubric("look"),
        rubric("fin", "after: look", "when: edit_type == add"),
    )
    plain = rows_of(edits(tmp_path, 3))
    with server(says(look=5, fin=1)):
        judge_set(tmp_path, [row | {"edit_type": "add"} for row in plain])
        judge_set(
            tmp_path,
            [row | {"edit_type": "style"} for row in plain],
            **StopAfter(1).manner(),
        )
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        assert Counter(
            row["rubric"] for row in store.judgements(store.find_run("mine"))
        ) == {"look": 3}


def test_an_edit_that_reads_otherwise_now_is_pending_until_it_is_judged_again(
    tmp_path: Path,
) -> None:
    write_set(tmp_path, "look", rubric("look", "texts: [instruction]"))
    plain = rows_of(edits(tmp_path, 30))

    def say(text: str) -> str:
        return json.dumps({"look": 1 if "Something else." in text else 5})

    with server(say):
        judge_set(tmp_path, plain)
        assert set(totals(tmp_path / "s.db", "mine").values()) == {5.0}
        other = [row | {"instruction": "Something else."} for row in plain]
        judge_set(tmp_path, other, **StopAfter(1).manner())
    assert set(totals(tmp_path / "s.db", "mine").values()) == {1.0, None}


def test_a_stream_that_changed_is_followed_too(tmp_path: Path) -> None:
    path = write_set(tmp_path, "mean(check)", CHECK)
    row = rows_of(edits(tmp_path, 1))[0]
    row |= {role: str(tmp_path / row[role]) for role in ("input", "edited")}

    class Stream:
        """Read as often as one likes, and nobody knows how long it is."""

        def __init__(self, checks: list[str]) -> None:
            self._checks = checks

        def __iter__(self) -> Iterator[dict[str, Any]]:
            yield row | {"checks": self._checks}

    job = Job(tmp_path / "stream", (str(path),), (JUDGE,), allow_outside=True)
    for checks, value in ((["good", "bad"], 0.5), (["good"], 1.0)):
        with server(is_good), Store.open(tmp_path / "s.db") as store:
            asyncio.run(
                execute(
                    replace(job, rows=Stream(checks)), store, RunOptions(name="mine")
                )
            )
        assert totals(tmp_path / "s.db", "mine") == {"e0": value}


# --- how many edits there are ---------------------------------------------------------------------------------


def counted(store: Path, name: str = "mine") -> dict[str, int]:
    """How many judgements have which status, as `runs show` says it, and the report too."""
    shown = editjudge("runs", "show", name, "--store", store, "--json")
    assert shown.code == 0, shown.err
    counts = Counter[str]()
    for entry in shown.json["counts"]:
        counts[entry["status"]] += entry["n"]
    reported = Counter[str]()
    document = report(store, name)
    for entry in document["judgements"]:
        reported[entry["status"]] += entry["n"]
    assert reported == counts
    assert document["pending"] == counts["pending"]
    return dict(counts)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({}, 400),
        ({"limit": 250}, 250),
        ({"models": ("m0",)}, 200),
        ({"models": ("m0",), "limit": 30}, 30),
    ],
)
def test_a_stopped_run_has_the_edits_of_the_manifest_for_its_denominator(
    job: dict[str, Any], expected: int, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 400)
    with stub():
        manner = {"name": "mine", **StopAfter(5).manner()}
        done = run(
            manifest, tmp_path / "s.db", rubrics=("fidelity",), manner=manner, **job
        )
    assert done.outcome.summary.total == expected
    statuses = counted(tmp_path / "s.db")
    assert sum(statuses.values()) == expected
    assert statuses["pending"] >= expected - 20
    cells = report(tmp_path / "s.db", "mine")["factors"]
    assert {
        sum(c["n"] for c in cells if c["factor"] == name)
        for name in {c["factor"] for c in cells}
    } == {expected}


def test_a_killed_run_has_it_too_and_goes_on(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 300)
    store = tmp_path / "s.db"
    words = (
        manifest,
        "--rubric",
        "fidelity",
        "--judge",
        JUDGE,
        "--store",
        store,
        "--name",
        "mine",
        "--concurrency",
        1,
    )
    with stub() as server:
        process = start("run", *words, folder=tmp_path)
        until(lambda: server.ledger.paid > 3)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        statuses = counted(store)
        assert sum(statuses.values()) == 300
        assert statuses["pending"] > 0
        told = editjudge("run", *words, "--json")
    assert told.code == 0, told.err
    assert counted(store) == {"ok": 300}


def test_two_judges_and_repeats_are_counted_before_the_second_judge_begins(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 40)
    judges = (SPECS["openai"], SPECS["anthropic"])
    with stub():
        manner = {"name": "mine", **StopAfter(1).manner()}
        run(
            manifest,
            tmp_path / "s.db",
            judges=judges,
            rubrics=("online",),
            repeats=2,
            manner=manner,
        )
    assert sum(counted(tmp_path / "s.db").values()) == 40 * 3 * 2 * 2


def test_an_edit_that_was_not_planned_is_in_the_browsers_table(tmp_path: Path) -> None:
    from editjudge.store.listing import count_edits
    from editjudge.web.listing import Browser, Query

    manifest = edits(tmp_path, 300)
    with stub():
        manner = {"name": "mine", **StopAfter(1).manner()}
        run(manifest, tmp_path / "s.db", rubrics=("fidelity",), manner=manner)
    with Store.open(tmp_path / "s.db") as store:
        record = store.find_run("mine")
        assert count_edits(store, record) == 300
        pending = Browser(store).positions(record, Query(status="pending"))
    assert 299 in pending


def test_a_manifest_that_did_not_change_is_outlined_once(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 5)
    calls: list[int] = []
    add = Store.add_outline

    def counting(*values: Any, **more: Any) -> None:
        calls.append(1)
        add(*values, **more)

    with pytest.MonkeyPatch.context() as patch, stub():
        patch.setattr(Store, "add_outline", counting)
        for _ in range(2):
            run(
                manifest,
                tmp_path / "s.db",
                rubrics=("fidelity",),
                manner={"name": "mine"},
            )
    assert len(calls) == 1


def test_edits_that_hold_their_pictures_are_told_apart_before_they_are_planned(
    tmp_path: Path,
) -> None:
    rows = [
        {
            "id": f"e{n}",
            "input": picture("input"),
            "edited": picture("edited", n),
            "instruction": "Paint it.",
        }
        for n in range(300)
    ]
    job = Job(tmp_path / "rows", ("fidelity",), (JUDGE,), rows=rows)
    with stub(), Store.open(tmp_path / "s.db") as store:
        manner: dict[str, Any] = {"name": "mine", **StopAfter(1).manner()}
        outcome = asyncio.run(execute(job, store, RunOptions(**manner)))
        contents = {Content.of(item).key() for item in store.items(outcome.run_id)}
        stopped = store.counts(outcome.run_id)
        asyncio.run(execute(job, store, RunOptions(name="mine")))
        assert {
            Content.of(item).key() for item in store.items(outcome.run_id)
        } == contents
        finished = store.counts(outcome.run_id)
    assert len(contents) == 300
    assert sum(stopped.values()) == 300
    assert finished == {(JUDGE, "fidelity", "ok"): 300}
