"""Write the examples as notebooks: `python examples/notebooks.py`. A line `# %% words` begins a cell."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
EXAMPLES = ("judge_one_edit", "compare_two_models", "agree_with_people")


def notebook(example: Path) -> dict[str, Any]:
    """A cell of words and one of code for each part; without outputs, so that only the example is the source."""
    text = example.read_text("utf-8")
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str) -> None:
        more = {"execution_count": None, "outputs": []} if kind == "code" else {}
        lines = source.strip().splitlines(keepends=True)
        cells.append(
            {
                "cell_type": kind,
                "id": f"cell-{len(cells)}",
                "metadata": {},
                **more,
                "source": lines,
            }
        )

    add("markdown", "# " + (ast.get_docstring(ast.parse(text)) or ""))
    for part in text.split("# %% ")[1:]:
        words, _, code = part.partition("\n")
        add("markdown", words)
        add("code", code)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


if __name__ == "__main__":
    for name in EXAMPLES:
        content = json.dumps(notebook(FOLDER / f"{name}.py"), indent=1) + "\n"
        (FOLDER / f"{name}.ipynb").write_text(content, "utf-8")
        print(f"wrote {name}.ipynb")
