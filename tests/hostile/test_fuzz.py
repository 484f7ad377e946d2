"""Whatever comes in, bent and broken: a right answer or a refusal in words. `make soak` goes on with Atheris.

Replies are bent harder in `rubrics/test_contract_properties.py`, manifests of any JSON in `test_manifest.py`, requests
by their schema in `web/test_service_schema.py`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, seeds
from tests import patient
from tests.running.made import editjudge, edits
from tests.web.served import Served, edit, serving

calm = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))

PIECES = [
    b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n\n", b'"', b"{", b"}}", b"[[[", b"null", b"NaN", b"-0",
    b"1e999", b"9" * 400, b"../" * 9, b"<script>", b"\x1b[2J", "\u202e".encode(), b"&a [*a, *a]", b"!!python/name:os",
    b"{0.__class__}", b"%s%n", b"${x}", b"=1+1", b"data:image/png;base64,AAAA", b"http://127.0.0.1:1/x.png",
]  # fmt: skip


@st.composite
def bent(draw: st.DrawFn, starts: list[bytes]) -> bytes:
    """A sound input with a few cuts, copies and foreign pieces."""
    data = draw(st.sampled_from(starts))
    for _ in range(draw(st.integers(0, 4))):
        a, b = sorted(
            draw(st.tuples(st.integers(0, len(data)), st.integers(0, len(data))))
        )
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=8))
        data = draw(
            st.sampled_from(
                [
                    data[:a] + piece + data[b:],
                    data[:b] + piece + data[a:],
                    data[:a] + piece + data[a + 1 :],
                ]
            )
        )
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_answered_or_refused_in_words(name: str) -> None:
    starts = seeds(name)
    for start in starts:
        TARGETS[name](start)

    @calm
    @given(bent(starts) | st.binary(max_size=64))
    def hold(data: bytes) -> None:
        TARGETS[name](data)

    hold()


@pytest.mark.parametrize("name", ["manifest", "ratings"])
def test_a_damaged_page_and_text_that_is_none_in_parquet_are_refused_in_words(
    name: str,
) -> None:
    """Found by fuzzing: neither is an exception of Arrow's own."""
    whole = next(seed for seed in seeds(name) if seed.startswith(b"\2"))
    TARGETS[name](whole.replace(b"PAR1" + whole[5:13], b"PAR1" + b"\xff" * 8, 1))
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\x8d")]
    )
    out = io.BytesIO()
    columns = {
        "manifest": ["id", "input"],
        "ratings": ["item", "rater", "factor", "score"],
    }[name]
    pq.write_table(pa.table(dict.fromkeys(columns, text)), out)
    TARGETS[name](b"\2" + out.getvalue())


def test_word_limits_the_wrong_way_round_are_none() -> None:
    """Found by fuzzing."""
    example = '{{"alignment": {{"score": <1-7>, "justification": "<83-60 words>"}}}}'
    TARGETS["prompt"](
        f"Instruction: {{instruction}}\nScore from 1 to 7.\nAnswer with JSON: {example}\n".encode()
    )


# --- over HTTP ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "r.jsonl").write_text(
        json.dumps({"item": "e0", "rubric": "preservation", "reply": "{}"})
    )
    judge = f"replay:{folder / 'r.jsonl'}"
    words = (
        "--rubric",
        "preservation",
        "--judge",
        judge,
        "--store",
        folder / "s.db",
        "--max-failures",
        "1",
    )
    assert editjudge("run", edits(folder, 4), *words).code == 0
    with (
        serving(folder / "s.db", judge=judge) as served,
        patient.Client(base_url=served.url) as person,
    ):
        person.post("/rate/name", data={"name": "Ada"})
        made = {
            "run": "1",
            "rubric": "preservation",
            "name": "pilot",
            "quota": "4",
            "overlap": "2",
            "controls": "0",
        }
        assert person.post("/rate/new", data=made).status_code == 303
        served.client.cookies = person.cookies
        yield served


BODIES = [
    json.dumps({"edits": [edit(0)], **more}).encode()
    for more in ({}, {"rubrics": ["online"]}, {"deadline": 5})
]
leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    leaf,
    lambda x: (
        st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=9), x, max_size=3)
    ),
)
fields = st.sampled_from(
    [
        "edits",
        "rubrics",
        "judge",
        "formula",
        "weights",
        "deadline",
        "strict",
        "input",
        "id",
        "mask",
    ]
)
KINDS = [
    "application/json",
    "multipart/form-data; boundary=x",
    "text/plain",
    "application/x-pickle",
    "",
    "a/b; c=\x01",
]


@calm
@given(st.sampled_from(["judge", "reward"]), bent(BODIES), st.sampled_from(KINDS))
def test_a_request_of_any_bytes_is_answered(
    served: Served, what: str, body: bytes, kind: str
) -> None:
    look(served.post(what, content=body, headers={"content-type": kind}))


@calm
@given(
    st.sampled_from(["judge", "reward"]), st.dictionaries(fields, anything, max_size=4)
)
def test_a_request_of_any_values_is_answered(
    served: Served, what: str, more: dict[str, Any]
) -> None:
    body = {
        "edits": [
            edit(0) | {k: more.pop(k) for k in ("input", "id", "mask") if k in more}
        ],
        **more,
    }
    look(
        served.post(
            what, content=json.dumps(body), headers={"content-type": "application/json"}
        )
    )


def look(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 413, 415, 422), answer.text
    said = answer.json()
    if answer.status_code != 200:
        assert said["error"] and "Traceback" not in answer.text
        return
    for reward in said.get("rewards", ()):
        assert (reward["reward"] is None) == (reward["status"] != "ok") and reward[
            "reward"
        ] != 0


words = st.text(max_size=30) | st.sampled_from(
    ["1", "7", "-1", "1e9", "nan", "0x1", "１", "1\n", "skip", "null"]
)
factors = st.sampled_from(
    [
        "unchanged_regions",
        "global_consistency",
        "identity_preservation",
        "score",
        "note",
        "run",
    ]
)
PAGES = [
    "/rate/1/1",
    "/rate/1/0",
    f"/rate/1/{10**30}",
    f"/rate/{2**63}/1",
    "/rate/new",
    "/rate/name",
    "/sign-in",
]


@calm
@given(st.sampled_from(PAGES), st.dictionaries(factors, words, max_size=5))
def test_a_form_of_any_words_is_answered_and_keeps_only_scores_of_the_scale(
    served: Served, path: str, form: dict[str, str]
) -> None:
    client = served.client
    cookies = dict(client.cookies)
    answer = client.post(f"{served.url}{path}", content=httpx.QueryParams(form).__str__().encode(),
                         headers={"content-type": "application/x-www-form-urlencoded"})  # fmt: skip
    client.cookies = httpx.Cookies(cookies)
    assert answer.status_code < 500, (path, form, answer.text)
    kept = client.get(f"{served.url}/ratings.csv").text.splitlines()[1:]
    assert all(line.rsplit(",", 1)[1] in "1234567" for line in kept), kept


@calm
@given(
    st.sampled_from(["/runs/1", "/", "/compare", "/runs/1/edits/e0"]),
    st.dictionaries(
        st.sampled_from(
            [
                "q",
                "sort",
                "model",
                "page",
                "factor",
                "min",
                "max",
                "judge",
                "status",
                "a",
                "b",
            ]
        ),
        words,
        max_size=4,
    ),
)
def test_a_page_asked_for_in_any_words_is_answered(
    served: Served, path: str, query: dict[str, str]
) -> None:
    answer = served.client.get(f"{served.url}{path}", params=query)
    assert answer.status_code < 500, (path, query, answer.text)
