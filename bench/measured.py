"""How fast the embedded judge measures, beside scikit-image's SSIM and CIEDE2000 on the same pair in the same run.

    python -m bench.measured [--pairs 5] [--side 1024] [--edits 40] [--rounds 2]

Prints one JSON document: CPU milliseconds per pair on one core for all measures and scores, the network among them, for
the network alone, for the two calls of scikit-image, their ratio, what it takes to load the judge, its size, memory of
a worker, and how much faster a run by two workers is than one by one worker, once all of them are at work, beside how
much faster two processes that share nothing are: on a machine that others use, that is no 2 either.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from skimage import color, data, metrics

from editjudge.judges.workers import FEW
from editjudge.running.job import Job, RunOptions, execute
from editjudge.store.store import Store
from editjudge.vision.measured.calibration import FILE, load
from editjudge.vision.measured.change import find_change
from editjudge.vision.measured.factors import MEASURED, score
from editjudge.vision.measured.measures import measure
from editjudge.vision.measured.network import FILE as NETWORK
from editjudge.vision.measured.network import extract, see
from editjudge.vision.measured.scene import compose

Picture = Any
# scikit-image has no types for these three.
photograph: Any = data.astronaut
ssim: Any = metrics.structural_similarity
ciede2000: Any = color.deltaE_ciede2000


def pair(side: int) -> tuple[Picture, Picture]:
    """A photograph and an edit of it: a recoloured ellipse, and noise as re-encoding leaves it."""
    before = cv2.resize(photograph(), (side, side), interpolation=cv2.INTER_CUBIC)
    after = before.copy()
    mask = np.zeros((side, side), np.uint8)
    cv2.ellipse(
        mask, (side // 2, side // 3), (side // 6, side // 8), 0, 0, 360, 255, -1
    )
    after[mask > 0] = after[mask > 0][:, ::-1]
    noise = np.random.default_rng(0).normal(0, 2, after.shape)
    return before, np.clip(after + noise, 0, 255).astype(np.uint8)


def ours(before: Picture, after: Picture) -> None:
    found = measure(compose(before, after))
    for factor in MEASURED:
        score(factor, found, load())


def network(before: Picture, after: Picture) -> None:
    scene = compose(before, after)
    extract(scene, find_change(scene))


def without(before: Picture, after: Picture) -> None:
    find_change(compose(before, after))


def load_ms() -> float:
    """CPU of a fresh process from the first line of the judge to the network's first answer."""
    begin = time.process_time()
    load()
    see(np.zeros((224, 224, 3), np.uint8))
    return 1000 * (time.process_time() - begin)


def theirs_ssim(before: Picture, after: Picture) -> None:
    ssim(before, after, channel_axis=2)


def theirs_ciede(before: Picture, after: Picture) -> None:
    ciede2000(color.rgb2lab(before), color.rgb2lab(after))


def cpu_ms(
    call: Callable[[Picture, Picture], None], given: tuple[Picture, Picture], times: int
) -> float:
    """Median CPU time: what else runs on the machine does not count."""
    call(*given)
    spent = []
    for _ in range(times):
        begin = time.process_time()
        call(*given)
        spent.append(1000 * (time.process_time() - begin))
    return float(np.median(spent))


def per_second(workers: int, folder: Path, edits: int) -> float:
    """Edits a second of a run by so many workers, from when all of them are at work until the last edit is begun."""
    # as clusters say how many cores a process may use
    os.environ["OMP_NUM_THREADS"] = str(workers)
    marks: list[tuple[float, int]] = []
    with (
        tempfile.TemporaryDirectory() as name,
        Store.open(Path(name) / "store.db") as store,
    ):
        job = Job(folder / "edits.jsonl", ("online",), ("measured",))
        observe = lambda tally: marks.append((time.perf_counter(), tally.total))  # noqa: E731
        asyncio.run(execute(job, store, RunOptions(observe=observe)))
    questions = marks[-1][1] / edits
    first = (FEW + 2 * workers) * questions
    last = (edits - workers) * questions
    begun, ended = (
        next(mark for mark in marks if mark[1] >= count) for count in (first, last)
    )
    return (ended[1] - begun[1]) / questions / (ended[0] - begun[0])


def make_edits(folder: Path, side: int, edits: int) -> None:
    before, after = pair(side)
    lines = []
    for number in range(edits):
        cv2.imwrite(
            str(folder / f"{number}.png"), np.roll(after, number, axis=1)[..., ::-1]
        )
        line = {
            "id": f"e{number}",
            "input": "input.png",
            "edited": f"{number}.png",
            "instruction": "recolour it",
        }
        lines.append(json.dumps(line))
    cv2.imwrite(str(folder / "input.png"), before[..., ::-1])
    (folder / "edits.jsonl").write_text("\n".join(lines))


def count(_: int) -> int:
    return sum(i * i % 7 for i in range(1_500_000))


def loops_per_second(workers: int) -> float:
    """Processes that share nothing: what the machine itself gains from a second worker at this moment."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        list(pool.map(count, range(workers)))
        begin = time.perf_counter()
        list(pool.map(count, range(8)))
    return 8 / (time.perf_counter() - begin)


def peak_mb(side: int) -> float:
    """Most memory of a process that does nothing but measure; what the libraries take is part of it."""
    ours(*pair(side))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument(
        "--edits",
        type=int,
        default=40,
        help="of a run by one worker, and by two, at half the side",
    )
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    cv2.setNumThreads(1)
    pictures = pair(given.side)
    mine = cpu_ms(ours, pictures, given.pairs)
    eyes, pixels = (cpu_ms(call, pictures, given.pairs) for call in (network, without))
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        loading = fresh.submit(load_ms).result()
        memory = fresh.submit(peak_mb, given.side).result()
    ssim, ciede = (
        cpu_ms(call, pictures, given.pairs) for call in (theirs_ssim, theirs_ciede)
    )
    # In turns, and the best of each: on a machine that others use, one long run of each compares their load instead.
    with tempfile.TemporaryDirectory() as name:
        make_edits(Path(name), given.side // 2, given.edits)
        rounds = [
            [per_second(workers, Path(name), given.edits) for workers in (1, 2)]
            for _ in range(given.rounds)
        ]
    one, two = (max(column) for column in zip(*rounds, strict=True))
    control = [[loops_per_second(workers) for workers in (1, 2)] for _ in range(3)]
    machine = max(two for _, two in control) / max(one for one, _ in control)
    print(
        json.dumps(
            {
                "side": given.side,
                "measured_cpu_ms": round(mine, 1),
                "network_cpu_ms": round(eyes - pixels, 1),
                "skimage_ssim_cpu_ms": round(ssim, 1),
                "skimage_ciede2000_cpu_ms": round(ciede, 1),
                "ratio": round(mine / (ssim + ciede), 3),
                "load_cpu_ms": round(loading, 1),
                "files_mb": round(
                    sum(file.stat().st_size for file in (FILE, NETWORK)) / 1e6, 2
                ),
                "worker_memory_mb": round(memory, 1),
                "edits_per_second_1_worker": round(one, 2),
                "edits_per_second_2_workers": round(two, 2),
                "scaling": round(two / one, 2),
                "scaling_of_the_machine": round(machine, 2),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
