"""How quickly the browser's pages answer, and in how much memory, from ten thousand judgements to a million, as JSON.

python -m bench.web                     10,000 and 100,000 judgements
python -m bench.web --million           and 1,000,000
python -m bench.web --lists             only the lists of 100,000 edits, without a server: page, sort, filter, search
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from editjudge.rubrics.files import resolve
from editjudge.store import schema
from editjudge.store.schema import packed, unpacked
from editjudge.store.store import Store
from editjudge.web.listing import Browser, Query

RUBRICS = resolve(["online"])
MODELS = [f"model-{n}" for n in range(8)]
KINDS = ["add", "remove", "recolor", "style", "background", "text"]
TIMES = 40
CHUNK = 10_000
REASON = (
    "The requested change is where it belongs, and what stands around it is as it was before the edit. "
    * 2
)


def fill(place: Path, count: int) -> None:
    """A finished run of three rubrics, written past the store's own checks: only reading is measured."""
    edits = count // len(RUBRICS)
    rng = random.Random(1)
    with Store.open(place) as store:
        spec = {
            "rubrics": {r.name: r.hash for r in RUBRICS},
            "judges": ["openai/m"],
            "layout": "images-first",
        }
        run = store.open_run("bench", spec)
        store.add_rubrics(RUBRICS)
        for first in range(0, edits, CHUNK):
            some = range(first, min(first + CHUNK, edits))
            with store._writing() as connection:
                connection.execute(
                    sa.insert(schema.items), [_item(run.id, n) for n in some]
                )
                rows = [row for n in some for row in _asked(run.id, n, rng)]
                for number, table in enumerate(
                    (schema.tasks, schema.judgements, schema.replies)
                ):
                    connection.execute(sa.insert(table), [row[number] for row in rows])
                connection.execute(
                    sa.insert(schema.scores),
                    [score for row in rows for score in _scores(*row)],
                )
        store.mark(run, "finished", {"statuses": {"ok": count}})


def _item(run: int, n: int) -> dict[str, Any]:
    pictures = {
        role: {"source": f"/pictures/{n}/{role}.png", "digest": "d" * 64}
        for role in ("input", "edited")
    }
    return {
        "run_id": run, "item": f"edit-{n:07}", "position": n, "model": MODELS[n % 8], "edit_type": KINDS[n % 6],
        "group": f"g{n // 8}", "instruction": f"make the {n % 977}th thing on the left a little more blue",
        "referring_expression": "", "images": pictures, "metadata": {},
    }  # fmt: skip


def _asked(
    run: int, n: int, rng: random.Random
) -> Iterator[tuple[dict[str, Any], ...]]:
    for number, rubric in enumerate(RUBRICS):
        key = f"{rng.getrandbits(256):064x}"
        scores = {factor.key: rng.randint(1, 7) for factor in rubric.factors}
        ok = rng.random() < 0.97
        row = {"key": key, "rubric": rubric.name, "judge": "openai/m", "repeat": 0}
        task = row | {"run_id": run, "item": f"edit-{n:07}", "position": 3 * n + number}
        judgement = row | {
            "status": "ok" if ok else "invalid", "rubric_hash": rubric.hash,
            "justifications": dict.fromkeys(scores, REASON) if ok else None, "abstained": {}, "evidence": {},
            "violations": [{"code": "too_long", "message": "long", "factor": None}] if n % 10 == 0 else [],
            "notes": [], "reasons": [], "attempts": 1, "usage": {}, "cost": 0.01, "server_model": "m",
            "schema_mode": "enforced", "prepared": {}, "created": 1.8e9,
        }  # fmt: skip
        reply = {
            "key": key, "mark": 1, "at": 1.8e9, "outcome": "ok", "finish": "stop", "usage": {}, "model": "m",
            "text": packed(json.dumps(scores)), "request_id": None, "latency": 1.2, "retries": 0, "reasons": [],
        }  # fmt: skip
        yield task, judgement, reply


def _scores(
    _: object, judgement: dict[str, Any], reply: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if judgement["status"] == "ok":
        for position, (factor, score) in enumerate(
            json.loads(unpacked(reply["text"])).items()
        ):
            place = {"key": judgement["key"], "status": "ok", "position": position}
            yield {**place, "factor": factor, "score": score}


def serve(place: Path) -> tuple[subprocess.Popen[str], int]:
    command = [
        sys.executable,
        "-m",
        "editjudge",
        "serve",
        "--store",
        str(place),
        "--port",
        "0",
    ]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        if match := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
            port = int(match[1])
            break
    else:
        raise SystemExit("the server did not start")
    for _ in range(200):
        try:
            get(port, "/healthz")
        except OSError:
            time.sleep(0.05)
        else:
            break
    return server, port


def get(port: int, path: str) -> tuple[float, str]:
    """Milliseconds to the last byte, and the page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    started = time.perf_counter()
    connection.request("GET", path, headers={"Accept": "text/html"})
    answer = connection.getresponse()
    text = answer.read().decode()
    spent = 1000 * (time.perf_counter() - started)
    assert answer.status == 200, (answer.status, text[:300])
    connection.close()
    return spent, text


def megabytes(process: int, field: str) -> float:
    match = re.search(
        rf"{field}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text()
    )
    assert match
    return round(int(match[1]) / 1024, 1)


def cpu(process: int) -> float:
    """Milliseconds of processor time so far: what a busy machine does not change."""
    user, system = (
        Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    )
    return 1000 * (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def timed(server: int, port: int, paths: list[str]) -> dict[str, float]:
    before = cpu(server)
    spent = sorted(get(port, path)[0] for path in paths)
    return {
        "median_ms": round(statistics.median(spent), 1),
        "p95_ms": round(spent[int(0.95 * len(spent))], 1),
        "cpu_ms": round((cpu(server) - before) / len(paths), 1),
    }


def measure(place: Path, count: int) -> dict[str, Any]:
    edits = count // len(RUBRICS)
    rng = random.Random(2)
    server, port = serve(place)
    try:
        idle = megabytes(server.pid, "VmRSS")
        cold_table = round(get(port, "/runs/1")[0], 1)
        cold_edit = round(get(port, "/runs/1/edits/edit-0000007")[0], 1)
        building = timed(server.pid, port, ["/runs/1"] * 10)
        started = time.perf_counter()
        while "reloads by itself" in get(port, "/runs/1?sort=-seamlessness")[1]:
            time.sleep(0.1)
        listed = round(time.perf_counter() - started, 1)
        after_listing = megabytes(server.pid, "VmRSS")
        factors = [factor.key for rubric in RUBRICS for factor in rubric.factors]
        numbers = [rng.randrange(edits) for _ in range(TIMES)]
        filters = [
            f"/runs/1?model={rng.choice(MODELS)}&factor={rng.choice(factors)}&most={n % 7}"
            for n in range(TIMES)
        ]
        pages = {
            "first_page": timed(server.pid, port, ["/runs/1"] * TIMES),
            "deep_page": timed(
                server.pid, port, [f"/runs/1?page={1 + n // 50}" for n in numbers]
            ),
            "sorted_page": timed(
                server.pid,
                port,
                [f"/runs/1?sort=-{rng.choice(factors)}&page={n % 9}" for n in numbers],
            ),
            "filtered_page": timed(server.pid, port, filters),
            "edit_page": timed(
                server.pid, port, [f"/runs/1/edits/edit-{n:07}" for n in numbers]
            ),
            "edit_page_in_sorted_view": timed(
                server.pid,
                port,
                [f"/runs/1/edits/edit-{n:07}?sort=seamlessness" for n in numbers],
            ),
        }
        return {
            "judgements": count, "edits": edits, "store_mb": round(place.stat().st_size / 2**20),
            "cold": {"first_page_ms": cold_table, "edit_page_ms": cold_edit, "while_listing": building},
            "listed_after_s": listed,
            **pages,
            "memory_mb": {"idle": idle, "listed": after_listing, "peak": megabytes(server.pid, "VmHWM"),
                          "after_all_requests": megabytes(server.pid, "VmRSS")},
        }  # fmt: skip
    finally:
        server.terminate()
        server.wait(20)


def lists(place: Path) -> dict[str, float]:
    """Measure the processor time of a page of a list, in milliseconds, and of filling it, in seconds."""
    with Store.open(place) as store:
        run = store.find_run("bench")
        browser = Browser(store)
        started = time.process_time()
        browser.fill(run, "", browser.columns(run))
        seconds = time.process_time() - started
        queries = {
            "page": Query(),
            "deep page": Query(page="1500"),
            "sort": Query(sort="-seamlessness"),
            "sort by disagreement": Query(sort="-spread"),
            "filter": Query(factor="alignment", most="2"),
            "filter by status": Query(status="failed"),
            "search": Query(q="the 500th thing"),
        }
        figures = {"fill_s": round(seconds, 2)}
        for name, query in queries.items():
            spent = []
            for _ in range(5):
                started = time.process_time()
                browser.page(run, query)
                spent.append(1000 * (time.process_time() - started))
            figures[f"{name}_ms"] = round(statistics.median(spent), 1)
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--lists", action="store_true")
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder for the stores; what is there already is used again",
    )
    chosen = parser.parse_args()
    counts = [10_000, 100_000, *([1_000_000] if chosen.million else [])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.keep or Path(temporary)
        if chosen.lists:
            place = folder / "lists.db"
            if not place.exists():
                fill(place, len(RUBRICS) * 100_000)
            print(json.dumps(lists(place), indent=2))
            return
        results = []
        for count in counts:
            place = folder / f"{count}.db"
            if not place.exists():
                fill(place, count)
            results.append(measure(place, count))
    slow = {
        name: results[-1][name]["median_ms"] / results[0][name]["median_ms"]
        for name in ("first_page", "edit_page")
    }
    print(
        json.dumps(
            {
                "cores": os.cpu_count(),
                "sizes": results,
                "times_as_slow_as_the_smallest": slow,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
