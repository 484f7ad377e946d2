"""The conformance kit passes our server, and fails one that does what trainers' servers usually do."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from run.made import stub

from editjudge import conformance
from editjudge.web.site import Terms
from web.served import serving


def test_our_server_conforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub(), serving(tmp_path / "s.db", terms=Terms(rubrics=("compliance",)), token="t" * 20) as served:
        code = conformance.main([served.url, "--token", "t" * 20, "--json"])
        document = json.loads(capsys.readouterr().out)
        assert [check for check in document["checks"] if check["outcome"] != "passed"] == []
        assert code == 0 and document["conforms"] and len(document["checks"]) == len(conformance.CHECKS)
        assert conformance.main([served.url]) == 1  # without the token it is no server of rewards
        assert "failed" in capsys.readouterr().out


@contextmanager
def careless() -> Iterator[str]:
    """Answers every edit with 0.0 where it has no picture, refuses nothing, and keeps no deadline."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({})

        def do_POST(self) -> None:
            body: Any = {}
            with suppress(ValueError):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            edits = body.get("edits") if isinstance(body, dict) else []
            common = {"abstained": {}, "reasons": [], "keys": {}, "cached": True, "stored_as": None, "group": None}
            rewards = [
                {
                    "id": e.get("id", ""),
                    "reward": 0.9 if e.get("edited") else 0.0,
                    "status": "ok",
                    "scores": {},
                    **common,
                }
                | {"uncertainty": None}
                for e in (edits if isinstance(edits, list) else [])
            ]
            known = {"protocol": 1, "formula": "", "judge": "j", "judges": {"j": 1}, "rubrics": {}, "run": None}
            self._say({"rewards": rewards, **known})

        def _say(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_server_that_makes_zeros_of_failures_does_not_conform(capsys: pytest.CaptureFixture[str]) -> None:
    with careless() as url:
        assert conformance.main([url, "--json"]) == 1
    checks = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "is 0.0" in checks["a missing output is null"]["message"]
    failed = {name for name, check in checks.items() if check["outcome"] == "failed"}
    assert {"what is not known is refused", "strict answers 503", "groups are compared"} <= failed
    assert checks["rewards come in order"]["outcome"] == "passed"


def test_a_server_that_is_not_there_and_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["http://127.0.0.1:9"]) == 1
    assert "cannot be reached" in capsys.readouterr().out
    assert conformance.main(["127.0.0.1"]) == 1
    assert "expected the address" in capsys.readouterr().err
