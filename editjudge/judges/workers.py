"""Workers that compute on images. For a few edits, this is a thread of this process; for many, a process for each core.
Code that is not ours always runs in a process, with a timeout.

Threads alone do not use all cores. Measuring consists of thousands of short NumPy calls that hold the interpreter's
lock. On real edits of 512 pixels two threads were only 1.2 times as fast as one, while two processes were idle 2 % of
the time.

The processes are started by hand, not by `ProcessPoolExecutor`. Its methods `spawn` and `forkserver` run the user's
script again, so every call of `editjudge.run` would need a guard. Its processes also survive if the parent is killed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol, TypeAlias, TypeVar

from editjudge.errors import ImageError
from editjudge.media.image import EncodedImage, ImageLimits, decode, release_memory

T = TypeVar("T")
_Load: TypeAlias = Callable[[], Awaitable[Any]]
"""Function that loads an edit for a measurer that does not have it yet."""

READABLE = ImageLimits(
    formats=frozenset({"jpeg", "png", "webp", "gif", "bmp", "tiff", "heic"}),
    base64=False,
)
"""All formats that can be decoded, at original size."""
_LARGE = 40_000_000
"""Number of pixels in one edit's images above which edits are measured one at a time, and released when all their
questions are answered. A pixel takes seven bytes during decoding, and three afterwards."""


def opened(
    encoded: Mapping[str, EncodedImage],
) -> tuple[dict[str, Any], dict[str, ImageError]]:
    """Return 8-bit RGB arrays keyed by role, and the errors for images that cannot be read."""
    import numpy as np

    images = {}
    broken = {}
    for role, image in encoded.items():
        try:
            images[role] = np.asarray(decode(image.data, name=f"the {role}"))
        except ImageError as error:
            broken[role] = error
    return images, broken


def is_large(sizes: Mapping[str, tuple[int, int]]) -> bool:
    """Whether images of these widths and heights need so much memory that only one edit is opened at a time."""
    return sum(width * height for width, height in sizes.values()) > _LARGE


def cores() -> int:
    """Return the number of cores that this process may use. It is `OMP_NUM_THREADS` if this is set, as on clusters;
    otherwise all available cores."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        return int(threads)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


FEW = 6
"""Maximum number of edits that are measured by a thread of this process alone. Starting a process takes as long as
measuring three edits."""
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
"""Environment variables for a process. They limit BLAS to one thread, since there is already a process for each core."""
_CHILD = "import sys; sys.path[:] = {path!r}; from editjudge.judges.workers import serve; serve({make!r}, {arguments!r})"
_HELD = "held"
"""Message sent in place of an edit that the measurer already has."""


START = 600.0
"""Seconds in which a worker must be ready. Loading a model may take minutes."""


class Measurer(Protocol):
    """The object inside a worker. It keeps the latest edit, and answers questions about it."""

    def take(self, edit: Any) -> None:
        """Keep an edit for the questions that follow. None releases the edit."""

    def answer(self, question: Any) -> Any: ...

    def answers(self, questions: Sequence[Any]) -> list[Any]:
        """Return the answer to each question, or the exception that it raised."""
        answers: list[Any] = []
        for question in questions:
            try:
                answers.append(self.answer(question))
            except Exception as error:
                answers.append(error)
        return answers


class WorkerCrashed(RuntimeError):
    """Raised if a worker process ended while measuring. Only the questions that it was answering are affected."""

    questions = 1
    """Number of questions that it was answering."""


class WorkerTimedOut(WorkerCrashed):
    """Raised if a worker process was killed because it had not answered in time."""


class WorkerNotStarted(WorkerCrashed):
    """Raised if a worker process could not be started, so that no question can be answered. Its cause is the exception
    that the measurer raised, if it did.
    """


class _LocalWorker:
    """A worker that measures in a thread of this process."""

    def __init__(self, make: str, arguments: Mapping[str, Any]) -> None:
        self.key: Hashable = None
        """Key of the edit that the worker has."""
        self._make = make
        self._arguments = arguments
        self._measurer: Measurer | None = None

    @property
    def is_running(self) -> bool:
        return True

    def ask(self, edit: Any, questions: Sequence[Any]) -> list[Any]:
        """Return the answer to each question, or the exception that it raised."""
        self._measurer = self._measurer or _measurer(self._make, self._arguments)
        return _answers(self._measurer, edit, questions)


class ProcessWorker:
    """A worker that measures in a separate process, which ends when this one does."""

    def __init__(
        self,
        make: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        threads: bool = False,
    ) -> None:
        """Create a worker. `timeout` limits the seconds for an answer. With `threads`, the number of threads of
        numeric libraries is left to them.
        """
        self.key: Hashable = None
        self._code = _CHILD.format(path=sys.path, make=make, arguments=dict(arguments))
        self._environment = {} if threads else _ONE_THREAD
        self._timeout = timeout
        self._late = False
        self._process: Any = None
        """The `subprocess.Popen[bytes]`, or None before the start."""

    @property
    def is_running(self) -> bool:
        # it may have crashed at the previous edit
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it is ready. Raise `WorkerNotStarted` if it ends instead."""
        # In its own session, so that Ctrl-C goes to the run, which lets the current measurement finish.
        self._process = subprocess.Popen(  # noqa: S603  (our own code)
            [sys.executable, "-c", self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | self._environment,
            start_new_session=True,
        )
        try:
            ready = self._read(START)
        except WorkerCrashed as error:
            raise WorkerNotStarted(str(error)) from None
        for problem in ready:
            self.close()
            raise WorkerNotStarted(str(problem)) from problem

    def ask(self, edit: Any, questions: Sequence[Any]) -> list[Any]:
        if not self.is_running:
            self.start()
        try:
            return self._read(self._timeout, (edit, questions))
        except WorkerCrashed as error:
            error.questions = len(questions)
            raise

    def _read(self, seconds: float | None, message: Any = None) -> list[Any]:
        """Send a message, if one is given, and return the answer. Kill the process if it takes more than `seconds`."""
        self._late = False
        timer = threading.Timer(seconds or 0.0, self._end_late)
        if seconds is not None:
            timer.start()
        try:
            # If the pipe is broken, there is nothing to read either.
            with suppress(BrokenPipeError):
                if message is not None:
                    _send(self._process.stdin, message)
            answers: list[Any] = pickle.load(self._process.stdout)  # noqa: S301  (our own process)
        except (EOFError, ValueError, OSError, pickle.UnpicklingError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)  # to get its exit code if it is exiting
            self.close()
            if self._late:
                late = f"no answer within {seconds:g} s: the worker process was ended"
                raise WorkerTimedOut(late) from None
            raise WorkerCrashed(_ended(self._process.returncode)) from None
        finally:
            timer.cancel()
        return answers

    def _end_late(self) -> None:
        self._late = True
        self._kill()

    def _kill(self) -> None:
        """Kill the process with the processes that it started."""
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def close(self) -> None:
        """Kill the process, which has nothing to clean up."""
        if self._process:
            self._kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(BrokenPipeError):
                    pipe.close()


def _ended(code: int) -> str:
    cause = f"with exit code {code}"
    if code < 0:
        with suppress(ValueError):
            cause = f"by signal {signal.Signals(-code).name}"
    return f"the process that judged this edit ended {cause}"


class WorkerPool:
    """A pool that gives each free worker the next edit, with all open questions about it.

    `make` is the measurer's class as "module:Class", and `arguments` are its keyword arguments. A pool belongs to one
    event loop.
    """

    def __init__(
        self,
        make: str,
        workers: int,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        at_once: int | None = None,
    ) -> None:
        """Create a pool. With a `timeout`, in seconds, all questions are answered by processes, which are started as
        they are needed and killed if they take longer. A worker gets at most `at_once` questions at the same time.
        """
        self.size = workers
        self._make = make
        self._arguments = arguments or {}
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(workers + 1, "measure")
        self._local: _LocalWorker | None = None
        """Worker in a thread. It is None once a process is ready."""
        self._processes: list[ProcessWorker] = []
        self._idle: list[_LocalWorker | ProcessWorker] = []
        if timeout is None:
            self._local = _LocalWorker(make, self._arguments)
            self._idle.append(self._local)
        else:
            self._processes = [
                ProcessWorker(
                    make, self._arguments, timeout=timeout, threads=workers == 1
                )
                for _ in range(workers)
            ]
            self._idle += self._processes
        self._open: dict[Hashable, list[tuple[Any, _Load, asyncio.Future[Any]]]] = {}
        """Open questions keyed by edit, oldest edit first. Each has the function that loads its edit, and the future
        for its answer."""
        self._busy: set[Hashable] = set()
        self._large: set[Hashable] = set()
        """Edits with very large images. They are measured one at a time, and released when they are answered."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._edits = 0
        self._broken: WorkerNotStarted | None = None
        """Reason why no worker can be started."""

    async def ask(
        self, key: Hashable, question: Any, load: _Load, *, large: bool = False
    ) -> Any:
        """Return the answer to a question about the edit with this key. Exceptions in the measurer are raised here."""
        answer = asyncio.get_running_loop().create_future()
        if large:
            self._large.add(key)
        if key not in self._open:
            self._open[key] = []
            self._edits += 1
        self._open[key].append((question, load, answer))
        self._dispatch()
        return await answer

    def close(self) -> None:
        """Stop all workers. Measurements in progress are lost."""
        for wait in (False, True):  # a thread may be about to start its process
            self._threads.shutdown(wait)
            for worker in self._processes:
                worker.close()

    def _dispatch(self) -> None:
        if self._edits > FEW and self.size > 1 and not self._processes:
            for _ in range(self.size):
                process = ProcessWorker(self._make, self._arguments)
                self._processes.append(process)
                self._spawn(self._begin(process))
        for key in [key for key in self._open if key not in self._busy]:
            if not self._idle:
                return
            if key in self._large and self._large & self._busy:
                continue
            # a worker that has the edit, or else the one of the running ones that has been idle longest
            worker = max(self._idle, key=lambda w: (w.key == key, w.is_running))
            self._idle.remove(worker)
            self._busy.add(key)
            self._spawn(self._work(worker, key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _begin(self, worker: ProcessWorker) -> None:
        """Start a process. The thread of this process continues until a process is ready. If none can be started, the
        thread continues alone."""
        with suppress(WorkerCrashed, OSError):
            await self._in_thread(worker.start)
            if self._local in self._idle:
                self._idle.remove(self._local)
            self._local = None
            self._idle.append(worker)
            self._dispatch()

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)

    async def _work(self, worker: _LocalWorker | ProcessWorker, key: Hashable) -> None:
        """Answer all questions about one edit, including those that arrive in the meantime."""
        while batch := self._open[key][: self._at_once]:
            self._open[key] = self._open[key][len(batch) :]
            questions, loads, futures = zip(*batch, strict=True)
            try:
                if self._broken:
                    raise self._broken
                edit = _HELD if worker.key == key else await loads[0]()
                worker.key = None  # unless it succeeds
                answers = await self._in_thread(worker.ask, edit, questions)
                worker.key = key
            except WorkerNotStarted as error:
                self._broken = error
                answers = [error] * len(batch)
            except Exception as error:  # raised in the task that awaits the answer
                answers = [error] * len(batch)
            for future, answer in zip(futures, answers, strict=True):
                if future.done():  # the task that asked was cancelled
                    continue
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        del self._open[key]
        if key in self._large:
            worker.key = None
            await self._in_thread(worker.ask, None, ())
        self._busy.discard(key)
        if key not in self._open:
            self._large.discard(key)
        if worker is self._local or worker in self._processes:
            self._idle.append(worker)
        self._dispatch()


def _measurer(make: str, arguments: Mapping[str, Any]) -> Measurer:
    module, name = make.split(":")
    measurer: Measurer = getattr(import_module(module), name)(**arguments)
    return measurer


def _answers(measurer: Measurer, edit: Any, questions: Sequence[Any]) -> list[Any]:
    try:
        if edit != _HELD:
            measurer.take(edit)
    except Exception as error:
        return [error] * len(questions)
    if edit is None:
        release_memory()
    return measurer.answers(questions)


def serve(make: str, arguments: Mapping[str, Any]) -> None:
    """Run as a worker process, reading questions from standard input until it is closed."""
    # What a library reads, prints or leaves to a child process must not mix with questions and answers.
    asked = os.fdopen(os.dup(0), "rb")
    answered = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    if hasattr(os, "register_at_fork"):
        pipes = (asked.fileno(), answered.fileno())
        os.register_at_fork(
            after_in_child=lambda: [os.dup2(nothing, pipe) for pipe in pipes]
        )
    with suppress(BrokenPipeError, EOFError):
        try:
            measurer = _measurer(make, arguments)
        except Exception as error:
            _send(answered, [_portable(error)])
            return
        _send(answered, [])  # ready
        while True:
            edit, questions = pickle.load(asked)  # noqa: S301  (from the process that started this one)
            answers = _answers(measurer, edit, questions)
            _send(answered, [_portable(answer) for answer in answers])


def _send(pipe: Any, message: Any) -> None:
    pickle.dump(message, pipe)
    pipe.flush()


def _portable(answer: Any) -> Any:
    """Return an answer that can be pickled. An exception gets its traceback as a note. If it cannot be pickled, it is
    converted to text."""
    if not isinstance(answer, BaseException):
        return answer
    answer.add_note("".join(traceback.format_tb(answer.__traceback__)))
    try:
        pickle.loads(pickle.dumps(answer))  # noqa: S301  (our own exception)
    except Exception:
        return RuntimeError("".join(traceback.format_exception_only(answer)).strip())
    return answer
