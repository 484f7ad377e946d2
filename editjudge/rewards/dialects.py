"""Dialects: the reward protocols of trainers. With them, the trainers' own clients can be used unchanged.

A dialect converts a trainer's request into a request to `/v1/reward`, and the rewards into the trainer's response
format. Each is served at `/d/NAME/...` and at the path that the trainer's client calls. Most are defined by data
(`dialects.yaml`, or the operator's YAML file). Only UniRL's protocol can express a missing reward. The others return
None, which stops their trainers, instead of a 0 that they would learn from. An invalid edit fails alone, and the others
are judged.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, Self, TypeGuard

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import JSONResponse, Response
from starlette.routing import compile_path

from editjudge.errors import UsageError, did_you_mean
from editjudge.rewards.pickled import NotPlain, dumps, loads
from editjudge.rewards.protocol import RewardedEdit
from editjudge.rewards.requests import (
    Body,
    JsonObject,
    ModeOptions,
    Option,
    Refused,
    RequestReader,
)
from editjudge.rubrics.scale import Scale

REWARD = "editjudge"
"""Name of the reward, for clients that request rewards by name."""
_METADATA = 32
_NO_SOURCE = (
    "there is no source image, which is needed to judge what the edit preserved"
)
_PAGES = ("runs", "compare", "rate", "ratings.csv", "static", "sign-in", "docs")
_OURS = frozenset((*_PAGES, "v1", "d", "t", "healthz", "metrics", "openapi.json"))
"""First path segments that are reserved for the server."""

Factors = Mapping[str, Scale]
"""Scales of the factors, keyed by their names in the response."""
Place = Annotated[
    str, Field(pattern=r"^[A-Za-z_][\w-]*(\.(\*|[A-Za-z_][\w-]*))*$", max_length=200)
]
"""Path to a list with one entry for each edit. It consists of the names of nested objects, separated by dots. `*`
matches each entry."""
Places = Annotated[list[Place], Field(min_length=1)]
Url = Annotated[str, Field(pattern=r"^/([\w.{}-]+(/[\w.{}-]+)*)?$", max_length=200)]
Part = Literal[
    "rewards", "errors", "reasons", "reward", "reason", "error", "metadata", "nothing"
]
_OF_MANY = ("rewards", "errors", "reasons")
_OF_ONE = ("reward", "reason")
_ABSENT = object()
"""Marks a value as missing. Null, in contrast, means that there is no image."""


class Sent(NamedTuple):
    """A trainer's parsed request."""

    edits: list[JsonObject]
    """Edits in the form that `/v1/reward` accepts."""
    values: list[object]
    """Values of each edit that are needed to write the response."""
    bad: dict[int, RewardedEdit]
    """Rewards of the edits that are not judged, keyed by index."""
    options: ModeOptions = MappingProxyType({})
    """Fields of the request other than its edits, in the form that `/v1/reward` accepts."""


class Dialect(BaseModel):
    """A trainer's reward protocol: its paths, its request body and its response."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    post: Url
    """Path for POST; `{mode}` matches one path segment."""
    gets: list[Url] = []
    """Paths for GET that report whether the server is ready."""
    body: Literal["json", "pickle"] = "json"

    def modes(self) -> Mapping[str, ModeOptions]:
        """Return the options of each mode that a request may choose, keyed by the mode's name."""
        return {}

    def understood(self, values: JsonObject, factors: Factors) -> Sent:
        """Parse the body of a request. Raise `Refused` if it is invalid."""
        raise NotImplementedError

    def write(
        self, sent: Sent, rewards: Sequence[RewardedEdit], factors: Factors
    ) -> object:
        """Return the response body in this dialect's format."""
        raise NotImplementedError

    @property
    def content_types(self) -> tuple[str, ...]:
        if self.body == "pickle":
            return ("application/octet-stream", "")
        return ("application/json",)

    def read(self, body: Body, reader: RequestReader, factors: Factors) -> Sent:
        """Parse the body of a request. Raise `Refused` if it is invalid."""
        if self.body == "json":
            values = reader.parse(body.data)
        else:
            try:
                values = loads(body.data, reader.max_values)
            except NotPlain as error:
                raise Refused(422, str(error)) from None
        if not isinstance(values, dict):
            raise _refuse("the body", "expected an object with names and values")
        return self.understood(values, factors)

    def response(self, value: object) -> Response:
        if self.body == "json":
            return JSONResponse(value)
        return Response(dumps(value), media_type="application/octet-stream")


def _refuse(where: str, what: str) -> Refused:
    return Refused(422, f"{where}: {what}", [(where, what)])


def _metadata(value: object) -> dict[str, str]:
    """Return the metadata that can be stored with the edit: short strings and numbers."""
    plain = {
        str(k)[:200]: str(v)[:1000]
        for k, v in _described(value).items()
        if isinstance(v, str | int | float)
    }
    return dict(list(plain.items())[:_METADATA])


def _described(value: object) -> JsonObject:
    """Return an entry of metadata as a dict. It may be sent as a dict, as JSON of a dict, or as a prompt."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"prompt": value}
    return value if isinstance(value, dict) else {}


def _failure(reward: RewardedEdit) -> str:
    """Return the status of a missing reward and its reasons, in one line."""
    return ": ".join(filter(None, (reward.status, reward.explanation())))


# --- dialects as data -----------------------------------------------------------------------------------------


class RequestModes(BaseModel):
    """Modes that a request selects with the value of a field."""

    model_config = Dialect.model_config

    field: Place
    default: str | None = None
    """Mode of a request without the field. If there is no default, such a request is refused."""
    choices: Annotated[dict[str, dict[Option, object]], Field(min_length=1)]
    """Options of each mode, as in a request to `/v1/reward`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "*" in self.field:
            raise PydanticCustomError(
                "place",
                "mode.field: a request has one mode, so that the path cannot contain *",
            )
        if self.default is not None and self.default not in self.choices:
            raise PydanticCustomError(
                "default", "mode.default: expected one of the choices"
            )
        return self

    def chosen(self, values: object) -> ModeOptions:
        """Return the options of a request's mode. Raise `Refused` if the mode is not one of the choices."""
        name = _at(values, self.field.split("."))
        if name is _ABSENT or name is None:
            name = self.default
        if not isinstance(name, str) or name not in self.choices:
            raise _refuse(
                self.field,
                f"expected one of {', '.join(self.choices)}, not {str(name)[:80]!r}",
            )
        return self.choices[name]


class DialectFile(Dialect):
    """A dialect that is defined by data."""

    single: bool = False
    """Whether a request has a single edit. Its paths then lead to values instead of lists."""
    edited: Places
    """Paths to the outputs. Each edit uses the first path at which it has a value. Null means that there is no output.
    If the value is a list, its first image is used."""
    input: Places
    instruction: Places
    metadata: Place | None = None
    """Path to the metadata that is stored with each edit."""
    mode: RequestModes | None = None
    refuse: dict[str, str] = {}
    """Fields that must be empty, each with the reason."""
    without_input: str = ""
    """Advice for a request without a source image."""
    scale: Annotated[list[float], Field(min_length=2, max_length=2)] = [0, 1]
    """Numbers to which the worst and the best reward are mapped."""
    answer: Annotated[dict[str, Part], Field(min_length=1)]
    """Fields of the response and their contents. `rewards`: the numbers, with null for a failure. `errors`: an error or
    null for each edit. `error`: one error for all edits (left out if nothing failed). `reasons`: the error or the
    scores of each edit. `metadata`: the metadata from the request. `nothing`: an empty object. For a single edit, they
    are `reward`, `error` and `reason`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.scale[0] == self.scale[1]:
            raise PydanticCustomError(
                "scale", "scale: expected two different numbers, the worst and the best"
            )
        other_parts = _OF_MANY if self.single else _OF_ONE
        if wrong := [part for part in self.answer.values() if part in other_parts]:
            expected = _OF_ONE if self.single else _OF_MANY
            what = "answer: {wrong} is not a part of this answer; expected one of {expected}, error, metadata, nothing"
            raise PydanticCustomError(
                "answer", what, {"wrong": wrong[0], "expected": ", ".join(expected)}
            )
        paths = (*self.edited, *self.input, *self.instruction, self.metadata or "")
        if self.single and any("*" in path for path in paths):
            raise PydanticCustomError(
                "place",
                "single: a single edit has no lists, so that paths cannot contain *",
            )
        return self

    def modes(self) -> Mapping[str, ModeOptions]:
        return self.mode.choices if self.mode else {}

    def understood(self, values: JsonObject, factors: Factors) -> Sent:
        for name, reason in self.refuse.items():
            if values.get(name):
                raise _refuse(name, reason)
        options = self.mode.chosen(values) if self.mode else {}
        expected = (
            "an edited image" if self.single else "a list with one entry for each edit"
        )
        no_source = (
            f"{_NO_SOURCE}. {self.without_input}" if self.without_input else _NO_SOURCE
        )
        outputs = self._required(values, self.edited, f"expected {expected}")
        count = len(outputs)
        sources = self._required(values, self.input, no_source, count)
        expected = "expected an instruction for each edit"
        prompts = self._required(values, self.instruction, expected, count)
        described: list[object] = [{}] * count
        if self.metadata:
            described = self._entries(values, [self.metadata], count) or described
        sent = Sent([], described, {}, options)
        for n in range(count):
            sent.edits.append(
                {
                    "instruction": prompts[n],
                    "input": sources[n],
                    "edited": outputs[n],
                    "metadata": _metadata(described[n]),
                }
            )
            if fault := self._fault(prompts[n], sources[n], outputs[n], no_source):
                sent.bad[n] = RewardedEdit.not_taken(str(n), *fault)
        return sent

    def _fault(
        self, prompt: object, source: object, output: object, no_source: str
    ) -> tuple[str, str] | None:
        """Return a status and message if an edit cannot be judged, else None."""
        if source is None:
            return "missing_input", no_source
        if not isinstance(prompt, str):
            return "error", f"{self.instruction[0]}: expected the instruction as text"
        kind = str if self.body == "json" else bytes
        expected = "an image in base64" if kind is str else "an encoded image as bytes"
        for path, image in ((self.input[0], source), (self.edited[0], output)):
            if image is not None and not isinstance(image, kind):
                actual = type(image).__name__
                return "bad_image", f"{path}: expected {expected}, not {actual}"
        return None

    def _required(
        self, values: object, paths: Sequence[str], what: str, count: int | None = None
    ) -> list[object]:
        entries = self._entries(values, paths, count)
        if entries is None:
            raise _refuse(paths[0], what)
        return entries

    def _entries(
        self, values: object, paths: Iterable[str], count: int | None
    ) -> list[object] | None:
        """Return each edit's entry from the first path at which it has a value. Return None if the body has none of the
        paths."""
        entries: list[object] | None = None
        for path in paths:
            column = self._column(values, path)
            if column is None:
                continue
            count = len(column) if count is None else count
            if len(column) != count:
                what = f"{len(column)} entries for {count} edited images: send one for each edit, at most 64 edits"
                raise _refuse(path, what)
            entries = [
                new if old is _ABSENT else old
                for old, new in zip(entries or [_ABSENT] * count, column, strict=True)
            ]
        return entries and [None if entry is _ABSENT else entry for entry in entries]

    def _column(self, values: object, path: str) -> list[object] | None:
        """Return each edit's entry at a path, or None if the body lacks the path."""
        column = _at(values, path.split("."))
        column = [column] if self.single else column
        if not _is_list(column):
            return None
        # If an edit has several images, the first is used.
        entries = [next(iter(e), None) if _is_list(e) else e for e in column]
        return None if all(entry is _ABSENT for entry in entries) else entries

    def _scaled(self, reward: float | None) -> float | None:
        if reward is None:
            return None
        worst, best = self.scale
        return worst * (1 - reward) + best * reward

    def write(
        self,
        sent: Sent,
        rewards: Sequence[RewardedEdit],
        factors: Factors,
    ) -> object:
        errors = [_failure(r) if r.reward is None else None for r in rewards]
        failed = [f"edit {n}: {error}" for n, error in enumerate(errors) if error]
        metadata: list[JsonObject] = []
        for n, (described, error) in enumerate(zip(sent.values, errors, strict=True)):
            metadata.append({**_metadata(described), "original_index": n})
            if error:
                metadata[n]["error"] = error
        lists: dict[str, Sequence[object]] = {
            "rewards": [self._scaled(reward.reward) for reward in rewards],
            "errors": errors,
            "reasons": [
                error or json.dumps(reward.scores)
                for reward, error in zip(rewards, errors, strict=True)
            ],
            "metadata": metadata,
        }
        summary = f"{len(failed)} of {len(rewards)} edits have no reward: {'; '.join(failed[:3])}"
        parts: JsonObject = {"nothing": {}, "error": summary, **lists}
        if self.single:
            parts |= {name.removesuffix("s"): lists[name][0] for name in lists}
        return {
            name: parts[part]
            for name, part in self.answer.items()
            if part != "error" or failed
        }


def _at(values: object, path: Sequence[str]) -> object:
    """Return the value at a path, or `_ABSENT`. After `*`, the value is a list with the values of all entries."""
    for depth, name in enumerate(path):
        if name == "*":
            if not _is_list(values):
                return _ABSENT
            return [_at(_described(entry), path[depth + 1 :]) for entry in values]
        values = values.get(name, _ABSENT) if isinstance(values, dict) else _ABSENT
    return values


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


# --- UniRL ----------------------------------------------------------------------------------------------------


class UniRL(Dialect):
    """UniRL's protocol, in which a request names the rewards that it wants for each edit."""

    def understood(self, values: JsonObject, factors: Factors) -> Sent:
        sent = Sent([], [], {})
        offered = [REWARD, *factors]
        for number, request in enumerate(_list(values, "requests")):
            names: Sequence[object] = [REWARD]
            edit: JsonObject | tuple[str, str] = (
                "error",
                "expected a history and required_rewards",
            )
            if isinstance(request, dict):
                names = _list(request, "required_rewards")
                for name in names:
                    if name not in offered:
                        what = f"unknown reward {str(name)[:80]}: expected one of {', '.join(offered)}"
                        raise _refuse(f"requests.{number}.required_rewards", what)
                edit = _unirl_edit(request)
            if isinstance(edit, tuple):
                sent.bad[number] = RewardedEdit.not_taken(str(number), *edit)
                edit = {}
            sent.edits.append(edit)
            sent.values.append(names)
        return sent

    def write(
        self, sent: Sent, rewards: Sequence[RewardedEdit], factors: Factors
    ) -> object:
        results: list[JsonObject] = []
        errors: list[dict[str, str]] = []
        for names, reward in zip(sent.values, rewards, strict=True):
            result: JsonObject = {}
            error: dict[str, str] = {}
            scores = reward.scores or {}
            for name in map(str, names if _is_list(names) else ()):
                if reward.reward is None:
                    error[name] = _failure(reward)
                elif name == REWARD:
                    result[name] = {"reward": reward.reward}
                elif name in scores:
                    result[name] = {"score": factors[name].share(scores[name])}
                else:
                    missing = "the judge gave no score"
                    error[name] = reward.abstained.get(name, missing)
            results.append(result)
            errors.append(error)
        return {"results": results, "errors": errors}


def _list(values: Mapping[str, object], name: str) -> list[object]:
    entries = values.get(name)
    if not _is_list(entries) or not entries:
        raise _refuse(name, "expected a list with one entry for each edit")
    return list(entries)


def _unirl_edit(request: Mapping[str, object]) -> JsonObject | tuple[str, str]:
    """Return an edit in the form that `/v1/reward` accepts, or a status and message if it cannot be judged."""
    history = request.get("history")
    listed = history if _is_list(history) else ()
    turns = [turn for turn in listed if isinstance(turn, dict)]
    if not turns or len(turns) < len(listed):
        return "error", "history: expected a list of turns"
    if any(turn.get("video_b64") or turn.get("video_path") for turn in turns):
        return "error", "videos are not judged"
    if len(turns) < 2 or turns[-2].get("image_b64") is None:
        return "missing_input", f"{_NO_SOURCE}; send it as the turn before the last"
    return {
        "instruction": turns[-1].get("text", ""),
        "input": turns[-2]["image_b64"],
        "edited": turns[-1].get("image_b64"),
        "turn": len(turns) - 2,
        "metadata": _metadata(request.get("metadata")),
    }


# --- choosing dialects ----------------------------------------------------------------------------------------


@functools.cache
def builtin() -> dict[str, Dialect]:
    listed = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    dialects = [
        *map(DialectFile.model_validate, listed),
        UniRL(name="unirl", post="/score", gets=["/health", "/rewards"]),
    ]
    return {dialect.name: dialect for dialect in dialects}


def load_dialect(name: str) -> Dialect:
    """Return the built-in dialect with this name, or load a dialect from this YAML file. Raise `UsageError` if there is
    neither."""
    if not name.endswith((".yaml", ".yml")):
        if name not in builtin():
            raise UsageError(
                f"--dialect {name}: expected one of {', '.join(builtin())}, or a YAML file{did_you_mean(name, builtin())}",
                code="unknown_dialect",
            )
        return builtin()[name]
    try:
        dialect = DialectFile.model_validate(yaml.safe_load(Path(name).read_bytes()))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(
            f"--dialect {name}: cannot be read: {error}", code="unreadable_file"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"{part}." for part in first["loc"]).rstrip(".")
        raise UsageError(
            f"--dialect {name}: {where}{': ' if where else ''}{first['msg']}",
            code="invalid_dialect",
        ) from None
    if dialect.name in builtin():
        raise UsageError(
            f"--dialect {name}: a built-in dialect has the name {dialect.name}: choose another name",
            code="built_in_name",
        )
    for path in (dialect.post, *dialect.gets):
        if path.split("/")[1] in _OURS or (path == "/" and path in dialect.gets):
            raise UsageError(
                f"--dialect {name}: the path {path} is reserved for the server: choose another path",
                code="reserved_path",
            )
    return dialect


def chosen(options: Sequence[str]) -> list[tuple[Dialect, bool]]:
    """Return the dialects named in the options, and whether each is also served at the path that its trainer's client
    calls.

    An option is `NAME`, or `/d/NAME` to serve the dialect only at `/d/NAME/...`. A YAML file may replace the name.
    Raise `UsageError` for an unknown dialect, and for two dialects with the same path.
    """
    dialects: dict[str, tuple[Dialect, bool]] = {}
    taken: dict[str, str] = {}
    for option in options:
        is_native = not option.startswith("/d/")
        dialect = load_dialect(option.removeprefix("/d/"))
        name = dialect.name
        path = dialect.post
        dialects[name] = dialect, is_native
        # Paths for GET cannot collide: the only one that dialects share is /health, and they all answer it alike.
        if is_native and taken.setdefault(path, name) != name:
            raise UsageError(
                f"--dialect {taken[path]} and --dialect {name} both answer POST {path}. Give one of them as "
                f"--dialect /d/{name}: it is then served only at /d/{name}{path}, which its clients have to call"
            )
    return list(dialects.values())


def native_path(
    dialects: Iterable[tuple[Dialect, bool]], method: str, path: str
) -> str | None:
    """Return the path `/d/NAME/...` that corresponds to the path that a trainer's client calls, or None if no dialect
    has it."""
    for dialect, is_native in dialects:
        if method == "POST":
            answers = compile_path(dialect.post)[0].match(path) is not None
        else:
            answers = method in ("GET", "HEAD") and path in dialect.gets
        if is_native and answers:
            return f"/d/{dialect.name}{path}"
    return None
