"""The direction of the architecture: nothing imports what stands to its right, and heavy things are imported late."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from run.made import SPECS, edits, stub

from editjudge.run.job import Job, RunOptions, execute
from editjudge.run.progress import ProgressLines
from editjudge.store.store import Store

PACKAGE = Path(__file__).parents[1] / "editjudge"

MAY_IMPORT = {
    "errors": set(),
    "canonical": set(),
    "redaction": set(),
    "values": set(),
    "files": {"errors"},
    "edit": {"errors"},
    "arguments": {"errors"},
    "orders": {"errors"},
    "media": {"edit", "errors"},
    "manifest": {"edit", "errors", "measured", "media"},
    "rubrics": {"edit", "errors"},
    "judgement": {"rubrics"},
    "judges": {"edit", "errors", "judgement", "measured", "media", "metrics", "orders", "rubrics"},
    "measured": {"edit", "errors", "judgement", "judges", "media", "rubrics"},
    "metrics": {"edit", "errors", "judgement", "judges", "measured", "media", "rubrics"},
    "store": {"edit", "errors", "judgement", "orders", "rubrics"},
    "run": {
        *("cluster", "edit", "errors", "judgement", "judges", "manifest", "measured", "media"),
        *("orders", "rubrics", "store"),
    },
    "cluster": {"edit", "errors", "judgement", "judges", "manifest", "media", "rubrics", "run", "store"},
    "stats": {"errors", "orders"},
    "ratings": {"errors", "manifest", "orders", "stats"},
    "report": {
        *(
            "arguments",
            "edit",
            "errors",
            "judgement",
            "measured",
            "media",
            "orders",
            "ratings",
            "rubrics",
            "run",
        ),
        *("stats", "store"),
    },
    "probes": {
        *("edit", "errors", "judgement", "judges", "measured", "media", "report", "rubrics", "run", "stats", "store"),
    },
    "web": {
        *("edit", "errors", "judgement", "judges", "measured", "media", "orders", "probes"),
        *("pickled", "ratings", "report", "rubrics", "run", "stats", "store"),
    },
    "api": {
        *("arguments", "edit", "errors", "judgement", "judges", "manifest", "media", "report", "rubrics", "run"),
        "store",
    },
    "integrations": {
        *("api", "edit", "errors", "judgement", "judges", "measured", "media", "pickled", "rubrics", "run", "stats"),
        *("store", "web"),
    },
    "conformance": {"errors", "pickled", "web"},
    "pickled": set(),
    "testing": {"integrations"},
    "inspection": {"integrations"},
}
"""Each noun and those it may know; `cli` sits above all of them."""

ANYBODY = {"canonical", "files", "redaction", "values"}
"""Functions over values and files, which know nothing of ours but errors: anybody may use them."""

HEAVY = (
    "aiohttp",
    "jinja2",
    "numpy",
    "PIL",
    "pyarrow",
    "pydantic",
    "ray",
    "rich",
    "scipy",
    "sqlalchemy",
    "starlette",
    "yaml",
)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        noun = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if noun not in ("cli", "__init__", "__main__"):
            yield noun, path


def imported(path: Path) -> Iterator[str]:
    """The nouns of ours that a file imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            package, _, rest = name.partition(".")
            noun = PACKAGE / rest.split(".")[0]
            if package == "editjudge" and rest and (noun.is_dir() or noun.with_suffix(".py").exists()):
                yield noun.name


@pytest.mark.parametrize(("noun", "path"), [pytest.param(n, p, id=str(p.relative_to(PACKAGE))) for n, p in modules()])
def test_a_module_imports_only_what_stands_before_it(noun: str, path: Path) -> None:
    assert noun in MAY_IMPORT, f"{noun} has no place in the architecture yet"
    beyond = set(imported(path)) - MAY_IMPORT[noun] - ANYBODY - {noun}
    assert not beyond, f"{path.name} imports {beyond}"


def private_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, what it is taken from, and the name, of every private name that a module takes from elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.lineno, ast.unparse(node.value), node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("editjudge"):
            yield from ((node.lineno, node.module or "", name.name) for name in node.names if is_private(name.name))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in {"_asdict", "_fields", "_replace"}


def defined_names(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def test_no_module_uses_a_private_name_of_another_package() -> None:
    """A package is entered by its front door. `self` and `cls` are one's own; any other private attribute has to be one
    that the package defines, and a private name is imported inside its own package alone."""
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    by_noun: dict[str, set[str]] = {}
    for path, tree in trees.items():
        by_noun.setdefault(noun_of(path), set()).update(defined_names(tree))
    wrong = []
    for path, tree in trees.items():
        noun = noun_of(path)
        for line, owner, name in private_names(tree):
            of_a_store = re.search(r"\b_?store$", owner) and noun != "store"
            of_another = owner.startswith("editjudge.") and owner.split(".")[1] != noun
            if owner not in ("self", "cls") and (name not in by_noun[noun] or of_a_store or of_another):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {owner}.{name}")
    assert wrong == []


def noun_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("statement", ["import editjudge", "import editjudge.cli"])
def test_importing_the_package_imports_nothing_heavy(statement: str) -> None:
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_templates_are_set_up_in_one_module() -> None:
    """Escaping and the refusal of missing values are decided once, for reports and for the browser."""
    making = [path for path in PACKAGE.rglob("*.py") if re.search(r"jinja2\.Environment\(", path.read_text("utf-8"))]
    assert [str(path.relative_to(PACKAGE)) for path in making] == ["report/templating.py"]


def test_json_is_hashed_in_one_place() -> None:
    """Two spellings of one value are two hashes: whoever writes one by hand makes keys that nobody else finds."""
    hashing = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"sha256\([^\n]*json\.dumps|canonical = json\.dumps", path.read_text("utf-8"))
    ]
    assert hashing == []


MODULE = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)`")
WALKS = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text("utf-8").split("\n## ")


def walk_of(title: str) -> str:
    return next(text for text in WALKS if text.startswith(title))


@pytest.mark.parametrize("title", ["One edit, from manifest to report", "One reward request", "One measured judgement"])
def test_every_module_and_class_of_a_walk_exists(title: str) -> None:
    walk = walk_of(title)
    modules = set(MODULE.findall(walk)) - {"null"}
    assert [name for name in modules if not (PACKAGE / f"{name.replace('.', '/')}.py").is_file()] == []
    classes = {
        name for path in PACKAGE.rglob("*.py") for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.M)
    }
    assert set(re.findall(r"`([A-Z]\w+)`", walk)) <= classes


def test_the_walk_names_every_module_that_a_run_calls_for_each_edit(tmp_path: Path) -> None:
    """A function is called for each edit if four more edits call it four times more."""
    few, many = (calls_of_a_run(tmp_path / str(count), count) for count in (4, 8))
    passed = {module for (module, name), count in many.items() if count - few[module, name] >= 4}
    assert {"manifest.reader", "run.plan", "judges.chat", "rubrics.contract", "store.store"} <= passed
    assert passed <= {*MODULE.findall(walk_of("One edit"))}
    assert len(passed - ANYBODY) <= 30


def calls_of_a_run(folder: Path, count: int) -> Counter[tuple[str, str]]:
    """How often each named function of the package was called, by module."""
    calls: Counter[tuple[str, str]] = Counter()
    modules = {str(path): ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (module := modules.get(frame.f_code.co_filename)) and "<" not in frame.f_code.co_name:
            calls[module, frame.f_code.co_name] += 1

    job = Job(edits(folder, count), ("fidelity",), (SPECS["openai"],))
    with stub(), Store.open(str(folder / "s.db")) as store:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            outcome = asyncio.run(execute(job, store, RunOptions(observe=ProgressLines())))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert outcome.summary.statuses == {"ok": count}
    return calls
