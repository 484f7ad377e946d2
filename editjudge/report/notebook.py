"""Verdicts and runs as a notebook shows them: small pictures, scores, reasons and statuses, all escaped."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from editjudge.edit import Edit, ImageSource
from editjudge.errors import ImageError
from editjudge.judgement import Judgement
from editjudge.media.image import decode
from editjudge.media.source import read
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.scale import Scale
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store

_SIDE = 160
"""Pixels of a picture's longer side: two and their scores fit beside each other in a notebook."""
_EDITS = 3
"""Edits of a run that are shown with their pictures."""
_REASON = 300
"""Characters of a reason; some judges write pages."""


class Judgements(dict[str, Judgement]):
    """The judgements of one edit, by rubric.

    verdict["fidelity"].scores["alignment"]
    print(verdict)     # every factor with its score and reason
    """

    edit: Edit
    scales: Mapping[tuple[str, str], Scale]

    @classmethod
    def of(
        cls, edit: Edit, judgements: Sequence[Judgement], rubrics: Iterable[Rubric]
    ) -> Judgements:
        """Name each judgement; if a rubric was asked several times, its judgements are `NAME[0]`, `NAME[1]` ..."""
        by_rubric: dict[str, list[Judgement]] = {}
        for judgement in judgements:
            by_rubric.setdefault(judgement.rubric, []).append(judgement)
        named = cls(
            {
                name if len(some) == 1 else f"{name}[{number}]": judgement
                for name, some in by_rubric.items()
                for number, judgement in enumerate(some)
            }
        )
        named.edit = edit
        named.scales = {
            (rubric.name, factor.key): factor.scale
            for rubric in rubrics
            for factor in rubric.factors
        }
        return named

    def __repr__(self) -> str:
        lines = []
        for name, judgement in self.items():
            lines.append(f"{name} by {judgement.judge}: {judgement.status}")
            lines += [
                f"  {factor}: {score}  {_clip(why, 100)}".rstrip()
                for factor, score, why in self._rows(judgement)
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        tables = []
        for name, judgement in self.items():
            head = f"<b>{_text(name)}</b> by {_text(judgement.judge)}: {_text(judgement.status)}"
            tables.append(f"<p>{head}</p>{_table(self._rows(judgement))}")
        return (
            f"{_text(self.edit.instruction)}<br>{_pictures(self.edit)}{''.join(tables)}"
        )

    def _rows(self, judgement: Judgement) -> list[tuple[str, str, str]]:
        """Factor, score and reason; then what is wrong with a judgement that failed."""
        scales = {
            factor: scale
            for (rubric, factor), scale in self.scales.items()
            if rubric == judgement.rubric
        }
        return _rows(
            {**(judgement.scores or {}), **(judgement.choices or {})},
            judgement.justifications or {},
            judgement.abstained,
            [(remark.code, remark.message) for remark in judgement.reasons],
            scales,
        )


def run_html(
    title: str, store: Store, run: int, edits: Callable[[], Iterator[Edit]] | None
) -> str:
    """The first edits of a run with their pictures, scores and reasons; `edits` has those that were rows in memory."""
    record = store.find_run(str(run))
    scales = {
        (name, factor.key): factor.scale
        for name, rubric in store.questions_of(record).rubrics.items()
        for factor in rubric.factors
    }
    given = {edit.id: edit for edit in islice(edits(), _EDITS)} if edits else {}
    parts = []
    for item in islice(store.items(record), _EDITS):
        rows: list[tuple[str, str, str]] = []
        for row in store.judgements(record, item=item.item):
            own = {
                factor: scale
                for (rubric, factor), scale in scales.items()
                if rubric == row["rubric"]
            }
            remarks = [
                (remark["code"], remark["message"]) for remark in row["reasons"] or ()
            ]
            scores = {**(row["scores"] or {}), **(row.get("choices") or {})}
            rows.append((f"{row['rubric']} by {row['judge']}", row["status"], ""))
            rows += _rows(
                scores,
                row["justifications"] or {},
                row["abstained"] or {},
                remarks,
                own,
            )
        pictures = (
            _pictures(given[item.item])
            if item.item in given
            else _stored_pictures(record, item)
        )
        about = " · ".join(filter(None, (item.item, item.model, item.instruction)))
        parts.append(
            f"<details open><summary>{_text(about)}</summary>{pictures}{_table(rows)}</details>"
        )
    return f"<p>{_text(title)}</p>{''.join(parts)}"


def _rows(
    scores: Mapping[str, Any],
    reasons: Mapping[str, str],
    abstained: Mapping[str, str],
    remarks: Sequence[tuple[str, str]],
    scales: Mapping[str, Scale],
) -> list[tuple[str, str, str]]:
    rows = [
        (factor, of_scale(score, scales.get(factor)), reasons.get(factor, ""))
        for factor, score in scores.items()
    ]
    rows += [(factor, "no score", why) for factor, why in abstained.items()]
    return rows + [(code, "", message) for code, message in remarks]


def of_scale(score: Any, scale: Scale | None) -> str:
    """Return a score as `6 of 7`; a choice or a figure without an upper end as it is."""
    text = f"{score:.4g}" if isinstance(score, float) else str(score)
    if scale is None or isinstance(score, str):
        return text
    highest = max(scale.values) if scale.values else (scale.range or (None, None))[1]
    return text if highest is None else f"{text} of {highest:g}"


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    left = 'style="text-align:left"'
    cells = "".join(
        f"<tr><th {left}>{_text(name)}</th><td {left}>{_text(score).replace(' ', '&nbsp;')}</td>"
        f"<td {left}>{_text(_clip(why, _REASON))}</td></tr>"
        for name, score, why in rows
    )
    return f"<table>{cells}</table>"


def _pictures(edit: Edit) -> str:
    return (
        "".join(
            _figure(name, _read(source)) for name, source in edit.all_pictures().items()
        )
        or "<p>no picture</p>"
    )


def _stored_pictures(record: RunRecord, item: Item) -> str:
    from editjudge.running.picture_sources import picture_of

    def read(role: str) -> bytes | str:
        try:
            return picture_of(record, item, role)
        except ImageError as error:
            return str(error)

    return (
        "".join(_figure(role, read(role)) for role in item.images)
        or "<p>no picture</p>"
    )


def _read(source: ImageSource) -> bytes | str:
    try:
        return read(source)
    except ImageError as error:
        return str(error)


def _figure(name: str, data: bytes | str) -> str:
    """A thumbnail, or in its place the reason why there is none."""
    if isinstance(data, bytes):
        try:
            image = decode(data, name=name)
            image.thumbnail((_SIDE, _SIDE))
            image.save(out := io.BytesIO(), "WEBP", quality=80)
            encoded = base64.b64encode(out.getvalue()).decode()
            inside = f'<img src="data:image/webp;base64,{encoded}" alt="{_text(name)}">'
        except ImageError as error:
            inside = _text(str(error))
    else:
        inside = _text(data)
    style = f"display:inline-block;margin:4px;max-width:{_SIDE}px;vertical-align:top"
    return f'<figure style="{style}">{inside}<figcaption>{_text(name)}</figcaption></figure>'


def _clip(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str) -> str:
    """Untrusted text: escaped, and what is invisible or reorders text left out."""
    return html.escape(
        "".join(char for char in text if char.isprintable() or char == "\n")
    )
