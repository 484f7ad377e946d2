"""The examples in the docstrings of the extension points, run as they stand there."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from editjudge.edit import Edit
from editjudge.judgement import Judgement, Task
from editjudge.judges import providers
from editjudge.judges.judge import Judge, Load, Work
from editjudge.media.cache import DigestCache, ImageCache, ImageReader
from editjudge.media.image import ImageLimits
from editjudge.rubrics.files import load
from editjudge.rubrics.model import Rubric
from editjudge.running.asker import judge_task
from editjudge.running.plan import QuestionSettings, look_at, works
from tests.running.made import edits, environment, picture, run, stub


def test_the_judge_in_the_docstring_judges_an_edit() -> None:
    names: dict[str, Any] = {"ImageLimits": ImageLimits, "Judge": Judge}
    text = textwrap.dedent((Judge.__doc__ or "").partition("\n")[2])
    code = textwrap.dedent(
        text[
            text.index("    class SizeJudge") : text.index(
                "`editjudge.running.asker.judge_task`"
            )
        ]
    )
    exec(code, names)  # noqa: S102  (our own docstring)
    judge: Judge = names["SizeJudge"]()
    rubric = load("fidelity")
    reader = ImageReader()
    edit = Edit("e", picture("a"), picture("b"), "Paint it red.")
    (work,) = works(
        [edit],
        QuestionSettings([rubric]),
        judge,
        lambda e, role: look_at(DigestCache(reader), e, role),
    )
    judgement = asyncio.run(judge_task(judge, work, ImageCache(reader)))
    assert judgement.status == "ok" and set((judgement.scores or {}).values()) == {1}
    assert "8 x 8 pixels" in (judgement.justifications or {})["alignment"]


def test_the_provider_in_the_docstring_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = providers.__doc__ or ""
    code = textwrap.dedent(
        text[text.index("    PROVIDERS[") : text.index("Another format is")]
    )
    monkeypatch.setattr(providers, "PROVIDERS", dict(providers.PROVIDERS))
    with stub() as server, environment({"MINE_API_KEY": "key-of-the-stub"}):
        names = vars(providers) | {}
        exec(code.replace("http://127.0.0.1:9000", server.url), names)  # noqa: S102  (our own docstring)
        assert (names["endpoint"].provider, names["endpoint"].key.reveal()) == (
            "mine",
            "key-of-the-stub",
        )
        done = run(
            edits(tmp_path, 1),
            tmp_path / "s.db",
            judges=("mine/stub",),
            rubrics=("fidelity",),
        )
    assert done.statuses() == {"ok": 1}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"scores": {"alignment": 124}}, "score_out_of_scale"),
        ({"scores": {"alignment": 4.5}}, "score_out_of_scale"),
        ({"scores": {"alignment": float("nan")}}, "score_out_of_scale"),
        ({"scores": {"alignmnet": 4}}, "unknown_factor"),
        ({"scores": {"alignment": 4}, "abstained": {}}, "missing_factor"),
    ],
)
def test_an_answer_that_does_not_fit_the_rubric_is_a_failure_and_not_a_number(
    answer: dict[str, Any], code: str
) -> None:
    rubric = load("fidelity")
    others = {factor.key: "not measured" for factor in rubric.factors[1:]}
    answer = {"abstained": others, **answer}

    class Wrong(Judge):
        spec = "wrong"
        limits = None

        def identity(
            self, edit: Edit, rubric: Rubric, repeat: int
        ) -> Mapping[str, Any]:
            return {}

        async def judge(self, work: Work, load: Load) -> Judgement:
            return work.judgement("ok", **answer)

    work = Work(Task("e", "fidelity", "wrong", 0, "k" * 64), Edit("e"), rubric)
    judgement = asyncio.run(judge_task(Wrong(), work, ImageCache()))
    assert judgement.status == "invalid"
    assert judgement.scores is None
    assert [reason.code for reason in judgement.reasons] == [code]
