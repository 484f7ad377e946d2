"""Rewards in the protocols of trainers, so that their own clients can ask: what each sends, and what it expects back.

A dialect turns its body into a request of `/v1/reward` and the rewards into its own answer. Each is at `/d/NAME/...`,
and at the path that the trainer's client calls. Most are data (`dialects.yaml`, or a file of the operator's). None of
them has a word for "no reward" but UniRL: the others get None in the place of a number, on which their trainers stop,
rather than a 0 on which they would learn. An edit that cannot be taken fails alone, and the others are judged.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import JSONResponse, Response

from editjudge.errors import UsageError, near_miss
from editjudge.rewards.pickled import NotPlain, dumps, loads
from editjudge.rewards.protocol import RewardedEdit
from editjudge.rewards.reduction import Formula
from editjudge.rewards.requests import BadEdit, Refused
from editjudge.rubrics.model import Factor

REWARD = "editjudge"
"""The name of the reward if a client names rewards."""
_METADATA = 32
_NO_SOURCE = "there is no source picture: without it nobody can say what an edit kept"

Factors = Mapping[str, Factor]
"""Factors by their names in the answer."""


class Sent(NamedTuple):
    """A request as it was understood."""

    edits: list[dict[str, Any]]
    """Edits as `/v1/reward` takes them."""
    values: Any
    """Fields of the body that the answer repeats."""
    bad: Mapping[int, BadEdit] = {}
    """Edits that are not judged, by their number."""
    options: Mapping[str, Any] = {}
    """Beside the edits, as `/v1/reward` takes them."""


@dataclass(frozen=True)
class Dialect:
    name: str
    post: str
    """The path that is posted to; `{mode}` is any one part."""
    read: Callable[[Any, Factors], Sent]
    """Reads the values of a body."""
    write: Callable[[Sent, Sequence[RewardedEdit], Factors], Any]
    pickled: bool = False
    gets: tuple[str, ...] = ()
    modes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options that a request may choose, by the name of the mode; checked before the server starts."""

    @property
    def content_types(self) -> tuple[str, ...]:
        return (
            ("application/octet-stream", "") if self.pickled else ("application/json",)
        )

    def answer(self, value: Any) -> Response:
        return (
            Response(dumps(value), media_type="application/octet-stream")
            if self.pickled
            else JSONResponse(value)
        )


def parse_pickle(body: Any, max_values: int) -> Any:
    try:
        return loads(body, max_values)
    except NotPlain as error:
        raise Refused(422, str(error)) from None


def _refuse(where: str, what: str) -> Refused:
    return Refused(422, f"{where}: {what}", [(where, what)])


def _dict(values: Any, where: str = "the body") -> dict[str, Any]:
    if not isinstance(values, dict):
        raise _refuse(where, "expected names and values")
    return values


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    part = values.get(name)
    if not isinstance(part, list | tuple) or not part:
        raise _refuse(name, "expected a list with one entry for each edit")
    return list(part)


def _metadata(value: Any) -> dict[str, str]:
    """Return the metadata that can be kept with the edit: short texts and numbers."""
    values = _described(value)
    plain = {
        str(k)[:200]: str(v)[:1000]
        for k, v in values.items()
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


# --- dialects as data -----------------------------------------------------------------------------------------

Place = Annotated[
    str, Field(pattern=r"^[A-Za-z_][\w-]*(\.(\*|[A-Za-z_][\w-]*))*$", max_length=200)
]
"""The path of a list with one entry for each edit: names, one inside the other; after `*` inside each entry."""
Part = Literal[
    "rewards", "errors", "reasons", "reward", "reason", "error", "metadata", "nothing"
]
_OF_MANY = ("rewards", "errors", "reasons")
_OF_ONE = ("reward", "reason")
Url = Annotated[str, Field(pattern=r"^/([\w.{}-]+(/[\w.{}-]+)*)?$", max_length=200)]
_PAGES = ("runs", "compare", "rate", "ratings.csv", "static", "sign-in", "audit")
_OURS = frozenset((*_PAGES, "v1", "d", "t", "healthz", "metrics", "openapi.json"))
"""First parts of paths that no dialect may take."""
_ABSENT = object()
"""Nothing, where null would say that there is no image."""


class _FilePart(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


class ModeOptions(_FilePart):
    """Options of a mode, as in a request to `/v1/reward`; the server's own if nothing is said."""

    judge: str | None = None
    judges: dict[str, float] | None = None
    rubrics: list[str] | None = None
    formula: Formula | None = None
    weights: dict[str, float] | None = None
    samples: int | None = None


class RequestModes(_FilePart):
    """Modes of which a field of the request names one."""

    field: Place
    default: str | None = None
    """The mode of a request without the field; refused if there is none."""
    choices: Annotated[dict[str, ModeOptions], Field(min_length=1)]

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

    def options(self) -> dict[str, dict[str, Any]]:
        return {
            name: mode.model_dump(exclude_none=True)
            for name, mode in self.choices.items()
        }

    def chosen(self, values: Any) -> str:
        """Return the mode of a request. Raise `Refused` if it is not one of the choices."""
        name = _at(values, self.field.split("."))
        if name is _ABSENT or name is None:
            name = self.default
        if not isinstance(name, str) or name not in self.choices:
            raise _refuse(
                self.field,
                f"expected one of {', '.join(self.choices)}, not {str(name)[:80]!r}",
            )
        return name


class DialectFile(_FilePart):
    """A dialect as data."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    post: Url
    gets: list[Url] = []
    """Paths that say whether the server is ready."""
    body: Literal["json", "pickle"] = "json"
    single: bool = False
    """A request is one edit as plain fields: places lead to its values, and not to lists of them."""
    edited: Annotated[list[Place], Field(min_length=1)]
    """Paths of the outputs: for each edit the first of these that it has; null says that there is none. The first image
    of an entry that is a list."""
    input: Annotated[list[Place], Field(min_length=1)]
    instruction: Annotated[list[Place], Field(min_length=1)]
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
    """Field to what stands in it: the numbers with null for a failure, one error or null for each edit, one for all
    (left out where nothing failed), why or the scores, the metadata that came, or an empty object. A single edit has
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
        places = (*self.edited, *self.input, *self.instruction, self.metadata or "")
        if self.single and any("*" in place for place in places):
            raise PydanticCustomError(
                "place", "single: a single edit has no lists, so that no place has a *"
            )
        return self

    def dialect(self) -> Dialect:
        modes = self.mode.options() if self.mode else {}
        return Dialect(
            self.name,
            self.post,
            self._read,
            self._write,
            self.body == "pickle",
            tuple(self.gets),
            modes,
        )

    def _read(self, values: Any, _: Factors) -> Sent:
        values = _dict(values)
        for name, why in self.refuse.items():
            if values.get(name):
                raise _refuse(name, why)
        options = self.mode.options()[self.mode.chosen(values)] if self.mode else {}
        outputs = self._entries(values, self.edited)
        if outputs is None:
            expected = (
                "an edited picture"
                if self.single
                else "a list with one entry for each edit"
            )
            raise _refuse(self.edited[0], f"expected {expected}")
        count = len(outputs)
        sources = self._entries(values, self.input, count)
        no_source = (
            f"{_NO_SOURCE}. {self.without_input}" if self.without_input else _NO_SOURCE
        )
        if sources is None:
            raise _refuse(self.input[0], no_source)
        prompts = self._entries(values, self.instruction, count)
        if prompts is None:
            raise _refuse(self.instruction[0], "expected an instruction for each edit")
        described = (
            self._entries(values, [self.metadata] if self.metadata else [], count)
            or [{}] * count
        )
        edits: list[dict[str, Any]] = []
        bad: dict[int, BadEdit] = {}
        for n in range(count):
            edit = {
                "instruction": prompts[n],
                "input": sources[n],
                "edited": outputs[n],
            }
            edits.append(edit | {"metadata": _metadata(described[n])})
            if sources[n] is None:
                bad[n] = BadEdit("missing_input", no_source)
            elif not isinstance(prompts[n], str):
                bad[n] = BadEdit(
                    "error", f"{self.instruction[0]}: expected the instruction as text"
                )
            elif wrong := self._wrong_image(edit):
                bad[n] = BadEdit("bad_image", wrong)
        return Sent(edits, described, bad, options)

    def _entries(
        self, values: Any, places: Iterable[str], count: int | None = None
    ) -> list[Any] | None:
        """Return the entry of each edit at the first of these places that has it; None if the body has none of them."""
        entries: list[Any] | None = None
        for place in places:
            column = self._column(values, place)
            if column is None:
                continue
            if count is not None and len(column) != count:
                what = f"{len(column)} entries for {count} pictures: send as many of each, at most 64 edits"
                raise _refuse(place, what)
            count = len(column)
            if entries is None:
                entries = column
            else:
                entries = [
                    new if old is _ABSENT else old
                    for old, new in zip(entries, column, strict=True)
                ]
            if not any(entry is _ABSENT for entry in entries):
                break
        return entries and [None if entry is _ABSENT else entry for entry in entries]

    def _column(self, values: Any, place: str) -> list[Any] | None:
        column = _at(values, place.split("."))
        if self.single:
            return None if column is _ABSENT else [_first(column)]
        if not _is_list(column):
            return None
        entries = [_first(entry) for entry in column]
        return None if all(entry is _ABSENT for entry in entries) else entries

    def _wrong_image(self, edit: Mapping[str, Any]) -> str:
        kind = bytes if self.body == "pickle" else str
        expected = (
            "an encoded picture as bytes" if kind is bytes else "a picture in base64"
        )
        for role, places in (("input", self.input), ("edited", self.edited)):
            image = edit[role]
            if image is not None and not isinstance(image, kind):
                return f"{places[0]}: expected {expected}, not {type(image).__name__}"
        return ""

    def _scaled(self, reward: float | None) -> float | None:
        if reward is None:
            return None
        worst, best = self.scale
        return worst * (1 - reward) + best * reward

    def _write(self, sent: Sent, rewards: Sequence[RewardedEdit], _: Factors) -> Any:
        numbers = [self._scaled(reward.reward) for reward in rewards]
        errors = [
            None if reward.reward is not None else _why(reward) for reward in rewards
        ]
        reasons = [
            error or json.dumps(reward.scores)
            for reward, error in zip(rewards, errors, strict=True)
        ]
        metadata: list[dict[str, Any]] = []
        for n, (described, error) in enumerate(zip(sent.values, errors, strict=True)):
            metadata.append({**_metadata(described), "original_index": n})
            if error:
                metadata[n]["error"] = error
        failed = [f"edit {n}: {error}" for n, error in enumerate(errors) if error]
        summary = f"{len(failed)} of {len(rewards)} edits have no reward: {'; '.join(failed[:3])}"
        parts: dict[Part, Any] = {"nothing": {}}
        if self.single:
            parts |= {
                "reward": numbers[0],
                "error": errors[0],
                "reason": reasons[0],
                "metadata": metadata[0],
            }
        else:
            parts |= {
                "rewards": numbers,
                "error": summary,
                "errors": errors,
                "reasons": reasons,
                "metadata": metadata,
            }
        return {
            name: parts[part]
            for name, part in self.answer.items()
            if part != "error" or failed
        }


def _at(values: Any, path: Sequence[str]) -> Any:
    """Return what stands at a path; `_ABSENT` if nothing does. After `*`, a list of what stands in each entry."""
    for depth, name in enumerate(path):
        if name == "*":
            rest = path[depth + 1 :]
            return (
                [_at(_described(entry), rest) for entry in values]
                if _is_list(values)
                else _ABSENT
            )
        values = values.get(name, _ABSENT) if isinstance(values, dict) else _ABSENT
    return values


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _first(entry: Any) -> Any:
    """Return the source of an edit with several images: the first."""
    if not _is_list(entry):
        return entry
    return entry[0] if entry else None


def _why(reward: RewardedEdit) -> str:
    """Return why there is no reward, in one line."""
    messages = dict.fromkeys(reason.message for reason in reward.reasons)
    messages |= dict.fromkeys(
        f"{factor}: {why}" for factor, why in reward.abstained.items()
    )
    text = "; ".join(list(messages)[:3])
    return f"{reward.status}: {text}" if text else reward.status


# --- UniRL ----------------------------------------------------------------------------------------------------


def _unirl(values: Any, factors: Factors) -> Sent:
    requests = _list(_dict(values), "requests")
    edits: list[dict[str, Any]] = []
    names: list[list[str]] = []
    bad: dict[int, BadEdit] = {}
    for number, request in enumerate(requests):
        if not isinstance(request, dict):
            names.append([REWARD])
            edits.append({})
            bad[number] = BadEdit("error", "expected a history and required_rewards")
            continue
        names.append(_required_rewards(request, f"requests.{number}", factors))
        edit = _unirl_edit(request)
        if isinstance(edit, BadEdit):
            edits.append({})
            bad[number] = edit
        else:
            edits.append(edit | {"metadata": _metadata(request.get("metadata"))})
    return Sent(edits, names, bad)


def _required_rewards(
    request: Mapping[str, Any], where: str, factors: Factors
) -> list[str]:
    names = _list(request, "required_rewards")
    for name in names:
        if not isinstance(name, str) or (name != REWARD and name not in factors):
            what = f"{str(name)[:80]} is not offered; there are {', '.join((REWARD, *factors))}"
            raise _refuse(f"{where}.required_rewards", what)
    return names


def _unirl_edit(request: Mapping[str, Any]) -> dict[str, Any] | BadEdit:
    turns = request.get("history")
    if (
        not _is_list(turns)
        or not turns
        or not all(isinstance(turn, dict) for turn in turns)
    ):
        return BadEdit("error", "history: expected a list of turns")
    if any(turn.get("video_b64") or turn.get("video_path") for turn in turns):
        return BadEdit("error", "videos are not judged")
    if len(turns) < 2 or turns[-2].get("image_b64") is None:
        return BadEdit(
            "missing_input", f"{_NO_SOURCE}; send it as the turn before the last"
        )
    return {
        "instruction": turns[-1].get("text", ""),
        "input": turns[-2]["image_b64"],
        "edited": turns[-1].get("image_b64"),
        "turn": len(turns) - 2,
    }


def _to_unirl(sent: Sent, rewards: Sequence[RewardedEdit], factors: Factors) -> Any:
    results: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for names, reward in zip(sent.values, rewards, strict=True):
        results.append({})
        errors.append({})
        for name in names:
            if reward.reward is None:
                errors[-1][name] = _why(reward)
            elif name == REWARD:
                results[-1][name] = {"reward": reward.reward}
            elif (share := _share(reward, name, factors)) is not None:
                results[-1][name] = {"score": share}
            else:
                why = reward.abstained.get(name, "the judge gave no score")
                errors[-1][name] = why
    return {"results": results, "errors": errors}


def _share(reward: RewardedEdit, name: str, factors: Factors) -> float | None:
    """Return the score of a factor as a number from 0 to 1; None if it has none."""
    score = (reward.scores or {}).get(name)
    return None if score is None else factors[name].scale.share(score)


@functools.cache
def builtin() -> dict[str, Dialect]:
    listed = [
        DialectFile.model_validate(one)
        for one in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    ]
    unirl = Dialect("unirl", "/score", _unirl, _to_unirl, gets=("/health", "/rewards"))
    return {
        dialect.name: dialect for dialect in (*(one.dialect() for one in listed), unirl)
    }


def load_dialect(word: str) -> Dialect:
    """Return a dialect by its name, or from a YAML file. Raise `UsageError` if there is none."""
    if not word.endswith((".yaml", ".yml")):
        if word not in builtin():
            known = ", ".join(builtin())
            raise UsageError(
                f"--dialect {word}: expected one of {known}, or a YAML file{near_miss(word, builtin())}"
            )
        return builtin()[word]
    try:
        dialect = DialectFile.model_validate(
            yaml.safe_load(Path(word).read_bytes())
        ).dialect()
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--dialect {word}: cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"--dialect {word}: {where}{': ' if where else ''}{first['msg']}"
        ) from None
    if dialect.name in builtin():
        raise UsageError(
            f"--dialect {word}: the name {dialect.name} is taken by a dialect that is built in"
        )
    for path in (dialect.post, *dialect.gets):
        if path.split("/")[1] in _OURS or (path == "/" and path in dialect.gets):
            raise UsageError(
                f"--dialect {word}: {path} is a path of the server itself: name another"
            )
    return dialect


# --- paths ----------------------------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """A dialect that is spoken."""

    dialect: Dialect
    native: bool
    """At its native path too, and not only at `/d/NAME/...`."""


def chosen(words: Sequence[str]) -> list[Chosen]:
    """Return the dialects of `NAME`, or `/d/NAME` for that path alone; a YAML file in the place of a name.

    Raise `UsageError` for one that is not known, and for two that want the same path.
    """
    spoken: dict[str, Chosen] = {}
    taken: dict[str, str] = {}
    for word in words:
        native = not word.startswith("/d/")
        dialect = load_dialect(word.removeprefix("/d/"))
        name = dialect.name
        path = dialect.post
        spoken[name] = Chosen(dialect, native)
        # GET /health is the same answer for everybody, and no two want the same other path to read.
        if native and taken.setdefault(path, name) != name:
            raise UsageError(
                f"--dialect {taken[path]} and --dialect {name} both answer POST {path}. Give one of them as "
                f"--dialect /d/{name}: it is then at /d/{name}{path} alone, and its clients are told that address"
            )
    return list(spoken.values())


def native_path(spoken: Iterable[Chosen], method: str, path: str) -> str | None:
    """Return the path `/d/NAME/...` of a trainer's own path; None if no dialect has it."""
    for dialect, native in spoken:
        start = dialect.post.partition("{")[0]
        posted = path == dialect.post or (
            start != dialect.post
            and path.startswith(start)
            and "/" not in path[len(start) :]
        )
        if native and (
            (method == "POST" and posted)
            or (method in ("GET", "HEAD") and path in dialect.gets)
        ):
            return f"/d/{dialect.name}{path}"
    return None
