"""`editjudge gate`: check a run against thresholds or a baseline."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    NewFile,
    across_option,
    former_option,
    guaranteed_option,
    in_store,
    load_run,
    passport_options,
    primary_option,
    requirements,
    run_argument,
    run_option,
    store_option,
    verb,
    warn,
)
from editjudge.cli.output import ExitCode, VerbReply
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.report.answers import Answer


@verb(example="editjudge gate mine --min alignment=5 --baseline before --max-drop 0.2")
@run_argument
@click.option(
    "--min",
    "minima",
    multiple=True,
    metavar="FACTOR=VALUE",
    help="Lowest allowed mean of a factor, or the highest if lower is better; repeatable.",
)
@click.option(
    "--max",
    "maxima",
    multiple=True,
    metavar="FACTOR=VALUE",
    help="Highest allowed mean of a factor for which lower is better, such as l1; repeatable.",
)
@run_option(
    "--baseline",
    help="A run over the same edits, by the same judge, to compare with; STORE#RUN if it is in another store.",
)
@former_option("--baseline-store", "--baseline STORE#RUN")
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
@passport_options()
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md"]),
    default="text",
    show_default=True,
    help="md: Markdown, such as for a comment on a pull request.",
)
@click.option(
    "--junit",
    type=NewFile(),
    metavar="FILE",
    help="Also write the checks as JUnit XML, which CI servers show.",
)
@store_option
def command(
    run: str,
    minima: tuple[str, ...],
    maxima: tuple[str, ...],
    baseline: str | None,
    baseline_store: str | None,
    max_drops: tuple[str, ...],
    across_rubrics: bool,
    if_unsure: Any,
    format_: str,
    junit: Path | None,
    passports: tuple[Path, ...],
    require: str | None,
    **limits: Any,
) -> VerbReply:
    """Pass or fail a run against thresholds, or against a baseline run; exit 100 on failure.

    A check passes if its whole confidence interval is on the right side of the threshold (one-sided at --alpha, since
    every check has to pass). It fails if the interval is on the wrong side (at --alpha divided by the number of
    checks). Otherwise it is inconclusive, and --if-unsure sets the exit code. A run with the same stored answers as its
    baseline passes. If lower scores are better (reports mark such factors), the threshold is an upper limit, and a rise
    counts as a drop.

    More failed judgements than --max-failures fail the gate. Each check reports whether its failed judgements, at the
    ends of the scale, could overturn it. A check without any score is an error, unless the gate fails anyway or
    --if-unsure is given. Factors without a score on both sides are not compared with the baseline, and are listed.

    Edits are paired with the baseline's edits of the same input and instruction (and ground truth and mask), whatever
    their ids: within a model if both runs have it, otherwise across models. Unmatched edits are counted; if nothing
    matches, that is an error. A baseline with another rubric is refused; --across-rubrics compares with it on factors
    with the same scale. Factors with different scales are never compared.

    With --passport and --require, the gate also fails unless every named line of the judge's passport is yes. A
    passport of another judge, rubric or setting is refused.
    """
    required = requirements(passports, require)
    drops = _drops(max_drops)
    if max_drops and baseline is None:
        raise UsageError("--max-drop needs a --baseline to drop from")
    current = load_run(run, pairing=baseline is not None)
    before = None
    if baseline is not None:
        before = load_run(in_store(baseline_store, baseline), pairing=True)
    from editjudge.report import gating
    from editjudge.report.answers import together_markdown

    current = current.with_passports(each.passport for each in required)
    answer: Answer | None = None
    if not required or minima or maxima or baseline is not None:
        answer = gating.gate(
            current,
            before,
            gating.GateLimits(
                _limits("--min", minima), _limits("--max", maxima), drops, **limits
            ),
            across_rubrics=across_rubrics,
            if_unsure=if_unsure,
        )
    if required or answer is None:
        from editjudge.report.passport import gated

        answer = gated(answer, current.run, required)
    if junit:
        checks = gating.junit(answer, fails_if_unsure=if_unsure == "fail")
        junit.write_text(checks, "utf-8")
    code = _exit_code(answer, if_unsure)
    if format_ != "md":
        return VerbReply.of(answer, code)
    title = f"Gate of {answer['run']}: {answer['outcome']}"
    text = together_markdown(title, answer.lead[1:], answer.tables)
    return VerbReply(answer.document, [text.rstrip("\n")], code=code)


def _exit_code(answer: Answer, if_unsure: str | None) -> ExitCode:
    if answer["error"]:
        warn(f"{answer['error']}; --if-unsure sets the outcome")
        return ExitCode.ERROR
    failing = {"fail"} if if_unsure != "fail" else {"fail", "not enough evidence"}
    return ExitCode.GATE_FAILED if answer["outcome"] in failing else ExitCode.DONE


def _limits(option: str, texts: tuple[str, ...]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for text in texts:
        factor, _, value = text.rpartition("=")
        number = _number(value)
        if not factor or number is None:
            raise UsageError(
                f'{option} "{text}": expected FACTOR=VALUE, such as alignment=5'
            )
        if factor in limits:
            raise UsageError(f"{option} names {factor} twice")
        limits[factor] = number
    return limits


def _drops(texts: tuple[str, ...]) -> float | dict[str, float]:
    """Return a single limit for all factors, or limits keyed by factor. In the latter case only these factors are
    compared."""
    plain = [text for text in texts if "=" not in text]
    if plain and len(texts) > 1:
        raise UsageError(
            "--max-drop: one VALUE for all factors, or FACTOR=VALUE for single factors"
        )
    drops = {text: _number(text) for text in plain} or _limits("--max-drop", texts)
    for text, value in drops.items():
        if value is None or value < 0:
            raise UsageError(f"--max-drop {text}: expected a number of 0 or more")
    numbers = {text: value for text, value in drops.items() if value is not None}
    return numbers if numbers and not plain else sum(numbers.values())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
