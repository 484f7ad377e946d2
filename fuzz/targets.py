"""Targets: bytes in, and nothing but a right answer or an `EditjudgeError` with words out. Anything else raises."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jsonschema.validators import Draft202012Validator
from starlette.requests import Request

from editjudge import manifest, ratings
from editjudge.errors import EditjudgeError
from editjudge.media import image as images
from editjudge.media.source import ImageBounds
from editjudge.rewards import requests as sent
from editjudge.rewards.protocol import RequestModels, Terms
from editjudge.rubrics import files
from editjudge.rubrics.contract import check
from editjudge.rubrics.importing import import_prompt
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Failure

Target = Callable[[bytes], None]

_BOUNDS = ImageBounds(max_pixels=2**20)
"""A picture takes milliseconds, so that many are tried."""
_RUBRICS = [files.load(name) for name in files.names()]
_ANSWER = {
    "image_id": "a",
    "online_factor_results": {
        key: {
            "score": 6,
            "justification": "The wall behind the chair kept its colour, its grain and its light.",
        }
        for key in ("unchanged_regions", "global_consistency", "identity_preservation")
    },
}


@contextlib.contextmanager
def refused_in_words() -> Iterator[None]:
    """An error of ours that says something, on lines that a terminal can be shown; every other one goes through."""
    try:
        yield
    except EditjudgeError as error:
        assert str(error).strip(), f"{type(error).__name__} without a word"
        assert len(str(error)) < 100_000, "a message longer than what it is about"


def contract(data: bytes) -> None:
    """No score that the reply does not write; the same outcome twice."""
    rubric = _RUBRICS[data[0] % len(_RUBRICS)] if data else _RUBRICS[0]
    reply = data[1:].decode("utf-8", "replace")
    outcome = check(rubric, reply)
    assert check(rubric, reply) == outcome
    json.dumps(outcome.as_json(), allow_nan=False).encode()
    if isinstance(outcome, Failure):
        assert outcome.reasons and outcome.as_json()["scores"] is None
        return
    written = set(re.findall(r"-?\d+", reply))
    for factor in rubric.factors:
        score = outcome.scores[factor.key]
        assert (
            type(score) is int
            and score in factor.scale.values
            and str(score) in written
        ), (rubric.name, score)


def rubric_file(data: bytes) -> None:
    """What loads is written and loads again as the same rubric."""
    with contextlib.suppress(UnicodeDecodeError), refused_in_words():
        rubric: Rubric = files.parse(data.decode())
        assert files.parse(files.dump(rubric)).hash == rubric.hash


def prompt(data: bytes) -> None:
    """A prompt becomes a rubric that loads again, or questions about it."""
    with contextlib.suppress(UnicodeDecodeError), refused_in_words():
        imported = import_prompt(data.decode(), "imported")
        assert (imported.rubric is None) == bool(imported.asks)
        if imported.rubric:
            assert files.parse(files.dump(imported.rubric)).hash == imported.rubric.hash


def manifest_file(data: bytes) -> None:
    """JSONL, CSV or Parquet, by the first byte: edits with distinct ids."""
    with _file(data) as path, refused_in_words():
        ids = [edit.id for edit in manifest.read(path, notify=_nobody)]
        assert len(set(ids)) == len(ids)


def ratings_file(data: bytes) -> None:
    """Finite scores of somebody about something."""
    with _file(data) as path, refused_in_words():
        for rating in ratings.unique_ratings(path):
            assert (
                rating.item
                and rating.rater
                and rating.factor
                and rating.score - rating.score == 0
            )


def picture(data: bytes) -> None:
    """Pixels of the size that the header claimed, within bounds."""
    with refused_in_words():
        info = images.probe(data, bounds=_BOUNDS)
        seen = images.decode(data, bounds=_BOUNDS)
        assert seen.mode == "RGB" and sorted(seen.size) == sorted(
            (info.width, info.height)
        ), (info, seen.size)


def request(data: bytes) -> None:
    """The body of a request, JSON or multipart by the first byte: what is taken is what the document allows."""
    parted, rewards = (bool(data[0] & bit) if data else False for bit in (1, 2))
    kind = b"multipart/form-data; boundary=x" if parted else b"application/json"
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"content-type", kind)],
    }
    messages = iter([{"type": "http.request", "body": data[1:], "more_body": False}])

    async def receive() -> Any:
        return next(messages)

    sizes: list[int] = []
    try:
        body = asyncio.run(sent.body(Request(scope, receive), _TERMS, sizes.append))
        taken = _READER.rewarding(body) if rewards else _READER.judging(body)
    except sent.Refused as refused:
        assert 400 <= refused.status < 500 and refused.error, refused
        return
    edits = [edit.edit(number) for number, edit in enumerate(taken.edits)]
    assert sum(sizes) == len(data[1:]) and 1 <= len(edits) <= _TERMS.edits
    if body.kind == "application/json":
        _SCHEMAS[type(taken)].validate(json.loads(body.data))


_TERMS = Terms(max_image=64, max_body=4096, max_edits=4)
_MODELS = RequestModels(
    _TERMS, ["measured"], ["online", "lighting"], ["alignment", "fidelity.alignment"]
)
_READER = sent.RequestReader(_MODELS, _TERMS.edits)
_SCHEMAS: dict[Any, Any] = {
    model: Draft202012Validator(model.model_json_schema())
    for model in (_MODELS.one, _MODELS.batch, _MODELS.reward)
}


TARGETS: Mapping[str, Target] = {
    "contract": contract,
    "manifest": manifest_file,
    "picture": picture,
    "prompt": prompt,
    "ratings": ratings_file,
    "request": request,
    "rubric": rubric_file,
}


_SUFFIXES = (".jsonl", ".csv", ".parquet")


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[Path]:
    memory = "/dev/shm"  # noqa: S108  (what is made in it has a name of its own, and is ours alone)  # nosec B108
    with tempfile.TemporaryDirectory(
        dir=memory if os.path.isdir(memory) else None
    ) as folder:
        path = Path(folder, f"m{_SUFFIXES[data[0] % 3 if data else 0]}")
        path.write_bytes(data[1:])
        yield path


def _nobody(_: str) -> None:
    """Takes what a user would be told."""


# --- where fuzzing starts -------------------------------------------------------------------------------------


def seeds(name: str) -> list[bytes]:
    """A few small inputs of our own that a target accepts."""
    made: Mapping[str, Callable[[], Iterable[bytes]]] = {
        "contract": _replies,
        "manifest": functools.partial(
            _tables,
            [{"id": "a", "input": "a.png", "edited": "b.png", "instruction": "x"}],
        ),
        "picture": _pictures,
        "prompt": _prompts,
        "ratings": functools.partial(
            _tables, [{"item": "a", "rater": "r", "factor": "f", "score": 3}]
        ),
        "request": _requests,
        "rubric": lambda: [files.dump(rubric).encode() for rubric in _RUBRICS[::3]],
    }
    return list(made[name]())


def _replies() -> Iterator[bytes]:
    text = json.dumps(_ANSWER)
    yield b"\0" + text.encode()
    yield b"\0" + f"<think>no</think>\n```json\n{text}\n```\n".encode()
    yield (
        b"\4"
        + b'## JSON\n{"Contextual_Preservation": {"reason": "Only light.", "score": 1}}'
    )
    yield b"\5" + b'{"reasoning": "1. Seen.", "effect_score": 5}'


def _tables(rows: list[dict[str, Any]]) -> Iterator[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    yield b"\0" + b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    yield b"\1" + "\n".join(lines).encode()
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    yield b"\2" + out.getvalue()


def _requests() -> Iterator[bytes]:
    words = {"id": "a", "instruction": "x", "metadata": {"step": "1"}}
    edit = words | {"input": "AAAA", "edited": "data:image/png;base64,AA=="}
    yield b"\0" + json.dumps(edit | {"judge": "measured", "strict": True}).encode()
    reduced = {
        "rubrics": ["online"],
        "formula": "min",
        "weights": {"alignment": 1.5},
        "deadline": 9,
    }
    yield (
        b"\2"
        + json.dumps({"edits": [edit, words | {"edited": None}], **reduced}).encode()
    )
    part = '--x\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n{}\r\n'
    for first, content, name in (
        (b"\1", words, "edited"),
        (b"\3", {"edits": [words]}, "edits.0.edited"),
    ):
        parts = part.format("request", "", json.dumps(content)) + part.format(
            name, '; filename="b"', "AA"
        )
        yield first + f"{parts}--x--\r\n".encode()


def _pictures() -> Iterator[bytes]:
    from PIL import Image

    exif = Image.Exif()
    exif[274] = 6
    for codec, mode in (
        ("PNG", "RGBA"),
        ("JPEG", "CMYK"),
        ("GIF", "P"),
        ("WEBP", "RGB"),
        ("TIFF", "RGB"),
        ("BMP", "P"),
    ):
        out = io.BytesIO()
        more = {"exif": exif.tobytes()} if codec in ("PNG", "JPEG", "WEBP") else {}
        Image.new(mode, (9, 7)).save(out, codec, **more)
        yield out.getvalue()
    head = struct.pack(">IIBBBBB", 2, 2, 16, 0, 0, 0, 0)
    chunks = (
        (b"IHDR", head),
        (b"IDAT", zlib.compress(b"\0\1\2\3\4" * 2)),
        (b"IEND", b""),
    )
    packed = (
        struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b))
        for k, b in chunks
    )
    yield b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _prompts() -> Iterator[bytes]:
    yield (
        b"You see the input image and the edited image.\nInstruction: {instruction}\nScore from 1 to 7.\n"
        b'Answer with JSON: {{"alignment": {{"score": <1-7>, "justification": "<20-60 words>"}}}}\n'
    )
    yield b'# Role\nJudge.\n<input_image> <edited_image>\n```json\n{"score": 0, "reason": "..."}\n```\nscore is 0 or 1'
