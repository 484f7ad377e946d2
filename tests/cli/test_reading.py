"""How verbs find the run that is named, and how they print tables."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest

from editjudge.cli.output import show
from editjudge.report.tables import Figure, Table, p_value

from .stores import Call, Spec, call, made

__all__ = ["call"]

WIDE = Table.of(
    ("model", "failed", "mean", "p", *(f"column {n}" for n in range(12))),
    [
        ("a", 3, Figure(1.0), p_value(0.001), *range(12)),
        ("b", 0, Figure(2.0), p_value(0.7), *range(12)),
    ],
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


def test_a_terminal_gets_failures_and_significant_differences_in_colour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = printed(monkeypatch, Terminal(), COLUMNS="100")
    assert re.search(r"\x1b\[31m *3", text), "a failure is red"
    assert re.search(r"\x1b\[1;32m *0.001", text), "a significant p is bold"
    significant, other = (
        next(line for line in text.splitlines() if p in line) for p in ("0.001", "0.70")
    )
    assert "\x1b[32m" in significant and "\x1b[32m" not in other, (
        "its whole row is green"
    )
    assert not re.search(r"\x1b\[3[12]m *0\b", text) and not re.search(
        r"\x1b\[1;32m *0.70", text
    )


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_the_same_text_without_escape_sequences(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    plain = printed(monkeypatch, Terminal(), COLUMNS="100", **variables)
    coloured = printed(monkeypatch, Terminal(), COLUMNS="100")
    assert "\x1b" not in plain and "\x1b" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_a_pipe_gets_every_column_in_plain_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = printed(monkeypatch, io.StringIO(), FORCE_COLOR="1")
    assert "column 11" in text and "left out" not in text and "\x1b" not in text
    assert "left out for width" in printed(
        monkeypatch, Terminal(), COLUMNS="100", NO_COLOR="1"
    )


def test_a_terminal_that_does_not_tell_its_size_counts_as_80_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = printed(monkeypatch, Terminal(), COLUMNS="80")
    monkeypatch.setattr("shutil.get_terminal_size", os.terminal_size)
    assert printed(monkeypatch, Terminal()) == known


# --- which run is meant ---------------------------------------------------------------------------------------


def test_the_path_of_an_export_is_not_a_run(call: Call, tmp_path: Path) -> None:
    store = made(tmp_path / "source.db", Spec("m", edits=4))
    out = tmp_path / "out"
    assert (
        call("export", "m", "-o", out, "--format", "parquet", "--store", store).code
        == 0
    )
    for verb in ("report", "compare"):
        refused = call(verb, out, "--store", store)
        assert refused.code == 2 and "import-run" in refused.err


@pytest.mark.parametrize("place", ["parts/", "s3://bucket/run"])
def test_a_folder_as_a_store_is_refused_with_the_way_to_one(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    refused = call("runs", "list", "--store", place)
    assert refused.code == 1 and "export --format parquet" in refused.err
