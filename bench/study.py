"""How far judges agree with people by the built-in rubrics: the released answers and ratings of a published study.

    python -m bench.study CHECKOUT [--rubric online|reference]

CHECKOUT is a clone of mllmasajudge-anonymous/MLLM-as-a-Judge. Its judges' answers become recorded replies, which are
read by the contract of the rubric, and its people's ratings are compared with the scores: `editjudge run --judge
replay:FILE` and `editjudge agree`, in a temporary folder. Prints one Markdown table.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SETUPS = {
    "all factors at once": "main",
    "by category": "category_wise",
    "with a rubric for each factor": "factor_level_rubrics",
    "the same, Gemini": "factor_level_rubrics_gemini",
}
"""Columns of the table, and the ends of the names of the files with their answers."""
FACTORS = {
    "texture_detail": "texture_and_detail",
    "color_lighting": "color_and_lighting",
}
"""Factors that the table of ratings names differently."""
ENVELOPES = {"online": "online_factor_results", "reference": "offline_factor_results"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rubric", choices=ENVELOPES, default="online")
    arguments = parser.parse_args()
    results = arguments.checkout / "results"
    if not results.is_dir():
        sys.exit(f"{results}: no such folder; expected a checkout of the study")
    with TemporaryDirectory() as folder:
        print("\n".join(table(agreement(results, arguments.rubric, Path(folder)))))


def agreement(results: Path, rubric: str, folder: Path) -> dict[str, Any]:
    """Return what `agree --json` says of the recorded answers to a rubric."""
    table_of_people = results / "Human_Evaluation" / "human_eval_results_latest.csv"
    with table_of_people.open(newline="", encoding="utf-8") as file:
        ratings = list(csv.DictReader(file))
    instructions = {row["task_id"]: row["instruction"] for row in ratings}
    _write_lines(
        folder / "edits.jsonl",
        (
            {
                "id": name,
                "input": f"{name}-input.png",
                "edited": f"{name}.png",
                "ground_truth": f"{name}-target.png",
                "instruction": text,
                "group": name,
            }
            for name, text in instructions.items()
        ),
    )
    with (folder / "ratings.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["item", "rater", "factor", "score"])
        for row in ratings:
            for factor in row["factors_order"].split("|"):
                name = FACTORS.get(factor, factor)
                writer.writerow(
                    [row["task_id"], row["annotator_id"], name, row[factor]]
                )
    judges = []
    for setup in SETUPS.values():
        answers = results / "Traditional_metrics"
        answers /= f"judge_evaluations_all_{setup}.jsonl"
        replies = _replies(answers, rubric, instructions)
        _write_lines(folder / f"{setup}.jsonl", replies)
        judges += ["--judge", f"replay:{setup}.jsonl"]
    fused = ["--fuse"] if rubric == "online" else []
    asked = ["--name", "study", "--rubric", rubric, *judges, *fused]
    _editjudge(folder, "run", "edits.jsonl", *asked)
    return _editjudge(folder, "agree", "--ratings", "ratings.csv", "study")


def _replies(answers: Path, rubric: str, names: dict[str, str]) -> Iterator[object]:
    """Yield the recorded replies about the edits that people rated."""
    envelope = ENVELOPES[rubric]
    for line in answers.read_text("utf-8").splitlines():
        row = json.loads(line)
        name = row["image_id"]
        if name in names:
            answer = {"image_id": name, envelope: row[envelope]}
            yield {"item": name, "rubric": rubric, "reply": json.dumps(answer)}


def _write_lines(path: Path, rows: Iterator[object]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


def _editjudge(folder: Path, verb: str, *words: str) -> dict[str, Any]:
    if verb == "run":
        words = (*words, "--quiet", "--max-failures", "1")
    command = [sys.executable, "-m", "editjudge", verb, *words, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def table(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a Markdown table: Spearman's correlation with people's mean, and its interval."""
    yield f"| factor | a further rater | {' | '.join(SETUPS)} |"
    yield "|---|" + "--:|" * (1 + len(SETUPS))
    for factor, judges in document["factors"].items():
        people = document["humans"][factor]["further_rater"]
        cells = [_cell(people["spearman"], people["ci"]["spearman"])]
        for setup in SETUPS.values():
            row = judges[f"replay:{setup}.jsonl"]
            cells.append(_cell(row["spearman"], row["ci"]["spearman"]))
        yield f"| {factor} | {' | '.join(cells)} |"


def _cell(figure: float | None, interval: list[float] | None) -> str:
    if figure is None or interval is None:
        return "none"
    low, high = interval
    return f"{figure:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
