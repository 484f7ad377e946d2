"""What the documents say is true: every snippet runs or is read by what reads it, every link leads somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image, ImageDraw

from editjudge.judgement import DONE, STATUSES
from tests.stub.server import serve_in_thread

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "8427"
FIDELITY = ("alignment", "completeness", "plausibility")

NOT_HERE = re.compile(
    r"^(pip install|make|createdb|vllm|ray|inspect view|git clone)\b"  # changes this machine, or needs what it has not
    r"|^python (bench/|-m bench\.)"  # takes minutes or other people's data; tests/bench runs what it can
    r"|probe .*--(passport|compare)"  # takes minutes; tests/cli/test_passport.py asks a quick judge
    r"|gguf:"  # needs a model's file; tests/servers makes one
    r"|postgresql://|s3://|\.internal\b|0\.0\.0\.0"  # needs servers, or talks to more than this machine
)
"""Commands that are read and not run: the verbs, options, extras, targets and files that they name must exist."""


def named(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    return [
        text
        for told, text in FENCE.findall(page.read_text("utf-8"))
        if told == language
    ]


# --- a desk at which a page can be followed -------------------------------------------------------------------


def picture(path: Path, colour: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.radial_gradient("L").resize((64, 64)).convert("RGB")
    ImageDraw.Draw(image).ellipse((16, 16, 40, 40), fill=colour)
    image.save(path)


def lay_out(desk: Path) -> None:
    """The files that pages speak of, small: pictures, edits of two models, ratings, pairs, Parquet, others' results."""
    rows = []
    for n in range(6):
        picture(desk / f"in/{n}.png", f"#80{n}080")
        for model, colour in (("mine-v1", "navy"), ("mine-v2", "blue")):
            picture(desk / model / f"{n}.png", colour)
            row = {
                "id": f"{model}-{n}",
                "input": f"in/{n}.png",
                "edited": f"{model}/{n}.png",
                "model": model,
            }
            rows.append(
                {**row, "instruction": "make the disc blue", "edit_type": "colour"}
            )
    (desk / "edits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ratings = [
        f"{row['id']},{who},alignment,{3 + n % 4}"
        for who in ("ann", "bob")
        for n, row in enumerate(rows)
    ]
    (desk / "ratings.csv").write_text(
        "item,rater,factor,score\n" + "\n".join(ratings) + "\n"
    )
    answer = {key: {"score": 6, "justification": "seen"} for key in FIDELITY}
    replies = [
        {
            "item": row["id"],
            "rubric": "fidelity",
            "reply": json.dumps(
                {"image_id": row["id"], "online_factor_results": answer}
            ),
        }
        for row in rows
    ]
    (desk / "replies.jsonl").write_text(
        "".join(json.dumps(reply) + "\n" for reply in replies)
    )
    pairs = [f"mine-v1-{n},mine-v2-{n},{'AB'[n % 2]}" for n in range(6)]
    (desk / "pairs.csv").write_text("a,b,preference\n" + "\n".join(pairs) + "\n")
    (desk / "edits").mkdir()
    pictures = {
        key: (desk / str(rows[0][key])).read_bytes() for key in ("input", "edited")
    }
    pq.write_table(
        pa.Table.from_pylist([{**rows[0], **pictures}]), desk / "edits/1.parquet"
    )
    for name in ("a.png", "in/cat.jpg", "singleturn/a/1.jpg"):
        picture(desk / name, "red")
    for name in (
        "b.png",
        "out/cat.png",
        "out2/cat.png",
        "imgedit-results/m/7.png",
        "gedit-results/m/fullset/t/en/7.png",
    ):
        picture(desk / name, "blue")
    picture(desk / "gedit-results/m/fullset/t/en/7_SRCIMG.png", "red")
    fact = {
        "key": "7",
        "task_type": "t",
        "instruction_language": "en",
        "instruction": "make the disc blue",
    }
    pq.write_table(pa.Table.from_pylist([fact]), desk / "gedit.parquet")
    (desk / "basic_edit.json").write_text(
        '{"7": {"id": "a/1.jpg", "prompt": "make it blue", "edit_type": "colour"}}'
    )
    (desk / "make_edits.py").write_text("")
    lay_out_checkout(desk / "Step1X-Edit/GEdit-Bench/viescore/vie_prompts.py")


def lay_out_checkout(path: Path) -> None:
    """Another benchmark's file of prompts, with words of our own."""
    path.parent.mkdir(parents=True)
    answer = 'Say {"score" : [...], "reasoning" : "..."}'
    texts = {
        "_context_no_delimit": answer,
        "_prompts_0shot_two_image_edit_rule": "Before and after.",
    }
    texts |= {
        "_prompts_0shot_tie_rule_SC": "Say output score = [a, b]. <instruction>",
        "_prompts_0shot_rule_PQ": "Say output score = [c, d].",
    }
    path.write_text("".join(f"{name} = {text!r}\n" for name, text in texts.items()))


@pytest.fixture(scope="session")
def environment() -> Iterator[dict[str, str]]:
    """Where every provider is our stub, and nothing of this machine's settings is left."""
    with serve_in_thread() as stub:
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("EDITJUDGE_")
        }
        ours.pop("COLUMNS", None)  # a table is as wide as its page shows it
        ours |= {
            "PATH": f"{Path(sys.executable).parent}:{ours['PATH']}",
            "NO_COLOR": "1",
            "HF_HUB_OFFLINE": "1",
        }
        ours |= {
            "OPENAI_BASE_URL": f"{stub.url}/v1",
            "OPENAI_API_KEY": "sk-none",
            "VLLM_BASE_URL": f"{stub.url}/v1",
        }
        yield ours | {"GOOGLE_GEMINI_BASE_URL": stub.url, "GOOGLE_API_KEY": "none"}


@pytest.fixture(scope="session")
def prepared(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Path:
    """A desk with two runs in its store: `pilot`, which pages look at, and `main`, which they hold it against."""
    desk = tmp_path_factory.mktemp("desk") / "files"
    desk.mkdir()
    lay_out(desk)
    judged = "editjudge run edits.jsonl --judge openai/gpt-6.1-terra --quiet"
    follow(f"{judged} --name pilot\n{judged} --name main --seed 1", desk, environment)
    return desk


def follow(script: str, desk: Path, environment: dict[str, str]) -> str:
    """Run a script, and return what it prints."""
    words = ["bash", "-euxc", script]
    done = subprocess.run(
        words,
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


# --- from a page to a script ----------------------------------------------------------------------------------


def shell(text: str) -> str:
    commands = (
        line.removeprefix("$ ").strip()
        for line in re.sub(r"\\\n\s*", " ", text).splitlines()
    )
    return "\n".join(
        command(line) for line in commands if line and not line.startswith("#")
    )


def command(line: str) -> str:
    """As it is run here; a server goes to the background, a gate may fail, probes are of one photograph."""
    names_what_exists(line)
    if NOT_HERE.search(line) or (line.startswith("curl") and not shutil.which("curl")):
        return ""
    bare = line.split("  #", maxsplit=1)[0]
    if line.startswith("editjudge serve"):
        awake = f"python -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:{PORT}/healthz\")' 2> /dev/null"
        return f"{bare} --port {PORT} & trap 'kill $!' EXIT\nuntil {awake}; do kill -0 $!; sleep 0.2; done"
    if line.startswith("editjudge gate"):
        return f"{bare} || test $? = 100"
    if line.startswith("editjudge probe"):
        return re.sub(r"--rubric \w+", "", bare) + " --photos 1 --rubric lighting"
    return line.replace("curl -s ", "curl -sf ")  # fails where the answer is an error


def names_what_exists(line: str) -> None:
    words = shlex.split(line.replace("...", ""), comments=True)
    # settings before a command
    words = words[next((n for n, word in enumerate(words) if "=" not in word), 0) :]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if words[:1] == ["editjudge"]:
        verb_exists(words[1:])
    for extra in re.findall(r"editjudge\[([\w,]+)\]", line):
        assert set(extra.split(",")) <= set(project["optional-dependencies"]), line
    if words[:1] == ["make"]:
        targets = re.findall(
            r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE
        )
        assert [
            word for word in words[1:] if "=" not in word and word not in targets
        ] == [], line
    if words[:1] == ["python"] and words[1:]:
        module = words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1]
        source = (ROOT / module).read_text() if (ROOT / module).exists() else ""
        assert source or module == "make_edits.py", line
        assert [
            word
            for word in words
            if word.startswith("--") and f'"{word}"' not in source
        ] == [], line


def verb_exists(words: list[str]) -> None:
    from editjudge.cli import app

    verb: click.Command = app
    context = click.Context(verb)
    while isinstance(verb, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        inner = verb.get_command(context, name)
        assert inner is not None, f"editjudge has no verb {name}"
        verb = inner
    known = {
        option
        for parameter in verb.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help"}
    assert [
        word
        for word in words
        if re.match(r"--?[a-zA-Z]", word) and word.split("=")[0] not in known
    ] == [], words


def rubric_workflow_or_prices(text: str) -> str:
    from editjudge.rubrics.files import parse_any
    from editjudge.rubrics.lint import lint

    document = yaml.safe_load(text)
    if "models" in document:
        opened = "import pathlib, editjudge.judges.cost as p; p.prices(pathlib.Path('prices.yaml'))"
        return f"cat > prices.yaml <<'END'\n{text}END\npython -c {shlex.quote(opened)}"
    if "post" in document:
        opened = "from editjudge.rewards.dialects import load_dialect; load_dialect('dialect.yaml')"
        return f"cat > dialect.yaml <<'END'\n{text}END\npython -c {shlex.quote(opened)}"
    if "repository" in document:
        opened = "import pathlib, editjudge.rubrics.recipe as r; r.read_recipe(pathlib.Path('recipe.yaml'))"
        return f"cat > recipe.yaml <<'END'\n{text}END\npython -c {shlex.quote(opened)}"
    if "jobs" not in document:
        loaded = parse_any(text)
        assert [
            finding
            for rubric in getattr(loaded, "rubrics", [loaded])
            for finding in lint(rubric)
        ] == []
        return ""
    (job,) = document["jobs"].values()
    assert "EDITJUDGE_STORE" in job["env"]
    return "\n".join(command(step["run"]) for step in job["steps"] if "run" in step)


def no_command(text: str) -> str:
    assert not re.search(r"^\$|^(editjudge|pip|python|make) ", text, re.MULTILINE), (
        "a command belongs into ```sh"
    )
    return ""


RULES: dict[str, Callable[[str], str]] = {
    "sh": shell,
    "python": lambda code: f"python - <<'END'\n{code}END",
    "jsonl": lambda lines: f"cat > edits.jsonl <<'END'\n{lines}END",
    "yaml": rubric_workflow_or_prices,
    "text": no_command,
}
"""What becomes of a snippet, by its language; one without a rule fails."""


@named([page for page in PAGES if "```" in page.read_text("utf-8")])
def test_every_snippet_of_a_page_runs_from_top_to_bottom(
    page: Path,
    prepared: Path,
    environment: dict[str, str],
    tmp_path: Path,
    unused_port: int,
) -> None:
    script = "\n".join(
        RULES[language](text)
        for language, text in FENCE.findall(page.read_text("utf-8"))
    )
    desk = tmp_path / "desk"
    shutil.copytree(prepared, desk)
    follow(script.replace(PORT, str(unused_port)), desk, environment)


def test_the_first_comparison_prints_what_its_page_shows(
    environment: dict[str, str], tmp_path: Path
) -> None:
    page = ROOT / "docs" / "first-comparison.md"
    script = "\n".join(
        RULES[language](text)
        for language, text in FENCE.findall(page.read_text("utf-8"))
    )
    printed = follow(script, tmp_path, environment).splitlines()
    for text in blocks(page, "text"):
        assert [line for line in text.splitlines() if line not in printed] == [], (
            "\n".join(printed)
        )


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@named(PAGES)
def test_every_command_within_a_sentence_names_verbs_and_options_that_exist(
    page: Path,
) -> None:
    prose = FENCE.sub("", page.read_text("utf-8"))
    for quoted in re.findall(
        r"`((?:editjudge|make|pip install|python bench/|python -m bench)[^`]*)`", prose
    ):
        names_what_exists(quoted.replace("\n", " ").replace("|", " "))


@named(PAGES)
def test_no_snippet_hides_from_its_rule(page: Path) -> None:
    prose = FENCE.sub("", page.read_text("utf-8"))
    assert "```" not in prose
    assert not re.search(r"\n\n    \S", prose), (
        "indented code has no language, so no rule"
    )


# --- the pages themselves -------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(
        r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def links(page: Path) -> list[tuple[str, str]]:
    prose = re.sub(r"`[^`]*`", "", FENCE.sub("", page.read_text("utf-8")))
    return [
        (unquote(path), anchor)
        for path, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", prose)
    ]


@named(PAGES)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = set[Path]()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        linked = {
            (page.parent / path).resolve()
            for path, _ in links(page)
            if path.endswith(".md")
        }
        ahead += linked - reached
    assert set(PAGES) <= reached


@named(PAGES)
def test_tables_have_as_many_cells_in_every_row_and_pictures_say_what_they_show(
    page: Path,
) -> None:
    prose = FENCE.sub("", page.read_text("utf-8"))
    for table in re.findall(r"(?:^\|.*\n)+", prose, re.MULTILINE):
        rows = [len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", ""), row)))
                for row in table.splitlines()]  # fmt: skip
        assert len(set(rows)) == 1 and re.match(
            r"\|[\s:|-]+\|$", table.splitlines()[1]
        ), table
    assert [
        path
        for words, path in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", prose)
        if len(words) < 8
    ] == []


# --- examples -------------------------------------------------------------------------------------------------


EXAMPLES = sorted(ROOT.glob("examples/*.py"))
DEMO = ROOT / "examples" / "demo.py"
"""Run by its own tests, in probes/test_demo.py."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_short(example: Path) -> None:
    assert len(example.read_text("utf-8").splitlines()) <= 90


@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path != DEMO], ids=lambda path: path.name
)
def test_every_example_runs_with_what_the_readme_installs(example: Path) -> None:
    assert "editjudge.vision.probes" not in example.read_text("utf-8"), (
        "needs more than the README installs"
    )
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout, done.stderr


RUN_CELLS = """import json, sys
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), globals())
"""


@pytest.mark.parametrize(
    "book", sorted(ROOT.glob("examples/*.ipynb")), ids=lambda path: path.name
)
def test_every_notebook_is_its_example_and_its_cells_run(book: Path) -> None:
    code = "import json, pathlib, sys, notebooks; print(json.dumps(notebooks.notebook(pathlib.Path(sys.argv[1]))))"
    make = [sys.executable, "-c", code, f"{book.stem}.py"]
    written = subprocess.run(
        make, cwd=book.parent, capture_output=True, text=True, check=True
    )
    assert json.loads(book.read_text("utf-8")) == json.loads(written.stdout), (
        "run python examples/notebooks.py"
    )
    run = [sys.executable, "-c", RUN_CELLS, str(book)]
    done = subprocess.run(
        run, cwd=book.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout, done.stderr


def test_every_status_is_explained_and_the_failures_are_counted_right() -> None:
    running = (ROOT / "docs" / "running.md").read_text()
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", running, re.MULTILINE)[
        : len(STATUSES)
    ] == list(STATUSES)
    assert "one of eight statuses" in " ".join(readme.split())
    assert len(STATUSES) - len(DONE) == 8
