"""How verbs find the run that is named, and how they print tables."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest

from editjudge.cli.reading import show
from editjudge.report.tables import Figure, Table, p_value

from .stores import Call, Spec, call, made

__all__ = ["call"]

WIDE = Table.of(
    ("model", "failed", "mean", "p", *(f"column {n}" for n in range(12))),
    [("a", 3, Figure(1.0), p_value(0.001), *range(12)), ("b", 0, Figure(2.0), p_value(0.7), *range(12))],
    "Scores",
    spare=tuple(f"column {n}" for n in range(12)),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(patch: pytest.MonkeyPatch, out: io.StringIO, **variables: str) -> str:
    patch.setattr(sys, "stdout", out)
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        patch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", **variables}.items():
        patch.setenv(name, value)
    show(["lead"], [WIDE, WIDE])
    return out.getvalue()


def test_a_terminal_gets_failures_and_significant_differences_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, Terminal(), COLUMNS="100")
    assert re.search(r"\x1b\[31m *3", text), "a failure is red"
    assert re.search(r"\x1b\[1;32m *0.001", text), "a significant p is bold"
    significant, other = (next(line for line in text.splitlines() if p in line) for p in ("0.001", "0.70"))
    assert "\x1b[32m" in significant and "\x1b[32m" not in other, "its whole row is green"
    assert not re.search(r"\x1b\[3[12]m *0\b", text) and not re.search(r"\x1b\[1;32m *0.70", text)


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_the_same_text_without_escape_sequences(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    plain = printed(monkeypatch, Terminal(), COLUMNS="100", **variables)
    coloured = printed(monkeypatch, Terminal(), COLUMNS="100")
    assert "\x1b" not in plain and "\x1b" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_a_pipe_gets_every_column_in_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(monkeypatch, io.StringIO(), FORCE_COLOR="1")
    assert "column 11" in text and "left out" not in text and "\x1b" not in text
    assert "left out for width" in printed(monkeypatch, Terminal(), COLUMNS="100", NO_COLOR="1")


def test_a_terminal_that_does_not_tell_its_size_counts_as_80_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    known = printed(monkeypatch, Terminal(), COLUMNS="80")
    monkeypatch.setattr("shutil.get_terminal_size", os.terminal_size)
    assert printed(monkeypatch, Terminal()) == known


# --- which run is meant ---------------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> str:
    """The name of a folder of shards in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDITJUDGE_STORE", raising=False)
    store = made(tmp_path / "source.db", Spec("m", edits=4))
    assert call("export", "m", "-o", "m", "--format", "parquet", "--store", store).code == 0
    return "m"


def test_a_bare_word_is_a_folder_only_where_no_store_is_given(call: Call, shards: str) -> None:
    assert call("report", shards).code == 0
    assert call("report", f"./{shards}", "--store", "absent.db").code == 0
    absent = call("report", shards, "--store", "absent.db")
    assert absent.code != 0 and "absent.db" in absent.err
    default = call("report", shards, "--store", "editjudge.db")
    assert default.code != 0 and "editjudge.db" in default.err, "given, though it is the default"


def test_a_given_store_without_the_run_is_not_replaced_by_a_folder(call: Call, shards: str, tmp_path: Path) -> None:
    other = made(tmp_path / "other.db", Spec("another", edits=4))
    done = call("report", shards, "--store", other)
    assert done.code == 2 and '"m"' in done.err
