"""A package of somebody else adds a judge, an engine, a screen, a sink and routes, by its entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from editjudge import plugins
from editjudge.errors import UsageError
from tests import patient

PROVIDERS = {
    "judges": "size = strangers:open_size_judge",
    "engines": "noted = strangers:execute_noted",
    "screens": "square = strangers:find_squares",
    "sinks": "count = strangers:write_count",
    "routes": "greeting = strangers:extend",
    "trackers": "lines = strangers:log_lines",
}
CODE = """
from editjudge.edit import DegenerateImage
from editjudge.judges.judge import Judge
from editjudge.media.image import ImageLimits
from PIL import Image


class SizeJudge(Judge):
    limits = ImageLimits(base64=False)

    def __init__(self, spec):
        self.spec = spec
        self.enough = int(spec.partition(":")[2] or 512)

    def identity(self, edit, rubric, repeat):
        return {"judge": "size", "enough": self.enough}

    async def judge(self, work, load):
        image = await load("edited")
        score = 7 if min(image.width, image.height) >= self.enough else 1
        reason = f"the output has {image.width} x {image.height} pixels"
        keys = [factor.key for factor in work.rubric.factors]
        scores = dict.fromkeys(keys, score)
        return work.judgement("ok", scores=scores, justifications=dict.fromkeys(keys, reason))


def open_size_judge(spec, options, resources):
    resources.callback(lambda: open("closed", "w").close())
    return SizeJudge(spec)


async def execute_noted(cluster, job, store, options):
    import dataclasses
    from editjudge.running.job import execute

    open("noted", "w").close()
    return await execute(job, store, dataclasses.replace(options, cluster=None))


def find_squares(edit):
    with Image.open(edit.edited) as image:
        width, height = image.size
    return [DegenerateImage("square", "edited", "is as wide as high")] if width == height else []


def log_lines(run, where):
    with open(where, "w") as file:
        for step in run.steps:
            file.writelines(f"{step.step} {name} {value}\\n" for name, value in step.metrics.items())
    return where


def write_count(store, run, folder):
    folder.mkdir()
    path = folder / "count.txt"
    path.write_text(str(sum(row["status"] == "ok" for row in store.judgements(run))))
    return [path]


def extend(site):
    from editjudge.web.site import Extension
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def greet(request):
        return PlainTextResponse(f"{len(site.store.runs())} runs")

    return Extension([Route("/greeting", greet)])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the package and one edit, whose output is square."""
    site = tmp_path / "site"
    metadata = site / "strangers-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "strangers.py").write_text(CODE)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "".join(f"[editjudge.{kind}]\n{line}\n" for kind, line in PROVIDERS.items())
    )
    for name, size in {"input": (96, 64), "edited": (64, 64)}.items():
        Image.effect_noise(size, 60).convert("RGB").save(tmp_path / f"{name}.png")
    edit = {
        "id": "1",
        "input": "input.png",
        "edited": "edited.png",
        "instruction": "Crop it.",
    }
    (tmp_path / "edits.jsonl").write_text(json.dumps(edit))
    return tmp_path


def command(folder: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The JSON that a verb answers."""
    done = subprocess.run(
        [sys.executable, "-m", "editjudge", *words, "--json"],
        cwd=folder, env=environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join((str(folder / "site"), str(Path(__file__).parents[1])))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def test_a_judge_of_another_package_judges_a_run_and_a_sink_of_it_exports_the_run(
    folder: Path,
) -> None:
    words = ("--rubric", "quality", "--judge", "size:64", "--name", "sizes")
    command(folder, "run", "edits.jsonl", *words)
    assert (folder / "closed").exists()
    written = command(folder, "export", "sizes", "-o", "out", "--format", "count")[
        "written"
    ]
    assert (folder / written[0]).read_text() == "1"
    with serving(folder) as address:
        assert patient.get(f"{address}/greeting", timeout=30).text == "1 runs"


def test_a_tracker_of_another_package_gets_the_metrics_of_a_run(folder: Path) -> None:
    words = ("--judge", "size:64", "--step", "5", "--log", "lines:log.txt")
    command(folder, "run", "edits.jsonl", "--rubric", "quality", "--quiet", *words)
    lines = (folder / "log.txt").read_text().splitlines()
    assert any(line.startswith("5 image_quality/mean ") for line in lines), lines


def test_an_engine_of_another_package_runs_a_job(folder: Path) -> None:
    words = ("--rubric", "quality", "--judge", "size:64", "--engine", "noted")
    counts = command(folder, "run", "edits.jsonl", *words)["statuses"]
    assert (folder / "noted").exists() and counts == {"ok": 1}


def test_an_engine_that_no_package_has_is_a_mistake_of_use(folder: Path) -> None:
    words = ("run", "edits.jsonl", "--judge", "size:64", "--engine", "unknown")
    done = subprocess.run(
        [sys.executable, "-m", "editjudge", *words],
        cwd=folder, env=environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "local, ray, noted" in done.stderr


def test_doctor_lists_the_judges_of_other_packages(folder: Path) -> None:
    judges = command(folder, "doctor")["judges"]
    ready = {judge["judge"]: judge["ready"] for judge in judges}
    assert ready["size"] is True and {"measured", "metrics"} <= {*ready}


def test_the_message_on_an_unknown_judge_names_those_of_other_packages(
    folder: Path,
) -> None:
    arguments = ("run", "edits.jsonl", "--judge", "guess")
    done = subprocess.run(
        [sys.executable, "-m", "editjudge", *arguments],
        cwd=folder, env=environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and ", size, " in done.stderr


def test_a_screen_of_another_package_takes_part_in_an_audit(folder: Path) -> None:
    findings = command(folder, "audit", "edits.jsonl", code=1)["findings"]
    assert ("square", "edited") in {
        (result["kind"], result["field"]) for result in findings
    }


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server that runs until the block ends."""
    code = textwrap.dedent("""
        import socket, sys
        from editjudge.cli import main
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        print(port, flush=True)
        sys.argv = ["editjudge", "serve", "--port", str(port), "--rubric", "quality"]
        main()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None and server.stderr is not None
            address = f"http://127.0.0.1:{int(server.stdout.readline())}"
            for line in server.stderr:
                if "running on" in line or address in line:
                    break
            yield address
        finally:
            server.terminate()
            server.communicate(timeout=60)


def test_every_provider_of_ours_can_be_loaded() -> None:
    for kind, named in plugins.BUILT_IN.items():
        for name in named:
            assert callable(plugins.load(kind, name, name))


def test_an_extra_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(plugins.EXTRAS, "ray", {"no_such_module": "no-such-package"})
    with pytest.raises(UsageError, match=r"no-such-package.*editjudge\[ray\]"):
        plugins.load("engines", "ray", "--engine ray")
    assert plugins.usable("engines") == []
