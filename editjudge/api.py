"""Python interface: judge a single edit, run a manifest, and open a finished run."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import json
import os
import warnings
from collections import defaultdict
from collections.abc import (
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
)

from editjudge import plugins
from editjudge.edit import Edit, ImageSource, named_images
from editjudge.errors import (
    EditjudgeError,
    RubricError,
    StoreError,
    UsageError,
    near_miss,
)
from editjudge.files import default_store
from editjudge.judgement import Judgement, JudgementRow
from editjudge.judges.judge import Options
from editjudge.judges.registry import check_answers, check_settings, default_rubrics
from editjudge.manifest import records
from editjudge.media.source import Pixels, encode, is_url
from editjudge.plugins import MissingExtra, default_judge
from editjudge.report.notebook import Judgements, run_html
from editjudge.rubrics.evaluation import value_for_edit
from editjudge.rubrics.expression import Ref, Term, parse, reduction
from editjudge.rubrics.files import resolve
from editjudge.rubrics.model import Layout, Rubric
from editjudge.rubrics.sets import member
from editjudge.running.engine import Ending
from editjudge.running.job import (
    EditJudge,
    Job,
    RunOptions,
    execute,
    judge_edit,
    wait_for,
)
from editjudge.running.progress import progress_for
from editjudge.running.summary import Summary
from editjudge.running.sums import OVERALL
from editjudge.store.store import Store

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

    from editjudge.report.answers import Answer
    from editjudge.report.charts import Plot
    from editjudge.report.run_data import Of, RunData
    from editjudge.running.summary import SummaryCell
    from editjudge.stats.summary import Cell

P = ParamSpec("P")
T = TypeVar("T")
Image: TypeAlias = "str | os.PathLike[str] | bytes | PILImage | Pixels"
"""An image: a path, a `data:` or http(s) address, encoded bytes, a PIL image, or an array that `media.source`
accepts.
"""
Rows: TypeAlias = "Iterable[Mapping[str, object]] | Any"
"""Rows in memory: a list of dicts, a pandas or polars data frame, or a Hugging Face dataset."""


class JudgeOptions(TypedDict, total=False):
    """Options for the judges. `judge`, `run` and `arun` accept them as keyword arguments."""

    temperature: float | None
    seed: int | None
    max_tokens: int | None
    reasoning_effort: str | None
    extra: Mapping[str, object]
    base_url: str | Sequence[str] | None
    schema: bool
    strict: bool
    reasks: int
    timeout: float
    prices: Path | None
    read: Literal["text", "logprobs"]
    min_mass: float


_FORMER = {
    "called": "map_factor",
    "form": "format",
    "of": "use",
}
"""Deprecated argument names, which work until 1.0, and their replacements."""

_SAME = {"judge": "judges", "judges": "judge", "rubric": "rubrics", "rubrics": "rubric"}
"""Arguments that are accepted both in the singular and in the plural."""


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a public function so that its argument names are checked, and its errors name Python arguments instead of
    options.

    For an unknown argument, the wrapped function raises `TypeError` with a suggestion.
    """
    names = [*inspect.signature(function).parameters]

    @contextmanager
    def checking(arguments: dict[str, object]) -> Iterator[None]:
        for name in arguments.keys() - set(names):
            if (same := _SAME.get(name)) in names:
                arguments[same] = _one_or_several(arguments.pop(name), same)
                continue
            present = _FORMER.get(name)
            if present not in names:
                close = near_miss(name, names)
                takes = ", ".join(name for name in names if name != "self")
                hint = f'did you mean "{close}"?' if close else f"it takes {takes}"
                raise TypeError(
                    f"{function.__name__}() has no argument {name!r}; {hint}"
                )
            message = f"{name}= works until 1.0; write {present}="
            warnings.warn(message, FutureWarning, stacklevel=4)
            arguments[present] = arguments.pop(name)
        try:
            yield
        except EditjudgeError as error:
            if error.options:
                error.args = (error.in_python(names),)
            raise
        except ModuleNotFoundError as error:
            raise MissingExtra.of(function.__name__, error) or error from None

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*positional: P.args, **named: P.kwargs) -> Any:
            with checking(named):
                return await function(*positional, **named)

        return awaited  # type: ignore[return-value]  # a coroutine function, as the one it wraps

    @functools.wraps(function)
    def called(*positional: P.args, **named: P.kwargs) -> T:
        with checking(named):
            return function(*positional, **named)

    return called


def _one_or_several(value: Any, name: str) -> Any:
    """Return the value for an argument that was passed under its singular or plural name instead. Raise `UsageError` if
    there are several judges and the function takes one.
    """
    if name != "judge" or isinstance(value, str):
        return value
    if len(value) != 1:
        raise UsageError(f"judges=: expected one judge, found {len(value)}")
    return value[0]


def _with_options(function: Callable[P, T]) -> Callable[P, T]:
    """Replace `**options` in a function's signature with all judge options, including their types and defaults."""
    defaults = {f.name: getattr(Options(), f.name) for f in fields(Options)}
    signature = inspect.signature(function)
    *parameters, _ = signature.parameters.values()
    for name, kind in inspect.get_annotations(JudgeOptions).items():
        annotation = getattr(kind, "__forward_arg__", kind)
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults[name],
                annotation=annotation,
            )
        )
    vars(function)["__signature__"] = signature.replace(parameters=parameters)
    return checked(function)


@_with_options
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
    images: Mapping[str, Image | Sequence[Image]] | None = None,
    texts: Mapping[str, object] | None = None,
    **options: Unpack[JudgeOptions],
) -> Judgements:
    """Judge one edit and return the judgements, keyed by rubric name. Nothing is stored.

        verdict = editjudge.judge(input="a.png", edited="b.png", instruction="make the left car blue")
        verdict["fidelity"].scores["alignment"]

    An image is a path, a `data:` or http(s) address, encoded bytes, a PIL image, or a NumPy array. An array is
    `uint8` from 0 to 255, `bool`, or floating point from 0 to 1: height x width, with 1, 3 or 4 channels.

    `rubrics`: names, sets or YAML files; by default `online`, or the metrics' own rubric for the judge `metrics`.
    `judge`: a spec such as `openai/gpt-6.1-terra`; by default EDITJUDGE_JUDGE, else the embedded `measured`. `images` (an
    image or a list of images for each name) and `texts`: extra columns of a manifest, under the names that the rubric
    uses. If a rubric's question is asked several times (`samples`, `for_each`), its judgements are `NAME[0]`, `NAME[1]`
    ...

    `temperature`, `seed`, `max_tokens`, `reasoning_effort`: parameters of the request; by default the server's.
    `extra`: additional parameters, passed on unchanged. `base_url`: address of an OpenAI-compatible server, or a list of
    addresses of servers of the same model. `schema`:
    request structured output if the server supports it. `reasks`: retries for invalid replies. `timeout`: seconds per
    request. `strict`: reject replies whose reasons exceed the word limits. `prices`: your own price file.
    `read="logprobs"`: also return the expected score under the token probabilities; a factor abstains if the
    probability of all its legal scores is below `min_mass`.

    Safe inside a running event loop, such as in a notebook. A failure is also a judgement, with a `status` and no
    scores. Raises `InputError` for an invalid rubric, judge, key or option, `WorldError` if the judge refuses the key
    or cannot be reached, and `TypeError` for an unknown argument.
    """
    edit = _edit(
        edited=edited,
        input=input,
        instruction=instruction,
        ground_truth=ground_truth,
        mask=mask,
        referring_expression=referring_expression,
        id=id,
        edit_type=edit_type,
        images=images,
        texts=texts,
    )
    judge = judge or default_judge()
    settings = Options(**options)
    check_settings([judge], settings)
    questions = resolve(_names(rubrics) or default_rubrics([judge], settings))
    judgements = wait_for(judge_edit(edit, questions, judge, settings))
    return Judgements.of(edit, judgements, questions)


def _edit(
    *,
    edited: Image,
    input: Image | None = None,  # noqa: A002
    instruction: str = "",
    ground_truth: Image | None = None,
    mask: Image | None = None,
    referring_expression: str = "",
    id: str = "edit",  # noqa: A002
    edit_type: str | None = None,
    images: Mapping[str, Image | Sequence[Image]] | None = None,
    texts: Mapping[str, object] | None = None,
) -> Edit:
    """Make an edit of the arguments of `judge`."""
    named = {name: _images(name, value) for name, value in (images or {}).items()}
    return Edit(
        id,
        _image("input", input),
        _image("edited", edited),
        instruction,
        _image("ground_truth", ground_truth),
        _image("mask", mask),
        referring_expression,
        edit_type=edit_type,
        metadata=dict(texts or {}),
        images=named_images(named),
    )


@dataclass(frozen=True)
class Run:
    """A run that has ended, completely or not (see `ending`). Its judgements are in the store.

    Methods that read them raise `StoreError` if the store cannot be opened.
    """

    id: int
    name: str
    ending: Ending
    summary: Summary
    store: str
    """Path or address of the store. It is not part of the repr, since an address may contain a password."""
    in_memory: Callable[[], Iterator[Edit]] | None = field(
        default=None, repr=False, compare=False
    )
    """Function that yields the edits, if the run was made from rows in memory. The store does not keep their images."""

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{count} {status}"
            for status, count in sorted(self.summary.statuses.items())
        )
        return f"<Run {self.name!r} ({self.id}), {self.ending}: {self.summary.total} judgements, {counts}>"

    def _repr_html_(self) -> str:
        with Store.open(self.store, readonly=True) as store:
            return run_html(repr(self), store, self.id, self.in_memory)

    def judgements(self) -> Iterator[JudgementRow]:
        """Yield every task with its judgement, in the order of the manifest.

        Raises `StoreError` if the store cannot be read.
        """
        with Store.open(self.store, readonly=True) as store:
            yield from store.judgements(self.id)

    @checked
    def scores(self) -> Any:
        """Return every score of the run: a data frame if pandas is installed, else a list of dicts.

            frame = run.scores()
            frame.pivot_table(index="item", columns="factor", values="score")

        There is a row for each factor of each judgement, with the columns item, model, judge, rubric, factor, repeat,
        score and status. If a judge abstained from a factor or its judgement failed, the row has a status but no score.
        A pairwise run also has the column `choice`.

        Raises `StoreError` if the store cannot be read.
        """
        from editjudge.report.answers import framed
        from editjudge.report.frames import score_rows

        with Store.open(self.store, readonly=True) as store:
            return framed(score_rows(store, store.find_run(str(self.id))))

    @checked
    def edits(self) -> Any:
        """Return every edit of the run: a data frame if pandas is installed, else a list of dicts.

            run.edits().sort_values("overall").head(20)       # the worst edits

        There is a row for each edit, with item, model, edit_type, group, instruction, the path of each image, the extra
        columns of the manifest, the number of judgements and of failed ones, and a column for each factor, rubric mean,
        `overall` and set score. These columns have the mean over judges and repeats, or nothing if a score that they
        need is missing.

        Raises `StoreError` if the store cannot be read.
        """
        from editjudge.report.answers import framed
        from editjudge.report.frames import edit_rows

        with Store.open(self.store, readonly=True) as store:
            return framed(edit_rows(store, store.find_run(str(self.id))))

    @checked
    def table(self, by: str | Sequence[str] = "model", *, use: Of | None = None) -> Any:
        """Return the mean and coverage of each factor for each `model`, `judge` or `rubric`.

        The table is a pandas data frame if pandas is installed, else a list of dicts. Its columns are the ones that
        `by` names, factor, mean, ok, n, mean_lo and mean_hi. Failed judgements count in `n`, but not in the mean.
        mean_lo and mean_hi are the 95 % CI, clustered by source image. They are empty if there are too few images, the
        extra `stats` is not installed, or the store cannot be opened.

            run.table(by=["edit_type", "difficulty"]).frame()    # sliced, with intervals

        With `use` ("scores", or "expected" for token probabilities), or with other columns of the manifest in `by`, the
        result is an `Answer` with every statistic of `report --json`, and a 95 % CI for each mean. Its `.frame()` has a
        row for each judge, model, factor and slice.

        Raises `UsageError` for a column that no edit has.
        """
        plain = ("judge", "model", "rubric")
        if not isinstance(by, str) or by not in plain or use is not None:
            columns = [name for name in _names(by) if name not in plain]
            return self._sliced(columns, use or "scores")
        cells: Mapping[tuple[str, str], Cell | SummaryCell] = self.summary.pooled(by)
        if not plugins.missing("stats"):
            from editjudge.report.summary import pooled_cells

            # Without its store, a run has the means of its summary, and no intervals.
            with suppress(StoreError):
                cells = pooled_cells(self._load(), by)
        rows: list[dict[str, object]] = []
        for (name, factor), cell in cells.items():
            figures = {"mean": cell.mean, "ok": cell.ok, "n": cell.n}
            ci = cell.ci
            limits = {"mean_lo": ci and ci.lo, "mean_hi": ci and ci.hi}
            rows.append({by: name, "factor": factor, **figures, **limits})
        from editjudge.report.answers import framed

        return framed(rows)

    @checked
    def compare(
        self,
        a: str | Run | None = None,
        b: str | None = None,
        *,
        by: Literal["model", "judge", "rubric"] = "model",
        factor: str | Sequence[str] = (),
        judge: str | None = None,
        primary: str | Sequence[str] = (),
        guaranteed: bool = False,
        use: Of = "scores",
        across_rubrics: bool = False,
        through: str | os.PathLike[str] | None = None,
    ) -> Answer:
        """Return paired differences, b minus a, as `editjudge compare --json` does.

            run.compare("old", "new")            # two models of this run
            run.compare(editjudge.open("before"))  # this run's edits against another's

        Without names, every pair of models is compared. With `by`, pairs of judges or rubrics are compared instead. If
        there are several judges, their mean is compared, unless `judge` names one. `primary` names the scores that are
        corrected together for multiple comparisons; by default, the rubric means and `overall`. `guaranteed` computes
        bounds that assume nothing about unseen scores.

        Raises `UsageError` for a name that the run does not have, and for a run with another rubric or judge. With
        `across_rubrics`, runs of other rubrics are compared on factors that have the same scale. With `through`, a file
        that `bridge` wrote, this run's scores are mapped to the scale of the other run's judge.
        """
        from editjudge.report import comparison
        from editjudge.report.bridge import Bridge
        from editjudge.report.selection import Choice

        choice = Choice(_names(factor), judge, _names(primary), guaranteed)
        if isinstance(a, Run):
            first = a._load(pairing=True, use=use)
            second = self._load(pairing=True, use=use)
            return comparison.compare_runs(
                first,
                second,
                choice,
                across_rubrics=across_rubrics,
                through=None if through is None else Bridge.read(Path(through)),
            )
        if through is not None:
            raise UsageError("through= is about two runs: name the other run")
        if by not in ("model", "judge", "rubric"):
            raise UsageError(
                f"by={by!r}: expected model, judge or rubric", code="unknown_grouping"
            )
        return comparison.compare(self._load(use=use), by, a, b, choice)

    @checked
    def bridge(
        self,
        old: Run,
        path: str | os.PathLike[str] | None = None,
        *,
        ratings: str | os.PathLike[str] | None = None,
        map_factor: Mapping[str, str] | None = None,
        within: float = 0.75,
        min_spearman: float = 0.6,
    ) -> Answer:
        """Map this run's scores to the scale of an old judge that judged the same edits, as `editjudge bridge --json`
        does. `path` is a file to write, as with `-o`.

            run.bridge(editjudge.open("last-year"), "bridge.json")
            other.compare(editjudge.open("before"), through="bridge.json")

        A score is comparable if 90 % of edits of held-out images map `within` this many points of a 7-point scale, or
        the same share of another scale, and the lower limit of Spearman's correlation is at least `min_spearman`.
        Raises `InputError` if the runs have no edit or no factor in common.
        """
        from editjudge.report.answers import format_of
        from editjudge.report.bridge import bridge, bridge_text
        from editjudge.stats.bridge import BridgeLimits

        file = None if path is None else Path(path)
        form = format_of(file) if file else None
        answer = bridge(
            old._load(pairing=True),
            self._load(pairing=True),
            BridgeLimits(within, min_spearman),
            ratings=None if ratings is None else Path(ratings),
            mappings=[f"{name}={ours}" for name, ours in (map_factor or {}).items()],
        )
        if file and form:
            file.write_text(bridge_text(answer, form), "utf-8", newline="")
        return answer

    @checked
    def drift(self, against: Run, *, across_rubrics: bool = False) -> Answer:
        """Compare with an earlier run of the same edits, as `editjudge drift --json` does.

            run.drift(editjudge.open("last-month"))

        Raises `InputError` if the runs have no edit in common. Raises `UsageError` if the other run used another
        rubric, unless `across_rubrics` is set.
        """
        from editjudge.report.drift import drift

        now = self._load(pairing=True)
        then = against._load(pairing=True)
        return drift(now, then, across_rubrics=across_rubrics)

    @checked
    def pairs(self) -> Answer:
        """Return the win rates, ties, flips and strengths of a pairwise run, as `editjudge report --json` does.

        Raises `UsageError` for a run that asks for scores.
        """
        from editjudge.report.pairwise import load_pairs, report_pairs

        with Store.open(self.store, readonly=True) as store:
            pairs = load_pairs(store, str(self.id))
        if pairs is None:
            raise UsageError(
                f"run {self.name} asks for scores, not which of two edits is better: use .table() and .compare()"
            )
        return report_pairs(pairs)

    @checked
    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["parquet", "jsonl", "csv"] = "jsonl",  # noqa: A002  (the option's name)
        replies: bool = False,
    ) -> list[Path]:
        """Write the judgements to a folder, as `editjudge export` does, and return the paths of the files.

        Raises `UsageError` if the folder has files of another run.
        """
        from editjudge.store.export import export_run, taken

        folder = Path(path)
        with Store.open(self.store, readonly=True) as store:
            record = store.find_run(str(self.id))
            if there := taken(folder, record):
                raise UsageError(
                    f"{folder} has {', '.join(there)} of another run: name another folder"
                )
            return export_run(store, record, folder, format, replies=replies)

    @checked
    def agree(
        self,
        ratings: str | os.PathLike[str] | Rows | None = None,
        *,
        map_factor: Mapping[str, str] | None = None,
        use: Of = "scores",
    ) -> Answer:
        """Compare the judges with people's ratings, as `editjudge agree --json` does.

            run.agree("ratings.csv", map_factor={"PQ": "quality"})

        `ratings` is a file, or rows in memory with item, rater, factor and score; by default, the ratings in the
        store. `map_factor` maps people's factors to the judges' factors. Raises `InputError` if the two have no item
        or no factor in common.
        """
        from editjudge.report.agreement import agree

        run = self._load(pairing=True, use=use)
        mappings = [f"{rated}={ours}" for rated, ours in (map_factor or {}).items()]
        if isinstance(ratings, str | os.PathLike):
            return agree(run, Path(ratings), mappings)
        if ratings is None:
            with Store.open(self.store, readonly=True) as store:
                return agree(run, store, mappings)
        with TemporaryDirectory() as folder:
            file = Path(folder, "ratings.jsonl")
            rows = (json.dumps(dict(row), default=str) for row in records(ratings))
            file.write_text("".join(f"{row}\n" for row in rows), "utf-8")
            return agree(run, file, mappings)

    @checked
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
        across_rubrics: bool = False,
        primary: str | Sequence[str] = (),
        guaranteed: bool = False,
    ) -> Answer:
        """Check the run against limits and a baseline, as `editjudge gate --json` does.

            run.gate({"alignment": 5}, baseline=editjudge.open("before"), max_drop=0.2)

        `["outcome"]` in the answer is `pass`, `fail` or `not enough evidence`. If there is no score to decide on,
        `["error"]` is the reason. Raises `UsageError` for a factor, model or judge that the run does not have, and for
        a baseline with another rubric. With `across_rubrics`, such a baseline is compared on factors that have the same
        scale.
        """
        from editjudge.report.gating import GateLimits, gate

        if baseline is None and max_drop:
            raise UsageError("max_drop= needs a baseline= to drop from")
        limits = GateLimits(
            minimum or {},
            maximum or {},
            max_drop,
            model,
            judge,
            alpha,
            max_failures,
            _names(primary),
            guaranteed,
        )
        run = self._load(pairing=baseline is not None)
        before = baseline._load(pairing=True) if baseline is not None else None
        return gate(run, before, limits, across_rubrics=across_rubrics)

    @checked
    def report(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002  (the option's name)
        by: str | Sequence[str] = (),
    ) -> Path:
        """Write a report and return its path. `by` names the columns by which to slice it.

        `format` is html, fragment, md, latex, csv or json. By default it follows from the extension: .html, .md, .tex,
        .csv or .json. Raises `UsageError` for an unknown format, or a column that no edit has.
        """
        from editjudge.report.answers import FORMATS, format_of
        from editjudge.report.page import rendered
        from editjudge.report.summary import measure

        file = Path(path)
        if format is not None and format not in (*FORMATS.values(), "fragment"):
            raise UsageError(
                f"format={format!r}: expected {', '.join(FORMATS.values())} or fragment"
            )
        format = format or format_of(file)  # noqa: A001
        if not file.absolute().parent.is_dir():
            raise UsageError(f"{file}: there is no folder {file.parent}")
        means = measure(self._load(by=_names(by)), _names(by))
        with Store.open(self.store, readonly=True) as store:
            file.write_text(rendered(means, format, store), "utf-8", newline="")
        return file

    @checked
    def plot(self, a: str | None = None, b: str | None = None) -> Plot:
        """Return a forest plot of the paired differences between models. A notebook displays it.

            run.plot("old", "new").save("forest.html")    # or .svg; .png and .pdf need Matplotlib

        Raises `UsageError` for a model that the run does not have.
        """
        from editjudge.report.charts import DotChart, Plot
        from editjudge.report.comparison import compare

        charts = compare(self._load(), "model", a, b).charts
        return Plot([chart for chart in charts if isinstance(chart, DotChart)])

    def _sliced(self, by: Sequence[str], use: Of) -> Answer:
        from editjudge.report.summary import long, measure, report

        means = measure(self._load(by=by, use=use), by)
        return replace(report(means), rows=long(means, by or [""]))

    def _load(
        self, *, by: Sequence[str] = (), pairing: bool = False, use: Of = "scores"
    ) -> RunData:
        from editjudge.report.run_data import load

        with Store.open(self.store, readonly=True) as store:
            return load(store, str(self.id), by, pairing=pairing, of=use)


@checked
def open(name: str | int, *, store: str | os.PathLike[str] | None = None) -> Run:  # noqa: A001  (editjudge.open)
    """Return a stored run by its name or number. No judge is called.

        run = editjudge.open("mine", store="editjudge.db")
        run.compare("old", "new")

    The default store is EDITJUDGE_STORE, else editjudge.db. Raises `UsageError` if the store has no such run, and
    `StoreError` if there is no store.
    """
    from editjudge.running.summary import summary_of

    location = os.fspath(store or default_store())
    with Store.open(location, readonly=True) as opened:
        record = opened.find_run(str(name))
        # The factors of a rubric that the store lacks are unknown: its judgements are counted, but have no mean.
        factors: defaultdict[str, list[str]] = defaultdict(list)
        for rubric, scored in opened.questions_of(record).scored.items():
            factors[rubric] = [factor.key for factor in scored]
        summary = summary_of(*opened.score_sums(record), factors)
    # A run that the store records as running counts as interrupted: running it again resumes it.
    ending = "interrupted" if record.state == "running" else record.state
    return Run(record.id, record.name, ending, summary, location)


@_with_options
async def arun(
    manifest: str | os.PathLike[str] | Rows,
    *,
    rubrics: str | Sequence[str] = (),
    judges: str | Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
    name: str | None = None,
    repeats: int = 1,
    fuse: bool = False,
    layout: Layout | None = None,
    models: str | Sequence[str] = (),
    limit: int | None = None,
    primary: str | Sequence[str] = (),
    until: str | Sequence[str] = (),
    alpha: float | None = None,
    margin: float | None = None,
    concurrency: int | None = None,
    budget: float | None = None,
    allow_outside: bool = False,
    allow_urls: bool = False,
    columns: Mapping[str, str] | None = None,
    progress: bool | None = None,
    **options: Unpack[JudgeOptions],
) -> Run:
    """Judge every edit of a manifest, as `run` does, but for asynchronous callers. An unfinished run is resumed.

        run = await editjudge.arun("edits.jsonl", judges=["openai/gpt-6.1-terra"], budget=5.0)
        run.table(by="model")

    Accepts the arguments of `run` and raises the same errors.
    """
    location = os.fspath(store or default_store())
    path, rows = _rows(manifest, name)
    specs = _names(judges) or (default_judge(),)
    settings = Options(**options)
    check_settings(specs, settings)
    # Rows that the caller made have no folder to be confined to; a dataset comes from elsewhere.
    is_own = rows is not None and not hasattr(manifest, "_fingerprint")
    job = Job(
        manifest=path,
        rows=rows,
        rubrics=_names(rubrics) or default_rubrics(specs, settings),
        judges=specs,
        repeats=repeats,
        layout=layout,
        fuse=fuse,
        models=_names(models),
        limit=limit,
        primary=_names(primary),
        until=_names(until),
        alpha=alpha,
        margin=margin,
        allow_outside=allow_outside or is_own,
        allow_urls=allow_urls,
        columns=tuple((columns or {}).items()),
        options=settings,
    )
    run_options = RunOptions(name=name, concurrency=concurrency, budget=budget)
    if until:
        from editjudge.report.early import is_decided

        run_options = replace(run_options, decides=is_decided)
    with ExitStack() as stack:
        if bar := progress_for(progress):
            stack.callback(bar.close)
            run_options = replace(run_options, observe=bar)
        outcome = await execute(
            job, lambda: stack.enter_context(Store.open(location)), run_options
        )
    if outcome.error:
        raise outcome.error
    ended = (outcome.run_id, outcome.name, outcome.ending, outcome.summary)
    return Run(*ended, location, job.edits if isinstance(rows, Sized) else None)


def _with_parameters_of(
    work: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Return a decorator that applies `checked` and gives the function the signature of `work`. Type checkers and
    `help` then show that signature.
    """

    def signed(function: Callable[..., T]) -> Callable[P, T]:
        vars(function)["__signature__"] = inspect.signature(work)
        return checked(function)

    return signed


@_with_parameters_of(arun)
def run(*manifest: Any, **arguments: Any) -> Run:
    """Judge every edit of a manifest. An unfinished run is resumed.

        run = editjudge.run("edits.jsonl", rubrics=["online"], judges=["openai/gpt-6.1-terra"], store="editjudge.db")
        run.table(by="model")

    `manifest` is a path (JSONL, JSON, CSV, Parquet or a folder), or rows in memory: a list of dicts, a pandas or
    polars data frame, or a Hugging Face dataset, streaming or not. Images in rows have the same forms as in `judge`;
    paths are relative to the working directory. A streaming dataset needs a `name`.

    `rubrics` and `judges`: one name or a list; by default `online`, and EDITJUDGE_JUDGE or `measured`. `store`: a
    SQLite file or postgresql://...; by default EDITJUDGE_STORE, else editjudge.db. `models`: judge only the edits of
    these models. `limit`: judge only this many of the remaining edits. `primary`: scores that are corrected together
    for multiple comparisons. `until`: claims such as "overall: new > old"; the run ends once all are decided, with
    a probability `alpha` of any false decision; `margin` is the difference at which `~` counts two models as equivalent.
    `columns`: names of the manifest's columns if they differ, such as `{"input": "source"}`.
    `repeats`: judgements of each edit and rubric. `fuse`: ask all rubrics of a set in one call. `budget`: maximum cost
    in US dollars; the run stops before exceeding it. `allow_outside`: allow images outside the manifest's folder.
    `allow_urls`: fetch http(s) addresses. `progress`: show a progress bar; by default in notebooks and terminals. The
    other options are those of `judge`.

    A failed edit has a row with its status. Raises `InputError` for an invalid manifest, rubric, judge or option,
    before the store is created. Raises `WorldError` if a judge is down or refuses the key, or the store cannot be
    written. Judgements made so far are kept, and the same call resumes the run.

    Safe inside a running event loop, such as in a notebook. Ctrl-C stops it with `KeyboardInterrupt`.
    """
    return wait_for(arun(*manifest, **arguments))


@dataclass(frozen=True)
class Attempt:
    """One output of an editor, and the judge's verdict on it."""

    edited: Image
    judgements: Judgements
    passed: bool | None
    """Whether the output passed. None if a score that the condition needs is missing; such an attempt does not pass
    either.
    """

    @property
    def scores(self) -> dict[str, float]:
        """Scores, keyed by factor: the mean if a rubric asks several questions."""
        means = _mean_scores(self.judgements)
        return {factor: score for (_, factor), score in means.items()}

    @property
    def reasons(self) -> dict[str, str]:
        """The judge's reasons, keyed by factor, as feedback for the editor's next attempt."""
        every = (each.justifications or {} for each in self.judgements.values())
        return {factor: text for texts in every for factor, text in texts.items()}


@dataclass(frozen=True)
class Verification:
    """All attempts to produce an output that passes."""

    attempts: Sequence[Attempt]

    @property
    def passed(self) -> bool:
        """Whether the last attempt passed."""
        return self.attempts[-1].passed is True

    @property
    def edited(self) -> Image | None:
        """The output that passed, or None if none did."""
        return self.attempts[-1].edited if self.passed else None


@_with_options
def verify(
    edit: Mapping[str, Any],
    rubrics: str | Sequence[str] = (),
    *,
    pass_if: str,
    make: Callable[[Attempt | None], Image] | None = None,
    retries: int = 2,
    judge: str | None = None,
    **options: Unpack[JudgeOptions],
) -> Verification:
    """Judge an output, and let the editor try again until an output passes.

        def make(previous):                          # None at the first call
            return my_editor(photo, instruction, feedback=previous and previous.reasons)

        result = editjudge.verify(
            {"input": photo, "instruction": "make the left car blue"},
            pass_if="alignment >= 5 and min(preservation) >= 5",
            make=make,
        )
        result.edited                                # the first output that passed, or None

    `edit` has the arguments of `judge`, such as input and instruction. If it has `edited`, that output is judged before
    `make` is called. `pass_if` is a condition on factors, on rubrics (the mean of their factors; `min(preservation)` is
    their minimum) and on `overall`, the mean of all factors. An output does not pass if a score that the condition
    needs is missing. At most `retries` more outputs are tried. The result has every attempt with its judgements.

    Raises `UsageError` if the condition cannot be parsed, or if there is neither an output nor `make`. Also raises
    everything that `judge` raises.
    """
    given = dict(edit)
    if "edited" not in given and make is None:
        raise UsageError("verify() needs an output: give edit['edited'] or make=")
    if retries < 0:
        raise UsageError(f"retries={retries}: expected 0 or more")
    settings = Options(**options)
    spec = judge or default_judge()
    check_settings([spec], settings)
    questions = resolve(_names(rubrics) or default_rubrics([spec], settings))
    check_answers([spec], questions)
    condition = _pass_condition(pass_if, questions)
    attempts: list[Attempt] = []
    with _Opened(spec, settings) as opened:
        for _ in range(1 + retries):
            if attempts or "edited" not in given:
                if make is None:
                    break
                given["edited"] = make(attempts[-1] if attempts else None)
            judged_edit = _edit(**given)
            judgements = opened.judge(judged_edit, questions)
            verdict = Judgements.of(judged_edit, judgements, questions)
            value = value_for_edit(condition, _mean_scores(verdict))
            passed = None if value is None else bool(value)
            attempts.append(Attempt(given["edited"], verdict, passed))
            if passed:
                break
    return Verification(attempts)


class _Opened:
    """A judge that stays open between calls, so that a local model is loaded once.

    It has a thread with an event loop: the caller's thread may have a loop of its own, and `make` may start one.
    """

    def __init__(self, spec: str, options: Options) -> None:
        self._open = (spec, options)
        self._pool = ThreadPoolExecutor(1)
        self._runner = asyncio.Runner()
        self._resources = AsyncExitStack()
        self._judge: EditJudge | None = None

    def __enter__(self) -> _Opened:
        return self

    def judge(self, edit: Edit, rubrics: Sequence[Rubric]) -> list[Judgement]:
        if self._judge is None:
            self._judge = self._wait(EditJudge.open(*self._open, self._resources))
        return self._wait(self._judge.judge(edit, rubrics))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._pool.submit(self._runner.run, work).result()

    def __exit__(self, *_: object) -> None:
        self._wait(self._resources.aclose())
        self._pool.submit(self._runner.close).result()
        self._pool.shutdown()


def _mean_scores(verdict: Judgements) -> dict[Ref, float]:
    """Return the mean of each factor over the questions of its rubric. A factor that lacks a score in one of them is
    left out.
    """
    by_rubric: defaultdict[str, list[Mapping[str, float]]] = defaultdict(list)
    for judgement in verdict.values():
        by_rubric[judgement.rubric].append(judgement.scores or {})
    return {
        (rubric, factor): fmean(scores[factor] for scores in answers)
        for rubric, answers in by_rubric.items()
        for factor in answers[0]
        if all(factor in scores for scores in answers)
    }


def _pass_condition(text: str, rubrics: Sequence[Rubric]) -> Term:
    """Parse a condition on the scores of these rubrics. Raise `UsageError` if it cannot be parsed."""
    refs = {
        rubric.name: [(rubric.name, factor.key) for factor in rubric.factors]
        for rubric in rubrics
    }
    means = {name: reduction("mean", of_rubric) for name, of_rubric in refs.items()}
    overall = reduction(
        "mean", [ref for of_rubric in refs.values() for ref in of_rubric]
    )
    members = [member(rubric) for rubric in rubrics]
    try:
        return parse(text, members, {OVERALL: overall}, "pass_if", means)
    except RubricError as error:
        raise UsageError(str(error), code="invalid_condition") from None


def _rows(
    manifest: str | os.PathLike[str] | Rows, name: str | None
) -> tuple[Path, Iterable[Mapping[str, object]] | None]:
    """Return the path of a manifest and None. For rows in memory, return a generated name and the rows."""
    if isinstance(manifest, str | os.PathLike):
        return Path(manifest), None
    if isinstance(manifest, Iterator):
        raise UsageError(
            "rows are read more than once: give a list or a dataset, not a generator",
            code="rows_read_once",
        )
    if isinstance(manifest, Mapping) or not hasattr(manifest, "__iter__"):
        raise UsageError(
            f"manifest: found {type(manifest).__name__}, expected a path, a list of dicts, a data frame or a dataset",
            code="not_a_manifest",
        )
    rows = records(manifest)
    # `datasets` identifies a dataset by this fingerprint. The same rows give the same run, which resumes.
    mark = name or getattr(manifest, "_fingerprint", None)
    if not mark and isinstance(rows, Sized):
        # Hash only plain values: images have digests of their own.
        digest = hashlib.sha256()
        for row in rows:
            plain = {
                str(k): v for k, v in row.items() if isinstance(v, str | int | float)
            }
            digest.update(json.dumps(plain, sort_keys=True).encode())
        mark = digest.hexdigest()[:12]
    if not mark:
        raise UsageError(
            "a dataset that streams has no name of its own: give the run one with name=..."
        )
    return Path(f"rows-{mark}".replace(os.sep, "-")), rows


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _images(
    name: str, images: Image | Sequence[Image]
) -> ImageSource | list[ImageSource]:
    if isinstance(images, list | tuple):
        sources = (_image(name, image) for image in images)
        return [source for source in sources if source is not None]
    return _image(name, images) or b""


def _image(name: str, image: object) -> ImageSource | None:
    if isinstance(image, str) and is_url(image):
        return image
    return encode(image, f"{name}=")
