"""Collect today's answers of the command line, the HTTP service and the Python functions over the inputs of `made`.

Only what users can call is called: the verbs, the addresses of `serve`, and the public names of `editjudge`.

What must vary from one taking to the next is replaced before anything is compared, and nothing else is:

| what | where | becomes |
|---|---|---|
| dates | `created`, `updated`, `at` | `"<date>"` |
| durations | `seconds` | `"<seconds>"` |
| the folder of the inputs | any text that holds its path | `<folder>` |
| version of editjudge | `version`, `exported_by` | `"<version>"` |
| digests of exported files, which hold dates | `files` of an export's `run.json` | `"<digest>"` |
| digest of a run's settings, which hold the manifest's path | `spec_hash` | `"<digest>"` |
| random numbers that mark a reply | `mark` of an export's `replies.jsonl` | `"<mark>"` |
| key of a task whose picture cannot be read: it holds the path | `key`, with status `bad_image` | `"<key>"` |
| address of a server on this machine | any text that holds it | `<server>` |

The inputs are the same bytes everywhere, so keys and digests are. Figures of `pixels.json` and of the judge `measured`
in `service.json` and `python.json` come from floating-point code of NumPy, OpenCV and ONNX Runtime.

What is long is folded, which loses no strictness: a list of rows is kept as some of its rows and the digest of all,
a text of more than 400 characters in a request to a judge as its digest."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import editjudge as ej
from editjudge.cli import app

from . import made

Answers = dict[str, Any]
"""By the name of a question, what was answered."""
DATES = ("created", "updated", "at")
VERSIONS = ("version", "exported_by")
LONG = 400
KEPT_ROWS = 9


# --- normalising and folding ----------------------------------------------------------------------------------


def normal(value: Any, folder: Path, name: str = "") -> Any:
    """Replace what the table above lists."""
    if isinstance(value, dict):
        found = {key: normal(one, folder, key) for key, one in value.items()}
        return (
            found | {"key": "<key>"}
            if "key" in found and found.get("status") == "bad_image"
            else found
        )
    if isinstance(value, list):
        return [normal(one, folder, name) for one in value]
    if isinstance(value, int) and name == "mark":
        return "<mark>"
    if isinstance(value, float) and name in DATES:
        return "<date>"
    if isinstance(value, float) and name == "seconds":
        return "<seconds>"
    if isinstance(value, str) and name in VERSIONS:
        return "<version>"
    if isinstance(value, str):
        if name == "spec_hash":
            return "<digest>"
        value = value.replace(str(folder.resolve()), "<folder>")
        return re.sub(r"http://127\.0\.0\.1:\d+", "<server>", value)
    return value


def compact(value: Any) -> str:
    """Return JSON in one line, with keys in the order in which they came, and floats to their last digit."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's JSON."""
    return hashlib.sha256(compact(value).encode()).hexdigest()


def folded(rows: Sequence[Any], kept: int = KEPT_ROWS) -> Any:
    """Keep some rows of a long list, spread over it, and the digest of all."""
    if len(rows) <= kept * 2:
        return list(rows)
    step = len(rows) // kept
    return {
        "rows": len(rows),
        "sha256": digest(rows),
        f"every {step}th": list(rows[::step]),
    }


def shortened(value: Any) -> Any:
    """Replace long texts by their length and digest."""
    if isinstance(value, dict):
        return {key: shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shortened(one) for one in value]
    if isinstance(value, str) and len(value) > LONG:
        return f"<{len(value)} characters, sha256 {hashlib.sha256(value.encode()).hexdigest()}>"
    return value


# --- the command line -----------------------------------------------------------------------------------------


class Folder:
    """A folder with all inputs, its store, and the command line inside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        made.write_all(path)

    def call(self, *words: object) -> tuple[int, str]:
        """Call a verb in the folder; return how it exited and what it printed."""
        environment = {"EDITJUDGE_STORE": "store.db", "COLUMNS": "100"}
        with chdir(self.path):
            done = CliRunner(env=environment).invoke(app, [str(word) for word in words])
        failure = done.exception
        if failure is not None and not isinstance(failure, SystemExit):
            return 1, f"{failure}\n"
        return done.exit_code, done.stdout

    def ask(self, *words: object) -> Any:
        """Call a verb with --json; return its document, and how it exited where that is not 0."""
        code, out = self.call(*words, "--json")
        try:
            document = json.loads(out)
        except ValueError:
            return {"exit": code, "text": normal(out, self.path)}
        pretty = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
        assert out == pretty, f"{words}: the layout of the JSON has changed"
        document = normal(document, self.path)
        return {"exit": code, "document": document} if code else document

    def print(self, *words: object) -> list[str]:
        """Call a verb that prints a table or a text; return its lines."""
        code, out = self.call(*words)
        return [f"exit {code}", *str(normal(out, self.path)).splitlines()]

    def run(self, name: str, manifest: str, *words: object) -> Any:
        """Judge a manifest; return the document."""
        return self.ask(
            "run",
            manifest,
            "--name",
            name,
            "--max-failures",
            1,
            "--concurrency",
            1,
            *words,
        )

    def rows(self, name: str) -> list[Any]:
        """Read JSON lines of the folder."""
        return [
            json.loads(line)
            for line in self.path.joinpath(name).read_text("utf-8").splitlines()
        ]

    def exported(self, run: str) -> Answers:
        """Export a run as JSON lines and as CSV; return every file of both."""
        found: Answers = {}
        for form, words in (("jsonl", ["--replies"]), ("csv", [])):
            target = f"exported-{run}-{form}"
            found[form] = self.ask(
                "export", run, "-o", target, "--format", form, *words
            )
            for path in sorted(self.path.joinpath(target).iterdir()):
                found[f"{form}/{path.name}"] = self._file(path)
        return found

    def _file(self, path: Path) -> Any:
        text = path.read_bytes().decode()
        if path.suffix == ".json":
            document = normal(json.loads(text), self.path)
            document["files"] = dict.fromkeys(document["files"], "<digest>")
            document["rubrics"] = digest(document["rubrics"])
            # `run --json` has it in full
            document["summary"] = digest(document["summary"])
            return document
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in text.splitlines()]
            assert text == "".join(
                json.dumps(row, ensure_ascii=False) + "\n" for row in rows
            ), path
            return folded([normal(row, self.path) for row in rows])
        return folded(normal(text, self.path).splitlines(keepends=True))


# --- runs of recorded replies ---------------------------------------------------------------------------------


def replayed(folder: Folder) -> dict[str, Answers]:
    """Judge by recorded replies, and ask every verb about it."""
    online = ("--rubric", "online", "--repeats", made.REPEATS)
    first, second = (
        ("--judge", "replay:first.jsonl"),
        ("--judge", "replay:second.jsonl"),
    )
    runs = {
        "single": folder.run("single", "edits.jsonl", *online, *first),
        "panel": folder.run("panel", "edits.jsonl", *online, *first, *second),
        "later": folder.run(
            "later", "edits.jsonl", *online, "--judge", "replay:later.jsonl"
        ),
        "strict": folder.run(
            "strict", "edits.jsonl", "--rubric", "quality", "--strict", *first
        ),
        "garden": folder.run(
            "garden",
            "edits.jsonl",
            "--rubric",
            "garden.yaml",
            "--repeats",
            made.REPEATS,
            "--judge",
            "replay:garden.jsonl",
        ),
        "resumed": folder.run("single", "edits.jsonl", *online, *first),
        "filtered": folder.run(
            "filtered", "edits.jsonl", "--where", "single:overall>=5", *second
        ),
        "some": folder.run(
            "some", "edits.jsonl", "--model", "cedar", "--limit", 3, *second
        ),
    }
    reports = {
        "single": _slim(folder.ask("report", "single", "--width", 0.5)),
        "panel": _slim(folder.ask("report", "panel")),
        "garden": _slim(folder.ask("report", "garden", "--by", "season")),
        "later, guaranteed": _slim(folder.ask("report", "later", "--guaranteed")),
        "single as CSV": folded(folder.print("report", "single", "--format", "csv")),
        "garden as Markdown": folder.print("report", "garden", "--format", "md"),
        "garden as LaTeX": folder.print("report", "garden", "--format", "latex"),
    }
    return {
        "runs": runs,
        "reports": reports,
        "compared": compared(folder),
        "gated": gated(folder),
        "agreed": agreed(folder),
        "exports": {run: folder.exported(run) for run in ("single", "panel", "garden")},
        "python": python(folder),
    }


def _slim(report: Any) -> Any:
    """Fold the slices of a report, and its comparisons, which `compare --json` has in full."""
    slices = {name: folded(cells) for name, cells in report["slices"].items()}
    return report | {"slices": slices, "comparisons": digest(report["comparisons"])}


def compared(folder: Folder) -> Answers:
    """Compare models, judges and runs."""
    return {
        "models": folder.ask("compare", "single"),
        "two models, guaranteed": folder.ask(
            "compare", "single", "--a", "alder", "--b", "cedar", "--guaranteed"
        ),
        "one factor": folder.ask(
            "compare", "single", "--a", "birch", "--b", "alder", "--factor", "alignment"
        ),
        "another primary": folder.ask(
            *(
                "compare",
                "single",
                "--a",
                "birch",
                "--b",
                "alder",
                "--primary",
                "seamlessness",
                "--primary",
                "quality",
            )
        ),
        "by a panel": folder.ask("compare", "panel", "--a", "birch", "--b", "alder"),
        "by one of a panel": folder.ask(
            *(
                "compare",
                "panel",
                "--a",
                "birch",
                "--b",
                "alder",
                "--judge",
                "replay:second.jsonl",
                "--factor",
                "overall",
            )
        ),
        "judges": folder.ask("compare", "panel", "--by", "judge"),
        "rubrics": folder.ask("compare", "single", "--by", "rubric"),
        "runs": folder.ask("compare", "single", "later"),
        "runs, guaranteed": folder.ask(
            "compare", "single", "later", "--guaranteed", "--factor", "overall"
        ),
        "set scores": folder.ask("compare", "garden", "--a", "birch", "--b", "alder"),
        "unknown model": folder.ask("compare", "single", "--a", "oak", "--b", "alder"),
        "drift": folder.ask("drift", "later", "--against", "single"),
        "drift of one run": folder.ask("drift", "single", "--against", "panel"),
    }


def gated(folder: Folder) -> Answers:
    """Gate runs by limits and by a baseline."""
    allow = ("--max-failures", 1)
    baseline = ("--baseline", "single", *allow)
    return {
        "passes": folder.ask(
            "gate", "single", "--min", "alignment=3", "--min", "overall=3.5", *allow
        ),
        "fails": folder.ask("gate", "single", "--min", "alignment=6.5", *allow),
        "unsure": folder.ask(
            "gate", "single", "--min", "quality=4.8", "--if-unsure", "fail", *allow
        ),
        "failures": folder.ask("gate", "single", "--min", "alignment=3"),
        "one model": folder.ask(
            "gate",
            "single",
            "--model",
            "alder",
            "--min",
            "overall=4",
            "--alpha",
            0.1,
            *allow,
        ),
        "one judge": folder.ask(
            "gate",
            "panel",
            "--judge",
            "replay:second.jsonl",
            "--min",
            "overall=4",
            *allow,
        ),
        "guaranteed": folder.ask(
            "gate", "panel", "--min", "overall=3", "--guaranteed", *allow
        ),
        "baseline": folder.ask("gate", "later", *baseline),
        "drop": folder.ask("gate", "later", *baseline, "--max-drop", 0.2),
        "drops": folder.ask(
            "gate",
            "later",
            *baseline,
            "--max-drop",
            "quality=0.5",
            "--max-drop",
            "alignment=0.1",
        ),
        "drops of two kinds": folder.ask(
            "gate", "later", *baseline, "--max-drop", 0.5, "--max-drop", "quality=0.1"
        ),
        "drop, guaranteed": folder.ask(
            "gate", "later", *baseline, "--max-drop", 0.5, "--guaranteed"
        ),
        "same answers": folder.ask(
            "gate",
            "panel",
            *baseline,
            "--judge",
            "replay:first.jsonl",
            "--max-drop",
            0.2,
        ),
        "set scores": folder.ask(
            "gate", "garden", "--min", "overall=5", "--max", "waste=4", *allow
        ),
    }


def agreed(folder: Folder) -> Answers:
    """Compare judges with people, from files and from the store."""
    names = ("--map-factor", "wish=alignment", "--map-factor", "look=quality")
    file = ("--ratings", "ratings.csv")
    return {
        "file": folder.ask(
            "agree", "single", *file, *names, "--calibrate", "--estimate"
        ),
        "scores": folder.ask(
            "agree", "--scores", "scores.csv", *file, "--manifest", "edits.jsonl"
        ),
        "scores with guessed": folder.ask(
            "agree", "--scores", "scores.csv", *file, "--with-guessed"
        ),
        "import": folder.ask("ratings", "import", "ratings.csv", "--run", "single"),
        "store": folder.ask("agree", "panel", "--map-factor", "wish=fidelity"),
        "set scores": folder.ask("agree", "garden", "--map-factor", "look=craft"),
        "preferences of a run": folder.ask(
            "agree", "single", "--preferences", "preferences.csv"
        ),
        "preferences of a file": folder.ask(
            "agree", "--preferences", "preferences.csv"
        ),
        "filter": folder.ask("export", "garden", "-o", "kept", "--where", "overall>=6"),
        "kept": folder.path.joinpath("kept", "kept.jsonl")
        .read_text("utf-8")
        .splitlines(),
    }


def python(folder: Folder) -> Answers:
    """Ask the Python functions what the verbs were asked."""
    with chdir(folder.path):
        run = ej.open("single", store="store.db")
        later = ej.open("later", store="store.db")
        rows = list(run.judgements())
        table = run.table()
        compared_runs = later.compare(run)
        found: Answers = {
            "repr": repr(run),
            "judgements": digest([normal(row, folder.path) for row in rows]),
            "table": table.to_dict("records") if hasattr(table, "to_dict") else table,
            "gate": _document(run.gate({"alignment": 3}, max_failures=1)),
            "agree": digest(
                _document(
                    run.agree(
                        "ratings.csv",
                        map_factor={"wish": "alignment", "look": "quality"},
                    )
                )
            ),
            "compare": digest(_document(run.compare("birch", "alder"))),
            "compare runs": digest(_document(compared_runs)),
        }
        verdicts = ej.judge(
            input="large/before.png",
            edited="large/recoloured.png",
            instruction="Make the red disc blue.",
            judge="measured",
            rubrics=["online", "lighting"],
        )
        found["judge"] = {
            name: {
                "key": verdict.key,
                "status": verdict.status,
                "scores": verdict.scores,
                "abstained": verdict.abstained,
                "justifications": verdict.justifications,
            }
            for name, verdict in verdicts.items()
        }
        good = made.reply("fidelity", dict.fromkeys(made.FACTORS["fidelity"], 4), "x")
        rubric = ej.load_rubric("fidelity")
        replies = {
            str(kind): "".join(made.spoiled(good, kind)[:1]) for kind in range(9)
        }
        found["check"] = {
            kind: repr(ej.check(rubric, text)) for kind, text in replies.items()
        }
    return normal(json.loads(json.dumps(found, default=dict)), folder.path)  # type: ignore[no-any-return]


def _document(result: Any) -> Any:
    return json.loads(json.dumps(dict(result), default=dict))


# --- pairs ----------------------------------------------------------------------------------------------------


def paired(folder: Folder) -> dict[str, Answers]:
    """Ask which of two edits is better: with flips, ties and failed orders."""
    found: Answers = {
        "made": folder.ask(
            "pairs", "edits.jsonl", "-o", "pairs.jsonl", "--sample", 30, "--seed", 3
        ),
        "pairs": folder.rows("pairs.jsonl"),
    }
    pairs = folder.rows("pairs.jsonl")
    made.write_pair_replies(folder.path, "duel.jsonl", pairs)
    made.write_pair_replies(folder.path, "again.jsonl", pairs, repeats=3)
    people = [
        (
            pair["id"],
            rater,
            ("A", "B", "tie", "both_bad", "A")[made.drawn(5, rater, pair["id"])],
        )
        for pair in pairs
        for rater in made.RATERS
    ]
    made.write_table(
        folder.path / "chosen.csv", ("item", "rater", "preference"), people
    )
    rubric = ("--rubric", "preference")
    twice = ("--judge", "replay:duel.jsonl", "--judge", "replay:again.jsonl")
    found |= {
        "duel": folder.run(
            "duel", "pairs.jsonl", *rubric, "--judge", "replay:duel.jsonl"
        ),
        "given": folder.run(
            "given",
            "pairs.jsonl",
            *rubric,
            "--judge",
            "replay:duel.jsonl",
            "--order",
            "given",
        ),
        "repeated": folder.run(
            "repeated", "pairs.jsonl", *rubric, *twice, "--repeats", 3
        ),
    }
    found |= {
        f"report of {run}": folder.ask("report", run)
        for run in ("duel", "given", "repeated")
    }
    found |= {
        "report as Markdown": folder.print("report", "duel", "--format", "md"),
        "agree": folder.ask("agree", "duel", "--preferences", "chosen.csv"),
        "agree of two": folder.ask("agree", "repeated", "--preferences", "chosen.csv"),
        "next": folder.ask(
            "pairs", "edits.jsonl", "-o", "next.jsonl", "--next", "duel", "--sample", 6
        ),
        "next pairs": folder.rows("next.jsonl"),
        "refused": folder.ask("compare", "duel"),
        "export": folder.exported("duel"),
    }
    return {"pairs": found}


# --- what is computed from pixels -----------------------------------------------------------------------------


def looked_at(folder: Folder) -> dict[str, Answers]:
    """Judge pictures by `measured` and `metrics`."""
    measured = ("--judge", "measured")
    found: Answers = {
        "measured": folder.run(
            "measured",
            "scenes.jsonl",
            *measured,
            "--rubric",
            "online",
            "--rubric",
            "lighting",
        ),
        "metrics": folder.run("metrics", "scenes.jsonl", "--judge", "metrics"),
        "measured pairs": folder.run(
            "looked", "scene_pairs.jsonl", *measured, "--rubric", "preference"
        ),
        "best of": folder.run(
            "best", "candidates.jsonl", *measured, "--best-of", "all"
        ),
        "audit": folder.ask("audit", "scenes.jsonl"),
    }
    found |= {
        f"export of {run}": _in_full(folder, run)
        for run in ("measured", "metrics", "looked")
    }
    found |= {
        "report of measured": _slim(folder.ask("report", "measured")),
        "report of metrics": _slim(folder.ask("report", "metrics")),
        "compare": folder.ask("compare", "measured"),
        "gate": folder.ask("gate", "metrics", "--max", "l1=0.5", "--max-failures", 1),
    }
    return {"pixels": found}


def _in_full(folder: Folder, run: str) -> Any:
    target = f"full-{run}"
    folder.ask("export", run, "-o", target)
    return [
        normal(row, folder.path) for row in folder.rows(f"{target}/judgements.jsonl")
    ]


# --- questions and keys ---------------------------------------------------------------------------------------

RUBRICS = (
    "preservation",
    "quality",
    "fidelity",
    "reference",
    "lighting",
    "compliance",
    "preference",
)
COMPUTED = ("metrics", "metrics_truth", "metrics_clip")
SETS = ("online", "offline")
LAYOUTS = ("images-first", "published")
SAID = "Seven, all in all."
"""What the server that stands in for a provider answers, whatever it is asked."""


def questions(folder: Folder) -> dict[str, Answers]:
    """Show each built-in question in each layout, and what is sent to each kind of provider, with its key."""
    shown: Answers = {"list": folder.ask("rubric", "list")}
    for layout in LAYOUTS:
        for name in RUBRICS:
            code, text = folder.call(
                "rubric", "show", name, "--prompt", "--layout", layout
            )
            assert code == 0, text
            lines = text.splitlines(keepends=True)
            shown[f"{name}, {layout}"] = (
                lines if layout == LAYOUTS[0] else digest(lines)
            )
            shown[f"{name}, {layout}, parts"] = digest(
                folder.ask("rubric", "show", name, "--prompt", "--layout", layout)
            )
        for name in (*SETS, "garden.yaml"):
            shown[f"{name}, {layout}"] = digest(
                folder.ask("rubric", "show", name, "--prompt", "--layout", layout)
            )
    for name in (*RUBRICS, *COMPUTED, *SETS, "garden.yaml"):
        shown[f"contract of {name}"] = folder.ask("rubric", "show", name)
    return {"questions": shown, "keys": keys(folder)}


def keys(folder: Folder) -> Answers:
    """Ask every built-in question of one edit and one pair, under several options; return keys and requests."""
    picture = "large/before.png"
    edit = {
        "id": "one",
        "input": picture,
        "edited": "large/recoloured.png",
        "ground_truth": "large/relit.png",
        "instruction": "Make the red disc blue.",
        "referring_expression": "the disc on the left",
        "model": "elm",
    }
    wide = made.png(made.noise(16, 2400, "wide"))
    folder.path.joinpath("large", "wide.png").write_bytes(wide)
    made.write_rows(folder.path / "one.jsonl", [edit])
    made.write_rows(
        folder.path / "wide.jsonl",
        [edit | {"input": "large/wide.png", "edited": "large/wide.png"}],
    )
    singles = [
        word
        for name in ("online", "reference", "lighting", "compliance")
        for word in ("--rubric", name)
    ]
    fidelity = ("--rubric", "fidelity")
    openai = ("--judge", "openai/gpt-4.1", "--retries-invalid", 0)
    runs: dict[str, tuple[object, ...]] = {
        "sampling": (
            "one.jsonl",
            *openai,
            *fidelity,
            "--temperature",
            0,
            "--seed",
            7,
            "--max-tokens",
            900,
        ),
        "no schema": ("one.jsonl", *openai, *fidelity, "--no-schema"),
        "strict": ("one.jsonl", *openai, *fidelity, "--strict"),
        "further": (
            "one.jsonl",
            *openai,
            *fidelity,
            "-J",
            "top_p=0.5",
            "--reasoning-effort",
            "low",
        ),
        "repeats": (
            "one.jsonl",
            *openai,
            "--rubric",
            "lighting",
            "--repeats",
            3,
            "--seed",
            1,
        ),
        "fused": ("one.jsonl", *openai, "--rubric", "online", "--fuse"),
        "fused, published": (
            "one.jsonl",
            *openai,
            "--rubric",
            "online",
            "--fuse",
            "--layout",
            "published",
        ),
        "a set of one's own": ("one.jsonl", *openai, "--rubric", "garden.yaml"),
        "prepared": ("wide.jsonl", *openai, "--rubric", "lighting"),
    }
    for judge in (
        "openai/gpt-4.1",
        "anthropic/claude-sonnet-4-5",
        "google/gemini-2.5-pro",
    ):
        for layout in LAYOUTS:
            words = ("--judge", judge, "--layout", layout, "--retries-invalid", 1)
            runs[f"{judge}, {layout}"] = ("one.jsonl", *singles, *words)
        runs[f"{judge}, pair"] = (
            "scene_pairs.jsonl",
            "--judge",
            judge,
            "--rubric",
            "preference",
            "--retries-invalid",
            0,
        )
    found: Answers = {}
    # An address that is not the provider's own is part of a key, so that keys are those of a run that asks nothing.
    with environment(dict.fromkeys(API_KEYS, "none")):
        for name, (manifest, *more) in runs.items():
            found[name] = {
                "tasks": _tasks(folder, name, str(manifest), *more, "--budget", 0)
            }
        moved = ("--base-url", "http://127.0.0.1:9/v1", "--budget", 0)
        found["moved"] = {
            "tasks": _tasks(folder, "moved", "one.jsonl", *openai, *fidelity, *moved)
        }
    # a picture that is made smaller is encoded by Pillow, in the bytes of its version
    del runs["prepared"]
    with provider() as asked:
        for name, (manifest, *more) in runs.items():
            asked.clear()
            told = folder.run(f"requests of {name}", str(manifest), *more)
            found[name]["statuses"] = told["statuses"]
            found[name]["requests"] = folded(
                sorted((shortened(one) for one in asked), key=compact), kept=3
            )
    for judge in ("measured", "replay:first.jsonl"):
        found[judge] = {
            "tasks": _tasks(folder, judge, "one.jsonl", *singles, "--judge", judge)
        }
    found["metrics"] = {
        "tasks": _tasks(folder, "metrics", "one.jsonl", "--judge", "metrics")
    }
    return found


API_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


def _tasks(folder: Folder, name: str, manifest: str, *words: object) -> list[Any]:
    """Plan a run, and judge it where it costs nothing; return its tasks with their keys."""
    folder.run(f"keys of {name}", manifest, *words)
    target = "keys-" + re.sub(r"\W", "-", name)
    folder.ask("export", f"keys of {name}", "-o", target)
    columns = (
        "item",
        "rubric",
        "variant",
        "order",
        "repeat",
        "status",
        "prepared",
        "schema_mode",
        "key",
    )
    rows = folder.rows(f"{target}/judgements.jsonl")
    assert rows, name
    return [{column: row[column] for column in columns} for row in rows]


@contextmanager
def provider() -> Iterator[list[Any]]:
    """Stand in for every provider on this machine; yield what it is asked."""
    asked: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append({"path": self.path, "body": json.loads(body)})
            answer = json.dumps(_said(self.path)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        addresses = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "ANTHROPIC_BASE_URL": url,
            "GOOGLE_GEMINI_BASE_URL": url,
        }
        try:
            with environment(addresses | dict.fromkeys(API_KEYS, "none")):
                yield asked
        finally:
            server.shutdown()
            thread.join()


def _said(path: str) -> Any:
    if path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": SAID}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": choices,
            "usage": usage,
        }
    if path.endswith("/messages"):
        content = [{"type": "text", "text": SAID}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        about = {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "stop_reason": "end_turn",
        }
        return about | {"content": content, "usage": usage}
    candidate = {
        "content": {"role": "model", "parts": [{"text": SAID}]},
        "finishReason": "STOP",
        "index": 0,
    }
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- the service ----------------------------------------------------------------------------------------------


def served(folder: Folder) -> dict[str, Answers]:
    """Ask a server for rewards and judgements."""
    rows = []
    for number in range(6):
        name = f"r{number}"
        for rubric, factors in made.FACTORS.items():
            for repeat in range(3):
                scores = {
                    factor: made.score("served", "alder", number, factor, repeat)
                    for factor in factors
                }
                said = made.spoiled(
                    made.reply(rubric, scores, name), number if number in (3, 5) else 9
                )
                rows += [
                    {"item": name, "rubric": rubric, "repeat": repeat, "reply": text}
                    for text in said
                ]
    made.write_rows(folder.path / "served.jsonl", rows)
    judge = (
        "--judge",
        "replay:served.jsonl",
        "--allow-judge",
        "measured",
        "--allow-judge",
        "replay:first.jsonl",
    )
    allowed = [
        word for name in ("lighting", "compliance") for word in ("--allow-rubric", name)
    ]
    found: Answers = {}
    with server(folder, "served.db", *judge, *allowed) as post:
        _rewards(folder, found, post)
    with server(
        *(
            folder,
            "weighed.db",
            "--judge",
            "replay:served.jsonl",
            "--formula",
            "geometric_mean",
        ),
        *(
            "--weight",
            "alignment=2",
            "--weight",
            "seamlessness=1",
            "--degenerate",
            "worst",
        ),
    ) as post:
        found["weighed by the server"] = post("reward", {"edits": edits_sent(folder)})
    return {"service": found}


Post = Callable[[str, Any], Any]


def _rewards(folder: Folder, found: Answers, post: Post) -> None:
    edits = edits_sent(folder)
    found["reward"] = post("reward", {"edits": edits})
    found["reward again"] = post("reward", {"edits": edits})
    for formula in ("mean", "min", "product", "geometric_mean"):
        found[f"reward by {formula}"] = post(
            "reward", {"edits": edits, "formula": formula}
        )
    weights = {"alignment": 2, "fidelity.completeness": 0.5, "seamlessness": 1}
    choices: dict[str, dict[str, Any]] = {
        "weights": {"weights": weights},
        "weights, product": {"weights": weights, "formula": "product"},
        "one factor": {"weights": {"alignment": 1}},
        "one rubric": {"rubrics": ["quality"]},
        "samples": {"samples": 3, "rubrics": ["fidelity"]},
        "ranks": {"ranking": "scores"},
        "mixture": {
            "judges": {"replay:served.jsonl": 3, "measured": 1},
            "rubrics": ["preservation"],
        },
        "strict": {"strict": True},
        "unknown factor": {"weights": {"charm": 1}},
        "unknown judge": {"judge": "oracle"},
    }
    for name, options in choices.items():
        found[name] = post("reward", {"edits": edits, **options})
    looked = looked_at_by_the_server(folder)
    measured = {"judge": "measured"}
    found["measured"] = post("reward", {"edits": looked, **measured})
    found["measured, its rubrics"] = post(
        "reward", {"edits": looked, **measured, "rubrics": ["preservation", "quality"]}
    )
    panel = {
        **measured,
        "judge_for": {"fidelity": "replay:served.jsonl"},
        "score": "fidelity * (preservation + quality) / 2",
    }
    found["a judge for each rubric"] = post("reward", {"edits": edits, **panel})
    found["measured, lighting"] = post(
        "reward", {"edits": looked, **measured, "rubrics": ["lighting"]}
    )
    alike = [
        edit | {"instruction": "Make the red disc blue.", "group": "g"}
        for edit in looked
    ]
    found["measured, pairs"] = post(
        "reward", {"edits": alike, **measured, "ranking": "pairs"}
    )
    found["judge"] = post("judge", {"edits": edits[:4]})
    found["judge of one"] = post(
        "judge", {**looked[0], **measured, "rubrics": ["online", "lighting"]}
    )
    found["judge of nothing"] = post("judge", {**edits[2], "edited": None})


def edits_sent(folder: Folder) -> list[dict[str, Any]]:
    """Return edits to send: two groups, one without an output, one that is refused and one that cannot be read."""
    before = _sent(folder, "before")
    outputs = {
        "r0": _sent(folder, "recoloured"),
        "r1": _sent(folder, "removed"),
        "r2": _sent(folder, "relit"),
        "r3": _sent(folder, "spoilt"),
        "r4": None,
        "r5": _sent(folder, "spoilt"),
        "r6": base64.b64encode(b"not a picture").decode(),
        "r7": _sent(folder, "flat"),
    }
    sent = []
    for number, (name, output) in enumerate(outputs.items()):
        words = {
            "instruction": f"Tend to bed {number}.",
            "group": f"g{number // 4}",
            "metadata": {"step": "1"},
        }
        sent.append({"id": name, "input": before, "edited": output, **words})
    return sent


def looked_at_by_the_server(folder: Folder) -> list[dict[str, Any]]:
    """Return the edits of one scene to send."""
    before = _sent(folder, "before")
    return [
        {
            "id": name,
            "input": before,
            "edited": _sent(folder, name),
            "instruction": words,
        }
        for name, words in made.INSTRUCTIONS.items()
    ]


def _sent(folder: Folder, name: str) -> str:
    return base64.b64encode(
        folder.path.joinpath("large", f"{name}.png").read_bytes()
    ).decode()


@contextmanager
def server(folder: Folder, store: str, *words: object) -> Iterator[Post]:
    """Serve on this machine; yield how to post to it."""
    command = [
        sys.executable,
        "-m",
        "editjudge",
        "serve",
        "--create",
        "--store",
        store,
        "--port",
        "0",
        "--json",
    ]
    process = subprocess.Popen(
        [*command, "--drain", "1", *map(str, words)],
        cwd=folder.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [next(process.stdout)]
        while lines[-1] != "}\n":
            lines.append(next(process.stdout))
        url = json.loads("".join(lines))["url"]

        def post(what: str, body: Any) -> Any:
            data = json.dumps(body).encode()
            request = urllib.request.Request(  # noqa: S310
                f"{url}v1/{what}", data, {"content-type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
                    status, text = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read()
            return {"status": status, "answer": normal(json.loads(text), folder.path)}

        _wait_for(process, f"{url}healthz")
        yield post
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _wait_for(process: subprocess.Popen[str], url: str) -> None:
    """Wait until a server answers: it prints its address before it listens there."""
    while process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=60).close()  # noqa: S310
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(process.communicate()[1])


PARTS: Mapping[str, Callable[[Folder], dict[str, Answers]]] = {
    "replayed": replayed,
    "paired": paired,
    "looked_at": looked_at,
    "questions": questions,
    "served": served,
}
"""What is asked, each in a folder of its own; each gives one golden file or several."""
