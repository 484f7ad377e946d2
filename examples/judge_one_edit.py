"""Judge one edit and read what was said: scores, reasons, abstentions. Any judge; the embedded one needs no key."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sample_edits import sample

import editjudge as ej

judge = sys.argv[1] if len(sys.argv) > 1 else "measured"
ASKED = "Paint the ball blue."

with tempfile.TemporaryDirectory() as folder:
    sample(Path(folder), pictures=1)
    # Of the pretend editors this one does what was asked, and stains the wall.
    verdict = ej.judge(input=f"{folder}/0.png", edited=f"{folder}/0-leaky.png", instruction=ASKED, judge=judge)
print(f"{judge} on: {ASKED}\n")
for rubric, said in verdict.items():
    print(f"{rubric}: {said.status}")
    for factor, score in (said.scores or {}).items():
        print(f"  {factor}: {score}  {(said.justifications or {}).get(factor, '')}")
    for factor, reason in said.abstained.items():
        print(f"  {factor}: no score  {reason}")
