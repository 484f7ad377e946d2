"""What the verbs say to people is what the golden files `wording/VERB.txt` say.

`python -m tests.golden.take --wording` writes the files anew: a sentence is improved there alone."""

from __future__ import annotations

from pathlib import Path

from editjudge.cli import VERBS

from .situations import SITUATIONS
from .wording import HERE, difference, spoken


def test_every_verb_says_what_its_golden_file_says(tmp_path: Path) -> None:
    lines = [
        line
        for verb, text in spoken(tmp_path).items()
        for line in difference(verb, text)
    ]
    changes = "\n".join(lines)
    assert not lines, (
        f"write the wording with `python -m tests.golden.take --wording`:\n{changes}"
    )


def test_every_verb_has_a_golden_file() -> None:
    # `completion` prints a script of the shell
    assert SITUATIONS.keys() == VERBS.keys() - {"completion"}
    assert {path.stem for path in HERE.iterdir()} == SITUATIONS.keys()
