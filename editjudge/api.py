"""The Python functions: judge one edit, or run a manifest."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from editjudge.edit import Edit, ImageSource, named_pictures
from editjudge.errors import UsageError
from editjudge.judgement import Judgement
from editjudge.judges.messages import Parameters
from editjudge.judges.registry import Options, default_rubrics
from editjudge.rubrics.files import resolve
from editjudge.rubrics.prompt import Layout
from editjudge.run.engine import Ending
from editjudge.run.job import Job, Outcome, RunOptions, execute, judge_edit, wait_for
from editjudge.run.summary import Summary
from editjudge.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")
Image = ImageSource | os.PathLike[str]
"""A path, the encoded picture as bytes, or a `data:` or http(s) address."""


def judge(
    *,
    edited: Image,
    input: Image | None = None,  # noqa: A002  (the name that manifests use)
    instruction: str = "",
    rubrics: str | Sequence[str] = (),
    judge: str | None = None,
    ground_truth: Image | None = None,
    mask: Image | None = None,
    referring_expression: str = "",
    id: str = "edit",  # noqa: A002  (the word of a manifest)
    edit_type: str | None = None,
    pictures: Mapping[str, Image | Sequence[Image]] | None = None,
    texts: Mapping[str, Any] | None = None,
    **options: Any,
) -> Mapping[str, Judgement]:
    """Judge one edit: a judgement for each rubric, by its name. Nothing is stored.

        verdict = editjudge.judge(input="a.png", edited="b.png", instruction="make the left car blue")
        verdict["fidelity"].scores["alignment"]

    `rubrics` are names, sets or YAML files, without any `online` (for the judge `metrics` its own); `judge` is a spec
    such as `openai/gpt-4.1`, without one EDITJUDGE_JUDGE or the embedded `measured`. `options` are those of a run:
    temperature, seed, max_tokens, reasoning_effort, base_url, schema, strict, reasks, timeout, prices, and `extra` for
    what is passed to the server as it is. Safe inside a running event loop.

    `pictures` (each one or a list) and `texts` are further columns of a manifest, by the names that a rubric shows them
    by. Where a rubric is asked several times (`samples`, `for_each`), its judgements are `NAME[0]`, `NAME[1]` ...

    What failed is a judgement too, with its `status` and no scores. Raises `InputError` for a rubric, judge, key or
    option that is invalid, `WorldError` where the judge refuses the key or cannot be reached at all.
    """
    edit = Edit(
        id,
        _source(input),
        _source(edited),
        instruction,
        _source(ground_truth),
        _source(mask),
        referring_expression,
        edit_type=edit_type,
        metadata=dict(texts or {}),
        pictures=named_pictures({name: _sources(given) for name, given in (pictures or {}).items()}),
    )
    judge = judge or default_judge()
    settings = _options(options)
    asked = resolve(_words(rubrics) or default_rubrics([judge], settings))
    found = wait_for(judge_edit(edit, asked, judge, settings))
    of = {judgement.rubric: [j for j in found if j.rubric == judgement.rubric] for judgement in found}
    return {
        name if len(some) == 1 else f"{name}[{number}]": judgement
        for name, some in of.items()
        for number, judgement in enumerate(some)
    }


@dataclass(frozen=True)
class Run:
    """A run that has ended, finished or not (`ending` says which); its judgements are in the store.

    Reading them raises `StoreError` where the store is gone.
    """

    id: int
    name: str
    ending: Ending
    summary: Summary
    store: str
    """A path, or an address that may hold a password, and so is not shown."""

    def __repr__(self) -> str:
        told = ", ".join(f"{count} {status}" for status, count in sorted(self.summary.statuses.items()))
        return f"<Run {self.name!r} ({self.id}), {self.ending}: {self.summary.total} judgements, {told}>"

    def judgements(self) -> Iterator[dict[str, Any]]:
        """Every task with what became of it, in the manifest's order.

        Raises `StoreError` where the store cannot be read.
        """
        with Store.open(self.store, readonly=True) as store:
            yield from store.judgements(self.id)

    def table(self, by: str = "model") -> Any:
        """Mean and coverage of each factor by `model`, `judge` or `rubric`: a pandas data frame where pandas is
        installed, else a list of dicts, with the columns `by`, factor, mean, ok and n. What failed is in `n` and not
        in the mean.

        Raises `ValueError` for any other `by`.
        """
        places = {"judge": 0, "model": 1, "rubric": 2}
        if by not in places:
            raise ValueError(f"by={by!r}: expected one of {', '.join(places)}")
        sums: dict[tuple[str, str], list[int]] = {}
        for place, cell in self.summary.cells.items():
            total = sums.setdefault((place[places[by]], place[3]), [0, 0, 0])
            for index, value in enumerate((cell.sum, cell.ok, cell.n)):
                total[index] += value
        rows = [
            {by: name, "factor": factor, "mean": total / ok if ok else None, "ok": ok, "n": n}
            for (name, factor), (total, ok, n) in sums.items()
        ]
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(rows)


async def arun(
    manifest: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    *,
    rubrics: str | Sequence[str] = (),
    judges: str | Sequence[str] = (),
    store: str | os.PathLike[str] = "editjudge.db",
    name: str | None = None,
    repeats: int = 1,
    fuse: bool = False,
    layout: Layout = "images-first",
    models: str | Sequence[str] = (),
    limit: int | None = None,
    concurrency: int | None = None,
    budget: float | None = None,
    allow_outside: bool = False,
    allow_urls: bool = False,
    columns: Mapping[str, str] | None = None,
    **options: Any,
) -> Run:
    """Judge every edit of a manifest, resuming what was begun.

        run = await editjudge.arun("edits.jsonl", judges=["openai/gpt-4.1"], budget=5.0)
        run.table(by="model")

    In the place of a manifest's path: a Hugging Face dataset, streaming or not, or rows in memory with a `name` for
    the run. Their paths are relative to the working directory. `models` judges only the edits of these models, `limit`
    only the first so many of what is left. `columns` names fields that the manifest calls otherwise, such as
    `{"input": "source"}`. `options` are those of `judge`.

    An edit that failed is a row with its status. Raises `InputError` for a manifest, rubric, judge or option that
    is invalid, before a store is made, and `WorldError` where a judge is down or refuses the key, or the store
    cannot be written; what was judged by then is kept, and the same call goes on from it.
    """
    path, rows = _rows(manifest, name)
    specs = _words(judges) or (default_judge(),)
    job = Job(
        manifest=path,
        rows=rows,
        rubrics=_words(rubrics) or default_rubrics(specs, _options(options)),
        judges=specs,
        repeats=repeats,
        layout=layout,
        fuse=fuse,
        models=_words(models),
        limit=limit,
        allow_outside=allow_outside,
        allow_urls=allow_urls,
        columns=tuple((columns or {}).items()),
        options=_options(options),
    )
    manner = RunOptions(name=name, concurrency=concurrency, budget=budget)
    with ExitStack() as stack:
        outcome: Outcome = await execute(job, lambda: stack.enter_context(Store.open(store)), manner)
    if outcome.error:
        raise outcome.error
    return Run(outcome.run_id, outcome.name, outcome.ending, outcome.summary, os.fspath(store))


def _with_parameters_of(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """For type checkers and for `help`."""

    def signed(function: Callable[..., T]) -> Callable[P, T]:
        vars(function)["__signature__"] = inspect.signature(work)
        return function

    return signed


@_with_parameters_of(arun)
def run(*manifest: Any, **arguments: Any) -> Run:
    """Judge every edit of a manifest, resuming what was begun: `arun` for callers that are not asynchronous.

        run = editjudge.run("edits.jsonl", rubrics=["online"], judges=["openai/gpt-4.1"], store="editjudge.db")
        run.table(by="model")

    Takes what `arun` takes and raises what it raises; safe inside a running event loop.
    """
    return wait_for(arun(*manifest, **arguments))


def default_judge() -> str:
    """Who is asked where nobody is named."""
    return os.environ.get("EDITJUDGE_JUDGE", "measured")


def _rows(
    given: str | os.PathLike[str] | Iterable[Mapping[str, Any]], name: str | None
) -> tuple[Path, Iterable[Mapping[str, Any]] | None]:
    """The path of a manifest; or what to call rows that have none, and the rows."""
    if isinstance(given, str | os.PathLike):
        return Path(given), None
    if isinstance(given, Iterator):
        raise UsageError("rows are gone through more than once: give a list or a dataset, not a generator")
    # What `datasets` knows a dataset by; other rows must be told apart by their run's name.
    mark = name or getattr(given, "_fingerprint", None)
    if not mark:
        raise UsageError("rows have no name of their own: give the run one with name=...")
    return Path(f"rows-{mark}".replace(os.sep, "-")), given


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _sources(given: Image | Sequence[Image]) -> ImageSource | list[ImageSource]:
    if isinstance(given, str | bytes | os.PathLike):
        source = _source(given)
        return b"" if source is None else source
    return [source for image in given if (source := _source(image)) is not None]


def _source(image: Image | None) -> ImageSource | None:
    if image is None or isinstance(image, bytes):
        return image
    text = os.fspath(image)
    return text if text.startswith(("http://", "https://", "data:")) else Path(text)


def _options(given: dict[str, Any]) -> Options:
    names = ("temperature", "seed", "max_tokens", "reasoning_effort", "extra")
    parameters = Parameters(**{name: given.pop(name) for name in names if name in given})
    return Options(parameters, **given)
