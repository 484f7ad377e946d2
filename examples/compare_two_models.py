"""Is one model better than another? Judge both on the same instructions, and look at the paired difference."""

from __future__ import annotations

import tempfile
from pathlib import Path

import editjudge as ej
from editjudge.probes.making import Album, pretend
from editjudge.report.differences import differences
from editjudge.report.scored import load
from editjudge.store.store import Store

with tempfile.TemporaryDirectory() as folder:
    album = Album(Path(folder))
    for edit in pretend(photographs=3):  # yours: a manifest with a `model` on each line
        if edit.model in ("clean", "sloppy"):
            album.add(edit, "edits")
    (manifest,) = album.close()
    store = f"{folder}/editjudge.db"
    run = ej.run(manifest, rubrics=["quality"], judges=["measured"], store=store)
    with Store.open(store, readonly=True) as opened:
        judged = load(opened, run.name)

print(*judged.lead(), sep="\n")
for found in differences(judged, "model", "clean", "sloppy"):
    d = found.difference
    if d.difference is None or d.ci is None:
        print(f"{d.factor}: nothing to compare, {d.n} edits have a score on both sides")
    else:
        print(f"{d.factor}: {d.difference:+.2f} [{d.ci.lo:+.2f}, {d.ci.hi:+.2f}] over {d.groups} photographs")
