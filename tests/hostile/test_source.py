"""The source itself: runs no stranger's bytes, does nothing by being imported; and what its page says is true."""

from __future__ import annotations

import ast
import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "editjudge").rglob("*.py"))
PAGE = ROOT / "docs" / "reliability.md"

IMPORTED = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "telnetlib",
    "xmlrpc",
    "imp",
}
CALLED = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "os.execvp", "os.spawnv",
          "yaml.load", "yaml.unsafe_load", "yaml.full_load", "tempfile.mktemp", "subprocess.getoutput",
          "pandas.read_pickle", "np.load", "numpy.load", "torch.load"}  # fmt: skip
"""Each runs what it is given, or may."""
NAMED = {("np.load", "allow_pickle=False"), ("numpy.load", "allow_pickle=False")}
PICKLED = ROOT / "editjudge" / "rewards" / "pickled.py"
"""The one module that reads pickles, by opcodes of plain values alone."""
WORKERS = ROOT / "editjudge" / "judges" / "workers.py"
"""Passes edits and answers to processes that it started itself, through pipes that nobody else can write to."""
QUIET = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def runs_strangers_bytes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                alias.name
                for alias in node.names
                if alias.name.split(".")[0] in IMPORTED
            )
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] in IMPORTED
        ):
            yield str(node.module)
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            options = {f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords}
            if called in CALLED and not any(
                (called, option) in NAMED for option in options
            ):
                yield f"{called} on line {node.lineno}"
            if "shell=True" in options:
                yield f"a shell on line {node.lineno}"


def happens_on_import(tree: ast.Module) -> Iterator[str]:
    """Statements of a module that are neither definitions, imports, constants nor decorated commands."""
    for node in tree.body:
        if isinstance(node, QUIET) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in (
            "TYPE_CHECKING",
            "__name__ == '__main__'",
            "sys.platform == 'win32'",
        ):
            continue
        if isinstance(node, ast.Try) and all(
            isinstance(inner, ast.Import | ast.ImportFrom) for inner in node.body
        ):
            continue  # an extra that may be missing
        yield f"line {node.lineno}: {ast.unparse(node)[:80]}"


def test_the_check_itself_finds_what_it_looks_for() -> None:
    bad = "import pickle\neval('1')\nos.system('x')\nsubprocess.run('x', shell=True)\nyaml.load(x)\nnumpy.load(x)"
    assert len(list(runs_strangers_bytes(ast.parse(bad)))) == 6
    assert (
        len(
            list(
                happens_on_import(ast.parse("x = 1\nprint(x)\nfor _ in ():\n    pass"))
            )
        )
        == 2
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_runs_no_strangers_bytes_and_does_nothing_by_being_imported(
    path: Path,
) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert list(runs_strangers_bytes(tree)) == (
        ["pickle"] if path in (PICKLED, WORKERS) else []
    )
    if path == PICKLED:  # `pickle.load` and `pickle.loads` are not among them
        used = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and dotted(node.value) == "pickle"
        }
        assert used == {"dumps", "Unpickler", "UnpicklingError"}
    if path.name != "__main__.py":
        assert list(happens_on_import(tree)) == []


# --- the page -------------------------------------------------------------------------------------------------


def test_every_place_that_the_page_names_exists() -> None:
    places = re.findall(r"`((?:tests|fuzz)/[\w/.]*)`", PAGE.read_text("utf-8"))
    assert len(places) > 8
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_every_dependency_has_a_licence_on_its_page() -> None:
    page = (ROOT / "docs" / "licences.md").read_text("utf-8")
    needed = {
        name[0]
        for requirement in importlib.metadata.requires("editjudge") or ()
        if "extra ==" not in requirement and (name := re.match(r"[\w.-]+", requirement))
    }
    assert len(needed) >= 7
    assert [name for name in needed if f"| {name} |" not in page] == []
