"""Rewards for trainers, in this process or from a server: the extension point for a trainer of one's own.

A trainer's module turns what the trainer passes into `RewardEdit`s, asks a `Rewarder`, and hands on what `settled`
leaves. A whole one, for a trainer that calls `reward(samples)` and skips samples whose reward is None:

    from editjudge.integrations.reward import RewardEdit, trainer

    @trainer
    def edit_reward(rewarder):
        def reward(samples):
            edits = [RewardEdit(s["before"], s["after"], s["prompt"], group=s["prompt"]) for s in samples]
            rewards = rewarder.settled(edits, rewarder.rewards(edits), masks=True)
            return [one.value for one in rewards]

        return reward

Users call `edit_reward(judge, rubric, score, server, on_failure)`: what `Rewarder` takes, and the keyword arguments of
the function. Pictures are what `editjudge.media.pixels` takes. Inside an event loop, `await rewarder.arewards(edits)`.
`masks=False` is for a trainer that has no word for "no reward": a failure then raises, unless the user asked for
`on_failure="group_mean"`, which marks each number that it makes (`imputed`).
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from editjudge.errors import InputError, JudgeError, UsageError
from editjudge.media.pixels import encode

if TYPE_CHECKING:
    from editjudge.judges.registry import Options

T = TypeVar("T")
OnFailure = Literal["native", "raise", "group_mean"]
Ranking = Literal["none", "scores", "pairs"]
"""What a server makes of the edits of a group (docs/reward-protocol.md)."""
Score = str | Mapping[str, float] | None
"""A formula (`mean`, `min`, `product`, `geometric_mean`), one factor, factors with weights, or all factors alike."""

_BATCH = 32
"""Edits in one request to a server, which takes 64."""
_IN_FLIGHT = 8
"""Edits judged at a time in this process, or requests to a server."""
_TRIES = 8
"""Of a server that is full or being started, with what it says to wait in between."""


class NoReward(JudgeError):
    """Edits without a reward, in a trainer that has no word for that."""


@dataclass(frozen=True)
class Reward:
    value: float | None
    """0 to 1; None: there is none."""
    status: str
    message: str = ""
    """Why there is none."""
    imputed: bool = False
    """It is the mean of its group, since this edit has none: nobody said it of this edit."""


@dataclass(frozen=True)
class RewardEdit:
    """An edit to reward; pictures as `editjudge.media.pixels` takes them."""

    input: Any
    edited: Any
    instruction: str
    group: str | None = None
    """Edits that are compared with each other."""


class Rewarder:
    """Rewards edits by one judge and rubric, or by those of a server."""

    def __init__(
        self,
        judge: str | None = None,
        rubric: str | Sequence[str] | None = None,
        score: Score = None,
        server: str | None = None,
        on_failure: OnFailure = "native",
        token: str | None = None,
        deadline: float = 120.0,
        options: Options | None = None,
        ranking: Ranking = "none",
    ) -> None:
        for name, value, kind in (("ranking", ranking, Ranking), ("on_failure", on_failure, OnFailure)):
            if value not in get_args(kind):
                raise UsageError(f"{name}={value!r}: expected one of {', '.join(get_args(kind))}")
        if ranking != "none" and server is None:
            raise UsageError(f"ranking={ranking!r}: groups are ranked by a server: give its address as server")
        self.ranking, self.on_failure = ranking, on_failure
        self._rubrics = [rubric] if isinstance(rubric, str) else list(rubric or ())
        self._formula, self._weights = _reduction(score)
        self._deadline = deadline
        if server is None:
            from editjudge.api import default_judge

            self._source: Callable[[Sequence[RewardEdit]], Awaitable[list[Reward]]] = self._judged
            self._judge = judge or default_judge()
            self._options = options
            self._check()
        else:
            if options is not None:
                raise UsageError("options: how a judge is asked is the server's to say")
            self._source, self._judge = self._served, judge or ""
            self._server, self._token = server.rstrip("/"), token
        self._loop = _Loop()

    # --- asking -----------------------------------------------------------------------------------------------

    def rewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """In the order of the edits. Safe inside a running event loop, which waits meanwhile."""
        rewards: list[Reward] = self._loop.submit(self._source(edits)).result()
        return rewards

    async def arewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """As `rewards`, while the caller's loop goes on."""
        return await asyncio.wrap_future(self._loop.submit(self._source(edits)))

    def settled(
        self,
        edits: Sequence[RewardEdit],
        rewards: Sequence[Reward],
        *,
        masks: bool,
        earlier: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> list[Reward]:
        """What the trainer gets. `masks`: the trainer leaves out a sample whose reward is None, so None may stay.
        `earlier`: rewards by group that count for `group_mean` too."""
        if all(reward.value is not None for reward in rewards) or (self.on_failure == "native" and masks):
            return list(rewards)
        if self.on_failure == "group_mean":
            return with_group_means(edits, rewards, earlier)
        raise NoReward(_message(rewards))

    # --- in this process --------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Say now what would fail with the first edit: an unknown rubric or factor."""
        from editjudge.rubrics.files import resolve
        from editjudge.web.reduction import names

        known = names(resolve(self._rubrics or ["online"]))
        if unknown := [name for name in self._weights if name not in known]:
            raise UsageError(f"score: no rubric has a factor {unknown[0]}")

    async def _judged(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        gate = asyncio.Semaphore(_IN_FLIGHT)

        async def one(number: int, edit: RewardEdit) -> Reward:
            async with gate:
                return await self._judge_one(number, edit)

        return list(await asyncio.gather(*(one(n, edit) for n, edit in enumerate(edits))))

    async def _judge_one(self, number: int, edit: RewardEdit) -> Reward:
        from editjudge.edit import Edit
        from editjudge.judges.registry import Options
        from editjudge.rubrics.files import resolve
        from editjudge.run.job import judge_edit
        from editjudge.web.reduction import Reduction, failure, labels
        from editjudge.web.screening import screened

        pictures = [encode(p, f"edit {number}, {role}") for role, p in (("input", edit.input), ("edited", edit.edited))]
        if pictures[1] is None:
            return Reward(None, "missing_output", "the editing model produced no picture")
        whole = Edit(str(number), pictures[0], pictures[1], edit.instruction, group=edit.group)
        output = await asyncio.to_thread(screened, whole)
        if output and output.set_aside:
            return Reward(None, "abstained", f"no edit: the output {output.words}")
        rubrics = resolve(self._rubrics or ["online"])
        judgements = await judge_edit(whole, rubrics, self._judge, self._options or Options())
        if failed := failure(judgements):
            reasons = (remark.message for judgement in judgements for remark in judgement.reasons)
            return Reward(None, failed, next(reasons, ""))
        called, factors = labels(rubrics), {(r.name, f.key): f for r in rubrics for f in r.factors}
        scores = {
            called[judgement.rubric, key]: (factors[judgement.rubric, key], score)
            for judgement in judgements
            for key, score in (judgement.scores or {}).items()
        }
        value = Reduction(self._formula or "mean", self._weights).of(scores)
        why = next((f"{key}: {why}" for j in judgements for key, why in j.abstained.items()), "nothing was scored")
        return Reward(value, "ok") if value is not None else Reward(None, "abstained", why)

    # --- from a server ----------------------------------------------------------------------------------------

    async def _served(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        import aiohttp

        batches = _batches(edits, whole_groups=self.ranking != "none")
        gate = asyncio.Semaphore(_IN_FLIGHT)
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        timeout = aiohttp.ClientTimeout(total=self._deadline + 30)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:

            async def one(batch: Mapping[int, RewardEdit]) -> dict[int, Reward]:
                async with gate:
                    return dict(zip(batch, await self._post(session, batch), strict=True))

            answers = await asyncio.gather(*(one(batch) for batch in batches))
        rewards = {number: reward for answer in answers for number, reward in answer.items()}
        return [rewards[number] for number in range(len(edits))]

    async def _post(self, session: Any, batch: Mapping[int, RewardEdit]) -> list[Reward]:
        body, kind = await asyncio.to_thread(self._body, batch)
        for attempt in range(_TRIES):
            async with session.post(f"{self._server}/v1/reward", data=body, headers={"content-type": kind}) as response:
                if response.status == 200:
                    answer = await response.json()
                    return [_read(reward) for reward in answer["rewards"]]
                words = (await response.text())[:500]
                if response.status not in (429, 503) or attempt == _TRIES - 1:
                    raise JudgeError(f"{self._server} answers {response.status}: {words}")
                wait = response.headers.get("retry-after", "1")
            await asyncio.sleep(min(60, int(wait) if wait.isdecimal() else 1))
        raise AssertionError("unreachable")

    def _body(self, batch: Mapping[int, RewardEdit]) -> tuple[bytes, str]:
        """Pictures as bytes where msgpack is installed, else as base64."""
        edits = []
        for number, edit in batch.items():
            pictures = {role: encode(getattr(edit, role), f"edit {number}, {role}") for role in ("input", "edited")}
            raw = {role: p.read_bytes() if isinstance(p, Path) else p for role, p in pictures.items()}
            edits.append({"id": str(number), "instruction": edit.instruction, "group": edit.group, **raw})
        own = {"judge": self._judge, "rubrics": self._rubrics, "formula": self._formula, "weights": self._weights}
        own["ranking"] = "" if self.ranking == "none" else self.ranking
        request = {"edits": edits, "deadline": self._deadline} | {name: value for name, value in own.items() if value}
        try:
            import msgpack  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            import json

            def text(value: Any) -> Any:
                return base64.b64encode(value).decode() if isinstance(value, bytes) else value

            request["edits"] = [{name: text(value) for name, value in edit.items()} for edit in edits]
            return json.dumps(request).encode(), "application/json"
        return msgpack.packb(request), "application/msgpack"


def trainer(make: Callable[..., T]) -> Callable[..., T]:
    """A factory that takes the arguments of `Rewarder`, and of `make` its keyword arguments."""
    own = [one for one in inspect.signature(make).parameters.values() if one.kind is one.KEYWORD_ONLY]

    @functools.wraps(make)
    def factory(*given: Any, **named: Any) -> T:
        mine = {one.name: named.pop(one.name) for one in own if one.name in named}
        return make(Rewarder(*given, **named), **mine)

    shared = inspect.signature(Rewarder).parameters.values()
    vars(factory)["__signature__"] = inspect.Signature([*shared, *own])
    return factory


def _batches(edits: Sequence[RewardEdit], *, whole_groups: bool) -> list[dict[int, RewardEdit]]:
    """The edits of each request, by their numbers; a group that is ranked is never divided."""
    if not whole_groups:
        return [dict(list(enumerate(edits))[n : n + _BATCH]) for n in range(0, len(edits), _BATCH)]
    groups: dict[str, dict[int, RewardEdit]] = {}
    for number, edit in enumerate(edits):
        groups.setdefault(group_of(edit), {})[number] = edit
    batches: list[dict[int, RewardEdit]] = []
    for group in groups.values():
        if not batches or len(batches[-1]) + len(group) > _BATCH:
            batches.append({})
        batches[-1].update(group)
    return batches


def with_group_means(
    edits: Sequence[RewardEdit],
    rewards: Sequence[Reward],
    earlier: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> list[Reward]:
    """Replace each missing reward by the mean of its group, and mark it. Raises `NoReward` where a group has none."""
    groups = [group_of(edit) for edit in edits]
    known = {group: list(earlier.get(group, ())) for group in groups}
    for group, reward in zip(groups, rewards, strict=True):
        known[group] += [] if reward.value is None else [reward.value]

    def filled(group: str, reward: Reward) -> Reward:
        if reward.value is not None:
            return reward
        if not known[group]:
            raise NoReward(f"no edit of the group {group} has a reward yet: {reward.status}: {reward.message}")
        return replace(reward, value=sum(known[group]) / len(known[group]), imputed=True)

    return list(map(filled, groups, rewards))


def group_of(edit: RewardEdit) -> str:
    return edit.instruction if edit.group is None else edit.group


def _message(rewards: Sequence[Reward]) -> str:
    failed = [(n, reward) for n, reward in enumerate(rewards) if reward.value is None]
    words = "; ".join(f"edit {n}: {reward.status}: {reward.message}" for n, reward in failed[:3])
    return (
        f"{len(failed)} of {len(rewards)} edits have no reward ({words}). A number in their place would be made up: "
        'skip this batch, or give on_failure="group_mean" to train on the mean of the group'
    )


def _read(reward: Mapping[str, Any]) -> Reward:
    reasons = [reason["message"] for reason in reward["reasons"]]
    reasons += [f"{factor}: {why}" for factor, why in reward["abstained"].items()]
    return Reward(reward["reward"], reward["status"], "" if reward["reward"] is not None else "; ".join(reasons[:3]))


def _reduction(score: Score) -> tuple[Any, dict[str, float]]:
    from editjudge.web.reduction import FORMULAS

    if score is None:
        return None, {}
    if isinstance(score, str):
        return (score, {}) if score in FORMULAS else (None, {score: 1.0})
    if not score or any(not 0 < weight < float("inf") for weight in score.values()):
        raise UsageError("score: expected a formula, a factor, or factors with weights above 0")
    return None, dict(score)


class _Loop:
    """An event loop in a thread of its own, begun with the first use: reward functions are called with and without
    one. A process that was forked begins another."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._pid = -1

    def submit(self, work: Any) -> Any:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="editjudge-rewards", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def __reduce__(self) -> Any:
        """Trainers send reward functions to workers: each begins a loop of its own."""
        return _Loop, ()


def column(columns: Mapping[str, Any], name: str, count: int) -> list[Any]:
    """A column of a batch. Raises `InputError` where it is not there, or is of another length."""
    if name not in columns:
        raise InputError(f'there is no column "{name}": expected one entry for each edit; there are {sorted(columns)}')
    values = columns[name]
    if len(values) != count:
        raise InputError(f'the column "{name}" has {len(values)} entries for {count} edits')
    return [values[n] for n in range(count)]
