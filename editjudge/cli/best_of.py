"""`editjudge run --best-of`: several outputs of one instruction, ranked by asking about two at a time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.output import safe
from editjudge.errors import ManifestError, UsageError

if TYPE_CHECKING:
    from editjudge.edit import Edit
    from editjudge.running.best_of import GroupRanking
    from editjudge.running.job import Job
    from editjudge.store.store import Store

_LISTED = 20
"""Groups that people are shown; `--json` has all."""


class BestOf:
    """The pairs of a manifest's candidates as a job of their own, and the ranking that its answers give."""

    def __init__(self, job: Job, opener: Callable[[], Store]) -> None:
        if single := [
            rubric.name for rubric in job.load_rubrics() if not rubric.pairwise
        ]:
            raise UsageError(
                f"--best-of asks about pairs, and {', '.join(single)} about one edit; leave out --rubric"
            )
        from editjudge.running.best_of import all_pairs

        self._edits, self._groups = _candidates(job)
        self._pairs = {pair: f"{pair[0]}|{pair[1]}" for pair in all_pairs(self._groups)}
        self._rankings: list[GroupRanking] = []
        # Paths were confined when the manifest was read.
        self.job = dataclasses.replace(
            job,
            rows=self._rows(),
            best_of="all",
            allow_outside=True,
            models=(),
            limit=None,
            columns=(),
        )
        self.store = opener()

    def _rows(self) -> list[dict[str, Any]]:
        from editjudge.manifest.pairs import pair_row

        rows = []
        for a, b in self._pairs:
            row = pair_row(self._edits[a], self._edits[b])
            rows.append(
                {
                    name: str(value) if isinstance(value, PathLike) else value
                    for name, value in row.items()
                }
            )
        return rows

    def rank(self, run_id: int) -> None:
        """Read the answers of a finished run and rank the candidates by them."""
        from editjudge.orders import majority
        from editjudge.running.best_of import rank
        from editjudge.store.pairs import answers_about, ranking_factor

        answers = answers_about(
            self.store, self.store.find_run(run_id), list(self._pairs.values())
        )
        verdicts = {
            pair: majority(
                answer.decision(ranking_factor([answer])).verdict
                for answer in answers.get(name, ())
            )
            for pair, name in self._pairs.items()
        }
        self._rankings = rank(self._groups, verdicts)

    def as_json(self) -> dict[str, Any]:
        groups = [ranking.as_json() for ranking in self._rankings]
        return {
            "best_of": {
                "method": self.job.best_of,
                "questions": len(self._pairs),
                "groups": groups,
            }
        }

    def tell(self) -> None:
        for ranking in self._rankings[:_LISTED]:
            order = ", ".join(
                f"{one.rank}. {one.id} ({one.points:g} of {one.games})"
                for one in ranking.candidates
            )
            best = ranking.best or f"none: {ranking.reason}"
            click.echo(
                safe(
                    f"{self._edits[ranking.group].instruction[:60]!r}: best {best}; {order}"
                )
            )
        if len(self._rankings) > _LISTED:
            click.echo(
                f"and {len(self._rankings) - _LISTED:,} more; --json has them all"
            )
        models = Counter(
            self._edits[ranking.best].model or "-"
            for ranking in self._rankings
            if ranking.best
        )
        if len(models) > 1:
            click.echo(
                "best: "
                + safe(", ".join(f"{name} {n:,}" for name, n in models.most_common()))
            )


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
        raise ManifestError(
            f"{job.manifest}: no two edits share input and instruction; there is nothing to rank"
        )
    return edits, several
