"""Requests to `/v1/judge` and `/v1/reward`: their models, and how a JSON, multipart or msgpack body is read.

A request cannot name a path or a URL: it contains its pictures, and it names judges and rubrics of a fixed list.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

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

from editjudge.edit import IMAGE_ROLES, MAX_PICTURES, Edit
from editjudge.web.reduction import LEAST_WEIGHT, MOST_WEIGHT, Formula
from editjudge.web.site import Terms

PROTOCOL = 1
"""The version of the reward protocol (docs/reward-protocol.md): it grows when a client of the one before would fail."""
_KEPT_AS_METADATA = ("session", "turn")
BASE64 = r"^(data:image/[a-z0-9.+-]{1,40};base64,)?([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
"""A picture in JSON. Only for the OpenAPI document: the decoder below is as strict, and much faster."""
_JSON, _MULTIPART = "application/json", "multipart/form-data"
_MSGPACK = ("application/msgpack", "application/x-msgpack")
TYPES = (_JSON, _MULTIPART, *_MSGPACK)
"""Of a body."""
_PREFIX = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,")
_PART = re.compile(rf"(?:edits\.(\d{{1,4}})\.)?({'|'.join(IMAGE_ROLES)}|references\.\d{{1,2}})")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A string, or a character that begins or separates values."""
_TOKENS = 1000
"""Tokens of a request beside those of its edits: names of rubrics, weights,"""
_TOKENS_PER_EDIT = 500
"""and of each edit: 13 fields and 32 entries of metadata have 140 of them."""


class Packed(NamedTuple):
    """A msgpack body."""

    data: bytes


class BadEdit(NamedTuple):
    """An edit of a trainer's request that cannot be judged as it was sent: it fails alone."""

    status: str
    """As of a reward."""
    message: str


Body = bytes | list[tuple[str, bytes]] | Packed
"""JSON, the parts of a multipart body, or msgpack."""


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


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_number(least: int, most: int) -> Any:
    """As JSON Schema has it: 2.0 is one, and `true` is none."""
    return Annotated[int, Field(ge=least, le=most), BeforeValidator(_whole)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EditTexts(_Model):
    """The text fields of an edit, named as in a manifest."""

    id: Name | None = Field(None, description="Comes back with the answer; its place in the batch without it.")
    instruction: str = Field("", max_length=20_000)
    referring_expression: str = Field("", max_length=2_000)
    model: Name | None = None
    edit_type: Name | None = None
    group: Name | None = Field(None, description="Edits that are compared: the outputs of one input and instruction.")
    session: Name | None = Field(None, description="The conversation that the edit is a turn of.")
    turn: Annotated[int, Field(ge=0, le=10**6), BeforeValidator(_whole)] | None = None
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
        self.max_values = _TOKENS + _TOKENS_PER_EDIT * self._max_edits
        """Of one request, with their separators."""
        judge, rubric, factor = (Literal[tuple(words)] for words in (judges, rubrics, factors))
        weight = Annotated[float, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)]
        data: Any = _picture(terms.max_picture)
        pictures: dict[str, Any] = dict.fromkeys(IMAGE_ROLES, (data | None, None))
        pictures["edited"] = (data | None, Field(description="null: the editing model produced nothing."))
        references: Any = Annotated[list[data], Field(max_length=MAX_PICTURES)]
        pictures["references"] = (references, Field([], description="Further pictures, for rubrics that show them."))
        edit: Any = create_model("Edit", __base__=EditTexts, **pictures)

        def field(kind: Any, default: Any, description: str) -> tuple[Any, Any]:
            return kind, Field(default, description=description)

        version, samples = _whole_number(PROTOCOL, PROTOCOL), _whole_number(1, terms.max_samples)
        seconds: Any = Annotated[float, Field(gt=0, le=terms.deadline)] | None
        mixture: Any = Annotated[dict[judge, weight], Field(min_length=1, max_length=8)] | None  # type: ignore[valid-type]
        weights: Any = Annotated[dict[factor, weight], Field(min_length=1)] | None  # type: ignore[valid-type]
        ranking: Any = Literal["none", "scores", "pairs"]
        options: dict[str, Any] = {
            "protocol": field(version, PROTOCOL, "Version of the protocol that the client speaks."),
            "judge": (judge | None, None),
            "rubrics": (Annotated[list[rubric], Field(min_length=1, max_length=16)] | None, None),  # type: ignore[valid-type]
            "strict": field(bool, False, "Answer 503, with the same body, where anything failed."),
            "deadline": field(seconds, None, "Seconds; what is not judged by then is `pending`."),
            "fresh": field(bool, False, "Ask again what the store has an answer to."),
        }
        reduction: dict[str, Any] = {
            "judges": field(mixture, None, "A mixture in the place of `judge`: the weighted mean of their rewards."),
            "samples": field(samples, 1, "Answers to each question; the reward is their mean."),
            "ranking": field(ranking, "none", "Rank in the group: by scores, or by comparing its edits in pairs."),
            "formula": field(Formula | None, None, "How scores become one number."),
            "weights": field(
                weights, None, "The factors that count, and how much; by default only their rubrics are asked."
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

    def read(self, body: Body, *, rewards: bool) -> Any:
        """The validated request of a body. Slow: for a thread."""
        if isinstance(body, list):
            values: Any = self._gathered(body)
        else:
            values = self.parse(body) if isinstance(body, bytes) else self._msgpack(body.data)
        return self.validated(values, rewards=rewards)

    def validated(self, values: Any, *, rewards: bool) -> Any:
        """The request of these values; raises `Refused` with what is wrong where."""
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

    def valid_edits(
        self, edits: Sequence[dict[str, Any]], options: Mapping[str, Any], bad: dict[int, BadEdit]
    ) -> Any | None:
        """Return a reward request of the edits that can be taken, or None if none can; the others are added to `bad`.

        Raise `Refused` if the request as a whole cannot be taken."""
        if len(edits) > self._max_edits:
            raise Refused(413, f"{len(edits):,} edits: at most {self._max_edits} are taken in one request")
        numbers = [n for n in range(len(edits)) if n not in bad]
        while numbers:
            try:
                # An edit is named by its place among all, as if each could be taken.
                return self.reward.model_validate({"edits": [{"id": str(n)} | edits[n] for n in numbers], **options})
            except ValidationError as error:
                problems = error.errors(include_url=False, include_input=False)
                for problem in problems:
                    match problem["loc"]:
                        case ("edits", int(at), name, *_):
                            status = "bad_image" if name in IMAGE_ROLES else "error"
                            bad.setdefault(numbers[at], BadEdit(status, f"{name}: {problem['msg']}"))
                        case place:
                            raise Refused(422, _INVALID, [(".".join(map(str, place)), problem["msg"])]) from None
                numbers = [n for n in numbers if n not in bad]
        return None

    def parse(self, data: bytes) -> Any:
        """The values of a JSON body, bounded in number."""
        # As Python objects, empty JSON objects take 120 times their size: their number is bounded before any is made.
        most = self.max_values
        at_most = sum(map(data.count, (b'"', b",", b"[", b"{")))  # base64 has none of these
        if at_most > most and any(count > most for count, _ in enumerate(_TOKEN.finditer(data), 1)):
            raise Refused(422, f"more than {most:,} values and separators: send smaller batches")
        try:
            return from_json(data, allow_inf_nan=False)
        except ValueError as error:
            raise Refused(422, "not JSON", [("", str(error)[:200])]) from None

    def _msgpack(self, data: bytes) -> Any:
        try:
            import msgpack  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise Refused(415, "this server reads no msgpack (the package msgpack is missing): send JSON") from None
        if msgpack_values(data, self.max_values) > self.max_values:
            raise Refused(422, f"more than {self.max_values:,} values: send smaller batches")
        try:
            return msgpack.unpackb(data, ext_hook=_no_extension)
        except (ValueError, TypeError, RecursionError) as error:  # all that it raises are ValueErrors, but for keys
            raise Refused(422, "not msgpack", [("", str(error)[:200] or type(error).__name__)]) from None

    def _gathered(self, parts: list[tuple[str, bytes]]) -> dict[str, Any]:
        """The part `request` is the JSON; every other part is a picture, named as the field that it fills."""
        pictures = dict(parts)
        request: Any = self.parse(pictures.pop("request", b""))
        if not isinstance(request, dict) or len(pictures) + 1 != len(parts):
            raise Refused(422, "the part `request` is one JSON object, and no part comes twice")
        if any(role in edit for edit in _listed(request) for role in (*IMAGE_ROLES, "references")):
            raise Refused(422, "beside the part `request`, pictures are parts of their own")
        references: dict[int, tuple[dict[str, Any], dict[int, bytes]]] = {}
        for name, data in pictures.items():
            match = _PART.fullmatch(name)
            if not match:
                what = "expected request, or a picture named as its field: edited, edits.0.edited"
                raise Refused(422, "a part that is not known", [(name[:80], what)])
            number, role = match.groups()
            if number is not None and int(number) >= self._max_edits:
                raise Refused(413, f"at most {self._max_edits} edits in one request")
            edit = request if number is None else _edit_at(request, int(number))
            if role.startswith("references."):
                references.setdefault(id(edit), (edit, {}))[1][int(role.partition(".")[2])] = data
            else:
                edit[role] = data
        for edit, numbered in references.values():
            edit["references"] = [numbered[n] for n in sorted(numbered)]
        for edit in _listed(request):
            edit.setdefault("edited", None)  # a part that is not there: nothing was produced
        return request


def _no_extension(code: int, _: bytes) -> Any:
    raise ValueError(f"an extension type ({code}): plain values alone are taken")


def msgpack_values(data: bytes, most: int) -> int:
    """How many values a msgpack body has, as far as `most` and one more: counted before any is made."""
    at = count = 0
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


_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes and strings: how many bytes their length has. Extension types are refused where they are met."""
_FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8} | {
    0xDC: 2,
    0xDD: 4,
    0xDE: 2,
    0xDF: 4,  # lists and maps: their length, and then their values
}
"""How many bytes follow a kind that has a size of its own."""

_INVALID = "the request cannot be taken as it is"


def edits_of(request: Any) -> list[Edit]:
    """The edits to judge; an edit without an id is named by its place in the batch."""
    models = request.edits if hasattr(request, "edits") else [request]
    names = [name for name in (*EditTexts.model_fields, *IMAGE_ROLES) if name not in ("id", *_KEPT_AS_METADATA)]
    edits = []
    for number, model in enumerate(models):
        values = {name: getattr(model, name) for name in names}
        turn = {name: value for name in _KEPT_AS_METADATA if (value := getattr(model, name)) is not None}
        # Named as the manifest's reader names a list of pictures.
        references = {f"references[{n}]": data for n, data in enumerate(model.references, 1)}
        values |= {"metadata": {**model.metadata, **turn}, "pictures": references}
        edits.append(Edit(model.id or str(number), **values))
    return edits


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


async def body(
    request: Request,
    terms: Terms,
    hold: Callable[[int], None],
    accepted: Sequence[str] = TYPES,
) -> Body:
    """The body of a request of one of the accepted types. The terms bound its size; `hold` counts the bytes as they
    come, and refuses them where there is no room."""
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

    if kind not in accepted:
        expected = " or ".join(name or "no type" for name in accepted[:3])
        raise Refused(415, f'"{kind[:80]}" is not taken: send {expected}')
    if kind == _MULTIPART:
        return await _parts(request, bounded(), terms)
    data = b"".join([chunk async for chunk in bounded()])
    return Packed(data) if kind in _MSGPACK else data


class _PartsParser(MultiPartParser):
    def close(self) -> None:
        """Close all files, also of a part that is cut off, which is in no form, and of a body that was refused."""
        for file in self._files_to_close_on_error:
            file.close()


async def _parts(request: Request, stream: AsyncGenerator[bytes, None], terms: Terms) -> list[tuple[str, bytes]]:
    most = 1 + (len(IMAGE_ROLES) + MAX_PICTURES) * terms.edits
    parser = _PartsParser(request.headers, stream, max_files=most, max_fields=most, max_part_size=terms.max_body)
    try:
        form = await parser.parse()
        return [(name, await p.read() if isinstance(p, UploadFile) else _raw(p)) for name, p in form.multi_items()]
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        why = str(getattr(error, "message", error))[:200]
        raise Refused(422, "not a multipart body that can be read", [("", why)]) from None
    finally:
        parser.close()


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
