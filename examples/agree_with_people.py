"""How far does a judge agree with people, and people among themselves? Three pretend raters over pretend edits."""

from __future__ import annotations

# %% Judge some edits.
import random
import tempfile
from pathlib import Path

from sample_edits import EDITORS, sample

import editjudge as ej

desk = Path(tempfile.mkdtemp())
run = ej.run(
    sample(desk, pictures=6),
    rubrics="quality",
    judges="measured",
    store=desk / "editjudge.db",
)

# %% Ratings: a CSV, JSONL or Parquet file, a data frame, or rows with item, rater, factor and score.
TASTE = {"clean": 6.5, "leaky": 4.0, "sloppy": 2.5}
chance = random.Random(0)
ratings = [
    {
        "item": f"{n}-{model}",
        "rater": rater,
        "factor": "PQ",
        "score": round(TASTE[model] + chance.gauss(0, 0.8)),
    }
    for n in range(6)
    for model in EDITORS
    for rater in ("ann", "bob", "cid")
]

# %% People call the factor PQ, the judge image_quality. What people reach among themselves is the ceiling.
agreement = run.agree(ratings, map_factor={"PQ": "image_quality"})
print(agreement)
print(agreement["factors"]["image_quality"]["measured"]["spearman"])
