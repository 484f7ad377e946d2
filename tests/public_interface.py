"""The public interface of the editjudge that is imported, as one JSON document.

`python tests/public_interface.py > tests/public_0_1.json`, with the code of 0.1 on PYTHONPATH, made the list that
`test_public_0_1.py` checks today's code against. It uses nothing of the package but what 0.1 had.
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import json
import os
import re
import sys
import tempfile
import unittest.mock
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet
import pytest
from PIL import Image

import editjudge
from editjudge import cli
from editjudge.cli.options import FORMER

MODELS = ("good", "poor")
EDITS = 16


def names() -> dict[str, list[str]]:
    """Public names, and the parameters of each function, constructor and method."""
    found: dict[str, list[str]] = {}
    for name in editjudge.__all__:
        thing = getattr(editjudge, name)
        if not inspect.isclass(thing):
            found[name] = list(inspect.signature(thing).parameters)
            continue
        found[name] = (
            []
            if issubclass(thing, Exception)
            else list(inspect.signature(thing).parameters)
        )
        for part, value in vars(thing).items():
            if not part.startswith("_"):
                method = getattr(value, "__func__", value)
                found[f"{name}.{part}"] = (
                    list(inspect.signature(method).parameters)
                    if callable(method)
                    else []
                )
    return found


def verbs() -> dict[str, dict[str, Any]]:
    """Verbs and what each takes: arguments in order, options with all their spellings and choices."""
    return dict(_commands(cli.app, ""))


def _commands(
    command: click.Command, path: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, f"{path} {name}".strip())
        return
    arguments = [p.name for p in command.params if isinstance(p, click.Argument)]
    options = {
        spelling: list(p.type.choices) if isinstance(p.type, click.Choice) else None
        for p in command.params
        if isinstance(p, click.Option)
        for spelling in (*p.opts, *p.secondary_opts)
    }
    # Spellings until 1.0 are understood before click reads the line.
    options |= {old: options[new] for old, new in FORMER.items() if new in options}
    yield path, {"arguments": arguments, "options": options}


MEASURED = ("evidence", "scores", "justifications", "abstained", "keys")
"""What the embedded judge answers by factor or measure: its factors and measures are no fixed fields."""


def paths(document: Any, path: str = "", closed: tuple[str, ...] = ()) -> set[str]:
    """Every key of a JSON document with the keys above it, but not those below `closed`; a list's entries share one."""
    if isinstance(document, dict):
        below = {
            f"{path}/{key}": () if key in closed else value
            for key, value in document.items()
        }
        return {
            *below,
            *(
                place
                for name, value in below.items()
                for place in paths(value, name, closed)
            ),
        }
    if isinstance(document, list):
        return {
            place for value in document for place in paths(value, f"{path}[]", closed)
        }
    return set()


# --- a sample to run the verbs on -----------------------------------------------------------------------------


def sample(folder: Path) -> None:
    """Edits of two models, recorded replies of two times, ratings, scores, preferences and a benchmark's tree."""
    rows = []
    ratings = ["item,rater,factor,score"]
    scores = ["item,judge,factor,score"]
    replies: dict[str, list[str]] = {"first": [], "second": []}
    for n in range(EDITS):
        _picture(folder / f"in-{n}.png", n)
        for m, model in enumerate(MODELS):
            item = f"{model}-{n}"
            _picture(folder / f"{item}.png", n, edit=1 + m)
            rows.append(
                {"id": item, "input": f"in-{n}.png", "edited": f"{item}.png", "instruction": f"make {n} red",
                 "model": model, "edit_type": ("add", "remove")[n % 2]}
            )  # fmt: skip
            for k, (name, lines) in enumerate(replies.items()):
                score = 2 + (n + m + k) % 3 + 2 * (model == "good")
                if name == "second" or n:  # one edit has no recorded reply: a failure
                    lines.append(
                        json.dumps(
                            {
                                "item": item,
                                "rubric": "fidelity",
                                "reply": reply(item, score),
                            }
                        )
                    )
            ratings += [
                f"{item},{rater},alignment,{2 + (n + m + r) % 5}"
                for r, rater in enumerate(("ann", "bob"))
            ]
            scores.append(f"{item},mine,alignment,{1 + (n + m) % 7}")
    write(folder / "edits.jsonl", *map(json.dumps, rows))
    for name, lines in replies.items():
        write(folder / f"{name}.jsonl", *lines)
    write(folder / "ratings.csv", *ratings)
    write(folder / "scores.csv", *scores)
    write(
        folder / "preferences.csv",
        "a,b,preference,rater",
        *(f"good-{n},poor-{n},{'ab'[n % 2]},ann" for n in range(EDITS)),
    )
    write(folder / "reply.txt", reply("good-1", 5))
    write(folder / "bad.txt", "no answer")
    write(
        folder / "prompt.txt",
        "Rate the edit. Answer with JSON only:",
        '{"quality": <integer from 1 to 5>}',
    )
    write(folder / "none.jsonl", "")
    tree = folder / "tree" / "bagel" / "fullset" / "color_alter" / "en"
    tree.mkdir(parents=True)
    _picture(tree / "k1.png", 1)
    _picture(tree / "k1_SRCIMG.png", 2)
    fact = {
        "key": "k1",
        "task_type": "color_alter",
        "instruction_language": "en",
        "instruction": "make it red",
    }
    write(folder / "gedit.jsonl", json.dumps(fact))


def reply(item: str, score: int) -> str:
    why = "The change that was asked for is there and everything of it can be seen plainly in the edited picture now."
    factors = {
        key: {"score": score, "justification": why}
        for key in ("alignment", "completeness", "plausibility")
    }
    return json.dumps({"image_id": item, "online_factor_results": factors})


def write(path: Path, *lines: str) -> None:
    path.write_text("\n".join(lines) + "\n", "utf-8")


def _picture(path: Path, seed: int, edit: int = 0) -> None:
    """A gradient with boxes; an edit recolours one of them."""
    image = Image.linear_gradient("L").resize((96, 96)).convert("RGB")
    for n in range(6):
        left = (seed * 17 + n * 29) % 70
        top = (seed * 23 + n * 37) % 70
        image.paste(
            ((seed * 40 + n * 60) % 256, n * 40, 255 - n * 40),
            (left, top, left + 20, top + 16),
        )
    if edit:
        image.paste((40 * edit, 220, 60), (30, 30, 50, 48))
    image.save(path)


COMMANDS = {
    "audit": "audit edits.jsonl",
    "judge": "judge --input in-1.png --edited good-1.png --instruction x --id good-1 --rubric fidelity "
    "--judge replay:first.jsonl",
    "judge, failed": "judge --edited good-1.png --input in-1.png --rubric online --judge replay:none.jsonl",
    "judge, usage": "judge",
    "run, dry": "run edits.jsonl --rubric fidelity --judge openai/gpt-4.1 --dry-run",
    "run": "run edits.jsonl --rubric fidelity --judge replay:first.jsonl --name first",
    "run, second": "run edits.jsonl --rubric fidelity --judge replay:second.jsonl --name second",
    "run, usage": "run edits.jsonl --rubric nothing --judge replay:first.jsonl",
    "run, absent": "run absent.jsonl --rubric fidelity --judge replay:first.jsonl",
    "report": "report second --by edit_type",
    "report, width": "report second --width 0.2",
    "report, csv": "report second -o report.csv",
    "report, unknown": "report nothing",
    "compare": "compare second",
    "compare, named": "compare second --a good --b poor --by model",
    "agree": "agree second --ratings ratings.csv",
    "agree, scores": "agree --scores scores.csv --ratings ratings.csv --manifest edits.jsonl",
    "agree, preferences": "agree second --preferences preferences.csv",
    "agree, calibrate": "agree second --ratings ratings.csv --calibrate --estimate",
    "gate, passed": "gate second --min alignment=1",
    "gate, failed": "gate second --min alignment=7",
    "gate, failures": "gate first --min alignment=1",
    "gate, baseline": "gate second --baseline second --max-drop 1",
    "drift": "drift second --against first",
    "parse": "parse --rubric fidelity reply.txt",
    "parse, refused": "parse --rubric fidelity bad.txt",
    "rubric list": "rubric list",
    "rubric show": "rubric show fidelity",
    "rubric show, set": "rubric show online",
    "rubric show, prompt": "rubric show fidelity --prompt",
    "rubric import": "rubric import prompt.txt -o mine.yaml --image input --image edited --text instruction",
    "rubric import, asks": "rubric import bad.txt -o other.yaml",
    "rubric check": "rubric check mine.yaml",
    "ratings import": "ratings import ratings.csv",
    "ratings export": "ratings export exported.csv",
    "export, parquet": "export second -o parquet --format parquet --replies",
    "export, jsonl": "export second -o jsonl --format jsonl --replies",
    "export, csv": "export second -o csv --format csv",
    "export, where": "export second -o where --where alignment>=3",
    "import-run": "import-run jsonl --store other.db",
    "runs list": "runs list",
    "runs show": "runs show second",
    "runs again": "runs again second",
    "runs rm": "runs rm first --yes",
    "manifest": "manifest tree --layout gedit --instructions gedit.jsonl -o gedit-edits.jsonl",
    "probe, dry": "probe --photos 1 --rubric lighting --dry-run --judge openai/gpt-4.1",
    "probe": "probe --photos 1 --rubric fidelity --judge replay:none.jsonl",
    "doctor": "doctor",
    "completion": "completion bash",
}  # fmt: skip


def call(words: str) -> dict[str, Any]:
    """The exit code of a verb with --json, and the keys of its document."""
    out = io.StringIO()
    err = io.StringIO()
    code: object = 0
    with (
        unittest.mock.patch.object(
            sys, "argv", ["editjudge", *words.split(), "--json"]
        ),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
    return {"exit": code, "keys": sorted(paths(json.loads(out.getvalue() or "{}")))}


def files(folder: Path) -> dict[str, list[str]]:
    """What exports wrote, and the columns of each file."""
    found = {}
    for path in sorted(
        p
        for name in ("parquet", "jsonl", "csv", "where")
        for p in (folder / name).rglob("*")
    ):
        if path.suffix == ".parquet":
            found[str(path.parent.relative_to(folder))] = pyarrow.parquet.read_schema(
                path
            ).names
        elif path.suffix == ".csv":
            found[str(path.relative_to(folder))] = _head(path)
        elif path.suffix in (".jsonl", ".json"):
            lines = (
                path.read_text("utf-8").splitlines()
                if path.suffix == ".jsonl"
                else [path.read_text("utf-8")]
            )
            found[str(path.relative_to(folder))] = sorted(
                {key for line in lines for key in json.loads(line)}
            )
        elif path.is_file():
            found[str(path.relative_to(folder))] = []
    found["report.csv"] = _head(folder / "report.csv")
    return found


def _head(path: Path) -> list[str]:
    return next(csv.reader(path.read_text("utf-8").splitlines()))


def http(folder: Path) -> dict[str, Any]:
    """Routes with their methods, and the keys of what the API answers."""
    from starlette.testclient import TestClient

    from editjudge.store.store import Store
    from editjudge.web.app import create
    from editjudge.web.site import Site

    picture = b64encode((folder / "in-1.png").read_bytes()).decode()
    edit = {
        "id": "1",
        "input": picture,
        "edited": picture,
        "instruction": "make it red",
    }
    with Store.open(folder / "web.db") as store:
        app = create(Site(store))
        routes: dict[str, list[str]] = {}
        for route in app.routes:  # one path may have a route for each method
            path = re.sub(r":\w+}", "}", getattr(route, "path", ""))
            routes[path] = sorted(
                {*routes.get(path, ()), *(getattr(route, "methods", None) or ())}
            )
        found: dict[str, Any] = {"routes": routes}
        with TestClient(app, base_url="http://127.0.0.1:8427") as client:
            for verb in ("judge", "reward"):
                answer = client.post(
                    f"/v1/{verb}", json={"edits": [edit], "rubrics": ["online"]}
                )
                found[verb] = {
                    "status": answer.status_code,
                    "keys": sorted(paths(answer.json(), closed=MEASURED)),
                }
            found["refused"] = sorted(
                paths(client.post("/v1/reward", json={"edits": 1}).json())
            )
            found["healthz"] = sorted(paths(client.get("/healthz").json()))
            described = client.get("/openapi.json").json()
            found["openapi"] = sorted(
                f"{path} {method}"
                for path, of in described["paths"].items()
                for method in of
            )
    return found


def interface(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All of it, of a sample in the folder."""
    for name in [
        n
        for n in os.environ
        if n.startswith("EDITJUDGE_") or n.endswith(("_API_KEY", "_BASE_URL"))
    ]:
        patch.delenv(name)
    patch.chdir(folder)
    sample(folder)
    answers = {name: call(words) for name, words in COMMANDS.items()}
    return {
        "names": names(),
        "verbs": verbs(),
        "answers": answers,
        "files": files(folder),
        "http": http(folder),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        json.dump(interface(Path(place), patch), sys.stdout, indent=1, sort_keys=True)
    print()
