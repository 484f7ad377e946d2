"""Without extras every verb works or names the extra that it needs; none ends in a traceback."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from packaging.requirements import Requirement

from editjudge.cli import VERBS, app
from editjudge.plugins import EXTRA_OF_MODULE
from tests.running.made import edit_pairs, editjudge, edits, stub

STORE = ("--store", "s.db")
ONE = (
    "--input",
    "input-0.png",
    "--edited",
    "edited-0.png",
    "--instruction",
    "Paint it.",
)
REPLAY = (
    "--judge",
    "replay:replay.jsonl",
    "--rubric",
    "fidelity",
    "--max-failures",
    "1",
)
RUN = ("run", "edits.jsonl", *REPLAY, "--name")

WORKS = [
    ("audit", "edits.jsonl"),
    ("audit", "edits.jsonl", "--json"),
    ("completion", "bash"),
    ("docs",),
    ("docs", "running"),
    ("doctor", *STORE),
    ("doctor", "--json", *STORE),
    ("export", "r", "-o", "out", *STORE),
    ("export", "r", "-o", "out-csv", "--format", "csv", *STORE),
    ("export", "r", "-o", "kept", "--where", "overall>=1", *STORE),
    ("export", "pairs", "-o", "out-pairs", *STORE),
    ("import-run", "exported", "--store", "imported.db"),
    ("manifest", "--help"),
    ("pairs", "alike.jsonl", "-o", "pairs.jsonl"),
    ("ratings", "export", "exported.csv", *STORE),
    ("ratings", "links", *STORE),
    ("rubric", "list"),
    ("rubric", "show", "fidelity", "--json"),
    ("rubric", "show", "online", "--prompt"),
    ("rubric", "recipes"),
    (*RUN, "new", "--store", "new.db"),
    (*RUN, "new", "--store", "new.db", "--dry-run"),
    (*RUN, "filtered", "--where", "r:overall>=1", *STORE),
    ("runs", "list", *STORE),
    ("runs", "show", "r", *STORE),
    ("runs", "rm", "other", "--yes", *STORE),
]
"""What needs no extra."""

ENDS = {
    ("judge", *ONE, *REPLAY[:4]): 3,
    ("parse", "--rubric", "fidelity", "replay.jsonl"): 1,
    ("ratings", "invite", "study", "Ann", *STORE): 2,
    ("ratings", "revoke", "study", "Ann", *STORE): 2,
    ("ratings", "rm", "--rater", "Ann", "--yes", *STORE): 2,
    ("rubric", "check", "replay.jsonl"): 1,
    ("rubric", "import", "replay.jsonl"): 1,
    ("runs", "again", "r", *STORE): 2,
}
"""What ends otherwise, for a reason that has nothing to do with extras."""

NEEDS: dict[str, list[tuple[str, ...]]] = {
    "stats": [
        ("agree", "r", *STORE),
        ("agree", "r", "--ratings", "ratings.csv", *STORE),
        ("agree", "r", "--preferences", "ratings.csv", *STORE),
        ("agree", "--scores", "ratings.csv", "--ratings", "ratings.csv"),
        ("compare", "r", *STORE),
        ("compare", "r", "other", *STORE),
        ("drift", "r", "--against", "other", *STORE),
        ("gate", "r", "--min", "alignment=1", *STORE),
        ("gate", "r", "--baseline", "other", *STORE),
        ("ratings", "import", "ratings.csv", *STORE),
        ("ratings", "plan", "r", "--budget", "3", "-o", "plan.jsonl", *STORE),
        *(("report", "r", "--format", form, *STORE) for form in ("html", "fragment", "md", "latex", "csv", "json")),
        ("report", "r", "-o", "report.html", *STORE),
        ("report", "r", "-o", "report.md", *STORE),
        ("report", "pairs", *STORE),
        ("bridge", "r", "r", *STORE),
        ("trend", "r", "--step-from", "(.)", *STORE),
    ],
    "parquet": [
        ("audit", "edits.parquet"),
        ("export", "r", "-o", "out-parquet", "--format", "parquet", *STORE),
        ("import-run", "shards", "--store", "imported-2.db"),
        ("run", "edits.parquet", *REPLAY, "--store", "new-2.db"),
    ],
    "inspect": [("export", "r", "-o", "out-inspect", "--format", "inspect", *STORE)],
    "measured": [
        ("judge", *ONE),
        ("judge", *ONE, "--judge", "metrics"),
        ("run", "edits.jsonl", "--store", "new-3.db"),
        ("run", "edits.jsonl", "--judge", "metrics", "--store", "new-4.db"),
    ],
    "local": [("judge", *ONE, "--judge", "gguf:model.gguf")],
    "heic": [("judge", "--input", "x.heic", *ONE[2:], "--judge", "openai-compatible/m", "--base-url", "http://127.0.0.1:9/v1")],
    "postgres": [
        (*RUN, "new", "--store", "postgresql://user@127.0.0.1:9/x"),
        ("runs", "list", "--store", "postgresql://user@127.0.0.1:9/x"),
    ],
    "ray": [
        (*RUN, "new", "--engine", "ray", "--store", "new-5.db"),
    ],
    "probes": [("probe",), ("probe", *REPLAY[:2])],
    "web": [
        ("serve", "--store", "served.db", "--create"),
        ("serve", *STORE),
        ("serve", "--judge", "measured", "--store", "served-2.db", "--create"),
        ("serve", "--dialect", "flow-grpo", "--store", "served-3.db", "--create"),
    ],
}  # fmt: skip
"""What names its extra."""

CASES = [
    *((words, 0, None) for words in WORKS),
    *((words, code, None) for words, code in ENDS.items()),
    *((words, None, extra) for extra, commands in NEEDS.items() for words in commands),
]


def distributions_of_the_core() -> set[str]:
    """What an installation without extras brings."""
    present: set[str] = set()
    waiting = ["editjudge"]
    while waiting:
        name = normal(waiting.pop())
        if name in present:
            continue
        present.add(name)
        requirements = map(Requirement, importlib.metadata.requires(name) or ())
        waiting += [
            one.name
            for one in requirements
            if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return present


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, ...], dict[str, Any]]:
    """What each command answers where only the core is installed."""
    folder = tmp_path_factory.mktemp("core")
    _fill(folder)
    core = distributions_of_the_core()
    modules = importlib.metadata.packages_distributions()
    absent = [
        module
        for module, owners in modules.items()
        if not core & set(map(normal, owners))
    ]
    program = Path(__file__).with_name("core_install.py")
    done = subprocess.run(
        [sys.executable, program, ",".join(absent)],
        input=json.dumps([words for words, *_ in CASES]),
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    return {
        words: answer
        for (words, *_), answer in zip(CASES, json.loads(done.stdout), strict=True)
    }


def _fill(folder: Path) -> None:
    """A store with runs, its exports, and files to read."""
    manifest = edits(folder, 4)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    alike = [row | {"instruction": "Paint it."} for row in rows]
    (folder / "alike.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in alike)
    )
    (folder / "of-pairs").mkdir()
    pairs = edit_pairs(folder / "of-pairs", 2)
    store = ("--store", folder / "s.db", "--judge", "openai/m")
    with stub():
        for name, path, rubric in (
            ("r", manifest, "fidelity"),
            ("other", manifest, "quality"),
            ("pairs", pairs, "preference"),
        ):
            assert (
                editjudge("run", path, *store, "--rubric", rubric, "--name", name).code
                == 0
            )
    for form, name in (("jsonl", "exported"), ("parquet", "shards")):
        assert (
            editjudge(
                "export", "r", "-o", folder / name, "--format", form, *store[:2]
            ).code
            == 0
        )
    (folder / "ratings.csv").write_text("item,rater,factor,score\ne0,Ann,alignment,5\n")
    (folder / "edits.parquet").write_bytes(b"PAR1")
    (folder / "x.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    line = {"item": "e0", "rubric": "fidelity", "reply": "{}"}
    (folder / "replay.jsonl").write_text(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    ("words", "code", "extra"), CASES, ids=[" ".join(words) for words, *_ in CASES]
)
def test_a_verb_works_without_extras_or_names_its_own(
    answers: dict[tuple[str, ...], dict[str, Any]],
    words: tuple[str, ...],
    code: int | None,
    extra: str | None,
) -> None:
    answer = answers[words]
    assert "Traceback" not in answer["err"], answer["err"]
    if extra is None:
        assert answer["code"] == code, answer["err"]
        assert "pip install 'editjudge[" not in answer["err"]
    else:
        assert answer["code"] in (1, 2, 3), answer["err"]
        assert f"'editjudge[{extra}]'" in answer["err"] + answer["out"]


def commands_of(group: click.Command, *words: str) -> list[tuple[str, ...]]:
    if not isinstance(group, click.Group):
        return [words]
    context = click.Context(group)
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands_of(command, *words, name)
    return found


def test_every_verb_is_tried() -> None:
    tried = {words for words, *_ in CASES}
    commands = commands_of(app)
    assert len(commands) >= len(VERBS)
    assert [
        words
        for words in commands
        if not any(one[: len(words)] == words for one in tried)
    ] == []


def test_every_module_of_an_extra_is_known_by_that_extra() -> None:
    """So that a module that nobody looked for is named by `EXTRA_OF_MODULE`."""
    modules: dict[str, set[str]] = {}
    for module, owners in importlib.metadata.packages_distributions().items():
        for owner in owners:
            modules.setdefault(normal(owner), set()).add(module)
    left_out = {"all", "demo", "dev", "fuzz", "release"}
    for requirement in map(Requirement, importlib.metadata.requires("editjudge") or ()):
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", str(requirement.marker or ""))
        names = modules.get(normal(requirement.name), set()) - {"editjudge"}
        if extra and extra[1] not in left_out and names:
            assert names & EXTRA_OF_MODULE.keys(), f"{requirement.name} of {extra[1]}"
