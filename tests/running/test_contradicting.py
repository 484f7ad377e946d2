"""After a run, what other judges said is held against what was measured."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from editjudge.report.contradictions import contradictions_of, refutations
from editjudge.running.job import Job, RunOptions, execute
from editjudge.store.records import Count
from editjudge.store.store import Store

FACTORS = ("unchanged_regions", "global_consistency", "identity_preservation")


def manifest(folder: Path, noise: int = 1) -> Path:
    """Two edits: in one all colours of the picture moved, in the other a corner changed."""
    rng = np.random.default_rng(noise)
    before = np.tile(
        np.linspace(40, 200, 96, dtype=np.uint8)[:, None, None], (1, 96, 3)
    )
    before = np.clip(before + rng.integers(-8, 8, before.shape), 0, 255).astype(
        np.uint8
    )
    corner = before.copy()
    corner[:20, :20] = (200, 30, 30)
    warm = np.clip(before + np.array((60, 0, -60)), 0, 255).astype(np.uint8)
    for name, picture in {"before": before, "all": warm, "corner": corner}.items():
        Image.fromarray(picture).save(folder / f"{name}.png")
    rows = [{"id": x, "input": "before.png", "edited": f"{x}.png", "instruction": "a red corner", "model": "m"}
            for x in ("all", "corner")]  # fmt: skip
    path = folder / "edits.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def replies(folder: Path, score: int = 7) -> str:
    path = folder / f"replies-{score}.jsonl"
    said = {
        f: {
            "score": score,
            "justification": "all of it looks the same to me, everywhere",
        }
        for f in FACTORS
    }
    with path.open("w") as file:
        for item in ("all", "corner"):
            reply = json.dumps({"image_id": item, "online_factor_results": said})
            file.write(
                json.dumps({"item": item, "rubric": "preservation", "reply": reply})
                + "\n"
            )
    return f"replay:{path}"


def run(store: Store, path: Path, *judges: str, name: str = "r") -> Any:
    job = Job(path, ("preservation",), judges)
    asyncio.run(execute(job, store, RunOptions(name=name)))
    return store.find_run(name)


def found(store: Store, of: Any) -> list[tuple[str, str]]:
    keys = {
        row["key"]: row["item"] for row in store.judgements(of, fields=("key", "item"))
    }
    against = refutations(store, of, set(keys.values()))
    return [(keys[key], factor) for key, held in against.items() for factor, *_ in held]


def counts(store: Store, of: Any) -> Sequence[Count]:
    return contradictions_of(store, of).counts


def test_a_verdict_that_the_evidence_refutes_is_recorded_with_what_it_says(
    tmp_path: Path,
) -> None:
    judge = replies(tmp_path)
    with Store.open(tmp_path / "s.db") as store:
        done = run(store, manifest(tmp_path), judge, "measured")
        assert ("all", "global_consistency") in found(store, done)
        assert {item for item, _ in found(store, done)} == {"all"}
        told = {
            (c.judge, c.factor): (c.checked, c.contradicted)
            for c in counts(store, done)
        }
        assert told[judge, "global_consistency"] == (2, 1)
        assert {judge} == {judge for judge, _ in told}


def test_looking_writes_nothing_and_finds_the_same_again(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        done = run(store, manifest(tmp_path), replies(tmp_path), "measured")
        before = contradictions_of(store, done)
        assert before.edits == ["all"]
    with Store.open(tmp_path / "s.db", readonly=True) as store:
        assert contradictions_of(store, done) == before


def test_evidence_of_another_run_over_the_same_pictures_counts_whichever_came_first(
    tmp_path: Path,
) -> None:
    path = manifest(tmp_path)
    with Store.open(tmp_path / "s.db") as store:
        first = run(store, path, replies(tmp_path), name="said")
        assert counts(store, first) == []
        run(store, path, "measured", name="measured")
        assert ("all", "global_consistency") in found(store, first)
        last = run(store, path, replies(tmp_path, 6), name="said later")
        assert ("all", "global_consistency") in found(store, last)


def test_evidence_of_other_pictures_does_not_count(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    with Store.open(tmp_path / "s.db") as store:
        run(store, path, "measured", name="measured")
        manifest(tmp_path, noise=2)
        assert counts(store, run(store, path, replies(tmp_path), name="said")) == []


def test_without_the_run_that_measured_there_is_nothing_to_contradict(
    tmp_path: Path,
) -> None:
    path = manifest(tmp_path)
    with Store.open(tmp_path / "s.db") as store:
        done = run(store, path, replies(tmp_path), name="said")
        store.remove_run(run(store, path, "measured", name="measured"))
        assert counts(store, done) == []


def test_evidence_that_makes_no_sense_checks_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        done = run(store, manifest(tmp_path), replies(tmp_path), "measured")
    with closing(sqlite3.connect(tmp_path / "s.db")) as raw:
        raw.execute(
            "UPDATE judgements SET evidence = ? WHERE judge = 'measured'",
            ('{"measures": [1]}',),
        )
        raw.commit()
    with Store.open(tmp_path / "s.db") as store:
        assert counts(store, done) == []
