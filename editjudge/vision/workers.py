"""Workers that measure: one thread of this process for a few edits, one process for each core for many.

Threads alone do not use the cores. Measuring is thousands of short NumPy calls that hold the interpreter's lock: on
real edits of 512 pixels two threads reached 1.2 times the rate of one. Two processes wait for work 2 % of the time.

The processes are started by hand, not by `ProcessPoolExecutor`. Those of `spawn` and `forkserver` run the user's script
again, which would need a guard around every call of `editjudge.run`; and they live on when the parent is killed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar

from editjudge.errors import ImageError
from editjudge.media.image import EncodedImage, ImageLimits, decode, release_memory

READABLE = ImageLimits(
    formats=frozenset({"jpeg", "png", "webp", "gif", "bmp", "tiff", "heic"}),
    base64=False,
)
"""Every format that can be decoded, at its own size."""
_LARGE = 40_000_000
"""Pixels of one edit's pictures, from which on edits are measured one at a time, and let go when no more questions are
open about them: a pixel takes seven bytes while it is decoded, and three as long as it is kept."""


def opened(
    encoded: Mapping[str, EncodedImage],
) -> tuple[dict[str, Any], dict[str, ImageError]]:
    """RGB arrays of 8 bits by role, and why the others cannot be read."""
    import numpy as np

    pictures = {}
    broken = {}
    for role, one in encoded.items():
        try:
            pictures[role] = np.asarray(decode(one.data, name=f"the {role}"))
        except ImageError as error:
            broken[role] = error
    return pictures, broken


def is_large(sizes: Mapping[str, tuple[int, int]]) -> bool:
    """Whether pictures of these widths and heights take so much memory that only one edit is opened at a time."""
    return sum(width * height for width, height in sizes.values()) > _LARGE


def cores() -> int:
    """Cores that this process may use: those it was told to, as clusters tell their workers, or all it can."""
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() and int(threads):
        return int(threads)
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


FEW = 6
"""Edits that a thread of this process measures alone: a process takes as long to start as three of them."""
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
"""A process for each core is the parallelism; further threads of BLAS only wait for a core."""
_CHILD = "import sys; sys.path[:] = {path!r}; from editjudge.vision.workers import serve; serve({make!r}, {given!r})"

FORGET = "forget"
"""In place of an edit: let go of the one that is held."""

Answers = list[Any]
"""One for each question: what was answered, or the exception."""
T = TypeVar("T")


class Measurer(Protocol):
    """The object inside a worker. It holds the edit that it was given last, and answers questions about it."""

    def take(self, edit: Any) -> None: ...

    def answer(self, question: Any) -> Any: ...


class _OpenQuestion(NamedTuple):
    question: Any
    load: Callable[[], Awaitable[Any]]
    """Load the edit for a measurer that does not hold it yet."""
    answer: asyncio.Future[Any]


class WorkerCrashed(RuntimeError):
    """A worker process ended while it measured. Only the edit that it was at is affected."""


class _LocalWorker:
    """Measures in a thread of this process."""

    def __init__(self, make: str, given: Mapping[str, Any]) -> None:
        self.key: Hashable = None
        self._make = make
        self._given = given
        self._measurer: Measurer | None = None

    def ask(self, edit: Any, questions: Sequence[Any]) -> Answers:
        self._measurer = self._measurer or _made(self._make, self._given)
        return _answers(self._measurer, edit, questions)


class _ProcessWorker:
    """Measures in a process of its own, which ends when this one does."""

    def __init__(self, make: str, given: Mapping[str, Any]) -> None:
        self.key: Hashable = None
        self._code = _CHILD.format(path=sys.path, make=make, given=dict(given))
        self._process: Any = None
        """A `subprocess.Popen[bytes]`, once it was started."""

    def start(self) -> None:
        """Starts the process and waits until it can measure. Raises `WorkerCrashed`."""
        # A session of its own: Ctrl-C is for the run, which lets an edit that is being measured finish.
        self._process = subprocess.Popen(  # noqa: S603  (our own code)
            [sys.executable, "-c", self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | _ONE_THREAD,
            start_new_session=True,
        )
        self._read()

    def ask(self, edit: Any, questions: Sequence[Any]) -> Answers:
        # it crashed at the edit before
        if self._process is None or self._process.poll() is not None:
            self.start()
        with suppress(BrokenPipeError):  # then there is nothing to read either
            _send(self._process.stdin, (edit, questions))
        received: Answers = self._read()
        return received

    def _read(self) -> Any:
        try:
            return pickle.load(self._process.stdout)  # noqa: S301  (our own process)
        except (EOFError, ValueError, pickle.UnpicklingError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)  # its own exit code, if it is ending
            self.close()
            code = self._process.returncode
            raise WorkerCrashed(
                f"the process that measured this edit ended with exit code {code}"
            ) from None

    def close(self) -> None:
        """Ends the process at once: measuring leaves nothing behind."""
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(BrokenPipeError):
                    pipe.close()


_Worker = _LocalWorker | _ProcessWorker


class WorkerPool:
    """Gives each free worker the next edit, with all questions that are open about it.

    `make` names the measurer's class, "module:Class", and `given` holds its keyword arguments. A pool belongs to one
    event loop.
    """

    def __init__(
        self, make: str, workers: int, given: Mapping[str, Any] | None = None
    ) -> None:
        self.size = workers
        self._make = make
        self._given = dict(given or {})
        self._threads = ThreadPoolExecutor(workers + 1, "measure")
        self._local: _LocalWorker | None = _LocalWorker(self._make, self._given)
        """None as soon as a process is ready."""
        self._idle: list[_Worker] = [self._local]
        self._processes: list[_ProcessWorker] = []
        self._open: dict[Hashable, list[_OpenQuestion]] = {}
        """Questions by edit, oldest edit first."""
        self._busy: set[Hashable] = set()
        self._large: set[Hashable] = set()
        """Edits with very large pictures: they are measured one at a time, and let go when they are answered."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._edits = 0

    async def ask(
        self,
        key: Hashable,
        question: Any,
        load: Callable[[], Awaitable[Any]],
        *,
        large: bool = False,
    ) -> Any:
        """The answer to one question about the edit of this key. Raises what the measurer raised."""
        answer = asyncio.get_running_loop().create_future()
        if large:
            self._large.add(key)
        if key not in self._open:
            self._open[key] = []
            self._edits += 1
        self._open[key].append(_OpenQuestion(question, load, answer))
        self._dispatch()
        return await answer

    def close(self) -> None:
        """Ends all workers; what they are measuring is lost."""
        for wait in (False, True):  # a thread may be just about to start its process
            self._threads.shutdown(wait)
            for worker in self._processes:
                worker.close()

    def _dispatch(self) -> None:
        if self._edits > FEW and self.size > 1 and not self._processes:
            self._processes = [
                _ProcessWorker(self._make, self._given) for _ in range(self.size)
            ]
            for process in self._processes:
                self._spawn(self._begin(process))
        for key in [key for key in self._open if key not in self._busy]:
            if not self._idle:
                return
            if key in self._large and self._large & self._busy:
                continue
            worker = next(
                (worker for worker in self._idle if worker.key == key), self._idle[0]
            )
            self._idle.remove(worker)
            self._busy.add(key)
            self._spawn(self._work(worker, key))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, worker: _ProcessWorker) -> None:
        """Until a process is ready, and where none can be started, the thread of this process goes on."""
        with suppress(WorkerCrashed, OSError):
            await self._in_thread(worker.start)
            self._idle = [
                one for one in (*self._idle, worker) if one is not self._local
            ]
            self._local = None
            self._dispatch()

    async def _in_thread(self, call: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, call, *given
        )

    async def _work(self, worker: _Worker, key: Hashable) -> None:
        """All questions about one edit, also those that are asked meanwhile."""
        while batch := self._open[key]:
            self._open[key] = []
            await self._answer(worker, key, batch)
        del self._open[key]
        if key in self._large:
            worker.key = None
            await self._in_thread(worker.ask, FORGET, ())
        self._busy.discard(key)
        if key not in self._open:
            self._large.discard(key)
        if worker is self._local or worker in self._processes:
            self._idle.append(worker)
        self._dispatch()

    async def _answer(
        self, worker: _Worker, key: Hashable, batch: Sequence[_OpenQuestion]
    ) -> None:
        try:
            edit = None if worker.key == key else await batch[0].load()
            worker.key = None  # unless it succeeds
            received = await self._in_thread(
                worker.ask, edit, [one.question for one in batch]
            )
            worker.key = key
        except Exception as error:  # raised where the answer is awaited
            received = [error] * len(batch)
        for one, answer in zip(batch, received, strict=True):
            if one.answer.done():  # nobody waits for it any more
                continue
            if isinstance(answer, BaseException):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)


def _made(make: str, given: Mapping[str, Any]) -> Measurer:
    module, name = make.split(":")
    measurer: Measurer = getattr(import_module(module), name)(**given)
    return measurer


def _answers(measurer: Measurer, edit: Any, questions: Sequence[Any]) -> Answers:
    if edit == FORGET:
        measurer.take(None)
        release_memory()
        return []
    try:
        if edit is not None:
            measurer.take(edit)
    except Exception as error:
        return [error] * len(questions)
    answers: Answers = []
    for question in questions:
        try:
            answers.append(measurer.answer(question))
        except Exception as error:
            answers.append(error)
    return answers


def serve(make: str, given: Mapping[str, Any]) -> None:
    """The work of a worker process: questions come on its standard input until that is closed."""
    # What a library prints must not come between the answers.
    answered = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    measurer = _made(make, given)
    with suppress(BrokenPipeError, EOFError):
        _send(answered, "ready")
        while True:
            edit, questions = pickle.load(sys.stdin.buffer)  # noqa: S301  (from the process that started this one)
            _send(
                answered,
                [_portable(answer) for answer in _answers(measurer, edit, questions)],
            )


def _send(pipe: Any, message: Any) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def _portable(answer: Any) -> Any:
    """An exception with its traceback as a note, since tracebacks are not pickled; as text if it is not either."""
    if not isinstance(answer, BaseException):
        return answer
    answer.add_note("".join(traceback.format_tb(answer.__traceback__)))
    try:
        pickle.loads(pickle.dumps(answer))  # noqa: S301  (our own exception)
    except Exception:
        return RuntimeError("".join(traceback.format_exception_only(answer)).strip())
    return answer
