"""`editjudge probe`: test a judge with edits whose correct answer is known."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    SEE_RUN,
    NewFile,
    Setting,
    check_judges,
    chosen_judges,
    judge_options,
    judging_options,
    layout_option,
    open_store,
    store_place,
    verb,
    warn,
)
from editjudge.cli.outcome import EXIT_CODES, how_to_resume
from editjudge.cli.output import ExitCode, VerbReply
from editjudge.cli.run import watched
from editjudge.errors import UsageError, printable
from editjudge.plugins import need_extra

if TYPE_CHECKING:
    from editjudge.running.job import RunOptions
    from editjudge.store.store import Store
    from editjudge.vision.probes.making import AnsweredProbe, ProbeJob
    from editjudge.vision.probes.result import ProbeResult

FORMATS = (".html", ".json", ".md")


@verb(
    note=SEE_RUN,
    example="editjudge probe --judge openai/gpt-4.1 -o probes.html",
)
@click.option(
    "--photos",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Number of photographs.",
)
@click.option(
    "-o", "--output", type=NewFile(), help="File to write: .html, .json, .md."
)
@click.option(
    "--write",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the generated images and manifests in this folder.",
)
@click.option(
    "--dry-run", is_flag=True, help="Make the edits and print the price; ask nothing."
)
@judging_options("online", "offline", "compliance", "lighting")
@layout_option(cls=Setting)
def command(
    judge: str | None,
    photos: int,
    rubrics: tuple[str, ...],
    layout: Any,
    output: Path | None,
    write: Path | None,
    dry_run: bool,
    concurrency: int | None,
    budget: float | None,
    max_failures: float,
    quiet: bool,
    **values: Any,
) -> VerbReply:
    """Test a judge with edits whose right answer is known.

    Makes edits of public-domain photographs: a clean edit, the same edit with one defect at four rising strengths,
    controls, and prompt injections. Then reports whether each factor falls with its own defect while the others stay.
    Running again resumes. `editjudge docs probes` explains each figure.
    """
    need_extra("probes", "probe")
    if output is not None and output.suffix not in FORMATS:
        raise UsageError(
            f"-o {output}: expected a name that ends in {', '.join(FORMATS)}"
        )
    from editjudge.judges.judge import is_local
    from editjudge.rubrics.files import resolve
    from editjudge.running.job import RunOptions
    from editjudge.vision.probes.making import jobs, probes, write_manifests
    from editjudge.vision.probes.result import figures

    # The seed of the probe set, which is not part of any question.
    seed = values.pop("seed") or 0
    if seed < 0:
        raise UsageError(f"--seed {seed}: at least 0")
    options = judge_options(values | {"seed": None})
    (spec,) = chosen_judges((judge,) if judge else (), options)
    check_judges({spec: options}, needs_key=not dry_run)
    source = f"seed {seed}, {photos} photographs"
    names = {rubric.name for rubric in resolve(rubrics)}
    with _folder(write) as folder:
        made = write_manifests(probes(photos, seed, names), folder)
        planned = jobs(made, folder, spec, rubrics, options, layout, source)
        if not planned:
            raise UsageError(
                f"no probe tests {', '.join(rubrics)}; leave out --rubric, or name a built-in one"
            )
        if dry_run:
            return _forecast(planned, needs_keys=False)
        if not is_local(spec):
            # A missing key is reported before a store is created.
            for line in _forecast(planned, needs_keys=True).lines:
                click.echo(printable(line), err=True)
        run_options = RunOptions(concurrency=concurrency, budget=budget)
        with open_store() as store:
            code, answered = _judge(planned, store, run_options, max_failures, quiet)
    result = figures(made, answered, judge=spec, made_from=source)
    return _reply(result, output, code)


next(
    option for option in command.params if option.name == "seed"
).help = "Seed of the generated edits. Default: 0."


@contextlib.contextmanager
def _folder(write: Path | None) -> Iterator[Path]:
    if write is not None:
        yield write
        return
    with tempfile.TemporaryDirectory(prefix="editjudge-probes-") as folder:
        yield Path(folder)


def _forecast(planned: Sequence[ProbeJob], *, needs_keys: bool) -> VerbReply:
    """Return the requests, tokens and price of all probes."""
    from editjudge.running.forecast import forecast

    estimates = [
        estimate
        for job in planned
        for estimate in forecast(job, store_place(), needs_keys=needs_keys)[0]
    ]
    total: dict[str, Any] = {"judge": estimates[0].judge}
    for name in ("calls", "images", "input_tokens", "output_tokens"):
        total[name] = sum(getattr(estimate, name) for estimate in estimates)
    prices = [estimate.price for estimate in estimates]
    total["price"] = None if None in prices else sum(filter(None, prices))
    total["as_of"] = estimates[0].as_of
    price = "unknown price"
    if total["price"] is not None:
        price = "about ${price:.2f} (list prices of {as_of})".format(**total)
    counts = "{calls:,} calls, {images:,} images, about {input_tokens:,} tokens in and {output_tokens:,} out"
    line = f"{estimates[0].judge}: {counts.format(**total)}, {price}"
    return VerbReply(total, [line])


def _judge(
    planned: Sequence[ProbeJob],
    store: Store,
    run_options: RunOptions,
    max_failures: float,
    quiet: bool,
) -> tuple[int, list[AnsweredProbe]]:
    """Run the jobs in order until one is stopped, and return the exit code and the answers."""
    from editjudge.vision.probes.making import answers

    runs: list[int] = []
    failed = 0
    total = 0
    for job in planned:
        outcome = watched(job, store, run_options, quiet=quiet)
        if outcome is None:
            return ExitCode.INTERRUPTED, answers(store, runs)
        runs.append(outcome.run_id)
        failed += outcome.summary.failed
        total += outcome.summary.total
        if run_options.budget is not None:
            left = max(0.0, run_options.budget - outcome.tally.cost)
            run_options = dataclasses.replace(run_options, budget=left)
        if outcome.ending != "finished":
            warn(str(outcome.error or f"stopped; {how_to_resume()}"))
            return EXIT_CODES[outcome.ending], answers(store, runs)
    is_bad = failed > max_failures * total
    code = ExitCode.TOO_MANY_FAILED if is_bad else ExitCode.DONE
    return code, answers(store, runs)


def _reply(result: ProbeResult, output: Path | None, code: int) -> VerbReply:
    from editjudge.report.answers import together_markdown
    from editjudge.vision.probes.result import html, lead, tables

    document = result.as_json()
    lines = list(lead(result))
    all_tables = tables(result)
    if output is None:
        return VerbReply(document, lines, all_tables, code)
    if output.suffix == ".html":
        text = html(result)
    elif output.suffix == ".json":
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    else:
        text = together_markdown(f"Probes of {result.judge}", lines, all_tables)
    output.write_text(text, "utf-8")
    written = {"written": str(output)}
    return VerbReply(document | written, [*lines, f"wrote {output}"], all_tables, code)
