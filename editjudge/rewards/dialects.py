"""Rewards in the protocols of trainers, so that their own clients can ask: what each sends, and what it expects back.

A dialect turns its body into a request of `/v1/reward` and the rewards into its own answer. Each is at `/d/NAME/...`,
and at the path that the trainer's client calls. Most are data (`dialects.yaml`, or a file of the operator's). Only UniRL
can say that there is no reward: the others get None instead of a number, on which their trainers stop, rather than a 0
on which they would learn. An edit that cannot be accepted fails alone, and the others are judged.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import JSONResponse, Response
from starlette.routing import compile_path

from editjudge.errors import UsageError, did_you_mean
from editjudge.rewards.pickled import NotPlain, dumps, loads
from editjudge.rewards.protocol import RewardedEdit
from editjudge.rewards.requests import Body, Refused, RequestReader
from editjudge.rubrics.scale import Scale

REWARD = "editjudge"
"""The name of the reward if a client names rewards."""
_METADATA = 32
_NO_SOURCE = "there is no source picture: without it nobody can say what an edit kept"
_PAGES = ("runs", "compare", "rate", "ratings.csv", "static", "sign-in", "docs")
_OURS = frozenset((*_PAGES, "v1", "d", "t", "healthz", "metrics", "openapi.json"))
"""First parts of paths that no dialect may take."""

Factors = Mapping[str, Scale]
"""Scales of the factors by their names in the answer."""
Place = Annotated[
    str, Field(pattern=r"^[A-Za-z_][\w-]*(\.(\*|[A-Za-z_][\w-]*))*$", max_length=200)
]
"""The path of a list with one entry for each edit: names, one inside the other; after `*` inside each entry."""
Places = Annotated[list[Place], Field(min_length=1)]
Url = Annotated[str, Field(pattern=r"^/([\w.{}-]+(/[\w.{}-]+)*)?$", max_length=200)]
Option = Literal["judge", "judges", "rubrics", "score", "formula", "weights", "samples"]
"""Fields of a request to `/v1/reward` that a mode may set."""
Part = Literal[
    "rewards", "errors", "reasons", "reward", "reason", "error", "metadata", "nothing"
]
_OF_MANY = ("rewards", "errors", "reasons")
_OF_ONE = ("reward", "reason")
_ABSENT = object()
"""Nothing, while null says that there is no image."""


class Sent(NamedTuple):
    """A trainer's request as it was understood."""

    edits: list[dict[str, Any]]
    """Edits as `/v1/reward` takes them."""
    values: list[Any]
    """Fields of each edit that the answer needs."""
    bad: dict[int, RewardedEdit]
    """Edits that are not judged, by their number."""
    options: Mapping[Option, Any] = {}
    """Fields beside the edits, as `/v1/reward` takes them."""


class Dialect(BaseModel):
    """A protocol of a trainer."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    post: Url
    """The path that is posted to; `{mode}` is any one part."""
    gets: list[Url] = []
    """Places that say whether the server is ready."""
    body: Literal["json", "pickle"] = "json"

    def modes(self) -> Mapping[str, Mapping[Option, Any]]:
        """Return the options that a request may choose, by the name of the mode."""
        return {}

    def understood(self, values: dict[str, Any], factors: Factors) -> Sent:
        """Return the request of a body. Raise `Refused` if it is none."""
        raise NotImplementedError

    def write(
        self, sent: Sent, rewards: Sequence[RewardedEdit], factors: Factors
    ) -> Any:
        """Return the answer."""
        raise NotImplementedError

    @property
    def content_types(self) -> tuple[str, ...]:
        if self.body == "pickle":
            return ("application/octet-stream", "")
        return ("application/json",)

    def read(self, body: Body, reader: RequestReader, factors: Factors) -> Sent:
        """Return the request of a body. Raise `Refused` if it is none."""
        if self.body == "json":
            values = reader.parse(body.data)
        else:
            try:
                values = loads(body.data, reader.max_values)
            except NotPlain as error:
                raise Refused(422, str(error)) from None
        if not isinstance(values, dict):
            raise _refuse("the body", "expected names and values")
        return self.understood(values, factors)

    def response(self, value: Any) -> Response:
        if self.body == "json":
            return JSONResponse(value)
        return Response(dumps(value), media_type="application/octet-stream")


def _refuse(where: str, what: str) -> Refused:
    return Refused(422, f"{where}: {what}", [(where, what)])


def _metadata(value: Any) -> dict[str, str]:
    """Return the metadata that can be kept with the edit: short texts and numbers."""
    plain = {
        str(k)[:200]: str(v)[:1000]
        for k, v in _described(value).items()
        if isinstance(v, str | int | float)
    }
    return dict(list(plain.items())[:_METADATA])


def _described(value: Any) -> dict[str, Any]:
    """Return an entry of metadata as a dict: it is one, or the JSON of one, or a prompt."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"prompt": value}
    return value if isinstance(value, dict) else {}


def _why(reward: RewardedEdit) -> str:
    """Return why there is no reward, in one line."""
    return ": ".join(filter(None, (reward.status, reward.why())))


# --- dialects as data -----------------------------------------------------------------------------------------


class RequestModes(BaseModel):
    """Modes of which a field of the request names one."""

    model_config = Dialect.model_config

    field: Place
    default: str | None = None
    """The mode of a request without the field, which is refused if there is no default."""
    choices: Annotated[dict[str, dict[Option, Any]], Field(min_length=1)]
    """Options of each mode, as in a request to `/v1/reward`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "*" in self.field:
            raise PydanticCustomError(
                "place",
                "mode.field: one mode for the whole request, so that no * goes here",
            )
        if self.default is not None and self.default not in self.choices:
            raise PydanticCustomError(
                "default", "mode.default: expected one of the choices"
            )
        return self

    def chosen(self, values: Any) -> Mapping[Option, Any]:
        """Return the options of a request. Raise `Refused` if its mode is not one of the choices."""
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
    """A dialect as data."""

    single: bool = False
    """A request is one edit as plain fields: paths lead to its values, and not to lists of them."""
    edited: Places
    """Places of the outputs: for each edit the first of these that it has; null says that there is none. The first image
    of an entry that is a list."""
    input: Places
    instruction: Places
    metadata: Place | None = None
    """Path of the metadata that is kept with each edit."""
    mode: RequestModes | None = None
    refuse: dict[str, str] = {}
    """Fields that must be empty, and why."""
    without_input: str = ""
    """Advice for a request without a source image."""
    scale: Annotated[list[float], Field(min_length=2, max_length=2)] = [0, 1]
    """The numbers that the worst and the best reward become."""
    answer: Annotated[dict[str, Part], Field(min_length=1)]
    """Fields of the answer: the numbers with null for a failure, one error or null for each edit, one for all
    (left out if nothing failed), why or the scores, the metadata that came, or an empty object. A single edit has
    a `reward`, an `error` and a `reason`."""

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
                "place", "single: a single edit has no lists, so that no place has a *"
            )
        return self

    def modes(self) -> Mapping[str, Mapping[Option, Any]]:
        return self.mode.choices if self.mode else {}

    def understood(self, values: dict[str, Any], factors: Factors) -> Sent:
        for name, why in self.refuse.items():
            if values.get(name):
                raise _refuse(name, why)
        options = self.mode.chosen(values) if self.mode else {}
        expected = (
            "an edited picture"
            if self.single
            else "a list with one entry for each edit"
        )
        no_source = (
            f"{_NO_SOURCE}. {self.without_input}" if self.without_input else _NO_SOURCE
        )
        outputs = self._required(values, self.edited, f"expected {expected}")
        count = len(outputs)
        sources = self._required(values, self.input, no_source, count)
        expected = "expected an instruction for each edit"
        prompts = self._required(values, self.instruction, expected, count)
        described: list[Any] = [{}] * count
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
        self, prompt: Any, source: Any, output: Any, no_source: str
    ) -> tuple[str, str] | None:
        """Return status and message of an edit that cannot be judged."""
        if source is None:
            return "missing_input", no_source
        if not isinstance(prompt, str):
            return "error", f"{self.instruction[0]}: expected the instruction as text"
        kind = str if self.body == "json" else bytes
        expected = (
            "a picture in base64" if kind is str else "an encoded picture as bytes"
        )
        for path, image in ((self.input[0], source), (self.edited[0], output)):
            if image is not None and not isinstance(image, kind):
                found = type(image).__name__
                return "bad_image", f"{path}: expected {expected}, not {found}"
        return None

    def _required(
        self, values: Any, paths: Sequence[str], what: str, count: int | None = None
    ) -> list[Any]:
        entries = self._entries(values, paths, count)
        if entries is None:
            raise _refuse(paths[0], what)
        return entries

    def _entries(
        self, values: Any, paths: Iterable[str], count: int | None
    ) -> list[Any] | None:
        """Return the entry of each edit at the first of these paths that has it; None if the body has none of them."""
        entries: list[Any] | None = None
        for path in paths:
            column = self._column(values, path)
            if column is None:
                continue
            count = len(column) if count is None else count
            if len(column) != count:
                what = f"{len(column)} entries for {count} pictures: send as many of each, at most 64 edits"
                raise _refuse(path, what)
            entries = [
                new if old is _ABSENT else old
                for old, new in zip(entries or [_ABSENT] * count, column, strict=True)
            ]
        return entries and [None if entry is _ABSENT else entry for entry in entries]

    def _column(self, values: Any, path: str) -> list[Any] | None:
        """Return the entry of each edit at a path; None if no edit has it."""
        column = _at(values, path.split("."))
        column = [column] if self.single else column
        if not _is_list(column):
            return None
        # Of an edit with several images the first counts.
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
    ) -> Any:
        errors = [_why(r) if r.reward is None else None for r in rewards]
        failed = [f"edit {n}: {error}" for n, error in enumerate(errors) if error]
        metadata: list[dict[str, Any]] = []
        for n, (described, error) in enumerate(zip(sent.values, errors, strict=True)):
            metadata.append({**_metadata(described), "original_index": n})
            if error:
                metadata[n]["error"] = error
        lists: dict[str, list[Any]] = {
            "rewards": [self._scaled(reward.reward) for reward in rewards],
            "errors": errors,
            "reasons": [
                error or json.dumps(reward.scores)
                for reward, error in zip(rewards, errors, strict=True)
            ],
            "metadata": metadata,
        }
        summary = f"{len(failed)} of {len(rewards)} edits have no reward: {'; '.join(failed[:3])}"
        parts: dict[str, Any] = {"nothing": {}, "error": summary, **lists}
        if self.single:
            parts |= {name.removesuffix("s"): lists[name][0] for name in lists}
        return {
            name: parts[part]
            for name, part in self.answer.items()
            if part != "error" or failed
        }


def _at(values: Any, path: Sequence[str]) -> Any:
    """Return the value at a path; `_ABSENT` if there is none. After `*`, a list of the values in each entry."""
    for depth, name in enumerate(path):
        if name == "*":
            if not _is_list(values):
                return _ABSENT
            return [_at(_described(entry), path[depth + 1 :]) for entry in values]
        values = values.get(name, _ABSENT) if isinstance(values, dict) else _ABSENT
    return values


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


# --- UniRL ----------------------------------------------------------------------------------------------------


class UniRL(Dialect):
    """UniRL's protocol, which names the rewards that it wants of each edit."""

    def understood(self, values: dict[str, Any], factors: Factors) -> Sent:
        sent = Sent([], [], {})
        offered = [REWARD, *factors]
        for number, request in enumerate(_list(values, "requests")):
            names = [REWARD]
            edit: dict[str, Any] | tuple[str, str] = (
                "error",
                "expected a history and required_rewards",
            )
            if isinstance(request, dict):
                names = _list(request, "required_rewards")
                for name in names:
                    if name not in offered:
                        what = f"{str(name)[:80]} is not offered; there are {', '.join(offered)}"
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
    ) -> Any:
        results: list[dict[str, Any]] = []
        errors: list[dict[str, str]] = []
        for names, reward in zip(sent.values, rewards, strict=True):
            result: dict[str, Any] = {}
            error: dict[str, str] = {}
            scores = reward.scores or {}
            for name in names:
                if reward.reward is None:
                    error[name] = _why(reward)
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


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    entries = values.get(name)
    if not _is_list(entries) or not entries:
        raise _refuse(name, "expected a list with one entry for each edit")
    return list(entries)


def _unirl_edit(request: Mapping[str, Any]) -> dict[str, Any] | tuple[str, str]:
    """Return an edit as `/v1/reward` takes it; status and message if it cannot be judged."""
    turns = request.get("history")
    if not _is_list(turns) or not turns or not all(isinstance(t, dict) for t in turns):
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


# --- which are answered ---------------------------------------------------------------------------------------


@functools.cache
def builtin() -> dict[str, Dialect]:
    listed = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    dialects = [
        *map(DialectFile.model_validate, listed),
        UniRL(name="unirl", post="/score", gets=["/health", "/rewards"]),
    ]
    return {dialect.name: dialect for dialect in dialects}


def load_dialect(name: str) -> Dialect:
    """Return a built-in dialect by its name, or one from a YAML file. Raise `UsageError` if there is none."""
    if not name.endswith((".yaml", ".yml")):
        if name not in builtin():
            raise UsageError(
                f"--dialect {name}: expected one of {', '.join(builtin())}, or a YAML file{did_you_mean(name, builtin())}"
            )
        return builtin()[name]
    try:
        dialect = DialectFile.model_validate(yaml.safe_load(Path(name).read_bytes()))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--dialect {name}: cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = "".join(f"{part}." for part in first["loc"]).rstrip(".")
        raise UsageError(
            f"--dialect {name}: {where}{': ' if where else ''}{first['msg']}"
        ) from None
    if dialect.name in builtin():
        raise UsageError(
            f"--dialect {name}: the name {dialect.name} is taken by a dialect that is built in"
        )
    for path in (dialect.post, *dialect.gets):
        if path.split("/")[1] in _OURS or (path == "/" and path in dialect.gets):
            raise UsageError(
                f"--dialect {name}: {path} is a path of the server itself: name another"
            )
    return dialect


def chosen(options: Sequence[str]) -> list[tuple[Dialect, bool]]:
    """Return the dialects of `NAME`, or `/d/NAME` for that path alone; a YAML file in the place of a name. With each,
    whether it is at its native path too, and not only at `/d/NAME/...`.

    Raise `UsageError` for one that is not known, and for two that want the same path.
    """
    dialects: dict[str, tuple[Dialect, bool]] = {}
    taken: dict[str, str] = {}
    for option in options:
        is_native = not option.startswith("/d/")
        dialect = load_dialect(option.removeprefix("/d/"))
        name = dialect.name
        path = dialect.post
        dialects[name] = dialect, is_native
        # GET /health is the same answer for all, and no two want the same other path to read.
        if is_native and taken.setdefault(path, name) != name:
            raise UsageError(
                f"--dialect {taken[path]} and --dialect {name} both answer POST {path}. Give one of them as "
                f"--dialect /d/{name}: it is then at /d/{name}{path} alone, and its clients are told that address"
            )
    return list(dialects.values())


def native_path(
    dialects: Iterable[tuple[Dialect, bool]], method: str, path: str
) -> str | None:
    """Return the path `/d/NAME/...` of a trainer's own path; None if no dialect has it."""
    for dialect, is_native in dialects:
        if method == "POST":
            answers = compile_path(dialect.post)[0].match(path) is not None
        else:
            answers = method in ("GET", "HEAD") and path in dialect.gets
        if is_native and answers:
            return f"/d/{dialect.name}{path}"
    return None
