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
from typing import NamedTuple

import pytest

from editjudge.running.job import Job, RunOptions, execute
from editjudge.running.progress import ProgressLines
from editjudge.store.store import Store
from tests.running.made import SPECS, edits, stub

PACKAGE = Path(__file__).parents[1] / "editjudge"

LAYERS = """
errors < canonical < files, orders, plugins, redaction, values < edit < matching < rubrics < judgement < media < manifest
< judges < store < running < stats < ratings < report < web, api < vision, cluster < rewards < integrations < cli
"""
"""Each noun imports those before it alone."""

RANK = {
    noun.strip(): rank
    for rank, layer in enumerate(LAYERS.split("<"))
    for noun in layer.split(",")
}

FORMER = {"conformance", "inspection", "measured", "testing"}
"""Modules that only keep a former or a public name alive."""

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
        if noun not in {"__init__", "__main__", *FORMER}:
            yield noun, path


def imported(path: Path) -> Iterator[str]:
    """The nouns of ours that a file imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [
                node.module,
                *(f"{node.module}.{alias.name}" for alias in node.names),
            ]
        for name in names:
            package, _, rest = name.partition(".")
            noun = PACKAGE / rest.split(".")[0]
            if (
                package == "editjudge"
                and rest
                and (noun.is_dir() or noun.with_suffix(".py").exists())
            ):
                yield noun.name


@pytest.mark.parametrize(
    ("noun", "path"),
    [pytest.param(n, p, id=str(p.relative_to(PACKAGE))) for n, p in modules()],
)
def test_a_module_imports_only_what_stands_before_it(noun: str, path: Path) -> None:
    assert noun in RANK, f"{noun} is in no layer yet"
    beyond = {other for other in imported(path) if RANK.get(other, -1) >= RANK[noun]}
    beyond -= {noun}
    assert beyond == set()


def imports_by_module() -> dict[str, set[str]]:
    """The modules of ours that each module imports, anywhere in the file, by their names inside the package."""
    paths = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py")
    }
    names = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    imports: dict[str, set[str]] = {}
    for name, path in names.items():
        imports[name] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            targets = []
            if isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [t if inside(t) in names else node.module for t in targets]
            elif isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            imports[name] |= {inside(t) for t in targets} & (names.keys() - {name})
    return imports


def inside(name: str) -> str:
    package, _, rest = name.partition(".")
    return rest if package == "editjudge" else ""


def reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """All modules that a module imports, also through others."""
    seen = set[str]()
    waiting = [start]
    while waiting:
        new = imports[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def test_no_modules_import_each_other() -> None:
    imports = imports_by_module()
    far = {name: reached(name, imports) for name in imports}
    cycles = {
        frozenset(other for other in far[name] if name in far[other])
        for name in imports
        if name in far[name]
    }
    assert cycles == set()


def private_names(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, what it is taken from, and the name, of every private name that a module takes from elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.lineno, ast.unparse(node.value), node.attr
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "editjudge"
        ):
            yield from (
                (node.lineno, node.module or "", name.name)
                for name in node.names
                if is_private(name.name)
            )


def is_private(name: str) -> bool:
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name not in {"_asdict", "_fields", "_replace"}
    )


def defined_names(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(
            node.ctx, ast.Store
        ):
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
            if owner not in ("self", "cls") and (
                name not in by_noun[noun] or of_a_store or of_another
            ):
                wrong.append(f"{path.relative_to(PACKAGE)}:{line}: {owner}.{name}")
    assert wrong == []


def noun_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("statement", ["import editjudge", "import editjudge.cli"])
def test_importing_the_package_imports_nothing_heavy(statement: str) -> None:
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(
                    str(path.relative_to(PACKAGE))
                )
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_templates_are_set_up_in_one_module() -> None:
    """Escaping and the refusal of missing values are decided once, for reports and for the browser."""
    making = [
        path
        for path in PACKAGE.rglob("*.py")
        if re.search(r"jinja2\.Environment\(", path.read_text("utf-8"))
    ]
    assert [str(path.relative_to(PACKAGE)) for path in making] == [
        "report/templating.py"
    ]


def test_json_is_hashed_in_one_place() -> None:
    """Two spellings of one value are two hashes: whoever writes one by hand makes keys that nobody else finds."""
    hashing = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(
            r"sha256\([^\n]*json\.dumps|canonical = json\.dumps",
            path.read_text("utf-8"),
        )
    ]
    assert hashing == []


MODULE = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*)`")
WALKS = (
    (Path(__file__).parents[1] / "docs" / "architecture.md")
    .read_text("utf-8")
    .split("\n## ")
)


def walk_of(title: str) -> str:
    return next(text for text in WALKS if text.startswith(title))


@pytest.mark.parametrize(
    "title",
    [
        "One edit, from manifest to report",
        "One reward request",
        "One measured judgement",
    ],
)
def test_every_module_and_class_of_a_walk_exists(title: str) -> None:
    walk = walk_of(title)
    modules = set(MODULE.findall(walk)) - {"null"}
    assert [
        name
        for name in modules
        if not (PACKAGE / f"{name.replace('.', '/')}.py").is_file()
    ] == []
    classes = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.M)
    }
    assert set(re.findall(r"`([A-Z]\w+)`", walk)) <= classes


def test_the_walk_names_every_module_that_a_run_calls_for_each_edit(
    per_edit: tuple[set[str], set[str]],
) -> None:
    modules, _ = per_edit
    named = {*MODULE.findall(walk_of("One edit"))}
    assert {"manifest.reader", "judges.chat", "rubrics.contract"} <= modules
    assert modules <= named
    # Which of the named ones are called depends on the pace: the bound is on the walk.
    assert len(named) <= 40


def test_an_edit_takes_few_shapes_on_its_way_into_the_store(
    per_edit: tuple[set[str], set[str]],
) -> None:
    """Every class of ours that is made anew for each edit, whatever a document says."""
    _, shapes = per_edit
    assert {"Edit", "Question", "Verdict", "Judgement"} <= shapes
    assert len(shapes) <= 29, sorted(shapes)


@pytest.fixture(scope="module")
def per_edit(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], set[str]]:
    """Modules called and classes made for each edit: so many more edits do so as many times more.

    What runs by the clock (commits, claims, progress) may do so once on a busy machine, and not in two pairs of runs.
    """
    folder = tmp_path_factory.mktemp("traced")
    traces = {n: trace_of_a_run(folder / str(n), n) for n in (4, 8, 12, 20)}
    functions = set(traces[8].calls)
    shapes = set(traces[8].made)
    for few, many in ((4, 8), (12, 20)):
        calls = traces[many].calls - traces[few].calls
        functions &= {function for function, n in calls.items() if n >= many - few}
        made = traces[many].made - traces[few].made
        shapes &= {name for name, n in made.items() if n >= many - few}
    return {module for module, _ in functions}, shapes


class Trace(NamedTuple):
    calls: Counter[tuple[str, str]]
    """Calls of each named function of the package, by module."""
    made: Counter[str]
    """Objects of each class of the package."""


def trace_of_a_run(folder: Path, count: int) -> Trace:
    trace = Trace(Counter(), Counter())
    modules = {
        str(path): ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
    }

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        module = modules.get(code.co_filename)
        if module and "<" not in code.co_name:
            trace.calls[module, code.co_name] += 1
        # Dataclasses and named tuples have generated code without a file.
        if code.co_name == "__init__" and code.co_varnames[:1] == ("self",):
            made = type(frame.f_locals["self"])
        elif code.co_name == "__new__" and code.co_varnames[:1] == ("_cls",):
            made = frame.f_locals["_cls"]
        else:
            return
        if made.__module__.startswith("editjudge."):
            trace.made[made.__name__] += 1

    job = Job(edits(folder, count), ("fidelity",), (SPECS["openai"],))
    with stub(), Store.open(str(folder / "s.db")) as store:
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            outcome = asyncio.run(
                execute(job, store, RunOptions(observe=ProgressLines()))
            )
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert outcome.summary.statuses == {"ok": count}
    return trace
