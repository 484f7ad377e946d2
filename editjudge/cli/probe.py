"""`editjudge probe`: a judge before edits whose right answer is known."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import NewFile, default_judge, judging_options, open_store
from editjudge.cli.output import emit, json_option, safe
from editjudge.cli.reading import need_statistics, show
from editjudge.cli.run import EXIT, TOO_MANY_FAILED, how_to_go_on, watched
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editjudge.judges.registry import Options
    from editjudge.probes.judging import ProbeJob
    from editjudge.probes.making import Probe
    from editjudge.probes.result import AnsweredProbe, ProbeResult
    from editjudge.run.job import RunOptions
    from editjudge.store.store import Store

FORMS = (".html", ".json", ".md")


@click.command(epilog="\b\nExample: editjudge probe --judge openai/gpt-4.1 -o probes.html")
@click.option("--photos", type=click.IntRange(1, 1000), default=5, show_default=True, help="Photographs to start from.")
@click.option("-o", "--output", type=NewFile(), help="File to write: .html, .json, .md.")
@click.option(
    "--write", type=click.Path(file_okay=False, path_type=Path), help="Keep the pictures and manifests in this folder."
)
@click.option("--dry-run", is_flag=True, help="Make the set, say what it would cost; ask nothing.")
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
    """Known-answer edits: does each factor fall with its own defect, and do the others stay?

    Makes edits of photographs in the public domain: a clean one, then one defect at a time at four rising doses, then
    controls, and attempts to talk the judge into a better score. Running again resumes. What each figure means is in
    docs/probes.md.
    """
    need_statistics()
    if output is not None and output.suffix not in FORMS:
        raise UsageError(f"{safe(str(output))}: the name ends in none of {', '.join(FORMS)}")
    from editjudge.judges.registry import is_local
    from editjudge.run.job import RunOptions

    seed, options = _seed(options)
    (spec,) = default_judge((judge,) if judge else ())
    manner = RunOptions(concurrency=concurrency, budget=budget)
    source = f"seed {seed}, {photos} photographs"
    with _folder(write) as folder:
        probes = _made(photos, seed, rubrics, folder)
        from editjudge.probes.judging import jobs

        planned = jobs(probes, folder, spec, rubrics, options, layout, source)
        if not planned:
            raise UsageError(f"no probe is about {', '.join(rubrics)}")
        if dry_run or not is_local(spec):
            _forecast(planned, store_place, as_json and dry_run, err=not dry_run)
        if dry_run:
            return
        with open_store(store_place) as store:
            code, answered = _judged(
                planned, store, manner, max_failures, quiet=quiet or (as_json and not sys.stderr.isatty())
            )
    from editjudge.probes.result import figures

    _tell(figures(probes, answered, judge=spec, made_from=source), output, as_json)
    sys.exit(code)


next(option for option in command.params if option.name == "seed").help = "Another set of probes; 0 without it."


def _seed(options: Options) -> tuple[int, Options]:
    """Here the seed is that of the probes, and no part of a question."""
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
        from editjudge.probes.judging import lay_out
        from editjudge.probes.making import probes
    except ImportError as error:
        raise UsageError(f"probes need {error.name}: pip install 'editjudge[probes]'") from None
    from editjudge.rubrics.files import resolve

    return lay_out(probes(photos, seed, {rubric.name for rubric in resolve(rubrics)}), folder)


def _forecast(planned: Sequence[ProbeJob], store_place: str, as_json: bool, *, err: bool) -> None:
    """What asking all of it would come to; beside the result, on standard error."""
    from editjudge.run.forecast import forecast

    # Beside the result they are going to be asked, so that a key which is missing is said before a store is made.
    found = [estimate for job in planned for estimate in forecast(job, store_place, needs_keys=err)[0]]
    prices = [estimate.price for estimate in found]
    told: dict[str, Any] = {
        "judge": found[0].judge,
        "calls": sum(e.calls for e in found),
        "images": sum(e.images for e in found),
    }
    told |= {"input_tokens": sum(e.input_tokens for e in found), "output_tokens": sum(e.output_tokens for e in found)}
    told |= {"price": None if None in prices else sum(filter(None, prices)), "as_of": found[0].as_of}
    if as_json:
        emit(told)
        return
    price = "unknown price" if told["price"] is None else f"about ${told['price']:.2f} (list prices of {told['as_of']})"
    click.echo(
        f"{safe(told['judge'])}: {told['calls']:,} calls, {told['images']:,} images, about {told['input_tokens']:,} "
        f"tokens in and {told['output_tokens']:,} out, {price}",
        err=err,
    )


def _judged(
    planned: Sequence[ProbeJob], store: Store, manner: RunOptions, max_failures: float, *, quiet: bool
) -> tuple[int, list[AnsweredProbe]]:
    """Every run in turn; one that was stopped ends it, and what is there is shown."""
    from dataclasses import replace

    from editjudge.probes.judging import answers

    runs: list[int] = []
    failed, total, budget, code = 0, 0, manner.budget, 0
    for job in planned:
        outcome = watched(job, store, replace(manner, budget=budget), quiet=quiet)
        if outcome is None:
            return EXIT["interrupted"], answers(store, runs)
        runs.append(outcome.run_id)
        failed, total = failed + outcome.summary.failed, total + outcome.summary.total
        budget = None if budget is None else max(0.0, budget - outcome.tally.cost)
        if outcome.ending != "finished":
            why = f"editjudge: {safe(str(outcome.error))}" if outcome.error else f"stopped; {how_to_go_on()}"
            click.echo(why, err=True)
            code = EXIT[outcome.ending]
            break
    return code or (TOO_MANY_FAILED if failed > max_failures * total else 0), answers(store, runs)


def _tell(result: ProbeResult, output: Path | None, as_json: bool) -> None:
    from editjudge.probes.page import html, lead, tables
    from editjudge.report.tables import together_markdown

    if output is not None:
        text = {
            ".html": lambda: html(result),
            ".json": lambda: json.dumps(result.as_json(), indent=2, allow_nan=False) + "\n",
            ".md": lambda: together_markdown(f"Probes of {result.judge}", lead(result), tables(result)),
        }[output.suffix]()
        output.write_text(text, "utf-8")
    if as_json:
        emit(result.as_json() | ({"written": str(output)} if output else {}))
        return
    show(lead(result), tables(result))
    if output is not None:
        click.echo(f"wrote {safe(str(output))}")
