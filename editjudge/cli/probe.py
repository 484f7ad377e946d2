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
    FILE,
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
    from editjudge.judges.judge import Options
    from editjudge.report.answers import Answer
    from editjudge.running.job import RunOptions
    from editjudge.store.store import Store
    from editjudge.vision.probes.making import ProbeJob
    from editjudge.vision.probes.result import ProbeResult

FORMATS = (".html", ".json", ".md")
_PHOTOS = 5


@verb(
    note=SEE_RUN,
    example="editjudge probe --judge openai/gpt-6.1-terra -o probes.html",
)
@click.option(
    "--photos",
    type=click.IntRange(1, 1000),
    default=_PHOTOS,
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
@click.option(
    "--passport",
    type=NewFile(),
    metavar="FILE",
    help="Ask what the judge may be trusted with instead, and write its passport (JSON) to this file; -o writes the page.",
)
@click.option(
    "--quick/--full",
    default=False,
    help="Of --passport: 12 photographs, controls and four cues; or everything on at least 24.  [default: full]",
)
@click.option(
    "--photographs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Further photographs for the full set of --passport.",
)
@click.option(
    "--compare",
    "compared",
    nargs=2,
    type=FILE,
    metavar="A B",
    help="Compare two passports; asks nothing.",
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
    passport: Path | None,
    quick: bool,
    photographs: Path | None,
    compared: tuple[Path, Path] | None,
    **values: Any,
) -> VerbReply:
    """Test a judge with edits whose right answer is known.

    Makes edits of public-domain photographs: a clean edit, the same edit with one defect at four rising strengths,
    controls, and prompt injections. Then reports whether each factor falls with its own defect while the others stay.
    Running again resumes. `editjudge docs probes` explains each figure.

    With --passport: does the judge see the instruction and both images, is it stable when files are encoded again, does
    it pay for saturation, captions or praise? Each line is answered yes, no, or not shown with this many photographs.
    `gate` and `serve` can require lines of it. The rubrics are those of `online` unless --rubric names others.
    """
    need_extra("probes", "probe")
    if compared:
        return _comparison(*compared, output)
    if passport is None and (quick or photographs):
        raise UsageError("--quick, --full and --photographs belong to --passport FILE")
    if output is not None and output.suffix not in FORMATS:
        raise UsageError(
            f"-o {output}: expected a name that ends in {', '.join(FORMATS)}"
        )
    from editjudge.rubrics.files import resolve
    from editjudge.running.job import RunOptions
    from editjudge.vision.probes.making import answers, jobs, probes, write_manifests
    from editjudge.vision.probes.result import figures

    # The seed of the probe set, which is not part of any question.
    seed = values.pop("seed") or 0
    if seed < 0:
        raise UsageError(f"--seed {seed}: at least 0")
    options = judge_options(values | {"seed": None})
    (spec,) = chosen_judges((judge,) if judge else (), options)
    check_judges({spec: options}, needs_key=not dry_run)
    run_options = RunOptions(concurrency=concurrency, budget=budget)
    asking = Asking(spec, options, layout, run_options, max_failures, quiet)
    if passport is not None:
        chosen = rubrics if _is_typed("rubrics") else ("online",)
        if photos != _PHOTOS or seed:
            raise UsageError(
                "--photos and --seed do not apply to --passport; see --photographs"
            )
        kind = "quick" if quick else "full"
        return _passport(
            asking, kind, chosen, photographs, passport, output, write, dry_run=dry_run
        )
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
        asking.print_price(planned)
        with open_store() as store:
            code, runs = asking.judge(planned, store)
            answered = answers(store, runs)
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


@dataclasses.dataclass(frozen=True)
class Asking:
    """A judge, and how it is asked."""

    judge_spec: str
    options: Options
    layout: Any
    run_options: RunOptions
    max_failures: float
    quiet: bool

    def print_price(self, planned: Sequence[ProbeJob]) -> None:
        """Print the price of a judge that is called over the network. Raise an error if its key is missing, before a
        store is created."""
        from editjudge.judges.judge import is_local

        if is_local(self.judge_spec):
            return
        for line in _forecast(planned, needs_keys=True).lines:
            click.echo(printable(line), err=True)

    def judge(self, planned: Sequence[ProbeJob], store: Store) -> tuple[int, list[int]]:
        """Run the jobs in order until one is stopped. Return the exit code and the ids of the runs."""
        runs: list[int] = []
        failed = 0
        total = 0
        run_options = self.run_options
        for job in planned:
            outcome = watched(job, store, run_options, quiet=self.quiet)
            if outcome is None:
                return ExitCode.INTERRUPTED, runs
            runs.append(outcome.run_id)
            failed += outcome.summary.failed
            total += outcome.summary.total
            if run_options.budget is not None:
                left = max(0.0, run_options.budget - outcome.tally.cost)
                run_options = dataclasses.replace(run_options, budget=left)
            if outcome.ending != "finished":
                warn(str(outcome.error or f"stopped; {how_to_resume()}"))
                return EXIT_CODES[outcome.ending], runs
        is_bad = failed > self.max_failures * total
        return ExitCode.TOO_MANY_FAILED if is_bad else ExitCode.DONE, runs


def _passport(
    asking: Asking,
    kind: str,
    rubrics: tuple[str, ...],
    photographs: Path | None,
    path: Path,
    output: Path | None,
    write: Path | None,
    *,
    dry_run: bool,
) -> VerbReply:
    """Ask the questions of a passport and write it."""
    from editjudge.report.passport import passport_answer
    from editjudge.vision.probes.passport import PassportSet, issue

    made = PassportSet.of(kind, rubrics, photographs)
    with _folder(write) as folder:
        planned = made.jobs(folder, asking.judge_spec, asking.options, asking.layout)
        if dry_run:
            return _forecast(planned, needs_keys=False)
        asking.print_price(planned)
        with open_store() as store:
            code, runs = asking.judge(planned, store)
            if code not in (ExitCode.DONE, ExitCode.TOO_MANY_FAILED):
                stopped = {"error": "stopped before all questions were asked", "passport": None}  # fmt: skip
                return VerbReply(stopped, [f"no passport yet; {how_to_resume()}"], code=code)  # fmt: skip
            issued = issue(made, store, runs, asking.judge_spec, asking.layout, asking.options)  # fmt: skip
    answer = passport_answer(issued)
    path.write_text(json.dumps(answer.document, indent=2, allow_nan=False) + "\n", "utf-8")  # fmt: skip
    paths = [path]
    if output is not None:
        _write_page(answer, f"Passport of {issued.judge}", output)
        paths.append(output)
    lines = [*answer.lead, f"wrote {', '.join(map(str, paths))}"]
    return VerbReply(answer.document, lines, answer.tables, code)


def _comparison(first: Path, second: Path, output: Path | None) -> VerbReply:
    from editjudge.report.passport import Passport, compare_passports

    answer = compare_passports(Passport.read(first), Passport.read(second))
    if output is not None:
        _write_page(answer, "Two passports", output)
    return VerbReply.of(answer)


def _write_page(answer: Answer, title: str, output: Path) -> None:
    from editjudge.report.answers import together_markdown
    from editjudge.report.passport import passport_page

    if output.suffix == ".html":
        text = passport_page(answer, title)
    elif output.suffix == ".json":
        text = json.dumps(answer.document, indent=2, allow_nan=False) + "\n"
    else:
        text = together_markdown(title, answer.lead, answer.tables)
    output.write_text(text, "utf-8")


def _is_typed(name: str) -> bool:
    """Whether an option was given on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


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
