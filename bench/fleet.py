"""Real llama.cpp servers side by side, and one of two killed midway: `python -m bench.fleet`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.recorded_server import serve
from bench.servers import CONDITIONS, write_manifest, write_models
from editjudge.store.store import Store

EDITS = 60


def measured(folder: Path, models: Path, servers: int, kill_after: float | None) -> str:
    """A run with that many servers; the first is killed after some seconds. Its figures as JSON."""
    files = (models / "tiny.gguf", models / "mmproj-tiny.gguf")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        urls = [first.enter_context(serve(*files, context=16_384))]
        urls += [
            stack.enter_context(serve(*files, context=16_384))
            for _ in range(servers - 1)
        ]
        manifest = write_manifest(folder, CONDITIONS["ordinary"], EDITS)
        words = ["run", str(manifest), "--quiet", "--name", "r", "--max-failures", "1"]
        words += ["--rubric", "quality", "--judge", "openai-compatible/tiny"]
        words += ["--store", str(folder / "s.db"), "--max-tokens", "200"]
        words += [word for url in urls for word in ("--base-url", f"{url}/v1")]
        started = time.monotonic()
        run = subprocess.Popen([sys.executable, "-m", "editjudge", *words])
        if kill_after:
            time.sleep(kill_after)
            first.close()
        code = run.wait()
        seconds = time.monotonic() - started
    with Store.open(folder / "s.db") as store:
        rows = store.judgements(store.find_run("r"))
        statuses = Counter(row["status"] for row in rows)
    figures = {"servers": servers, "killed after": kill_after, "exit": code}
    return json.dumps({**figures, "seconds": round(seconds, 1), **statuses})


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_models(folder)
        for number, (servers, kill) in enumerate(
            [(1, None), (2, None), (3, None), (2, 4.0)]
        ):
            run = folder / str(number)
            run.mkdir()
            print(measured(run, folder / "tiny", servers, kill), flush=True)


if __name__ == "__main__":
    main()
