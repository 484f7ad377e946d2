"""Is one model better than another? Judge both on the same instructions, and look at the paired difference."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sample_edits import sample

import editjudge as ej
from editjudge.report.comparison import differences
from editjudge.report.run_data import load
from editjudge.store.store import Store

with tempfile.TemporaryDirectory() as folder:
    manifest = sample(Path(folder))  # yours: a manifest with a `model` on each line
    store = f"{folder}/editjudge.db"
    run = ej.run(manifest, rubrics=["quality"], judges=["measured"], models=["clean", "sloppy"], store=store)
    with Store.open(store, readonly=True) as opened:
        judged = load(opened, run.name)

print(*judged.lead(), "sloppy minus clean, with 95 % intervals:", sep="\n")
for found in differences(judged, "model", "clean", "sloppy"):
    d = found.difference
    if d.difference is None or d.ci is None:
        print(f"{d.factor}: nothing to compare, {d.n} edits have a score on both sides")
    else:
        print(f"{d.factor}: {d.difference:+.2f} [{d.ci.lo:+.2f}, {d.ci.hi:+.2f}] over {d.groups} pictures")
