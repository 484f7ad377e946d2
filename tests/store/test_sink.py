"""The sink in the docstring takes a run, as a store does."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import Any

from editjudge.edit import Edit
from editjudge.judgement import EMPTY_ROW, Judgement, row
from editjudge.judges.cost import Budget
from editjudge.judges.judge import Judge, Work
from editjudge.rubrics.files import load_one
from editjudge.running.engine import Engine
from editjudge.running.plan import Planner, QuestionSettings
from editjudge.store import sink as module

from .old_store import picture
from .samples import sample


class Counting(Judge):
    """Gives everything the same score, and counts how often it was asked."""

    spec = "counting"
    asked = 0
    limits = None

    def identity(self, edit: Edit, rubric: Any, repeat: int) -> dict[str, str]:
        return {"judge": self.spec, "edit": edit.id}

    async def judge(self, work: Work, load: object) -> Judgement:
        self.asked += 1
        return work.judgement(
            "ok", scores={factor.key: 5 for factor in work.rubric.factors}
        )


def test_the_sink_in_the_docstring_takes_a_run_and_resumes_it(tmp_path: Path) -> None:
    text = str(module.__doc__)
    names: dict[str, Any] = {}
    code = textwrap.dedent(
        text[
            text.index("    class MemorySink") : text.index(
                "`editjudge.running.plan.Planner`"
            )
        ]
    )
    exec(code, names)  # noqa: S102  (our own docstring)
    sink = names["MemorySink"]()
    judge = Counting()
    (tmp_path / "a.png").write_bytes(picture(1))
    edits = [
        Edit(f"edit-{n}", input=tmp_path / "a.png", edited=tmp_path / "a.png")
        for n in range(3)
    ]

    async def run() -> str:
        planner = Planner(sink, 1, QuestionSettings([load_one("fidelity")]))
        return await Engine(sink, planner, Budget()).run([lambda: edits], [judge])

    for _ in range(2):
        assert asyncio.run(run()) == "finished"
        assert judge.asked == 3
    assert [item.item for item in sink.items.values()] == ["edit-0", "edit-1", "edit-2"]
    assert {task.key for task in sink.tasks.values()} == set(sink.judgements)


def test_an_empty_row_has_the_fields_of_every_row() -> None:
    judgement = sample(1, exchanges=())
    assert set(EMPTY_ROW) == set(row(judgement, "edit", None, None))
