"""The Python functions: judge one edit, or run a manifest."""

from __future__ import annotations

import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

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
from editjudge.store.store import RunRecord, Store

if TYPE_CHECKING:
    from editjudge.report.run_data import Of, RunData
    from editjudge.report.run_result import RunResult

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

    def table(self, by: str = "model", *, of: Of | None = None) -> Any:
        """Mean and coverage of each factor by `model`, `judge` or `rubric`: a pandas data frame where pandas is
        installed, else a list of dicts, with the columns `by`, factor, mean, ok and n. What failed is in `n` and not
        in the mean.

        With `of` ("scores", or "expected" for token probabilities), or sliced by another field such as `edit_type` or
        one of the manifest's own: a `RunResult` with every figure of `report --json` and intervals. `.frame()` has its
        rows.

        Raises `UsageError` for a field that no edit has.
        """
        places = {"judge": 0, "model": 1, "rubric": 2}
        if by not in places or of is not None:
            return self._sliced(() if by in places else (by,), of or "scores")
        sums: dict[tuple[str, str], list[int]] = {}
        for place, cell in self.summary.cells.items():
            total = sums.setdefault((place[places[by]], place[3]), [0, 0, 0])
            for index, value in enumerate((cell.sum, cell.ok, cell.n)):
                total[index] += value
        rows = [
            {by: name, "factor": factor, "mean": total / ok if ok else None, "ok": ok, "n": n}
            for (name, factor), (total, ok, n) in sums.items()
        ]
        from editjudge.report.run_result import framed

        return framed(rows)

    def compare(
        self, a: str | Run | None = None, b: str | None = None, *, by: str = "model", of: Of = "scores"
    ) -> RunResult:
        """Paired differences, b minus a, as `editjudge compare --json` prints them.

            run.compare("old", "new")            # two models of this run
            run.compare(editjudge.open("before"))  # this run's edits against another's

        Without names every pair of models (or of judges, or rubrics: `by`). Raises `UsageError` for a name that the run
        does not have.
        """
        from editjudge.report.comparison import (
            compare_tables,
            comparison_document,
            conclusions,
            differences,
            run_differences,
            runs_document,
        )
        from editjudge.report.run_result import RunResult

        if isinstance(a, Run):
            first, second = a._loaded(pairing=True, of=of), self._loaded(pairing=True, of=of)
            found, match = run_differences(first, second)
            lead = [*conclusions(found), *match.words(first.run.name, second.run.name)]
            return RunResult(runs_document(first, second, match, found), lead, compare_tables(found, "run"))
        judged, kind = self._loaded(of=of), _by(by)
        found = differences(judged, kind, a, b)
        document = comparison_document(judged, kind, found)
        return RunResult(document, [*conclusions(found), *judged.lead()], compare_tables(found, kind))

    def agree(
        self,
        ratings: str | os.PathLike[str] | None = None,
        *,
        called: Mapping[str, str] | None = None,
        of: Of = "scores",
    ) -> RunResult:
        """Judges against people's ratings, of a file or of the store, as `editjudge agree --json` prints it.

        `called` maps people's factors to those of judges, such as `{"PQ": "quality"}`. Raises `InputError` where no
        item or no factor has both.
        """
        from editjudge.report.agreement import tables
        from editjudge.report.people import file_ratings, run_agreement, stored_ratings
        from editjudge.report.run_result import RunResult

        judged = self._loaded(pairing=True, of=of)
        if ratings is not None:
            rated = file_ratings(Path(ratings), judged)[0]
        else:
            with Store.open(self.store, readonly=True) as store:
                rated = stored_ratings(judged, store)
        found = run_agreement(judged, rated, [f"{people}={factor}" for people, factor in (called or {}).items()])
        return RunResult({**found.as_json(), "of": of, "pending": judged.pending}, judged.lead(), tables(found))

    def gate(
        self,
        minimum: Mapping[str, float] | None = None,
        *,
        maximum: Mapping[str, float] | None = None,
        baseline: Run | None = None,
        max_drop: float | dict[str, float] = 0.0,
        model: str | None = None,
        judge: str | None = None,
        alpha: float = 0.05,
        max_failures: float = 0.0,
    ) -> RunResult:
        """Hold the run against limits and a baseline, as `editjudge gate --json` does: `["outcome"]` is `pass`, `fail`
        or `not enough evidence`.

            run.gate({"alignment": 5}, baseline=editjudge.open("before"), max_drop=0.2)
        """
        from editjudge.report.gating import gate_run
        from editjudge.report.run_result import RunResult

        judged = self._loaded(pairing=baseline is not None)
        before = baseline._loaded(pairing=True) if baseline is not None else None
        found = gate_run(
            judged,
            before,
            minimum=minimum,
            maximum=maximum,
            max_drop=max_drop,
            model=model,
            judge=judge,
            alpha=alpha,
            max_failures=max_failures,
        )
        return RunResult(found.as_json() | {"error": found.undecidable}, found.lead(), [found.table()])

    def report(self, path: str | os.PathLike[str], *, form: str | None = None, by: str | Sequence[str] = ()) -> Path:
        """Write a report; its format is `form`, else what the name ends in: .html, .md, .tex, .csv, .json."""
        from editjudge.report.forms import form_of, rendered
        from editjudge.report.summary import measure

        place = Path(path)
        form = form or form_of(place)
        means = measure(self._loaded(by=_words(by)), _words(by))
        with Store.open(self.store, readonly=True) as store:
            place.write_text(rendered(means, form, store), "utf-8", newline="")
        return place

    def plot(self, a: str | None = None, b: str | None = None) -> Plot:
        """The forest plot of paired differences between models: SVG, shown in a notebook; `.save(path)` writes it."""
        from editjudge.report.charts import draw
        from editjudge.report.comparison import differences, forests

        return Plot("".join(draw(chart) for _, chart in forests(differences(self._loaded(), "model", a, b))))

    def _sliced(self, by: Sequence[str], of: Of) -> RunResult:
        from editjudge.report.run_result import RunResult
        from editjudge.report.summary import document, long, measure, tables

        means = measure(self._loaded(by=by, of=of), by)
        return RunResult(document(means), means.judged.lead(), [long(means), *tables(means)])

    def _loaded(self, *, by: Sequence[str] = (), pairing: bool = False, of: Of = "scores") -> RunData:
        from editjudge.report.run_data import load

        with Store.open(self.store, readonly=True) as store:
            return load(store, str(self.id), by, pairing=pairing, of=of)


@dataclass(frozen=True)
class Plot:
    """A drawing, as SVG in HTML."""

    html: str

    def _repr_html_(self) -> str:
        from editjudge.report.templating import stylesheet

        return f"<style>{stylesheet()}</style>{self.html}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as an HTML file of its own."""
        place = Path(path)
        place.write_text(f'<!doctype html>\n<meta charset="utf-8">{self._repr_html_()}\n', "utf-8")
        return place


def _by(word: str) -> Any:
    if word not in ("model", "judge", "rubric"):
        raise UsageError(f"by={word!r}: expected model, judge or rubric")
    return word


def open(name: str | int, *, store: str | os.PathLike[str] | None = None) -> Run:  # noqa: A001  (editjudge.open)
    """A run of a store, by its name or number; nothing is asked.

        run = editjudge.open("mine", store="editjudge.db")
        run.compare("old", "new")

    Without `store` EDITJUDGE_STORE, else editjudge.db. Raises `UsageError` where the store has no such run, and
    `StoreError` where there is no store.
    """
    from editjudge.run.summary import summarise

    place = os.fspath(store) if store is not None else os.environ.get("EDITJUDGE_STORE", "editjudge.db")
    with Store.open(place, readonly=True) as opened:
        record = opened.find_run(str(name))
        rows = opened.judgements(record, fields=("judge", "model", "rubric", "status", "scores"))
        summary = summarise(rows, _scored_factors(opened, record))
    # One that is not over, as far as the store knows, is as one that was interrupted: running it again goes on.
    return Run(record.id, record.name, "interrupted" if record.state == "running" else record.state, summary, place)


def _scored_factors(store: Store, record: RunRecord) -> dict[str, list[str]]:
    """By rubric; no mean is formed of choices."""
    known = store.rubrics()
    asked = record.spec.get("rubrics", {})
    contents = {name: known[digest]["content"] for name, digest in asked.items() if digest in known}
    # Of a rubric that the store lacks no factor is known: its judgements are counted, and no mean is formed.
    return defaultdict(list) | {
        name: [factor["key"] for factor in content["factors"] if not factor["scale"].get("choices")]
        for name, content in contents.items()
    }


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
