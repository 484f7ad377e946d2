"""`editjudge serve`: starts with words, stops gently, and refuses what is not safe."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from editjudge.store.store import Store
from tests import patient


def served(*arguments: object, token: str | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "editjudge", "serve", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k != "EDITJUDGE_TOKEN"} | (
        {"EDITJUDGE_TOKEN": token} if token else {}
    )
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    Store.open(tmp_path / "store.db").close()
    return tmp_path / "store.db"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_stops_gently(store: Path, how: signal.Signals) -> None:
    with served("--store", store, "--port", 0) as server:
        assert server.stderr
        line = server.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        transport = httpx.HTTPTransport(retries=8)
        with patient.Client(transport=transport) as client:
            assert client.get(found[0]).status_code == 200
        server.send_signal(how)
        said = server.communicate(timeout=300)[1]
        assert server.returncode == (0 if how == signal.SIGINT else -signal.SIGTERM)
        assert "Traceback" not in said


def test_it_is_the_client_who_closes_an_idle_connection(store: Path) -> None:
    """Found by the soak: closed by the server after 5 seconds, it met a POST that was on its way, now and then."""
    with served("--store", store, "--port", 0) as server:
        assert server.stderr
        found = re.search(r"127\.0\.0\.1:(\d+)", server.stderr.readline())
        assert found
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        try:
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            time.sleep(6)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        finally:
            connection.close()
            server.terminate()
            server.communicate(timeout=300)


def refused(*arguments: object, token: str | None = None) -> tuple[int, str]:
    with served(*arguments, token=token) as server:
        said = server.communicate(timeout=300)[1]
    return server.returncode, said


def test_off_loopback_it_refuses_to_start_without_a_token(store: Path) -> None:
    code, said = refused("--store", store, "--host", "0.0.0.0", "--port", 0)  # noqa: S104  (refused)
    assert (
        code == 2
        and "a token is required" in said
        and re.search(r"EDITJUDGE_TOKEN=[\w-]{43} editjudge serve", said)
    )


def test_a_token_that_is_short_is_refused(store: Path) -> None:
    code, said = refused("--store", store, token="secret")
    assert code == 2 and "at least 16" in said and "secret" not in said


def test_a_port_in_use_is_told_with_a_remedy(store: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused("--store", store, "--port", taken.getsockname()[1])
    assert code == 1 and "in use" in said and "--port" in said


def test_a_store_that_is_not_there_is_told_with_a_remedy_and_not_made(
    tmp_path: Path,
) -> None:
    code, said = refused("--store", tmp_path / "none.db")
    assert code == 1 and "no such store" in said and not (tmp_path / "none.db").exists()


def test_off_loopback_a_services_token_alone_leaves_the_pages_closed(
    store: Path,
) -> None:
    secret = "a-service-s-own-token"
    options = (
        "--store",
        store,
        "--host",
        "0.0.0.0",  # noqa: S104
        "--port",
        0,
        "--service-token",
        secret,
    )
    with served(*options) as server:
        assert server.stderr
        match = re.search(r"0\.0\.0\.0:(\d+)", server.stderr.readline())
        assert match
        url = f"http://127.0.0.1:{match[1]}"
        try:
            assert patient.get(url).status_code == 401
            assert patient.get(f"{url}/t/{secret}/openapi.json").status_code == 200
        finally:
            server.terminate()
            assert secret not in server.communicate(timeout=300)[1]


def test_reviewers_and_programs_do_not_share_a_token(store: Path) -> None:
    code, said = refused(
        "--store",
        store,
        "--service-token",
        "0123456789abcdef",
        token="0123456789abcdef",
    )
    assert code == 2 and "the same" in said and "0123456789abcdef" not in said
