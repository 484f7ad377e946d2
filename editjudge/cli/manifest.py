"""`editjudge manifest` and `editjudge pairs`: make manifests from a benchmark's results, and manifests of pairs of
edits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.options import (
    FILE,
    NewFile,
    columns_option,
    former_option,
    open_run,
    outside_option,
    run_option,
    store_option,
    verb,
)
from editjudge.cli.output import VerbReply
from editjudge.errors import ManifestError, UsageError

if TYPE_CHECKING:
    from editjudge.edit import Edit
    from editjudge.manifest import Columns
    from editjudge.manifest.pairs import CandidatePair, PairPool

_BENCHMARKS = ["gedit", "imgedit", "risebench", "omnicontext", "picabench"]
new_file = click.option(
    "-o", "--output", type=NewFile(), required=True, help="JSONL to write."
)


@verb(
    example="editjudge manifest tree --benchmark gedit --instructions gedit.json -o edits.jsonl"
)
@click.argument("tree", type=FILE)
@click.option(
    "--benchmark",
    type=click.Choice(_BENCHMARKS),
    help="The benchmark whose results TREE holds; required. Plain folders, one per model, need no manifest: run them.",
)
@former_option("--layout", "--benchmark NAME", type=click.Choice(["gedit", "imgedit"]))
@click.option(
    "--instructions",
    type=FILE,
    required=True,
    help="The benchmark's own list of edits: JSON, JSONL, CSV or Parquet.",
)
@click.option(
    "--originals",
    type=FILE,
    help="Folder of the source and reference images, where the benchmark keeps them apart.",
)
@new_file
def command(
    tree: Path,
    benchmark: str | None,
    layout: str | None,
    instructions: Path,
    originals: Path | None,
    output: Path,
) -> VerbReply:
    """Make a manifest from a benchmark's results, laid out in folders as its own scripts write them.

    Every edit in the benchmark's list is a row; an image that does not exist is counted as missing_output.
    """
    benchmark = benchmark or layout
    if benchmark is None:
        raise UsageError(f"--benchmark is missing: expected {', '.join(_BENCHMARKS)}")
    from editjudge.manifest.folders import LAYOUTS, read_facts

    rows = list(LAYOUTS[benchmark](tree, read_facts(instructions), originals))
    if not rows:
        raise ManifestError(
            f"{tree}: no edit of {instructions} has an image here; is this another benchmark?"
        )
    missing = sum("edited" not in row or not row["edited"].exists() for row in rows)
    outside = _write(rows, output)
    document = {
        "written": str(output),
        "edits": len(rows),
        "missing_output": missing,
        "outside": bool(outside),
    }
    counts = f"{len(rows):,} edits, {missing:,} of them without an image"
    return VerbReply(document, [f"wrote {output}: {counts}", *outside])


def _write(rows: Iterable[dict[str, object]], output: Path) -> list[str]:
    """Write a manifest in which paths are relative to its folder. Return a note if paths lead outside this folder."""
    from editjudge.manifest.folders import relative

    lines = []
    outside = False
    for row in rows:
        written, is_outside = relative(row, output.parent)
        outside |= is_outside
        lines.append(json.dumps(written, ensure_ascii=False) + "\n")
    output.write_text("".join(lines), "utf-8")
    note = (
        f"some images are outside the folder of {output}: run it with --allow-outside"
    )
    return [note] if outside else []


@verb(example="editjudge pairs edits.jsonl -o pairs.jsonl --sample 200 --seed 1")
@click.argument("manifest", type=FILE)
@new_file
@click.option(
    "--against", metavar="MODEL", help="Only pairs of this model and another."
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="N pairs, balanced over models and source images.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the sample and of which edit comes first.",
)
@run_option(
    "--next",
    "run",
    help="Choose the pairs that narrow the ranking most, given the answers of this run. --sample sets how many; "
    "default: one for each pair of models.",
)
@click.option(
    "--factor",
    help="With --next: rank by this factor. Default: overall, else the rubric's last one.",
)
@columns_option
@outside_option
@former_option(
    "--allow-urls", "nothing: addresses are compared, not fetched", is_flag=True
)
@store_option
def pairs(
    manifest: Path,
    output: Path,
    against: str | None,
    sample: int | None,
    seed: int,
    run: str | None,
    factor: str | None,
    columns: Columns,
    allow_outside: bool,
    allow_urls: bool,  # noqa: ARG001  (accepted until 1.0)
) -> VerbReply:
    """Write a manifest of pairs: edits of different models that share input and instruction.

    Inputs are compared by content, not by file name. Inputs at http(s) addresses are compared by address. Without
    --sample and --next, all pairs are written. The order within a pair is random (--seed) and balanced over models.

    Then ask a judge which of the two is better: editjudge run pairs.jsonl --rubric preference --judge SPEC
    """
    from editjudge import manifest as manifests
    from editjudge.manifest.pairs import (
        content_marks,
        oriented,
        pool,
        sampled,
    )

    if factor is not None and run is None:
        raise UsageError("--factor goes with --next RUN")
    if output.resolve() == manifest.resolve():
        raise UsageError(
            f"-o {output}: this is the manifest itself; name another file to write"
        )
    edits = manifests.read(
        manifest.absolute(),
        allow_outside=allow_outside,
        allow_urls=True,
        named=manifests.NamedInputs(columns=columns),
    )
    candidates = pool(edits, content_marks(), against=against)
    if not candidates.candidates:
        count = candidates.same_model
        same = f"; {count:,} pairs are of one model" if count else ""
        raise ManifestError(
            f"{manifest}: no two edits of different models share input and instruction{same}; expected "
            "several models' edits of the same inputs in one manifest",
            code="no_pairs",
        )
    chosen = candidates.candidates
    if run is not None:
        chosen = _next_pairs(candidates, run, factor, sample, seed)
    elif sample is not None:
        chosen = sampled(candidates, sample, seed)
    return _write_pairs(
        candidates, chosen, list(oriented(chosen, seed)), sample, output
    )


def _write_pairs(
    candidates: PairPool,
    chosen: Sequence[CandidatePair],
    ordered: Sequence[tuple[Edit, Edit]],
    sample: int | None,
    output: Path,
) -> VerbReply:
    from editjudge.manifest.pairs import pair_row

    outside = _write((pair_row(a, b) for a, b in ordered), output)
    missing = sum(_is_missing(a.edited) or _is_missing(b.edited) for a, b in ordered)
    sources = len({pair.source for pair in chosen})
    document = {
        "written": str(output),
        "pairs": len(ordered),
        "of": len(candidates.candidates),
        "sources": sources,
        "models": candidates.models,
        "missing_output": missing,
        "same_model": candidates.same_model,
        "alone": candidates.alone,
        "outside": bool(outside),
    }
    counts = f"{len(ordered):,} of {len(candidates.candidates):,} pairs, {sources:,} source images"
    lines = [f"wrote {output}: {counts}, {len(candidates.models):,} models"]
    if sample and sample > len(ordered):
        lines.append(f"--sample {sample:,}: the manifest has no more pairs")
    if missing:
        lines.append(
            f"{missing:,} pairs lack an output image; a run counts them as missing_output"
        )
    if candidates.alone:
        lines.append(
            f"{candidates.alone:,} edits are in no pair: no other edit has their input and instruction"
        )
    return VerbReply(document, [*lines, *outside])


def _is_missing(image: object) -> bool:
    return image is None or (isinstance(image, Path) and not image.exists())


def _next_pairs(
    candidates: PairPool, name: str, factor: str | None, wanted: int | None, seed: int
) -> list[CandidatePair]:
    """Return the pairs that would improve the ranking most, among those that the run has not judged."""
    import random

    import numpy as np

    from editjudge.manifest.pairs import PairPool, chosen, identifiers
    from editjudge.stats.strengths import next_games
    from editjudge.store.scores import pair_answers, ranking_factor

    store, name = open_run(name)
    with store:
        run = store.find_run(name)
        answers = pair_answers(store, run)
        items = {item.item: item for item in store.items(run)}
    if not answers:
        raise UsageError(
            f"run {run.name} has no pairs; --next needs a run of a manifest by `editjudge pairs`"
        )
    used = Counter[str]()
    fresh = []
    for pair in candidates.candidates:
        if items.keys() & identifiers(pair):
            used[pair.source] += 1
        else:
            fresh.append(pair)
    if not fresh:
        raise UsageError(
            f"run {run.name} has judged every pair of this manifest: no pair is left"
        )
    by = ranking_factor(answers, factor)
    models = candidates.models
    index = {model: number for number, model in enumerate(models)}
    wins = np.zeros((len(models), len(models)))
    points = {"a": 1.0, "b": 0.0, "tie": 0.5}
    for answer in answers:
        metadata = items[answer.item].metadata
        a = index.get(str(metadata.get("model_a") or ""))
        b = index.get(str(metadata.get("model_b") or ""))
        verdict = answer.decision(by).verdict if by in answer.answers else None
        if verdict is not None and a is not None and b is not None and a != b:
            wins[a, b] += points[verdict]
            wins[b, a] += 1 - points[verdict]
    remaining = PairPool(fresh)
    available = np.zeros(wins.shape, np.int64)
    for (x, y), members in remaining.by_models.items():
        if x != y:
            available[index[x], index[y]] = len(members)
            available[index[y], index[x]] = len(members)
    count = wanted or len(candidates.by_models)
    games = next_games(wins, available, count, rng=np.random.default_rng(seed))
    rng = random.Random(seed)  # noqa: S311  (a choice of source images, not a secret)
    names = [(models[i], models[j]) for i, j in games]
    return chosen(remaining, names, rng, wanted=count, used=used)
