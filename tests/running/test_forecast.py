"""Plans of any size: exact for a few edits, from a sample with its uncertainty for very many; and of what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editjudge.errors import UsageError
from editjudge.judges.judge import Options
from editjudge.media.cache import DigestCache, KnownImage
from editjudge.running import forecast as planning
from editjudge.running.forecast import forecast
from editjudge.running.job import Job, RunOptions
from editjudge.running.where import Condition
from editjudge.store.store import Store
from tests.faults import check_error, raises, shows

from .made import SPECS, editjudge, edits, picture, run, stub, write_manifest, write_old

OPENAI = SPECS["openai"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def options(tmp_path: Path) -> Options:
    path = tmp_path / "prices.yaml"
    models = f"{{{OPENAI}: {{input: 10.0, output: 40.0}}}}"
    path.write_text(f"as_of: 2026-01-01\nbatch: {{openai: 0.5}}\nmodels: {models}\n")
    return Options(prices=path)


def job(manifest: Path, options: Options, **more: Any) -> Job:
    settings: dict[str, Any] = {
        "rubrics": ("online",),
        "judges": (OPENAI,),
        "options": options,
    } | more
    return Job(manifest, **settings)


def many(folder: Path, count: int) -> Path:
    """A manifest whose lines share the pictures of four edits and differ in the length of what is asked."""
    rows = [json.loads(line) for line in edits(folder, 4).read_text().splitlines()]
    words = (f"{n}. " + "Paint it red. " * (1 + n * n % 37) for n in range(count))
    return write_manifest(
        folder,
        [
            {**rows[n % 4], "id": f"m{n}", "instruction": text}
            for n, text in enumerate(words)
        ],
    )


def test_a_sample_comes_near_the_whole_and_its_interval_holds_it(
    tmp_path: Path, store: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = many(tmp_path, 600)
    with stub():
        (exact,), whole = forecast(job(manifest, options), str(store))
        monkeypatch.setattr(planning, "SAMPLE", 100)
        (rough,), part = forecast(job(manifest, options), str(store))
    assert (whole.sampled, part.sampled, part.edits) == (None, 100, 600)
    assert exact.interval == {}
    assert rough.calls == exact.calls == 1800 and part.tasks == 1800
    assert exact.price and rough.price
    low, high = rough.interval["price"]
    assert low < exact.price < high
    assert rough.price == pytest.approx(exact.price, rel=0.05)
    assert (high - low) < 0.1 * exact.price


def test_the_pictures_outside_a_sample_are_not_read(
    tmp_path: Path, store: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    original = DigestCache.look_up

    def counting(self: DigestCache, source: Any) -> KnownImage | None:
        nonlocal looked
        looked += 1
        return original(self, source)

    monkeypatch.setattr(DigestCache, "look_up", counting)
    monkeypatch.setattr(planning, "SAMPLE", 50)
    with stub():
        forecast(job(many(tmp_path, 5_000), options), str(store))
    assert 0 < looked <= 100


def test_a_limit_is_a_limit_for_the_sample_too(
    tmp_path: Path, store: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SAMPLE", 50)
    with stub():
        _, todo = forecast(job(many(tmp_path, 400), options, limit=200), str(store))
    assert (todo.edits, todo.sampled, todo.tasks) == (200, 50, 600)


def test_batches_are_planned_at_their_price(
    tmp_path: Path, store: Path, options: Options
) -> None:
    with stub():
        (estimate,), _ = forecast(job(edits(tmp_path, 3), options), str(store))
    assert estimate.price and estimate.batch_price == pytest.approx(estimate.price / 2)


def test_time_is_that_of_the_rate_which_binds(
    tmp_path: Path, store: Path, options: Options
) -> None:
    manifest = edits(tmp_path, 4)
    with stub():

        def seconds(**rates: Any) -> float | None:
            (estimate,), _ = forecast(
                job(manifest, options), str(store), RunOptions(**rates)
            )
            return estimate.seconds

        (estimate,), _ = forecast(job(manifest, options), str(store))
        tokens = estimate.input_tokens + estimate.output_tokens
        assert seconds() is None
        assert seconds(requests_per_minute=6) == pytest.approx(120)
        assert seconds(
            requests_per_minute=6, tokens_per_minute=tokens / 10
        ) == pytest.approx(600)
        assert seconds(concurrency=4) is None  # nobody knows yet how long a reply takes
        run(manifest, store, limit=1)
        assert 0 < (seconds(concurrency=4) or 0) < 60


def test_the_storage_that_is_planned_is_near_what_a_run_fills(
    tmp_path: Path, store: Path, options: Options
) -> None:
    manifest = edits(tmp_path, 150)
    with stub():
        _, todo = forecast(job(manifest, options), str(store))
        run(manifest, store)
    filled = sum(path.stat().st_size for path in tmp_path.glob("s.db") if path.exists())
    assert todo.stored_bytes == pytest.approx(filled, rel=0.35)


def test_the_command_says_that_it_is_a_sample(
    tmp_path: Path, store: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SAMPLE", 20)
    arguments = (
        "run",
        many(tmp_path, 100),
        "--judge",
        OPENAI,
        "--store",
        store,
        "--prices",
        options.prices,
        "--rpm",
        10,
    )
    with stub():
        printed = editjudge(*arguments, "--dry-run")
        result = editjudge(*arguments, "--dry-run", "--json").json
    assert shows(printed.out, "sample", "20 of 100 edits")
    assert "by --batch about $" in printed.out and "30.0 minutes" in printed.out
    assert "MB in the store" in printed.out
    assert (result["sampled"], result["edits"], result["tasks"]) == (20, 100, 300)
    low, high = result["judges"][0]["interval"]["batch_price"]
    assert low <= result["judges"][0]["batch_price"] <= high
    assert not store.exists()


# --- what an earlier run leaves -------------------------------------------------------------------------------


def test_a_second_run_is_about_what_the_first_did_not_rule_out(
    tmp_path: Path, store: Path, options: Options
) -> None:
    manifest = edits(tmp_path, 16)
    (tmp_path / "edited-3.png").unlink()
    with stub():
        first = run(manifest, store, rubrics=("fidelity",), manner={"name": "cheap"})
        scores = {
            row["item"]: row["scores"]["alignment"]
            for row in first.rows
            if row["scores"]
        }
        left = {item for item, score in scores.items() if score >= 4} | {"e3"}
        (estimate,), todo = forecast(
            job(manifest, options, where=("cheap:alignment>=4",)), str(store)
        )
        second = run(
            manifest, store, rubrics=("quality",), where=("cheap:alignment>=4",)
        )
    assert 1 < len(left) < 16
    assert {row["item"] for row in second.rows} == left
    # fidelity is answered, and e3 cannot be asked
    assert estimate.calls == 2 * (len(left) - 1)
    assert todo.tasks == 3 * len(left)
    assert second.outcome.summary.statuses["missing_output"] == 1


def test_an_edit_whose_picture_was_replaced_is_not_the_one_that_an_earlier_run_scored(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 8)
    with stub():
        run(manifest, store, rubrics=("fidelity",), manner={"name": "cheap"})
        write_old(tmp_path / "edited-3.png", picture("another"))
        second = run(
            manifest, store, rubrics=("quality",), where=("cheap:alignment>=0",)
        )
    assert {row["item"] for row in second.rows} == {
        f"e{number}" for number in range(8)
    } - {"e3"}
    assert second.outcome.tally.left_out == 1


def test_every_condition_holds_and_what_no_earlier_run_had_is_left_out(
    tmp_path: Path, store: Path, options: Options
) -> None:
    manifest = edits(tmp_path, 16)
    arguments = (
        "run",
        manifest,
        "--judge",
        OPENAI,
        "--judge",
        SPECS["google"],
        "--store",
        store,
        "--rubric",
        "quality",
    )
    conditions = ("--where", "cheap:alignment>=3", "--where", "cheap:completeness<=5")
    with stub():
        first = run(
            manifest, store, rubrics=("fidelity",), limit=12, manner={"name": "cheap"}
        )
        planned = editjudge(*arguments, *conditions, "--dry-run", "--json").json
        printed = editjudge(*arguments, *conditions, "--name", "second").out
        again = editjudge("runs", "again", "second", "--store", store, "--json").json
    scores = {row["item"]: row["scores"] for row in first.rows}
    left = {
        item
        for item, text in scores.items()
        if text["alignment"] >= 3 and text["completeness"] <= 5
    }
    assert 1 < len(left) < min(sum(s["alignment"] >= 3 for s in scores.values()), 12)
    with Store.open(store, readonly=True) as stored:
        assert {
            row["item"] for row in stored.judgements(stored.find_run("second"))
        } == left
    assert shows(printed, "4 edits", "--where")
    assert (planned["tasks"], planned["left_out"]) == (2 * len(left), 4)
    assert (again["asked"], again["cached"], again["left_out"]) == (0, 2 * len(left), 4)


@pytest.mark.parametrize(
    "text", ["cheap:alignment=4", "cheap:alignment==4", "cheap: alignment = 4.0"]
)
def test_a_condition_may_want_one_score(text: str) -> None:
    where = Condition.parse(text)
    assert (where.run, where.names) == ("cheap", ("alignment",))
    assert [
        where.holds({"alignment": scores}) for scores in ([4], [3, 5], [5], [3], [])
    ] == [True, True, False, False, None]


@pytest.mark.parametrize(
    "wrong", ["cheap", "cheap:alignment", "cheap:alignment=>4", "cheap:alignment>=4 5"]
)
def test_a_condition_that_is_none_is_an_error(
    wrong: str, tmp_path: Path, store: Path
) -> None:
    with stub(), raises(UsageError, "bad_condition", "RUN:NAME"):
        run(edits(tmp_path, 1), store, where=(wrong,))


def test_a_factor_that_nobody_scored_is_an_error_and_leaves_no_run(
    tmp_path: Path, store: Path
) -> None:
    manifest = edits(tmp_path, 1)
    with stub():
        run(manifest, store, rubrics=("fidelity",), manner={"name": "cheap"})
        result = editjudge(
            "run",
            manifest,
            "--judge",
            OPENAI,
            "--store",
            store,
            "--where",
            "cheap:alignmnt>=4",
        )
        assert result.code == 2
        names = ('"cheap"', '"alignmnt"', '"alignment"')
        check_error(result.error, "unknown_score", *names)
        assert (
            len(editjudge("runs", "list", "--store", store, "--json").json["runs"]) == 1
        )


def test_an_edit_stays_where_the_mean_over_repeats_holds() -> None:

    where = Condition.parse("a:b:alignment>=3.5")
    assert (where.run, where.names) == ("a:b", ("alignment",))
    assert [
        where.holds({"alignment": scores}) for scores in ([3, 4], [3], [], [7])
    ] == [True, False, None, True]


def test_a_condition_may_be_an_expression_of_several_scores() -> None:
    where = Condition.parse("cheap:min(alignment, completeness) >= 4 and overall > 3")
    assert {*where.names} == {"alignment", "completeness", "overall"}
    scores: dict[str, list[float]] = {
        "alignment": [4, 5],
        "completeness": [4],
        "overall": [3.5],
    }
    assert where.holds(scores) is True
    assert where.holds(scores | {"completeness": [3]}) is False
    assert where.holds({"alignment": [5], "overall": [4]}) is None


def test_a_dry_run_adds_up_its_judges(tmp_path: Path, store: Path) -> None:
    manifest = edits(tmp_path, 4)
    judges = ("--judge", "openai/gpt-4.1", "--judge", "anthropic/claude-sonnet-4-5")
    typed = ("run", manifest, *judges, "--dry-run", "--store", store, "--json")
    with stub():
        document = editjudge(*typed).json
        unknown = editjudge(*typed, "--judge", "openai/not-in-the-list").json
    for name in ("calls", "input_tokens", "price"):
        parts = [judge[name] for judge in document["judges"]]
        assert document["total"][name] == pytest.approx(sum(parts)) and min(parts) > 0
    assert (unknown["total"]["calls"], unknown["total"]["price"]) == (36, None)


@pytest.mark.parametrize(
    ("judge", "effort", "each"),
    [
        ("openai/gpt-4.1", None, 0),
        ("openai/gpt-5-mini", None, 2_048),
        ("openai/gpt-5-mini", "low", 256),
        ("openai/gpt-5.1", None, 0),
        ("openai/gpt-5.1", "high", 6_144),
        ("openai/o4-mini", "none", 0),
        ("google/gemini-2.5-flash", None, 2_048),
        ("google/gemini-2.5-flash-lite", None, 0),
        ("google/gemini-3.1-pro-preview", None, 6_144),
    ],
)
def test_a_dry_run_counts_the_thinking_of_models_that_think(
    tmp_path: Path, store: Path, judge: str, effort: str | None, each: int
) -> None:
    manifest = edits(tmp_path, 2)
    words = ("--reasoning-effort", effort) if effort else ()
    typed = ("run", manifest, "--judge", judge, "--dry-run", "--store", store, "--json")
    (thinking,) = editjudge(*typed, *words).json["judges"]
    (plain,) = editjudge(*typed, "--reasoning-effort", "none").json["judges"]
    tokens = each * plain["calls"]
    assert plain["calls"] > 0 and plain["thinking_tokens"] == 0
    assert thinking["thinking_tokens"] == tokens
    assert thinking["output_tokens"] == plain["output_tokens"] + tokens
    assert (thinking["price"] > plain["price"]) == bool(each)
