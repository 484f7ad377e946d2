"""Measures of how the package reads: `make house`, or `python -m bench.house [--json | --record]`.

A high figure is no verdict; it says where to look. Size is counted in tokens and difficulty in branches, since lines
can be packed. `tests/test_house.py` holds every figure to the lowest that was recorded in tests/house.json; `--record`
lowers the file to today's figures and raises none, `--json` prints the figures in the form of that file.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import token
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "editjudge"
RECORD = ROOT / "tests" / "house.json"

TOLERANCE = {"tokens": 0.01, "modules": 0.01, "classes": 0.01}
"""Share by which a measure of size may exceed its record, so that an ordinary fix is not held up. The others: none."""
LONG = 60
"""Lines of a function beyond which it counts as long."""

Figures = dict[str, float]

_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
    ast.comprehension,
    ast.BoolOp,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LAYOUT = frozenset(
    {
        token.COMMENT,
        token.DEDENT,
        token.ENCODING,
        token.ENDMARKER,
        token.INDENT,
        token.NEWLINE,
        token.NL,
    }
)
_RELATIVE_OPENER = re.compile(
    r"(Of|By|As|Where|Those|What|That|Who|Whose|Whatever|With which|In which|To be|Beyond)\b",
)


def measure(package: Path) -> Figures:
    """Return the figures of the Python files below a package's folder."""
    house = _House(package.name)
    for path in sorted(package.rglob("*.py")):
        house.add(
            path.relative_to(package).parts[0].removesuffix(".py"),
            path.read_text("utf-8"),
        )
    return house.figures()


def count_options(command: click.Command) -> int:
    """Return how many options the help of a command and of all commands below it lists."""
    total = sum(
        isinstance(parameter, click.Option) and not parameter.hidden
        for parameter in command.params
    )
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                total += count_options(below)
    return total


def measure_all() -> Figures:
    """Return the figures of editjudge with those of its command line."""
    from editjudge.cli import app

    figures = measure(PACKAGE)
    figures["options over all commands"] = count_options(app)
    return figures


def growth(figures: Figures, record: Figures) -> list[str]:
    """Return a line for each measure that exceeds its record by more than its tolerance."""
    lines = []
    for name, best in record.items():
        share = TOLERANCE.get(name, 0)
        if figures[name] <= best * (1 + share):
            continue
        grown = round(figures[name] - best, 1)
        allowed = f"; {share:.0%} more is allowed" if share else ""
        lines.append(
            f"{name}: {figures[name]:,}, which is {grown:,} more than the record of {best:,}{allowed}"
        )
    return lines


def lowered(figures: Figures, record: Figures) -> Figures:
    """Return the record with every figure that fell since, and with measures that are new to it."""
    return {
        name: min(figure, record.get(name, figure)) for name, figure in figures.items()
    }


class _House:
    """Counts over the modules that are added one by one."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._counts: Counter[str] = Counter()
        self._private: Counter[str] = Counter()
        self._mentions: Counter[str] = Counter()
        self._imports: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, noun: str, text: str) -> None:
        """Count a module of the package or of its subpackage `noun`."""
        tree = ast.parse(text)
        self._counts["modules"] += 1
        documentation = set()
        for node in ast.walk(tree):
            self._count_node(node)
            if isinstance(node, ast.Expr) and (string := _string_of(node)) is not None:
                documentation.add((node.lineno, node.col_offset))
                self._counts["relative openers"] += bool(
                    _RELATIVE_OPENER.match(string.strip())
                )
            self._imports[noun].update(_imported_nouns(node, self._package))
        self._count_tokens(text, documentation)
        for statement in tree.body:
            if (
                isinstance(statement, _FUNCTIONS)
                and statement.name.startswith("_")
                and not statement.decorator_list
            ):
                self._private[statement.name] += 1

    def figures(self) -> Figures:
        counts = self._counts
        once = [
            name
            for name, made in self._private.items()
            if made == 1 and self._mentions[name] == 1
        ]
        return {
            "tokens": counts["tokens"],
            "tokens a code line": _ratio(counts["tokens"], counts["code lines"]),
            "branches per 1,000 tokens": _ratio(
                1000 * counts["branches"], counts["tokens"]
            ),
            "modules": counts["modules"],
            "classes": counts["classes"],
            "packed assignments": counts["packed assignments"],
            "private module functions called once": len(once),
            "nested conditional expressions": counts["nested conditional expressions"],
            "functions over 60 lines": counts["long functions"],
            "getattr or hasattr with a literal name": counts["literal names"],
            "docstrings that open with a relative word": counts["relative openers"],
            "uses of Any": counts["uses of Any"],
            "pairs of packages that import each other": len(self._mutual_imports()),
        }

    def _count_tokens(self, text: str, documentation: set[tuple[int, int]]) -> None:
        lines: set[int] = set()
        for start, end in _code_tokens(text):
            if start in documentation:
                continue
            self._counts["tokens"] += 1
            lines.update(range(start[0], end[0] + 1))
        self._counts["code lines"] += len(lines)

    def _count_node(self, node: ast.AST) -> None:
        counts = self._counts
        counts["branches"] += isinstance(node, _BRANCHES)
        counts["classes"] += isinstance(node, ast.ClassDef)
        if isinstance(node, _FUNCTIONS):
            counts["long functions"] += (
                node.end_lineno or node.lineno
            ) - node.lineno >= LONG
        elif isinstance(node, ast.Assign):
            counts["packed assignments"] += isinstance(
                node.targets[0], ast.Tuple
            ) and isinstance(node.value, ast.Tuple)
        elif isinstance(node, ast.IfExp):
            parts = (node.test, node.body, node.orelse)
            counts["nested conditional expressions"] += sum(
                isinstance(part, ast.IfExp) for part in parts
            )
        elif isinstance(node, ast.Call):
            counts["literal names"] += _asks_for_literal_attribute(node)
        elif isinstance(node, ast.Name):
            counts["uses of Any"] += node.id == "Any"
            self._mentions[node.id] += 1
        elif isinstance(node, ast.Attribute):
            self._mentions[node.attr] += 1
        elif isinstance(node, ast.ImportFrom):
            self._mentions.update(alias.name for alias in node.names)

    def _mutual_imports(self) -> set[tuple[str, str]]:
        pairs = set()
        for noun, others in self._imports.items():
            for other in others:
                if noun < other and noun in self._imports.get(other, ()):
                    pairs.add((noun, other))
        return pairs


def _ratio(part: float, total: int) -> float:
    """Return a ratio to one decimal: finer differences come and go with any change."""
    return round(part / total, 1) if total else 0.0


def _string_of(statement: ast.Expr) -> str | None:
    """Return the text of a statement that is a string and nothing else: documentation, and no code."""
    if isinstance(statement.value, ast.Constant) and isinstance(
        statement.value.value, str
    ):
        return statement.value.value
    return None


def _code_tokens(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield start and end of each token. An f-string is one token, as Python 3.11 has it; later versions divide it."""
    opening = getattr(token, "FSTRING_START", None)
    closing = getattr(token, "FSTRING_END", None)
    depth = 0
    start = (0, 0)
    for piece in tokenize.generate_tokens(io.StringIO(text).readline):
        if piece.type == opening:
            if depth == 0:
                start = piece.start
            depth += 1
        elif piece.type == closing:
            depth -= 1
            if depth == 0:
                yield start, piece.end
        elif depth == 0 and piece.type not in _LAYOUT:
            yield piece.start, piece.end


def _asks_for_literal_attribute(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Name) or call.func.id not in (
        "getattr",
        "hasattr",
    ):
        return False
    return len(call.args) > 1 and isinstance(call.args[1], ast.Constant)


def _imported_nouns(node: ast.AST, package: str) -> Iterator[str]:
    """Yield the modules and subpackages directly below the package that an import names."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == package:
        names = [f"{package}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module]
    for name in names:
        parts = name.split(".")
        if parts[0] == package and len(parts) > 1:
            yield parts[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.house", description="Print the measures of the package."
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--json", action="store_true", help="in the form of tests/house.json"
    )
    how.add_argument(
        "--record",
        action="store_true",
        help="lower tests/house.json to the figures that fell",
    )
    chosen = parser.parse_args()
    figures = measure_all()
    if chosen.json:
        print(json.dumps(figures, indent=1))
        return
    record: Figures = json.loads(RECORD.read_text("utf-8"))
    if chosen.record:
        RECORD.write_text(
            json.dumps(lowered(figures, record), indent=1) + "\n", "utf-8"
        )
    for name, figure in figures.items():
        print(f"{figure:>10,}  {name} (record: {record.get(name, figure):,})")
    for line in growth(figures, record):
        print(f"grown: {line}")


if __name__ == "__main__":
    main()
