"""Rewards for trainers, in this process or from a server: the extension point for a trainer of one's own.

A trainer's module turns what the trainer passes into `RewardEdit`s, asks a `Rewarder`, and hands on what `settled`
leaves. A whole one, for a trainer that calls `reward(samples)` and skips samples whose reward is None:

    from editjudge.rewards.trainers import RewardEdit, trainer

    @trainer
    def edit_reward(rewarder):
        def reward(samples):
            edits = [RewardEdit(s["before"], s["after"], s["prompt"], group=s["prompt"]) for s in samples]
            rewards = rewarder.settled(edits, rewarder.rewards(edits), masks=True)
            return [one.value for one in rewards]

        return reward

Users call `edit_reward(judge, rubric, score, server, on_failure)`: what `Rewarder` takes, and the keyword arguments of
the function. Pictures are what `editjudge.media.source` takes. Inside an event loop, `await rewarder.arewards(edits)`.
`masks=False` is for a trainer that has no word for "no reward": a failure then raises, unless the user asked for
`on_failure="group_mean"`, which marks each number that it makes (`imputed`).

A rewarder opens its judge, or its connections to a server, with the first edit and keeps them: one for each process, so
that a copy in a worker opens its own. `close()` or `with Rewarder(...)` ends them; else they end with the rewarder.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from editjudge.errors import ImageError, InputError, JudgeError, UsageError
from editjudge.media.source import encode

if TYPE_CHECKING:
    from concurrent.futures import Future

    from editjudge.judges.judge import Options
    from editjudge.running.job import EditJudge

_log = logging.getLogger(__name__)

T = TypeVar("T")
OnFailure = Literal["native", "raise", "group_mean"]
Ranking = Literal["none", "scores", "pairs"]
"""How a server ranks the edits of a group (docs/reward-protocol.md)."""
Score = str | Mapping[str, float] | None
"""A formula (`mean`, `min`, `product`, `geometric_mean`), one factor, an expression of factors, factors with weights, or
all factors alike."""

_BATCH = 32
"""Edits in one request to a server, which takes 64."""
_IN_FLIGHT = 8
"""Edits judged at a time in this process, or requests to a server."""
_TRIES = 8
"""Requests to a server that is full or being started, with the wait that it asks for in between."""
_CLOSING = 30.0
"""Seconds that closing a judge may take; longer than any takes, and no process hangs for it at its end."""


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
    """An edit to reward; pictures as `editjudge.media.source` takes them."""

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
        for name, value, kind in (
            ("ranking", ranking, Ranking),
            ("on_failure", on_failure, OnFailure),
        ):
            if value not in get_args(kind):
                raise UsageError(
                    f"{name}={value!r}: expected one of {', '.join(get_args(kind))}"
                )
        if ranking != "none" and server is None:
            raise UsageError(
                f"ranking={ranking!r}: groups are ranked by a server: give its address as server"
            )
        self.ranking = ranking
        self.on_failure = on_failure
        self._rubrics = [rubric] if isinstance(rubric, str) else list(rubric or ())
        weights = dict(score) if isinstance(score, Mapping) else {}
        if not weights and isinstance(score, Mapping):
            raise UsageError(
                "score: expected a formula, a factor, an expression, or factors with weights"
            )
        from editjudge.rewards.reduction import FORMULAS

        field = "formula" if score in FORMULAS else "score"
        self._score = {"weights": weights} if weights else {field: score}
        self._deadline = deadline
        self._server = None if server is None else server.rstrip("/")
        if server is None:
            from editjudge.api import default_judge

            self._source: Callable[[_Batch], Awaitable[dict[int, Reward]]] = (
                self._judged
            )
            self._judge = judge or default_judge()
            self._options = options
            self._prepare("mean" if weights or score is None else str(score), weights)
        else:
            if options is not None:
                raise UsageError("options: how a judge is asked is the server's to say")
            self._source = self._served
            self._judge = judge or ""
            self._token = token
        self._begin()

    # --- what is open -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._session = _Session()
        weakref.finalize(self, self._session.close)

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what is open: trainers send reward functions to workers."""
        return {name: value for name, value in vars(self).items() if name != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the judge or the connections; a later call opens them again."""
        self._session.close()

    # --- asking -----------------------------------------------------------------------------------------------

    def rewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """Return the rewards in the order of the edits. Safe inside a running event loop, which waits meanwhile."""
        return self._session.submit(self._rewarded(edits)).result()

    async def arewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """Return what `rewards` returns, while the caller's loop goes on."""
        return await asyncio.wrap_future(self._session.submit(self._rewarded(edits)))

    async def _rewarded(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """Return a reward for each edit. An image that cannot be read fails its own edit. If that is so of all edits,
        raise the first error: the caller hands over something else than images."""
        encoded = await _each(
            range(len(edits)),
            lambda number: asyncio.to_thread(self._encoded, number, edits[number]),
        )
        batch = {
            number: edit
            for number, edit in enumerate(encoded)
            if isinstance(edit, RewardEdit)
        }
        failed = {
            number: error
            for number, error in enumerate(encoded)
            if isinstance(error, ImageError)
        }
        if failed and not batch:
            raise failed[0]
        rewards = {
            number: Reward(None, "bad_image", str(error))
            for number, error in failed.items()
        }
        rewards |= await self._source(batch)
        return [rewards[number] for number in range(len(edits))]

    def _encoded(self, number: int, edit: RewardEdit) -> RewardEdit | ImageError:
        """Return the edit with its images as a judge takes them; a server is sent what a path leads to."""
        images: dict[str, Any] = {}
        for role in ("input", "edited"):
            where = f"edit {number}, {role}"
            try:
                image = encode(getattr(edit, role), where)
                if isinstance(image, Path) and self._server is not None:
                    image = image.read_bytes()
                images[role] = image
            except ImageError as error:
                return error
            except OSError as error:
                return ImageError(f"{where}: cannot be read: {error}")
        return replace(edit, **images)

    def settled(
        self,
        edits: Sequence[RewardEdit],
        rewards: Sequence[Reward],
        *,
        masks: bool,
        earlier: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> list[Reward]:
        """Return what the trainer gets. `masks`: it leaves out a sample whose reward is None, so None may stay.
        `earlier`: rewards by group that count for `group_mean` too."""
        if all(reward.value is not None for reward in rewards) or (
            self.on_failure == "native" and masks
        ):
            return list(rewards)
        if self.on_failure == "group_mean":
            filled = with_group_means(edits, rewards, earlier)
            _log.warning(
                "%d of %d rewards are the mean of their group: those edits have none of their own",
                sum(reward.imputed for reward in filled),
                len(filled),
            )
            return filled
        raise NoReward(_message(rewards))

    # --- in this process --------------------------------------------------------------------------------------

    def _prepare(self, score: str, weights: Mapping[str, float]) -> None:
        """Raise now what would fail with the first edit: an unknown rubric or factor, or a judge that cannot answer."""
        from editjudge.judges.registry import check_answers
        from editjudge.rewards.reduction import checked_weights, names, read_score
        from editjudge.rubrics.files import resolve

        self._questions = resolve(self._rubrics or ["online"])
        check_answers([self._judge], self._questions)
        by_factor = checked_weights(weights, names(self._questions))
        self._reduction = read_score(score, self._questions, by_factor)

    async def _judged(self, batch: _Batch) -> dict[int, Reward]:
        judge: EditJudge = await self._session.opened(
            functools.partial(_open_judge, self._judge, self._options)
        )
        rewards = await _each(
            batch, lambda number: self._judge_edit(judge, number, batch[number])
        )
        return dict(zip(batch, rewards, strict=True))

    async def _judge_edit(
        self, judge: EditJudge, number: int, encoded: RewardEdit
    ) -> Reward:
        from editjudge.edit import Edit
        from editjudge.judgement import DONE
        from editjudge.rewards.queue import screen
        from editjudge.rewards.reduction import scores_of

        if encoded.edited is None:
            return Reward(
                None, "missing_output", "the editing model produced no picture"
            )
        edit = Edit(
            str(number),
            encoded.input,
            encoded.edited,
            encoded.instruction,
            group=encoded.group,
        )
        finding = await asyncio.to_thread(screen, edit)
        if finding and finding.set_aside:
            return Reward(None, finding.status, finding.message)
        try:
            judgements = await judge.judge(edit, self._questions)
        except ImageError as error:
            return Reward(None, "bad_image", str(error))
        failed = next((j.status for j in judgements if j.status not in DONE), None)
        if failed:
            reasons = (remark.message for j in judgements for remark in j.reasons)
            return Reward(None, failed, next(reasons, ""))
        value = self._reduction.of(scores_of(judgements))
        if value is not None:
            return Reward(value, "ok")
        abstained = (
            f"{key}: {why}" for j in judgements for key, why in j.abstained.items()
        )
        return Reward(None, "abstained", next(abstained, "nothing was scored"))

    # --- from a server ----------------------------------------------------------------------------------------

    async def _served(self, batch: _Batch) -> dict[int, Reward]:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        session = await self._session.opened(
            functools.partial(_open_connections, headers, self._deadline + 30)
        )
        parts = _batches(batch, whole_groups=self.ranking != "none")
        answers = await _each(parts, lambda part: self._post(session, part))
        return {
            number: reward for answer in answers for number, reward in answer.items()
        }

    async def _post(self, session: Any, batch: _Batch) -> dict[int, Reward]:
        """Return the rewards of a request. It is sent again while the server is full or cannot be reached, which is
        safe: what was judged is not asked again."""
        import aiohttp

        body, kind = await asyncio.to_thread(self._body, batch)
        for attempt in range(1, _TRIES + 1):
            wait = "1"
            try:
                url = f"{self._server}/v1/reward"
                async with session.post(
                    url, data=body, headers={"content-type": kind}
                ) as response:
                    if response.status == 200:
                        return _read(str(self._server), batch, await response.json())
                    problem = (
                        f"answers {response.status}: {(await response.text())[:500]}"
                    )
                    if response.status not in (429, 503):
                        raise JudgeError(f"{self._server} {problem}")
                    wait = response.headers.get("retry-after", "1")
            except TimeoutError:
                raise JudgeError(
                    f"{self._server} did not answer within {self._deadline + 30:g} s"
                ) from None
            except ValueError as error:
                raise JudgeError(
                    f"{self._server}: the answer is not JSON: {error}"
                ) from None
            except aiohttp.ClientError as error:
                problem = f"cannot be reached: {error}"
            if attempt < _TRIES:
                await asyncio.sleep(min(60, int(wait) if wait.isdecimal() else 1))
        raise JudgeError(f"{self._server} {problem}")

    def _body(self, batch: _Batch) -> tuple[bytes, str]:
        """Pictures as bytes where msgpack is installed, else as base64."""
        edits = []
        for number, edit in batch.items():
            pictures = {"input": edit.input, "edited": edit.edited}
            edits.append(
                {
                    "id": str(number),
                    "instruction": edit.instruction,
                    "group": edit.group,
                    **pictures,
                }
            )
        own = {
            "judge": self._judge,
            "rubrics": self._rubrics,
            **self._score,
        }
        own["ranking"] = "" if self.ranking == "none" else self.ranking
        request = {"edits": edits, "deadline": self._deadline} | {
            name: value for name, value in own.items() if value
        }
        try:
            import msgpack  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            import json

            def text(value: Any) -> Any:
                return (
                    base64.b64encode(value).decode()
                    if isinstance(value, bytes)
                    else value
                )

            request["edits"] = [
                {name: text(value) for name, value in edit.items()} for edit in edits
            ]
            return json.dumps(request).encode(), "application/json"
        return msgpack.packb(request), "application/msgpack"


def trainer(make: Callable[..., T]) -> Callable[..., T]:
    """Return a factory that takes the arguments of `Rewarder`, and the keyword arguments of `make`."""
    own = [
        one
        for one in inspect.signature(make).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    ]

    @functools.wraps(make)
    def factory(*given: Any, **named: Any) -> T:
        mine = {one.name: named.pop(one.name) for one in own if one.name in named}
        return make(Rewarder(*given, **named), **mine)

    shared = inspect.signature(Rewarder).parameters.values()
    vars(factory)["__signature__"] = inspect.Signature([*shared, *own])
    return factory


_Batch = dict[int, RewardEdit]
"""Edits by their number, with their images as bytes or paths."""


async def _each(keys: Iterable[Any], ask: Callable[[Any], Awaitable[T]]) -> list[T]:
    """Ask about each, some at a time, in their order. The first error ends the others and is raised."""
    gate = asyncio.Semaphore(_IN_FLIGHT)

    async def ask_in_turn(key: Any) -> T:
        async with gate:
            return await ask(key)

    tasks = [asyncio.create_task(ask_in_turn(key)) for key in keys]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _batches(edits: _Batch, *, whole_groups: bool) -> list[_Batch]:
    """The edits of each request, by their numbers; a group that is ranked is never divided."""
    if not whole_groups:
        return [
            dict(list(edits.items())[n : n + _BATCH])
            for n in range(0, len(edits), _BATCH)
        ]
    groups: dict[str, _Batch] = {}
    for number, edit in edits.items():
        groups.setdefault(group_of(edit), {})[number] = edit
    batches: list[_Batch] = []
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
            raise NoReward(
                f"no edit of the group {group} has a reward yet: {reward.status}: {reward.message}"
            )
        return replace(
            reward, value=sum(known[group]) / len(known[group]), imputed=True
        )

    return list(map(filled, groups, rewards))


def group_of(edit: RewardEdit) -> str:
    return edit.instruction if edit.group is None else edit.group


def _message(rewards: Sequence[Reward]) -> str:
    failed = [(n, reward) for n, reward in enumerate(rewards) if reward.value is None]
    words = "; ".join(
        f"edit {n}: {reward.status}: {reward.message}" for n, reward in failed[:3]
    )
    return (
        f"{len(failed)} of {len(rewards)} edits have no reward ({words}). A number in their place would be made up: "
        'skip this batch, or give on_failure="group_mean" to train on the mean of the group'
    )


def _read(server: str, batch: _Batch, answer: Any) -> dict[int, Reward]:
    """Return the rewards of an answer. Raise `JudgeError` if it is not what the protocol says: a number that belongs to
    another edit, or that stands beside a failure, is never used."""
    try:
        rewards = list(answer["rewards"])
        ids = [reward["id"] for reward in rewards]
        if ids != list(map(str, batch)):
            raise ValueError(
                f"the edits {', '.join(map(str, batch))} were sent and {ids} came back"
            )
        return {
            number: _read_one(reward)
            for number, reward in zip(batch, rewards, strict=True)
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"[:500]
        raise JudgeError(
            f"{server}: the answer is not one of the reward protocol: {why}"
        ) from None


def _read_one(reward: Mapping[str, Any]) -> Reward:
    value = reward["reward"]
    status = reward["status"]
    if value is None:
        if status == "ok":
            raise ValueError(f"edit {reward['id']} has the status ok and no reward")
        reasons = [reason["message"] for reason in reward["reasons"]]
        reasons += [f"{factor}: {why}" for factor, why in reward["abstained"].items()]
        return Reward(None, str(status), "; ".join(reasons[:3]))
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= 1
    ):
        raise ValueError(f"edit {reward['id']} has the reward {value!r}")
    if status != "ok":
        raise ValueError(
            f"edit {reward['id']} has the reward {value!r} and the status {status!r}"
        )
    return Reward(value, status)


async def _open_judge(
    spec: str, options: Options | None, resources: AsyncExitStack
) -> EditJudge:
    from editjudge.judges.judge import Options
    from editjudge.running.job import EditJudge

    return await EditJudge.open(spec, options or Options(), resources)


async def _open_connections(
    headers: Mapping[str, str], seconds: float, resources: AsyncExitStack
) -> Any:
    import aiohttp

    session = aiohttp.ClientSession(
        headers=headers, timeout=aiohttp.ClientTimeout(total=seconds)
    )
    return await resources.enter_async_context(session)


class _Session:
    """An event loop in a thread of its own, with what was opened in it: reward functions are called with and without
    a loop, and from several threads. A process that was forked begins another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._thread: _LoopThread | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop, which begins with the first one."""
        self._leave_parent()
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._thread.loop)

    async def opened(
        self, opener: Callable[[AsyncExitStack], Coroutine[Any, Any, T]]
    ) -> T:
        """Return what `opener` opens, the same for all who ask in this loop. Call it in the loop."""
        thread = threading.current_thread()
        assert isinstance(thread, _LoopThread)  # noqa: S101  (only `submit` runs what calls this)
        opening = thread.opening
        if opening is None:
            opening = thread.opening = asyncio.create_task(opener(thread.resources))
        try:
            result: T = await asyncio.shield(opening)
        except BaseException:
            # The next call tries again, unless this caller alone was cancelled.
            if opening.done() and thread.opening is opening:
                thread.opening = None
            raise
        return result

    def close(self) -> None:
        """End the loop and close what was opened in it."""
        self._leave_parent()
        with self._lock:
            thread = self._thread
            self._thread = None
        if thread is not None:
            thread.close()

    def _leave_parent(self) -> None:
        """Forget what the parent of a forked process has: its thread is not here, and its lock may be held for ever."""
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._thread = None
            self._pid = os.getpid()


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="editjudge-rewards", daemon=True)
        self.loop = asyncio.new_event_loop()
        self.resources = AsyncExitStack()
        self.opening: asyncio.Task[Any] | None = None

    def run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def close(self) -> None:
        """End the thread; wait for that unless it is the caller, as where it drops the last reference to a rewarder."""
        asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        if threading.current_thread() is not self:
            self.join(_CLOSING)

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self.resources.aclose()
        finally:
            self.loop.stop()


def column(columns: Mapping[str, Any], name: str, count: int) -> list[Any]:
    """Return a column of a batch. Raise `InputError` if it is not there, or is of another length."""
    if name not in columns:
        raise InputError(
            f'there is no column "{name}": expected one entry for each edit; there are {sorted(columns)}'
        )
    values = columns[name]
    if len(values) != count:
        raise InputError(
            f'the column "{name}" has {len(values)} entries for {count} edits'
        )
    return [values[n] for n in range(count)]
