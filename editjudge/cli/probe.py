"""`editjudge probe`: a judge before edits whose right answer is known."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import (
    SEE_RUN,
    NewFile,
    default_judge,
    judging_options,
    open_store,
)
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.reading import need_statistics, show
from editjudge.cli.run import EXIT, TOO_MANY_FAILED, how_to_go_on, watched
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editjudge.judges.judge import Options
    from editjudge.running.job import RunOptions
    from editjudge.store.store import Store
    from editjudge.vision.probes.making import AnsweredProbe, Probe, ProbeJob
    from editjudge.vision.probes.result import ProbeResult

FORMS = (".html", ".json", ".md")


@click.command(
    epilog=f"{SEE_RUN}\n\n\b\nExample: editjudge probe --judge openai/gpt-4.1 -o probes.html"
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
    help="Keep the generated pictures and manifests in this folder.",
)
@click.option(
    "--dry-run", is_flag=True, help="Make the edits and print the price; ask nothing."
)
@judging_options("online", "offline", "compliance", "lighting")
@json_option
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
    store_place: str,
    options: Options,
    as_json: bool,
) -> None:
    """Test a judge with edits whose right answer is known.

    Makes edits of public-domain photographs: a clean edit, the same edit with one defect at four rising strengths,
    controls, and prompt injections. Then reports whether each factor falls with its own defect while the others stay.
    Running again resumes. docs/probes.md explains each figure.
    """
    need_statistics("probes")
    if output is not None and output.suffix not in FORMS:
        raise UsageError(
            f"-o {safe(str(output))}: expected a name that ends in {', '.join(FORMS)}"
        )
    from editjudge.judges.judge import is_local
    from editjudge.running.job import RunOptions

    seed, options = _seed(options)
    (spec,) = default_judge((judge,) if judge else ())
    run_options = RunOptions(concurrency=concurrency, budget=budget)
    source = f"seed {seed}, {photos} photographs"
    with _folder(write) as folder:
        probes = _made(photos, seed, rubrics, folder)
        from editjudge.vision.probes.making import jobs

        planned = jobs(probes, folder, spec, rubrics, options, layout, source)
        if not planned:
            raise UsageError(
                f"no probe tests {', '.join(rubrics)}; leave out --rubric, or name a built-in one"
            )
        if dry_run or not is_local(spec):
            _forecast(planned, store_place, as_json and dry_run, err=not dry_run)
        if dry_run:
            return
        with open_store(store_place) as store:
            code, answered = _judged(
                planned,
                store,
                run_options,
                max_failures,
                quiet=quiet or (as_json and not sys.stderr.isatty()),
            )
    from editjudge.vision.probes.result import figures

    _tell(figures(probes, answered, judge=spec, made_from=source), output, as_json)
    sys.exit(code)


next(
    option for option in command.params if option.name == "seed"
).help = "Seed of the generated edits. Default: 0."


def _seed(options: Options) -> tuple[int, Options]:
    """The seed of the probes, and the options without it: it is no part of a question."""
    from dataclasses import replace

    seed = options.parameters.seed or 0
    if seed < 0:
        raise UsageError(f"--seed {seed}: at least 0")
    return seed, replace(options, parameters=replace(options.parameters, seed=None))


@contextlib.contextmanager
def _folder(write: Path | None) -> Iterator[Path]:
    if write is not None:
        yield write
        return
    with tempfile.TemporaryDirectory(prefix="editjudge-probes-") as folder:
        yield Path(folder)


def _made(photos: int, seed: int, rubrics: Sequence[str], folder: Path) -> list[Probe]:
    try:
        from editjudge.vision.probes.making import probes, write_manifests
    except ImportError as error:
        raise UsageError(
            f"probes need {error.name}: pip install 'editjudge[probes]'"
        ) from None
    from editjudge.rubrics.files import resolve

    return write_manifests(
        probes(photos, seed, {rubric.name for rubric in resolve(rubrics)}), folder
    )


def _forecast(
    planned: Sequence[ProbeJob], store_place: str, as_json: bool, *, err: bool
) -> None:
    """Print the requests, tokens and price of all probes; to standard error where they are then judged."""
    from editjudge.running.forecast import forecast

    # Where the probes are then judged, a missing key is an error before a store is made.
    estimates = [
        estimate
        for job in planned
        for estimate in forecast(job, store_place, needs_keys=err)[0]
    ]
    names = ("calls", "images", "input_tokens", "output_tokens")
    total: dict[str, Any] = {
        name: sum(getattr(estimate, name) for estimate in estimates) for name in names
    }
    prices = [estimate.price for estimate in estimates]
    total |= {
        "price": None if None in prices else sum(filter(None, prices)),
        "as_of": estimates[0].as_of,
    }
    if as_json:
        emit({"judge": estimates[0].judge, **total})
        return
    price = (
        "unknown price"
        if total["price"] is None
        else "about ${price:.2f} (list prices of {as_of})".format(**total)
    )
    counts = "{calls:,} calls, {images:,} images, about {input_tokens:,} tokens in and {output_tokens:,} out"
    click.echo(
        f"{safe(estimates[0].judge)}: {counts.format(**total)}, {price}", err=err
    )


def _judged(
    planned: Sequence[ProbeJob],
    store: Store,
    run_options: RunOptions,
    max_failures: float,
    *,
    quiet: bool,
) -> tuple[int, list[AnsweredProbe]]:
    """Every run in turn; one that was stopped ends it, and what is there is shown."""
    from dataclasses import replace

    from editjudge.vision.probes.making import answers

    runs: list[int] = []
    failed = 0
    total = 0
    budget = run_options.budget
    code = 0
    for job in planned:
        outcome = watched(job, store, replace(run_options, budget=budget), quiet=quiet)
        if outcome is None:
            return EXIT["interrupted"], answers(store, runs)
        runs.append(outcome.run_id)
        failed = failed + outcome.summary.failed
        total = total + outcome.summary.total
        budget = None if budget is None else max(0.0, budget - outcome.tally.cost)
        if outcome.ending != "finished":
            why = (
                f"editjudge: {safe(str(outcome.error))}"
                if outcome.error
                else f"stopped; {how_to_go_on()}"
            )
            click.echo(why, err=True)
            code = EXIT[outcome.ending]
            break
    return code or (TOO_MANY_FAILED if failed > max_failures * total else 0), answers(
        store, runs
    )


def _tell(result: ProbeResult, output: Path | None, as_json: bool) -> None:
    from editjudge.report.answers import together_markdown
    from editjudge.vision.probes.result import html, lead, tables

    if output is not None:
        text = {
            ".html": lambda: html(result),
            ".json": lambda: (
                json.dumps(result.as_json(), indent=2, allow_nan=False) + "\n"
            ),
            ".md": lambda: together_markdown(
                f"Probes of {result.judge}", lead(result), tables(result)
            ),
        }[output.suffix]()
        output.write_text(text, "utf-8")
    if as_json:
        emit(result.as_json() | ({"written": str(output)} if output else {}))
        return
    show(lead(result), tables(result))
    if output is not None:
        click.echo(f"wrote {safe(str(output))}")
