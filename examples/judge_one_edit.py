"""Judge one edit and read what was said: scores, reasons, abstentions. Any judge; the embedded one needs no key."""

from __future__ import annotations

import sys

import editjudge as ej
from editjudge.probes.making import pretend

judge = sys.argv[1] if len(sys.argv) > 1 else "measured"
edit = next(e for e in pretend(photographs=1) if e.model == "leaky")  # does what was asked, and stains the rest

verdict = ej.judge(input=edit.input, edited=edit.edited, instruction=edit.instruction, judge=judge)
print(f"{judge} on: {edit.instruction}\n")
for rubric, said in verdict.items():
    print(f"{rubric}: {said.status}")
    for factor, score in (said.scores or {}).items():
        print(f"  {factor}: {score}  {(said.justifications or {}).get(factor, '')}")
    for factor, reason in said.abstained.items():
        print(f"  {factor}: no score  {reason}")
