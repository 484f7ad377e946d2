"""`editjudge.verify`: an editor tries again until an output passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import editjudge as ej
from editjudge.errors import UsageError
from editjudge.judgement import Judgement
from editjudge.report.notebook import Judgements
from editjudge.rubrics.files import dump, load
from editjudge.rubrics.verdict import Remark
from editjudge.running.job import EditJudge
from tests.faults import raises
from tests.running.made import SPECS, picture, stub
from tests.stub.server import Behaviour

JUDGE = SPECS["openai"]
OUTPUTS = [picture("output", number) for number in range(6)]
EDIT: dict[str, Any] = {"input": picture("input"), "instruction": "Paint it red."}


class Editor:
    """Makes the outputs one after the other, and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[ej.Attempt | None] = []

    def __call__(self, previous: ej.Attempt | None) -> bytes:
        self.told.append(previous)
        return OUTPUTS[len(self.told) - 1]


@pytest.fixture
def alignments() -> Iterator[list[float]]:
    """The judge's score of each output."""
    with stub():
        verdicts = [
            ej.judge(**EDIT, edited=output, rubrics="fidelity", judge=JUDGE)
            for output in OUTPUTS
        ]
        yield [(each["fidelity"].scores or {})["alignment"] for each in verdicts]


def test_it_ends_with_the_first_output_that_passes(alignments: list[float]) -> None:
    best = max(alignments[1:])
    number = alignments.index(best)
    make = Editor()
    result = ej.verify(
        EDIT,
        "fidelity",
        pass_if=f"alignment >= {best}",
        make=make,
        retries=5,
        judge=JUDGE,
    )
    assert (result.passed, len(result.attempts)) == (True, number + 1)
    assert result.edited == OUTPUTS[number]
    assert [each.scores["alignment"] for each in result.attempts] == alignments[
        : number + 1
    ]
    first, *others = make.told
    assert first is None and others == list(result.attempts[:number])
    assert all(each and each.reasons["alignment"] for each in others)


def test_it_gives_up_after_its_retries_and_keeps_every_attempt(
    alignments: list[float],
) -> None:
    arguments: dict[str, Any] = {"rubric": "fidelity", "judge": JUDGE}
    result = ej.verify(
        EDIT, pass_if="alignment >= 8", make=Editor(), retries=2, **arguments
    )
    assert (result.passed, result.edited) == (False, None)
    assert [each.edited for each in result.attempts] == OUTPUTS[:3]
    assert [each.passed for each in result.attempts] == [False] * 3


def test_an_output_that_is_there_is_judged_before_another_is_made(
    alignments: list[float],
) -> None:
    make = Editor()
    given = EDIT | {"edited": OUTPUTS[5]}
    result = ej.verify(
        given, "fidelity", pass_if="alignment >= 1", make=make, judge=JUDGE
    )
    assert (result.edited, make.told) == (OUTPUTS[5], [])
    alone = ej.verify(given, "fidelity", pass_if="alignment >= 8", judge=JUDGE)
    assert (alone.passed, len(alone.attempts)) == (False, 1)


def test_a_judgement_that_failed_does_not_pass() -> None:
    with stub(Behaviour(garbage=1.0)):
        result = ej.verify(
            EDIT | {"edited": OUTPUTS[0]},
            "fidelity",
            pass_if="alignment >= 1",
            judge=JUDGE,
        )
    (attempt,) = result.attempts
    assert (attempt.passed, result.passed, attempt.scores) == (None, False, {})
    assert attempt.judgements["fidelity"].status == "invalid"


@pytest.mark.parametrize(
    "condition",
    ["overall >= 1", "min(fidelity) >= 1", "fidelity >= 1 and not plausibility > 7"],
)
def test_a_condition_may_name_rubrics_and_the_mean_of_all(
    condition: str, alignments: list[float]
) -> None:
    given = EDIT | {"edited": OUTPUTS[0]}
    assert ej.verify(given, "fidelity", pass_if=condition, judge=JUDGE).passed


def test_a_rubric_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(dump(load("fidelity")).replace("name: fidelity", "name: mine"))
    with stub():
        result = ej.verify(
            EDIT | {"edited": OUTPUTS[0]},
            str(file),
            pass_if="mine >= 1",
            judge=JUDGE,
        )
    assert result.passed and [*result.attempts[0].judgements] == ["mine"]


def test_a_factor_is_the_mean_of_its_questions_if_all_have_a_score() -> None:
    def answered(key: str, scores: dict[str, float] | None) -> Judgement:
        status: Any = "ok" if scores else "refused"
        reasons = () if scores else (Remark("refused", "no"),)
        return Judgement(key, status, "j", "look", "h", 0, scores, reasons=reasons)

    first = answered("1", {"a": 2, "b": 6})
    full = Judgements({"look[0]": first, "look[1]": answered("2", {"a": 4, "b": 6})})
    assert ej.Attempt(b"", full, None).scores == {"a": 3, "b": 6}
    failed = Judgements({"look[0]": first, "look[1]": answered("2", None)})
    assert ej.Attempt(b"", failed, None).scores == {}


def test_what_cannot_be_verified_is_an_error(tmp_path: Path) -> None:
    with raises(UsageError, "invalid_condition", "alignmet", '"alignment"'):
        ej.verify(EDIT, "fidelity", pass_if="alignmet > 3", make=Editor(), judge=JUDGE)
    with raises(UsageError):
        ej.verify(EDIT, "fidelity", pass_if="alignment > 3", judge=JUDGE)
    with raises(UsageError, "", "retries"):
        ej.verify(EDIT, "fidelity", pass_if="alignment > 3", make=Editor(), retries=-1)


def test_the_judge_is_opened_once_for_all_attempts_also_inside_an_event_loop(
    alignments: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    open_judge = EditJudge.open

    async def counted(*arguments: Any) -> EditJudge:
        opened.append(arguments)
        return await open_judge(*arguments)

    monkeypatch.setattr(EditJudge, "open", counted)
    make = Editor()

    def editor(previous: ej.Attempt | None) -> bytes:
        """An editor that has an event loop of its own, as a client of a server has."""
        return asyncio.run(asyncio.to_thread(make, previous))

    def verified() -> ej.Verification:
        return ej.verify(
            EDIT, "fidelity", pass_if="alignment > 99", make=editor, judge=JUDGE
        )

    assert len(verified().attempts) == 3 and len(opened) == 1

    async def notebook() -> ej.Verification:
        make.told.clear()
        return ej.verify(
            EDIT, "fidelity", pass_if="alignment > 99", make=make, judge=JUDGE
        )

    assert len(asyncio.run(notebook()).attempts) == 3 and len(opened) == 2
