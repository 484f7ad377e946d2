"""A store on a server: many at once, a server that fails and comes back, and what to do when it does not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from editjudge.errors import StoreError
from editjudge.store import Store, migrations, schema
from editjudge.store.ratings import add_ratings, read_ratings
from editjudge.store.sink import Writer
from tests.cli.stores import Spec, made, quality
from tests.faults import raises
from tests.postgres import PASSWORD, Server, serving
from tests.running.made import editjudge, edits, expected, start, stub

from .samples import key, sample, task


@pytest.fixture
def place(postgres: Server) -> str:
    return postgres.new_place()


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that a test may stop without others noticing."""
    with serving() as server:
        yield server


# --- many at once ---------------------------------------------------------------------------------------------


def test_four_runs_and_two_raters_lose_nothing_and_double_nothing(
    place: str, tmp_path: Path
) -> None:
    manifest = edits(tmp_path, 30)
    with stub() as server:
        words = (
            "--rubric",
            "online",
            "--judge",
            "openai/stub",
            "--store",
            place,
            "--json",
        )
        # Two of the same name, and two of their own that ask the same questions.
        runs = [
            start("run", manifest, "--name", name, *words, folder=tmp_path)
            for name in ("a", "a", "b", "c")
        ]
        raters = [
            threading.Thread(target=_rate, args=(place, name))
            for name in ("ann", "bob")
        ]
        for rater in raters:
            rater.start()
        ended = [run.communicate(timeout=120) for run in runs]
        for rater in raters:
            rater.join()
    assert [run.returncode for run in runs] == [0] * 4, ended
    said = expected(manifest)
    with Store.open(place, readonly=True) as store:
        assert [run.name for run in store.runs()].count("a") == 1
        for name in ("a", "b", "c"):
            rows = list(store.judgements(store.find_run(name)))
            assert {(row["item"], row["rubric"]): row["scores"] for row in rows} == said
            assert len(rows) == len(said)
        keys = {row["key"] for row in rows}
        exchanges = sum(len(store.replies(one)) for one in keys)
        assert exchanges == server.ledger.requests, (
            "every answer that was paid for is kept, once"
        )
        assert len(read_ratings(store)) == 2 * 30 * 2


def _rate(place: str, rater: str) -> None:
    with Store.open(place) as store:
        for score in (1.0, 2.0):  # a rating that is given again takes the new score
            for number in range(30):
                add_ratings(
                    store,
                    [
                        (f"e{number}", rater, factor, score)
                        for factor in ("alignment", "harmony")
                    ],
                )


def test_two_who_write_the_same_keys_in_another_order_both_succeed(place: str) -> None:
    def write(numbers: list[int]) -> None:
        with Store.open(place) as store:
            for _ in range(20):
                store.write([sample(number, "unreachable") for number in numbers])

    Store.open(place).close()
    numbers = list(range(60))
    writers = [
        threading.Thread(target=write, args=(some,))
        for some in (numbers, numbers[::-1])
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with Store.open(place, readonly=True) as store:
        assert len(store.done([key(n) for n in numbers])) == 60
        assert [len(store.replies(key(n))) for n in numbers] == [1] * 60


def test_writers_that_insert_one_new_key_at_the_same_time_all_succeed(
    place: str,
) -> None:
    Store.open(place).close()
    writers = 4
    together = threading.Barrier(writers, timeout=60)
    failures: list[StoreError] = []

    def write() -> None:
        with Store.open(place) as store:
            for number in range(200):
                together.wait()
                try:
                    store.write([sample(number, "unreachable")])
                except StoreError as error:
                    failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Store.open(place, readonly=True) as store:
        assert len(store.done([key(number) for number in range(200)])) == 200


def test_a_run_is_not_removed_under_one_that_shares_its_answers(place: str) -> None:
    with Store.open(place) as store, Store.open(place) as other:
        mine = store.open_run("mine", {})
        theirs = other.open_run("theirs", {})
        store.add_tasks(mine, [task(1)])
        store.write([sample(1)])
        removing = threading.Thread(target=store.remove_run, args=(mine,))
        with other._writing() as connection:
            values = {
                "run_id": theirs.id,
                "position": 0,
                "item": "e",
                "rubric": "r",
                "judge": "j",
                "repeat": 0,
            }
            connection.execute(sa.insert(schema.tasks), {**values, "key": key(1)})
            removing.start()
            time.sleep(0.2)
        removing.join()
        assert other.done([key(1)]) == {key(1): "ok"}


def test_both_databases_give_the_same_report_to_the_byte(
    postgres: Server, tmp_path: Path
) -> None:
    def say(
        model: str, n: int, judge: str, factor: str, repeat: int
    ) -> int | str | None:
        odd = {3: "refused", 5: None, 7: "pending", 9: "bad_image"}
        return odd[n] if n in odd else quality(model, n, judge, factor, repeat)

    models = ("Zoë", "abc", "ÄB")  # which each country sorts in its own way
    spec = Spec(models=models, judges=("openai/m", "Anthropic/m"), edits=12)
    stores = [str(tmp_path / "s.db"), postgres.new_place()]
    for store in stores:
        made(Path(store) if "://" not in store else store, spec, say)  # type: ignore[arg-type]
    ratings = tmp_path / "ratings.csv"
    lines = [
        f"{m}-{n},{r},alignment,{(n + len(r)) % 7 + 1}"
        for m in models
        for n in range(12)
        for r in ("b", "A")
    ]
    ratings.write_text("\n".join(["item,rater,factor,score", *lines]))
    for store in stores:
        assert editjudge("ratings", "import", ratings, "--store", store).code == 0
    for words in (
        *(("report", "r", "--format", form) for form in ("md", "json", "csv")),
        ("compare", "r", "--json"),
        ("agree", "r", "--json"),
        ("runs", "show", "r"),
    ):
        first, second = (editjudge(*words, "--store", store) for store in stores)
        assert first.code == second.code == 0, first.err + second.err
        assert first.out == second.out


def test_a_run_moves_from_one_database_to_the_other(place: str, tmp_path: Path) -> None:
    made(tmp_path / "s.db", Spec(edits=8))
    assert (
        editjudge(
            "export",
            "r",
            "-o",
            tmp_path / "out",
            "--format",
            "parquet",
            "--store",
            tmp_path / "s.db",
        ).code
        == 0
    )
    for _ in range(2):
        assert editjudge("import-run", tmp_path / "out", "--store", place).code == 0
    first, second = (
        editjudge("report", "r", "--format", "json", "--store", s)
        for s in (tmp_path / "s.db", place)
    )
    assert first.out == second.out != ""


def test_words_are_sorted_by_their_bytes_whatever_the_country(
    place: str, postgres: Server
) -> None:
    Store.open(place).close()
    query = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'item' AND collation_name IS DISTINCT"
    assert postgres.sql(f"{query} FROM 'C' AND table_schema LIKE 'made%'") == [(0,)]


# --- a server that fails --------------------------------------------------------------------------------------


def test_what_was_not_acknowledged_when_connections_broke_is_written_again(
    place: str, postgres: Server
) -> None:
    async def main(store: Store) -> None:
        async with Writer(store, batch=8) as writer, asyncio.TaskGroup() as group:
            for number in range(400):
                group.create_task(writer.put(sample(number)))
            for _ in range(5):
                await asyncio.sleep(0.03)
                await asyncio.to_thread(postgres.drop_connections)

    with Store.open(place) as store:
        asyncio.run(main(store))
        assert len(store.done([key(n) for n in range(400)])) == 400
        assert all(
            store.replies(key(n)) == list(sample(n).exchanges) for n in range(400)
        )


def test_a_server_that_restarts_is_waited_for(own: Server) -> None:
    place = own.new_place()
    with Store.open(place) as store:
        run = store.open_run("pilot", {})
        own.stop()
        starting = threading.Timer(0.5, own.start)
        starting.start()
        store.write([sample(1)])
        store.add_tasks(run, [task(1)])
        starting.join()
        own.stop()
        own.start()
        assert [row["status"] for row in store.judgements(run)] == ["ok"]
        assert store.counts(run)


def test_a_server_that_stays_away_is_explained_and_one_that_was_never_there_at_once(
    own: Server,
) -> None:
    with Store.open(own.new_place(), timeout=0.3) as store:
        own.stop()
        try:
            with raises(StoreError, "no_answer"):
                store.write([sample(1)])
            with raises(StoreError, "no_answer"):
                Store.open(own.url(), timeout=600)
        finally:
            own.start()


# --- what to do -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"password": "sesame 123"}, "PGPASSWORD"),
        ({"user": "stranger"}, "PGPASSWORD"),
        ({"database": "nowhere"}, "createdb"),
    ],
)
def test_a_server_that_lets_nobody_in_is_explained_without_the_password(
    postgres: Server, change: dict[str, str], named: str
) -> None:
    with raises(StoreError, "refused", named) as caught:
        Store.open(postgres.url(**change))
    for password in (PASSWORD, "sesame", "horse"):
        assert password not in str(caught.value)
    result = editjudge("runs", "list", "--store", postgres.url(**change))
    assert (
        result.code == 1
        and named in result.err
        and "sesame" not in result.err
        and "horse" not in result.err
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:sesame@[::1/db",
        "mysql://u:sesame@h/db",
        "postgresql://u:sesame@h:x/",
        "postgresql://u:p@sesame@h/",
    ],
)
def test_an_address_that_is_none_is_explained_without_the_password(url: str) -> None:
    with raises(StoreError, "not_a_store_url") as caught:
        Store.open(url)
    assert "sesame" not in str(caught.value)


def test_a_password_among_the_settings_is_not_shown_either(place: str) -> None:
    with Store.open(f"{place}&password=correct%20horse%20battery") as store:
        assert "horse" not in store.name and "horse" not in repr(store)
        with raises(Exception, "unknown_run") as caught:
            store.find_run("x")
    assert "horse" not in str(caught.value)


def test_who_may_not_make_tables_is_told_what_to_grant(
    place: str, postgres: Server
) -> None:
    postgres.sql("CREATE ROLE reader LOGIN PASSWORD 'r'")
    schema_name = place.rpartition("%3D")[2]
    theirs = place.replace(postgres.url(), postgres.url(user="reader", password="r"))
    postgres.sql(f"GRANT USAGE ON SCHEMA {schema_name} TO reader")
    with raises(StoreError, "42501", "GRANT CREATE"):
        Store.open(theirs)
    with Store.open(place) as store:
        store.open_run("pilot", {})
    postgres.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema_name} TO reader")
    with Store.open(theirs, readonly=True) as store:
        assert [run.name for run in store.runs()] == ["pilot"]
    with Store.open(theirs) as store, raises(StoreError, "42501", "UPDATE"):
        store.write([sample(1)])


def test_an_id_longer_than_can_be_indexed_is_explained(place: str) -> None:
    with Store.open(place) as store:
        run = store.open_run("pilot", {})
        with raises(StoreError, "54000", "2,700"):
            store.add_tasks(run, [task(1, item="".join(key(n) for n in range(200)))])


@pytest.mark.parametrize(
    "table", ["photographs (id int)", "meta (id int)", "meta (name text, value text)"]
)
def test_a_database_of_another_program_is_left_alone(
    place: str, postgres: Server, table: str
) -> None:
    postgres.sql(f"CREATE TABLE {table}", place)
    with raises(StoreError, "another_program"):
        Store.open(place)


def test_a_migration_that_fails_has_not_happened(
    place: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(place).close()
    before = migrations.VERSION

    def breaks(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE half (id int)"))
        raise StoreError("broken")

    monkeypatch.setattr(migrations, "VERSION", before + 1)
    monkeypatch.setitem(migrations.STEPS, before + 1, breaks)
    with pytest.raises(StoreError, match="broken"):
        Store.open(place)
    with raises(StoreError, "read_only"):
        Store.open(place, readonly=True)
    monkeypatch.undo()
    with Store.open(place):
        assert postgres.sql("SELECT value FROM meta", place) == [(str(before),)]


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with raises(StoreError, "missing_extra", "editjudge[postgres]"):
        Store.open("postgresql://u:p@127.0.0.1/db")
