"""Rewards in the protocols of trainers, so that their own clients can ask: what each sends, and what it expects back.

A dialect turns its body into a request of `/v1/reward` and the rewards into its own answer. Each is at `/d/NAME/...`,
and at the path that the trainer's client calls. Most are data (`dialects.yaml`, or a file of the operator's). None of
them has a word for "no reward" but UniRL: the others get None in the place of a number, on which their trainers stop,
rather than a 0 on which they would learn.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse, Response

from editjudge.errors import UsageError, near_miss
from editjudge.pickled import NotPlain, dumps, loads
from editjudge.rubrics.model import Factor
from editjudge.web.requests import Refused

REWARD = "editjudge"
"""What the reward is called where a client names rewards."""
_METADATA = 32
_NO_SOURCE = "there is no source picture: without it nobody can say what an edit kept"

Rewards = Sequence[dict[str, Any]]
Factors = Mapping[str, Factor]
"""By their names in the answer."""


class Sent(NamedTuple):
    """A request as it was understood."""

    edits: list[dict[str, Any]]
    """As `/v1/reward` takes them."""
    values: Any
    """The body, for what the answer repeats of it."""
    refused: Mapping[int, str] = {}
    """Of edits that cannot be judged: why, by their number. They stand in `edits` without pictures."""


@dataclass(frozen=True)
class Dialect:
    name: str
    post: str
    """The path that is posted to; `{mode}` is any one part."""
    read: Callable[[Any, Factors], Sent]
    """Of a body's values."""
    write: Callable[[Sent, Rewards, Factors], Any]
    pickled: bool = False
    gets: tuple[str, ...] = ()

    @property
    def content_types(self) -> tuple[str, ...]:
        return ("application/octet-stream", "") if self.pickled else ("application/json",)

    def answer(self, value: Any) -> Response:
        return Response(dumps(value), media_type="application/octet-stream") if self.pickled else JSONResponse(value)


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
    """What can be kept with the edit: short texts and numbers."""
    values = _described(value)
    plain = {str(k)[:200]: str(v)[:1000] for k, v in values.items() if isinstance(v, str | int | float)}
    return dict(list(plain.items())[:_METADATA])


def _described(value: Any) -> dict[str, Any]:
    """An entry of metadata: a dict, or the JSON of one, or a prompt."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {"prompt": value}
    return value if isinstance(value, dict) else {}


# --- dialects as data -----------------------------------------------------------------------------------------

Place = Annotated[str, Field(pattern=r"^[A-Za-z_][\w-]*(\.(\*|[A-Za-z_][\w-]*))*$", max_length=200)]
"""Where a list with one entry for each edit stands: names, one inside the other; after `*` inside each entry."""
Part = Literal["rewards", "errors", "error", "reasons", "metadata", "nothing"]
Url = Annotated[str, Field(pattern=r"^/([\w.{}-]+(/[\w.{}-]+)*)?$", max_length=200)]
_PAGES = ("runs", "compare", "rate", "ratings.csv", "static", "sign-in", "audit")
_OURS = frozenset((*_PAGES, "v1", "d", "t", "healthz", "metrics", "openapi.json"))
"""First parts of paths that no dialect may take."""


class DialectFile(BaseModel):
    """A dialect as data."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    post: Url
    gets: list[Url] = []
    """Paths that say whether the server is ready."""
    body: Literal["json", "pickle"] = "json"
    edited: Annotated[list[Place], Field(min_length=1)]
    """Where the outputs stand: the first of these places that the body has. Of an entry that is a list, its first."""
    input: Annotated[list[Place], Field(min_length=1)]
    instruction: Annotated[list[Place], Field(min_length=1)]
    metadata: Place | None = None
    """What is kept with each edit."""
    refuse: dict[str, str] = {}
    """Fields that must be empty, and why."""
    without_input: str = ""
    """What to do where there is no source picture."""
    answer: Annotated[dict[str, Part], Field(min_length=1)]
    """Field to what stands in it: the numbers with null for a failure, one error or null for each edit, one for all
    (left out where nothing failed), why or the scores, the metadata that came, or an empty object."""

    def dialect(self) -> Dialect:
        return Dialect(self.name, self.post, self._read, self._write, self.body == "pickle", tuple(self.gets))

    def _read(self, values: Any, _: Factors) -> Sent:
        values = _dict(values)
        for name, why in self.refuse.items():
            if values.get(name):
                raise _refuse(name, why)
        outputs = self._column(values, self.edited)
        if outputs is None:
            raise _refuse(self.edited[0], "expected a list with one entry for each edit")
        sources, prompts = (self._column(values, places, len(outputs)) for places in (self.input, self.instruction))
        if sources is None or None in sources:
            hint = f". {self.without_input}" if self.without_input else ""
            number = f".{sources.index(None)}" if sources else ""
            raise _refuse(f"{self.input[0]}{number}", f"{_NO_SOURCE}{hint}")
        if prompts is None or any(not isinstance(prompt, str) for prompt in prompts):
            raise _refuse(self.instruction[0], "expected an instruction for each edit")
        described = self._column(values, [self.metadata] if self.metadata else [], len(outputs)) or [{}] * len(outputs)
        columns = zip(prompts, sources, outputs, described, strict=True)
        edits = [
            {
                "instruction": prompt,
                "input": self._picture(source, f"{self.input[0]}.{n}"),
                "edited": self._picture(output, f"{self.edited[0]}.{n}"),
                "metadata": _metadata(about),
            }
            for n, (prompt, source, output, about) in enumerate(columns)
        ]
        return Sent(edits, described)

    def _column(self, values: Any, places: Iterable[str], count: int | None = None) -> list[Any] | None:
        """The list at the first of these places that the body has; None where it has none."""
        for place in places:
            column = _at(values, place.split("."))
            if isinstance(column, list | tuple) and len(column):
                if count is not None and len(column) != count:
                    what = f"{len(column)} entries for {count} pictures: send as many of each, at most 64 edits"
                    raise _refuse(place, what)
                return [_first(entry) for entry in column]
        return None

    def _picture(self, value: Any, where: str) -> Any:
        kind = bytes if self.body == "pickle" else str
        if not isinstance(value, kind):
            expected = "an encoded picture as bytes" if kind is bytes else "a picture in base64"
            raise _refuse(where, f"expected {expected}, not {type(value).__name__}")
        return value

    def _write(self, sent: Sent, rewards: Rewards, _: Factors) -> Any:
        errors = [None if reward["reward"] is not None else _why(reward) for reward in rewards]
        failed = [f"edit {n}: {error}" for n, error in enumerate(errors) if error]
        parts: dict[Part, Any] = {
            "rewards": [reward["reward"] for reward in rewards],
            "errors": errors,
            "error": f"{len(failed)} of {len(rewards)} edits have no reward: {'; '.join(failed[:3])}",
            "reasons": [e or json.dumps(reward["scores"]) for reward, e in zip(rewards, errors, strict=True)],
            "metadata": [
                {**_metadata(one), "original_index": n, **({"error": error} if error else {})}
                for n, (one, error) in enumerate(zip(sent.values, errors, strict=True))
            ],
            "nothing": {},
        }
        return {name: parts[part] for name, part in self.answer.items() if part != "error" or failed}


def _at(values: Any, path: Sequence[str]) -> Any:
    """What stands at a path; None where nothing does, or where an entry of a list lacks it."""
    for depth, name in enumerate(path):
        if name == "*":
            entries = [_at(_described(entry), path[depth + 1 :]) for entry in values or ()] if _is_list(values) else []
            return None if None in entries else entries
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _first(entry: Any) -> Any:
    """Several pictures of one edit: the source is the first."""
    return (entry[0] if entry else None) if _is_list(entry) else entry


def _why(reward: Mapping[str, Any]) -> str:
    """Why there is no reward, in one line."""
    messages = dict.fromkeys(reason["message"] for reason in reward["reasons"])
    messages |= dict.fromkeys(f"{factor}: {why}" for factor, why in reward["abstained"].items())
    return f"{reward['status']}: {'; '.join(list(messages)[:3])}" if messages else str(reward["status"])


# --- UniRL ----------------------------------------------------------------------------------------------------


def _unirl(values: Any, factors: Factors) -> Sent:
    requests = _list(_dict(values), "requests")
    edits, refused = [], {}
    for number, request in enumerate(requests):
        where = f"requests.{number}"
        history = _list(_dict(request, where), "history")
        turns = [_dict(turn, f"{where}.history.{n}") for n, turn in enumerate(history)]
        for name in _list(request, "required_rewards"):
            if not isinstance(name, str) or (name != REWARD and name not in factors):
                what = f"{str(name)[:80]} is not offered; there are {', '.join((REWARD, *factors))}"
                raise _refuse(f"{where}.required_rewards", what)
        pictures = [turn.get("image_b64") for turn in turns]
        edit = {"instruction": turns[-1].get("text", ""), "edited": pictures[-1], "turn": max(0, len(turns) - 2)}
        if any(turn.get("video_b64") or turn.get("video_path") for turn in turns):
            refused[number] = "videos are not judged"
        elif len(turns) < 2 or pictures[-2] is None:
            refused[number] = f"{_NO_SOURCE}; send it as the turn before the last"
        else:
            edit["input"] = pictures[-2]
        if number in refused:
            edit = {"instruction": "", "edited": None}
        edits.append(edit | {"metadata": _metadata(request.get("metadata"))})
    return Sent(edits, values, refused)


def _to_unirl(sent: Sent, rewards: Rewards, factors: Factors) -> Any:
    results: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for number, (request, reward) in enumerate(zip(sent.values["requests"], rewards, strict=True)):
        result, error = {}, {}
        for name in request["required_rewards"]:
            if number in sent.refused:
                error[name] = sent.refused[number]
            elif reward["reward"] is None:
                error[name] = _why(reward)
            elif name == REWARD:
                result[name] = {"reward": reward["reward"]}
            elif name in reward["scores"] and (share := factors[name].scale.share(reward["scores"][name])) is not None:
                result[name] = {"score": share}
            else:
                error[name] = reward["abstained"].get(name, "the judge gave no score")
        results.append(result)
        errors.append(error)
    return {"results": results, "errors": errors}


@functools.cache
def builtin() -> dict[str, Dialect]:
    listed = [
        DialectFile.model_validate(one) for one in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_bytes())
    ]
    unirl = Dialect("unirl", "/score", _unirl, _to_unirl, gets=("/health", "/rewards"))
    return {dialect.name: dialect for dialect in (*(one.dialect() for one in listed), unirl)}


def load_dialect(word: str) -> Dialect:
    """A dialect by its name, or from a YAML file. Raises `UsageError`."""
    if not word.endswith((".yaml", ".yml")):
        if word not in builtin():
            known = ", ".join(builtin())
            raise UsageError(f"--dialect {word}: expected one of {known}, or a YAML file{near_miss(word, builtin())}")
        return builtin()[word]
    try:
        dialect = DialectFile.model_validate(yaml.safe_load(Path(word).read_bytes())).dialect()
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--dialect {word}: cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"--dialect {word}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if dialect.name in builtin():
        raise UsageError(f"--dialect {word}: the name {dialect.name} is taken by a dialect that is built in")
    for path in (dialect.post, *dialect.gets):
        if path.split("/")[1] in _OURS or (path == "/" and path in dialect.gets):
            raise UsageError(f"--dialect {word}: {path} is a path of the server itself: name another")
    return dialect


# --- paths ----------------------------------------------------------------------------------------------------


class Chosen(NamedTuple):
    """A dialect that is spoken."""

    dialect: Dialect
    native: bool
    """At its native path too, and not only at `/d/NAME/...`."""


def chosen(words: Sequence[str]) -> list[Chosen]:
    """The dialects of `NAME`, or `/d/NAME` for that path alone; a YAML file in the place of a name.

    Raises `UsageError` for one that is not known, and for two that want the same path.
    """
    spoken: dict[str, Chosen] = {}
    taken: dict[str, str] = {}
    for word in words:
        native = not word.startswith("/d/")
        dialect = load_dialect(word.removeprefix("/d/"))
        name, path = dialect.name, dialect.post
        spoken[name] = Chosen(dialect, native)
        # GET /health is the same answer for everybody, and no two want the same other path to read.
        if native and taken.setdefault(path, name) != name:
            raise UsageError(
                f"--dialect {taken[path]} and --dialect {name} both answer POST {path}. Give one of them as "
                f"--dialect /d/{name}: it is then at /d/{name}{path} alone, and its clients are told that address"
            )
    return list(spoken.values())


def native_path(spoken: Iterable[Chosen], method: str, path: str) -> str | None:
    """Where a trainer's own path leads: `/d/NAME/...`; None where no dialect has it."""
    for dialect, native in spoken:
        start = dialect.post.partition("{")[0]
        posted = path == dialect.post or (
            start != dialect.post and path.startswith(start) and "/" not in path[len(start) :]
        )
        if native and ((method == "POST" and posted) or (method in ("GET", "HEAD") and path in dialect.gets)):
            return f"/d/{dialect.name}{path}"
    return None
