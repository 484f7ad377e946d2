"""Hostile pictures through every door: a right answer or `bad_image`, in memory that does not grow with a claim.

What the opening of single pictures does is held in `tests/media/test_image.py`; here they come in from outside.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from editjudge.media.image import decode
from tests.running.made import Done, editjudge, run, write_manifest, write_old
from tests.web.served import Served, base64_of, serving

from .album import BAD, SAME, SEEN, encoded, no_files, plain

NAMED = {
    "newline": "a\nb.png", "escape": "\x1b[2J\x1b]0;owned\x07.png", "backwards": "\u202egnp.exe.png",
    "formula": "=HYPERLINK(1).png", "markup": "<img src=x onerror=alert(1)>.png", "dashes": "--store.png",
    "wrong extension": "picture.svg",
}  # fmt: skip
"""Sound pictures under odd names."""
SHOWN = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp")
PLAIN = encoded(plain(), "PNG")
INPUT = encoded(plain().rotate(180), "PNG")


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every picture of the album as the edited one of an edit."""
    write_old(folder / "input.png", INPUT)
    write_old(folder / "plain.png", PLAIN)
    files = {"plain": "plain.png"}
    for number, (name, make) in enumerate({**SAME, **SEEN, **BAD}.items()):
        files[name] = f"{number}.png"
        write_old(folder / files[name], make())
    for name, file in NAMED.items():
        files[name] = file
        write_old(folder / file, PLAIN)
    told = {"input": "input.png", "instruction": "Turn it around."}
    return [{"id": name, "edited": file, **told} for name, file in files.items()]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Done]:
    folder = tmp_path_factory.mktemp("album")
    manifest = write_manifest(folder, rows(folder))
    return (
        manifest,
        folder / "s.db",
        run(manifest, folder / "s.db", judges=("measured",), rubrics=("preservation",)),
    )


def test_a_run_gives_each_a_right_answer_or_bad_image(
    judged: tuple[Path, Path, Done],
) -> None:
    done = judged[2]
    assert done.outcome.ending == "finished" and done.row("plain")["status"] == "ok"
    for name in (*SAME, *NAMED):
        assert done.row(name)["scores"] == done.row("plain")["scores"], name
    assert {
        name: done.row(name)["status"]
        for name in SEEN
        if done.row(name)["status"] not in ("ok", "abstained")
    } == {}
    for name in BAD:
        row = done.row(name)
        assert (row["status"], row["scores"]) == ("bad_image", None), name
        assert row["reasons"][0]["message"], name


def test_one_edit_on_the_command_line_is_told_the_same(
    judged: tuple[Path, Path, Done],
) -> None:
    folder = judged[0].parent
    for name, file, code in (
        ("alpha", "0.png", 0),
        ("svg", f"{len(SAME) + len(SEEN) + 1}.png", 3),
    ):
        told_of = (
            "--input",
            folder / "input.png",
            "--edited",
            folder / file,
            "--instruction",
            "Turn it around.",
        )
        told = editjudge(
            "judge", *told_of, "--rubric", "preservation", "--judge", "measured"
        )
        assert told.code == code, (name, told.err)
        assert "Traceback" not in told.out + told.err and ("SVG" in told.out) == (
            name == "svg"
        )


def test_an_audit_finds_the_broken_ones_and_no_others(
    judged: tuple[Path, Path, Done],
) -> None:
    told = editjudge("audit", judged[0], "--json")
    broken = {
        found["id"] for found in told.json["findings"] if found["kind"] == "broken_file"
    }
    assert broken == set(BAD)


def test_an_audit_shows_no_escape_of_a_name(
    judged: tuple[Path, Path, Done], tmp_path: Path
) -> None:
    listing = [
        {"id": f"e{n}", "input": file, "edited": f"{file}.gone"}
        for n, file in enumerate(NAMED.values())
    ]
    listing = [
        row for row in listing if row["input"].isascii() or "\u202e" in row["input"]
    ]
    told = editjudge("audit", write_manifest(tmp_path, listing))
    assert "\x1b" not in told.out + told.err and "\u202e" not in told.out + told.err


@pytest.mark.parametrize("form", ["html", "md", "latex", "csv", "json"])
def test_a_report_is_made_of_all_of_them(
    judged: tuple[Path, Path, Done], tmp_path: Path, form: str
) -> None:
    _, store, done = judged
    told = editjudge(
        "report",
        done.outcome.name,
        "--store",
        store,
        "-o",
        tmp_path / "r",
        "--format",
        form,
    )
    assert told.code == 0, told.err
    text = (tmp_path / "r").read_text("utf-8")
    assert "\x1b" not in text and "onerror=alert(1)>" not in text.replace("&gt;", "")


def test_review_shows_pictures_and_refuses_the_rest(
    judged: tuple[Path, Path, Done],
) -> None:
    with serving(judged[1], judge="measured") as served:
        for name in (*SAME, *SEEN, *BAD, *NAMED):
            page = served.client.get(
                f"{served.url}/runs/1/edits/{quote(name, safe='')}"
            )
            shown = served.client.get(
                f"{served.url}/runs/1/images/edited/{quote(name, safe='')}"
            )
            assert page.status_code == 200, name
            assert shown.status_code < 500, name
            # of a broken one at most what its header says: a browser has bounds too
            if shown.status_code == 200:
                assert (
                    shown.headers["content-type"] in SHOWN
                    and shown.headers["x-content-type-options"] == "nosniff"
                )
            else:  # a name with control characters is kept as it may be shown, which leads to no file
                assert name in BAD or not NAMED[name].isprintable(), (
                    name,
                    shown.status_code,
                    shown.text,
                )


@pytest.fixture(scope="module")
def rewarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("rewards") / "s.db", judge="measured"
    ) as served:
        yield served


def test_the_reward_api_answers_each_in_its_place(rewarding: Served) -> None:
    sent = {"plain": PLAIN} | {
        name: make() for name, make in {**SAME, **SEEN, **BAD}.items()
    }
    edits = [
        {
            "input": base64_of(INPUT),
            "edited": base64_of(data),
            "instruction": "Turn it.",
        }
        for data in sent.values()
    ]
    answers = dict(
        zip(sent, rewarding.rewards(*edits, rubrics=["preservation"]), strict=True)
    )
    for name in BAD:
        assert (answers[name]["status"], answers[name]["reward"]) == (
            "bad_image",
            None,
        ), name
    for name in SAME:
        assert answers[name]["reward"] == answers["plain"]["reward"], name
    assert isinstance(answers["plain"]["reward"], float)


def test_what_is_no_file_of_the_folder_is_never_opened(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    write_old(folder / "input.png", INPUT)
    places = no_files(folder)
    for name, place in places.items():
        row = {
            "id": name,
            "input": "input.png",
            "edited": place.name,
            "instruction": "Turn it.",
        }
        manifest = write_manifest(folder, [row])
        words = (
            "run",
            manifest,
            "--judge",
            "measured",
            "--rubric",
            "preservation",
            "--store",
            tmp_path / f"{name}.db",
            "--json",
        )
        told = editjudge(*words)
        assert told.code in (1, 3), (name, told)
        if told.code == 3:
            assert set(told.json["statuses"]) <= {"bad_image", "missing_output"}, name
        else:
            assert "edits.jsonl:1" in told.err and "Traceback" not in told.err, told.err


def test_memory_is_bounded_by_what_is_there_and_not_by_what_is_claimed(
    tmp_path: Path,
) -> None:
    """All bombs in one process take hardly more than the plain picture alone."""
    write_old(tmp_path / "input.png", INPUT)
    bombs = {
        name: make()
        for name, make in BAD.items()
        if "bomb" in name or "promises" in name or "rows" in name
    }
    for name, data in ({"plain": PLAIN} | bombs).items():
        write_old(tmp_path / f"{name}.png", data)
    alone, all_of_them = (
        _peak(tmp_path, names) for names in (["plain"], ["plain", *bombs])
    )
    # kilobytes; one of them claims gigabytes
    assert all_of_them < alone + 150_000, (alone, all_of_them)


def _peak(folder: Path, names: list[str]) -> int:
    program = (
        "import sys, resource\nfrom pathlib import Path\nfrom editjudge.media.image import decode\n"
        "from editjudge.media.source import read\n"
        "from editjudge.errors import ImageError\n"
        "for name in sys.argv[1:]:\n"
        "    try: decode(read(Path(name)))\n"
        "    except ImageError: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    words = [
        sys.executable,
        "-c",
        program,
        *(str(folder / f"{name}.png") for name in names),
    ]
    return int(
        subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=300
        ).stdout
    )


@pytest.mark.parametrize("name", SAME)
def test_another_dress_is_the_same_pixels(name: str) -> None:
    assert decode(SAME[name]()).tobytes() == plain().tobytes()
