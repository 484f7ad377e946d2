"""Who may do what, and what strangers cannot: break the server with a request, or hold it up with half of one."""

from __future__ import annotations

import functools
import html
import logging
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from editjudge.judgement import DONE
from editjudge.media.image import Decoding
from editjudge.rewards.protocol import Terms
from editjudge.rewards.reduction import NOT_JUDGED
from editjudge.store.store import Store
from editjudge.web import guard
from editjudge.web.connections import Connection
from tests import patient
from tests.effort import effort, scan
from tests.running.made import until
from tests.web.sample import made
from tests.web.served import Served, edit, serving

TOKEN = "reviewers-only-0123456789"
SERVICE = "programs-only-0123456789"
MANY = "9" * 5000

ANSWERED = {*DONE, NOT_JUDGED}
"""Statuses of an edit that the judge has looked at; `measured` does not judge the instruction."""


class Line:
    """A connection, byte by byte."""

    def __init__(self, served: Served, sent: bytes = b"") -> None:
        place = httpx.URL(served.url)
        self.socket = socket.create_connection(
            (place.host, place.port or 0), timeout=30
        )
        self.socket.sendall(sent)

    def answer(self) -> bytes:
        """Everything until the other side closes."""
        received = b""
        try:
            while some := self.socket.recv(65536):
                received += some
        except ConnectionError:
            pass
        self.socket.close()
        return received


def request(first: str, *headers: str, body: str = "") -> bytes:
    length = [f"content-length: {len(body)}"] if body else []
    lines = [
        f"{first} HTTP/1.1",
        "host: 127.0.0.1",
        "connection: close",
        *length,
        *headers,
        "",
        body,
    ]
    return "\r\n".join(lines).encode("latin-1")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("strangers") / "edits")


@pytest.fixture(scope="module")
def opened(pages: Path) -> Iterator[Served]:
    """Open to this machine, with a study."""
    with serving(pages, judge="measured") as served:
        setup = {
            "run": "1",
            "rubric": "online",
            "quota": "3",
            "overlap": "2",
            "controls": "0",
            "name": "pilot",
        }
        served.client.post(f"{served.url}/rate/new", data=setup)
        served.client.get(f"{served.url}/rate/1", headers={"cookie": "rater=ann"})
        yield served


@pytest.fixture(scope="module")
def closed(pages: Path) -> Iterator[Served]:
    with serving(pages, judge="measured", token=TOKEN, service_token=SERVICE) as served:
        yield served


# --- requests that cannot be read -----------------------------------------------------------------------------

BEFORE_THE_TOKEN = [
    request("GET /sign-in?next=//["),
    request("GET /sign-in?next=%ff%00//%5b"),
    request("POST /v1/judge", "origin: http://[", body="{}"),
    request("POST /sign-in", "origin: \xff", body="token=%ED%A0%80"),
    request("GET /static/%00"),
    request(f"GET /static/{'a' * 5000}"),
    request("GET /", "authorization: Bearer \xff\xfe"),
    request("GET /", 'cookie: \xff=\xff; editjudge="\\777"'),
    request("GET /t/%ff/v1/judge"),
    request("GET /t//v1/judge"),
    request("GET /t/a%2Fb"),
    request("GET /%74%2Fa%2Fb", "accept: text/html"),
    request("POST /v1/judge", "transfer-encoding: chunked", body="zz"),
    request("POST /v1/judge", f"content-length: {MANY}"),
]
BEHIND_IT = [
    request(f"GET /runs/{MANY}"),
    request(f"GET /runs/1?page={MANY}"),
    request("GET /runs/1?page=%D9%A3&least=nan&most=1e999&sort=%00&q=%00"),
    request("GET /runs/1/edits/%ff"),
    request("GET /runs/1/edits/%ED%A0%80"),
    request("GET /runs/1/images/edited/%ff%00"),
    request("GET /runs/1/evidence/change/%ff"),
    request(f"GET /compare?a=1&b=2&page={MANY}"),
    request(f"GET /rate/{MANY}"),
    request(f"GET /rate/1/{MANY}", "cookie: rater=%ff%00"),
    request(
        "POST /rate/new", body=f"run=1&rubric=online&overlap=1&controls=0&quota={MANY}"
    ),
    request(
        "POST /rate/new", body=f"run={MANY}&rubric=%00&overlap=1&controls=0&quota=1"
    ),
    request("POST /rate/1/1", "cookie: rater=ann", body=f"alignment={MANY}"),
    request("POST /rate/name", body="&" * 5000),
    request(
        "POST /v1/reward",
        "content-type: application/json; charset=x",
        body='{"edits": [{"id": "\\ud800"}]}',
    ),
    request(
        "POST /v1/reward",
        "content-type: multipart/form-data; boundary=\xff",
        body="--\xff--",
    ),
    request(
        "GET /runs/1/images/edited/brush-2%2F0",
        "range: bytes=9-1,-0",
        "if-none-match: \xff",
    ),
]


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_refused(
    served: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = Line(served, sent).answer()
    assert answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")), answer[
        :200
    ]
    assert [
        record
        for record in caplog.records
        if record.exc_info or record.levelno >= logging.ERROR
    ] == []


@pytest.mark.parametrize(
    "sent", BEFORE_THE_TOKEN, ids=lambda sent: sent[:40].decode("latin-1")
)
def test_nobody_without_a_token_gets_a_traceback(
    closed: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    check_refused(closed, sent, caplog)


@pytest.mark.parametrize(
    "sent",
    [*BEFORE_THE_TOKEN, *BEHIND_IT],
    ids=lambda sent: sent[:40].decode("latin-1"),
)
def test_no_request_is_answered_with_500(
    opened: Served, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    check_refused(opened, sent, caplog)


# --- roles ----------------------------------------------------------------------------------------------------


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/runs/1",
        "/rate",
        "/rate/1/progress",
        "/ratings.csv",
        "/compare",
        "/nowhere",
    ],
)
def test_a_services_token_opens_nothing_but_the_service(
    closed: Served, path: str
) -> None:
    assert patient.get(closed.url + path, headers=bearer(SERVICE)).status_code == 403
    assert patient.get(f"{closed.url}/t/{SERVICE}{path}").status_code == 403
    cookie = {"cookie": f"editjudge={guard.cookie_value(SERVICE)}"}
    assert patient.get(closed.url + path, headers=cookie).status_code == 401


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/judge", bearer(SERVICE), 200),
        (f"/t/{SERVICE}/v1/judge", {}, 200),
        ("/v1/judge", bearer(TOKEN), 200),
        (f"/t/{TOKEN}/v1/judge", {}, 401),
        (f"/t/{SERVICE}x/v1/judge", bearer(SERVICE), 401),
        ("/v1/judge", {}, 401),
        ("/v1/judge", bearer(SERVICE[:-1]), 401),
    ],
)
def test_the_service_takes_its_own_token_in_a_header_or_in_the_path(
    closed: Served, path: str, headers: dict[str, str], status: int
) -> None:
    answer = patient.post(closed.url + path, json={"edited": None}, headers=headers)
    assert answer.status_code == status, answer.text
    assert SERVICE not in answer.text


def test_a_token_in_a_path_is_repeated_in_no_answer(closed: Served) -> None:
    for path in ("", "/", "/v1/nothing", "/v1/judge/", "/runs/1", "/openapi.json"):
        answer = patient.get(
            f"{closed.url}/t/{SERVICE}{path}", headers={"accept": "text/html"}
        )
        assert SERVICE not in f"{answer.headers} {answer.text}"


def test_a_service_that_has_a_token_needs_it_on_this_machine_too_and_the_pages_stay_open(
    pages: Path,
) -> None:
    with serving(pages, judge="measured", service_token=SERVICE) as served:
        assert (
            patient.post(f"{served.url}/v1/judge", json={"edited": None}).status_code
            == 401
        )
        assert (
            patient.post(
                f"{served.url}/t/{SERVICE}/v1/judge", json={"edited": None}
            ).status_code
            == 200
        )
        assert patient.get(f"{served.url}/runs/1").status_code == 200
        assert (
            patient.get(f"{served.url}/runs/1", headers=bearer(SERVICE)).status_code
            == 403
        )
        assert (
            patient.get(served.url, headers={"host": "evil.example"}).status_code == 421
        )


# --- half requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        request("GET /healthz")[:-2],
    ],
)
def test_who_does_not_finish_a_requests_head_is_cut_off(
    closed: Served, half: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 0.2)
    assert Line(closed, half).answer() == b""


def test_a_head_that_trickles_in_is_cut_off(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 0.5)
    line = Line(closed, b"GET / HTTP/1.1\r\n")
    begun = time.monotonic()
    while time.monotonic() < begun + 30:
        try:
            line.socket.sendall(b"x-more: 1\r\n")
        except OSError:  # reset, or a broken pipe
            break
        time.sleep(0.05)
    line.socket.close()
    assert time.monotonic() < begun + 30


def test_the_rest_of_a_body_that_was_refused_is_not_waited_for(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "rest_seconds", 0.2)
    half = (
        b"POST /v1/judge HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\nabc"
    )
    assert Line(closed, half).answer().startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("path", ["/sign-in", "/v1/judge"])
def test_a_body_that_does_not_come_is_answered_with_408(
    closed: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_PATIENCE", 0.2)
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {SERVICE}\r\n"
    half = f"{head}content-type: application/json\r\ncontent-length: 1000\r\n\r\nabc"
    assert Line(closed, half.encode()).answer().startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("path", ["/rate/name", "/v1/reward"])
def test_a_request_that_is_half_there_when_the_server_ends_is_told_so_and_leaves_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    with serving(tmp_path / "s.db", judge="measured") as served:
        served.server.config.timeout_graceful_shutdown = 0
        lines = (
            "host: 127.0.0.1",
            "content-type: application/json",
            "content-length: 100",
            "",
            "{",
        )
        line = Line(served, "\r\n".join((f"POST {path} HTTP/1.1", *lines)).encode())
        until(lambda: bool(served.server.server_state.tasks))
        served.stop()
        assert line.answer().startswith(b"HTTP/1.1 503")
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_connection_that_is_used_again_is_not_cut_off(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "head_seconds", 0.2)
    with patient.Client() as client:
        others = set(closed.server.server_state.connections)
        assert client.get(f"{closed.url}/healthz").status_code == 200
        (kept,) = closed.server.server_state.connections - others
        time.sleep(0.5)
        assert client.get(f"{closed.url}/healthz").status_code == 200
        assert kept in closed.server.server_state.connections


def test_silent_connections_make_room_for_one_that_asks(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "most", 8)
    idle = [Line(closed, b"GET / HTTP/1.1\r\n") for _ in range(20)]
    until(lambda: len(closed.server.server_state.connections) <= 8)
    assert patient.get(f"{closed.url}/healthz").status_code == 200
    assert len(closed.server.server_state.connections) <= 8
    for line in idle:
        line.socket.close()


def test_clients_that_do_not_read_their_answers_are_closed_and_make_room(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "most", 8)
    monkeypatch.setattr(Connection, "read_seconds", 0.5)
    before = set(closed.server.server_state.connections)
    pipelined = b"GET /static/style.css HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 1000
    deaf = [Line(closed, pipelined) for _ in range(8)]
    connections: Any = closed.server.server_state.connections
    until(lambda: any(one.flow.write_paused for one in connections))
    for _ in range(3):
        assert patient.get(f"{closed.url}/healthz").status_code == 200
    until(lambda: not closed.server.server_state.connections - before)
    for line in deaf:
        line.socket.close()


def test_a_client_that_reads_slowly_gets_the_whole_answer(
    closed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than all of it takes, and longer than a kernel takes to report room again: it waits for a third of 4 MB.
    monkeypatch.setattr(Connection, "read_seconds", 1.0)
    line = Line(closed)
    received = 0
    line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
    asking = b"GET /static/style.css HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    line.socket.sendall(
        asking * 400 + asking.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    )
    while some := line.socket.recv(2**18):
        received += len(some)
        time.sleep(0.02)
    line.socket.close()
    size = len(patient.get(f"{closed.url}/static/style.css").content)
    assert received > 401 * size


@pytest.mark.parametrize("name", ["editjudge", "rater"])
def test_a_cookie_full_of_quotes_costs_no_more_than_another(
    opened: Served, closed: Served, name: str
) -> None:
    def ask(served: Served, path: str, value: str) -> None:
        answer = Line(
            served, request(f"GET {path}", f"cookie: {name}={value}")
        ).answer()
        assert answer.startswith(
            b"HTTP/1.1 401" if served is closed else b"HTTP/1.1 200"
        )

    quotes = '"' + '\\"' * 20_000
    for served, path in ((closed, "/"), (opened, "/rate")):
        once = functools.partial(ask, served, path)
        # Older standard libraries go back to the first quote at each of them: hundreds of times as much.
        assert (
            effort(
                functools.partial(once, quotes),
                functools.partial(once, "a" * len(quotes)),
                20,
            )
            < 20
        )


@pytest.mark.parametrize("name", ["Zoë", "a/b; c", 'a "b"', "李"])
def test_a_rater_s_name_comes_back_out_of_the_cookie(opened: Served, name: str) -> None:
    with patient.Client(base_url=opened.url) as client:
        client.post("/rate/name", data={"name": name})
        assert f"{name}" in html.unescape(client.get("/rate").text)


# --- room, and deadlines --------------------------------------------------------------------------------------


def announcing(size: int, more: bytes = b"") -> bytes:
    head = f"POST /v1/reward HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {size}"
    return head.encode() + b"\r\n\r\n" + more


def test_bytes_that_are_only_announced_take_no_room(tmp_path: Path) -> None:
    with serving(
        tmp_path / "s.db", judge="measured", terms=Terms(max_held=2**20)
    ) as served:
        idle = [Line(served, announcing(2**20)) for _ in range(4)]
        until(lambda: len(served.server.server_state.tasks) == 4)
        assert served.rewards(edit(0))[0]["status"] in ANSWERED
        for line in idle:
            line.socket.close()


def test_bytes_that_came_take_room_until_their_sender_leaves(tmp_path: Path) -> None:
    with serving(
        tmp_path / "s.db", judge="measured", terms=Terms(max_held=2**20)
    ) as served:
        line = Line(served, announcing(2**20, b" " * (2**20 - 10)))
        until(lambda: served.queue.held == 2**20 - 10)
        answer = served.post("reward", {"edits": [edit(0)]})
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        line.socket.close()
        until(lambda: served.queue.held == 0)
        assert served.post("reward", {"edits": [edit(0)]}).status_code == 200


def test_a_deadline_holds_while_the_store_is_locked(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", judge="measured") as served:
        served.rewards(edit(0))
        other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        late = served.rewards(edit(1), edit(2), deadline=0.5)
        seconds = time.monotonic() - begun
        other.execute("ROLLBACK")
        other.close()
        assert [(reward["status"], reward["reward"]) for reward in late] == [
            ("pending", None)
        ] * 2
        assert seconds < 15  # half of what the store would be waited for
        assert {
            reward["status"] for reward in served.rewards(edit(1), edit(2))
        } <= ANSWERED


def test_a_deadline_holds_while_pictures_of_another_request_are_screened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(
        "editjudge.rewards.queue.screen", lambda _: let_go.wait(60) and None
    )
    with (
        serving(tmp_path / "s.db", judge="measured") as served,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(served.rewards, *(edit(n) for n in range(4)), deadline=60)
        until(lambda: served.queue.edits == 4)
        begun = time.monotonic()
        with patient.Client() as other:
            late = other.post(
                f"{served.url}/v1/reward",
                json={"edits": [edit(5)], "deadline": 0.5},
                timeout=60,
            ).json()
        assert time.monotonic() - begun < 15
        assert [reward["status"] for reward in late["rewards"]] == ["pending"]
        let_go.set()
        assert {reward["status"] for reward in first.result()} <= ANSWERED


@pytest.mark.parametrize(
    "body",
    [
        b'{"edits":[{"edited":null,"metadata":{'
        + b",".join(b'"%d":{}' % n for n in range(300_000))
        + b"}}]}",
        b'{"edits":[{"edited":null,"metadata":[' + b"{}," * 1_000_000 + b"{}]}]}",
        b'{"edits":[' + b'"a",' * 500_000 + b'"a"]}',
        b'{"edits":"' + b'""' * 1_000_000 + b'"}',
    ],
    ids=["objects", "list", "strings", "quotes"],
)
def test_a_small_body_of_very_many_values_is_refused_before_it_is_parsed(
    opened: Served, body: bytes
) -> None:
    def post() -> None:
        answer = opened.post(
            "reward", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422 and "values" in answer.json()["error"]

    before = peak_memory()
    assert effort(post, scan(len(body)), 50) < 50
    assert peak_memory() - before < 50 * 2**20


def test_commas_and_brackets_inside_strings_are_no_values(opened: Served) -> None:
    words = '[{,"' * 4_500
    assert (
        opened.rewards(*({"edited": None, "instruction": words} for _ in range(10)))[0][
            "status"
        ]
        == "missing_output"
    )


def test_a_run_that_was_removed_under_the_server_is_made_again(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", judge="measured") as served:
        first = served.post("reward", {"edits": [edit(0)]}).json()["run"]
        with Store.open(tmp_path / "s.db") as store:
            store.remove_run(first["id"])
        answer = served.post("reward", {"edits": [edit(0), edit(1)]})
        assert answer.status_code == 200
        assert (
            answer.json()["run"]["name"] == first["name"]
            and answer.json()["run"]["id"] != first["id"]
        )
        assert (
            len(served.rows()) == 6
            and {row["status"] for row in served.rows()} <= ANSWERED
        )


def test_pixels_are_decoded_so_many_at_a_time_and_more_than_that_alone() -> None:
    decoding = Decoding(100)
    most = 0
    busy = 0
    lock = threading.Lock()

    def decode(pixels: int) -> None:
        nonlocal most, busy
        with decoding.room(pixels):
            with lock:
                busy += pixels
                most = max(most, busy if pixels < 500 or busy == pixels else 10_000)
            time.sleep(0.005)
            with lock:
                busy -= pixels

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(decode, [40, 60, 500, 30, 30, 30, 90, 500, 10, 100] * 5))
    assert most == 500 and busy == 0


def test_a_large_edit_is_let_go_once_nobody_asks_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editjudge.judges.workers._LARGE", 10)
    with serving(tmp_path / "s.db", judge="measured") as served:
        assert {
            reward["status"] for reward in served.rewards(edit(0), edit(1))
        } <= ANSWERED
        (line,) = served.queue._lanes.values()
        measured: Any = line.result().judge
        pool = measured._workers
        until(
            lambda: (
                not pool._busy
                and pool._local.key is None
                and not pool._local._measurer._subjects
            )
        )
