"""Three pretend editors at the same instructions, judged by the embedded judge: what `make demo` shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import editjudge as ej
from editjudge.errors import UsageError
from editjudge.probes.making import Album, pretend
from editjudge.report.run_data import load
from editjudge.report.tables import Figure, Table
from editjudge.stats.summary import summarise
from editjudge.store.store import Store

FOLDER = Path("demo")
STORE, REPORT = str(FOLDER / "editjudge.db"), str(FOLDER / "report.html")

# --- three editors, the same instructions ---
try:
    made = list(pretend())
except UsageError as error:  # `make demo` installs what it needs
    sys.exit(str(error))
shutil.rmtree(FOLDER, ignore_errors=True)
album = Album(FOLDER)
edits = [album.add(edit, "edits") for edit in made]
(manifest,) = album.close()
print(f"{len(edits)} edits of five photographs by three pretend editors: clean does what was asked, leaky also")
print("stains the rest of the picture, sloppy leaves hard rims, smears and a poor file. A first instruction:")
print(f"  {edits[0].instruction}\n")

# --- judged by measuring pixels: no key, no network ---
run = ej.run(manifest, rubrics=["online"], judges=["measured"], store=STORE, name="demo")
with Store.open(STORE, readonly=True) as store:
    judged = load(store, "demo")
cells = {(cell.factor, cell.model): cell for cell in summarise(judged.scores, scales=judged.scales)}
models = judged.scores.model.present()
rows = []
for factor in judged.scores.factor.present():
    shown = [cells[factor, model] for model in models]
    silent = sum(cell.abstained for cell in shown)
    rows.append((factor, *(Figure(cell.mean, cell.ci) for cell in shown), silent or None))
caption = f"Scores from 1 to 7 by {', '.join(judged.scores.judge.present())}: mean with 95 % interval over photographs"
print(Table.of(("factor", *models, "abstained"), rows, caption).text())
print(f"{run.summary.total} judgements, {run.summary.failed} failed. It abstains from what takes understanding.\n")

# --- the same as a page, and what to do next ---
command = [sys.executable, "-m", "editjudge", "report", "demo", "--store", STORE, "-o", REPORT]
subprocess.run(command, check=True)
typed = "editjudge" if shutil.which("editjudge") else os.path.relpath(Path(sys.executable).with_name("editjudge"))
print(f"""
Next: open {REPORT} to see every edit with its reasons, then
  {typed} compare demo --store {STORE}   is a difference between two editors real?
  {typed} probe                                    how far can this judge be trusted?
  {typed} run edits.jsonl --judge openai/gpt-4.1   your own edits, in the form of {manifest}""")
