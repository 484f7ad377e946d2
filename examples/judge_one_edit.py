"""Judge one edit and read the answer: scores, reasons, abstentions.

The embedded judge needs no key. Set EDITJUDGE_JUDGE=openai/gpt-6.1-terra, or another spec, to ask a model.
"""

from __future__ import annotations

# %% Two pictures, as paths, PIL pictures, arrays or bytes. This editor did what was asked, and stained the wall.
from sample_edits import BLUE, STAIN, scene

before = scene(0)
after = scene(0, BLUE, STAIN)

# %% One call; in a notebook the verdict shows itself with its pictures.
import editjudge as ej

verdict = ej.judge(input=before, edited=after, instruction="Paint the ball blue.")
print(verdict)

# %% Every score has its reason, and a factor without a score says why.
preservation = verdict["preservation"]
print(preservation.status, preservation.scores)
print(preservation.justifications)
print(verdict["fidelity"].abstained)
