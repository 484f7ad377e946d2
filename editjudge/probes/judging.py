"""The probe set before a judge: through the same plan, keys, store, pace and budget as any run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from editjudge.judges.registry import Options
from editjudge.probes.making import CRAFT, LIGHT, REQUEST, Album, Probe
from editjudge.probes.result import AnsweredProbe
from editjudge.rubrics.files import resolve
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import Layout
from editjudge.run.job import Job
from editjudge.store.records import PENDING
from editjudge.store.store import Store

PLATES: Mapping[tuple[str, ...], str] = {CRAFT: "probe-craft", REQUEST: "probe-request", LIGHT: "probe-light"}
"""Probes that are asked the same rubrics make one manifest, and one run."""


@dataclass(frozen=True)
class ProbeJob(Job):
    """A run over probes. What they were made from stands for the manifest's path, so that the same set resumes
    wherever its pictures lie."""

    made_from: str = ""

    def spec(self, rubrics: Sequence[Rubric]) -> dict[str, Any]:
        return {**super().spec(rubrics), "manifest": self.made_from}


def lay_out(made: Iterable[Probe], folder: Path) -> list[Probe]:
    """Pictures and manifests in a folder; the probes without their pictures."""
    album = Album(folder)
    laid_out = [replace(probe, edit=album.add(probe.edit, PLATES[probe.rubrics])) for probe in made]
    album.close()
    return laid_out


def jobs(
    made: Sequence[Probe],
    folder: Path,
    judge: str,
    rubrics: Sequence[str],
    options: Options,
    layout: Layout,
    source: str,
) -> list[ProbeJob]:
    """A run for each set of rubrics; none where nothing of it was asked for."""
    wanted = {rubric.name for rubric in resolve(rubrics)}
    planned = []
    for plate, name in PLATES.items():
        chosen = tuple(rubric for rubric in plate if rubric in wanted)
        if chosen and any(probe.rubrics == plate for probe in made):
            manifest = folder / f"{name}.jsonl"
            job = ProbeJob(manifest, chosen, (judge,), layout=layout, options=options, made_from=f"{name}, {source}")
            planned.append(job)
    return planned


def answers(store: Store, runs: Iterable[int]) -> list[AnsweredProbe]:
    """What was said in these runs; what was not asked yet is not there."""
    fields = ("item", "rubric", "status", "scores")
    return [
        AnsweredProbe(row["item"], row["rubric"], row["status"], row["scores"] or {})
        for run in runs
        for row in store.judgements(run, fields=fields)
        if row["status"] != PENDING
    ]
