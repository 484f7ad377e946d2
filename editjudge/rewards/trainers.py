"""Rewards for trainers, in this process or from a server: the extension point for a trainer of one's own.

A trainer's module turns what the trainer passes into `RewardEdit`s, asks a `Rewarder`, and hands on what `settled`
leaves. A complete one, for a trainer that calls `reward(samples)` and skips samples whose reward is None:

    from editjudge.rewards.trainers import RewardEdit, trainer

    @trainer
    def edit_reward(rewarder):
        def reward(samples):
            edits = [RewardEdit(s["before"], s["after"], s["prompt"], group=s["prompt"]) for s in samples]
            rewards = rewarder.settled(edits, rewarder.rewards(edits), masks=True)
            return [reward.value for reward in rewards]

        return reward

Users call `edit_reward(judge, rubric, score, server, on_failure)`: what `Rewarder` takes, and the keyword arguments of
the function. Images are what `editjudge.media.source` takes. Inside an event loop, `await rewarder.arewards(edits)`.
`masks=False` is for a trainer that cannot leave a sample out: a failure then raises, unless the user asked for
`on_failure="group_mean"`, which marks each number that it makes (`imputed`).

A rewarder opens its judge, or its connections to a server, with the first edit and keeps them: one for each process, so
that a copy in a worker opens its own. `close()` or `with Rewarder(...)` ends them; else they end with the rewarder.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import json
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
"""Seconds that closing a judge may take; longer than any takes, so that no process hangs at its end."""


class NoReward(JudgeError):
    """Edits without a reward, in a trainer that cannot leave them out."""


@dataclass(frozen=True)
class Reward:
    value: float | None
    """0 to 1; None if there is none."""
    status: str
    message: str = ""
    """Why there is none."""
    imputed: bool = False
    """Whether it is the mean of its group, since no judge gave this edit a reward."""


@dataclass(frozen=True)
class RewardEdit:
    """An edit to reward; images as `editjudge.media.source` takes them."""

    input: Any
    edited: Any
    instruction: str
    group: str | None = None
    """Edits that are compared with each other."""

    @property
    def group_name(self) -> str:
        return self.instruction if self.group is None else self.group


Batch = dict[int, RewardEdit]
"""Edits by their number, with their images as bytes or paths."""


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
        if server is not None and options is not None:
            raise UsageError("options: how a judge is asked is set at the server")
        if isinstance(score, Mapping) and not score:
            raise UsageError(
                "score: expected a formula, a factor, an expression, or factors with weights"
            )
        self.ranking = ranking
        self.on_failure = on_failure
        rubrics = [rubric] if isinstance(rubric, str) else list(rubric or ())
        if server is None:
            self._source: _Source = _JudgeHere(judge, rubrics, score, options)
        else:
            self._source = _RewardServer(
                server.rstrip("/"), token, deadline, judge, rubrics, score, ranking
            )
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
        return self._submit(edits).result()

    async def arewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """Return what `rewards` returns, while the caller's loop goes on."""
        return await asyncio.wrap_future(self._submit(edits))

    def _submit(self, edits: Sequence[RewardEdit]) -> Future[list[Reward]]:
        return self._session.submit(lambda thread: self._rewarded(thread, edits))

    async def _rewarded(
        self, thread: _LoopThread, edits: Sequence[RewardEdit]
    ) -> list[Reward]:
        """Return a reward for each edit. An image that cannot be read fails its own edit. If that is so of all edits,
        raise the first error: the caller passes something else than images."""
        encoded = await _each(
            range(len(edits)),
            lambda number: asyncio.to_thread(self._encoded, number, edits[number]),
        )
        batch: Batch = {}
        rewards: dict[int, Reward] = {}
        for number, edit in enumerate(encoded):
            if isinstance(edit, RewardEdit):
                batch[number] = edit
            else:
                rewards[number] = Reward(None, "bad_image", str(edit))
        if not batch and encoded and isinstance(encoded[0], ImageError):
            raise encoded[0]
        source: Any = await thread.opened(self._source.open)
        rewards |= await self._source.rewards(source, batch)
        return [rewards[number] for number in range(len(edits))]

    def _encoded(self, number: int, edit: RewardEdit) -> RewardEdit | ImageError:
        """Return the edit with its images as a judge takes them; a server is sent the bytes of a file."""
        images: dict[str, Any] = {}
        for role, image in (("input", edit.input), ("edited", edit.edited)):
            where = f"edit {number}, {role}"
            try:
                images[role] = encode(image, where)
                if isinstance(images[role], Path) and self._source.is_remote:
                    images[role] = images[role].read_bytes()
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
        failed = [
            (n, reward) for n, reward in enumerate(rewards) if reward.value is None
        ]
        if not failed or (self.on_failure == "native" and masks):
            return list(rewards)
        if self.on_failure == "group_mean":
            _log.warning(
                "%d of %d rewards are the mean of their group: those edits have none of their own",
                len(failed),
                len(rewards),
            )
            return _with_group_means(edits, rewards, earlier)
        reasons = "; ".join(
            f"edit {n}: {reward.status}: {reward.message}" for n, reward in failed[:3]
        )
        raise NoReward(
            f"{len(failed)} of {len(rewards)} edits have no reward ({reasons}). A number in their place would be made up: "
            'skip this batch, or give on_failure="group_mean" to train on the mean of the group'
        )


def _with_group_means(
    edits: Sequence[RewardEdit],
    rewards: Sequence[Reward],
    earlier: Mapping[str, Sequence[float]],
) -> list[Reward]:
    """Replace each missing reward by the mean of its group, and mark it. Raise `NoReward` if a group has none."""
    groups = [edit.group_name for edit in edits]
    values = {group: list(earlier.get(group, ())) for group in groups}
    for group, reward in zip(groups, rewards, strict=True):
        if reward.value is not None:
            values[group].append(reward.value)
    filled = []
    for group, reward in zip(groups, rewards, strict=True):
        if reward.value is not None:
            filled.append(reward)
            continue
        if not values[group]:
            raise NoReward(
                f"no edit of the group {group} has a reward yet: {reward.status}: {reward.message}"
            )
        mean = sum(values[group]) / len(values[group])
        filled.append(replace(reward, value=mean, imputed=True))
    return filled


def trainer(make: Callable[..., T]) -> Callable[..., T]:
    """Return a factory that takes the arguments of `Rewarder`, and the keyword arguments of `make`."""
    parameters = inspect.signature(make).parameters.values()
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]

    @functools.wraps(make)
    def factory(*arguments: Any, **named: Any) -> T:
        passed = {p.name: named.pop(p.name) for p in keywords if p.name in named}
        return make(Rewarder(*arguments, **named), **passed)

    shared = inspect.signature(Rewarder).parameters.values()
    vars(factory)["__signature__"] = inspect.Signature([*shared, *keywords])
    return factory


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


# --- in this process ------------------------------------------------------------------------------------------


class _JudgeHere:
    """A judge of this process."""

    is_remote = False

    def __init__(
        self,
        judge: str | None,
        rubrics: Sequence[str],
        score: Score,
        options: Options | None,
    ) -> None:
        """Raise now what would fail with the first edit: an unknown rubric or factor, or a judge that cannot answer."""
        from editjudge.judges.judge import Options
        from editjudge.judges.registry import check_answers
        from editjudge.plugins import default_judge
        from editjudge.rewards.reduction import checked_weights, names, read_score
        from editjudge.rubrics.files import resolve

        self._judge = judge or default_judge()
        self._options = options or Options()
        self._rubrics = resolve(rubrics or ["online"])
        check_answers([self._judge], self._rubrics)
        weights = score if isinstance(score, Mapping) else {}
        expression = score if isinstance(score, str) else "mean"
        by_factor = checked_weights(weights, names(self._rubrics))
        self._reduction = read_score(expression, self._rubrics, by_factor)

    async def open(self, resources: AsyncExitStack) -> EditJudge:
        from editjudge.running.job import EditJudge

        return await EditJudge.open(self._judge, self._options, resources)

    async def rewards(self, judge: EditJudge, batch: Batch) -> dict[int, Reward]:
        rewards = await _each(batch, lambda n: self._reward(judge, n, batch[n]))
        return dict(zip(batch, rewards, strict=True))

    async def _reward(self, judge: EditJudge, number: int, sent: RewardEdit) -> Reward:
        from editjudge.edit import Edit
        from editjudge.judgement import DONE
        from editjudge.rewards.queue import screen
        from editjudge.rewards.reduction import scores_of

        if sent.edited is None:
            return Reward(None, "missing_output", "the editing model produced no image")
        edit = Edit(
            str(number), sent.input, sent.edited, sent.instruction, group=sent.group
        )
        finding = await asyncio.to_thread(screen, edit)
        if finding and finding.set_aside:
            return Reward(None, finding.status, finding.message)
        try:
            judgements = await judge.judge(edit, self._rubrics)
        except ImageError as error:
            return Reward(None, "bad_image", str(error))
        failed = [j.status for j in judgements if j.status not in DONE]
        if failed:
            reasons = (remark.message for j in judgements for remark in j.reasons)
            return Reward(None, failed[0], next(reasons, ""))
        value = self._reduction.of(scores_of(judgements))
        if value is not None:
            return Reward(value, "ok")
        abstained = (
            f"{key}: {why}" for j in judgements for key, why in j.abstained.items()
        )
        return Reward(None, "abstained", next(abstained, "nothing was scored"))


# --- from a server --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RewardServer:
    """A server that speaks the reward protocol."""

    url: str
    token: str | None
    deadline: float
    judge: str | None
    rubrics: Sequence[str]
    score: Score
    ranking: Ranking
    is_remote = True

    async def open(self, resources: AsyncExitStack) -> Any:
        import aiohttp

        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = aiohttp.ClientTimeout(total=self.deadline + 30)
        session = aiohttp.ClientSession(headers=headers, timeout=timeout)
        return await resources.enter_async_context(session)

    async def rewards(self, session: Any, batch: Batch) -> dict[int, Reward]:
        batches = _batches(batch, whole_groups=self.ranking != "none")
        answers = await _each(batches, lambda part: self._post(session, part))
        return {n: reward for answer in answers for n, reward in answer.items()}

    async def _post(self, session: Any, batch: Batch) -> dict[int, Reward]:
        """Return the rewards of a request. It is sent again while the server is full or cannot be reached, which is
        safe: what was judged is not asked again."""
        import aiohttp

        body, kind = await asyncio.to_thread(self._body, batch)
        url = f"{self.url}/v1/reward"
        for attempt in range(1, _TRIES + 1):
            wait = "1"
            try:
                async with session.post(
                    url, data=body, headers={"content-type": kind}
                ) as response:
                    if response.status == 200:
                        return _read(batch, await response.read())
                    problem = (
                        f"answers {response.status}: {(await response.text())[:500]}"
                    )
                    if response.status not in (429, 503):
                        raise JudgeError(f"{self.url} {problem}")
                    wait = response.headers.get("retry-after", "1")
            except TimeoutError:
                seconds = self.deadline + 30
                raise JudgeError(
                    f"{self.url} did not answer within {seconds:g} s"
                ) from None
            except ValueError as error:
                raise JudgeError(
                    f"{self.url}: the answer is not one of the reward protocol: {error!s:.500}"
                ) from None
            except aiohttp.ClientError as error:
                problem = f"cannot be reached: {error}"
            if attempt < _TRIES:
                await asyncio.sleep(min(60, int(wait) if wait.isdecimal() else 1))
        raise JudgeError(f"{self.url} {problem}")

    def _body(self, batch: Batch) -> tuple[bytes, str]:
        """Return the request and its content type: msgpack with images as bytes if it is installed, else JSON."""
        from editjudge.rewards.reduction import FORMULAS

        fields: dict[str, Any] = {
            "judge": self.judge,
            "rubrics": self.rubrics,
            "weights" if isinstance(self.score, Mapping) else "score": self.score,
            "ranking": None if self.ranking == "none" else self.ranking,
        }
        if self.score in FORMULAS:
            # As servers of the first version call it.
            fields["formula"] = fields.pop("score")
        edits = [
            {
                "id": str(number),
                "instruction": edit.instruction,
                "group": edit.group,
                "input": edit.input,
                "edited": edit.edited,
            }
            for number, edit in batch.items()
        ]
        request = {"edits": edits, "deadline": self.deadline}
        request |= {name: value for name, value in fields.items() if value}
        try:
            import msgpack  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            text = json.dumps(request, default=lambda b: base64.b64encode(b).decode())
            return text.encode(), "application/json"
        return msgpack.packb(request), "application/msgpack"


_Source = _JudgeHere | _RewardServer


def _batches(edits: Batch, *, whole_groups: bool) -> list[Batch]:
    """Return the edits of each request; a group that is ranked is never divided."""
    groups: dict[Any, Batch] = {}
    for number, edit in edits.items():
        group = edit.group_name if whole_groups else number
        groups.setdefault(group, {})[number] = edit
    batches: list[Batch] = []
    for members in groups.values():
        if not batches or len(batches[-1]) + len(members) > _BATCH:
            batches.append({})
        batches[-1].update(members)
    return batches


def _read(batch: Batch, answer: bytes) -> dict[int, Reward]:
    """Return the rewards of an answer. Raise `ValueError` if it is not what the protocol says: a number that belongs to
    another edit, or comes with a failure, is never used."""
    from pydantic import TypeAdapter

    from editjudge.rewards.protocol import RewardedEdit

    content = json.loads(answer)
    if not isinstance(content, dict):
        raise ValueError("expected an object with `rewards`")
    rewards = TypeAdapter(list[RewardedEdit]).validate_python(
        content.get("rewards"), strict=True
    )
    ids = [reward.id for reward in rewards]
    if ids != list(map(str, batch)):
        sent = ", ".join(map(str, batch))
        raise ValueError(f"the edits {sent} were sent and {ids} came back")
    for reward in rewards:
        if reward.reward is not None and not 0 <= reward.reward <= 1:
            raise ValueError(f"edit {reward.id} has the reward {reward.reward!r}")
    return {
        number: Reward(reward.reward, reward.status, reward.why())
        for number, reward in zip(batch, rewards, strict=True)
    }


# --- an event loop of its own ---------------------------------------------------------------------------------


class _Session:
    """An event loop in a thread of its own, with what was opened in it: reward functions are called with and without
    a loop, and from several threads. A process that was forked begins another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._thread: _LoopThread | None = None

    def submit(
        self, work: Callable[[_LoopThread], Coroutine[Any, Any, T]]
    ) -> Future[T]:
        """Run a coroutine in the loop, which begins with the first one."""
        self._leave_parent()
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.start()
            thread = self._thread
            return asyncio.run_coroutine_threadsafe(work(thread), thread.loop)

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
        self._resources = AsyncExitStack()
        self._opening: asyncio.Task[Any] | None = None

    def run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    async def opened(
        self, opener: Callable[[AsyncExitStack], Coroutine[Any, Any, T]]
    ) -> T:
        """Return what `opener` opens, the same for all calls. Call it in the loop."""
        opening = self._opening or asyncio.create_task(opener(self._resources))
        self._opening = opening
        try:
            result: T = await asyncio.shield(opening)
        except BaseException:
            # The next call tries again, unless this caller alone was cancelled.
            if opening.done() and self._opening is opening:
                self._opening = None
            raise
        return result

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
            await self._resources.aclose()
        finally:
            self.loop.stop()
