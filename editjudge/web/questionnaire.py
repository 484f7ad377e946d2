"""The questions of a study: rubrics for people to answer, controls with known answers, and the agreement so far."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from starlette.exceptions import HTTPException

from editjudge import plugins
from editjudge.edit import TEXT_ROLES, Edit, column_of
from editjudge.errors import UsageError
from editjudge.orders import offers_tie
from editjudge.ratings import ratings_columns
from editjudge.rubrics.model import Factor, Rubric
from editjudge.rubrics.sets import check_unconditional
from editjudge.store.ratings import StoredRating
from editjudge.store.records import Item
from editjudge.store.studies import Assignment, FilledForm, Needs
from editjudge.web.images import title_of

if TYPE_CHECKING:
    from editjudge.stats.ceiling import Ceiling
    from editjudge.stats.columns import Interval

MAX_BUTTONS = 21
"""Maximum number of buttons for a question: enough for 0 to 1 in steps of .05, or 0 to 10 in steps of .5. It is hard to
choose among more."""
MAX_REASON = 2_000
"""Maximum number of characters in a reason."""
ESTIMATES = {
    "alpha_interval": "Alpha, interval",
    "icc1": "ICC(1)",
    "further_rater": "A further rater, Spearman",
}
"""Statistics of the live agreement that have an interval, with their labels."""
_DRAWS = 200
"""Number of bootstrap draws for the live agreement. It is small because the page is opened often; `agree` uses more."""
_POINTS = {"a": 1.0, "b": 0.0, "tie": 0.5, "both_bad": 0.5}
"""Points that output a gets for each choice. `both_bad` counts as a tie."""


@dataclass(frozen=True)
class BlindEdit:
    """An edit as a rater sees it, without its name, model and file names."""

    instruction: str
    referring_expression: str
    roles: tuple[str, ...]
    """Images to show. In a pair, edited_a is the one on the left, whichever output that is."""
    texts: tuple[tuple[str, str], ...] = ()
    """Additional texts that the rubrics show, with their titles."""


@dataclass(frozen=True)
class Questionnaire:
    """The rubrics of a study."""

    rubrics: tuple[Rubric, ...]

    def factors(self) -> Iterator[tuple[Rubric, Factor]]:
        for rubric in self.rubrics:
            for factor in rubric.factors:
                yield rubric, factor

    def keys(self) -> list[str]:
        return [factor.key for _, factor in self.factors()]

    @property
    def pairwise(self) -> bool:
        return any(rubric.pairwise for rubric in self.rubrics)

    @functools.cached_property
    def roles(self) -> tuple[str, ...]:
        """Images that the rubrics show. Crops are only for judges; people see the full image instead."""
        roles = (role for rubric in self.rubrics for role in rubric.images)
        return tuple(dict.fromkeys(role.partition("@")[0] for role in roles))

    def needs(self) -> Needs:
        """Return what an edit needs to be rated: every image that is shown, and the instruction if it is shown."""
        instruction = any("instruction" in rubric.texts for rubric in self.rubrics)
        return Needs(self.roles, instruction)

    def check(self) -> None:
        """Raise `UsageError` if people cannot answer the rubrics."""
        keys = self.keys()
        if len(set(keys)) < len(keys):
            raise UsageError(
                "two of these rubrics have a factor of the same name, which ratings cannot tell apart"
            )
        for rubric in self.rubrics:
            check_answerable(rubric)

    def blinded(self, item: Item) -> BlindEdit:
        names = tuple(
            name
            for role in self.roles
            for name in item.images
            if role in (name, column_of(name))
        )
        further = (text for rubric in self.rubrics for text in rubric.texts)
        texts = tuple(
            (title_of(name), str(item.metadata.get(name, "")))
            for name in dict.fromkeys(further)
            if name not in TEXT_ROLES
        )
        return BlindEdit(item.instruction, item.referring_expression, names, texts)

    def blinded_control(self, edit: Edit) -> BlindEdit:
        roles = tuple(role for role in self.roles if edit.image(role) is not None)
        return BlindEdit(edit.instruction, "", roles)

    def answers(
        self, fields: Mapping[str, str], *, swapped: bool
    ) -> list[tuple[str, FilledForm, str]]:
        """Read the answers in a form: the key, answer and rubric of each. The form contains all factors, or only the
        one just answered.

        `swapped` means that output b was shown on the left.
        """
        answers = []
        for rubric, factor in self.factors():
            if (text := fields.get(factor.key)) is not None:
                reason = fields.get(f"{factor.key}.reason", "")[:MAX_REASON]
                if factor.scale.choices:
                    filled = _choice(factor, text, reason, swapped=swapped)
                else:
                    filled = FilledForm(_score(factor, text), reason)
                answers.append((factor.key, filled, rubric.hash))
        return answers

    def done(
        self,
        rater: str,
        assigned: list[Assignment],
        filled: Mapping[tuple[str, int, str], FilledForm],
    ) -> set[int]:
        """Return the numbers of the edits for which every factor has an answer."""
        keys = self.keys()
        return {
            edit.number
            for edit in assigned
            if all((rater, edit.number, key) in filled for key in keys)
        }

    # --- controls -------------------------------------------------------------------------------------------------

    def controls(self) -> list[str]:
        """Return the ids of the controls whose answers to these rubrics are known."""
        names = {f"{rubric.name}.{factor.key}" for rubric, factor in self.factors()}
        controls = all_controls(pairs=self.pairwise)
        return [key for key, c in controls.items() if names & c.expected.keys()]

    def passed(self, control: str, key: str, filled: FilledForm) -> bool | None:
        """Whether an answer to a control is correct, or None if the correct answer is unknown. On a scale with more
        than three steps, an error of one step is tolerated."""
        stored = find_control(control)
        for rubric, factor in self.factors():
            name = f"{rubric.name}.{key}"
            if factor.key != key or stored is None or name not in stored.expected:
                continue
            expected = stored.expected[name]
            if isinstance(expected, str) and filled.choice:
                return filled.choice == expected
            if isinstance(expected, tuple) and filled.score is not None:
                leeway = 1 if len(factor.scale.steps) > 3 else 0
                low, high = expected
                return bool(low - leeway <= filled.score <= high + leeway)
        return None

    # --- agreement ------------------------------------------------------------------------------------------------

    def agreement(
        self, ratings: list[StoredRating], sources: Mapping[str, str]
    ) -> Iterator[FactorAgreement]:
        """Yield the raters' agreement on each factor that two of them rated. `sources` maps edits to source images."""
        from editjudge.stats.ceiling import FEWEST_SHARED, ceiling

        for _, factor in self.factors():
            of_factor = [rating for rating in ratings if rating.factor == factor.key]
            if len({rating.rater for rating in of_factor}) > 1:
                figures = ceiling(
                    ratings_columns(of_factor), group=sources, draws=_DRAWS
                )
                yield FactorAgreement(
                    factor.title or factor.key,
                    figures,
                    missing_edits=max(0, FEWEST_SHARED - figures.shared),
                    missing_images=max(0, FEWEST_SHARED - figures.images),
                )


def check_answerable(rubric: Rubric) -> None:
    """Raise `UsageError` if people cannot answer the rubric, for example because a factor has too many values for
    buttons."""
    if rubric.computed_by:
        raise UsageError(
            f"{rubric.name}: its figures are computed by {rubric.computed_by}, so people cannot rate it"
        )
    check_unconditional(
        [rubric],
        "a study asks every rater the same questions about every edit",
        allowed=("samples",),
    )
    if rubric.pairwise:
        return
    for factor in rubric.factors:
        if not 1 <= len(factor.scale.steps) <= MAX_BUTTONS:
            raise UsageError(
                f"{rubric.name}: people rate {factor.key} by choosing one of at most {MAX_BUTTONS} scores, and its "
                f"scale is {factor.scale.words}: give it a step, or take another rubric",
                code="too_many_scores",
            )


def offered(factor: Factor) -> list[str]:
    """Return the choices between two outputs that a form offers for this factor."""
    has_tie = offers_tie(factor.scale.choices)
    return [choice for choice, points in _POINTS.items() if has_tie or points != 0.5]


def _choice(factor: Factor, text: str, reason: str, *, swapped: bool) -> FilledForm:
    """Translate a choice between left and right into a choice between outputs a and b. It has no score if the rater was
    unsure."""
    if text == "":
        return FilledForm(None, reason)
    legal = offered(factor)
    if text not in legal:
        raise HTTPException(
            422, f"{factor.key}: {text[:20]!r} is not one of {', '.join(legal)}"
        )
    choice = {"a": "b", "b": "a"}.get(text, text) if swapped else text
    return FilledForm(_POINTS[choice], reason, choice)


def _score(factor: Factor, text: str) -> float | None:
    if text == "":
        return None
    for value in factor.scale.steps:
        if str(value) == text:
            return float(value)
    raise HTTPException(422, f"{factor.key}: {text[:20]!r} is not {factor.scale.words}")


class Control(NamedTuple):
    """An edit or a pair with known answers."""

    edit: Edit
    """The edit, with images as bytes."""
    expected: Mapping[str, object]
    """Lowest and highest correct score, or the better output of a pair, keyed by `rubric.factor`."""


@functools.cache
def all_controls(*, pairs: bool) -> dict[str, Control]:
    """Return the controls, keyed by id. There are none if the extra that draws them is not installed.

    They are drawn when the first study needs them, since this takes seconds.
    """
    if plugins.missing("probes"):
        return {}
    make = plugins.load("controls", "probes", "controls")
    return {edit.id: Control(edit, expected) for edit, expected in make(pairs=pairs)}


def find_control(identifier: str) -> Control | None:
    """Return the control with this id, or None if there is none. The id of a pair contains a `|`."""
    return all_controls(pairs="|" in identifier).get(identifier)


@dataclass(frozen=True)
class FactorAgreement:
    """Agreement of the raters on a factor so far."""

    title: str
    ceiling: Ceiling
    missing_edits: int
    """Number of additional edits that two people must rate before statistics are shown."""
    missing_images: int
    """Number of additional source images that such edits must come from."""

    def estimate(self, name: str) -> tuple[float | None, Interval | None]:
        """Return a statistic and its interval."""
        if name == "further_rater":
            person = self.ceiling.further_rater
            return person.spearman, person.ci.get("spearman")
        return getattr(self.ceiling, name), self.ceiling.ci.get(name)

    @property
    def silence(self) -> str:
        """Return the reason why there are no statistics, or an empty string if there are some."""
        from editjudge.report.words import reason_text

        if self.missing_edits:
            more = "edit" if self.missing_edits == 1 else "edits"
            return f"too few for a figure: at least {self.missing_edits} more {more} rated by two people"
        if self.missing_images:
            images = (
                f"{self.ceiling.shared} edits of {self.ceiling.images} source images"
            )
            return f"too few for a figure: {images}; edits of at least {self.missing_images} more images are needed"
        if any(self.estimate(name)[1] for name in ESTIMATES):
            return ""
        reason = self.ceiling.further_rater.reason
        return reason_text(reason) if reason else "no figure has an interval yet"
