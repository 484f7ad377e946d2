"""Requests to `/v1/judge` and `/v1/reward`: their models, and how a JSON or multipart body is read.

A request cannot name a path or a URL: it contains its pictures, and it names judges and rubrics of a fixed list.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError, from_json
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from editjudge.edit import IMAGE_ROLES, Edit
from editjudge.web.reduction import Formula
from editjudge.web.service_options import Terms

BASE64 = r"^(data:image/[a-z0-9.+-]{1,40};base64,)?([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""A picture in JSON. Only for the OpenAPI document: the decoder below is as strict, and much faster."""
_PREFIX = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,")
_PART = re.compile(rf"(?:edits\.(\d{{1,4}})\.)?({'|'.join(IMAGE_ROLES)})")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A string, or a character that begins or separates values."""
_TOKENS = 1000
"""Tokens of a request beside those of its edits: names of rubrics, weights,"""
_TOKENS_PER_EDIT = 500
"""and of each edit: 13 fields and 32 entries of metadata have 140 of them."""


class Refused(Exception):
    """A request that is refused: the HTTP status, a message, and what is wrong where in the request."""

    def __init__(self, status: int, error: str, problems: Iterable[tuple[str, str]] = (), wait: int | None = None):
        super().__init__(error)
        self.status, self.error, self.wait = status, error, wait
        self.problems = [{"where": where, "what": what} for where, what in problems]


def _decoded(value: Any) -> Any:
    """Strict base64, with or without the prefix of a `data:` URL."""
    if not isinstance(value, str):
        return value
    head = _PREFIX.match(value)
    text = value[head.end() :] if head else value
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        if len(text) != -(-len(data) // 3) * 4:  # Python accepts excess padding, even in strict mode
            raise ValueError("Excess padding")
        return data
    except (ValueError, UnicodeError) as error:
        what = "expected a picture in base64 or a data:image/...;base64, URL, never a path or an address ({why})"
        raise PydanticCustomError("picture", what, {"why": str(error)}) from None


Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EditTexts(_Model):
    """The text fields of an edit, named as in a manifest."""

    id: Name | None = Field(None, description="Comes back with the answer; its place in the batch without it.")
    instruction: str = Field("", max_length=20_000)
    referring_expression: str = Field("", max_length=2_000)
    model: Name | None = None
    edit_type: Name | None = None
    group: Name | None = None
    metadata: dict[str, str] = Field({}, max_length=32, description="Kept with the edit, such as a training step.")


def _picture(largest: int) -> Any:
    def bounded(data: bytes) -> bytes:
        if len(data) > largest:
            sizes = {"size": f"{len(data):,}", "largest": f"{largest:,}"}
            raise PydanticCustomError("too_large", "a picture of {size} bytes: at most {largest} are taken", sizes)
        return data

    schema = {"type": "string", "pattern": BASE64, "contentEncoding": "base64", "contentMediaType": "image/*"}
    return Annotated[bytes, BeforeValidator(_decoded), AfterValidator(bounded), WithJsonSchema(schema)]


class RequestModels:
    """The models of the requests that one server accepts, with its lists of judges, rubrics and factors."""

    def __init__(self, terms: Terms, judges: Iterable[str], rubrics: Iterable[str], factors: Iterable[str]) -> None:
        self._max_edits = terms.edits
        judge, rubric, factor = (_one_of(words) for words in (judges, rubrics, factors))
        picture: Any = _picture(terms.max_picture) | None
        pictures: dict[str, Any] = dict.fromkeys(IMAGE_ROLES, (picture, None))
        pictures["edited"] = (picture, Field(description="null: the editing model produced nothing."))
        edit: Any = create_model("Edit", __base__=EditTexts, **pictures)
        options: dict[str, Any] = {
            "judge": (judge | None, None),
            "rubrics": (Annotated[list[rubric], Field(min_length=1, max_length=16)] | None, None),  # type: ignore[valid-type]
            "strict": (bool, Field(False, description="Answer 503, with the same body, where anything failed.")),
            "deadline": (
                Annotated[float, Field(gt=0, le=terms.deadline)] | None,
                Field(None, description="Seconds; what is not judged by then is `pending`."),
            ),
        }
        weight = Annotated[float, Field(ge=1e-3, le=1e3)]
        reduction: dict[str, Any] = {
            "formula": (Formula | None, Field(None, description="How scores become one number.")),
            "weights": (
                Annotated[dict[factor, weight], Field(min_length=1)] | None,  # type: ignore[valid-type]
                Field(
                    None, description="The factors that count, and how much; by default only their rubrics are asked."
                ),
            ),
        }

        def many(kind: Any) -> dict[str, Any]:
            return {"edits": (Annotated[list[kind], Field(min_length=1, description=f"At most {terms.edits}.")], ...)}

        self.one = create_model("OneEdit", __base__=edit, **options)
        self.batch = create_model("Batch", __base__=_Model, **many(edit), **options)
        self.reward = create_model("RewardBatch", __base__=_Model, **many(edit), **options, **reduction)
        self.one_words = create_model("OneEditWords", __base__=EditTexts, **options)
        self.batch_words = create_model("BatchWords", __base__=_Model, **many(EditTexts), **options)
        self.reward_words = create_model("RewardBatchWords", __base__=_Model, **many(EditTexts), **options, **reduction)
        self.all = [self.one, self.batch, self.reward, self.one_words, self.batch_words, self.reward_words]

    def read(self, body: bytes | list[tuple[str, bytes]], *, rewards: bool) -> Any:
        """The validated request of a JSON body, or of the parts of a multipart body. Slow: for a thread."""
        values = self._json(body) if isinstance(body, bytes) else self._gathered(body)
        listed = values.get("edits") if isinstance(values, dict) else None
        if isinstance(listed, list) and len(listed) > self._max_edits:
            raise Refused(413, f"{len(listed):,} edits: at most {self._max_edits} are taken in one request")
        kind: Any = self.reward if rewards else self.one if listed is None else self.batch
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            where = [(".".join(map(str, one["loc"])), one["msg"]) for one in errors[:20]]
            status = 413 if any(one["type"] == "too_large" for one in errors) else 422
            raise Refused(status, _INVALID, where) from None

    def _json(self, data: bytes) -> Any:
        # As Python objects, empty JSON objects take 120 times their size: their number is bounded before any is made.
        most = _TOKENS + _TOKENS_PER_EDIT * self._max_edits
        at_most = sum(map(data.count, (b'"', b",", b"[", b"{")))  # base64 has none of these
        if at_most > most and any(count > most for count, _ in enumerate(_TOKEN.finditer(data), 1)):
            raise Refused(422, f"more than {most:,} values and separators: send smaller batches")
        try:
            return from_json(data, allow_inf_nan=False)
        except ValueError as error:
            raise Refused(422, "not JSON", [("", str(error)[:200])]) from None

    def _gathered(self, parts: list[tuple[str, bytes]]) -> dict[str, Any]:
        """The part `request` is the JSON; every other part is a picture, named as the field that it fills."""
        pictures = dict(parts)
        request: Any = self._json(pictures.pop("request", b""))
        if not isinstance(request, dict) or len(pictures) + 1 != len(parts):
            raise Refused(422, "the part `request` is one JSON object, and no part comes twice")
        if any(role in edit for edit in _listed(request) for role in IMAGE_ROLES):
            raise Refused(422, "beside the part `request`, pictures are parts of their own")
        for name, data in pictures.items():
            match = _PART.fullmatch(name)
            if not match:
                what = "expected request, or a picture named as its field: edited, edits.0.edited"
                raise Refused(422, "a part that is not known", [(name[:80], what)])
            number, role = match.groups()
            if number is None:
                request[role] = data
            elif int(number) >= self._max_edits:
                raise Refused(413, f"at most {self._max_edits} edits in one request")
            else:
                _edit_at(request, int(number))[role] = data
        for edit in _listed(request):
            edit.setdefault("edited", None)  # a part that is not there: nothing was produced
        return request


_INVALID = "the request cannot be taken as it is"


def _one_of(words: Iterable[str]) -> Any:
    return Literal[tuple(words)]


def edits_of(request: Any) -> list[Edit]:
    """The edits to judge; an edit without an id is named by its place in the batch."""
    models = request.edits if hasattr(request, "edits") else [request]
    names = [name for name in (*EditTexts.model_fields, *IMAGE_ROLES) if name != "id"]
    return [Edit(m.id or str(n), **{name: getattr(m, name) for name in names}) for n, m in enumerate(models)]


def _listed(request: dict[str, Any]) -> list[dict[str, Any]]:
    listed = request.get("edits", [request])
    return [edit for edit in listed if isinstance(edit, dict)] if isinstance(listed, list) else []


def _edit_at(request: dict[str, Any], number: int) -> dict[str, Any]:
    """The edit of that number; the list is filled up to it with empty ones."""
    listed = request.get("edits")
    if not isinstance(listed, list) or not listed:
        what = "there are pictures of a batch, and the part `request` has no list of edits"
        raise Refused(422, _INVALID, [("edits", what)])
    listed += [{} for _ in range(number + 1 - len(listed))]
    return listed[number] if isinstance(listed[number], dict) else {}


# --- bodies ---------------------------------------------------------------------------------------------------


async def body(request: Request, terms: Terms, hold: Callable[[int], None]) -> bytes | list[tuple[str, bytes]]:
    """The bytes of a JSON body, or the parts of a multipart body. The terms bound its size; `hold` counts the bytes
    as they come, and refuses them where there is no room."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    size = 0

    async def bounded() -> AsyncGenerator[bytes, None]:
        nonlocal size
        async for chunk in request.stream():
            size += len(chunk)
            if size > terms.max_body:
                raise Refused(413, f"more than {terms.max_body:,} bytes: send smaller batches")
            hold(len(chunk))
            yield chunk

    if kind == "application/json":
        return b"".join([chunk async for chunk in bounded()])
    if kind == "multipart/form-data":
        return await _parts(request, bounded(), terms)
    raise Refused(415, f'"{kind[:80]}" is not taken: send application/json or multipart/form-data')


async def _parts(request: Request, stream: AsyncGenerator[bytes, None], terms: Terms) -> list[tuple[str, bytes]]:
    most = 1 + len(IMAGE_ROLES) * terms.edits
    parser = MultiPartParser(request.headers, stream, max_files=most, max_fields=most, max_part_size=terms.max_body)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        why = str(getattr(error, "message", error))[:200]
        raise Refused(422, "not a multipart body that can be read", [("", why)]) from None
    try:
        return [(name, await p.read() if isinstance(p, UploadFile) else _raw(p)) for name, p in form.multi_items()]
    finally:
        await form.close()


def _raw(text: str) -> bytes:
    """The bytes of a part without a file name, which the parser decodes as UTF-8, or else as Latin-1."""
    try:
        data = text.encode("latin-1")
        data.decode("utf-8")
    except UnicodeEncodeError:
        return text.encode()
    except UnicodeDecodeError:
        return data
    return text.encode()
