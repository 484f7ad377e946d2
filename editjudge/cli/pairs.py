"""`editjudge pairs`: which two edits to ask about."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import NewFile, columns_option, store_option
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.reading import need_statistics, open_source
from editjudge.errors import ManifestError, UsageError

if TYPE_CHECKING:
    from editjudge.manifest import Columns
    from editjudge.manifest.pairs import CandidatePair, PairPool


@click.command(
    epilog="\b\nExample: editjudge pairs edits.jsonl -o pairs.jsonl --sample 200 --seed 1"
)
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=NewFile(), required=True, help="JSONL to write.")
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
@click.option(
    "--next",
    "run",
    metavar="RUN",
    shell_complete=runs,
    help="Choose the pairs that narrow the ranking most, given the answers of this run. --sample sets how many; "
    "default: one for each pair of models.",
)
@click.option(
    "--factor",
    help="With --next: rank by this factor. Default: overall, else the rubric's last one.",
)
@columns_option
@click.option(
    "--allow-outside",
    is_flag=True,
    help="Allow pictures outside the manifest's folder.",
)
@click.option(
    "--allow-urls",
    is_flag=True,
    help="Allow http(s) addresses as pictures; inputs are compared by address.",
)
@store_option
@json_option
def command(
    manifest: Path,
    output: Path,
    against: str | None,
    sample: int | None,
    seed: int,
    run: str | None,
    factor: str | None,
    columns: Columns,
    allow_outside: bool,
    allow_urls: bool,
    store_place: str,
    as_json: bool,
) -> None:
    """Write a manifest of pairs: edits of different models that share input and instruction.

    Inputs are compared by content, not by file name. Without --sample and --next, all pairs are written. The order
    within a pair is random (--seed) and balanced over models.

    Then ask a judge which of the two is better: editjudge run pairs.jsonl --rubric preference --judge SPEC
    """
    from editjudge import manifest as manifests
    from editjudge.manifest.folders import relative
    from editjudge.manifest.pairs import (
        content_marks,
        oriented,
        pair_row,
        pool,
        sampled,
    )

    if factor is not None and run is None:
        raise UsageError("--factor goes with --next RUN")
    if output.resolve() == manifest.resolve():
        raise UsageError(
            f"-o {output}: this is the manifest itself; name another file to write"
        )
    named = manifests.NamedInputs(columns=columns)
    edits = manifests.read(
        manifest.absolute(),
        allow_outside=allow_outside,
        allow_urls=allow_urls,
        named=named,
    )
    candidates = pool(edits, content_marks(), against=against)
    if not candidates.candidates:
        same = (
            f"; {candidates.same_model:,} pairs are of one model"
            if candidates.same_model
            else ""
        )
        raise ManifestError(
            f"{safe(str(manifest))}: no two edits of different models share input and instruction{same}; expected "
            "several models' edits of the same inputs in one manifest"
        )
    if run is not None:
        picked = _next(candidates, run, factor, sample, seed, store_place)
    else:
        picked = (
            candidates.candidates
            if sample is None
            else sampled(candidates, sample, seed)
        )
    lines = []
    outside = False
    missing = 0
    for a, b in oriented(picked, seed):
        missing += any(
            edit.edited is None
            or (isinstance(edit.edited, Path) and not edit.edited.exists())
            for edit in (a, b)
        )
        row, leads_out = relative(pair_row(a, b), output.parent)
        outside |= leads_out
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    output.write_text("".join(lines), "utf-8")
    sources = len({one.source for one in picked})
    if as_json:
        emit({
            "written": str(output), "pairs": len(lines), "of": len(candidates.candidates), "sources": sources,
            "models": candidates.models, "missing_output": missing, "same_model": candidates.same_model,
            "alone": candidates.alone, "outside": outside,
        })  # fmt: skip
        return
    counts = f"{len(lines):,} of {len(candidates.candidates):,} pairs, {sources:,} source images"
    click.echo(
        f"wrote {safe(str(output))}: {counts}, {len(candidates.models):,} models"
    )
    if sample and sample > len(lines):
        click.echo(f"--sample {sample:,}: the manifest has no more pairs")
    if missing:
        click.echo(
            f"{missing:,} pairs lack an output picture; a run counts them as missing_output"
        )
    if candidates.alone:
        click.echo(
            f"{candidates.alone:,} edits are in no pair: no other edit has their input and instruction"
        )
    if outside:
        click.echo(
            f"some pictures are outside the folder of {safe(str(output))}: run it with --allow-outside"
        )


def _next(
    candidates: PairPool,
    word: str,
    factor: str | None,
    wanted: int | None,
    seed: int,
    store_place: str,
) -> list[CandidatePair]:
    """The pairs that narrow the ranking most, of those that the run has not judged."""
    need_statistics()
    import random

    import numpy as np

    from editjudge.manifest.pairs import PairPool, chosen, identifiers
    from editjudge.stats.strengths import next_games
    from editjudge.store.pairs import pair_answers, ranking_factor

    with open_source(store_place, word) as store:
        run = store.find_run(word)
        answers = pair_answers(store, run)
        items = {item.item: item for item in store.items(run)}
    if not answers:
        raise UsageError(
            f"run {safe(run.name)} has no pairs; --next needs a run of a manifest by `editjudge pairs`"
        )
    by = ranking_factor(answers, factor)
    fresh = PairPool(
        [one for one in candidates.candidates if not items.keys() & identifiers(one)]
    )
    if not fresh.candidates:
        raise UsageError(
            f"run {safe(run.name)} has judged every pair of this manifest: no pair is left"
        )
    models = candidates.models
    index = {name: i for i, name in enumerate(models)}
    wins = np.zeros((len(models), len(models)))
    points = {"a": 1.0, "b": 0.0, "tie": 0.5}
    for pair in answers:
        names = [
            str(items[pair.item].metadata.get(name) or "")
            for name in ("model_a", "model_b")
        ]
        verdict = pair.decision(by).verdict if by in pair.answers else None
        if verdict is not None and names[0] != names[1] and set(names) <= index.keys():
            a, b = (index[name] for name in names)
            wins[a, b] += points[verdict]
            wins[b, a] += 1 - points[verdict]
    available = np.zeros(wins.shape, np.int64)
    for (x, y), members in fresh.by_models.items():
        available[index[x], index[y]] = available[index[y], index[x]] = (
            len(members) if x != y else 0
        )
    count = wanted or len(candidates.by_models)
    games = next_games(wins, available, count, rng=np.random.default_rng(seed))
    used = Counter(
        one.source for one in candidates.candidates if items.keys() & identifiers(one)
    )
    rng = random.Random(seed)  # noqa: S311  (a choice of source images, not a secret)
    return chosen(
        fresh, [(models[i], models[j]) for i, j in games], rng, wanted=count, used=used
    )
