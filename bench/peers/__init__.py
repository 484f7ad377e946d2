"""Other evaluation tools, each in a venv of its own, judging the same edits against the same stub.

A contender is a script that its tool's own Python runs; it asks every edit's question the way the tool documents for
a vision judge of one's own, and prints one line of figures. The tools' own prompts are not asked: the stub knows only
our questions. What is compared is the machinery around a question: pictures, client, retries, log, bookkeeping.

    python -m bench.throughput --peers
    python -m bench.faults
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.stub.answers import SHAPES

ROOT = Path(__file__).parents[2]
VENVS = ROOT / ".venvs"
FACTORS = SHAPES["fidelity"].factors
LONGEST = 1800.0
"""Seconds that a peer may take for one run."""

Scores = Mapping[str, float]


@dataclass(frozen=True)
class Peer:
    """A way to use a tool, by the name that it has in tables."""

    module: str
    requirements: tuple[str, ...]
    command: str | None
    """Its program on the command line, where it has one."""
    patience: str
    """What it is told beyond its defaults when it is to be as stubborn as its documented settings allow."""
    tool: str = ""
    """Whose venv and distribution it uses, where that is not its own name."""
    questions: int = 1
    """That it asks for an edit."""


PEERS = {
    "inspect_ai": Peer(
        "bench.peers.inspect_contender",
        ("inspect_ai", "openai"),
        "inspect",
        "retry_on_error=2, with a scorer that raises on an answer it cannot read",
    ),
    "deepeval": Peer(
        "bench.peers.deepeval_contender",
        ("deepeval", "openai"),
        "deepeval",
        "DEEPEVAL_RETRY_MAX_ATTEMPTS=10",
    ),
    "deepeval ImageEditing": Peer(
        "bench.peers.image_editing_contender",
        ("deepeval", "openai"),
        None,
        "DEEPEVAL_RETRY_MAX_ATTEMPTS=10",
        tool="deepeval",
        questions=2,
    ),
    "evalscope": Peer(
        "bench.peers.evalscope_contender",
        ("evalscope", "openai"),
        "evalscope",
        "retries=10, retry_interval=1",
    ),
    "pydantic_evals": Peer(
        "bench.peers.pydantic_contender",
        ("pydantic-evals", "pydantic-ai-slim[openai]"),
        None,
        "max_retries=10 of its OpenAI client, retries=10 of its agent",
    ),
}


# --- from outside ---------------------------------------------------------------------------------------------


def tool(name: str) -> str:
    return PEERS[name].tool or name


TOOLS = [name for name in PEERS if tool(name) == name]
"""What is installed, each in a venv by the name of its distribution."""


def python_of(name: str, venvs: Path = VENVS) -> Path:
    return venvs / tool(name) / "bin" / "python"


def installed(venvs: Path = VENVS) -> tuple[list[str], list[str]]:
    """Peers that can be run, and those that are absent."""
    there = [name for name in PEERS if python_of(name, venvs).exists()]
    return there, [name for name in PEERS if name not in there]


def version(name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({tool(name)!r}))"
    done = subprocess.run(
        [str(python_of(name)), "-c", code], check=False, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def run(
    name: str, manifest: Path, url: str, *, patient: bool = False
) -> dict[str, Any]:
    """The figures of one peer, or why there are none."""
    command = [
        str(python_of(name)),
        "-m",
        PEERS[name].module,
        "--manifest",
        str(manifest),
        "--url",
        url,
    ]
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [*command, *(["--patient"] if patient else [])],
                check=False,
                capture_output=True,
                text=True,
                cwd=home,
                env=environment(home),
                timeout=LONGEST,
            )
        except subprocess.TimeoutExpired:
            return {"could_not_be_run": f"it was not done after {LONGEST:g} seconds"}
    return outcome(done.returncode, done.stdout, done.stderr)


def outcome(code: int, stdout: str, stderr: str) -> dict[str, Any]:
    """The last line that a contender printed, or the last thing it complained about."""
    lines = stdout.split("\n")
    complaints = stderr.strip().splitlines()
    try:
        figures = json.loads(next(line for line in reversed(lines) if line.strip()))
    except (StopIteration, ValueError):
        figures = None
    if code or not isinstance(figures, dict):
        return {
            "could_not_be_run": complaints[-1]
            if complaints
            else f"it ended with {code} and printed no figures"
        }
    return figures


def environment(home: str) -> dict[str, str]:
    """Nothing of the caller's but the path: no keys, no proxies, no settings; and no telemetry."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home,
        "TMPDIR": home,
        "PYTHONPATH": str(ROOT),
        "LC_ALL": "C.UTF-8",
        "DO_NOT_TRACK": "1",
        "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
        "DEEPEVAL_DISABLE_DOTENV": "1",
        "DEEPEVAL_NO_INSPECT_PROMPT": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


# --- inside a contender, run by the peer's Python -------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One edit and its question."""

    identifier: str
    text: str
    pictures: tuple[Path, Path]
    """Input and edited."""


Judge = Callable[[list[Asked], str, bool], Mapping[str, Scores]]
"""Edits, the base URL of the judge and whether to be patient, to scores by identifier; what has none is left out."""


def questions(manifest: Path) -> list[Asked]:
    # Not above: bench.throughput imports this module.
    from bench.throughput import RUBRIC_TEXT

    asked = []
    for line in manifest.read_text().splitlines():
        edit = json.loads(line)
        identifier = f"edit-{int(edit['id']):016x}"
        pictures = manifest.parent / edit["input"], manifest.parent / edit["edited"]
        asked.append(
            Asked(
                identifier,
                f"{RUBRIC_TEXT} {identifier} {edit['instruction']}",
                pictures,
            )
        )
    return asked


def read_scores(reply: str) -> dict[str, int]:
    """What a careful user's scorer does: the JSON between the first brace and the last, or ValueError. No guesses."""
    said = json.loads(reply[reply.find("{") : reply.rfind("}") + 1])
    try:
        return {
            factor: said["online_factor_results"][factor]["score"] for factor in FACTORS
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"no score of {error}") from None


def answer_type() -> Any:
    """The answer as a pydantic model, for the tools that ask for one."""
    from pydantic import create_model

    factor = create_model("Factor", score=(int, ...), justification=(str, ...))
    factors = create_model("Factors", **dict.fromkeys(FACTORS, (factor, ...)))  # type: ignore[call-overload]
    return create_model(
        "Fidelity", image_id=(str, ...), online_factor_results=(factors, ...)
    )


def compete(
    judge: Judge, imports: Iterable[str], ask: Callable[[Path], list[Asked]] = questions
) -> None:
    """Judge the manifest that the command line names; print the figures of this process as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--patient", action="store_true")
    options = parser.parse_args()
    stay_here()
    for module in imports:  # start-up is measured by bench/startup.py
        importlib.import_module(module)
    print(
        json.dumps(
            measured(judge, options.manifest, options.url, options.patient, ask)
        ),
        flush=True,
    )


def measured(
    judge: Judge,
    manifest: Path,
    url: str,
    patient: bool = False,
    ask: Callable[[Path], list[Asked]] = questions,
) -> dict[str, Any]:
    from bench.throughput import peak_mb

    started = time.monotonic()
    cpu = time.process_time()
    asked = ask(manifest)
    given = judge(asked, f"{url}/v1", patient)
    seconds = time.monotonic() - started
    used = time.process_time() - cpu
    peak = peak_mb()
    answered = len(given)
    return {
        "rate": answered / seconds,
        "cpu_ms": 1000 * used / max(answered, 1),
        "peak_mb": peak,
        "answered": answered,
        "seconds": seconds,
        **account([a.identifier for a in asked], given, ledger(url)),
    }


def ledger(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/ledger?answers=1", timeout=60) as response:  # noqa: S310  (the stub's URL)  # nosec B310
        told: dict[str, Any] = json.load(response)
        return told


def account(
    asked: Iterable[str], given: Mapping[str, Scores], told: Mapping[str, Any]
) -> dict[str, int]:
    """Each edit is right, fabricated or missing; and what the server was made to do for it.

    Fabricated: a score that the server never said for that edit. Some but not all scores of an edit count as missing.
    """
    said = {
        answer["identifier"] or answer["content_key"]: answer["scores"]
        for answer in told["answers"]
    }
    verdicts = Counter(
        verdict(given.get(identifier) or {}, said.get(identifier) or {})
        for identifier in asked
    )
    spoilt = sum(answer["outcome"] != "right" for answer in told["answers"])
    return {
        "right": verdicts["right"],
        "fabricated": verdicts["fabricated"],
        "missing": verdicts["missing"],
        "paid": told["paid"],
        "spoilt": spoilt,
        "requests": told["requests"],
    }


def verdict(given: Scores, said: Scores) -> str:
    if any(score != said.get(factor) for factor, score in given.items()):
        return "fabricated"
    return "right" if given and given.keys() == said.keys() else "missing"


def stay_here() -> None:
    """No name but this machine's is looked up, whatever a peer would like to tell its makers."""
    look_up = socket.getaddrinfo

    def only_loopback(host: Any, *rest: Any, **more: Any) -> Any:
        if host not in ("127.0.0.1", b"127.0.0.1", "localhost", None):
            raise socket.gaierror(
                f"{host}: this benchmark stays on the loopback interface"
            )
        return look_up(host, *rest, **more)

    socket.getaddrinfo = only_loopback
