"""The answer of each verb: a document for programs, leading lines and tables for people.

The command line prints an answer, Python returns it, the browser renders it.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from editjudge.errors import InputError, Option, UsageError
from editjudge.manifest import Columns
from editjudge.ratings import (
    PairRating,
    origins_of,
    read_pair_ratings,
    read_preferences,
    read_scores,
    vote_of,
)
from editjudge.report import agreement, comparison, pairwise, summary
from editjudge.report.charts import DotChart
from editjudge.report.comparison import By, ComparisonReport
from editjudge.report.gating import GateLimits, gate_run
from editjudge.report.pairwise import VOTE, PairRun, PreferenceReport
from editjudge.report.run_data import RunData
from editjudge.report.selection import (
    EVERYTHING,
    Choice,
    SameRubrics,
    same_baseline,
    same_rubrics,
    within_one_run,
)
from editjudge.report.summary import SummaryReport
from editjudge.report.tables import PROSE, WIDTH, Table, clean, counted
from editjudge.stats.columns import Ratings
from editjudge.store.ratings import ratings_of
from editjudge.store.store import Store

FORMATS = {
    ".html": "html",
    ".md": "md",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
}
"""Format of a report by the ending of its file's name."""


@dataclass(frozen=True, repr=False)
class Answer(Mapping[str, Any]):
    """The answer of a verb: a mapping with the keys that `--json` prints.

    answer["comparisons"][0]["difference"]
    answer.frame()      # a pandas data frame where pandas is installed, else a list of dicts
    print(answer)       # as in the terminal
    """

    document: Mapping[str, Any]
    lead: Sequence[str]
    tables: Sequence[Table]
    rows: Table | None = None
    """Every figure in one table at full precision, too wide to read."""
    conclusions: Sequence[str] = ()
    """The leading lines that state what was found."""
    charts: Sequence[DotChart] = ()

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    def frame(self, table: int = 0) -> Any:
        """Return the rows of a table at full precision: by default all figures, or else the first table."""
        tables = [*([self.rows] if self.rows else []), *self.tables]
        return framed(tables[table].records() if tables else [])

    def __repr__(self) -> str:
        tables = (table.text(WIDTH) for table in self.tables)
        return "\n\n".join(["\n".join(self.lead), *tables])

    def _repr_html_(self) -> str:
        from editjudge.report.templating import render_macro

        lead = (f"<p>{html.escape(line)}</p>" for line in self.lead)
        tables = (render_macro("tables.html", "table", one) for one in self.tables)
        return "".join([*lead, *tables])


def framed(rows: list[dict[str, Any]]) -> Any:
    """Return a pandas data frame if pandas is installed, else the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


# --- compare and drift ----------------------------------------------------------------------------------------


def compare(
    run: RunData,
    by: By = "model",
    a: str | None = None,
    b: str | None = None,
    choice: Choice = EVERYTHING,
) -> Answer:
    """Compare models, judges or rubrics of one run."""
    same = within_one_run(run) if by == "rubric" else SameRubrics(run, run)
    run = same.a
    reports = comparison.differences(run, by, a, b, choice)
    about = {"run": run.run.name, "by": by, "of": run.of, "pending": run.pending}
    lead = [*same.lead(), *run.lead()]
    if not reports:
        shared = "rubric" if by == "judge" else "factor"
        lead.append(
            f"nothing to compare: no two {by}s have scores on the same {shared}"
        )
    return _compared(about, {}, reports, by, run.unjudged(), lead)


def compare_runs(
    a: RunData,
    b: RunData,
    choice: Choice = EVERYTHING,
    *,
    across_rubrics: bool = False,
) -> Answer:
    """Compare the edits of two runs, which were loaded with `pairing`."""
    same = same_rubrics(a, b, across_rubrics=across_rubrics, factors=choice.factors)
    reports, match = comparison.run_differences(same.a, same.b, choice)
    about = {
        "run_a": a.run.name,
        "run_b": b.run.name,
        "by": "run",
        "of": a.of,
        **match.counts(),
        "pending": a.pending + b.pending,
        "pending_a": a.pending,
        "pending_b": b.pending,
    }
    before = [*b.unjudged(), *same.lead()]
    lead = [*a.lead(), *b.lead(), *match.describe(a.run.name, b.run.name)]
    return _compared(about, same.as_json(), reports, "run", before, lead)


def _compared(
    about: Mapping[str, Any],
    more: Mapping[str, Any],
    reports: Sequence[ComparisonReport],
    by: By,
    before: Sequence[str],
    after: Sequence[str],
) -> Answer:
    conclusions = comparison.conclusions(reports)
    return Answer(
        {**about, "comparisons": [one.as_json() for one in reports], **more},
        [*before, *conclusions, *after],
        comparison.compare_tables(reports, by),
        comparison.comparison_rows(reports),
        conclusions,
        [chart for _, chart in comparison.forests(reports)],
    )


def drift(now: RunData, then: RunData, *, across_rubrics: bool = False) -> Answer:
    """Compare two runs of the same edits, which were loaded with `pairing`."""
    same = same_rubrics(now, then, across_rubrics=across_rubrics)
    report = comparison.drifted(same.a, same.b)
    return Answer(
        report.as_json() | same.as_json(),
        [*same.lead(), *report.lead()],
        comparison.drift_tables(report),
    )


# --- gate -----------------------------------------------------------------------------------------------------


def gate(
    run: RunData,
    baseline: RunData | None,
    limits: GateLimits,
    *,
    across_rubrics: bool = False,
    if_unsure: Literal["pass", "fail"] | None = None,
) -> Answer:
    """Check a run against limits and a baseline; with a baseline both were loaded with `pairing`."""
    same = same_baseline(
        run, baseline, across_rubrics=across_rubrics, max_drop=limits.max_drop
    )
    report = gate_run(run, same.b if same else None, limits)
    undecidable = report.outcome != "fail" and if_unsure is None
    return Answer(
        {
            **report.as_json(),
            **(same.as_json() if same else {}),
            "error": report.undecidable if undecidable else None,
        },
        [*report.lead(), *(same.lead() if same else ())],
        [report.table()],
    )


# --- agree ----------------------------------------------------------------------------------------------------


def agree(
    run: RunData,
    ratings: Ratings,
    mappings: Sequence[str] = (),
    *,
    calibrating: bool = False,
    estimating: bool = False,
) -> Answer:
    """Compare the judges of a run, which was loaded with `pairing`, with people's ratings of its edits."""
    report = agreement.run_agreement(
        run, ratings, mappings, calibrating=calibrating, estimating=estimating
    )
    return Answer(
        {**report.as_json(), "of": run.of, "pending": run.pending},
        [*agreement.conclusions(report), *run.lead()],
        agreement.tables(report),
    )


def agree_files(
    ratings_file: Path,
    scores_file: Path,
    manifest: Path | None = None,
    mappings: Sequence[str] = (),
    *,
    columns: Columns = (),
    with_guessed: bool = False,
    calibrating: bool = False,
    estimating: bool = False,
) -> Answer:
    """Compare scores of a file with ratings of a file."""
    ratings, origins = agreement.file_ratings(ratings_file, None)
    content = read_scores(
        scores_file, origins_of(manifest, columns) if manifest else origins
    )
    scores = (with_guessed and content.with_guessed) or content.scores
    counts = ", ".join(
        f"{n:,} {status}" for status, n in Counter(scores.status).most_common()
    )
    judges = counted(len(scores.judge.present()), "judge")
    lead = [f"{scores_file}: {len(scores):,} scores by {judges}: {counts}"]
    if manifest is None and len(scores.group.present()) == len(scores.item.present()):
        lead.append(
            "every edit counts as a source image of its own: if some share one, intervals are too narrow; "
            "give --manifest"
        )
    if with_guessed and content.with_guessed:
        lead.append("guessed scores are included, as if the judge had given them")
    ratings = agreement.renamed(ratings, mappings, scores.factor.present())
    agreement.check_common(ratings, scores, ())
    report = agreement.agreed(
        ratings,
        scores,
        with_guessed=None if with_guessed else content.with_guessed,
        calibrating=calibrating,
        estimating=estimating,
    )
    return Answer(
        {**report.as_json(), "of": "scores", "pending": 0},
        [*agreement.conclusions(report), *lead],
        agreement.tables(report),
    )


def agree_preferences(file: Path, run: RunData | None) -> Answer:
    """Compare people's preferences in a file with the scores of a run, or with judges' votes in the same file."""
    rows = list(read_preferences(file, of_run=run is not None))
    pairs = [preference for _, preference in rows]
    lead: list[str] = []
    if run is not None:
        items = {*run.scores.item.present()}
        pairs = [one for one in pairs if items.issuperset(one.pair)]
        unknown = [
            (line, name)
            for line, preference in rows
            for name in preference.pair
            if name not in items
        ]
        first = "{}:{}: found {!r:.80}, and the run has no judgement of it"
        lead = [
            *run.lead(),
            *_left_out(
                "pairs",
                len(rows),
                len(pairs),
                [first.format(file, *place) for place in unknown[:1]],
                "nor of both edits of any other pair; expected ids of the run's edits",
            ),
        ]
    elif not any(one.votes for one in pairs):
        raise InputError(
            f"{file}: has no judge's votes; name a RUN, or add columns vote:NAME or an object judge_votes"
        )
    elif not all(one.group for one in pairs):
        lead = [
            "some pairs have no group and count as source images of their own: intervals may be too narrow"
        ]
    report = pairwise.preferred(pairs, run)
    counts = {
        "pairs": len(rows),
        "left_out": len(rows) - len(pairs),
        "pending": run.pending if run else 0,
    }
    return Answer(counts | report.as_json(), lead, pairwise.preference_tables(report))


def agree_pair_file(pairs: PairRun, file: Path) -> Answer:
    """Compare a run of pairs with a file of people's votes on the same pairs."""
    rows = list(read_pair_ratings(file))
    votes = [vote for _, vote in rows if vote.item in pairs.origins]
    unknown = [
        f"{file}:{line}: found {vote.item!r:.80}, which is not a pair of the run"
        for line, vote in rows
        if vote.item not in pairs.origins
    ]
    example = next(iter(pairs.origins))
    left_out = _left_out(
        "votes",
        len(rows),
        len(votes),
        unknown,
        f"nor is any other; expected ids of pairs, such as {example!r}",
    )
    report = pairwise.preferred_pairs({VOTE: votes}, pairs)
    return _voted(pairs, report, len(rows), len(rows) - len(votes), left_out)


def agree_stored_pairs(pairs: PairRun, store: Store) -> Answer:
    """Compare a run of pairs with the votes that people gave in the browser."""
    rows = [row for row in ratings_of(store, pairs.run) if row.choice]
    by_factor: dict[str, list[PairRating]] = {}
    for row in sorted(rows, key=lambda row: (row.rater, row.factor, row.choice)):
        vote = PairRating(row.item, row.rater, vote_of(row.choice) or "tie")
        by_factor.setdefault(row.factor, []).append(vote)
    if not by_factor:
        raise UsageError(
            f"nobody has rated the pairs of run {pairs.run.name}: rate them under /rate of `editjudge serve`, or give "
            "--preferences FILE"
        )
    report = pairwise.preferred_pairs(by_factor, pairs)
    return _voted(pairs, report, len(rows), 0, [])


def _voted(
    pairs: PairRun,
    report: PreferenceReport,
    votes: int,
    left_out: int,
    notes: Sequence[str],
) -> Answer:
    return Answer(
        {"votes": votes, "left_out": left_out, **report.as_json()},
        [*pairs.lead(), *notes],
        pairwise.pair_tables(report),
    )


def _left_out(
    noun: str, total: int, used: int, unknown: Sequence[str], expected: str
) -> list[str]:
    """Return a line about rows that the run does not know; raise `InputError` if it knows none."""
    if not unknown:
        return []
    if not used:
        raise InputError(f"{unknown[0]}, {expected}")
    return [
        f"{total - used:,} of {total:,} {noun} are left out; the first at {unknown[0]}"
    ]


# --- report ---------------------------------------------------------------------------------------------------


def report(means: SummaryReport) -> Answer:
    """Report the figures of a run as a terminal shows them."""
    run = means.judged
    conclusions = comparison.conclusions(means.compared)
    return Answer(
        summary.document(means),
        [*run.unjudged(), *run.lead(), *conclusions],
        summary.tables(means),
        summary.long(means),
        conclusions,
    )


def report_pairs(pairs: PairRun) -> Answer:
    """Report a run of pairs."""
    measured = pairwise.measure_pairs(pairs)
    return Answer(measured.as_json(), measured.lead(), pairwise.tables(measured))


def format_of(path: Path) -> str:
    """Return the format that a file's name stands for."""
    if path.suffix not in FORMATS:
        raise UsageError(
            f"{clean(str(path))}: the name ends in none of {', '.join(FORMATS)}; give --format",
            options=[Option("format", argument="form")],
        )
    return FORMATS[path.suffix]


def rendered(
    means: SummaryReport,
    form: str,
    store: Store | None = None,
    mappings: Sequence[str] = (),
) -> str:
    """Return a report as text in one of its formats. HTML reads images, questions and ratings from the store."""
    run = means.judged
    if form == "csv":
        return summary.long(means).csv()
    if form == "json":
        return json.dumps(summary.document(means), indent=2, allow_nan=False) + "\n"
    if form == "fragment":
        # A frame of its own: the page's style changes nothing around it, and nothing around it changes the page.
        inside = html.escape(rendered(means, "html", store, mappings))
        name = html.escape(run.run.name)
        frame = f'<iframe title="Report of {name}" sandbox srcdoc="{inside}" style="width:100%;height:900px;border:0">'
        return f"{frame}</iframe>\n"
    if form == "html" and store is not None:
        from editjudge.report.page import page

        return page(means, store, *agreement.stored_agreement(run, store, mappings))
    tables = [
        *summary.tables(means, full=True),
        *comparison.compare_tables(means.compared, "model"),
    ]
    lead = [
        *run.unjudged(),
        *comparison.conclusions(means.compared),
        summary.not_scored(means),
        *run.lead(),
    ]
    return PROSE[form](f"Run {run.run.name}", lead, tables)


def rendered_pairs(pairs: PairRun, form: str) -> str:
    """Return the report of a run of pairs as text in one of its formats."""
    measured = pairwise.measure_pairs(pairs)
    if form == "csv":
        return pairwise.long_table(measured).csv()
    if form == "json":
        return json.dumps(measured.as_json(), indent=2, allow_nan=False) + "\n"
    tables = pairwise.tables(measured, full=True)
    title = f"Run {pairs.run.name}"
    if form in ("html", "fragment"):
        from editjudge.report.templating import render

        return render(
            "figures.html",
            kicker="editjudge report",
            title=title,
            lead=measured.lead(),
            charts=pairwise.strength_charts(measured),
            tables=tables,
        )
    return PROSE[form](title, measured.lead(), tables)
