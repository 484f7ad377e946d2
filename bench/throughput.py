"""CPU an edit, rate and memory: the whole engine beside bare HTTP clients, in one run against the stub.

    python -m bench.throughput [--rounds 3] [--pictures jpeg png] [--contenders NAME ...] [--peers]
    python -m bench.throughput --quick
    python -m bench.throughput --long 100000

The stub answers each request after 500 ms; 64 requests are in flight, so 128 a second is the ideal. Every contender
reads two 1024 x 1024 pictures an edit, asks one question and reads the scores; ours is the command `editjudge run` into
a fresh store, which also checks the contract and commits every judgement. Each contender judges 128 edits and then 512,
each time in a process of its own. CPU and rate are the slope between the two, so that imports, opening a store and the
first and last answers do not count; memory is the peak at 512 edits. Medians over the rounds are printed as JSON, with
ratios to the bare aiohttp client. With --peers, the other tools of bench/peers take part that are installed.

With --quick the server is `bench.quick_stub`, which answers at once, and pictures are JPEG of 512 x 512: the rate is
what one client process reaches beside a server on the same cores. With --long that many edits of tiny pictures are
judged in one run against the same server, and the memory of the process is printed at each tenth of its time.

`json-aiohttp` is the same bare client with a body made by `json.dumps` of a document that holds the base64, as most
scripts do. That is what ours was compared with before: it costs twice what a careful client does.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import functools
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import peers

ROOT = Path(__file__).parents[1]
LATENCY = 0.5
CONCURRENCY = 64
SIDE = 1024
SIZES = (128, 512)
"""Edits of the two runs whose difference is measured."""
BARE = "bare-aiohttp"


def median(values: list[float]) -> float:
    """Not the library's: a neighbour of this script is called statistics, too."""
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes", nargs=2, type=int, default=SIZES, metavar=("FEW", "MANY")
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--pictures", nargs="+", default=["jpeg", "png"], choices=["jpeg", "png"]
    )
    parser.add_argument(
        "--side", type=int, default=SIDE, help="of the pictures, in pixels"
    )
    parser.add_argument(
        "--latency", type=float, default=LATENCY, help="seconds until the stub answers"
    )
    parser.add_argument(
        "--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS)
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="also those that bench/peers/install.py installed",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the rate with small pictures and no waiting for answers",
    )
    parser.add_argument(
        "--long",
        type=int,
        metavar="EDITS",
        help="memory over one run of that many edits",
    )
    parser.add_argument("--as", dest="contender", help=argparse.SUPPRESS)
    parser.add_argument("--manifest", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(contend(options.contender, options.manifest, options.url)))
    elif options.long:
        print(json.dumps(memory_over_time(options.long), indent=2))
    else:
        if options.quick:
            options.pictures = ["jpeg"]
            options.side = 512
            options.latency = 0.0
            options.sizes = (512, 2048)
            options.contenders = [BARE, "editjudge"]
        print(json.dumps(compare(options), indent=2))


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Every contender in every round, one after the other."""
    results: dict[str, Any] = {
        "ideal_rate": CONCURRENCY / options.latency if options.latency else None,
        "sizes": list(options.sizes),
        "rounds": options.rounds,
    }
    contenders = list(options.contenders)
    if options.peers:
        present, results["absent"] = peers.installed()
        results["versions"] = {name: peers.version(name) for name in present}
        contenders += present
    for kind in options.pictures:
        with tempfile.TemporaryDirectory() as folder:
            manifests = make_manifests(Path(folder), kind, options.sizes, options.side)
            rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
            for _ in range(options.rounds):
                for name in contenders:
                    figures = [
                        one_run(name, manifest, options.latency, options.quick)
                        for manifest in manifests
                    ]
                    rounds[name].append(slope(*figures))
            medians = {name: _medians(figures) for name, figures in rounds.items()}
            results[kind] = _with_ratios(medians, results["ideal_rate"])
    return results


def slope(few: dict[str, Any], many: dict[str, Any]) -> dict[str, Any]:
    """What one more edit costs, from two runs."""
    if failed := next((run for run in (few, many) if "could_not_be_run" in run), None):
        return failed
    edits = many["answered"] - few["answered"]
    if edits <= 0:
        return {
            "could_not_be_run": f"it answered {few['answered']} and {many['answered']} edits"
        }
    return {
        "cpu_ms": 1000 * (many["cpu"] - few["cpu"]) / edits,
        "rate": edits / (many["seconds"] - few["seconds"]),
        "whole_rate": many["answered"] / many["seconds"],
        "peak_mb": many["peak_mb"],
        "answered": many["answered"],
    }


def _medians(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    if failed := next((r for r in rounds if "could_not_be_run" in r), None):
        return failed
    return {key: round(median([r[key] for r in rounds]), 3) for key in rounds[0]}


def _with_ratios(
    medians: dict[str, dict[str, Any]], ideal: float | None = None
) -> dict[str, Any]:
    bare = medians.get(BARE)
    for figures in medians.values():
        if bare and "rate" in figures:
            figures["cpu_to_bare"] = round(figures["cpu_ms"] / bare["cpu_ms"], 2)
            figures["memory_to_bare"] = round(figures["peak_mb"] / bare["peak_mb"], 2)
            figures["rate_to_bare"] = round(figures["rate"] / bare["rate"], 3)
        if ideal and "rate" in figures:
            figures["rate_to_ideal"] = round(figures["rate"] / ideal, 3)
    return dict(medians)


def memory_over_time(edits: int) -> dict[str, Any]:
    """Megabytes of our process at each tenth of one run over tiny pictures, the first after the first tenth."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = make_edits(Path(folder), "jpeg", edits, 32)
        with stub(module="bench.quick_stub") as url:
            process = subprocess.Popen(
                _command("editjudge", manifest, url), stdout=subprocess.PIPE, cwd=ROOT
            )
            sizes = []
            while process.poll() is None:
                with contextlib.suppress(StopIteration, OSError):  # it has ended
                    sizes.append(memory_mb("VmRSS", process.pid))
                time.sleep(0.5)
            assert process.stdout
            figures = json.load(process.stdout)
    tenths = (
        [round(sizes[len(sizes) * tenth // 10 - 1]) for tenth in range(1, 11)]
        if len(sizes) >= 10
        else sizes
    )
    return {
        "edits": figures["answered"],
        "rate": round(figures["answered"] / figures["seconds"]),
        "mb": tenths,
    }


def _command(contender: str, manifest: Path, url: str) -> list[str]:
    given = ["--as", contender, "--manifest", str(manifest), "--url", url]
    return [sys.executable, "-m", "bench.throughput", *given]


def one_run(
    contender: str, manifest: Path, latency: float = LATENCY, quick: bool = False
) -> dict[str, Any]:
    server = (
        stub(module="bench.quick_stub") if quick else stub("--latency", str(latency))
    )
    with server as url:
        if contender in peers.PEERS:
            figures = peers.run(contender, manifest, url)
            if "cpu_ms" in figures:
                figures["cpu"] = figures["cpu_ms"] * figures["answered"] / 1000
            return figures
        command = _command(contender, manifest, url)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT
        )
        return peers.outcome(done.returncode, done.stdout, done.stderr)


@contextmanager
def stub(*options: str, module: str = "tests.stub.server") -> Iterator[str]:
    """The URL of a server in a process of its own."""
    command = [
        sys.executable,
        "-m",
        module,
        *(["--port", "0"] if module == "tests.stub.server" else []),
        *options,
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert server.stdout
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


# --- pictures -------------------------------------------------------------------------------------------------


def make_manifests(
    folder: Path, kind: str, sizes: tuple[int, int], side: int
) -> list[Path]:
    """Manifests of the first few edits and of all of them, in one folder."""
    lines = (
        make_edits(folder, kind, max(sizes), side).read_text().splitlines(keepends=True)
    )
    manifests = [folder / f"{size}-edits.jsonl" for size in sizes]
    for manifest, size in zip(manifests, sizes, strict=True):
        manifest.write_text("".join(lines[:size]))
    time.sleep(2.5)  # what is younger than two seconds is not remembered by a store
    return manifests


def make_edits(folder: Path, kind: str, count: int, side: int = SIDE) -> Path:
    """A manifest of edits with pictures of photographic weight: about 250 KB as JPEG and 1.5 MB as PNG."""
    end = "jpg" if kind == "jpeg" else "png"
    lines = []
    for number in range(count):
        for role in ("input", "edited"):
            data = _picture(kind, side, role, number % 8)
            (folder / f"{number}-{role}.{end}").write_bytes(
                _commented(data, kind, f"{number}-{role}")
            )
        line = {
            "id": str(number),
            "input": f"{number}-input.{end}",
            "edited": f"{number}-edited.{end}",
        }
        lines.append(
            json.dumps(line | {"instruction": f"make car {number} blue", "model": "m"})
        )
    manifest = folder / "edits.jsonl"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


@functools.cache
def _picture(kind: str, side: int, role: str, seed: int) -> bytes:
    import numpy as np
    from PIL import Image

    base = np.linspace(0, 255, side)[None, :, None] * np.ones((side, 1, 3))
    noise = np.random.default_rng([seed, role == "edited"]).normal(
        0, 14 if kind == "jpeg" else 5, base.shape
    )
    pixels = np.clip(base + noise, 0, 255).astype("uint8")
    # a visible change: an output that is its input again is not rewarded
    if role == "edited":
        pixels[side // 4 : side // 2, side // 4 : side // 2, 1:] //= 3
    data = io.BytesIO()
    if kind == "jpeg":
        Image.fromarray(pixels).save(data, "JPEG", quality=84)
    else:
        # Noise in two thirds of the lines brings PNG to the weight of a photograph.
        pixels[: side // 3] = pixels[:1]
        Image.fromarray(pixels).save(data, "PNG", compress_level=1)
    return data.getvalue()


def _commented(data: bytes, kind: str, words: str) -> bytes:
    """The same picture as another file: pictures of one run must differ, and encoding each of them takes minutes."""
    comment = words.encode()
    if kind == "jpeg":
        return (
            data[:2]
            + b"\xff\xfe"
            + struct.pack(">H", len(comment) + 2)
            + comment
            + data[2:]
        )
    chunk = b"tEXtComment\0" + comment
    header = 8 + 25  # the signature and IHDR
    framed = (
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    )
    return data[:header] + framed + data[header:]


# --- contenders -----------------------------------------------------------------------------------------------


def contend(name: str, manifest: Path, url: str) -> dict[str, float]:
    """Judge the manifest; figures of this process from its start."""
    answered = CONTENDERS[name](manifest, url)
    # Python's start is before the first line here: it is the same in both runs of a contender, and cancels out.
    return {
        "answered": answered,
        "cpu": time.process_time(),
        "seconds": _age(),
        "peak_mb": peak_mb(),
    }


def _age() -> float:
    """Seconds since this process was started."""
    started = int(
        Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    ) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def peak_mb() -> float:
    """Of this process alone: getrusage would count the parent's size at the fork."""
    return memory_mb("VmHWM")


def memory_mb(field: str, process: int | str = "self") -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return (
        int(
            next(
                line for line in status.splitlines() if line.startswith(field)
            ).split()[1]
        )
        / 1024
    )


RUBRIC_TEXT = (
    'Answer as {"image_id", "online_factor_results": {"alignment", "completeness", "plausibility"}}. '
    * 60
)


def question(
    folder: Path, line: str, shown: Callable[[str, bytes], str]
) -> dict[str, Any]:
    """The same text and pictures as ours; `shown` gives the URL of a picture."""
    edit = json.loads(line)
    content: list[dict[str, Any]] = []
    for role in ("input", "edited"):
        kind = "jpeg" if edit[role].endswith("jpg") else "png"
        url = shown(f"data:image/{kind};base64,", (folder / edit[role]).read_bytes())
        content += [
            {"type": "text", "text": role},
            {"type": "image_url", "image_url": {"url": url}},
        ]
    identifier = f"edit-{int(edit['id']):016x}"
    content.append(
        {"type": "text", "text": f"{RUBRIC_TEXT} {identifier} {edit['instruction']}"}
    )
    return {"model": "stub", "messages": [{"role": "user", "content": content}]}


def careful_body(folder: Path, line: str) -> bytes:
    """JSON around base64 that is never a string: one join."""
    pictures: list[bytes] = []

    def shown(prefix: str, data: bytes) -> str:
        pictures.append(base64.b64encode(data))
        return f"{prefix}\0"

    first, *others = (
        json.dumps(question(folder, line, shown)).encode().split(rb"\u0000")
    )
    pieces = [first]
    for picture, other in zip(pictures, others, strict=True):
        pieces += (picture, other)
    return b"".join(pieces)


def usual_body(folder: Path, line: str) -> bytes:
    """All of it through json.dumps."""
    return json.dumps(
        question(
            folder, line, lambda prefix, data: prefix + base64.b64encode(data).decode()
        )
    ).encode()


def aiohttp_client(
    body_of: Callable[[Path, str], bytes], manifest: Path, url: str
) -> int:
    import aiohttp

    async def ask(
        session: aiohttp.ClientSession, gate: asyncio.Semaphore, line: str
    ) -> int:
        async with gate:
            body = body_of(manifest.parent, line)
            headers = {"content-type": "application/json"}
            async with session.post(
                f"{url}/v1/chat/completions", data=body, headers=headers
            ) as response:
                return _answered(await response.json())

    async def all_of_them() -> int:
        gate = asyncio.Semaphore(CONCURRENCY)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0)
        ) as session:
            return sum(
                await asyncio.gather(
                    *(ask(session, gate, line) for line in _lines(manifest))
                )
            )

    return asyncio.run(all_of_them())


def httpx2_client(manifest: Path, url: str) -> int:
    import httpx2

    async def ask(client: Any, gate: asyncio.Semaphore, line: str) -> int:
        async with gate:
            body = careful_body(manifest.parent, line)
            headers = {"content-type": "application/json"}
            response = await client.post(
                f"{url}/v1/chat/completions", content=body, headers=headers
            )
            return _answered(response.json())

    async def all_of_them() -> int:
        gate = asyncio.Semaphore(CONCURRENCY)
        limits = httpx2.Limits(
            max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY
        )
        async with httpx2.AsyncClient(timeout=60, limits=limits) as client:
            return sum(
                await asyncio.gather(
                    *(ask(client, gate, line) for line in _lines(manifest))
                )
            )

    return asyncio.run(all_of_them())


def ours(manifest: Path, url: str) -> int:
    """`editjudge run`, in this process, so that its CPU and memory can be read."""
    from editjudge.cli import main as command

    os.environ.pop("EDITJUDGE_STORE", None)
    store = manifest.parent / f"{time.time_ns()}.db"
    judge = [
        "--rubric",
        "fidelity",
        "--judge",
        "openai-compatible/stub",
        "--base-url",
        f"{url}/v1",
    ]
    words = [
        "editjudge",
        "run",
        str(manifest),
        *judge,
        "--concurrency",
        str(CONCURRENCY),
        "--store",
        str(store),
    ]
    printed = io.StringIO()
    sys.argv = [*words, "--json"]
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        command()
    statuses: dict[str, int] = json.loads(printed.getvalue())["statuses"]
    return statuses["ok"]


CONTENDERS: dict[str, Callable[[Path, str], int]] = {
    BARE: functools.partial(aiohttp_client, careful_body),
    "json-aiohttp": functools.partial(aiohttp_client, usual_body),
    "bare-httpx2": httpx2_client,
    "editjudge": ours,
}


def _answered(document: dict[str, Any]) -> int:
    text = document["choices"][0]["message"]["content"]
    return int('"score"' in text)


def _lines(manifest: Path) -> list[str]:
    return manifest.read_text().splitlines()


if __name__ == "__main__":
    main()
