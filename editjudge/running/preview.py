"""Messages about one edit of a manifest, as judges receive them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editjudge import manifest
from editjudge.canonical import Json
from editjudge.edit import Edit
from editjudge.errors import UsageError, did_you_mean, one_line
from editjudge.media.cache import DigestCache, ImageReader, KnownImage
from editjudge.rubrics.answer import answer_schema
from editjudge.rubrics.model import EARLIER, Layout, Rubric
from editjudge.rubrics.prompt import ImagePart, Question, ask
from editjudge.running.plan import QuestionSettings, look_at, named_inputs, variants


@dataclass(frozen=True)
class Preview:
    """One question about one edit, with the images that it shows."""

    variant: str
    """Order of a pair, or number of a list element; empty for other questions."""
    question: Question
    images: Mapping[str, KnownImage]

    def as_json(self) -> Json:
        """Return the messages in the order in which they are sent."""
        parts = [
            self._image(part.role)
            if isinstance(part, ImagePart)
            else {"type": "text", "text": part.text}
            for part in self.question.parts
        ]
        messages: list[object] = [{"role": "user", "content": parts}]
        if system := self.question.system:
            messages.insert(0, {"role": "system", "content": system})
        rubric = self.question.rubric
        sends_schema = self.question.sends_schema
        return {
            "rubric": rubric.name,
            **({"variant": self.variant} if self.variant else {}),
            "layout": self.question.layout,
            "messages": messages,
            "schema": answer_schema(rubric) if sends_schema else None,
        }

    def lines(self) -> Iterator[str]:
        """Yield the messages as lines to read."""
        variant = f", {self.variant}" if self.variant else ""
        question = self.question
        yield f"=== {question.rubric.name}{variant}, layout {question.layout} ==="
        if question.system:
            yield "--- system ---"
            yield question.system
        yield "--- user ---"
        for part in question.parts:
            if isinstance(part, ImagePart):
                yield f"[image {json.dumps(self._image(part.role))}]"
            else:
                yield part.text
        yield (
            "--- with a JSON schema ---"
            if question.sends_schema
            else "--- no schema ---"
        )

    def _image(self, role: str) -> Json:
        image = self.images.get(role)
        size = list(image.info.display_size) if image and image.info else None
        digest = image.digest if image else None
        return {"type": "image", "role": role, "size": size, "digest": digest}


def previews(
    rubrics: Sequence[Rubric], address: str, layout: Layout | None
) -> list[Preview]:
    """Return every question that these rubrics ask about the edit at `MANIFEST#ID`. Earlier answers are not known yet,
    so a placeholder stands for them.
    """
    file, mark, edit_id = address.rpartition("#")
    if not (mark and file and edit_id):
        raise UsageError(
            f'--edit "{one_line(address)}": expected MANIFEST#ID, such as edits.jsonl#7'
        )
    settings = QuestionSettings(rubrics, layout=layout)
    edit = _edit(Path(file), edit_id, rubrics)
    digests = DigestCache(ImageReader())
    questions = []
    for rubric in rubrics:
        for variant in variants(rubric, edit, settings):
            metadata = {**variant.edit.metadata, EARLIER: "(the earlier answers)"}
            for earlier in settings.earlier[rubric.name]:
                metadata[earlier.name] = {
                    name: f"(the {name} that {earlier.name} answers)"
                    for name in earlier.values
                }
            shown = dataclasses.replace(variant.edit, metadata=metadata)
            images = {
                name: image
                for name in rubric.image_names(shown)
                if (image := look_at(digests, shown, name))
            }
            by_role = {name: image.digest for name, image in images.items()}
            question = ask(rubric, shown, by_role, layout)
            questions.append(Preview(variant.name, question, images))
    return questions


def _edit(path: Path, edit_id: str, rubrics: Sequence[Rubric]) -> Edit:
    ids = []
    edits = manifest.read(
        path.absolute(),
        allow_outside=True,
        allow_urls=True,
        named=named_inputs(rubrics),
    )
    for edit in edits:
        if edit.id == edit_id:
            return edit
        ids.append(edit.id)
    hint = did_you_mean(edit_id, ids)
    raise UsageError(
        f'{path} has no edit "{one_line(edit_id)}"{hint}', code="unknown_edit"
    )
