"""Questions to a file and answers from files, for engines that read a batch file of the OpenAI format, such as
`vllm run-batch`.

Nothing is remembered between the two runs: a line's `custom_id` is the task's key, and the conversation is replayed from
the answers. A question after an invalid reply is written to the next file, if one is named.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from editjudge.canonical import read_json
from editjudge.edit import Edit
from editjudge.errors import ManifestError, UsageError
from editjudge.judgement import Judgement
from editjudge.judges.batch import OpenAIBatches
from editjudge.judges.chat import ChatJudge
from editjudge.judges.cost import Budget
from editjudge.judges.judge import Judge, Load, QuestionWritten, Work
from editjudge.judges.wire import document
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Remark
from editjudge.running.batch import TRIES, ReplayedTalk, UnansweredQuestion
from editjudge.store.batches import Reply
from editjudge.store.store import Store

_FORMAT = OpenAIBatches()


class Answers:
    """Answers in batch files, by the key of their task. Only their positions are in memory."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Read the files once. Raise `ManifestError` for a line that is not an answer, or that answers a question of
        the same file again.
        """
        self._lines: dict[str, list[tuple[Path, int]]] = {}
        for path in paths:
            answered: dict[str, int] = {}
            try:
                for number, offset, line in _lines_of(path):
                    key = _checked_id(line, f"{path}:{number}")
                    if key in answered:
                        raise ManifestError(
                            f"{path}:{number}: a second answer to {key}, which line {answered[key]} answers: delete "
                            "one of them",
                            code="answered_twice",
                        )
                    answered[key] = number
                    self._lines.setdefault(key, []).append((path, offset))
            except OSError as error:
                raise ManifestError(
                    f"{path}: cannot be read: {error.strerror or error}",
                    code="unreadable_file",
                ) from None
        self.unused = {*self._lines}
        """Keys of answers that no task has asked for yet."""

    def replies(self, key: str) -> list[Reply]:
        """Return the answers to a task's questions, in the order of the files."""
        self.unused.discard(key)
        replies: list[Reply] = []
        for path, offset in self._lines.get(key, ()):
            with path.open("rb") as file:
                file.seek(offset)
                _, status, body = _FORMAT.answer(document(file.readline()))
            replies.append((status, body))
        return replies


def _lines_of(path: Path) -> Iterator[tuple[int, int, bytes]]:
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, offset, line
            offset += len(line)


def _checked_id(line: bytes, where: str) -> str:
    try:
        answer = read_json(line.decode())
    except (ValueError, RecursionError) as error:
        raise ManifestError(
            f"{where}: not JSON ({error}): delete the line, and its question counts as not answered",
            code="bad_answer_line",
        ) from None
    is_answer = isinstance(answer, dict) and ("response" in answer or "error" in answer)
    if not is_answer or not isinstance(answer.get("custom_id"), str):
        raise ManifestError(
            f"{where}: expected an answer with custom_id and response, as `vllm run-batch` writes it",
            code="bad_answer_line",
        )
    key: str = answer["custom_id"]
    return key


class OfflineFiles:
    """The files of a run without a server."""

    def __init__(self, questions: Path | None, answers: Sequence[Path]) -> None:
        if questions and questions.exists():
            raise UsageError(
                f"--write-questions {questions}: exists already; name another file, or delete it",
                code="file_exists",
            )
        self.answers = Answers(answers)
        self.written = 0
        self._path = questions
        self._file: IO[bytes] | None = None

    def __enter__(self) -> OfflineFiles:
        if self._path:
            self._file = self._part.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None or self._path is None:
            return
        self._file.close()
        # The file is whole or not there: a run that was stopped writes all of it the next time.
        if kind is None and self.written:
            os.replace(self._part, self._path)
        else:
            self._part.unlink()

    @property
    def _part(self) -> Path:
        assert self._path  # noqa: S101  (only called if there is one)
        return self._path.with_name(f"{self._path.name}.part")

    @property
    def is_final(self) -> bool:
        """Whether no further question can be asked."""
        return self._path is None

    def report(self, store: Store) -> Iterator[str]:
        """Yield what the user should know at the end of the run."""
        if self.written:
            yield (
                f"{self.written:,} questions are in {self._path}: have them answered, for example with vllm run-batch, "
                "and run the same command with --read-answers FILE in the place of --write-questions"
            )
        elif self._path:
            yield f"no question was left to write, so {self._path} was not made"
        foreign = self.answers.unused - store.done([*self.answers.unused]).keys()
        if foreign:
            yield (
                f"{len(foreign):,} answers belong to no question of this run, such as {min(foreign):.64}: "
                "they were left out"
            )

    def write(self, key: str, question: UnansweredQuestion) -> None:
        assert self._file  # noqa: S101
        self._file.writelines(_FORMAT.line(key, question.body))
        self.written += 1


class OfflineJudge(Judge):
    """A judge whose replies come from files, and whose questions go to one."""

    def __init__(self, judge: Judge, files: OfflineFiles) -> None:
        if not isinstance(judge, ChatJudge) or judge.endpoint.wire != "openai":
            raise UsageError(
                f"{judge.spec} is not asked in the OpenAI format: --write-questions and --read-answers need a judge that "
                "is, such as vllm/MODEL",
                code="not_openai_format",
            )
        self.spec = judge.spec
        self.limits = judge.limits
        self.further_images = judge.further_images
        self.warnings = judge.warnings
        self._judge = judge
        self._files = files

    def identity(self, edit: Edit, rubric: Rubric, repeat: int) -> Mapping[str, object]:
        return self._judge.identity(edit, rubric, repeat)

    def redacted(self, text: str) -> str:
        return self._judge.redacted(text)

    def capacity(self, questions: int) -> int:
        return 16

    async def judge(self, work: Work, load: Load) -> Judgement:
        key = work.task.key
        replies = await asyncio.to_thread(self._files.answers.replies, key)
        is_final = self._files.is_final
        if is_final and not replies:
            return work.judgement("unreachable", reasons=(_NO_ANSWER,))
        tries = len(replies) if is_final else TRIES
        talk = ReplayedTalk(replies, Budget(), {}, tries=tries)
        reasks = len(replies) - 1 if is_final else None
        judge = self._judge.with_transport(talk, talk, talk, reasks=reasks)
        judging = asyncio.create_task(judge.judge(work, load))
        ends: list[asyncio.Future[Any]] = [judging, talk.end]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if judging.done():
            return judging.result()
        judging.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await judging
        question = talk.end.result()
        if is_final or question is None:
            return work.judgement("unreachable", reasons=(_NO_ANSWER,))
        self._files.write(key, question)
        raise QuestionWritten


_NO_ANSWER = Remark("no_answer", "the files of answers have no answer to it")
