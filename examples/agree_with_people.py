"""How far does a judge agree with people, and people among themselves? Three pretend raters over pretend edits."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from sample_edits import EDITORS, sample

import editjudge as ej
from editjudge.ratings import Rating, ratings_columns
from editjudge.report.agreement import agreed, tables
from editjudge.report.run_data import load
from editjudge.store.store import Store

TASTE = {"clean": 6.5, "leaky": 4.0, "sloppy": 2.5}
chance = random.Random(0)

with tempfile.TemporaryDirectory() as folder:
    store = f"{folder}/editjudge.db"
    run = ej.run(sample(Path(folder), pictures=6), rubrics=["quality"], judges=["measured"], store=store)
    with Store.open(store, readonly=True) as opened:
        judged = load(opened, run.name)

rated = [  # yours: `editjudge ratings import FILE`, or the rating pages of `editjudge serve`
    Rating(f"{n}-{model}", rater, "image_quality", min(7, max(1, round(TASTE[model] + chance.gauss(0, 0.8)))))
    for n in range(6)
    for model in EDITORS
    for rater in ("ann", "bob", "cid")
]
for table in tables(agreed(ratings_columns(rated), judged.scores)):
    print(table.text(), end="\n\n")
