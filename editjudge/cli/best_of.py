"""`editjudge run --best-of`: several outputs of one instruction, ranked by asking about two at a time."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.output import safe
from editjudge.cli.run import EXIT, exit_code, tell_outcome, watched
from editjudge.errors import ManifestError, UsageError

if TYPE_CHECKING:
    from editjudge.edit import Edit
    from editjudge.run.best_of import GroupRanking, Method, Pair, Verdicts
    from editjudge.run.job import Job, Outcome, RunOptions
    from editjudge.store.store import Store

_LISTED = 20
"""Groups that people are shown; `--json` has all."""


class _Stopped(Exception):
    """A round that did not end: interrupted, out of budget, or failed."""

    def __init__(self, outcome: Outcome | None) -> None:
        super().__init__()
        self.outcome = outcome


def conduct_best_of(
    job: Job,
    method: Method,
    opener: Callable[[], Store],
    run_options: RunOptions,
    max_failures: float,
    as_json: bool,
    quiet: bool,
) -> int:
    """Ask round by round, all under one run; asking again goes on, since answers are known by their keys."""
    from editjudge.run.best_of import play

    started = time.monotonic()
    if single := [rubric.name for rubric in job.load_rubrics() if not rubric.pairwise]:
        raise UsageError(f"--best-of asks about pairs, and {', '.join(single)} about one edit; leave out --rubric")
    edits, groups = _candidates(job)
    rounds = _Rounds(job, method, edits, opener(), run_options, quiet)
    try:
        rankings = play(groups, method, rounds.ask)
    except _Stopped as stopped:
        if stopped.outcome is None:
            return EXIT["interrupted"]
        tell_outcome(stopped.outcome, time.monotonic() - started, as_json, stopped.outcome.store)
        return EXIT[stopped.outcome.ending]
    outcome = rounds.outcome
    assert outcome is not None  # noqa: S101  (there is a group, so there was a round)
    answer = {"best_of": {"method": method, "questions": rounds.questions, "groups": [r.as_json() for r in rankings]}}
    tell_outcome(outcome, time.monotonic() - started, as_json, outcome.store, answer)
    if not as_json:
        _tell(rankings, edits)
    return exit_code(outcome, max_failures)


def _candidates(job: Job) -> tuple[dict[str, Edit], dict[str, list[str]]]:
    """The edits by id, and the ids of those that share input and instruction."""
    from editjudge.manifest.pairs import content_marks

    mark = content_marks()
    edits = {edit.id: edit for edit in job.edits()}
    groups: dict[tuple[str, str], list[str]] = {}
    for edit in edits.values():
        if edit.input is not None:
            groups.setdefault((mark(edit.input), edit.instruction), []).append(edit.id)
    several = {ids[0]: ids for ids in groups.values() if len(ids) > 1}
    if not several:
        raise ManifestError(f"{job.manifest}: no two edits share input and instruction; there is nothing to rank")
    return edits, several


class _Rounds:
    def __init__(
        self, job: Job, method: Method, edits: dict[str, Edit], store: Store, run_options: RunOptions, quiet: bool
    ) -> None:
        self._job, self._method, self._edits, self._store = job, method, edits, store
        self._options, self._quiet = run_options, quiet
        self._rows: dict[str, dict[str, Any]] = {}
        self.outcome: Outcome | None = None
        self.questions = 0

    def ask(self, pairs: Iterable[Pair]) -> Verdicts:
        from editjudge.manifest.pairs import pair_row
        from editjudge.orders import majority
        from editjudge.store.pairs import answers_about, ranking_factor

        ids = {pair: f"{pair[0]}|{pair[1]}" for pair in pairs}
        for (a, b), name in ids.items():
            row = pair_row(self._edits[a], self._edits[b])
            self._rows[name] = {
                key: str(value) if hasattr(value, "__fspath__") else value for key, value in row.items()
            }
        # With the rounds before, which would else have left the manifest. Paths were confined when it was read.
        rows = list(self._rows.values())
        job = dataclasses.replace(
            self._job, rows=rows, best_of=self._method, allow_outside=True, models=(), limit=None, columns=()
        )
        outcome = watched(job, self._store, self._options, quiet=self._quiet)
        self.outcome = outcome
        if outcome is None or outcome.ending != "finished":
            raise _Stopped(outcome)
        self.questions += len(ids)
        answers = answers_about(self._store, self._store.find_run(outcome.run_id), list(ids.values()))
        verdicts: Verdicts = {
            pair: majority(one.decision(ranking_factor([one])).verdict for one in answers.get(name, ()))
            for pair, name in ids.items()
        }
        return verdicts


def _tell(rankings: list[GroupRanking], edits: dict[str, Edit]) -> None:
    for ranking in rankings[:_LISTED]:
        order = ", ".join(f"{one.rank}. {one.id} ({one.points:g} of {one.games})" for one in ranking.candidates)
        best = ranking.best or f"none: {ranking.reason}"
        click.echo(safe(f"{edits[ranking.group].instruction[:60]!r}: best {best}; {order}"))
    if len(rankings) > _LISTED:
        click.echo(f"and {len(rankings) - _LISTED:,} more; --json has them all")
    models = Counter(edits[ranking.best].model or "-" for ranking in rankings if ranking.best)
    if len(models) > 1:
        click.echo("best: " + safe(", ".join(f"{name} {n:,}" for name, n in models.most_common())))
