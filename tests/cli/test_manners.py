"""How the command line behaves towards whoever types: progress, help, completion, mistakes, and what is left behind."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import pty
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from editjudge.cli import VERBS, app
from editjudge.errors import UsageError
from editjudge.running.job import Job
from tests.faults import check_error, raises
from tests.running.made import COMMAND, SPECS, edits, environment, stub
from tests.stub.server import Behaviour

from .stores import Call, Spec, call, made

__all__ = ["call"]

OPENAI = SPECS["openai"]
ESCAPE = "\x1b"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one to stand in, with no key and no setting around."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    for name in [
        name
        for name in os.environ
        if name.startswith("EDITJUDGE_") or name.endswith("_API_KEY")
    ]:
        monkeypatch.delenv(name)
    return place


# --- help -----------------------------------------------------------------------------------------------------


def verbs(
    command: click.Command = app, *path: str
) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by the words that call it."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner
        yield from verbs(inner, *path, name)


EVERY = pytest.mark.parametrize(
    ("words", "verb"), [pytest.param(w, v, id=w) for w, v in verbs()]
)


@EVERY
def test_help_has_a_purpose_an_example_and_a_word_on_every_option(
    words: str, verb: click.Command
) -> None:
    purpose = (verb.help or "").partition("\n\n")[0]
    assert purpose.endswith((".", "?"))
    assert [
        o.name for o in verb.params if isinstance(o, click.Option) and not o.help
    ] == []
    assert "--json" in {name for option in verb.params for name in option.opts}


@pytest.mark.parametrize("group", ["runs", "rubric", "ratings"])
def test_no_line_of_a_list_of_verbs_is_cut(
    group: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in call(group, "--help").out.partition("Commands:")[2]


@EVERY
def test_a_range_in_the_help_has_its_bounds(words: str, verb: click.Command) -> None:
    assert "None" not in verb.get_help(click.Context(verb, info_name=words))


@EVERY
def test_the_example_of_a_verb_can_be_typed(
    words: str, verb: click.Command, folder: Path
) -> None:
    example = re.search(
        r"^\s*Example: (?:eval \"\$\()?(editjudge .*?)(?:\)\")?$",
        verb.epilog or "",
        re.M,
    )
    assert example
    (folder / "out").mkdir()
    _, *typed = shlex.split(example[1])
    assert typed[: len(words.split())] == words.split()
    verb.make_context(words, typed[len(words.split()) :])


def test_nothing_typed_shows_the_three_ways_to_begin(call: Call, folder: Path) -> None:
    done = call()
    assert done.code == 0 and "set: " not in done.out
    for way in (
        "editjudge judge --input a.png",
        "OPENAI_API_KEY=",
        "--base-url http://127.0.0.1:8000/v1",
    ):
        assert way in done.out
    with environment({"GEMINI_API_KEY": "secret-canary"}):
        result = call().out
    assert "set: GEMINI_API_KEY" in result and "canary" not in result


def test_a_missing_key_names_its_variable_and_what_works_without(
    call: Call, folder: Path
) -> None:
    done = call("judge", "--edited", "b.png", "--judge", "anthropic/claude")
    assert done.code == 2
    check_error(done.error, "no_key", "ANTHROPIC_API_KEY", "measured", "--base-url")


# --- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("judg", "judge"),
        ("runs lst", "list"),
        ("judge --edited b.png --jugde x", "--judge"),
        ("run e.jsonl --rubric Fidelty", "fidelity"),
        ("judge --edited b.png --judge opnai/x", "openai"),
        ("report R", "r"),
        ("gate r --min alignmnt=3", "alignment"),
        ("gate r --min alignment=3 --model god", "good"),
        ("gate r --min alignment=3 --judge openai/n", "openai/m"),
        ("compare r --a god --b poor", "good"),
        ("compare r --factor alignmnt", "alignment"),
    ],
)
def test_a_near_miss_is_answered_with_what_was_meant(
    typed: str, meant: str, call: Call, folder: Path
) -> None:
    made(folder / "editjudge.db")
    (folder / "e.jsonl").write_text(
        '{"id": "a", "edited": "b.png", "instruction": "x"}\n'
    )
    done = call(*typed.split())
    assert done.code in (1, 2)
    assert re.search(rf"[Dd]id you mean ['\"]{re.escape(meant)}['\"]", done.err), (
        done.err
    )


BAD: dict[str, int] = {
    "run gone.jsonl": 1,
    "run e.jsonl --judge opnai/x": 2,
    "run e.jsonl --judge openai/x": 2,
    "run e.jsonl --rubric gone": 2,
    "run e.jsonl --judge replay:gone.jsonl": 1,
    "run e.jsonl --where r:alignment>=3": 2,
    "run e.jsonl --concurrency many": 2,
    "run empty.jsonl": 1,
    "run binary.jsonl": 1,
    "run folder": 1,
    "run misspelt.jsonl": 1,
    "run e.jsonl --store gone/s.db": 1,
    "run e.jsonl --store folder": 1,
    "run e.jsonl --store empty.csv/s.db": 1,
    "run e.jsonl --store binary.jsonl": 1,
    "runs list": 1,
    "runs show r": 1,
    "runs rm r --yes": 1,
    "runs again r": 1,
    "report r": 1,
    "compare r": 1,
    "gate r --min alignment=3": 1,
    "drift r --against q": 1,
    "agree r --ratings gone.csv": 1,
    "export r -o out": 1,
    "serve --port 0": 1,
    "import-run folder": 1,
    "import-run gone": 2,
    "ratings import gone.csv": 1,
    "ratings import binary.jsonl": 1,
    "ratings export gone/r.csv": 2,
    "probe --judge opnai/x --photos 1": 2,
    "probe -o gone/p.html": 2,
    "audit gone.jsonl": 1,
    "manifest gone --layout gedit --instructions gone.json -o m.jsonl": 1,
    "parse --rubric quality gone.txt": 1,
    "rubric check gone.yaml": 1,
    "rubric import gone.txt -o r.yaml": 1,
    "rubric import e.jsonl -o gone/r.yaml": 2,
}


@pytest.mark.parametrize(("typed", "code"), BAD.items())
def test_bad_input_is_told_in_words_and_leaves_nothing_behind(
    typed: str, code: int, call: Call, folder: Path
) -> None:
    (folder / "folder").mkdir()
    (folder / "e.jsonl").write_text(
        '{"id": "a", "edited": "b.png", "instruction": "x"}\n'
    )
    (folder / "misspelt.jsonl").write_text(
        '{"id": "a", "edited": "b.png", "instrction": "x"}\n'
    )
    (folder / "empty.jsonl").touch()
    (folder / "empty.csv").touch()
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 9)
    before = {path: path.stat().st_size for path in folder.rglob("*")}
    done = call(*typed.split(), "--json")
    assert done.code == code
    assert list(done.document) == ["error"] and done.document["error"]
    assert "Errno" not in done.err and "Traceback" not in done.err
    assert {path: path.stat().st_size for path in folder.rglob("*")} == before


def test_a_wrong_value_is_told_with_its_option_also_as_json(
    call: Call, folder: Path
) -> None:
    done = call("run", "e.jsonl", "--limit", "x", "--json")
    assert (
        done.code == 2
        and "--limit" in done.document["error"]
        and "x" in done.document["error"]
    )


@pytest.mark.parametrize(
    "typed", ["runs", "runs show r", "report r", "export r -o out", "doctor"]
)
def test_who_only_reads_leaves_nothing_beside_the_store(
    typed: str, call: Call, folder: Path
) -> None:
    made(folder / "editjudge.db")
    assert call(*typed.split()).code == 0
    assert [path.name for path in folder.glob("editjudge.db*")] == ["editjudge.db"]


def test_what_the_disk_refuses_is_told_in_words(call: Call, folder: Path) -> None:
    made(folder / "editjudge.db")
    (folder / "taken").touch()
    for typed in ("export r -o taken/out", "report r -o taken/r.md"):
        done = call(*typed.split())
        assert done.code in (1, 2) and "taken" in done.err and "Errno" not in done.err


def test_a_store_of_a_newer_editjudge_is_left_alone(call: Call, folder: Path) -> None:
    made(folder / "editjudge.db")
    with contextlib.closing(sqlite3.connect("editjudge.db")) as store, store:
        store.execute("UPDATE meta SET value = '9999' WHERE name = 'schema_version'")
    done = call("runs", "list", "--json")
    assert done.code == 1 and "upgrade editjudge" in done.document["error"]


@pytest.mark.parametrize(
    "typed",
    [
        *(
            "run edits.jsonl --judge measured",
            "run edits.jsonl --judge measured --dry-run",
            "doctor",
        ),
        *(
            "runs list",
            "runs show r",
            "runs rm r --yes",
            "report r",
            "compare r",
            "agree r",
        ),
        *(
            "drift r --against s",
            "runs again r",
            "gate r --min 1",
            "export r -o out",
            "import-run exported",
        ),
        *(
            "ratings import ratings.csv",
            "ratings export out.csv",
            "ratings links",
            "ratings invite s ann",
        ),
        *("ratings revoke s ann", "ratings rm --rater ann --yes", "serve --port 0"),
    ],
)
def test_no_verb_changes_a_database_of_another_program(
    typed: str, call: Call, folder: Path
) -> None:
    edits(folder, 1)
    made(folder / "own.db", Spec(edits=1))
    assert call("export", "r", "-o", "exported", "--store", "own.db").code == 0
    (folder / "ratings.csv").write_text("item,rater,factor,score\ne0,ann,alignment,3\n")
    with contextlib.closing(sqlite3.connect("editjudge.db")) as other, other:
        other.execute("CREATE TABLE meta (name, value)")
    before = Path("editjudge.db").read_bytes()
    done = call(*typed.split())
    assert Path("editjudge.db").read_bytes() == before
    assert [path.name for path in folder.glob("editjudge.db*")] == ["editjudge.db"]
    if done.code:
        check_error(done.error, "another_program", "editjudge.db")
    else:
        assert "not a store" in done.out
    assert "Traceback" not in done.err


def test_names_that_are_no_text_are_told_in_words(folder: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "run", b"\xff\xfe.jsonl", "--json"], capture_output=True, check=False
    )
    assert done.returncode == 1 and b"Traceback" not in done.stderr
    assert "No such file" in json.loads(done.stdout)["error"]
    assert list(folder.iterdir()) == []


def test_a_reader_that_leaves_early_ends_it_without_a_word(folder: Path) -> None:
    shell = f"{shlex.join(COMMAND)} rubric list --json | head -c 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"{", b"")


# --- progress -------------------------------------------------------------------------------------------------


def seen(folder: Path, *words: str, **variables: str) -> tuple[str, dict[str, Any]]:
    """What a terminal shows of a run with failures and a price, and the document beside it."""
    prices = folder / "prices.yaml"
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: 10, output: 40}}\n"
    )
    manifest = edits(folder, 12)
    (folder / "edited-0.png").unlink()
    ours, theirs = pty.openpty()
    command = [
        *COMMAND,
        "run",
        str(manifest),
        "--judge",
        OPENAI,
        "--prices",
        str(prices),
        "--concurrency",
        "2",
    ]
    wide = {"COLUMNS": "160", "TERM": "xterm-256color", "LANG": "C.UTF-8", **variables}
    with stub(Behaviour(latency=0.1)):
        started = subprocess.Popen(
            [*command, "--json", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=os.environ | wide,
        )
        os.close(theirs)
        shown = b""
        # Linux says so where the other end is closed
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65_536):
                shown += part
        out, _ = started.communicate(timeout=300)
    os.close(ours)
    return shown.decode(), json.loads(out)


def test_a_terminal_sees_rate_time_left_cost_and_failures(folder: Path) -> None:
    shown, document = seen(folder)
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(
        r"\d+/36 \d+\.\d/s, 0:00:\d\d left, \$\d\.\d\d, failed: [123] missing_output",
        drawn,
    ), drawn
    assert document["statuses"] == {"ok": 33, "missing_output": 3}


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_total_counts_the_edits_of_the_models_that_are_judged(
    form: str, tmp_path: Path
) -> None:
    rows = [
        {
            "id": str(n),
            "input": "in.png",
            "edited": None,
            "made_by": "a" if n % 3 else "b",
            "instruction": "x, \n y",
        }
        for n in range(9)
    ]
    manifest = tmp_path / f"edits.{form}"
    with manifest.open("w", newline="") as file:
        if form == "csv":
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        else:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)

    def expected(*models: str, **settings: Any) -> int | None:
        columns = (("model", "made_by"),)
        return Job(
            manifest,
            ("fidelity", "lighting"),
            ("replay:none",),
            models=models,
            columns=columns,
            **settings,
        ).check()

    assert (
        expected("a") == 2 * 6
        and expected("a", "b", repeats=3) == expected(repeats=3) == 2 * 9 * 3
    )
    assert expected("a", limit=4) == 2 * 4 and expected("a", limit=40) == 2 * 6
    assert expected(where=("run:overall>=1",)) is None, (
        "how many pass is known when all were read"
    )
    with raises(UsageError, "unknown_model"):
        expected("c")


@pytest.mark.parametrize(
    "variables",
    [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}],
)
def test_no_escape_sequence_where_none_is_wanted(
    variables: dict[str, str], folder: Path
) -> None:
    shown, document = seen(folder, **variables)
    assert ESCAPE not in shown and document["ending"] == "finished"


def test_quiet_shows_no_progress(folder: Path) -> None:
    shown, document = seen(folder, "--quiet")
    assert shown == "" and document["ending"] == "finished"


@pytest.mark.parametrize("forced", [False, True])
def test_a_file_gets_a_bar_only_where_that_is_forced(
    forced: bool, folder: Path
) -> None:
    command = [*COMMAND, "run", str(edits(folder, 4)), "--judge", OPENAI]
    with (
        stub(),
        environment({"FORCE_COLOR": "1" if forced else None, "NO_COLOR": None}),
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert (ESCAPE in done.stderr) == forced
    assert ESCAPE not in done.stdout


def test_a_run_that_was_stopped_names_the_command_that_goes_on(
    call: Call, folder: Path
) -> None:
    prices = folder / "my prices.yaml"
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: 10, output: 40}}\n"
    )
    words = (
        "run",
        edits(folder, 10),
        "--judge",
        OPENAI,
        "--prices",
        prices,
        "--budget",
        "0.5",
    )
    with stub():
        done = call(*words)
    assert done.code == 4
    *_, command = done.err.splitlines()
    assert shlex.split(command) == ["editjudge", *map(str, words)]


def test_the_command_that_goes_on_does_not_repeat_a_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from editjudge.cli.outcome import how_to_resume

    monkeypatch.setattr(
        sys,
        "argv",
        ["editjudge", "run", "e.jsonl", "--store", "postgresql://me:canary@host/db"],
    )
    assert "canary" not in how_to_resume() and "editjudge" not in how_to_resume()


# --- spellings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "present"),
    [
        ("compare r --of scores", "--use"),
        ("report r --of=scores", "--use"),
        ("judge --edited b.png --reasks 0 --judge replay:gone", "--retries-invalid"),
        ("agree r --ratings x.csv --as a=b", "--map-factor"),
        ("drift r --against r --against-store editjudge.db", "STORE#RUN"),
        ("gate r --min alignment=1 --baseline r --baseline-store editjudge.db", "STORE#RUN"),
        ("judge --edited b.png --edit-type add --judge replay:gone", "--text edit_type"),
        ("serve --allow-judge opnai/x --port 0 --rubric gone", "--allow JUDGE"),
    ],
)  # fmt: skip
def test_a_former_spelling_works_and_names_the_present_one(
    typed: str, present: str, call: Call, folder: Path
) -> None:
    made(folder / "editjudge.db")
    done = call(*typed.split())
    assert "works until 1.0" in done.err and present in done.err
    assert "No such option" not in done.err


def dry_run(call: Call, folder: Path, *words: str) -> Any:
    manifest = edits(folder, 2)
    done = call("run", manifest, "--judge", OPENAI, "--dry-run", "--json", *words)
    assert done.code == 0, done.err
    return done.document["judges"][0]


def test_a_setting_is_given_by_name_or_by_its_own_spelling(
    call: Call, folder: Path
) -> None:
    prices = folder / "prices.yaml"
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: 10, output: 40}}\n"
    )
    with environment({"OPENAI_API_KEY": "x"}):
        plain = dry_run(call, folder, "--prices", str(prices), "--rpm", "1")
        assert plain["price"] and plain["seconds"]
        assert dry_run(call, folder, "-J", f"prices={prices}", "-Jrpm=1") == plain
        assert dry_run(call, folder, "-J", "top_p=0.5")["price"] != plain["price"]
    refused = call("run", "edits.jsonl", "-J", "rpm=none")
    assert refused.code == 2 and "--rpm" in refused.err


def test_a_flag_is_set_and_unset_by_name() -> None:
    command = app.get_command(click.Context(app), "run")
    assert command is not None

    def values(*words: str) -> dict[str, Any]:
        return command.make_context("run", ["e.jsonl", *words]).params

    assert values()["schema"] and not values()["rehash"]
    off = values("-J", "schema=false", "-J", "rehash=yes", "-J", "min-mass=0.5")
    assert not off["schema"] and off["rehash"] and off["min_mass"] == 0.5
    assert not values("-J", "rehash=false")["rehash"]
    assert values("-J", "top_k=5", "-J", "schema=true")["extra"] == ("top_k=5",)


def test_a_run_of_another_store_is_named_with_it(call: Call, folder: Path) -> None:
    made(folder / "other.db", Spec(name="main"))
    made(folder / "editjudge.db")
    for words in (
        ("report", "other.db#main"),
        ("compare", "r", "other.db#main"),
        ("drift", "r", "--against", "other.db#main"),
        ("gate", "r", "--baseline", "other.db#main"),
    ):
        assert call(*words).code == 0, words
    gone = call("report", "gone.db#main")
    assert gone.code == 1 and "gone.db" in gone.err


@pytest.mark.parametrize("typed", ["runs", "runs list", "runs show r"])
@pytest.mark.parametrize("first", [True, False])
def test_options_of_a_group_go_before_or_after_its_command(
    typed: str, first: bool, call: Call, folder: Path
) -> None:
    made(folder / "other.db")
    group, *rest = typed.split()
    options = ("--store", "other.db", "--json")
    words = (group, *options, *rest) if first else (group, *rest, *options)
    assert "r" in json.dumps(call(*words).document)


# --- completion -----------------------------------------------------------------------------------------------


def completed(typed: str, folder: Path) -> list[str]:
    """What a real bash offers after this line, with the script that the verb prints."""
    command = folder / "bin" / "editjudge"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    words = typed.split(" ")
    shell = f"""
        eval "$(editjudge completion bash)"
        compopt() {{ :; }}
        COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}
        _editjudge_completion editjudge
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    found = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, check=True, env=found
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("editjudge ru", ["rubric", "run", "runs"]),
        ("editjudge runs a", ["again"]),
        ("editjudge run e.jsonl --bu", ["--budget"]),
        ("editjudge run e.jsonl --rubric fid", ["fidelity"]),
        (
            "editjudge judge --judge anthropic/claude-haiku-5",
            ["anthropic/claude-haiku-5-5"],
        ),
        ("editjudge judge --judge vl", ["vllm/"]),
        ("editjudge report pil", ["pilot"]),
        ("editjudge drift r --store editjudge.db --against pil", ["pilot"]),
    ],
)
def test_bash_completes(typed: str, offered: list[str], folder: Path) -> None:
    if "pil" in typed:
        made(folder / "editjudge.db", Spec(name="pilot", edits=1))
        made(folder / "editjudge.db", Spec(name="pil$(date)", edits=1))
    assert completed(typed, folder) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str, call: Call) -> None:
    done = call("completion", shell)
    assert done.code == 0 and f"_EDITJUDGE_COMPLETE={shell}_complete" in done.out
    assert call("completion", shell, "--json").document[
        "script"
    ] == done.out.removesuffix("\n")


def test_completing_a_run_reads_the_store_without_the_library_for_it(
    folder: Path,
) -> None:
    made(folder / "editjudge.db")
    code = "import sys; sys.argv=['editjudge']; from editjudge.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print('sqlalchemy' in sys.modules)"
    asked = {
        "_EDITJUDGE_COMPLETE": "bash_complete",
        "COMP_WORDS": "editjudge report ",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | asked,
    )
    assert done.stdout.split() == ["plain,r", "False"]


def test_the_list_of_verbs_is_in_order() -> None:
    assert list(VERBS) == sorted(VERBS)


@pytest.mark.parametrize("verb", ["run", "serve"])
def test_help_in_groups_lists_every_option_once_with_the_main_ones_first(
    call: Call, verb: str
) -> None:
    text = call(verb, "--help").out
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    listed = re.findall(
        r"^  (?:-\w, )?(--?[\w-]+)", text.partition(":\n")[2], re.MULTILINE
    )
    assert headings[0] == "Main options" and headings[-1] == "Other options"
    assert len(headings) > 3 and len(listed) == len({*listed}) > 15
    main = text.partition("Main options:")[2].partition(f"{headings[1]}:")[0]
    assert "--store" in main and "--judge" in main and "--json" not in main
