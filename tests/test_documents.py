"""What the documents say is true: their commands run, their code runs, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from bench.stub import serve_in_thread

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the README's files, and an environment in which OpenAI is our stub."""
    for name in ("a.png", "b.png", "in/cat.jpg", "out/cat.png", "out2/cat.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (32, 32), "green").save(tmp_path / name)
    (line,) = blocks(ROOT / "README.md", "json")
    (tmp_path / "edits.jsonl").write_text(line)
    with serve_in_thread() as stub:
        ours = {"OPENAI_BASE_URL": f"{stub.url}/v1", "OPENAI_API_KEY": "sk-none", "NO_COLOR": "1"}
        yield tmp_path, {**os.environ, **ours, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_the_session_of_the_readme_runs(workplace: tuple[Path, dict[str, str]]) -> None:
    folder, environment = workplace
    commands = [line.removeprefix("$ ") for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    for command in (c for c in commands if c.startswith("editjudge")):
        words = shlex.split(command, comments=True)
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "mine-v2" in (folder / "report.html").read_text("utf-8")


def test_the_python_of_the_readme_runs(workplace: tuple[Path, dict[str, str]]) -> None:
    folder, environment = workplace
    for code in blocks(ROOT / "README.md", "python"):
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_rubric_of_the_guide_loads_and_has_nothing_to_mend(tmp_path: Path) -> None:
    from editjudge.rubrics.files import parse
    from editjudge.rubrics.lint import lint

    (text,) = blocks(ROOT / "docs" / "rubrics.md", "yaml")
    assert lint(parse(text)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_inside_the_repository_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)\)", document.read_text("utf-8")):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_every_example_is_short_and_runs(example: Path) -> None:
    assert len(example.read_text("utf-8").splitlines()) < 60
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout, done.stderr
