"""The judge `gguf:MODEL.gguf`, a vision-language model in a file that llama.cpp runs in this process.

The engine listens on a free port of 127.0.0.1, with a key generated for this process, and is used like any other
server. It loads the model when the first question is asked, so planning and forecasts do not wait for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib
import importlib.util
import os
import secrets
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from editjudge.errors import JudgeError, UsageError
from editjudge.judges.chat import ChatJudge
from editjudge.judges.cost import BudgetProtocol, Price
from editjudge.judges.http import HttpTransport, Response
from editjudge.judges.judge import GGUF, Options, Pacing
from editjudge.judges.providers import PROVIDERS, Endpoint

CONTEXT = 16_384
"""Tokens for a question with its images and the answer. The model's own limit may need more memory than available."""


_STILL = 10.0
"""Seconds between messages that a model is still being loaded."""


@dataclass(frozen=True)
class EngineSettings:
    """Settings of the engine. They do not change answers, but they can determine whether a question fits into the
    context.
    """

    context: int = CONTEXT
    """Tokens for each question, including its images and the answer."""
    threads: int = 0
    """Number of threads; 0 for one on each available core."""
    parallel: int = 0
    """Number of questions answered at the same time, each with its own context; 0 for one on each core, at most four.
    More do not use a CPU better, and need more memory.
    """

    @classmethod
    def taken_from(cls, extra: dict[str, object]) -> EngineSettings:
        """Remove the engine's settings from the user's parameters and return them."""
        chosen: dict[str, int] = {}
        for name in [field.name for field in dataclasses.fields(cls)]:
            if name not in extra:
                continue
            value = extra.pop(name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                unit = " of tokens" if name == "context" else ""
                raise UsageError(f"-J {name}={value}: expected a number{unit}")
            chosen[name] = value
        try:
            cores = len(os.sched_getaffinity(0))
        except AttributeError:  # not on macOS and Windows
            cores = os.cpu_count() or 1
        return cls(**{"threads": cores, "parallel": min(cores, 4), **chosen})


class LocalEngine:
    """Transport for a judge whose model is in a file. It loads the model once, and unloads it when it is closed."""

    def __init__(
        self, model: Path, projector: Path, settings: EngineSettings, timeout: float
    ) -> None:
        self._files = model, projector
        self._settings = settings
        self._http = HttpTransport(timeout=timeout)
        self._key = secrets.token_hex(16)
        self._loading = asyncio.Lock()
        # Requests that wait here are not sent yet, so their timeout has not begun.
        self._slots = asyncio.Semaphore(settings.parallel)
        self._server: Any = None

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)
        self._server = None

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: tuple[bytes, ...],
        patience: float = 1.0,
    ) -> Response:
        async with self._loading:
            if self._server is None:
                self._server = await self._load()
        address = f"{self._server.listening_address}/v1/chat/completions"
        async with self._slots:
            return await self._http.post(
                address,
                {**headers, "authorization": f"Bearer {self._key}"},
                body,
                patience,
            )

    async def _load(self) -> Any:
        model, projector = self._files
        gigabytes = sum(file.stat().st_size for file in self._files) / 1e9
        _say(f"loading {model.name} and {projector.name} ({gigabytes:.2f} GB)")
        started = time.monotonic()
        loading = asyncio.create_task(asyncio.to_thread(self._start))
        while not (await asyncio.wait([loading], timeout=_STILL))[0]:
            _say(f"still loading {model.name}, {time.monotonic() - started:.0f} s")
        server = loading.result()
        _say(f"loaded in {time.monotonic() - started:.1f} s")
        return server

    def _start(self) -> Any:
        model, projector = self._files
        _check_instructions()
        engine = importlib.import_module("xllamacpp")
        options = engine.CommonParams()
        settings = self._settings
        options.model.path = str(model)
        options.mmproj.path = str(projector)
        options.n_ctx = settings.context * settings.parallel
        options.n_parallel = settings.parallel
        options.cpuparams.n_threads = settings.threads
        options.cpuparams_batch.n_threads = settings.threads
        options.api_keys = [self._key]
        options.ui = False
        options.endpoint_slots = False
        options.verbosity = 1
        try:
            return engine.Server(options)
        except Exception as error:
            raise JudgeError(
                f"{model}: llama.cpp cannot load it with {projector.name}: {error} Its log is above; a projector of "
                "another model and too little memory are common causes"
            ) from None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _check_instructions() -> None:
    """Raise `JudgeError` if this CPU lacks instructions that the engine was built with. Missing instructions would
    crash this process, so a separate process tries them.
    """
    command = [sys.executable, "-c", "import xllamacpp; xllamacpp.get_system_info()"]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode == -signal.SIGILL:
        raise JudgeError(
            "this CPU lacks instructions that the wheel of xllamacpp was built with: build it here with "
            "pip install --no-binary xllamacpp xllamacpp, or ask a server (openai-compatible/MODEL)"
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        raise JudgeError(f"xllamacpp cannot be used here: {last[0][:300]}")


async def open_local(
    spec: str,
    options: Options,
    pace: Pacing,
    resources: Any,
    funds: BudgetProtocol | None,
) -> ChatJudge:
    """Open a judge whose model is in a file. Raise `UsageError` if the files or the optional dependencies are missing,
    or if a file is of the wrong kind.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(f"{spec} needs an extra: pip install 'editjudge[local]'")
    extra = dict(options.extra)
    mmproj = extra.pop("mmproj", None)
    settings = EngineSettings.taken_from(extra)
    model = Path(spec.removeprefix(GGUF))
    if architecture(model) == "clip":
        raise UsageError(
            f"{model} is a projector; name the text model, and the projector with -J mmproj=FILE"
        )
    projector = Path(str(mmproj)) if mmproj is not None else projector_beside(model)
    if (kind := architecture(projector)) != "clip":
        raise UsageError(
            f"{projector} is not a projector: its architecture is {kind or 'not stated'}, expected clip"
        )
    files = {
        name: await asyncio.to_thread(_digest, file)
        for name, file in (("model", model), ("mmproj", projector))
    }
    like = PROVIDERS["llamacpp"]
    endpoint = Endpoint(
        provider="gguf",
        model=model.stem,
        url="http://127.0.0.1/v1",  # the engine knows its port once it is loaded
        wire=like.wire,
        limits=like.limits,
        schema_mode="enforced",
        options=like.options,
        context_setting="the context with -J context=TOKENS",
    )
    engine = await resources.enter_async_context(
        LocalEngine(model, projector, settings, options.timeout)
    )
    return ChatJudge(
        spec,
        endpoint,
        dataclasses.replace(options, extra=extra),
        pace,
        engine,
        max_choices=settings.parallel,  # llama.cpp refuses more replies at once
        price=Price(0.0, 0.0),
        funds=funds,
        # Files are identified by their digests, not their paths.
        identity={"judge": "gguf", "url": "", "files": files},
    )


def projector_beside(model: Path) -> Path:
    """Return the only `mmproj*.gguf` file in the model's folder."""
    candidates = sorted(model.parent.glob("mmproj*.gguf"))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(file.name for file in candidates)
        raise UsageError(
            f"{model}: several projectors are beside it ({names}); name one with -J mmproj=FILE"
        )
    raise UsageError(
        f"{model}: no projector (mmproj*.gguf) is beside it; name it with -J mmproj=FILE. A model without one reads "
        "text alone, and cannot judge images"
    )


def architecture(path: Path) -> str:
    """Return the architecture that a GGUF file states, or an empty string if it states none. Raise `UsageError` if it
    is not a GGUF file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if head[:4] != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file", code="not_gguf")
    # Writers put it first: the key, the type 8 (text), the length, and the text.
    _, _, rest = head.partition(b"general.architecture" + struct.pack("<I", 8))
    length = int.from_bytes(rest[:8], "little")
    return rest[8 : 8 + length].decode("utf-8", "replace") if 0 < length < 64 else ""


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
