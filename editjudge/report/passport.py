"""A judge's passport: which qualities its answers to known edits have shown, bound to the questions that were asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.canonical import json_hash
from editjudge.errors import InputError, UsageError, did_you_mean, one_line
from editjudge.report.answers import Answer
from editjudge.report.tables import Cell, Figure, Table, counted
from editjudge.report.templating import render
from editjudge.report.words import plain
from editjudge.stats.columns import Interval
from editjudge.stats.sign_flip import Decision

if TYPE_CHECKING:
    from editjudge.judges.judge import Options
    from editjudge.store.records import RunRecord

FORMAT = 1
"""Version of the file's format."""
SHOWN: Mapping[Decision, str] = {"yes": "yes", "no": "NO", "not_shown": "not shown"}


@dataclass(frozen=True)
class Quality:
    """A quality of a judge. In every line, yes is what one wants."""

    answer: Decision
    effect: float | None
    """Effect in points of seven; the share of flipped pairs for `order_flips`."""
    ci: Interval | None
    """95 % interval over photographs."""
    sham: float | None
    """Effect of the same operation without the cue, or of asking the same question again."""
    n: int
    """Number of photographs."""
    p: float | None = None
    questions: int = 0
    """Number of answered questions behind the line. Lines share some of them."""
    doses: Sequence[float | None] | None = None
    """Mean score, from 1 to 7, of the clean edit and of each dose."""


@dataclass(frozen=True)
class Binding:
    """Identity of the questions that a passport is about."""

    rubrics: Mapping[str, str]
    """Hash of each rubric, keyed by name."""
    settings: str
    """Hash of the layout and of the judge's options, on which the preparation of images depends."""
    photographs: str
    """Hash of the photographs and of what is asked about them."""


@dataclass(frozen=True)
class Passport:
    judge: str
    model_reported: str | None
    date: str
    questions: int
    usd: float | None
    set: str
    """`quick` or `full`."""
    photographs: int
    statuses: Mapping[str, int]
    """Number of answers by status."""
    binding: Binding
    runs: Sequence[str]
    """Names of the runs that have the answers, in the store that the passport was made with."""
    qualities: Mapping[str, Quality]
    format: int = FORMAT
    hash: str = field(default="", compare=False)
    """Hash of everything else."""

    def as_json(self) -> dict[str, Any]:
        """Return the passport at full precision, with the hash that it is checked by."""
        document: dict[str, Any] = plain(self)
        del document["hash"]
        return {**document, "hash": json_hash(document)}

    @classmethod
    def read(cls, path: Path) -> Passport:
        """Read a passport. Raise `InputError` if it is not one, or was changed."""
        from pydantic import TypeAdapter, ValidationError

        name = one_line(str(path))
        try:
            passport: Passport = TypeAdapter(cls).validate_json(path.read_bytes())
        except OSError as error:
            raise InputError(f"{name}: {error.strerror or error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            raise InputError(
                f"{name}: not a passport of `editjudge probe --passport`: {at or 'the file'}: {first['msg']}"
            ) from None
        if passport.hash != passport.as_json()["hash"]:
            raise InputError(
                f"{name}: was changed after it was written; make it anew with `editjudge probe --passport`"
            )
        return passport

    def with_answer(self, answer: Decision) -> list[str]:
        return [name for name, each in self.qualities.items() if each.answer == answer]

    @property
    def summary(self) -> str:
        """One line about the passport, as reports print it."""
        faults = self.with_answer("no")
        counts = f"{len(self.with_answer('yes'))} yes, {len(faults)} no, {len(self.with_answer('not_shown'))} not shown"
        named = f" (no: {', '.join(faults[:6])}{', ...' if faults[6:] else ''})"
        return (
            f"passport of {self.judge}, {self.date[:10]}, {self.set}, {counted(self.photographs, 'photograph')}: "
            f"{counts}{named if faults else ''}"
        )

    def heading(self) -> dict[str, object]:
        """Return the identity of the passport and the number of its answers, as JSON."""
        counts = Counter(quality.answer for quality in self.qualities.values())
        return {
            "judge": self.judge,
            "date": self.date,
            "hash": self.hash,
            "answers": dict(counts),
            "faults": self.with_answer("no"),
        }

    def check_judge(self, spec: Mapping[str, Any]) -> None:
        """Raise `UsageError` unless a run's spec asks this judge the same questions."""
        if self.judge not in spec.get("judges", ()):
            raise UsageError(
                f"the passport is of {self.judge}, and the run was judged by {', '.join(spec.get('judges', ()))}",
                code="other_judge",
            )
        for name, digest in spec.get("rubrics", {}).items():
            if self.binding.rubrics.get(name) != digest:
                made = ", ".join(self.binding.rubrics)
                raise UsageError(
                    f"the passport of {self.judge} does not cover the rubric {name} as the run asks it; it covers {made}",
                    code="other_rubric",
                )
        settings = settings_hash(spec.get("layout"), spec.get("options", {}))
        if self.binding.settings != settings:
            raise UsageError(
                f"the passport of {self.judge} was made with other settings (layout, parameters or server) than the run",
                code="other_settings",
            )

    def check_model(self, reported: Iterable[str]) -> None:
        """Raise `UsageError` if the server of a run reported another model than that of the passport."""
        models = ", ".join(sorted(reported))
        if self.model_reported and models and models != self.model_reported:
            raise UsageError(
                f"the passport of {self.judge} is of {self.model_reported}, and the run was answered by {models}",
                code="other_model",
            )

    def required(self, names: Iterable[str]) -> dict[str, Decision]:
        """Return the answers to these qualities. Raise `UsageError` for an unknown one."""
        answers = {}
        for name in names:
            if name not in self.qualities:
                raise UsageError(
                    f'--require: no quality is called "{name}"{did_you_mean(name, self.qualities)}',
                    code="unknown_quality",
                )
            answers[name] = self.qualities[name].answer
        return answers


def settings_of(layout: str | None, options: Options) -> str:
    """Return the hash of the settings that a judge is asked with."""
    return settings_hash(layout, options.frozen())


def settings_hash(layout: object, options: Mapping[str, Any]) -> str:
    # Retries after invalid replies and the server's address are part of the frozen options as well.
    return json_hash([layout, options])


@dataclass(frozen=True)
class Requirement:
    """The qualities that a passport must have."""

    passport: Passport
    answers: Mapping[str, Decision]

    @classmethod
    def of(cls, path: Path, names: str) -> Requirement:
        """Read a passport and the required qualities, separated by commas."""
        passport = Passport.read(path)
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        return cls(passport, passport.required(wanted))

    @property
    def unmet(self) -> list[str]:
        return [name for name, answer in self.answers.items() if answer != "yes"]

    @property
    def line(self) -> str:
        judge = self.passport.judge
        if not self.unmet:
            return f"passport of {judge}: {counted(len(self.answers), 'required line')} met"
        each = (f"{name}: {SHOWN[self.answers[name]]}" for name in self.unmet)
        return f"passport of {judge}: not met: {', '.join(each)}"

    def as_json(self) -> dict[str, object]:
        """Return the answers that are required, and whether all are yes."""
        return {
            "judge": self.passport.judge,
            "hash": self.passport.hash,
            "required": dict(self.answers),
            "met": not self.unmet,
        }


def gated(
    answer: Answer | None, run: RunRecord, requirements: Sequence[Requirement]
) -> Answer:
    """Return a gate's answer with the passports that it requires. They may be its only checks.

    Raise `UsageError` if a judge of the run has none.
    """
    covered = {requirement.passport.judge for requirement in requirements}
    for judge in run.spec["judges"]:
        if judge not in covered:
            raise UsageError(
                f"run {run.name} was also judged by {judge}: add its passport with --passport",
                code="no_passport",
            )
    is_met = not any(requirement.unmet for requirement in requirements)
    lead = [requirement.line for requirement in requirements]
    documents = [requirement.as_json() for requirement in requirements]
    if answer is None:
        outcome = "pass" if is_met else "fail"
        document: dict[str, object] = {
            "run": run.name,
            "outcome": outcome,
            "checks": [],
            "error": None,
        }
        return Answer(
            {**document, "passports": documents}, [f"gate: {outcome}", *lead], []
        )
    outcome = answer["outcome"] if is_met else "fail"
    error = answer["error"] if is_met else None
    return replace(
        answer,
        document={**answer.document, "outcome": outcome, "error": error, "passports": documents},
        lead=[f"gate: {outcome}", *lead, *answer.lead[1:]],
    )  # fmt: skip


# --- for people ---------------------------------------------------------------------------------------------


def passport_answer(passport: Passport) -> Answer:
    """Return a passport as lines and a table, without the lines that nobody asked about."""
    asked = {name: q for name, q in passport.qualities.items() if q.questions}
    statuses = ", ".join(f"{n:,} {name}" for name, n in passport.statuses.items())
    usd = "unknown" if passport.usd is None else f"${passport.usd:.2f}"
    reported = f" (reported: {passport.model_reported})" if passport.model_reported else ""  # fmt: skip
    lead = [
        f"{passport.summary}",
        f"judge {passport.judge}{reported}; {passport.questions:,} questions ({statuses or 'none'}), cost {usd}; rubrics "
        f"{', '.join(passport.binding.rubrics)}",
    ]
    unasked = len(passport.qualities) - len(asked)
    notes = [
        "effect: points of seven with its 95 % CI over photographs; order_flips: share of pairs. sham: the same operation "
        "without the cue, or the same question asked again",
        "yes is good in every line; not shown: these photographs do not decide it",
    ]
    if unasked:
        notes.append(f"{counted(unasked, 'line')} not asked about")
    rows = [(name, *_row(quality)) for name, quality in asked.items()]
    columns = ("quality", "answer", "effect", "sham", "n", "questions", "by dose")
    table = Table.of(columns, rows, "Qualities", notes=notes, spare=("by dose",))
    return Answer(passport.as_json(), lead, [table.trimmed("by dose")])


def _row(quality: Quality) -> tuple[Cell, ...]:
    doses = ""
    if quality.doses:
        doses = " ".join("-" if mean is None else f"{mean:.1f}" for mean in quality.doses)  # fmt: skip
    return (
        SHOWN[quality.answer],
        Figure(quality.effect, quality.ci, sign=True),
        Figure(quality.sham, sign=True),
        quality.n,
        quality.questions,
        doses,
    )


def passport_page(answer: Answer, title: str) -> str:
    """Render a passport, or a comparison of two, as a self-contained HTML file."""
    return render(
        "figures.html",
        kicker="editjudge probe",
        title=title,
        lead=answer.lead,
        charts=(),
        tables=answer.tables,
    )


def compare_passports(a: Passport, b: Passport) -> Answer:
    """Return the qualities to which two passports answer differently."""
    names = dict.fromkeys([*a.qualities, *b.qualities])
    differing = []
    for name in names:
        first = a.qualities.get(name)
        second = b.qualities.get(name)
        if first is None or second is None or first.answer != second.answer:
            differing.append((name, first, second))
    rows = [(name, *_side(first), *_side(second)) for name, first, second in differing]
    columns = ("quality", "A", "effect A", "B", "effect B")
    lead = [f"A: {a.summary}", f"B: {b.summary}"]
    if a.binding != b.binding:
        lead.append("the two were asked different questions (rubrics, settings or photographs)")  # fmt: skip
    changes = Counter(
        f"{first.answer if first else None} -> {second.answer if second else None}"
        for _, first, second in differing
    )
    document = {
        "a": {"judge": a.judge, "date": a.date, "hash": a.hash},
        "b": {"judge": b.judge, "date": b.date, "hash": b.hash},
        "same_questions": a.binding == b.binding,
        "changes": dict(changes),
        "differing": {
            name: {"a": plain(first), "b": plain(second)}
            for name, first, second in differing
        },
    }
    tables = [Table.of(columns, rows, "Qualities with different answers")] if rows else []  # fmt: skip
    if not rows:
        lead.append("both answer every quality alike")
    return Answer(document, lead, tables)


def _side(quality: Quality | None) -> tuple[Cell, Cell]:
    if quality is None:
        return "-", None
    return SHOWN[quality.answer], Figure(quality.effect, quality.ci, sign=True)
