"""Secrets in addresses of images and in options of judges reach no store, export, report, page or terminal."""

from __future__ import annotations

import base64
import http.server
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from editjudge.canonical import json_hash
from editjudge.edit import Edit
from editjudge.redaction import (
    HIDDEN,
    is_secret_name,
    redacted_address,
    redacted_options,
)
from editjudge.running.plan import item_of
from editjudge.store import Store
from editjudge.web.app import create
from editjudge.web.site import Site
from tests.running.made import (
    Told,
    canned,
    editjudge,
    edits,
    environment,
    pacing,
    picture,
    stub,
    write_manifest,
)

from .test_secrets import files_below

PASSWORD = "pass-canary-51d2aa"
SECRETS = {
    "X-Amz-Signature": "amz-canary-0a1b2c",
    "sig": "sas-canary%2F0a1b2c%3D",
    "token": "tok-canary-0a1b2c",
    "key": "key-canary-0a1b2c",
}
HEADER = "Bearer header-canary-0a1b2c"
OPTION = "option-canary-0a1b2c"


def is_clean(data: bytes | str) -> bool:
    text = data if isinstance(data, str) else data.decode("latin-1")
    login = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    return "canary" not in text and login not in text


@contextmanager
def images() -> Iterator[str]:
    """A server of images that wants a password or a signature, and repeats the address that it refuses."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            login = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
            is_allowed = (
                "canary" in query
                or self.headers.get("authorization") == f"Basic {login}"
            )
            if path == "/refused.png" or not is_allowed:
                self.send_response(403, f"no access to {self.path}")
                self.end_headers()
                return
            data = picture(path)
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def manifest(folder: Path, host: str, renewed: str = "") -> Path:
    """Five edits, each with another kind of secret in its addresses; the server refuses the output of the last."""
    rows: list[dict[str, Any]] = []
    for number, (name, value) in enumerate(SECRETS.items()):
        signed = f"X-Amz-Date=2026{renewed}&{name}={value}{renewed}&size=8"
        edited = "refused" if number == len(SECRETS) - 1 else f"edited-{number}"
        row = {
            "id": f"e{number}",
            "input": f"http://user:{PASSWORD}@{host}/input.png",
            "edited": f"http://{host}/{edited}.png?{signed}",
            "instruction": f"Paint car {number} red.",
            "group": f"http://{host}/input.png?{signed}",
            "thumbnail": {"small": [f"see http://{host}/small.png?{signed}"]},
        }
        rows.append(row)
    return write_manifest(folder, rows)


RUN = (
    "--judge",
    "openai/m",
    "--rubric",
    "fidelity",
    "--allow-urls",
    "--max-failures",
    "1",
    "--name",
    "r",
)
OPTIONS = (
    "-J",
    f"api_key={OPTION}",
    "-J",
    json.dumps({"Authorization": HEADER}).join(["extra_headers=", ""]),
)


def verbs(folder: Path) -> list[tuple[object, ...]]:
    formats = ("html", "md", "latex", "csv", "json")
    exports = ("parquet", "jsonl", "csv")
    return [
        ("runs", "list"),
        ("runs", "show", "r"),
        ("runs", "show", "r", "--json"),
        ("report", "r"),
        *(
            ("report", "r", "-o", folder / f"r.{form}", "--format", form)
            for form in formats
        ),
        *(("export", "r", "-o", folder / form, "--format", form) for form in exports),
        ("export", "r", "-o", folder / "kept", "--where", "alignment>=1"),
        ("doctor",),
    ]


def test_a_secret_of_an_address_or_an_option_is_in_nothing_that_is_kept_or_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    store = tmp_path / "out" / "s.db"
    store.parent.mkdir()
    with images() as host, stub():
        path = manifest(tmp_path, host)
        told = [
            editjudge("audit", path),
            editjudge("audit", path, "--allow-urls", "--json"),
        ]
        told.append(editjudge("run", path, *RUN, "--dry-run", "--store", store))
        told.append(editjudge("run", path, *RUN, *OPTIONS, "--store", store))
        assert told[-1].code == 0, told[-1].err
        no_urls = [word for word in RUN if word != "--allow-urls"]
        told.append(editjudge("run", path, *no_urls, "--store", store))
    again = editjudge("runs", "again", "r", "--store", store)
    assert again.code == 2 and "api_key" in again.err, (
        "its secret is gone, so that nobody asks without it"
    )
    told += [
        again,
        *(editjudge(*words, "--store", store) for words in verbs(store.parent)),
    ]
    told.append(
        editjudge(
            "import-run", store.parent / "jsonl", "--store", store.parent / "other.db"
        )
    )
    assert told[-1].code == 0
    with Store.open(store) as opened:
        client = TestClient(create(Site(opened)), base_url="http://127.0.0.1")
        pages = [
            client.get(address).text
            for address in ("/", "/runs/1", "/runs/1/edits/e0", "/runs/1/report")
        ]
        statuses = {
            row["item"]: row["status"]
            for row in opened.judgements(1, fields=("item", "status"))
        }
    assert statuses == {"e0": "ok", "e1": "ok", "e2": "ok", "e3": "bad_image"}
    assert [one for one in told if not is_clean(one.out + one.err)] == []
    assert [page for page in pages if not is_clean(page)] == []
    assert is_clean(caplog.text)
    assert [
        found for found, data in files_below(store.parent) if not is_clean(data)
    ] == []


def test_a_renewed_signature_or_key_asks_nothing_again(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with images() as host, stub() as server:
        first = editjudge(
            "run", manifest(tmp_path, host), *RUN, *OPTIONS, "--store", store
        )
        requests = server.ledger.requests
        assert requests == 3
        renewed = [word.replace("canary", "canary-renewed") for word in OPTIONS]
        second = editjudge(
            "run",
            manifest(tmp_path, host, "-renewed"),
            *RUN,
            *renewed,
            "--store",
            store,
        )
        assert server.ledger.requests == requests
    assert first.code == second.code == 0, second.err
    with Store.open(store, readonly=True) as opened:
        assert len(opened.runs()) == 1
        assert {
            str(item.images["edited"]["source"]).count(HIDDEN)
            for item in opened.items(1)
        } == {2}


def test_a_secret_option_that_a_server_repeats_is_in_nothing_that_is_kept(
    tmp_path: Path,
) -> None:
    seen: list[bytes] = []

    def repeating(_: object, body: bytes) -> tuple[int, dict[str, str], bytes]:
        seen.append(body)
        said = {
            "error": {"message": f"bad parameters: {OPTION} and {HEADER}", "type": "x"}
        }
        return 400, {}, json.dumps(said).encode()

    store = tmp_path / "out" / "s.db"
    store.parent.mkdir()
    with canned(repeating), pacing(tries=1, patience=0.1):
        told = editjudge("run", edits(tmp_path, 1), *RUN, *OPTIONS, "--store", store)
    assert OPTION.encode() in seen[0], "it is sent all the same"
    assert is_clean(told.out + told.err)
    assert [
        found for found, data in files_below(store.parent) if not is_clean(data)
    ] == []


def test_a_key_of_the_environment_is_taken_out_of_options_by_its_value() -> None:
    with environment({"SOME_SERVICE_TOKEN": "value-canary-1234"}):
        assert redacted_options({"note": "uses value-canary-1234"}) == {
            "note": f"uses {HIDDEN}"
        }
    assert redacted_options({"note": "uses value-canary-1234"}) == {
        "note": "uses value-canary-1234"
    }


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("https://h/x.png", "https://h/x.png"),
        ("https://h/x.png?size=3&page=2#top", "https://h/x.png?size=3&page=2#top"),
        ("https://h:8/a%20b.png?", "https://h:8/a%20b.png?"),
        ("https://u:p@h/x.png", "https://***@h/x.png"),
        ("https://p@h/x.png", "https://***@h/x.png"),
        ("https://h/x@2.png", "https://h/x@2.png"),
        ("https://h/x.png?X-Amz-Signature=s&X-Amz-Date=1&n=2", "https://h/x.png?X-Amz-Signature=***&X-Amz-Date=***&n=2"),
        ("https://h/x.png?sv=1&se=2&sig=s%2F&n=2", "https://h/x.png?sv=***&se=***&sig=***&n=2"),
        ("https://h/x.png?Expires=1&Signature=s&Key-Pair-Id=k", "https://h/x.png?Expires=***&Signature=***&Key-Pair-Id=***"),
        ("https://h/x.png?access%5Ftoken=s", "https://h/x.png?access%5Ftoken=***"),
        ("https://h/x.png#access_token=s", "https://h/x.png#access_token=***"),
        ("s3://key:secret@bucket/x.png", "s3://***@bucket/x.png"),
    ],
)  # fmt: skip
def test_an_address_loses_its_secrets_and_nothing_else(address: str, kept: str) -> None:
    assert redacted_address(address) == kept
    assert redacted_address(kept) == kept


def test_names_of_secrets_are_told_from_names_that_look_like_them() -> None:
    hidden = "api_key apiKey X-API-Key token hf_token sig Signature password Authorization extra_headers OPENAI_API_KEY"
    plain = "max_tokens stop_token_ids prompt_cache_key eos_token monkey design author top_k safety_settings"
    assert [name for name in hidden.split() if not is_secret_name(name)] == []
    assert [name for name in plain.split() if is_secret_name(name)] == []


def test_what_holds_no_secret_is_kept_as_it_was() -> None:
    metadata = {
        "page": "https://h/a?b=1",
        "n": [1, {"x": "y"}],
        "token": "a word of the data set",
    }
    edit = Edit(
        "e",
        "https://h/x.png?a=1",
        None,
        "Paint it.",
        group="https://h/x.png",
        metadata=metadata,
    )
    item = item_of(edit, {})
    assert item.metadata is metadata
    assert (item.group, item.images["input"]["source"]) == (
        "https://h/x.png",
        "https://h/x.png?a=1",
    )
    extra = {"top_k": 3, "stop": ["a"], "logit_bias": {"1": 0.5}, "seed_text": "ab"}
    assert json_hash(redacted_options(extra)) == json_hash(extra)


def test_a_secret_of_an_older_export_does_not_enter_the_store(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with stub():
        assert (
            editjudge(
                "run", edits(tmp_path, 2), *RUN, "-J", "top_k=3", "--store", store
            ).code
            == 0
        )
    editjudge("export", "r", "-o", tmp_path / "old", "--store", store)
    about = json.loads((tmp_path / "old" / "run.json").read_text())
    about["spec"]["options"]["parameters"]["extra"] = {"api_key": OPTION}
    about["spec_hash"] = json_hash(about["spec"])
    del about["files"]
    (tmp_path / "old" / "run.json").write_text(json.dumps(about))
    lines = [
        json.loads(line)
        for line in (tmp_path / "old" / "items.jsonl").read_text().splitlines()
    ]
    for line in lines:
        line["images"]["edited"]["source"] = f"https://user:{PASSWORD}@host/x.png"
        line["metadata"] = {"page": f"https://host/?token={SECRETS['token']}"}
    (tmp_path / "old" / "items.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    (tmp_path / "new").mkdir()
    for _ in range(2):
        told: Told = editjudge(
            "import-run", tmp_path / "old", "--store", tmp_path / "new" / "s.db"
        )
        assert told.code == 0, told.err
    assert [
        found for found, data in files_below(tmp_path / "new") if not is_clean(data)
    ] == []
