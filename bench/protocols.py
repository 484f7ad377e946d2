"""Recompute what benchmarks published, from the answers that they released, through replay and our formulas.

    python bench/protocols.py --from FOLDER [--only viescore,twelve]

FOLDER holds checkouts of the benchmarks' repositories, each under its own name. Each released answer goes through the
contract of the imported set as a live reply would, and the set's score is compared, edit by edit, with the one that the
benchmark's own arithmetic gives. Prints one JSON document. What differs is counted by its reason. The repositories are
not part of this project; one that is not there is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import editjudge
from editjudge.judgement import JudgementRow
from editjudge.orders import read_choice
from editjudge.rubrics.recipe import import_checkout, load_recipe
from editjudge.rubrics.strict_yaml import dump_plain
from editjudge.store.records import RunRecord
from editjudge.store.scores import run_set_scores
from editjudge.store.store import Store

Reply = tuple[str, str, str]
"""Item, rubric, text."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from", dest="folder", type=Path, required=True, help="folder of checkouts"
    )
    parser.add_argument(
        "--only", default="", help="names of protocols, with commas between them"
    )
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(PROTOCOLS)
    results: dict[str, Any] = {}
    for name in wanted:
        repository, recompute = PROTOCOLS[name]
        checkout = options.folder / repository
        if not checkout.is_dir():
            print(f"{checkout}: no checkout, left out", file=sys.stderr)
            continue
        results[name] = list(recompute(checkout))
    print(json.dumps(results, indent=2))


def viescore(checkout: Path) -> Iterator[dict[str, Any]]:
    """Text-guided editing: eight models of ImagenHub, by three judges; O is the root of the product of both minima."""
    printed = _notebook_means(checkout / "paper_implementation" / "analyze_json.ipynb")
    for judge in ("gemini", "gpt4o", "gpt4v"):
        answers = (
            checkout
            / "paper_implementation"
            / "_answers"
            / f"results_{judge}_0shot"
            / "ImagenHub_Text-Guided_IE"
        )
        replies: list[Reply] = []
        expected: dict[str, float] = {}
        for model in sorted(path.name for path in answers.iterdir()):
            both = {
                kind: json.loads((answers / model / f"{kind}.json").read_bytes())
                for kind in ("SC", "PQ")
            }
            for uid in sorted(both["SC"].keys() & both["PQ"].keys()):
                item = f"{model}/{uid}"
                replies += [(item, kind, _as_reply(both[kind][uid])) for kind in both]
                expected[item] = 10 * math.sqrt(
                    math.prod(_lowest(both[kind][uid]["score"]) for kind in both)
                )
        scores, reasons = _replayed("viescore", checkout, replies)
        values = {item: scores[item]["overall"] for item in expected}
        result = _compared(f"{judge}, zero-shot", expected, values, reasons)
        if judge == "gemini":
            ours = _means(values, lambda item: item.partition("/")[0])
            result["means_of_the_released_notebook"] = {
                model: {"printed": printed.get(model), "ours": round(mean / 10, 4)}
                for model, mean in ours.items()
            }
        yield result


def _as_reply(answer: Mapping[str, Any]) -> str:
    """The release keeps what was read out of a reply, under the keys that the prompt asks for."""
    return json.dumps(
        {key: answer[key] for key in ("score", "reasoning") if key in answer}
    )


def _lowest(score: Any) -> float:
    """As the released notebook takes it, from 0 to 1."""
    lowest = score if isinstance(score, int | float) else min(int(one) for one in score)
    return min(1.0, max(0.0, lowest / 10.0))


def _notebook_means(path: Path) -> dict[str, float]:
    """Of each model, the mean O that the notebook printed for text-guided editing by Gemini."""
    printed: dict[str, float] = {}
    for cell in json.loads(path.read_bytes())["cells"]:
        text = "".join(
            line
            for output in cell.get("outputs", ())
            for line in output.get("text", ())
        )
        part = text.partition("ImagenHub_Text-Guided_IE")[2].partition(
            "===============>"
        )[0]
        for model, mean in re.findall(
            r"======> (\S+) :.*?O \| mean:\s+([\d.]+)", part, re.DOTALL
        ):
            printed.setdefault(model, float(mean))
    return printed


def twelve(checkout: Path) -> Iterator[dict[str, Any]]:
    """The twelve factors of each setting, against the input picture; means by category and overall."""
    settings = {
        "twelve-all-online": "main",
        "twelve-category-online": "category_wise",
        "twelve-factor-online": "factor_level_rubrics",
    }
    for recipe, file in settings.items():
        path = (
            checkout
            / "results"
            / "Traditional_metrics"
            / f"judge_evaluations_all_{file}.jsonl"
        )
        rubrics: Sequence[Any] = load_recipe(recipe).rubrics
        replies = []
        expected = {}
        for row in map(json.loads, path.read_text("utf-8").splitlines()):
            factors = row.get("online_factor_results")
            if not isinstance(factors, dict):
                continue
            for rubric in rubrics:
                keys = [factor["key"] for factor in rubric["factors"]]
                answer = {
                    "online_factor_results": {
                        key: factors[key] for key in keys if key in factors
                    }
                }
                replies.append(
                    (
                        row["image_id"],
                        rubric["name"],
                        json.dumps({"image_id": row["image_id"], **answer}),
                    )
                )
            numbers = [entry.get("score") for entry in factors.values()]
            if len(numbers) == 12 and all(
                isinstance(number, int | float) for number in numbers
            ):
                expected[row["image_id"]] = sum(numbers) / 12
        scores, reasons = _replayed(recipe, checkout, replies)
        values = {item: scores.get(item, {}).get("overall") for item in expected}
        yield _compared(recipe, expected, values, reasons)


def genai(checkout: Path) -> Iterator[dict[str, Any]]:
    """Pairs of edits by two judges, with the whole replies: each verdict against the one that was read at the time.

    The published accuracy tells a tie of good edits from one of bad ones. A verdict here is a, b or tie, so that both
    ties of either side are one: the accuracy of such verdicts stands beside the published one.
    """
    for judge in ("gpt4o", "gemini-1.5-pro"):
        released = json.loads(
            (
                checkout / "results" / "image_edition" / judge / "pairwise.json"
            ).read_bytes()
        )
        replies = [(str(one["idx"]), "pairwise", one["response"]) for one in released]
        choices: dict[str, str | None] = {}
        for row in _judgements("genai-bench", checkout, replies, pairs=True):
            if row["variant"] == "ab":  # the order of the release, which asked once
                choices[row["item"]] = (row["choices"] or {}).get("verdict")
        theirs = {str(one["idx"]): read_choice(one["model_vote"]) for one in released}
        people = {str(one["idx"]): VOTES[one["human_vote"]] for one in released}
        read = {item: choice for item, choice in choices.items() if choice}
        yield {
            "released": judge,
            "pairs": len(released),
            "read": len(read),
            "same_verdict": sum(
                choice == theirs[item] for item, choice in read.items()
            ),
            "published_accuracy": sum(one["correct"] for one in released)
            / len(released),
            "accuracy_with_one_kind_of_tie": sum(
                choice == people[item] for item, choice in read.items()
            )
            / len(read),
            "the_same_from_their_verdicts": sum(
                theirs[item] == people[item] for item in theirs
            )
            / len(theirs),
        }


VOTES = {"leftvote": "a", "rightvote": "b", "tievote": "tie", "bothbad_vote": "tie"}


def _judgements(
    recipe: str, checkout: Path, replies: Sequence[Reply], *, pairs: bool = False
) -> Iterator[JudgementRow]:
    with _run(recipe, checkout, replies, pairs=pairs) as (store, run):
        yield from store.judgements(
            run, fields=("item", "variant", "status", "reasons", "choices")
        )


def _replayed(
    recipe: str, checkout: Path, replies: Sequence[Reply]
) -> tuple[dict[str, Any], Counter[str]]:
    """The scores of the imported set by item, and how often each reason kept a reply from being an answer."""
    with _run(recipe, checkout, replies) as (store, run):
        scores = run_set_scores(store, run) or {}
        rows = store.judgements(run, fields=("status", "reasons"))
        reasons = Counter(
            reason["code"]
            for row in rows
            if row["status"] != "ok"
            for reason in row["reasons"][:1]
        )
    return {
        item: next(iter(judges.values())) for item, judges in scores.items()
    }, reasons


@contextmanager
def _run(
    recipe: str, checkout: Path, replies: Sequence[Reply], *, pairs: bool = False
) -> Iterator[tuple[Store, RunRecord]]:
    """A run of the imported set in which the released answers are the judge's."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "set.yaml").write_text(
            dump_plain(import_checkout(load_recipe(recipe), checkout)), "utf-8"
        )
        items = dict.fromkeys(item for item, _, _ in replies)
        outputs = ("edited_a", "edited_b") if pairs else ("edited",)
        texts = dict.fromkeys(("instruction", "source_prompt", "target_prompt"), "-")
        edits = [
            {
                "id": item,
                "input": "input.png",
                **{role: f"{role}{n}.png" for role in outputs},
                **texts,
            }
            for n, item in enumerate(items)
        ]
        order = {"order": "ab"} if pairs else {}
        lines = [
            {"item": item, "rubric": rubric, "reply": text, **order}
            for item, rubric, text in replies
        ]
        for name, rows in (("edits", edits), ("replies", lines)):
            (place / f"{name}.jsonl").write_text(
                "\n".join(map(json.dumps, rows)), "utf-8"
            )
        editjudge.run(
            place / "edits.jsonl",
            rubrics=[str(place / "set.yaml")],
            judges=[f"replay:{place / 'replies.jsonl'}"],
            store=str(place / "s.db"),
            name="released",
        )
        with Store.open(place / "s.db") as store:
            yield store, store.find_run("released")


def _compared(
    name: str,
    expected: Mapping[str, float],
    values: Mapping[str, float | None],
    reasons: Counter[str],
) -> dict[str, Any]:
    both = {
        item: (value, expected[item])
        for item, value in values.items()
        if value is not None
    }
    gaps = [abs(ours - theirs) for ours, theirs in both.values()]
    return {
        "released": name,
        "edits": len(expected),
        "scored": len(both),
        "within_1e-6": sum(gap <= 1e-6 for gap in gaps),
        "largest_difference": max(gaps, default=None),
        "refused_replies_by_reason": dict(reasons.most_common()),
    }


def _means(values: Mapping[str, float | None], group: Any) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for item, value in values.items():
        if value is not None:
            groups.setdefault(group(item), []).append(value)
    return {name: sum(some) / len(some) for name, some in groups.items()}


PROTOCOLS = {
    "viescore": ("VIEScore", viescore),
    "twelve": ("MLLM-as-a-Judge", twelve),
    "genai-bench": ("GenAI-Bench", genai),
}

if __name__ == "__main__":
    main()
