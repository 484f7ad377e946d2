"""What a judge is asked and what counts as an answer: shows the rubrics, and holds sample replies against one."""

from __future__ import annotations

import json

from editjudge.rubrics.contract import Verdict, check
from editjudge.rubrics.files import load, names

for name in names():
    rubric = load(name)
    scales = ", ".join(dict.fromkeys(factor.scale.words for factor in rubric.factors))
    print(f"{name:<13} {len(rubric.factors):>2} x {scales:<25} {rubric.description}")

rubric = load("compliance")
good = json.dumps({"reasoning": "A blue car was asked for; the left car went from red to blue.", "effect_score": 5})
REPLIES = {
    "one answer": good,
    "in a code block, with prose": f"Here is my answer:\n```json\n{good}\n```",
    "a decimal": good.replace("5}", "4.5}"),
    "a score as text": good.replace("5}", '"5"}'),
    "two different answers": good + good.replace("5}", "1}"),
    "cut off": good[:-2],
    "declined": "I'm sorry, but I can't help with that.",
}

print(f"\nReplies held against the contract of {rubric.name}:")
for kind, reply in REPLIES.items():
    outcome = check(rubric, reply)
    if isinstance(outcome, Verdict):
        said = f"accepted, {dict(outcome.scores)} {' '.join(r.code for r in outcome.violations)}"
    else:
        said = f"{outcome.status}: {outcome.reasons[0].message}"
    print(f"  {kind:<28} {said}")
