"""`editjudge run`: judge every edit in a manifest."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge import plugins
from editjudge.cli.options import (
    FILE,
    Finite,
    Setting,
    chosen_judges,
    columns_option,
    judge_options,
    judging_options,
    layout_option,
    open_store,
    outside_option,
    store_place,
    verb,
    wants_json,
)
from editjudge.cli.outcome import (
    EXIT_CODES,
    dry_run_reply,
    early_answer,
    how_to_resume,
    outcome_document,
    print_outcome,
)
from editjudge.cli.output import ExitCode, VerbReply
from editjudge.cli.tracking import Tracker, log_run
from editjudge.errors import ManifestError, Option, UsageError

if TYPE_CHECKING:
    from editjudge.edit import Edit
    from editjudge.running.best_of import GroupRanking
    from editjudge.running.engine import RunControl
    from editjudge.running.job import Job, Outcome, RunOptions
    from editjudge.store.store import Store


def _engine_name(
    _context: click.Context, _parameter: click.Parameter, name: str
) -> str:
    """Return the name of an engine after checking it. This is done when the command line is parsed, since plug-ins of
    other packages may provide engines."""
    if name != "local" and name not in plugins.providers("engines"):
        names = ("local", *plugins.providers("engines"))
        raise click.BadParameter(f"{name!r} is not one of {', '.join(names)}.")
    return name


_HELP = {
    "Main options": "--judge --rubric --name --store --model --limit --repeats --budget --dry-run --max-failures "
    "--log",
    "Early decisions": "--until --alpha --margin",
    "Edits": "--column --allow-outside --allow-urls --where --part --step --step-from",
    "Questions and answers": "--layout --fuse --order --best-of --primary --read --strict --retries-invalid",
    "Requests": "--concurrency --batch --write-questions --read-answers "
    "--engine --base-url --temperature --seed --max-tokens --reasoning-effort "
    "--timeout -J",
}
"""Options grouped by topic, the most common ones first."""


@verb(
    example="editjudge run edits.jsonl --judge openai/gpt-6.1-terra --name mine --budget 5",
    groups=_HELP,
)
@click.argument("manifest", type=FILE)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Judgements per edit and rubric.",
)
@click.option(
    "--fuse",
    is_flag=True,
    help="Ask a set in one question instead of rubric by rubric.",
)
@click.option(
    "--order",
    type=click.Choice(["both", "given"]),
    default="both",
    show_default=True,
    help="For pairs: ask in both orders, or once in the manifest's order.",
)
@click.option(
    "--best-of",
    metavar="[all]",
    is_flag=False,
    flag_value="all",
    help="Rank edits of the same input and instruction by comparing every two of them. Rubric: preference, or another "
    "for pairs.",
)
@click.option("--name", help="Name of the run. Default: made from its contents.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Judge only edits of this model; repeatable.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="Judge only the first N edits, of all --model together.",
)
@click.option(
    "--primary",
    multiple=True,
    metavar="NAME",
    help="Declare beforehand the scores that comparisons are about; repeatable. Default: the set's own scores, or the "
    "rubric means and overall.",
)
@click.option(
    "--step",
    type=Finite(min=0),
    help="Step of the training that made the edits, for `editjudge trend`.",
)
@click.option(
    "--step-from",
    metavar="REGEX",
    help=r"Read the step from each model's name instead, such as 'ckpt-(\d+)'.",
)
@click.option(
    "--log",
    "trackers",
    multiple=True,
    metavar="TRACKER[:WHERE]",
    help="Also log the finished run to mlflow[:ADDRESS], wandb[:PROJECT] or tensorboard[:FOLDER]; repeatable.",
)
@click.option(
    "--engine",
    callback=_engine_name,
    metavar="[local|ray|NAME]",
    default="local",
    show_default=True,
    help="local: this process. ray: a cluster, with a part of the edits for each worker.",
)
@click.option(
    "--part",
    metavar="I/N",
    help="Judge one of N parts of the edits, by their ids: N processes share a manifest.",
)
@click.option(
    "--where",
    metavar="RUN:NAME>=VALUE",
    multiple=True,
    help="Skip edits whose score in an earlier run of this store is too low; edits without a score are judged. "
    "Repeatable: all must hold.",
)
@click.option(
    "--until",
    metavar="CLAIM",
    multiple=True,
    help='End the run once this is decided: "overall: new > old", or != or ~ for models that differ by less than '
    "--margin. Repeatable: all must be decided.",
)
@click.option(
    "--alpha",
    type=Finite(min=0, min_open=True),
    help="Probability of any false decision of --until, whenever the run stops [0.05].",
)
@click.option(
    "--margin",
    type=Finite(min=0, min_open=True),
    help="Difference in points of the scale at which ~ counts two models as equivalent.",
)
@click.option(
    "--batch",
    is_flag=True,
    help="Use the provider's batch API: half the price, within a day.",
)
@click.option(
    "--write-questions",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Ask nothing: write the questions as a batch file of the OpenAI format, as vllm run-batch reads it.",
)
@click.option(
    "--read-answers",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Take the answers to such questions from a file; repeatable, in the order of the questions.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what would be asked and its price; ask nothing.",
)
@columns_option
@outside_option
@click.option("--allow-urls", is_flag=True, help="Fetch images from http(s) addresses.")
@layout_option()
@judging_options(several=True)
@click.option(
    "--rpm",
    "requests_per_minute",
    cls=Setting,
    type=Finite(min=0, min_open=True),
    help="Maximum requests per minute, for each judge.",
)
@click.option(
    "--tpm",
    "tokens_per_minute",
    cls=Setting,
    type=Finite(min=0, min_open=True),
    help="Maximum tokens per minute, for each judge.",
)
@click.option(
    "--rehash",
    cls=Setting,
    is_flag=True,
    help="Read every image again instead of trusting its size, times and inode.",
)
@click.option(
    "--workers",
    cls=Setting,
    type=click.IntRange(1),
    help="Workers of the cluster. Default: one for each of its CPUs.",
)
@click.option(
    "--ray-address",
    cls=Setting,
    help="Cluster to join. Default: RAY_ADDRESS, else one on this machine.",
)
def command(
    rubrics: tuple[str, ...],
    judges: tuple[str, ...],
    best_of: str | None,
    engine: str,
    ray_address: str | None,
    workers: int | None,
    part: str | None,
    dry_run: bool,
    max_failures: float,
    quiet: bool,
    trackers: tuple[str, ...],
    **values: Any,
) -> VerbReply:
    """Judge every edit of a manifest and store the judgements.

    Running the same command again resumes: finished judgements are not asked again, failed ones are. Ctrl-C waits for
    requests in flight; a second Ctrl-C stops at once.
    """
    from editjudge.judges.registry import default_rubrics
    from editjudge.running.job import Cluster, Job, Part, RunOptions

    options = judge_options(values)
    judges = chosen_judges(judges, options)
    if not rubrics:
        rubrics = ("preference",) if best_of else default_rubrics(judges, options)
    fields = {field.name for field in dataclasses.fields(RunOptions)} & values.keys()
    run_options = RunOptions(
        part=Part.parse(part) if part else None,
        cluster=None if engine == "local" else Cluster(ray_address, workers, engine),
        **{name: values.pop(name) for name in fields},
    )
    job = Job(rubrics=rubrics, judges=judges, options=options, **values)
    _check(job, run_options, best_of, dry_run=dry_run)
    logs = _trackers(trackers, job)
    if dry_run:
        return dry_run_reply(job, store_place(), run_options)
    ranking = BestOf(job) if best_of else None
    with ExitStack() as stack:
        store = functools.cache(lambda: stack.enter_context(open_store()))
        return conduct(
            ranking.job if ranking else job,
            store,
            run_options,
            max_failures,
            quiet=quiet,
            best_of=ranking,
            trackers=logs,
        )


def _trackers(names: Sequence[str], job: Job) -> list[Tracker]:
    """Return the trackers to log to, after checking that they can be used."""
    trackers = [Tracker.of(name) for name in names]
    if trackers and job.step is not None:
        from editjudge.report.tracking import whole_step

        whole_step(job.step)
    return trackers


def _check(
    job: Job, run_options: RunOptions, best_of: str | None, *, dry_run: bool
) -> None:
    """Raise `UsageError` for options that cannot be combined."""
    from editjudge.running.job import is_new

    on_cluster = run_options.cluster is not None
    if best_of not in (None, "all"):
        raise UsageError(
            f'--best-of "{best_of}" is not offered; use --best-of all, which compares every two candidates'
        )
    if on_cluster and run_options.batch:
        raise UsageError(
            "--engine ray takes no --batch: a provider's batches need one machine"
        )
    if job.where and is_new(store_place()):
        raise UsageError(
            f"--where {job.where[0]}: {store_place()} is not a store yet, so there is no earlier run"
        )
    if job.until and (best_of or on_cluster or run_options.part):
        raise UsageError(
            "--until takes neither --best-of, --part nor --engine ray: it looks at all answers in one order",
            options=[Option("until")],
        )
    if run_options.is_offline and (run_options.batch or on_cluster or dry_run):
        raise UsageError(
            "--write-questions and --read-answers take neither --batch, --dry-run nor --engine ray",
            code="offline_with",
        )
    further = (
        dry_run,
        run_options.is_offline,
        run_options.batch,
        on_cluster,
        run_options.part,
    )
    if best_of and any(further):
        raise UsageError(
            "--best-of takes neither --dry-run, --batch, --part nor --engine ray"
        )


def conduct(
    job: Job,
    store: Callable[[], Store],
    run_options: RunOptions,
    max_failures: float,
    *,
    quiet: bool,
    best_of: BestOf | None = None,
    trackers: Sequence[Tracker] = (),
) -> VerbReply:
    """Run a job with a progress display, and return its summary."""
    started = time.monotonic()
    outcome = watched(job, store, run_options, quiet=quiet)
    if outcome is None:
        stopped = {"ending": "interrupted", "error": "stopped at once"}
        return VerbReply(stopped, code=ExitCode.INTERRUPTED)
    seconds = time.monotonic() - started
    code = EXIT_CODES[outcome.ending]
    ranked = best_of if outcome.ending == "finished" else None
    if ranked:
        ranked.rank(store(), outcome.run_id)
    failed = outcome.summary.failed / max(outcome.summary.total, 1)
    if not code and failed > max_failures:
        code = ExitCode.TOO_MANY_FAILED
    print_outcome(outcome, store(), seconds, is_quiet=wants_json())
    document = outcome_document(outcome, seconds)
    claims, lines = early_answer(outcome, store())
    document |= claims
    if trackers and outcome.ending == "finished":
        document["logged"] = log_run(store(), outcome.run_id, trackers)
    elif trackers:
        click.echo("not logged, since the run has not finished", err=True)
    if ranked:
        document |= ranked.as_json()
    lines = [*lines, *(ranked.lines() if ranked else ())]
    return VerbReply(document, lines, code=code)


def watched(
    job: Job,
    store: Store | Callable[[], Store],
    run_options: RunOptions,
    *,
    quiet: bool,
) -> Outcome | None:
    """Run a job with a progress display. Return None if it was stopped at once."""
    from editjudge.running.job import execute
    from editjudge.running.progress import progress_on_terminal

    is_piped = wants_json() and not sys.stderr.isatty()
    progress = progress_on_terminal(quiet=quiet or is_piped)
    run_options = dataclasses.replace(
        run_options,
        say=progress.say,
        observe=progress,
        control=lambda control: _on_interrupt(control, progress.say),
    )
    if job.until:
        from editjudge.report.early import is_decided

        run_options = dataclasses.replace(run_options, decides=is_decided)
    try:
        return asyncio.run(execute(job, store, run_options))
    except (KeyboardInterrupt, asyncio.CancelledError):
        progress.close()
        click.echo(f"stopped at once; {how_to_resume()}", err=True)
        return None
    finally:
        progress.close()


def _on_interrupt(control: RunControl, say: Callable[[str], None]) -> None:
    """Start no more tasks at the first Ctrl-C. Cancel the running ones at the second, even if the run was already
    stopping."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    times = itertools.count()

    def interrupted() -> None:
        if next(times) and task:
            task.cancel()
            return
        control.stop("interrupted")
        say("finishing requests in flight; Ctrl-C again stops at once")

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, interrupted)


# --- the best of several outputs ------------------------------------------------------------------------------

_MAX_LISTED = 20
"""Maximum number of groups in the text output; `--json` has all."""


class BestOf:
    """A job that compares the candidates in a manifest pair by pair, and the ranking that results from its answers."""

    def __init__(self, job: Job) -> None:
        from editjudge.running.best_of import all_pairs

        single = [rubric.name for rubric in job.load_rubrics() if not rubric.pairwise]
        if single:
            raise UsageError(
                f"--best-of asks about pairs, and {', '.join(single)} about one edit; leave out --rubric"
            )
        self._edits = {edit.id: edit for edit in job.edits()}
        self._groups = _candidates(job.manifest, self._edits)
        self._pairs = {pair: f"{pair[0]}|{pair[1]}" for pair in all_pairs(self._groups)}
        self._rankings: list[GroupRanking] = []
        # Paths were checked when the manifest was read.
        self.job = dataclasses.replace(
            job,
            rows=self._rows(),
            best_of="all",
            allow_outside=True,
            models=(),
            limit=None,
            columns=(),
        )

    def _rows(self) -> list[dict[str, object]]:
        from editjudge.manifest.pairs import pair_row

        rows = []
        for a, b in self._pairs:
            row = pair_row(self._edits[a], self._edits[b])
            for name, value in row.items():
                row[name] = str(value) if isinstance(value, PathLike) else value
            rows.append(row)
        return rows

    def rank(self, store: Store, run_id: int) -> None:
        """Rank the candidates by the answers in a finished run."""
        from editjudge.orders import majority
        from editjudge.running.best_of import rank
        from editjudge.store.scores import answers_about, ranking_factor

        names = list(self._pairs.values())
        answers = answers_about(store, store.find_run(run_id), names)
        verdicts = {
            pair: majority(
                answer.decision(ranking_factor([answer])).verdict
                for answer in answers.get(name, ())
            )
            for pair, name in self._pairs.items()
        }
        self._rankings = rank(self._groups, verdicts)

    def as_json(self) -> dict[str, object]:
        groups = [ranking.as_json() for ranking in self._rankings]
        questions = len(self._pairs)
        return {"best_of": {"method": "all", "questions": questions, "groups": groups}}

    def lines(self) -> Iterator[str]:
        """Yield the order of each group, and which models made the best candidates."""
        for ranking in self._rankings[:_MAX_LISTED]:
            order = ", ".join(
                f"{output.rank}. {output.id} ({output.points:g} of {output.games})"
                for output in ranking.candidates
            )
            best = ranking.best or f"none: {ranking.reason}"
            instruction = self._edits[ranking.group].instruction[:60]
            yield f"{instruction!r}: best {best}; {order}"
        if len(self._rankings) > _MAX_LISTED:
            yield f"and {len(self._rankings) - _MAX_LISTED:,} more; --json has them all"
        best_ids = (ranking.best for ranking in self._rankings if ranking.best)
        models = Counter(self._edits[best].model or "-" for best in best_ids)
        if len(models) > 1:
            yield "best: " + ", ".join(f"{m} {n:,}" for m, n in models.most_common())


def _candidates(manifest: Path, edits: dict[str, Edit]) -> dict[str, list[str]]:
    """Return the ids of edits with the same input and instruction, keyed by the first id among them."""
    from editjudge.manifest.pairs import content_marks

    mark = content_marks()
    groups: dict[tuple[str, str], list[str]] = {}
    for edit in edits.values():
        if edit.input is not None:
            groups.setdefault((mark(edit.input), edit.instruction), []).append(edit.id)
    several = {ids[0]: ids for ids in groups.values() if len(ids) > 1}
    if not several:
        raise ManifestError(
            f"{manifest}: no two edits share input and instruction; there is nothing to rank"
        )
    return several
