"""A prompt that somebody published becomes a rubric: its words stay, its scale and answer become a contract."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PROMPT = """You will be shown two images: the first is the original, the second is an edited version of it.
The edit followed this instruction: <instruction>

Rate the edit on two criteria, each from 1 to 5, where 5 is best:
- obedience: was the instruction followed?
- naturalness: does the edited image look like a photograph?

Answer with JSON only, in this form:
{"obedience": {"score": 1-5, "reasoning": "..."}, "naturalness": {"score": 1-5, "reasoning": "..."}}
"""

with tempfile.TemporaryDirectory() as folder:
    prompt = Path(folder, "prompt.txt")
    rubric = Path(folder, "published.yaml")
    prompt.write_text(PROMPT)
    for words in (
        [
            "rubric",
            "import",
            prompt,
            "--image",
            "input",
            "--image",
            "edited",
            "-o",
            rubric,
        ],
        ["rubric", "check", rubric],
        ["rubric", "show", rubric, "--json"],
    ):
        print(
            f"$ editjudge {' '.join(Path(w).name for w in map(str, words))}", flush=True
        )
        subprocess.run(
            [sys.executable, "-m", "editjudge", *map(str, words)], check=True
        )
