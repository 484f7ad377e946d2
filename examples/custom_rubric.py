"""A rubric of your own: one factor, three values. Prompt, JSON schema, validator and report follow from this data."""

from __future__ import annotations

from editjudge.rubrics.contract import check
from editjudge.rubrics.files import parse
from editjudge.rubrics.schema import answer_schema

RUBRIC = """
name: shadows
description: Does what was added cast the shadow that it should?
task: Judge whether everything that the edit added casts a believable shadow.
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

rubric = parse(RUBRIC)
print(f"{rubric.name}, {rubric.hash[:12]}: {[(f.key, f.scale.words) for f in rubric.factors]}\n")
print(answer_schema(rubric), "\n")
for reply in (
    '{"image_id": "edit-1", "shadow": {"score": 3, "justification": "The direction is right, the foot untouched."}}',
    '{"image_id": "edit-1", "shadow": {"score": 4, "justification": "Nearly right."}}',
    "I would say 5 out of 5.",
):
    print(reply, "\n  ->", check(rubric, reply, identifier="edit-1"), "\n")
