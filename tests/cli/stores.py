"""Runs that were never run: real stores, filled by hand, and the command as the console script calls it."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editjudge import cli
from editjudge.judgement import Exchange, Judgement, Task
from editjudge.rubrics.files import resolve
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.verdict import Remark
from editjudge.store import Store
from editjudge.store.records import Item

Say = Callable[[str, int, str, str, int], float | str | None]
"""Model, number of the edit, judge, factor and repeat to a score, a failure, `pending`, or None to abstain."""


@dataclass(frozen=True)
class Spec:
    """A run to make up."""

    name: str = "r"
    models: Sequence[str] = ("good", "poor")
    edits: int = 24
    per_group: int = 2
    rubrics: Sequence[str] = ("fidelity",)
    judges: Sequence[str] = ("openai/m",)
    repeats: int = 1
    edit_types: Sequence[str] = ("add", "remove")
    server_model: str | Callable[[str, int], str] | None = "m-1"
    """Model that the server reports, or a function of the edit's model and number."""
    salt: str = ""
    """Changes every key, as another time or another server would."""
    rounded_by: float | None = None
    """What rounding took from each score, whose unrounded value is then in `expected`."""
    metadata: Callable[[int], dict[str, Any]] = field(default=lambda _: {})
    spec: dict[str, Any] = field(default_factory=dict)


def quality(model: str, n: int, judge: str, factor: str, repeat: int) -> int:
    """A score of 1 to 7 that depends on the edit, and on the model by about one and a half."""
    level = {"good": 5.5, "poor": 4.0}.get(model, 5.0)
    noise = np.random.default_rng(
        [n, len(model), len(factor), repeat, len(judge)]
    ).normal(0, 0.8)
    return int(np.clip(round(level + (n % 5 - 2) / 2 + noise), 1, 7))


def made(path: Path, spec: Spec | None = None, say: Say = quality) -> Path:
    """A store with one more run."""
    spec = spec or Spec()
    rubrics = resolve(list(spec.rubrics))
    frozen = {
        "rubrics": {r.name: r.hash for r in rubrics},
        "judges": list(spec.judges),
        "layout": "images-first",
    }
    with Store.open(path) as store:
        run = store.open_run(spec.name, frozen | spec.spec)
        store.add_rubrics(rubrics)
        store.add_items(
            run,
            (_item(spec, model, n) for model in spec.models for n in range(spec.edits)),
        )
        found = list(_judgements(spec, rubrics, say))
        store.add_tasks(run, (task for task, _ in found))
        store.write([judgement for _, judgement in found if judgement is not None])
        store.mark(run, "finished")
    return path


def _item(spec: Spec, model: str, n: int) -> Item:
    kind = spec.edit_types[n % len(spec.edit_types)] if spec.edit_types else None
    group = f"image-{n // spec.per_group}"
    return Item(
        f"{model}-{n}",
        model or None,
        kind,
        group,
        f"edit {n}",
        metadata=spec.metadata(n),
    )


def _judgements(
    spec: Spec, rubrics: Iterable[Rubric], say: Say
) -> Iterable[tuple[Task, Judgement | None]]:
    for rubric in rubrics:
        for judge in spec.judges:
            for model in spec.models:
                for n in range(spec.edits):
                    for repeat in range(spec.repeats):
                        yield _judgement(spec, rubric, judge, model, n, repeat, say)


def _judgement(
    spec: Spec, rubric: Rubric, judge: str, model: str, n: int, repeat: int, say: Say
) -> tuple[Task, Judgement | None]:
    name = json.dumps([rubric.hash, judge, model, n, repeat, spec.salt])
    key = hashlib.sha256(name.encode()).hexdigest()
    task = Task(f"{model}-{n}", rubric.name, judge, repeat, key)
    said = {f.key: say(model, n, judge, f.key, repeat) for f in rubric.factors}
    failed = [value for value in said.values() if isinstance(value, str)]
    if failed and failed[0] == "pending":
        return task, None
    status: Any = (
        failed[0]
        if failed
        else "ok"
        if any(v is not None for v in said.values())
        else "abstained"
    )
    scores = (
        {k: v for k, v in said.items() if isinstance(v, int | float)}
        if status == "ok"
        else None
    )
    abstained = (
        {k: "cannot be told" for k, v in said.items() if v is None}
        if not failed
        else {}
    )
    server_model = spec.server_model
    if callable(server_model):
        server_model = server_model(model, n)
    return task, Judgement(
        key, status, judge, rubric.name, rubric.hash, repeat, scores, None, abstained,
        reasons=(Remark("no_answer", "no JSON"),) if failed else (),
        exchanges=(Exchange("reply", status, model=server_model),),
        prepared={"edited": "as-is"},
        expected={k: v + spec.rounded_by for k, v in (scores or {}).items()}
        if spec.rounded_by is not None else {},
    )  # fmt: skip


@dataclass
class Done:
    code: int
    out: str
    err: str
    error: BaseException | None = None
    """What the verb raised, before it was worded for people."""

    @property
    def document(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value

    @property
    def widest(self) -> int:
        return max(map(len, self.out.splitlines()))


Call = Callable[..., Done]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command as the console script calls it, within this process."""

    def called(*arguments: object, stdin: str | bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["editjudge", *map(str, arguments)])
        given = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Done(int(ended.value.code or 0), out, err, ended.value.__context__)

    return called
