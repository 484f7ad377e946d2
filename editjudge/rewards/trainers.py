"""Rewards for trainers, computed in this process or by a server. This is the extension point for other trainers.

A trainer's module converts the trainer's arguments into `RewardEdit`s, calls a `Rewarder`, and returns the result of
`settled`. A complete example, for a trainer that calls `reward(samples)` and skips samples whose reward is None:

    from editjudge.rewards.trainers import RewardEdit, trainer

    @trainer
    def edit_reward(rewarder):
        def reward(samples):
            edits = [RewardEdit(s["before"], s["after"], s["prompt"], group=s["prompt"]) for s in samples]
            rewards = rewarder.settled(edits, rewarder.rewards(edits), masks=True)
            return [reward.value for reward in rewards]

        return reward

Users call `edit_reward(judge, rubric, score, server, on_failure)`, with the arguments of `Rewarder` and the keyword
arguments of the function. Images may be of any type that `editjudge.media.source` accepts. Inside an event loop, use
`await rewarder.arewards(edits)`. `masks=False` is for a trainer that cannot leave a sample out. A failure then raises
an error, unless the user passed `on_failure="group_mean"`, which marks each imputed number (`imputed`).

A rewarder opens its judge, or its connections to a server, at the first edit and keeps them open. A copy of the
rewarder in a worker process opens its own. They are closed by `close()`, at the end of `with Rewarder(...)`, or when
the rewarder is garbage-collected.
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

    from aiohttp import ClientSession

    from editjudge.judgement import Judgement
    from editjudge.judges.judge import Options
    from editjudge.rewards.queue import Finding
    from editjudge.running.job import EditJudge

_log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")
OnFailure = Literal["native", "raise", "group_mean"]
Use = Literal["scores", "expected"]
Ranking = Literal["none", "scores", "pairs"]
"""Method by which a server ranks the edits of a group (docs/reward-protocol.md)."""
Score = str | Mapping[str, float] | None
"""A formula (`mean`, `min`, `product`, `geometric_mean`), a factor, a rubric, an expression made of these, factors with
weights, or None for the default."""

_BATCH = 32
"""Number of edits in one request to a server, which accepts up to 64."""
_IN_FLIGHT = 8
"""Maximum number of edits judged concurrently in this process, or of concurrent requests to a server."""
_TRIES = 8
"""Maximum number of tries if a server is full or starting. Between tries, the client waits as long as the server asks."""
_CLOSING = 30.0
"""Timeout in seconds for closing a judge, so that a process never hangs at exit."""


class NoReward(JudgeError):
    """Raised if edits have no reward and the trainer cannot leave them out."""


@dataclass(frozen=True)
class Reward:
    value: float | None
    """Reward from 0 to 1, or None if there is none."""
    status: str
    message: str = ""
    """Reason why there is no reward."""
    imputed: bool = False
    """Whether the value is the mean of the group, because the edit itself has no reward."""


@dataclass(frozen=True)
class RewardEdit:
    """An edit to reward, with images of any type that `editjudge.media.source` accepts."""

    input: Any
    edited: Any
    instruction: str
    group: str | None = None
    """Name of the group of edits that are compared with each other."""

    @property
    def group_name(self) -> str:
        return self.instruction if self.group is None else self.group


Batch = dict[int, RewardEdit]
"""Edits keyed by number, with images as bytes or paths."""


class Rewarder:
    """Rewards edits with a judge in this process, or with a reward server."""

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
        judge_for: Mapping[str, str] | None = None,
        use: Use | None = None,
    ) -> None:
        """Set up a rewarder. `judge_for` names judges for single rubrics, keyed by rubric; `judge` judges the others.
        With `use="expected"`, the expected scores are used for judges that give them."""
        for name, value, kind in (
            ("ranking", ranking, Ranking),
            ("on_failure", on_failure, OnFailure),
            ("use", use or "scores", Use),
        ):
            if value not in get_args(kind):
                raise UsageError(
                    f"{name}={value!r}: expected one of {', '.join(get_args(kind))}",
                    code="unknown_policy",
                )
        if ranking != "none" and server is None:
            raise UsageError(
                f"ranking={ranking!r}: only a server can rank groups: pass its address as server",
                code="no_server",
            )
        if server is not None and options is not None:
            raise UsageError(
                "options: a server sets the options of its judges: leave options out"
            )
        if isinstance(score, Mapping) and not score:
            raise UsageError(
                "score: expected a formula, a factor, an expression, or factors with weights"
            )
        self.ranking = ranking
        self.on_failure = on_failure
        rubrics = [rubric] if isinstance(rubric, str) else list(rubric or ())
        if server is None:
            self._source: _Source = _JudgesHere(
                judge, judge_for or {}, rubrics, score, use or "scores", options
            )
        else:
            fields: dict[str, object] = {
                "judge": judge,
                "judge_for": judge_for,
                "rubrics": rubrics,
                "weights" if isinstance(score, Mapping) else "score": score,
                "ranking": None if ranking == "none" else ranking,
                "use": use,
            }
            self._source = _RewardServer(server.rstrip("/"), token, deadline, fields)
        self._begin()

    # --- lifecycle --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._session = _Session()
        weakref.finalize(self, self._session.close)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without open resources, since trainers pickle reward functions for their workers."""
        return {name: value for name, value in vars(self).items() if name != "_session"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the judge or the connections. A later call opens them again."""
        self._session.close()

    # --- asking -----------------------------------------------------------------------------------------------

    def rewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """Return the rewards in the order of the edits. This blocks, but may be called inside a running event loop."""
        return self._submit(edits).result()

    async def arewards(self, edits: Sequence[RewardEdit]) -> list[Reward]:
        """Return the rewards in the order of the edits, without blocking the caller's event loop."""
        return await asyncio.wrap_future(self._submit(edits))

    def _submit(self, edits: Sequence[RewardEdit]) -> Future[list[Reward]]:
        return self._session.submit(lambda thread: self._rewarded(thread, edits))

    async def _rewarded(
        self, thread: _LoopThread, edits: Sequence[RewardEdit]
    ) -> list[Reward]:
        """Return a reward for each edit. An unreadable image makes only its own edit fail.

        If every edit has an unreadable image, the first error is raised, since the caller probably does not pass
        images.
        """
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
        """Return the edit with encoded images, or an error if an image cannot be read. For a server, files are replaced
        by their bytes."""
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
        """Apply `on_failure` and return the rewards for the trainer.

        `masks` means that the trainer leaves out samples whose reward is None, so None may stay. `earlier` holds
        earlier rewards keyed by group, which also count for `group_mean`.
        """
        failed = [
            (n, reward) for n, reward in enumerate(rewards) if reward.value is None
        ]
        if not failed or (self.on_failure == "native" and masks):
            return list(rewards)
        if self.on_failure == "group_mean":
            _log.warning(
                "%d of %d rewards are imputed: these edits failed and have the mean of their group",
                len(failed),
                len(rewards),
            )
            return _with_group_means(edits, rewards, earlier)
        reasons = "; ".join(
            f"edit {n}: {reward.status}: {reward.message}" for n, reward in failed[:3]
        )
        raise NoReward(
            f"{len(failed)} of {len(rewards)} edits have no reward ({reasons}). "
            'Skip this batch, or pass on_failure="group_mean" to train on the mean of the group instead',
            code="no_reward",
        )


def _with_group_means(
    edits: Sequence[RewardEdit],
    rewards: Sequence[Reward],
    earlier: Mapping[str, Sequence[float]],
) -> list[Reward]:
    """Replace each missing reward with the mean of its group, marked as imputed. Raise `NoReward` if a group has no
    rewards."""
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
                f"no edit of the group {group} has a reward yet, so that it has no mean: {reward.status}: {reward.message}",
                code="no_group_mean",
            )
        mean = sum(values[group]) / len(values[group])
        filled.append(replace(reward, value=mean, imputed=True))
    return filled


def trainer(make: Callable[..., T]) -> Callable[..., T]:
    """Return a factory that takes the arguments of `Rewarder` and the keyword arguments of `make`."""
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
    """Return a column of a batch. Raise `InputError` if it is missing or has the wrong length."""
    if name not in columns:
        raise InputError(
            f'there is no column "{name}": expected one entry for each edit; the columns are {sorted(columns)}',
            code="missing_column",
        )
    values = columns[name]
    if len(values) != count:
        raise InputError(
            f'the column "{name}" has {len(values)} entries for {count} edits'
        )
    return [values[n] for n in range(count)]


async def _each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> list[T]:
    """Call `ask` for each key with limited concurrency, and return the results in order. The first error cancels the
    other calls and is raised."""
    gate = asyncio.Semaphore(_IN_FLIGHT)

    async def ask_in_turn(key: K) -> T:
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


class _JudgesHere:
    """Judges that run in this process."""

    is_remote = False

    def __init__(
        self,
        judge: str | None,
        judge_for: Mapping[str, str],
        rubrics: Sequence[str],
        score: Score,
        use: Use,
        options: Options | None,
    ) -> None:
        """Choose the judges and rubrics without opening a judge. Raise an error for an unknown rubric or factor, or a
        judge that cannot answer."""
        from editjudge.judges.judge import Options
        from editjudge.plugins import default_judge
        from editjudge.rewards.offer import Offer
        from editjudge.rewards.protocol import Terms
        from editjudge.rewards.reduction import INSTRUCTION

        weights = score if isinstance(score, Mapping) else {}
        terms = Terms(
            judge or default_judge(),
            judge_for,
            options or Options(),
            rubrics=tuple(rubrics) or ("online",),
            more_rubrics=(),
        )
        offer = Offer.of(terms)
        expression = score if isinstance(score, str) else "mean"
        self._reduction, named = offer.read_score(expression, weights, rubrics)
        self._questions = offer.panel().questions(named)
        if INSTRUCTION in self._reduction.rubrics and (judge := offer.blind_judge()):
            _log.warning(
                "%s does not judge whether the instruction was followed, so that edits have no reward: pass "
                'judge_for={"%s": JUDGE}, or the rubrics that the reward is about',
                judge,
                INSTRUCTION,
            )
        self._options = {spec: terms.options_of(spec) for spec in self._questions}
        self._use = use

    async def open(self, resources: AsyncExitStack) -> Mapping[str, EditJudge]:
        """Open the judge of each spec."""
        from editjudge.running.job import EditJudge

        return {
            spec: await EditJudge.open(spec, options, resources)
            for spec, options in self._options.items()
        }

    async def rewards(
        self, judges: Mapping[str, EditJudge], batch: Batch
    ) -> dict[int, Reward]:
        rewards = await _each(batch, lambda n: self._reward(judges, n, batch[n]))
        return dict(zip(batch, rewards, strict=True))

    async def _reward(
        self, judges: Mapping[str, EditJudge], number: int, sent: RewardEdit
    ) -> Reward:
        from editjudge.edit import Edit
        from editjudge.rewards.queue import screen

        if sent.edited is None:
            return Reward(None, "missing_output", "the editing model produced no image")
        edit = Edit(
            str(number), sent.input, sent.edited, sent.instruction, group=sent.group
        )
        finding = await asyncio.to_thread(screen, edit)
        if finding and finding.set_aside:
            return Reward(None, finding.status, finding.message)
        judgements: list[Judgement] = []
        try:
            for spec, rubrics in self._questions.items():
                judgements += await judges[spec].judge(edit, rubrics)
        except ImageError as error:
            return Reward(None, "bad_image", str(error))
        return self._reduced(judgements, finding)

    def _reduced(
        self, judgements: Sequence[Judgement], finding: Finding | None
    ) -> Reward:
        from editjudge.judgement import DONE
        from editjudge.rewards.reduction import scores_of
        from editjudge.rewards.rules import unchanged

        failed = [j.status for j in judgements if j.status not in DONE]
        if failed:
            reasons = (remark.message for j in judgements for remark in j.reasons)
            return Reward(None, failed[0], next(reasons, ""))
        reduced = self._reduction.reduced(scores_of(judgements, self._use))
        if reduced.reason:
            return Reward(None, reduced.status, reduced.reason.message)
        if reduced.reward is None:
            texts = (
                f"{key}: {text}"
                for j in judgements
                for key, text in j.abstained.items()
            )
            message = next(texts, "the judge scored no factor")
            return Reward(None, reduced.status, message)
        if remark := unchanged(judgements, self._reduction, finding):
            return Reward(None, "abstained", remark.message)
        return Reward(reduced.reward, "ok")


# --- from a server --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _RewardServer:
    """A server that speaks the reward protocol."""

    url: str
    token: str | None
    deadline: float
    options: Mapping[str, object]
    """Fields of each request other than its edits. Empty fields are left out."""
    is_remote = True

    async def open(self, resources: AsyncExitStack) -> ClientSession:
        import aiohttp

        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = aiohttp.ClientTimeout(total=self.deadline + 30)
        session = aiohttp.ClientSession(headers=headers, timeout=timeout)
        return await resources.enter_async_context(session)

    async def rewards(self, session: ClientSession, batch: Batch) -> dict[int, Reward]:
        batches = _batches(batch, whole_groups=bool(self.options["ranking"]))
        answers = await _each(batches, lambda part: self._post(session, part))
        return {n: reward for answer in answers for n, reward in answer.items()}

    async def _post(self, session: ClientSession, batch: Batch) -> dict[int, Reward]:
        """Return the rewards of a request, retrying while the server is full or cannot be reached.

        Retrying is safe, because the server does not ask its judge about the same edit twice.
        """
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
                        raise JudgeError(
                            f"{self.url} {problem}", code="rejected_by_server"
                        )
                    wait = response.headers.get("retry-after", "1")
            except TimeoutError:
                seconds = self.deadline + 30
                raise JudgeError(
                    f"{self.url} did not answer within {seconds:g} s"
                ) from None
            except ValueError as error:
                raise JudgeError(
                    f"{self.url}: the answer does not follow the reward protocol: {error!s:.500}"
                ) from None
            except aiohttp.ClientError as error:
                problem = f"cannot be reached: {error}"
            if attempt < _TRIES:
                await asyncio.sleep(min(60, int(wait) if wait.isdecimal() else 1))
        raise JudgeError(f"{self.url} {problem}", code="unreachable_server")

    def _body(self, batch: Batch) -> tuple[bytes, str]:
        """Return the request body and its content type. It is msgpack, with images as bytes, if msgpack is installed;
        otherwise JSON."""
        from editjudge.rewards.reduction import FORMULAS

        fields = dict(self.options)
        if fields.get("score") in FORMULAS:
            # The name in the first version of the protocol.
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
        request: dict[str, object] = {"edits": edits, "deadline": self.deadline}
        request |= {name: value for name, value in fields.items() if value}
        try:
            import msgpack  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            text = json.dumps(request, default=lambda b: base64.b64encode(b).decode())
            return text.encode(), "application/json"
        return msgpack.packb(request), "application/msgpack"


_Source = _JudgesHere | _RewardServer


def _batches(edits: Batch, *, whole_groups: bool) -> list[Batch]:
    """Divide edits into requests. With `whole_groups`, the edits of a group stay in one request."""
    groups: dict[str | int, Batch] = {}
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
    """Return the rewards in a response. Raise `ValueError` if it violates the protocol, for example with a number for
    another edit or for a failure."""
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
        raise ValueError(f"expected rewards of the edits {sent}, received {ids}")
    for reward in rewards:
        if reward.reward is not None and not 0 <= reward.reward <= 1:
            raise ValueError(
                f"the reward of edit {reward.id} is {reward.reward!r}: expected a number from 0 to 1 or null"
            )
    return {
        number: Reward(reward.reward, reward.status, reward.explanation())
        for number, reward in zip(batch, rewards, strict=True)
    }


# --- event loop in a thread -----------------------------------------------------------------------------------


class _Session:
    """An event loop in a separate thread, with its open resources.

    Reward functions are called with and without a running loop, and from several threads. A forked process starts a new
    loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._thread: _LoopThread | None = None

    def submit(
        self, work: Callable[[_LoopThread], Coroutine[None, None, T]]
    ) -> Future[T]:
        """Run a coroutine in the loop, which is started on first use, and return its future."""
        self._leave_parent()
        with self._lock:
            if self._thread is None:
                self._thread = _LoopThread()
                self._thread.start()
            thread = self._thread
            return asyncio.run_coroutine_threadsafe(work(thread), thread.loop)

    def close(self) -> None:
        """Stop the loop and close its resources."""
        self._leave_parent()
        with self._lock:
            thread = self._thread
            self._thread = None
        if thread is not None:
            thread.close()

    def _leave_parent(self) -> None:
        """Reset the state after a fork. The parent's thread does not exist in this process, and its lock may be held
        forever."""
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
        self, opener: Callable[[AsyncExitStack], Coroutine[None, None, T]]
    ) -> T:
        """Return the resource that `opener` opens. All calls share it. It must be called in the loop."""
        opening = self._opening or asyncio.create_task(opener(self._resources))
        self._opening = opening
        try:
            result: T = await asyncio.shield(opening)
        except BaseException:
            # The next call opens it again, unless only this caller was cancelled.
            if opening.done() and self._opening is opening:
                self._opening = None
            raise
        return result

    def close(self) -> None:
        """Stop the thread and wait for it. If this is called in that thread, which may have dropped the last reference
        to a rewarder, do not wait."""
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
