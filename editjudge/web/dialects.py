"""Rewards in the protocols of trainers, so that their own clients can ask: what each sends, and what it expects back.

A dialect turns its body into a request of `/v1/reward` and the rewards into its own answer. Each is at `/d/NAME/...`,
and at the path that the trainer's client calls. None of them has a word for "no reward" but UniRL: the others get None
in the place of a number, on which their trainers stop, rather than a 0 on which they would learn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response

from editjudge.errors import UsageError, near_miss
from editjudge.pickled import NotPlain, dumps, loads
from editjudge.rubrics.model import Factor
from editjudge.web.requests import Refused

REWARD = "editjudge"
"""What the reward is called where a client names rewards."""
_METADATA = 32
_SOURCES = ("input", "source", "ref_image")
"""Where metadata may carry the picture before the edit."""
_NO_SOURCE = "there is no source picture: without it nobody can say what an edit kept"


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
    read: Callable[[Any, Mapping[str, Factor]], Sent]
    """Of a body's values, and of the factors by their names in the answer."""
    write: Callable[[Sent, Sequence[dict[str, Any]], Mapping[str, Factor]], Any]
    pickled: bool = False
    gets: tuple[str, ...] = ("/health",)

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


# --- reading --------------------------------------------------------------------------------------------------


def _refuse(where: str, what: str) -> Refused:
    return Refused(422, f"{where}: {what}", [(where, what)])


def _dict(values: Any, where: str = "the body") -> dict[str, Any]:
    if not isinstance(values, dict):
        raise _refuse(where, "expected names and values")
    return values


def _list(values: Mapping[str, Any], name: str, count: int | None = None) -> list[Any]:
    part = values.get(name)
    if not isinstance(part, list | tuple) or not part:
        raise _refuse(name, "expected a list with one entry for each edit")
    if count is not None and len(part) != count:
        what = f"{len(part)} entries for {count} pictures: send as many of each, at most 64 edits in a request"
        raise _refuse(name, what)
    return list(part)


def _bytes(value: Any, where: str) -> bytes:
    if not isinstance(value, bytes):
        raise _refuse(where, f"expected an encoded picture as bytes, not {type(value).__name__}")
    return value


def _described(value: Any) -> dict[str, Any]:
    """Metadata of an edit: a dict, or the JSON of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {"prompt": value}
    return value if isinstance(value, dict) else {}


def _metadata(values: Mapping[str, Any]) -> dict[str, str]:
    """What can be kept with the edit: short texts and numbers."""
    plain = {str(k)[:200]: str(v)[:1000] for k, v in values.items() if isinstance(v, str | int | float)}
    return dict(list(plain.items())[:_METADATA])


def _instruction(values: Mapping[str, Any], where: str) -> str:
    for name in ("instruction", "prompt"):
        if isinstance(text := values.get(name), str) and text:
            return text
    raise _refuse(where, "expected an instruction")


def _flow_factory(values: Any, _: Mapping[str, Factor]) -> Sent:
    values = _dict(values)
    if values.get("video") or values.get("condition_videos"):
        raise _refuse("video", "videos are not judged: send image and condition_images")
    outputs = _list(values, "image")
    prompts = _list(values, "prompt", len(outputs))
    if not values.get("condition_images"):
        what = (
            f"{_NO_SOURCE}. Flow-Factory's RemotePointwiseRewardModel does not send it; name "
            "editjudge.integrations.flow_factory.EditRewardModel as reward_model, which does"
        )
        raise _refuse("condition_images", what)
    sources = _list(values, "condition_images", len(outputs))
    edits = []
    for number, (prompt, output, pictures) in enumerate(zip(prompts, outputs, sources, strict=True)):
        if not isinstance(pictures, list) or not pictures:
            raise _refuse(f"condition_images.{number}", _NO_SOURCE)
        edits.append({"instruction": prompt, "input": pictures[0], "edited": output})
    return Sent(edits, values)


def _unirl(values: Any, factors: Mapping[str, Factor]) -> Sent:
    requests = _list(_dict(values), "requests")
    edits, refused = [], {}
    for number, request in enumerate(requests):
        where = f"requests.{number}"
        history = _list(_dict(request, where), "history")
        turns = [_dict(turn, f"{where}.history.{n}") for n, turn in enumerate(history)]
        for name in _list(request, "required_rewards"):
            if name != REWARD and name not in factors:
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
        described = request.get("metadata")
        edits.append(edit | {"metadata": _metadata(described if isinstance(described, dict) else {})})
    return Sent(edits, values, refused)


def _edit_r1(values: Any, _: Mapping[str, Factor]) -> Sent:
    values = _dict(values)
    outputs = _list(values, "images")
    sources, prompts = (_list(values, name, len(outputs)) for name in ("ref_images", "prompts"))
    return Sent(
        [
            {
                "instruction": prompt,
                "input": _bytes(source, f"ref_images.{n}"),
                "edited": _bytes(output, f"images.{n}"),
            }
            for n, (prompt, source, output) in enumerate(zip(prompts, sources, outputs, strict=True))
        ],
        values,
    )


def _flow_grpo(values: Any, _: Mapping[str, Factor]) -> Sent:
    values = _dict(values)
    outputs = _list(values, "images")
    count = len(outputs)
    described = [_described(one) for one in values.get("meta_datas") or [{}] * count]
    if len(described) != count:
        raise _refuse("meta_datas", f"{len(described)} entries for {count} pictures")
    if "prompts" in values:
        prompts = _list(values, "prompts", count)
    else:
        prompts = [_instruction(one, f"meta_datas.{n}") for n, one in enumerate(described)]
    if "ref_images" in values:
        sources = _list(values, "ref_images", count)
    else:
        sources = [next((one[name] for name in _SOURCES if name in one), None) for one in described]
    if None in sources:
        what = (
            f"{_NO_SOURCE}. Send it as ref_images, or as bytes called input in each entry of meta_datas; "
            "editjudge.integrations.flow_grpo does the first"
        )
        raise _refuse(f"ref_images.{sources.index(None)}", what)
    edits = [
        {
            "instruction": prompt,
            "input": _bytes(source, f"ref_images.{n}"),
            "edited": _bytes(output, f"images.{n}"),
            "metadata": _metadata(one),
        }
        for n, (prompt, source, output, one) in enumerate(zip(prompts, sources, outputs, described, strict=True))
    ]
    return Sent(edits, values)


def _editscore(values: Any, _: Mapping[str, Factor]) -> Sent:
    values = _dict(values)
    outputs = _list(values, "output_image")
    sources, described = (_list(values, name, len(outputs)) for name in ("input_images", "meta_datas"))
    edits = []
    for n, (source, output, one) in enumerate(zip(sources, outputs, map(_described, described), strict=True)):
        first = source[0] if isinstance(source, list | tuple) and source else source
        edits.append(
            {
                "instruction": _instruction(one, f"meta_datas.{n}"),
                "input": _bytes(first, f"input_images.{n}"),
                "edited": _bytes(output, f"output_image.{n}"),
                "metadata": _metadata(one),
            }
        )
    return Sent(edits, values)


# --- answering ------------------------------------------------------------------------------------------------


def _numbers(rewards: Sequence[dict[str, Any]]) -> list[float | None]:
    return [reward["reward"] for reward in rewards]


def _why(reward: Mapping[str, Any]) -> str:
    """Why there is no reward, in one line."""
    messages = dict.fromkeys(reason["message"] for reason in reward["reasons"])
    messages |= dict.fromkeys(f"{factor}: {why}" for factor, why in reward["abstained"].items())
    return f"{reward['status']}: {'; '.join(list(messages)[:3])}" if messages else str(reward["status"])


def _errors(rewards: Sequence[dict[str, Any]]) -> list[str | None]:
    return [None if reward["reward"] is not None else _why(reward) for reward in rewards]


def _to_flow_factory(_: Sent, rewards: Sequence[dict[str, Any]], __: Mapping[str, Factor]) -> Any:
    errors = {n: error for n, error in enumerate(_errors(rewards)) if error}
    # Flow-Factory's client raises what stands in `error`; of a null alone it says that a number was expected.
    words = "; ".join(f"edit {n}: {error}" for n, error in list(errors.items())[:3])
    summary = {"error": f"{len(errors)} of {len(rewards)} edits have no reward: {words}"} if errors else {}
    return {"rewards": _numbers(rewards), **summary}


def _to_unirl(sent: Sent, rewards: Sequence[dict[str, Any]], factors: Mapping[str, Factor]) -> Any:
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


def _to_edit_r1(_: Sent, rewards: Sequence[dict[str, Any]], __: Mapping[str, Factor]) -> Any:
    return {"scores": _numbers(rewards), "errors": _errors(rewards)}


def _to_flow_grpo(_: Sent, rewards: Sequence[dict[str, Any]], __: Mapping[str, Factor]) -> Any:
    numbers = _numbers(rewards)
    named = dict.fromkeys(("scores", "rewards", "strict_rewards", "outputs"), numbers)
    return {**named, "group_rewards": {}, "group_strict_rewards": {}, "errors": _errors(rewards)}


def _to_editscore(sent: Sent, rewards: Sequence[dict[str, Any]], __: Mapping[str, Factor]) -> Any:
    numbers, errors = _numbers(rewards), _errors(rewards)
    described = [
        {**_metadata(_described(one)), "original_index": n, **({"error": error} if error else {})}
        for n, (one, error) in enumerate(zip(sent.values["meta_datas"], errors, strict=True))
    ]
    reasoning = [error or json.dumps(reward["scores"]) for reward, error in zip(rewards, errors, strict=True)]
    named = dict.fromkeys(("scores", "rewards", "strict_rewards"), numbers)
    return {**named, "reasoning": reasoning, "meta_data": described}


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect("flow-factory", "/compute", _flow_factory, _to_flow_factory),
        Dialect("unirl", "/score", _unirl, _to_unirl, gets=("/health", "/rewards")),
        Dialect("edit-r1", "/mode/{mode}", _edit_r1, _to_edit_r1, pickled=True, gets=()),
        Dialect("flow-grpo", "/", _flow_grpo, _to_flow_grpo, pickled=True, gets=()),
        Dialect("editscore", "/", _editscore, _to_editscore, pickled=True, gets=("/ping",)),
    )
}


# --- paths ----------------------------------------------------------------------------------------------------


def chosen(words: Sequence[str]) -> dict[str, bool]:
    """Dialect to whether it is at its native path too: `NAME`, or `/d/NAME` for that path alone.

    Raises `UsageError` for one that is not known, and for two that want the same path.
    """
    names: dict[str, bool] = {}
    taken: dict[str, str] = {}
    for word in words:
        name = word.removeprefix("/d/")
        if name not in DIALECTS:
            raise UsageError(f"--dialect {word}: expected one of {', '.join(DIALECTS)}{near_miss(name, DIALECTS)}")
        names[name] = word == name
        # GET /health is the same answer for everybody, and no two want the same other path to read.
        if word == name and taken.setdefault(path := DIALECTS[name].post, name) != name:
            raise UsageError(
                f"--dialect {taken[path]} and --dialect {name} both answer POST {path}. Give one of them as "
                f"--dialect /d/{name}: it is then at /d/{name}{path} alone, and its clients are told that address"
            )
    return names


def native_path(names: Mapping[str, bool], method: str, path: str) -> str | None:
    """Where a trainer's own path leads: `/d/NAME/...`; None where no dialect has it."""
    for name, native in names.items():
        dialect = DIALECTS[name]
        start = dialect.post.partition("{")[0]
        posted = path == dialect.post or (
            start != dialect.post and path.startswith(start) and "/" not in path[len(start) :]
        )
        if native and ((method == "POST" and posted) or (method in ("GET", "HEAD") and path in dialect.gets)):
            return f"/d/{name}{path}"
    return None
