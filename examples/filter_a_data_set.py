"""Keep the edits worth training on: those that did what was asked (compliance 5) and changed nothing else than light
(lighting 1). A judge that could not answer keeps nothing: what was not judged did not pass."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import editjudge as ej
from editjudge.probes.making import Album, attention

WANTED = {"effect_score": 5, "Contextual_Preservation": 1}
RUBRICS = ["lighting"]  # ["compliance", "lighting"] with a judge that understands instructions

with tempfile.TemporaryDirectory() as folder:
    album = Album(Path(folder))
    for probe in attention(photographs=1):  # yours: a manifest of synthetic edits
        if "lighting" in probe.rubrics:
            album.add(probe.edit, "edits")
    (manifest,) = album.close()
    run = ej.run(manifest, rubrics=RUBRICS, judges=["measured"], store=f"{folder}/editjudge.db")
    scores: dict[str, dict[str, int]] = {}
    for row in run.judgements():
        scores.setdefault(row["item"], {}).update(row["scores"] or {})
    asked = {factor for rubric in RUBRICS for factor in (f.key for f in ej.load_rubric(rubric).factors)}
    kept = [
        line
        for line in manifest.read_text().splitlines()
        if all(scores[json.loads(line)["id"]].get(factor) == WANTED[factor] for factor in asked)
    ]
    (Path(folder) / "kept.jsonl").write_text("\n".join(kept))

print(f"{len(kept)} of {len(scores)} edits kept")
for item, said in scores.items():
    print(f"  {item}: {said or 'not judged'}")
