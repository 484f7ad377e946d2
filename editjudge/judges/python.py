"""The judge `python:MODULE:FUNCTION`, a function of the user's own.

    def sharpness(*, images, texts, rubric, edit):
        size = images["edited"].width
        return {factor.key: factor.scale.best if size > 512 else None for factor in rubric.factors}

    sharpness.version = 1

It runs in worker processes, which may crash, hang or be killed without harm to the run.

| the function may have | meaning |
|---|---|
| `FUNCTION.version` | part of the key, beside the digest of its module's file |
| `FUNCTION.load()` | called once in each process; if it returns a callable, that is called in the function's place |
| `FUNCTION.batch(calls)` | called with a list of the keyword arguments of several calls; returns a list of as many answers |
| `FUNCTION.batch_size` | maximum number of calls in a batch, or of an async function's calls at the same time; 8 by default |
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from editjudge.canonical import text_hash
from editjudge.edit import Edit
from editjudge.errors import (
    EditjudgeError,
    ImageError,
    JudgeError,
    Option,
    UsageError,
    did_you_mean,
)
from editjudge.judgement import Judgement
from editjudge.judges.judge import Judge, Load, Options, Work
from editjudge.judges.workers import (
    READABLE,
    Measurer,
    ProcessWorker,
    WorkerCrashed,
    WorkerNotStarted,
    WorkerPool,
    WorkerTimedOut,
    cores,
    is_large,
)
from editjudge.media.image import EncodedImage, decode
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Remark

BATCH = 8
"""Calls in a batch, unless the function says otherwise."""
_GRACE = 1.0
"""Seconds in which a worker reports that an async call took too long, before it is killed."""
_MAX_REASON = 10_000
"""Maximum number of characters of a reason."""
_MAX_ANSWERS = 1_000
"""Maximum number of factors of an answer that are read."""


@dataclass(frozen=True)
class EditFacts:
    """The edit as a function sees it."""

    id: str
    metadata: Mapping[str, object]


@dataclass(frozen=True)
class Call:
    """A call of the function, in the form in which it is sent to a worker."""

    images: Mapping[str, EncodedImage | Sequence[EncodedImage]]
    texts: Mapping[str, str]
    rubric: Rubric
    edit: EditFacts
    optional: frozenset[str]
    """Images that the rubric does not show. They are left out if they cannot be read."""

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments, with decoded images. Raise `ImageError` if an image cannot be read."""
        images: dict[str, Any] = {}
        for role, image in self.images.items():
            try:
                if isinstance(image, EncodedImage):
                    images[role] = decode(image.data, name=f"the {role}")
                else:
                    images[role] = [decode(i.data, name=f"the {role}") for i in image]
            except ImageError:
                if role not in self.optional:
                    raise
        return {
            "images": images,
            "texts": dict(self.texts),
            "rubric": self.rubric,
            "edit": self.edit,
        }


@dataclass(frozen=True)
class Answered:
    """Values that the function returned, as plain data."""

    values: Mapping[str, object]
    reasons: Mapping[str, str]


@dataclass(frozen=True)
class Raised:
    """An exception of the function, as text, since its class may not be importable here."""

    name: str
    message: str
    trace: str


Reply: TypeAlias = Answered | Raised | Remark


@dataclass(frozen=True)
class FunctionFacts:
    """Facts about a function that are known once its module is imported."""

    source: str
    """Digest of its module's file."""
    version: str | int | float | None
    has_load: bool
    batch: int
    """Maximum number of calls that a worker takes at once."""


def open_python(spec: str, options: Options, resources: AsyncExitStack) -> PythonJudge:
    """Open a judge that is a function. Raise `UsageError` if it cannot be imported."""
    judge = PythonJudge(spec, options)
    resources.callback(judge.close)
    return judge


class PythonJudge(Judge):
    """A judge that calls a function of the user's own in worker processes."""

    limits = READABLE
    further_images = ("input", "mask", "ground_truth")

    def __init__(self, spec: str, options: Options) -> None:
        self.spec = spec
        module, _, function = spec.removeprefix("python:").partition(":")
        if not module or not function.isidentifier():
            raise UsageError(
                f"--judge {spec}: expected python:package.module:function",
                options=[Option("judge", spec)],
                code="bad_python_judge",
            )
        settings = _settings(options.extra)
        target = {"module": module, "function": function, "timeout": options.timeout}
        target["memory"] = settings.get("memory")
        self.facts = _describe(spec, target)
        self._function = f"{module}:{function}"
        # A loaded model is in memory once for each worker, and its library uses all cores by itself.
        usual = 1 if self.facts.has_load else cores()
        self._open = [0] * int(settings.get("workers", usual))
        """Number of open calls of each worker."""
        self._pool = WorkerPool(
            _MAKE,
            len(self._open),
            target,
            timeout=options.timeout + (_GRACE if self.facts.batch > 1 else 0.0),
            at_once=self.facts.batch,
        )

    def capacity(self, questions: int) -> int:
        return 2 * len(self._open) * self.facts.batch

    def close(self) -> None:
        self._pool.close()

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, object]:
        # A function that samples gives another answer at each repeat, so the task's repeat is in the key anyway.
        metadata = json.dumps(dict(edit.metadata), sort_keys=True, default=repr)
        return {
            "judge": "python",
            "function": self._function,
            "version": self.facts.version,
            "source": self.facts.source,
            "instruction": edit.instruction,
            "item": edit.id,
            "metadata": text_hash(metadata),
        }

    async def judge(self, work: Work, load: Load) -> Judgement:
        call = await _call(work, load)
        try:
            reply = await self._ask(call, large=is_large(work.sizes))
        except WorkerNotStarted as error:
            if isinstance(error.__cause__, EditjudgeError):
                raise error.__cause__ from None
            raise JudgeError(
                f"{self.spec}: the worker could not be started: {error}; its output is above",
                code="worker_not_started",
            ) from None
        except WorkerTimedOut as error:
            remark = Remark("timeout", f"{error} (--timeout)")
            return work.judgement("error", reasons=(remark,))
        except WorkerCrashed as error:
            return work.judgement(
                "error", reasons=(Remark("worker_ended", str(error)),)
            )
        match reply:
            case Answered(values, reasons):
                return work.scored(values, reasons)
            case Raised(name, message, trace):
                raised = type(name, (Exception,), {})(message)
                raised.add_note(trace)
                raise raised
            case Remark(code="bad_image"):
                raise ImageError(reply.message)
            case Remark(code="timeout"):
                return work.judgement("error", reasons=(reply,))
            case _:
                return work.judgement("invalid", reasons=(reply,))

    async def _ask(self, call: Call, *, large: bool) -> Reply:
        """Return the reply to a call. A batch whose worker was lost is called again one by one, so that one edit cannot
        make others fail.
        """
        if self.facts.batch > 1:
            lane = min(range(len(self._open)), key=self._open.__getitem__)
            self._open[lane] += 1
            try:
                reply: Reply = await self._pool.ask(lane, call, _nothing)
                return reply
            except WorkerNotStarted:
                raise
            except WorkerCrashed as error:
                if error.questions == 1:
                    raise
            finally:
                self._open[lane] -= 1
        alone: Reply = await self._pool.ask(object(), call, _nothing, large=large)
        return alone


async def _nothing() -> bool:
    """Load nothing, since each call brings its images."""
    return False


async def _call(work: Work, load: Load) -> Call:
    """Return the function's arguments. Besides the images that the rubric shows, these are input, mask and ground
    truth.
    """
    images: dict[str, EncodedImage | list[EncodedImage]] = {}
    for role in work.rubric.images:
        names = work.edit.image_names(role)
        if names == (role,):
            images[role] = await load(role)
        else:
            images[role] = [await load(name) for name in names]
    optional = frozenset(work.digests) - {*work.images}
    for name in sorted(optional):
        with suppress(ImageError):
            images[name] = await load(name)
    texts = {name: work.edit.text(name) for name in work.rubric.texts}
    texts.setdefault("instruction", work.edit.instruction)
    edit = EditFacts(work.edit.id, dict(work.edit.metadata))
    return Call(images, texts, work.rubric, edit, optional)


def _settings(extra: Mapping[str, object]) -> dict[str, float]:
    names = ("workers", "memory")
    settings: dict[str, float] = {}
    for name, value in extra.items():
        if name not in names:
            raise UsageError(
                f"-J {name}: a Python judge takes {' and '.join(names)}{did_you_mean(name, names)}",
                code="unknown_setting",
            )
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (name == "workers" and value not in range(1, 1_000)):
            raise UsageError(f"-J {name}={value}: expected a number", code="bad_number")
        settings[name] = float(str(value))
    return settings


def _describe(spec: str, target: Mapping[str, Any]) -> FunctionFacts:
    """Return the facts about a function. Its module is imported in a process of its own, as its code may do anything."""
    worker = ProcessWorker(_MAKE, {**target, "load": False})
    try:
        (facts,) = worker.ask(None, [None])
    except WorkerCrashed as error:
        if isinstance(error.__cause__, UsageError):
            raise error.__cause__ from None
        raise UsageError(
            f"--judge {spec}: importing its module failed: {error}",
            options=[Option("judge", spec)],
            code="import_failed",
        ) from None
    finally:
        worker.close()
    assert isinstance(facts, FunctionFacts), facts  # noqa: S101
    return facts


# --- inside a worker ----------------------------------------------------------------------------------------------

_MAKE = f"{__name__}:FunctionCaller"


class FunctionCaller(Measurer):
    """Calls the function inside a worker."""

    def __init__(
        self,
        module: str,
        function: str,
        timeout: float,
        memory: float | None,
        load: bool = True,
    ) -> None:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        with suppress(OSError):
            # If memory runs out, the kernel should end this process, not the run.
            Path("/proc/self/oom_score_adj").write_text("1000")
        if memory:
            import resource

            limit = int(memory * 1e9)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        sys.path.insert(0, os.getcwd())
        self._timeout = timeout
        self._function = _imported(module, function)
        self._facts = _facts(module, self._function)
        self._batch: Callable[[Any], Any] | None = None
        self._runner = asyncio.Runner()
        if load:
            self._load(module, function)

    def _load(self, module: str, name: str) -> None:
        function = self._function
        if self._facts.has_load:
            try:
                loaded = self._finished(function.load())
            except Exception as error:
                traceback.print_exc()
                raise JudgeError(
                    f"python:{module}:{name}: load() raised {type(error).__name__}: {error}",
                    code="load_failed",
                ) from None
            self._function = loaded if callable(loaded) else function
        self._batch = getattr(self._function, "batch", None)
        self._batch = self._batch or getattr(function, "batch", None)

    def _finished(self, value: Any) -> Any:
        """Return a value, awaited if it is awaitable."""
        if not inspect.isawaitable(value):
            return value

        async def finish(awaitable: Awaitable[Any]) -> Any:
            return await awaitable

        return self._runner.run(finish(value))

    def take(self, edit: Any) -> None:
        """Keep nothing, since each call brings its images."""

    def answer(self, question: Call | None) -> Any:
        return self._facts if question is None else self.answers([question])[0]

    def answers(self, questions: Sequence[Any]) -> list[Any]:
        if questions == [None]:
            return [self._facts]
        replies: list[Any] = [None] * len(questions)
        arguments: dict[int, dict[str, Any]] = {}
        for number, call in enumerate(questions):
            try:
                arguments[number] = call.arguments()
            except ImageError as error:
                replies[number] = Remark("bad_image", str(error))
        results = self._results([*arguments.values()])
        for number, result in zip(arguments, results, strict=True):
            replies[number] = result
        return replies

    def _results(self, calls: list[dict[str, Any]]) -> list[Reply]:
        if self._batch and calls:
            try:
                answers = self._finished(self._batch(calls))
                if len(answers) == len(calls):
                    return [_plain(answer) for answer in answers]
                message = (
                    f"batch() gave {len(answers):,} answers to {len(calls):,} calls"
                )
                return [Remark("wrong_batch", message)] * len(calls)
            except Exception as error:
                if len(calls) == 1:
                    return [_raised(error)]
            # The others of the batch must not fail with the one that raised.
            return [self._results([call])[0] for call in calls]
        if len(calls) > 1:
            return self._runner.run(self._together(calls))
        return [self._result(call) for call in calls]

    def _result(self, arguments: dict[str, Any]) -> Reply:
        try:
            return _plain(self._finished(self._function(**arguments)))
        except Exception as error:
            return _raised(error)

    async def _together(self, calls: list[dict[str, Any]]) -> list[Reply]:
        """Return the results of calls of an async function that run at the same time."""

        async def one_result(arguments: dict[str, Any]) -> Reply:
            try:
                async with asyncio.timeout(self._timeout) as limit:
                    return _plain(await self._function(**arguments))
            except Exception as error:
                if limit.expired():
                    late = f"no answer within {self._timeout:g} s (--timeout)"
                    return Remark("timeout", late)
                return _raised(error)

        return list(await asyncio.gather(*map(one_result, calls)))


def _end_with(parent: int) -> None:
    """End this process when the one that started it has ended, even if the function hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)


def _imported(module: str, name: str) -> Any:
    """Return the function. Raise `UsageError` if there is none of this name."""
    spec = f"python:{module}:{name}"
    named = [Option("judge", spec)]
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if not f"{module}.".startswith(f"{missing}."):
            raise UsageError(
                f"--judge {spec}: importing {module} needs {missing}, which is not installed",
                options=named,
                code="import_failed",
            ) from None
        raise UsageError(
            f"--judge {spec}: no module is called {missing}, neither installed nor in {os.getcwd()}"
            f"{did_you_mean(missing, _modules_beside(missing))}",
            options=named,
            code="unknown_module",
        ) from None
    except BaseException as error:
        traceback.print_exc()
        raise UsageError(
            f"--judge {spec}: importing {module} raised {type(error).__name__}: {error}",
            options=named,
            code="import_failed",
        ) from None
    function = getattr(loaded, name, None)
    if function is None:
        names = [n for n, value in vars(loaded).items() if callable(value)]
        raise UsageError(
            f"--judge {spec}: {module} has no function {name}{did_you_mean(name, names)}",
            options=named,
            code="unknown_function",
        )
    if not callable(function):
        raise UsageError(
            f"--judge {spec}: {name} is {type(function).__name__}, expected a function",
            options=named,
            code="unknown_function",
        )
    return function


def _modules_beside(missing: str) -> list[str]:
    """Return the modules of the working folder, or of the package that a module was looked for in."""
    package, _, _ = missing.rpartition(".")
    if not package:
        return [module.name for module in pkgutil.iter_modules([os.getcwd()])]
    with suppress(Exception):
        paths = importlib.import_module(package).__path__
        return [f"{package}.{module.name}" for module in pkgutil.iter_modules(paths)]
    return []


def _facts(module: str, function: Any) -> FunctionFacts:
    spec = importlib.util.find_spec(module)
    source = ""
    if spec and spec.origin and Path(spec.origin).is_file():
        source = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    version = getattr(function, "version", None)
    if version is not None and type(version) not in (str, int, float):
        raise UsageError(
            f"{module}: the function's version is {version!r:.60}; expected a text or a number",
            code="bad_version",
        )
    size = getattr(function, "batch_size", BATCH)
    if type(size) is not int or not 1 <= size <= 1_000:
        raise UsageError(
            f"{module}: the function's batch_size is {size!r:.60}; expected a number from 1 to 1,000",
            code="bad_batch_size",
        )
    called = function if inspect.isroutine(function) else function.__call__
    takes_several = hasattr(function, "batch") or inspect.iscoroutinefunction(called)
    return FunctionFacts(
        source,
        version,
        has_load=callable(getattr(function, "load", None)),
        batch=size if takes_several else 1,
    )


def _raised(error: Exception) -> Raised:
    trace = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:  # an exception of the user's may have no text
        message = ""
    return Raised(type(error).__name__, message[:_MAX_REASON], trace[-_MAX_REASON:])


def _plain(result: object) -> Answered | Remark:
    """Return what the function returned as plain values, or what is wrong with it."""
    if not isinstance(result, Mapping):
        message = (
            f"the function returned {type(result).__name__}; expected a dict of factors"
        )
        return Remark("not_a_dict", message)
    values: dict[str, object] = {}
    reasons: dict[str, str] = {}
    for name, given in list(result.items())[:_MAX_ANSWERS]:
        score: object = given
        if isinstance(given, Mapping):
            if "score" not in given:
                return Remark("no_score", f"{name!s:.60}: an object without score")
            score = given["score"]
            reason = given.get("reason")
            if reason is not None:
                reasons[str(name)] = str(reason)[:_MAX_REASON]
        values[str(name)] = _plain_value(score)
    return Answered(values, reasons)


def _plain_value(value: object) -> object:
    """Return a number of NumPy or torch as a Python number. Other objects become their description."""
    plain = value
    if value is not None and not isinstance(value, bool | int | float):
        item = getattr(value, "item", None)
        plain = item() if callable(item) else None
        plain = f"{value!r:.60}" if plain is None else plain
    if isinstance(plain, float):
        return float(plain)
    if isinstance(plain, int) and not isinstance(plain, bool):
        return int(plain)
    return plain if plain is None or isinstance(plain, bool) else f"{plain!r:.60}"
