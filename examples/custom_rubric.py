"""A rubric of your own: one factor, three values. Prompt, JSON schema, validator and report follow from this data.

Without a judge, recorded replies are held to it; `python examples/custom_rubric.py openai/gpt-6.1-terra` asks one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from sample_edits import sample

import editjudge as ej

RUBRIC = """
name: shadows
description: Does what was changed cast the shadow that it should?
task: Judge whether everything that the edit added or changed casts a believable shadow.
images: [input, edited]
texts: [instruction]
scale:
  values: [5, 3, 1]
  labels: {5: "As the light wants it", 3: "There, but off in place, shape or softness", 1: "Missing or plainly wrong"}
factors:
  - key: shadow
    definition: Direction, length, softness and contact of the shadow, held against the shadows already in the picture.
answer: {id_key: image_id, words: [3, 40]}
"""
REPLIES = {
    "0-clean": '{"image_id": "0-clean", "shadow": {"score": 1, "justification": "The ball casts no shadow."}}',
    "0-leaky": '{"image_id": "0-leaky", "shadow": {"score": 4, "justification": "Nearly as it should be."}}',
    "0-sloppy": "I would say 5 out of 5.",
}

with tempfile.TemporaryDirectory() as folder:
    desk = Path(folder)
    (desk / "shadows.yaml").write_text(RUBRIC)
    lines = [
        json.dumps({"item": item, "rubric": "shadows", "reply": reply})
        for item, reply in REPLIES.items()
    ]
    (desk / "replies.jsonl").write_text("\n".join(lines))
    judge = sys.argv[1] if len(sys.argv) > 1 else f"replay:{desk / 'replies.jsonl'}"
    run = ej.run(
        sample(desk, 1),
        rubrics=[f"{desk}/shadows.yaml"],
        judges=[judge],
        store=desk / "editjudge.db",
    )
    for row in run.judgements():
        why = row["justifications"] or "; ".join(
            reason["message"] for reason in row["reasons"]
        )
        print(f"{row['item']}: {row['status']}, {row['scores'] or 'no score'}  {why}")
print(run.table(by="model"))
