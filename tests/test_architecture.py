"""The direction of the architecture: nothing imports what stands to its right, and heavy things are imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "editjudge"

MAY_IMPORT = {
    "errors": set(),
    "edit": {"errors"},
    "content": set(),
    "orders": {"errors"},
    "media": {"edit", "errors"},
    "manifest": {"edit", "errors", "measured", "media"},
    "rubrics": {"edit", "errors"},
    "judgement": {"rubrics"},
    "judges": {"edit", "errors", "judgement", "measured", "media", "metrics", "orders", "rubrics"},
    "measured": {"edit", "errors", "judgement", "judges", "media", "rubrics"},
    "metrics": {"edit", "errors", "judgement", "judges", "measured", "media", "rubrics"},
    "store": {"content", "edit", "errors", "judgement", "orders", "rubrics"},
    "run": {
        *("cluster", "content", "edit", "errors", "judgement", "judges", "manifest", "measured", "media"),
        *("orders", "rubrics", "store"),
    },
    "cluster": {"content", "edit", "errors", "judgement", "judges", "manifest", "media", "rubrics", "run", "store"},
    "stats": {"errors", "orders"},
    "ratings": {"errors", "manifest", "stats"},
    "report": {
        *("content", "edit", "errors", "judgement", "measured", "media", "orders", "ratings", "rubrics", "run"),
        *("stats", "store"),
    },
    "probes": {
        *("edit", "errors", "judgement", "judges", "measured", "media", "report", "rubrics", "run", "stats", "store"),
    },
    "web": {
        *("content", "edit", "errors", "judgement", "judges", "measured", "media", "orders", "probes"),
        *("ratings", "report", "rubrics", "run", "stats", "store"),
    },
    "api": {"edit", "errors", "judgement", "judges", "rubrics", "run", "store"},
    "integrations": {"api", "errors", "judgement", "judges", "rubrics", "stats", "store"},
    "conformance": {"errors", "web"},
    "testing": {"integrations"},
    "inspection": {"integrations"},
}
"""Each noun and those it may know; `cli` sits above all of them."""

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
    beyond = set(imported(path)) - MAY_IMPORT[noun] - {noun}
    assert not beyond, f"{path.name} imports {beyond}"


@pytest.mark.parametrize("statement", ["import editjudge", "import editjudge.cli"])
def test_importing_the_package_imports_nothing_heavy(statement: str) -> None:
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
