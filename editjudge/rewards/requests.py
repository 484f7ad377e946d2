"""Reading and validation of request bodies for `/v1/judge` and `/v1/reward`: JSON, multipart and msgpack."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, Self, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from editjudge.edit import IMAGE_ROLES, MAX_IMAGES
from editjudge.files import replacing
from editjudge.media.cache import KnownImage
from editjudge.rewards.protocol import (
    JudgeRequest,
    OneEditRequest,
    Problem,
    Refusal,
    RequestModels,
    RewardedEdit,
    RewardRequest,
    Terms,
)

_log = logging.getLogger(__name__)

_MULTIPART = "multipart/form-data"
_MSGPACK = ("application/msgpack", "application/x-msgpack")
TYPES = ("application/json", _MULTIPART, *_MSGPACK)
"""Accepted content types."""
_PART = re.compile(
    rf"(?:edits\.(\d{{1,4}})\.)?(?:({'|'.join(IMAGE_ROLES)})|references\.(\d{{1,2}}))"
)
"""Name of a multipart part. It consists of the edit's number, and the field or the number of a reference image."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A JSON string, or a character that begins or separates values."""
_TOKENS = 1000
"""Maximum number of tokens in a request apart from its edits, such as names of rubrics and weights."""
_TOKENS_PER_EDIT = 500
"""Maximum number of tokens in each edit. An edit with 13 fields and 32 entries of metadata has 140."""
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Size in bytes of the length field for msgpack's bytes and strings. Extension types are refused during parsing."""
_FIXED = {
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    # Lists and maps: only the length field is skipped, since their values follow.
    0xDC: 2,
    0xDD: 4,
    0xDE: 2,
    0xDF: 4,
}
"""Number of bytes after the type byte, for msgpack values of fixed size."""
_INVALID = "the request is invalid"

M = TypeVar("M", bound=BaseModel)
JsonObject = dict[str, object]
Option = Literal[
    "judge",
    "judge_for",
    "judges",
    "rubrics",
    "score",
    "formula",
    "weights",
    "use",
    "samples",
]
"""Fields of a request to `/v1/reward` that a mode may set."""
ModeOptions = Mapping[Option, object]


class Body(NamedTuple):
    """The body of a request."""

    kind: str
    """Content type."""
    data: bytes
    parts: Sequence[tuple[str, bytes]] = ()
    """Parts of a multipart body. If there are any, `data` is empty."""


class Refused(Exception):
    """Raised to refuse a request, with the HTTP status, a message, and problems with their location in the request."""

    def __init__(
        self,
        status: int,
        error: str,
        problems: Iterable[tuple[str, str]] = (),
        wait: int | None = None,
    ):
        super().__init__(error)
        self.status = status
        self.error = error
        self.wait = wait
        self.problems = [Problem(where=where, what=what) for where, what in problems]

    @classmethod
    def at(cls, where: str, what: str) -> Self:
        """Return the refusal for one field of a request."""
        return cls(422, what, [(where, what)])

    @property
    def refusal(self) -> Refusal:
        return Refusal(error=self.error, problems=self.problems)


class RequestReader:
    """Reads the requests that one server accepts."""

    def __init__(self, models: RequestModels, max_edits: int) -> None:
        self._models = models
        self._max_edits = max_edits
        self.max_values = _TOKENS + _TOKENS_PER_EDIT * max_edits
        """Maximum number of values and separators in one request."""

    def judging(self, body: Body) -> JudgeRequest | OneEditRequest:
        """Parse a body for `/v1/judge`. This is slow, so call it in a thread."""
        values = self._values(body)
        if isinstance(values, dict) and values.get("edits") is not None:
            return self._validated(self._models.batch, values)
        return self._validated(self._models.one, values)

    def rewarding(self, body: Body) -> RewardRequest:
        """Parse a body for `/v1/reward`. This is slow, so call it in a thread."""
        return self._validated(self._models.reward, self._values(body))

    def valid_options(self, options: ModeOptions) -> RewardRequest:
        """Return a request with these options and an empty edit. Raise `Refused` if the options are invalid."""
        values: JsonObject = dict(options.items())
        values["edits"] = [{"edited": None}]
        return self._validated(self._models.reward, values)

    def valid_edits(
        self,
        edits: Sequence[JsonObject],
        options: ModeOptions,
        bad: dict[int, RewardedEdit],
    ) -> RewardRequest | None:
        """Return a reward request with the valid edits, or None if there are none. Invalid edits are added to `bad`.

        Raise `Refused` if the request itself is invalid.
        """
        self._check_count(edits)
        numbers = [n for n in range(len(edits)) if n not in bad]
        while numbers:
            # The id of an edit is its number among all edits, including invalid ones.
            taken = [{"id": str(n)} | edits[n] for n in numbers]
            try:
                return self._models.reward.model_validate({"edits": taken, **options})
            except ValidationError as error:
                for problem in _problems(error):
                    match problem["loc"]:
                        case ("edits", int(at), name, *_):
                            status = "bad_image" if name in IMAGE_ROLES else "error"
                            message = f"{name}: {problem['msg']}"
                            number = numbers[at]
                            failed = RewardedEdit.not_taken(
                                str(number), status, message
                            )
                            bad.setdefault(number, failed)
                        case _:
                            raise _invalid([problem]) from None
                numbers = [n for n in numbers if n not in bad]
        return None

    def parse(self, data: bytes) -> object:
        """Parse a JSON body, limiting the number of values."""
        # Values are counted before parsing, since empty JSON objects take 120 times their size as Python objects.
        most = self.max_values
        # Base64 does not contain these characters.
        at_most = sum(map(data.count, (b'"', b",", b"[", b"{")))
        if at_most > most and any(
            count > most for count, _ in enumerate(_TOKEN.finditer(data), 1)
        ):
            raise Refused(
                422, f"more than {most:,} values and separators: send smaller batches"
            )
        try:
            return from_json(data, allow_inf_nan=False)
        except ValueError as error:
            raise Refused(422, "not JSON", [("", str(error)[:200])]) from None

    def _values(self, body: Body) -> object:
        if body.kind == _MULTIPART:
            return self._gathered(body.parts)
        if body.kind in _MSGPACK:
            return self._unpacked(body.data)
        return self.parse(body.data)

    def _validated(self, model: type[M], values: object) -> M:
        edits = values.get("edits") if isinstance(values, dict) else None
        if isinstance(edits, list):
            self._check_count(edits)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            raise _invalid(_problems(error)) from None

    def _check_count(self, edits: Sequence[object]) -> None:
        if len(edits) > self._max_edits:
            raise Refused(
                413,
                f"{len(edits):,} edits: at most {self._max_edits} are accepted in one request",
            )

    def _unpacked(self, data: bytes) -> object:
        try:
            import msgpack  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise Refused(
                415,
                "this server cannot read msgpack (the package msgpack is not installed): send JSON",
            ) from None
        if msgpack_values(data, self.max_values) > self.max_values:
            raise Refused(
                422, f"more than {self.max_values:,} values: send smaller batches"
            )
        try:
            return msgpack.unpackb(data, ext_hook=_no_extension)
        except (ValueError, TypeError, RecursionError) as error:
            # msgpack raises ValueError, except if a key is invalid.
            problem = str(error)[:200] or type(error).__name__
            raise Refused(422, "the body is not msgpack", [("", problem)]) from None

    def _gathered(self, parts: Sequence[tuple[str, bytes]]) -> JsonObject:
        """Return the values in a multipart body. The part `request` is JSON; every other part is an image, named after
        its field."""
        images = dict(parts)
        request = self.parse(images.pop("request", b""))
        if not isinstance(request, dict) or len(images) + 1 != len(parts):
            raise Refused(
                422, "expected a part `request` with a JSON object, and each part once"
            )
        for edit in _edits(request):
            if not edit.keys().isdisjoint((*IMAGE_ROLES, "references")):
                raise Refused(
                    422,
                    "in a multipart body images are separate parts, not in `request`",
                )
        named = [(self._part(name), data) for name, data in images.items()]
        for part, data in sorted(named, key=lambda pair: int(pair[0][3] or 0)):
            number, role, _ = part.groups()
            edit = request if number is None else _edit_at(request, int(number))
            if role:
                edit[role] = data
            else:
                references = edit.setdefault("references", [])
                assert isinstance(references, list)  # noqa: S101  (checked above)
                references.append(data)
        for edit in _edits(request):
            # A missing part means that the editing model produced nothing.
            edit.setdefault("edited", None)
        return request

    def _part(self, name: str) -> re.Match[str]:
        match = _PART.fullmatch(name)
        if not match:
            what = "expected request, or an image with the name of its field: edited, edits.0.edited"
            raise Refused(422, "unknown part of a multipart body", [(name[:80], what)])
        if int(match[1] or 0) >= self._max_edits:
            raise Refused(413, f"at most {self._max_edits} edits in one request")
        return match


def _problems(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_input=False)


def _invalid(problems: Sequence[ErrorDetails]) -> Refused:
    where = [(".".join(map(str, p["loc"])), p["msg"]) for p in problems[:20]]
    too_large = any(problem["type"] == "too_large" for problem in problems)
    return Refused(413 if too_large else 422, _INVALID, where)


def _no_extension(code: int, _: bytes) -> NoReturn:
    raise ValueError(f"an extension type ({code}): only plain values are accepted")


def msgpack_values(data: bytes, most: int) -> int:
    """Return the number of values in a msgpack body without parsing it. Counting stops when it exceeds `most`."""
    at = 0
    count = 0
    while at < len(data) and count <= most:
        kind = data[at]
        count += 1
        at += 1
        if kind in _LENGTHS:
            width = _LENGTHS[kind]
            at += width + int.from_bytes(data[at : at + width])
        elif 0xA0 <= kind <= 0xBF:  # a short string
            at += kind & 0x1F
        else:
            at += _FIXED.get(kind, 0)
    return count


def _edits(request: JsonObject) -> list[JsonObject]:
    """Return the edits in a request that are JSON objects. A request without a list of edits is itself the edit."""
    edits = request.get("edits", [request])
    return [e for e in edits if isinstance(e, dict)] if isinstance(edits, list) else []


def _edit_at(request: JsonObject, number: int) -> JsonObject:
    """Return the edit with this number, extending the list with empty edits if necessary."""
    edits = request.get("edits")
    if not isinstance(edits, list) or not edits:
        what = (
            "there are images of a batch, but the part `request` has no list of edits"
        )
        raise Refused(422, _INVALID, [("edits", what)])
    edits += [{} for _ in range(number + 1 - len(edits))]
    return edits[number] if isinstance(edits[number], dict) else {}


async def body(
    request: Request,
    terms: Terms,
    hold: Callable[[int], None],
    accepted: Sequence[str] = TYPES,
) -> Body:
    """Read the body of a request. Raise `Refused` if it is too large or its type is not accepted.

    `hold` is called with the size of each chunk, and raises an error if there is no room.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    size = 0

    async def bounded() -> AsyncGenerator[bytes, None]:
        nonlocal size
        async for chunk in request.stream():
            size += len(chunk)
            if size > terms.max_body:
                raise Refused(
                    413, f"more than {terms.max_body:,} bytes: send smaller batches"
                )
            hold(len(chunk))
            yield chunk

    if kind not in accepted:
        expected = " or ".join(name or "no type" for name in accepted[:3])
        raise Refused(
            415, f'the content type "{kind[:80]}" is not accepted: send {expected}'
        )
    if kind == _MULTIPART:
        return Body(kind, b"", await _parts(request, bounded(), terms))
    return Body(kind, b"".join([chunk async for chunk in bounded()]))


class _PartsParser(MultiPartParser):
    def close(self) -> None:
        """Close all files, including those of truncated parts and refused bodies, which are not part of any parsed
        form."""
        for file in self._files_to_close_on_error:
            file.close()


async def _parts(
    request: Request, stream: AsyncGenerator[bytes, None], terms: Terms
) -> list[tuple[str, bytes]]:
    most = 1 + (len(IMAGE_ROLES) + MAX_IMAGES) * terms.edits
    parser = _PartsParser(
        request.headers,
        stream,
        max_files=most,
        max_fields=most,
        max_part_size=terms.max_body,
    )
    try:
        form = await parser.parse()
        return [
            (name, await p.read() if isinstance(p, UploadFile) else _raw(p))
            for name, p in form.multi_items()
        ]
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        problem = str(error)[:200]
        raise Refused(
            422, "the multipart body cannot be read", [("", problem)]
        ) from None
    finally:
        parser.close()


def _raw(text: str) -> bytes:
    """Return the bytes of a part without a file name. The parser has decoded them as UTF-8 or Latin-1."""
    try:
        data = text.encode("latin-1")
        data.decode("utf-8")
    except UnicodeEncodeError:
        return text.encode()
    except UnicodeDecodeError:
        return data
    return text.encode()


class UploadFolder:
    """A folder with the images that clients sent, which the review pages can show. Images are named by digest.

    It grows to at most `most` bytes. Images are never removed.
    """

    def __init__(self, folder: Path, most: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.resolve()
        self._most = most
        self._size = sum(
            entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()
        )
        self._lock = threading.Lock()
        self._is_failing = False

    def keep(self, data: bytes, image: KnownImage) -> str | None:
        """Store an image and return its path. Return None if it is not an image, if the folder is full, or if writing
        fails. The edit is judged in any case."""
        if image.info is None:
            return None
        path = self.folder / f"{image.digest}.{image.info.format}"
        with self._lock:
            if path.exists():
                return str(path)
            if self._size + len(data) > self._most:
                return None
            try:
                with replacing(path) as partial:
                    partial.write_bytes(data)
            except OSError as error:
                if not self._is_failing:
                    _log.error(
                        "%s: images cannot be stored and are only judged: %s",
                        self.folder,
                        error,
                    )
                self._is_failing = True
                return None
            self._is_failing = False
            self._size += len(data)
        return str(path)
