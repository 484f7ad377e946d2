"""Keep the edits worth training on: those that did what was asked (compliance 5) and changed nothing but the light
(lighting 1). What has no score is not kept: what was not judged did not pass. For files, as here, the same is
`editjudge export RUN -o . --where "effect_score>=5" --where "Contextual_Preservation>=1"`.

Without a judge, recorded replies stand in for one; `python examples/filter_a_data_set.py openai/gpt-6.1-terra` asks one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from sample_edits import BLUE, scene

import editjudge as ej

WANTED = {"effect_score": 5, "Contextual_Preservation": 1}
EDITS = {
    "brighter": scene(0).point(lambda v: v * 1.4),
    "repainted": scene(0, BLUE).point(lambda v: v * 1.4),
}
EDITS |= {"as it was": scene(0), "unread": scene(0).point(lambda v: v * 1.3)}
SAID = {  # of compliance, of lighting
    "brighter": (5, "The room is brighter: allowed", 1),
    "repainted": (5, "The ball is blue: not allowed", 0),
    "as it was": (1, "There is none", 1),
}


def replies() -> list[dict[str, str]]:
    lines = []
    for item, (effect, line, kept) in SAID.items():
        about_effect = json.dumps(
            {"reasoning": "More light was asked for.", "effect_score": effect}
        )
        verdict = json.dumps(
            {"Contextual_Preservation": {"reason": line, "score": kept}}
        )
        about_light = f"## Difference Analysis\n- {line}\n\n## CP Decision\nIt follows.\n\n## JSON\n{verdict}"
        lines.append({"item": item, "rubric": "compliance", "reply": about_effect})
        lines.append({"item": item, "rubric": "lighting", "reply": about_light})
    return lines


with tempfile.TemporaryDirectory() as folder:
    desk = Path(folder)
    scene(0).save(desk / "input.png")
    rows = [
        {
            "id": name,
            "input": "input.png",
            "edited": f"{name}.png",
            "instruction": "More light.",
        }
        for name in EDITS
    ]
    for name, picture in EDITS.items():
        picture.save(desk / f"{name}.png")
    (desk / "edits.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (desk / "replies.jsonl").write_text("\n".join(map(json.dumps, replies())))
    judge = sys.argv[1] if len(sys.argv) > 1 else f"replay:{desk / 'replies.jsonl'}"
    run = ej.run(
        desk / "edits.jsonl",
        rubrics=["compliance", "lighting"],
        judges=[judge],
        store=desk / "editjudge.db",
    )
    scores: dict[str, dict[str, int]] = {name: {} for name in EDITS}
    for row in run.judgements():
        scores[row["item"]] |= row["scores"] or {}

kept = [row for row in rows if scores[row["id"]] == WANTED]
for item, said in scores.items():
    print(f"{item}: {said or 'not judged'}")
print(f"{len(kept)} of {len(rows)} edits kept:", *map(json.dumps, kept), sep="\n")
