"""`editjudge gate`: pass, fail or inconclusive."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from editjudge.cli.completion import runs
from editjudge.cli.options import run_argument, store_option
from editjudge.cli.output import json_option, safe
from editjudge.cli.reading import (
    across_option,
    guaranteed_option,
    load_run,
    present,
    primary_option,
)
from editjudge.errors import UsageError

FAILED = 100


@click.command(
    epilog="\b\nExample: editjudge gate mine --min alignment=5 --baseline before --max-drop 0.2"
)
@run_argument
@click.option(
    "--min",
    "minima",
    multiple=True,
    metavar="FACTOR=VALUE",
    help="Lowest allowed mean of a factor, or the highest where lower is better; repeatable.",
)
@click.option(
    "--max",
    "maxima",
    multiple=True,
    metavar="FACTOR=VALUE",
    help="Highest allowed mean of a factor where lower is better, such as l1; repeatable.",
)
@click.option(
    "--baseline",
    metavar="RUN",
    shell_complete=runs,
    help="A run over the same edits, by the same judge, to compare with.",
)
@click.option(
    "--baseline-store",
    metavar="STORE",
    help="Where the baseline is kept, if elsewhere.",
)
@click.option(
    "--max-drop",
    "max_drops",
    multiple=True,
    metavar="[FACTOR=]VALUE",
    help="How far each primary score, or this score alone, may get worse than the baseline [0]; repeatable.",
)
@across_option
@click.option(
    "--if-unsure",
    type=click.Choice(["pass", "fail"]),
    help="How an inconclusive check exits [pass].",
)
@click.option("--model", help="Only edits of this model.")
@click.option(
    "--judge", help="The judge that decides; without it the mean of all of them."
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.05,
    show_default=True,
    help="Error rate: the chance that a run below a threshold passes, and that one which meets them all fails.",
)
@click.option(
    "--max-failures",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="P",
    help="Largest allowed share of failed judgements; more fail the gate.",
)
@primary_option
@guaranteed_option
@store_option
@json_option
def command(
    run: str,
    minima: tuple[str, ...],
    maxima: tuple[str, ...],
    baseline: str | None,
    baseline_store: str | None,
    max_drops: tuple[str, ...],
    across_rubrics: bool,
    if_unsure: Any,
    store_place: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Pass or fail a run against thresholds, or against a baseline run; exit 100 on failure.

    A check passes if its whole confidence interval is on the right side of the threshold (one-sided at --alpha, since
    every check has to pass), and fails if it is on the wrong side (at --alpha over the number of checks). Otherwise it
    is inconclusive, and exits as --if-unsure says. A run that rests on the same answers as its baseline passes. Where
    lower is better (reports mark such factors), the threshold is an upper limit and a drop is a rise.

    More failed judgements than --max-failures fail the gate. Each check reports whether its failed judgements, at the
    ends of the scale, could overturn it. A check without any score is an error, unless the gate fails anyway or
    --if-unsure is given. Factors without a score on both sides are not compared with the baseline, and are listed.

    Edits are paired with the baseline's edits of the same input and instruction (and ground truth and mask), whatever
    their ids: within a model that both runs have, else across models. Unmatched edits are counted; if nothing matches,
    that is an error. A baseline that asked by another rubric is refused; --across-rubrics compares with it on factors
    of the same scale. Factors of different scales are never compared.
    """
    drops = _drops(max_drops)
    if max_drops and baseline is None:
        raise UsageError("--max-drop needs a --baseline to drop from")
    judged = load_run(store_place, run, pairing=baseline is not None)
    before = None
    if baseline is not None:
        before = load_run(baseline_store or store_place, baseline, pairing=True)
    from editjudge.report import gating

    limits = gating.GateLimits(
        _limits("--min", minima), _limits("--max", maxima), drops, **given
    )
    answer = gating.gate(
        judged, before, limits, across_rubrics=across_rubrics, if_unsure=if_unsure
    )
    present(as_json, answer)
    if answer["error"]:
        click.echo(
            f"editjudge: {safe(answer['error'])}; --if-unsure sets the outcome",
            err=True,
        )
        sys.exit(1)
    worse = (answer["outcome"], if_unsure) == ("not enough evidence", "fail")
    sys.exit(FAILED if worse or answer["outcome"] == "fail" else 0)


def _limits(option: str, given: tuple[str, ...]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in given:
        factor, equals, value = text.rpartition("=")
        number = _number(value)
        if not factor or not equals or number is None:
            raise UsageError(
                f'{option} "{text}": expected FACTOR=VALUE, such as alignment=5'
            )
        if factor in limits:
            raise UsageError(f"{option} names {factor} twice")
        limits[factor] = number
    return limits


def _drops(given: tuple[str, ...]) -> float | dict[str, float]:
    """One value for all factors, or values for single factors; then only these are compared with the baseline."""
    plain = [text for text in given if "=" not in text]
    if plain and len(given) > 1:
        raise UsageError(
            "--max-drop: one VALUE for all factors, or FACTOR=VALUE for single factors"
        )
    values = {text: _number(text) for text in plain} or _limits("--max-drop", given)
    for text, value in values.items():
        if value is None or value < 0:
            raise UsageError(f"--max-drop {text}: expected a number of 0 or more")
    numbers = {text: value for text, value in values.items() if value is not None}
    return numbers if numbers and not plain else sum(numbers.values())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
