"""Faults in the world: a run keeps working or stops with a remedy, and running again ends as if nothing had happened.

Killed runs are held in `run/test_crash.py`, servers that misbehave in `run/test_faults.py`, databases that go away in
`store/test_postgres.py`, and what the store says about a disk, a lock or a newer file in `store/test_store.py` and
`store/test_schema.py`; here a whole run meets them.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import itertools
import resource
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from editjudge.errors import StoreMoved
from editjudge.judgement import Judgement
from editjudge.store.store import Store
from tests.faults import check_error
from tests.postgres import Server
from tests.running.made import (
    COMMAND,
    SPECS,
    Done,
    editjudge,
    edits,
    environment,
    expected,
    pacing,
    run,
    stub,
    until,
    variables,
)
from tests.stub.server import Behaviour, serve_in_thread

OPENAI = SPECS["openai"]


def whole(done: Done, manifest: Path, count: int) -> bool:
    """Every judgement is there, once, and says what the server said."""
    said = expected(manifest)
    right = all(row["scores"] == said[row["item"], row["rubric"]] for row in done.rows)
    return done.outcome.ending == "finished" and len(done.rows) == 3 * count and right


def limited(
    set_limit: Callable[[], None], *words: object
) -> subprocess.CompletedProcess[str]:
    """The command in a process that may not do everything."""
    return subprocess.run([*COMMAND, *map(str, words)], capture_output=True, text=True, timeout=120, check=False,
                          preexec_fn=set_limit)  # fmt: skip


# --- the disk and the store -----------------------------------------------------------------------------------


def test_a_full_disk_stops_the_run_with_a_remedy_and_running_again_asks_only_for_the_rest(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 60)
    store = tmp_path / "s.db"

    def no_file_beyond() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    with stub() as server:
        told = limited(
            no_file_beyond, "run", manifest, "--judge", OPENAI, "--store", store
        )
        assert told.returncode == 1 and "Traceback" not in told.stderr, told.stderr
        assert "disk" in told.stderr
        kept = answered(store)
        before = server.ledger.paid
        done = run(manifest, store)
        assert whole(done, manifest, 60)
        assert server.ledger.paid - before == 180 - kept, (
            "stored answers are not asked for again"
        )


def _delete(store: Path) -> None:
    store.unlink()


def _delete_with_log(store: Path) -> None:
    for path in store.parent.glob("s.db*"):
        path.unlink()


def _delete_log_alone(store: Path) -> None:
    store.with_name("s.db-wal").unlink()


def _rename(store: Path) -> None:
    store.rename(store.with_name("renamed.db"))


def _replace_by_another(store: Path) -> None:
    Store.open(store.with_name("other.db")).close()
    store.with_name("other.db").replace(store)


def _remove_folder(store: Path) -> None:
    shutil.rmtree(store.parent)


@pytest.mark.parametrize(
    "harm",
    [
        _delete,
        _delete_with_log,
        _delete_log_alone,
        _rename,
        _replace_by_another,
        _remove_folder,
    ],
)
def test_a_store_that_loses_its_file_stops_the_run_and_every_answer_is_in_a_copy(
    harm: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = edits(tmp_path, 60)
    store = tmp_path / "kept" / "s.db"
    elsewhere = tmp_path / "temporary"
    for folder in (store.parent, elsewhere):
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    commits = itertools.count(1)
    write = Store.write

    def write_with_harm(self: Store, batch: Sequence[Judgement]) -> None:
        if next(commits) == 3:
            harm(store)
        write(self, batch)

    monkeypatch.setattr(Store, "write", write_with_harm)
    with stub() as server:
        words = (
            "run",
            manifest,
            "--judge",
            OPENAI,
            "--concurrency",
            "8",
            "--name",
            "r",
        )
        told = editjudge(*words, "--store", store)
        assert told.code == 1, told.err
        (copy,) = [
            path for path in tmp_path.glob("*/*") if path.name == "s.db.unsaved-1.db"
        ]
        assert copy.parent == (elsewhere if harm is _remove_folder else store.parent)
        assert str(copy) in told.err and "Traceback" not in told.err
        assert 0 < answered(copy) == server.ledger.paid < 180, (
            "those that were on their way included"
        )
        assert editjudge(*words, "--store", copy).code == 0
        assert answered(copy) == server.ledger.paid == 180, "nothing was paid for twice"


def test_whoever_writes_to_a_store_without_a_file_is_told_each_time(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    with Store.open(path) as store:
        run_record = store.open_run("r", {})
        path.unlink()
        for _ in range(2):
            with pytest.raises(StoreMoved):
                store.mark(run_record, "finished")
        assert [run.state for run in store.runs()] == ["finished"]
        assert store.name == f"{path}.unsaved-1.db"
    assert [path.name for path in tmp_path.iterdir() if "-" not in path.suffix] == [
        "s.db.unsaved-1.db"
    ]


def test_a_run_whose_tables_are_dropped_ends_with_words(
    tmp_path: Path, postgres: Server
) -> None:
    place = postgres.new_place()
    schema = place.rpartition("%3D")[2]
    manifest = edits(tmp_path, 4)

    def drop(self: Store, batch: Sequence[Judgement]) -> None:
        postgres.sql(f"DROP SCHEMA {schema} CASCADE")
        write(self, batch)

    write = Store.write
    with stub(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "write", drop)
        result = editjudge("run", manifest, "--judge", OPENAI, "--store", place)
    assert result.code == 1 and "Traceback" not in result.err
    check_error(result.error, "42P01")


def answered(store: Path) -> int:
    with contextlib.closing(sqlite3.connect(store)) as connection:
        return int(
            connection.execute(
                "select count(*) from judgements where status = 'ok'"
            ).fetchone()[0]
        )


def test_a_store_that_may_not_be_written_is_told_before_anything_is_paid_for(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 2)
    store = tmp_path / "s.db"
    Store.open(store).close()
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute("pragma journal_mode = delete")
    store.chmod(0o444)
    tmp_path.chmod(0o555)

    def as_everybody() -> None:
        # Root writes where permissions say no by two capabilities; where we are not root, there are none to drop.
        for capability in (1, 2):
            ctypes.CDLL(None).prctl(24, capability)

    try:
        with stub() as server:
            told = limited(
                as_everybody, "run", manifest, "--judge", OPENAI, "--store", store
            )
            assert server.ledger.requests == 0
    finally:
        tmp_path.chmod(0o755)
    assert told.returncode == 1 and "write permission" in told.stderr, told.stderr


def test_a_store_that_another_locks_for_a_while_is_waited_for(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 8)
    store = tmp_path / "s.db"
    Store.open(store).close()
    other = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    release = threading.Timer(1.5, lambda: other.execute("rollback"))
    release.start()
    with stub():
        assert whole(run(manifest, store), manifest, 8)
    release.join()
    other.close()


def test_two_runs_on_one_store_at_once_both_end_whole(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 20)
    store = tmp_path / "s.db"
    with stub(Behaviour(latency=0.02)) as server:
        both = [
            subprocess.Popen([*COMMAND, "run", str(manifest), "--judge", OPENAI, "--store", str(store), "--name", name],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for name in "ab"
        ]  # fmt: skip
        ends = [
            (process.communicate(timeout=120), process.returncode) for process in both
        ]
        assert [code for _, code in ends] == [0, 0], ends
        assert server.ledger.paid <= 2 * 60
        done = run(manifest, store, manner={"name": "c"})
    assert whole(done, manifest, 20) and done.outcome.tally.asked == 0


def test_a_store_of_a_newer_program_is_left_alone_by_every_verb(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 1)
    store = tmp_path / "s.db"
    Store.open(store).close()
    with contextlib.closing(sqlite3.connect(store)) as connection:
        connection.execute(
            "update meta set value = '9999' where name = 'schema_version'"
        )
        connection.commit()
    before = store.read_bytes()
    for words in (
        ("run", manifest, "--judge", "measured"),
        ("report", "x"),
        ("runs", "list"),
    ):
        told = editjudge(*words, "--store", store)
        assert told.code == 1 and "newer" in told.err, told.err
    assert store.read_bytes() == before


# --- time and memory ------------------------------------------------------------------------------------------


def test_a_clock_that_jumps_changes_no_answer_and_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour back, a year ahead: only what is measured by the steady clock counts."""
    manifest = edits(tmp_path, 12)
    true = time.time
    jumps = iter(range(10**9))
    monkeypatch.setattr(
        time, "time", lambda: true() + (-3_600, 0, 31_536_000)[next(jumps) % 3]
    )
    with stub(Behaviour(rate_limited=0.2, retry_after=0.01)), pacing():
        first = run(manifest, tmp_path / "s.db")
        again = run(manifest, tmp_path / "s.db")
    assert (
        whole(first, manifest, 12)
        and whole(again, manifest, 12)
        and again.outcome.tally.asked == 0
    )


def test_a_worker_without_memory_stops_in_words_or_fails_an_edit_and_never_scores_it(
    tmp_path: Path,
) -> None:
    """300 MB beyond what the program itself has, and a picture that needs more."""
    from PIL import Image

    manifest = edits(tmp_path, 2)
    Image.new("RGB", (9_900, 9_900), "red").save(tmp_path / "edited-0.png")
    program = (
        "import resource, sys\nimport cv2, onnxruntime, scipy, PIL.Image, editjudge.vision.measured.assess\n"
        "from editjudge.cli import main\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20,) * 2)\n"
        "sys.argv = ['editjudge', *sys.argv[1:]]\nmain()"
    )
    words = [
        "run",
        str(manifest),
        "--judge",
        "measured",
        "--rubric",
        "preservation",
        "--store",
        str(tmp_path / "s.db"),
    ]
    told = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert told.returncode in (1, 3), (told.returncode, told.stdout, told.stderr)
    assert (
        "memory" in (told.stdout + told.stderr).lower() or "bad_image" in told.stdout
    ), told.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        rows = connection.execute(
            "select status, (select count(*) from scores where scores.key = judgements.key) from judgements"
        ).fetchall()
    assert all((status == "ok") == (scores > 0) for status, scores in rows)
    whole_machine = editjudge(*words)
    assert whole_machine.code == 0 or "none failed" in whole_machine.out, (
        whole_machine.err
    )


# --- the network ----------------------------------------------------------------------------------------------


def stopped(
    tmp_path: Path, more: dict[str, str | None], *options: str
) -> tuple[Done, Path]:
    manifest = edits(tmp_path, 3)
    with environment({"OPENAI_API_KEY": "k", **more}), pacing(tries=2, patience=0.3):
        return run(manifest, tmp_path / "s.db"), manifest


def test_a_host_that_cannot_be_found_stops_the_run_and_is_named(tmp_path: Path) -> None:
    done, manifest = stopped(tmp_path, {"OPENAI_BASE_URL": "http://nowhere.invalid/v1"})
    assert done.outcome.ending == "failed" and "nowhere.invalid" in str(
        done.outcome.error
    )
    assert not any(row["scores"] for row in done.rows)
    with stub():
        assert whole(run(manifest, tmp_path / "s.db"), manifest, 3)


def certificate(folder: Path) -> Path:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = folder / "cert.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_certificate_that_nobody_vouches_for_stops_the_run_before_the_key_is_sent(
    tmp_path: Path,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
                with (
                    connection,
                    context.wrap_socket(connection, server_side=True) as secure,
                ):
                    heard.append(secure.recv(65_536))
            except ssl.SSLError:
                continue
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        done, _ = stopped(
            tmp_path,
            {"OPENAI_BASE_URL": f"https://127.0.0.1:{listener.getsockname()[1]}/v1"},
        )
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert done.outcome.ending == "failed" and "certificate" in str(done.outcome.error)
    assert not any(heard)


@contextlib.contextmanager
def tunnel(goal: str, cut_every: int = 0) -> Iterator[tuple[str, list[int]]]:
    """A loopback proxy to the stub that cuts every n-th connection in the middle of an answer."""
    host, port = goal.removeprefix("http://").split(":")
    seen: list[int] = []
    ends: list[socket.socket] = []

    def pump(
        source: socket.socket, sink: socket.socket, most: int | None = None
    ) -> None:
        left = most
        with contextlib.suppress(OSError):
            while data := source.recv(4096 if left is None else min(4096, left)):
                sink.sendall(data)
                if left is not None and (left := left - len(data)) <= 0:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                seen.append(len(seen))
                ends.extend((near, far))
                cut = 700 if cut_every and len(seen) % cut_every == 0 else None
                threading.Thread(target=pump, args=(near, far), daemon=True).start()
                threading.Thread(
                    target=pump, args=(far, near, cut), daemon=True
                ).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for end in ends:
                end.close()


def test_connections_that_are_cut_in_the_middle_of_an_answer_lose_nothing(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 20)
    with (
        stub() as server,
        tunnel(server.url, cut_every=2) as (url, seen),
        environment(variables(url)),
        pacing(),
    ):
        # each start asks three times at most: an answer that was cut off may have been billed
        for _ in range(9):
            done = run(manifest, tmp_path / "s.db", manner={"concurrency": 8})
            if not done.outcome.summary.failed:
                break
    assert whole(done, manifest, 20) and len(seen) > 2


def test_a_proxy_of_the_environment_is_used_and_one_that_is_down_is_told(
    tmp_path: Path,
) -> None:
    manifest = edits(tmp_path, 2)
    named = {
        "OPENAI_BASE_URL": "http://judge.invalid/v1",
        "OPENAI_API_KEY": "k",
        "NO_PROXY": None,
        "no_proxy": None,
    }
    with (
        stub() as server,
        environment({**named, "HTTP_PROXY": server.url, "http_proxy": server.url}),
    ):
        assert whole(run(manifest, tmp_path / "s.db"), manifest, 2)
    dead = "http://127.0.0.1:9"
    with (
        environment({**named, "HTTP_PROXY": dead, "http_proxy": dead}),
        pacing(tries=2, patience=0.3),
    ):
        done = run(manifest, tmp_path / "t.db")
    assert done.outcome.ending == "failed" and "127.0.0.1:9" in str(done.outcome.error)


def test_a_server_that_restarts_in_the_middle_is_waited_for(tmp_path: Path) -> None:
    manifest = edits(tmp_path, 40)
    store = tmp_path / "s.db"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ended: list[Done] = []
    with environment(variables(f"http://127.0.0.1:{port}")), pacing(patience=30.0):
        with serve_in_thread(Behaviour(latency=0.05), 11, port=port) as first:
            running = threading.Thread(
                target=lambda: ended.append(
                    run(manifest, store, manner={"concurrency": 4})
                )
            )
            running.start()
            until(lambda: first.ledger.paid > 20)
        with serve_in_thread(None, 11, port=port) as second:
            running.join(60)
            assert second.ledger.paid, "it went on with the second"
    assert whole(ended[0], manifest, 40)
