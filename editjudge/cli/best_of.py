"""`editjudge run --best-of`: several outputs of one instruction, ranked by asking about two at a time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.output import safe
from editjudge.cli.run import watched
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


class BestOf:
    """Asks round by round, all under one run; asking again goes on, since answers are known by their keys."""

    def __init__(self, method: Method, job: Job, opener: Callable[[], Store], run_options: RunOptions) -> None:
        if single := [rubric.name for rubric in job.load_rubrics() if not rubric.pairwise]:
            raise UsageError(f"--best-of asks about pairs, and {', '.join(single)} about one edit; leave out --rubric")
        self._method, self._job, self._options = method, job, run_options
        self._edits, self._groups = _candidates(job)
        self._store, self._quiet = opener(), False
        self._rows: dict[str, dict[str, Any]] = {}
        self._outcome: Outcome | None = None
        self._questions = 0
        self._rankings: list[GroupRanking] = []

    def watched(self, *, quiet: bool) -> Outcome | None:
        """The outcome of the last round, or of the one that did not end; None where that was stopped at once."""
        from editjudge.run.best_of import play

        self._quiet = quiet
        with suppress(_Stopped):
            self._rankings = play(self._groups, self._method, self._ask)
        return self._outcome

    def _ask(self, pairs: Iterable[Pair]) -> Verdicts:
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
        self._outcome = outcome = watched(job, self._store, self._options, quiet=self._quiet)
        if outcome is None or outcome.ending != "finished":
            raise _Stopped
        self._questions += len(ids)
        answers = answers_about(self._store, self._store.find_run(outcome.run_id), list(ids.values()))
        verdicts: Verdicts = {
            pair: majority(one.decision(ranking_factor([one])).verdict for one in answers.get(name, ()))
            for pair, name in ids.items()
        }
        return verdicts

    def as_json(self) -> dict[str, Any]:
        groups = [ranking.as_json() for ranking in self._rankings]
        return {"best_of": {"method": self._method, "questions": self._questions, "groups": groups}}

    def tell(self) -> None:
        for ranking in self._rankings[:_LISTED]:
            order = ", ".join(f"{one.rank}. {one.id} ({one.points:g} of {one.games})" for one in ranking.candidates)
            best = ranking.best or f"none: {ranking.reason}"
            click.echo(safe(f"{self._edits[ranking.group].instruction[:60]!r}: best {best}; {order}"))
        if len(self._rankings) > _LISTED:
            click.echo(f"and {len(self._rankings) - _LISTED:,} more; --json has them all")
        models = Counter(self._edits[ranking.best].model or "-" for ranking in self._rankings if ranking.best)
        if len(models) > 1:
            click.echo("best: " + safe(", ".join(f"{name} {n:,}" for name, n in models.most_common())))


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
