"""Verdicts and runs as HTML in a notebook: small images, scores, reasons and statuses, all escaped."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from editjudge.edit import Edit
from editjudge.errors import ImageError, one_line
from editjudge.judgement import Judgement
from editjudge.media.image import decode
from editjudge.media.source import read
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scale import Scale
from editjudge.store.store import Store

_SIDE = 160
"""Pixels on the longer side of an image. Two images of this size fit side by side in a notebook."""
_EDITS = 3
"""Number of edits of a run that are shown with images."""
_REASON = 300
"""Maximum length of a reason in characters; some judges write pages."""

Row = tuple[str, str, str]
"""Factor, score and reason in one line."""
Scales = Mapping[str, Mapping[str, Scale]]
"""Scales keyed by rubric and factor."""


class Judgements(dict[str, Judgement]):
    """The judgements of one edit, keyed by rubric.

    verdict["fidelity"].scores["alignment"]
    print(verdict)     # every factor with its score and reason
    """

    edit: Edit
    scales: Scales

    @classmethod
    def of(
        cls, edit: Edit, judgements: Sequence[Judgement], rubrics: Iterable[Rubric]
    ) -> Judgements:
        """Return the judgements keyed by rubric. If a rubric's question was asked several times, the keys are
        `NAME[0]`, `NAME[1]` and so on."""
        by_rubric: dict[str, list[Judgement]] = {}
        for judgement in judgements:
            by_rubric.setdefault(judgement.rubric, []).append(judgement)
        named = cls()
        for name, repeats in by_rubric.items():
            for number, judgement in enumerate(repeats):
                named[name if len(repeats) == 1 else f"{name}[{number}]"] = judgement
        named.edit = edit
        named.scales = _scales(rubrics)
        return named

    def __repr__(self) -> str:
        lines = []
        for name, judgement in self.items():
            lines.append(f"{name} by {judgement.judge}: {judgement.status}")
            lines += [
                f"  {factor}: {score}  {_clip(reason, 100)}".rstrip()
                for factor, score, reason in _rows(judgement, self.scales)
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [f"{_text(self.edit.instruction)}<br>"]
        parts.append(_edit_images(self.edit))
        for name, judgement in self.items():
            head = f"<b>{_text(name)}</b> by {_text(judgement.judge)}: {_text(judgement.status)}"
            parts.append(f"<p>{head}</p>{_table(_rows(judgement, self.scales))}")
        return "".join(parts)


def run_html(
    title: str, store: Store, run: int, edits: Callable[[], Iterator[Edit]] | None
) -> str:
    """Return HTML that shows the first edits of a run with their images, scores and reasons.

    `edits` yields the edits if they exist only in memory.
    """
    from editjudge.running.images import image_of

    record = store.find_run(str(run))
    scales = _scales(store.questions_of(record).rubrics.values())
    in_memory = {edit.id: edit for edit in islice(edits(), _EDITS)} if edits else {}
    parts = [f"<p>{_text(title)}</p>"]
    for item in islice(store.items(record), _EDITS):
        rows: list[Row] = []
        for task in store.judgements(record, item=item.item):
            rows.append((f"{task['rubric']} by {task['judge']}", task["status"], ""))
            judgement = store.judgement(task["key"])
            rows += _rows(judgement, scales) if judgement else []
        if item.item in in_memory:
            images = _edit_images(in_memory[item.item])
        else:
            images = _images(item.images, partial(image_of, record, item))
        about = " · ".join(filter(None, (item.item, item.model, item.instruction)))
        parts.append(
            f"<details open><summary>{_text(about)}</summary>{images}{_table(rows)}</details>"
        )
    return "".join(parts)


def _scales(rubrics: Iterable[Rubric]) -> Scales:
    return {
        rubric.name: {factor.key: factor.scale for factor in rubric.factors}
        for rubric in rubrics
    }


def _rows(judgement: Judgement, scales: Scales) -> list[Row]:
    """Return factors with their scores and reasons, followed by the reasons of a failed judgement."""
    by_factor = scales.get(judgement.rubric, {})
    reasons = judgement.justifications or {}
    values = {**(judgement.scores or {}), **(judgement.choices or {})}
    rows = [
        (factor, of_scale(value, by_factor.get(factor)), reasons.get(factor, ""))
        for factor, value in values.items()
    ]
    rows += [(f, "no score", reason) for f, reason in judgement.abstained.items()]
    return rows + [(remark.code, "", remark.message) for remark in judgement.reasons]


def of_scale(score: object, scale: Scale | None) -> str:
    """Return a score as `6 of 7`. If it is a choice or its scale has no upper end, return the score alone."""
    text = f"{score:.4g}" if isinstance(score, float) else str(score)
    if scale is None or isinstance(score, str) or scale.high is None:
        return text
    return f"{text} of {scale.high:g}"


def _table(rows: Iterable[Row]) -> str:
    left = 'style="text-align:left"'
    cells = "".join(
        f"<tr><th {left}>{_text(name)}</th><td {left}>{_text(score).replace(' ', '&nbsp;')}</td>"
        f"<td {left}>{_text(_clip(reason, _REASON))}</td></tr>"
        for name, score, reason in rows
    )
    return f"<table>{cells}</table>"


def _edit_images(edit: Edit) -> str:
    sources = edit.all_images()
    return _images(sources, lambda role: read(sources[role]))


def _images(roles: Iterable[str], load: Callable[[str], bytes]) -> str:
    """Return thumbnails. An image that cannot be read is replaced by the reason."""
    style = f"display:inline-block;margin:4px;max-width:{_SIDE}px;vertical-align:top"
    figures = []
    for role in roles:
        try:
            image = decode(load(role), name=role)
            image.thumbnail((_SIDE, _SIDE))
            image.save(out := io.BytesIO(), "WEBP", quality=80)
            encoded = base64.b64encode(out.getvalue()).decode()
            inside = f'<img src="data:image/webp;base64,{encoded}" alt="{_text(role)}">'
        except ImageError as error:
            inside = _text(str(error))
        figures.append(
            f'<figure style="{style}">{inside}<figcaption>{_text(role)}</figcaption></figure>'
        )
    return "".join(figures) or "<p>no image</p>"


def _clip(text: str, most: int) -> str:
    text = one_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str) -> str:
    """Return untrusted text on one line, escaped, with invisible characters replaced by their codes."""
    return html.escape(one_line(text))
