"""Published prompts as rubrics: the given ones without a question, strangers' with the right one, none by a guess."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replies import headings, reason

from editjudge.edit import Edit
from editjudge.errors import RubricError
from editjudge.rubrics import example_json as examples
from editjudge.rubrics import files
from editjudge.rubrics.contract import Failure, Verdict, check
from editjudge.rubrics.example_json import values_of
from editjudge.rubrics.importing import Hints, Imported, import_prompt, ranges_in, word_limits_in
from editjudge.rubrics.lint import lint
from editjudge.rubrics.model import Rubric
from editjudge.rubrics.prompt import LAYOUTS, ImagePart, TextPart, ask

PROMPTS = Path(__file__).parents[3] / "shared" / "prompts"
GIVEN = ["preservation", "fidelity", "reference", "lighting", "compliance"]
given_prompts = pytest.mark.skipif(not PROMPTS.is_dir(), reason="the published prompts are not beside the repository")

EDIT = Edit("7", instruction="Paint the gate green.", referring_expression="the gate on the left")
DIGESTS = {"input": "d1", "edited": "d2", "ground_truth": "d3"}


def done(result: Imported) -> Rubric:
    assert result.rubric, [str(one) for one in result.asks]
    assert not result.asks
    return result.rubric


def abouts(result: Imported) -> list[str]:
    assert result.rubric is None
    return [one.about for one in result.asks]


def reply(rubric: Rubric, identifier: str | None) -> str:
    """An answer as the imported prompt asks for it, with every factor at its best."""
    form, text = rubric.answer, reason(rubric)
    inner: Any = {factor.key: factor.scale.best for factor in rubric.factors}
    if form.form == "entries":
        because = {form.reason_key: text} if form.reason_key else {}
        inner = {key: {**because, form.score_key: score} for key, score in inner.items()}
    elif form.form == "list":
        inner = list(inner.values())
    top: dict[str, Any] = {form.id_key: identifier} if form.id_key else {}
    top |= dict.fromkeys(form.texts, text)
    return headings(rubric) + json.dumps(top | ({form.envelope: inner} if form.envelope else inner))


# --- the given prompts ----------------------------------------------------------------------------------------


@given_prompts
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_given_prompt_has_the_contract_of_its_builtin_sibling_without_a_question(name: str, newline: str) -> None:
    text = (PROMPTS / f"{name}.txt").read_bytes().decode().replace("\n", newline)
    rubric = done(import_prompt(text, "mine"))
    sibling = files.load(name)
    assert rubric.contract() == {**sibling.contract(), "name": "mine", "hash": rubric.hash}
    for form in ("id_key", "form", "texts", "sections", "words"):
        assert getattr(rubric.answer, form) == getattr(sibling.answer, form)
    if rubric.answer.form == "entries":
        assert (rubric.answer.score_key, rubric.answer.reason_key) == (
            sibling.answer.score_key,
            sibling.answer.reason_key,
        )
    assert rubric.consistency == sibling.consistency


@given_prompts
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", GIVEN)
def test_a_given_prompt_is_kept_byte_for_byte(tmp_path: Path, name: str, newline: str) -> None:
    text = (PROMPTS / f"{name}.txt").read_bytes().decode().replace("\n", newline)
    rubric = done(import_prompt(text, "mine"))
    path = tmp_path / "mine.yaml"
    path.write_text(files.dump(rubric), "utf-8", newline="")
    again = files.load(str(path))
    assert again == rubric
    assert again.template and again.template.text == text
    assert lint(again) == []


@given_prompts
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", GIVEN)
def test_an_answer_to_the_builtin_sibling_is_an_answer_to_a_given_prompt(name: str, layout: Any) -> None:
    rubric = done(import_prompt((PROMPTS / f"{name}.txt").read_text("utf-8"), "mine"))
    question = ask(rubric, EDIT, DIGESTS, layout)
    assert check(rubric, reply(rubric, question.identifier), identifier=question.identifier) == check(
        files.load(name), reply(files.load(name), question.identifier), identifier=question.identifier
    )
    assert isinstance(check(rubric, files.load(name).example), Verdict)


# --- strangers' prompts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stranger:
    """A prompt in a shape that people publish, what has to be asked about it, and what then comes out."""

    text: str
    factors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    hints: Hints = field(default_factory=Hints)
    images: tuple[str, ...] = ("input", "edited")
    texts: tuple[str, ...] = ("instruction",)
    envelope: str = ""
    form: str = "scores"
    keys: tuple[str, str] = ("", "")
    free: tuple[str, ...] = ()
    words: tuple[int, int] | None = None
    sections: tuple[str, ...] = ()


@dataclass(frozen=True)
class OurForm(Stranger):
    """A prompt that shows no answer which can be held: a form of ours is added."""

    envelope: str = "factor_results"
    form: str = "entries"
    keys: tuple[str, str] = ("score", "justification")


def unreadable(answer: str, *factors: str, scale: tuple[int, ...] = ()) -> OurForm:
    """An answer that looks like JSON, and is none that a rubric can hold."""
    hints = Hints(example=0, factors=factors, scale=scale)
    return OurForm(INPUTS + answer, dict.fromkeys(factors, FIVE), asks=("answer",), hints=hints)


FIVE, TEN, HUNDRED = tuple(range(1, 6)), tuple(range(11)), tuple(range(101))
BOTH = Hints(images=("input", "edited"))
VAGUE = ("source_prompt", "target_prompt", "edited_caption", "output_format", "input", "prompt")
INPUTS = "Before: [input image]\nAfter: [edited image]\nRequest: {instruction}\n"

STRANGERS = {
    "two scores in a list, described in prose": Stranger(
        """\
You are a seasoned retoucher who marks the work of image editing programs.
Two pictures are attached. The first is the photograph, the second is what the program made of it.
From scale 0 to 10:
One score from 0 to 10 says how far the request was met. (0 means that nothing of it can be seen.)
Another score from 0 to 10 says how little else was touched.
Put them into a list: score = [met, untouched].

Editing instruction: <instruction>

{
"score" : [...],
"reasoning" : "..."
}""",
        {"met": TEN, "untouched": TEN},
        asks=("images", "factors"),
        hints=Hints(images=("input", "edited"), factors=("met", "untouched")),
        form="list",
        envelope="score",
        free=("reasoning",),
    ),
    "scores in a list, braces escaped for str.format": Stranger(
        """\
The left picture is the source, the right picture the result. Rate each aspect on a scale from 0 to 25.
Answer in this form and keep the reasoning concise:
{{
"reasoning": "...",
"score": [following, naturalness]
}}
The request was: {instruction}""",
        {"following": tuple(range(26)), "naturalness": tuple(range(26))},
        asks=("images", "factors"),
        hints=Hints(images=("input", "edited"), factors=("following", "naturalness")),
        form="list",
        envelope="score",
        free=("reasoning",),
    ),
    "three dimensions as lines of prose": OurForm(
        """\
You rate edited photographs on three dimensions. The first picture came before the edit, the second after it.

Brief reasoning: why, in no more than 20 words.
Obedience: A number from 1 to 5.
Blending: A number from 1 to 5.
Soundness: A number from 1 to 5.

editing instruction is : <edit_prompt>.""",
        {"obedience": FIVE, "blending": FIVE, "soundness": FIVE},
        asks=("images", "factors"),
        hints=Hints(images=("input", "edited"), factors=("obedience", "blending", "soundness")),
        words=(1, 20),
    ),
    "one line with a score": OurForm(
        INPUTS + "Rate the edit on a 1-5 scale. End your answer with one line:\nScore: x",
        {"overall": FIVE},
        asks=("factors",),
        hints=Hints(factors=("overall",)),
    ),
    "steps and a JSON reason, filled by a framework": Stranger(
        """\
Given the evaluation steps, return a JSON with two keys: a `score` from 0 to 10 and a `reason` for it.

Evaluation steps:
{evaluation_steps}

Instruction: {instruction}
Input image: {input_image}
Edited image: {edited_image}

Example JSON:
{{
    "score": 0,
    "reason": "The sky was to be pink and is grey."
}}""",
        {"score": TEN},
        asks=("placeholder {evaluation_steps}",),
        hints=Hints(slots={"evaluation_steps": "-"}),
        free=("reason",),
    ),
    "one overall score out of a hundred": Stranger(
        INPUTS + 'Answer only with {"overall_score": <integer 0-100>, "comment": "<one sentence>"}.',
        {"overall_score": HUNDRED},
        free=("comment",),
    ),
    "placeholders of Jinja": Stranger(
        "[input image] [edited image]\nThe request: {{ instruction }}\n"
        'Score from 1 to 5: {"scores": {"fit": 3, "finish": 3}}',
        {"fit": FIVE, "finish": FIVE},
        envelope="scores",
    ),
    "placeholders of Jinja and no JSON": OurForm(
        "[input image] [edited image]\nThe request: {{ instruction }}\nGive a score from 1 to 5.",
        {"fit": FIVE},
        asks=("factors",),
        hints=Hints(factors=("fit",)),
    ),
    "placeholders of Jinja beside keys without quotation marks": OurForm(
        "[input image] [edited image]\nThe request: {{ instruction }}\nScore from 1 to 5: {score: 3}",
        {"fit": FIVE},
        asks=("answer",),
        hints=Hints(example=0, factors=("fit",)),
    ),
    "placeholders of two engines": Stranger(
        "[input image] [edited image]\nThe request: {{ instruction }} in the manner of {style}\n"
        'Reply {{"score": <1-5>}}',
        {"score": FIVE},
        asks=("placeholder {style}", "placeholder { instruction }"),
        hints=Hints(slots={"style": "-", "instruction": "instruction"}),
    ),
    "placeholders of Mustache": Stranger(
        "[input image] [edited image]\nThe request: {{{edit_instruction}}}\n"
        'Reply {"score": <1-5>, "reason": "..."}',
        {"score": FIVE},
        free=("reason",),
    ),
    "placeholders of a shell": Stranger(
        "[input image] [edited image]\nThe request: ${instruction}\nReply {\"score\": <1-5>}", {"score": FIVE}
    ),
    "braces escaped for str.format around the instruction": Stranger(
        "[input image] [edited image]\nThe request: {{{instruction}}}\nReply {{\"score\": [1, 2, or 3]}}",
        {"score": (1, 2, 3)},
    ),
    "the instruction between tags": Stranger(
        "[input image] [edited image]\n<instruction>{instruction}</instruction>\nReply {\"score\": <1-5>}",
        {"score": FIVE},
    ),
    "tags with nothing between them": Stranger(
        "[input image] [edited image]\n<instruction></instruction>\nReply {\"score\": <1-5>}", {"score": FIVE}
    ),
    "tags around an example": Stranger(
        "[input image] [edited image]\nSuch as <instruction>add a hat</instruction>.\n"
        'Was the instruction followed? {"score": <1-5>}',
        {"score": FIVE},
        asks=("texts",),
        hints=Hints(texts=("instruction",)),
    ),
    "marks around the instruction that are no place for it": Stranger(
        INPUTS.replace("{instruction}", "[BEGIN INSTRUCTION]{instruction}[END INSTRUCTION]") + 'Reply {"score": <1-5>}',
        {"score": FIVE},
        asks=("placeholder [BEGIN INSTRUCTION]", "placeholder [END INSTRUCTION]"),
        hints=Hints(slots={"BEGIN INSTRUCTION": "-", "END INSTRUCTION": "-"}),
    ),
    "numbered pictures with titles": Stranger(
        "IMAGE 1 (Source Image):\nIMAGE 2 (Edited Image):\nInstruction:\n\nReply {\"score\": <1-5>}", {"score": FIVE}
    ),
    "numbered pictures with a word behind": Stranger(
        "Image 1: the original\nImage 2: the edited one\nEditing instruction:\n\nReply {\"score\": <1-5>}",
        {"score": FIVE},
    ),
    "numbered pictures, one of them by other words": Stranger(
        "Image 1: the original\nImage 2: what came of it\nEditing instruction:\n\nReply {\"score\": <1-5>}",
        {"score": FIVE},
        asks=("images",),
        hints=BOTH,
    ),
    "lettered pictures": Stranger(
        "Image A: Original\nImage B: Edited\nImage B must keep the source background.\nEditing instruction:\n\n"
        'Reply {"score": <1-5>}',
        {"score": FIVE},
    ),
    "headings for each input": Stranger(
        "Source Image:\n\nEdited Image:\n\nEditing Instruction:\n\nReply {\"score\": <1-5>}", {"score": FIVE}
    ),
    "headings that an example has as well": Stranger(
        "For example\nSource Image:\n(a cat)\nEdited Image:\n(a dog)\nInstruction: make it a dog\nScore 5.\n\n"
        'Now you.\nSource Image:\nEdited Image:\nInstruction: {instruction}\nReply {"score": <1-5>}',
        {"score": FIVE},
    ),
    "a heading for the judge's own instructions": Stranger(
        "Instructions:\n1. Compare the two.\n[input image] [edited image]\nReply {\"score\": <1-5>}",
        {"score": FIVE},
        texts=(),
    ),
    "an instruction that is spoken of and never shown": Stranger(
        "[input image] [edited image]\nWas the instruction followed? {\"score\": <1-5>}",
        {"score": FIVE},
        asks=("texts",),
        hints=Hints(texts=()),
        texts=(),
    ),
    "no pictures named": Stranger(
        'Give {"score": <1-5>} for how well the edit follows: {instruction}',
        {"score": FIVE},
        asks=("images",),
        hints=BOTH,
    ),
    "a token for each picture": Stranger(
        "<image>\n<image>\nRequest: {instruction}\nReply {\"score\": <1-5>}",
        {"score": FIVE},
        asks=("placeholder <image>", "images"),
        hints=Hints(slots={"image": "-"}, images=("input", "edited")),
    ),
    "a place for the edited picture only, and talk of another": Stranger(
        "[edited image] {instruction}\nCompare it with the original image. {\"score\": <1-5>}",
        {"score": FIVE},
        asks=("images",),
        hints=BOTH,
    ),
    "a place for the edited picture only": Stranger(
        "[edited image]\nIs it sharp? {\"score\": <1-5>}", {"score": FIVE}, images=("edited",), texts=()
    ),
    "talk of a third picture": Stranger(
        INPUTS + "Use the ground truth image as your guide. {\"score\": <1-5>}",
        {"score": FIVE},
        asks=("images",),
        hints=Hints(images=("ground_truth", "edited")),
        images=("ground_truth", "edited"),
    ),
    "names that could be anything": Stranger(
        " ".join(f"{{{name}}}" for name in VAGUE) + INPUTS + '{"score": <1-5>}',
        {"score": FIVE},
        asks=tuple(f"placeholder {{{name}}}" for name in VAGUE),
        hints=Hints(slots=dict.fromkeys(VAGUE, "-")),
    ),
    "a description that mentions a picture": Stranger(
        INPUTS + '{"reasoning": "<describe the edited image>", "score": <1-5>}', {"score": FIVE}, free=("reasoning",)
    ),
    "JSON examples that differ": Stranger(
        INPUTS + 'Either {"score": <1-5>} or {"rating": <1-5>, "why": "..."}',
        {"rating": FIVE},
        asks=("answer",),
        hints=Hints(example=2),
        free=("why",),
    ),
    "answers by way of example": Stranger(
        INPUTS + 'Add a hat. {"score": 4, "reason": "It is small."}\nAdd a dog. {"score": 1, "reason": "No dog."}\n'
        'Now answer as {"score": <1-5>, "reason": "<one sentence>"}',
        {"score": FIVE},
        free=("reason",),
    ),
    "answers by way of example and nothing else": Stranger(
        INPUTS + 'Score from 1 to 5.\n{"score": 4, "reason": "The hat is small."}\n{"score": 1, "reason": "No dog."}',
        {"score": FIVE},
        free=("reason",),
    ),
    "an example that is off the scale": Stranger(
        INPUTS + 'Add a hat. {"score": 8, "reason": "It is there."}\nAnswer as {"score": <1-5>, "reason": "<why>"}',
        {"score": TEN},
        asks=("scale",),
        hints=Hints(scale=TEN),
        free=("reason",),
    ),
    "a scale for each factor": Stranger(
        INPUTS + 'Rate fit from 1 to 5 and finish from 0 to 10. {"fit": <1-5>, "finish": <0-10>}',
        {"fit": FIVE, "finish": TEN},
    ),
    "a scale for each factor, in the text alone": Stranger(
        INPUTS + 'Rate fit from 1 to 5 and finish from 0 to 10. {"fit": 3, "finish": 7}',
        {"fit": FIVE, "finish": TEN},
        asks=("scale",),
        hints=Hints(scales={"fit": FIVE, "finish": TEN}),
    ),
    "a scale that example and text tell differently": Stranger(
        INPUTS + 'Rate from 1 to 10. {"score": <1-7>}',
        {"score": tuple(range(1, 8))},
        asks=("scale",),
        hints=Hints(scale=tuple(range(1, 8))),
    ),
    "a scale that lies within the other one": Stranger(
        INPUTS + 'Rate on a scale from 1 to 10. {"score": <0-10>}',
        {"score": TEN},
        asks=("scale",),
        hints=Hints(scale=TEN),
    ),
    "ranges that are no scales": Stranger(
        INPUTS + "Score high (6-7) where it is right and low (1-3) where it is not.\n"
        "Children of ages 3 to 5 may appear. Explain in between 2 and 3 sentences. There may be from 2 to 4 dogs.\n"
        '{"score": <integer between 1-7>}',
        {"score": tuple(range(1, 8))},
    ),
    "ranges that are no scales, and no scale": Stranger(
        INPUTS + 'Rate it. There may be from 2 to 4 dogs. Explain in between 2 and 3 sentences. {"score": 3}',
        {"score": FIVE},
        asks=("scale",),
        hints=Hints(scale=FIVE),
    ),
    "a part of the scale only": Stranger(
        INPUTS + 'Scores from 4 to 5 for good work. {"score": 4}',
        {"score": FIVE},
        asks=("scale",),
        hints=Hints(scale=FIVE),
    ),
    "the ends of the scale only": Stranger(
        INPUTS + 'A score of 1 means bad and a score of 5 means good. {"score": 4}',
        {"score": FIVE},
        asks=("scale",),
        hints=Hints(scale=FIVE),
    ),
    "a scale spelt out line by line": Stranger(
        INPUTS + 'Score 0: nothing\nScore 1: something\nScore 2: everything\n{"score": 0}', {"score": (0, 1, 2)}
    ),
    "lines that give scores by way of example": Stranger(
        INPUTS + 'First edit.\nScore: 1\nSecond edit.\nScore: 2\nThird edit.\nScore = 3\n{"score": 2}',
        {"score": FIVE},
        asks=("scale",),
        hints=Hints(scale=FIVE),
    ),
    "a scale spelt out with gaps": Stranger(
        INPUTS + 'Score 1: nothing\nScore 5: something\nScore 10: everything\n{"score": 5}',
        {"score": (1, 5, 10)},
        asks=("scale",),
        hints=Hints(scale=(1, 5, 10)),
    ),
    "a scale with an exception": Stranger(
        INPUTS + '{"score": <1-5, or 0 where nothing was edited>}',
        {"score": tuple(range(6))},
        asks=("scale",),
        hints=Hints(scale=tuple(range(6))),
    ),
    "a scale cut short by dots": Stranger(
        INPUTS + '{"score": <1, 2, ..., 10>}',
        {"score": tuple(range(1, 11))},
        asks=("scale",),
        hints=Hints(scale=tuple(range(1, 11))),
    ),
    "a scale on both sides of nought": Stranger(INPUTS + '{"score": <-2 to 2>}', {"score": (-2, -1, 0, 1, 2)}),
    "a scale with its best end named": Stranger(INPUTS + '{"score": <1-5, 5 is best>}', {"score": FIVE}),
    "decimals allowed": Stranger(
        INPUTS + 'Decimals are allowed. {"score": <1-5>}', {"score": FIVE}, asks=("scale",), hints=Hints(scale=FIVE)
    ),
    "decimals forbidden": Stranger(INPUTS + 'Decimals are not allowed. {"score": <1-5>}', {"score": FIVE}),
    "things that float": Stranger(INPUTS + 'Do objects float in the air? {"score": <1-5>}', {"score": FIVE}),
    "a decimal by way of example": Stranger(
        INPUTS + 'Score from 1 to 5. {"score": 3.5}', {"score": FIVE}, asks=("scale",), hints=Hints(scale=FIVE)
    ),
    "a range of decimals": Stranger(
        INPUTS + '{"score": <0.0-1.0>}', {"score": (0, 1)}, asks=("scale",), hints=Hints(scale=(0, 1))
    ),
    "a score out of ten, quoted": Stranger(
        INPUTS + '{"score": "8/10", "reason": "It is nearly right."}',
        {"score": TEN},
        asks=("factors",),
        hints=Hints(factors=("score",), scale=TEN),
        free=("reason",),
    ),
    "a confidence beside the score": Stranger(
        INPUTS + 'Score from 1 to 5. {"score": 4, "confidence": 85}',
        {"score": FIVE, "confidence": HUNDRED},
        asks=("scale",),
        hints=Hints(scales={"score": FIVE, "confidence": HUNDRED}),
    ),
    "a most of words": Stranger(
        INPUTS + '{"score": <1-5>, "reason": "<no more than 20 words>"}',
        {"score": FIVE},
        free=("reason",),
        words=(1, 20),
    ),
    "limits of words that conflict": Stranger(
        INPUTS + 'Keep it under 20 words. {"score": <1-5>, "reason": "<15-30 words>"}',
        {"score": FIVE},
        asks=("words",),
        hints=Hints(words=(15, 30)),
        free=("reason",),
        words=(15, 30),
    ),
    "a limit of words and several texts": Stranger(
        INPUTS + '{"notes": "...", "reason": "<at most 20 words>", "score": <1-5>}',
        {"score": FIVE},
        asks=("words",),
        hints=Hints(no_words=True),
        free=("notes", "reason"),
    ),
    "words that are no clear limit": Stranger(
        INPUTS + 'Write about 20 words. {"score": <1-5>, "reason": "..."}',
        {"score": FIVE},
        asks=("words",),
        hints=Hints(no_words=True),
        free=("reason",),
    ),
    "sections in code marks": Stranger(
        INPUTS + 'Write `## Observations`, then `## Verdict` and, below `## JSON`, {"score": <1-5>}',
        {"score": FIVE},
        sections=("Observations", "Verdict", "JSON"),
    ),
    "a list item that counts": Stranger(INPUTS + '- # of things that changed\n{"score": <1-5>}', {"score": FIVE}),
    "Chinese": Stranger(
        "原图：[input image]\n编辑后：[edited image]\n编辑指令：{instruction}\n"
        '请按此格式回答：{"分数": <1到10的整数>, "理由": "一句话"}',
        {"分数": tuple(range(1, 11))},
        free=("理由",),
    ),
    "Chinese prose": OurForm(
        "请根据指令给编辑后的图片打分，1到10分。",
        {"分数": tuple(range(1, 11))},
        asks=("images", "texts", "factors", "scale"),
        hints=Hints(
            images=("input", "edited"), texts=("instruction",), factors=("分数",), scale=tuple(range(1, 11))
        ),
    ),
    "single quotation marks": Stranger(
        INPUTS + "{'score': <1-5>, 'reason': 'what the picture shows'}", {"score": FIVE}, free=("reason",)
    ),
    "comments and a trailing comma": Stranger(
        INPUTS + '{\n  "score": 3, // an integer from 1 to 5\n  "reason": "why", # short\n}',
        {"score": FIVE},
        free=("reason",),
    ),
    "keys without quotation marks": unreadable('Score from 1 to 5. {score: 3, reason: "why"}', "fit"),
    "a list of objects": unreadable('Score from 1 to 5. [{"aspect": "fit", "score": 3}]', "fit"),
    "a brace that is never closed": unreadable('Score from 1 to 5. Open with { and close.', "fit"),
    "true or false": unreadable('{"passed": true, "score": <1-5>}', "fit", scale=FIVE),
    "a list of texts": unreadable('{"score": <1-5>, "faults": ["...", "..."]}', "fit", scale=FIVE),
    "scores at two levels": unreadable(
        '{"parts": {"fit": <1-5>, "finish": <1-5>}, "overall": <1-5>}', "fit", "finish", scale=FIVE
    ),
    "two groups of scores": unreadable(
        '{"a": {"fit": <1-5>, "finish": <1-5>}, "b": {"edges": <1-5>, "light": <1-5>}}', "fit", scale=FIVE
    ),
    "entries with keys of their own": unreadable(
        '{"fit": {"score": <1-5>, "reason": "."}, "finish": {"rating": <1-5>, "why": "."}}', "fit", scale=FIVE
    ),
    "entries and bare scores": unreadable(
        '{"fit": {"score": <1-5>, "reason": "."}, "finish": <1-5>}', "fit", scale=FIVE
    ),
    "entries under an envelope": Stranger(
        INPUTS + '{"id": "<id>", "verdict": {"fit": {"why": "<10 to 20 words>", "rating": <1-5>}}}',
        {"fit": FIVE},
        form="entries",
        envelope="verdict",
        keys=("rating", "why"),
        words=(10, 20),
    ),
    "one score under an envelope": Stranger(INPUTS + '{"scores": {"fit": <1-5>}}', {"fit": FIVE}, envelope="scores"),
    "dots for every value": Stranger(
        INPUTS + 'Score from 1 to 5. {"score": ..., "reason": ...}', {"score": FIVE}, free=("reason",)
    ),
    "a key that says nothing": Stranger(
        INPUTS + 'Score from 1 to 5. {"answer": <your answer>, "remarks": "..."}',
        {"answer": FIVE},
        asks=("factors",),
        hints=Hints(factors=("answer",)),
        free=("remarks",),
    ),
    "a reason that speaks of the score": Stranger(
        INPUTS + '{"score": <1-5>, "reason": <explain the score>}', {"score": FIVE}, free=("reason",)
    ),
    "scores described between quotation marks": Stranger(
        INPUTS + '{"fit": "<integer 1-5>", "finish": "<integer 1-5>", "notes": "..."}',
        {"fit": FIVE, "finish": FIVE},
        free=("notes",),
    ),
    "values in brackets": Stranger(
        INPUTS + '{"score": [1-5], "reason": [explanation]}', {"score": FIVE}, free=("reason",)
    ),
    "a list that may be a choice": Stranger(
        INPUTS + '{"score": [1, 2, 3]}', {"score": (1, 2, 3)}, asks=("factors",), hints=Hints(factors=("score",))
    ),
    "a choice between nought and one": Stranger(INPUTS + '{"score": <0/1>}', {"score": (0, 1)}),
}  # fmt: skip

every_stranger = pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)

OPTIONS = {
    "images": "--image",
    "texts": "--text",
    "factors": "--factor",
    "scale": "--scale",
    "words": "--words",
    "answer": "--example",
}


@every_stranger
def test_what_a_stranger_does_not_say_is_asked_for_by_name_and_option(stranger: Stranger) -> None:
    result = import_prompt(stranger.text, "mine")
    assert tuple(one.about for one in result.asks) == stranger.asks
    assert (result.rubric is None) == bool(stranger.asks)
    for one in result.asks:
        assert one.option.startswith(OPTIONS.get(one.about, "--slot"))
        assert one.about in str(one) and one.why in str(one) and one.option in str(one)


@every_stranger
def test_with_what_was_asked_for_the_contract_is_the_right_one(stranger: Stranger) -> None:
    rubric = done(import_prompt(stranger.text, "mine", stranger.hints))
    assert rubric.contract() == {
        "name": "mine",
        "hash": rubric.hash,
        "images": list(stranger.images),
        "texts": list(stranger.texts),
        "factors": [{"key": key, "values": list(values)} for key, values in stranger.factors.items()],
        "envelope": stranger.envelope,
        "justification_words": list(stranger.words) if stranger.words else None,
        "sections": list(stranger.sections),
    }
    answer = rubric.answer
    assert (answer.form, answer.score_key, answer.reason_key) == (stranger.form, *stranger.keys)
    assert answer.texts == stranger.free
    assert rubric.template and rubric.template.text == stranger.text
    assert rubric.template.adds_answer_format == (stranger.envelope == "factor_results")


@every_stranger
def test_a_strangers_prompt_goes_all_the_way_from_the_file_to_an_accepted_reply(stranger: Stranger) -> None:
    rubric = files.parse(files.dump(done(import_prompt(stranger.text, "mine", stranger.hints))))
    assert rubric.template and rubric.template.text == stranger.text
    for layout in LAYOUTS:
        question = ask(rubric, EDIT, DIGESTS, layout)
        assert [part.role for part in question.parts if isinstance(part, ImagePart)] == list(stranger.images)
        text = "".join(part.text for part in question.parts if isinstance(part, TextPart))
        assert (EDIT.instruction in text) == ("instruction" in stranger.texts)
        assert ('"factor_results": {' in text) == rubric.template.adds_answer_format
        outcome = check(rubric, reply(rubric, question.identifier), identifier=question.identifier)
        assert isinstance(outcome, Verdict), outcome
        assert outcome.scores == {factor.key: factor.scale.best for factor in rubric.factors}
        assert isinstance(check(rubric, "{}"), Failure)


def test_a_heading_that_stands_twice_is_no_place_and_its_picture_comes_before_the_text() -> None:
    stranger = STRANGERS["headings that an example has as well"]
    result = import_prompt(stranger.text, "mine")
    said = str(ask(done(result), EDIT, DIGESTS, "published"))
    assert said.index("[image: edited]") < said.index("For example")
    assert any(line.startswith("place: beside the text") for line in result.inferred)


def test_braces_are_the_place_of_an_input_and_brackets_that_name_it_too_are_words() -> None:
    rubric = done(import_prompt('[input image] [edited image] [instruction]: {instruction} {"score": <1-5>}', "mine"))
    assert f"[instruction]: {EDIT.instruction} " in str(ask(rubric, EDIT, DIGESTS, "published"))


@pytest.mark.parametrize(
    "text",
    [
        INPUTS + "Say which edit is better: [[A]] or [[B]], or [[tie]].",
        INPUTS + "Conclude with [[A>B]] or [[B>A]].",
        INPUTS + "<verdict>A</verdict> or <verdict>B</verdict>",
        INPUTS + '{"winner": "A", "reason": "..."}',
    ],
    ids=["double brackets", "an order", "tags", "JSON"],
)
def test_a_prompt_that_compares_two_edits_is_said_to_be_no_rubric(text: str) -> None:
    result = import_prompt(text, "mine")
    assert abouts(result) == ["kind of prompt"]
    assert "which of two edits is better" in str(result.asks[0])


LISTED = """\
List each difference under `## Differences` as allowed or as a change of content (not allowed), then add `## JSON`.
- Score = {best}
  only if all differences are allowed.
- Score = {worst}
  if any is not.
{{"score": 0}}
"""


def test_a_decision_that_follows_from_a_list_is_held_to_it() -> None:
    rubric = done(import_prompt("[input image] [edited image]\n" + LISTED.format(best=1, worst=0), "mine"))
    said = "## Differences\n- A new cat: not allowed\n## JSON\n"
    assert isinstance(check(rubric, said + '{"score": 0}'), Verdict)
    assert isinstance(check(rubric, said + '{"score": 1}'), Failure)


def test_a_decision_of_the_opposite_sense_is_not() -> None:
    rubric = done(import_prompt("[input image] [edited image]\n" + LISTED.format(best=0, worst=1), "mine"))
    assert rubric.consistency is None


def test_every_question_is_asked_at_once() -> None:
    text = 'See {extra}. Was the instruction met in about 20 words? {"score": 3, "reason": "."}'
    assert abouts(import_prompt(text, "mine")) == ["placeholder {extra}", "images", "texts", "scale", "words"]


def test_every_inference_is_told_with_its_source() -> None:
    result = import_prompt(INPUTS + '{"score": <1-5>, "reason": "<at most 9 words>"}', "mine")
    assert result.inferred == (
        "images: input, edited (from [input image], [edited image])",
        "texts: instruction (from {instruction})",
        "factors: score (from JSON example)",
        "scale: an integer from 1 to 5 (from JSON example, text or --scale)",
        "envelope: (top level) (from JSON example)",
        "free text: reason (from JSON example)",
        "words: 1 to 9 (from text)",
    )


# --- what the importing person says ---------------------------------------------------------------------------

WRONG_HINTS: dict[str, tuple[str, Hints, str]] = {
    "a placeholder that is not there": ('{"score": <1-5>}', Hints(slots={"instructoin": "-"}), 'mean "instruction"'),
    "a role that does not exist": ('{x} {"score": <1-5>}', Hints(slots={"x": "instuction"}), 'mean "instruction"'),
    "a text for a picture": ('{"score": <1-5>}', Hints(images=("instruction",)), "expected some of input, edited"),
    "a picture twice": ('{"score": <1-5>}', Hints(images=("edited", "edited")), "once each"),
    "a picture for a text": ('{"score": <1-5>}', Hints(texts=("edited",)), "expected instruction"),
    "a factor that the example lacks": ('{"score": <1-5>}', Hints(factors=("fit",)), "the JSON example has score"),
    "too few names for a list": ('{"score": [a, b]} 1-5 scale', Hints(factors=("a",)), '"score" has 2 scores'),
    "an example that is not there": ('{"score": <1-5>}', Hints(example=2), "the prompt has 1 JSON examples"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_HINTS.values(), ids=WRONG_HINTS)
def test_an_option_that_cannot_be_meant_is_refused(case: tuple[str, Hints, str]) -> None:
    text, hints, expected = case
    with pytest.raises(RubricError, match=expected):
        import_prompt(INPUTS + text, "mine", hints)


def test_a_scale_that_is_given_wins_over_what_the_text_says() -> None:
    rubric = done(import_prompt(INPUTS + '{"a": <1-5>, "b": <1-5>}', "mine", Hints(scale=(0, 1), scales={"b": TEN})))
    assert [factor.scale.values for factor in rubric.factors] == [(0, 1), TEN]


def test_a_heading_that_is_no_place_for_an_input_can_be_passed_over() -> None:
    text = 'Instruction:\nCompare the two.\n[input image] [edited image]\n{"score": <1-5>}'
    assert done(import_prompt(text, "mine")).texts == ("instruction",)
    assert done(import_prompt(text, "mine", Hints(slots={"Instruction:": "-"}))).texts == ()


def test_a_role_that_is_given_wins_over_what_the_name_says() -> None:
    hints = Hints(slots={"edited_image": "input", "other": "edited"})
    rubric = done(import_prompt('{edited_image} {other}\n{"score": <1-5>}', "mine", hints))
    assert rubric.images == ("input", "edited")


# --- reading words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "values"),
    [
        ("<integer between 1-7>", (1, 2, 3, 4, 5, 6, 7)),
        ("integer_1_to_3", (1, 2, 3)),
        ("1–3", (1, 2, 3)),
        ("between 0 and 2", (0, 1, 2)),
        ("5, 3, or 1", (5, 3, 1)),
        ("0 | 1 | 2", (0, 1, 2)),
        ("0/1", (0, 1)),
        ("1/2/3", (1, 2, 3)),
        ("-1, 0 or 1", (-1, 0, 1)),
        ("1, 0, -1", (1, 0, -1)),
        ("-2 to 2", (-2, -1, 0, 1, 2)),
        ("1-3, 3 being best", (1, 2, 3)),
        ("0..2", (0, 1, 2)),
        ("8/10", ()),
        ("4", ()),
        ("5, 5", ()),
        ("7 to 1", ()),
        ("0.0 to 1.0", ()),
        ("1.0-5.0", ()),
        ("0, 0.5 or 1", ()),
        ("1, 2, ..., 10", ()),
        ("1, 2, 3, ..., 10", ()),
        ("1-5 or 0", ()),
        ("15-30 words", ()),
        ("2 to 3 sentences", ()),
        ("1 to 100000", ()),
        (f"1 to {'9' * 5000}", ()),
        ("v1-2", ()),
        ("", ()),
    ],
)
def test_a_described_scale_is_read_whole_or_not_at_all(described: str, values: tuple[int, ...]) -> None:
    assert values_of(described) == values


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("Give a score from 1 to 5.", [FIVE]),
        ("Rate it between 0 and 10, please.", [TEN]),
        ("On a scale of 1–5, how good is it?", [FIVE]),
        ("Use a 1-5 scale.", [FIVE]),
        ("Rating range: 0-10", [TEN]),
        ("A number from 1 to 5.", [FIVE]),
        ("The score is from 1 to 5 inclusive.", [FIVE]),
        ("Score high (6-7) when it is right.", []),
        ("Children from 3 to 5 years old.", []),
        ("Write a score and between 2 and 3 sentences.", []),
        ("Rate the scene with from 2 to 4 dogs.", []),
        ("It was taken between 1 and 5.", []),
        ("Score from 0.0 to 1.0.", []),
        ("Score from 5 to 1.", []),
    ],
)
def test_a_range_in_a_text_is_a_scale_only_where_it_is_said_of_scores(text: str, ranges: list[tuple[int, ...]]) -> None:
    assert list(ranges_in(text)) == ranges


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("15-30 words", [(15, 30)]),
        ("between 10 and 25 words", [(10, 25)]),
        ("10 – 25 words", [(10, 25)]),
        ("at most 20 words", [(1, 20)]),
        ("no more than 20 words", [(1, 20)]),
        ("no longer than 20 words", [(1, 20)]),
        ("must not exceed 20 words", [(1, 20)]),
        ("20 words or fewer", [(1, 20)]),
        ("20 words max", [(1, 20)]),
        ("fewer than 20 words", [(1, 19)]),
        ("under 20 words", [(1, 19)]),
        ("about 20 words", []),
        ("20 sentences", []),
    ],
)
def test_limits_of_words_are_read_in_the_ways_people_write_them(text: str, limits: list[tuple[int, int]]) -> None:
    assert list(word_limits_in(text)) == limits


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("{score: 3}", "score is not a quoted key"),
        ('{"a": 1, ...}', "... is not a quoted key"),
        ('{"a": [{"b": 1}]}', "a list of objects"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("{" * 20 + '"a": 1' + "}" * 20, "not a quoted key"),
        ('{"a": ' * 20 + "1" + "}" * 20, "breaks off"),
    ],
)
def test_a_block_that_is_no_example_says_why(block: str, why: str) -> None:
    with pytest.raises(examples.NotAnExample, match=why):
        examples.read(block)


# --- anything at all ------------------------------------------------------------------------------------------

SCRAPS = [
    "[input image]", "[edited image]", "<image>", "{instruction}", "{{instruction}}", "{{{instruct}}}", "{x}", "{",
    "}", "{{", "}}", '"score"', ": ", "<1-5>", "[5, 3, or 1]", "...", '{"score": <1-5>, "reason": "..."}',
    '{{"score": 3}}', "'", '"', "from 1 to 5", "score", "Score = 1\n", "Score = 0\n", "15-30 words",
    "- ## Notes\n", "`## JSON`", "Instruction:\n", "Edited Image:\n", "IMAGE 1 (Input Image):\n", "<instruction>",
    "</instruction>", "\n", " ", "\r\n", "//", "#", "\\", "true", "0.5", "the instruction", "two images",
    "(allowed)", "(not allowed)", "99999999999999999999", "\x00", "\u2028",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from(SCRAPS) | st.text(max_size=5), max_size=25).map("".join))
@example(text="{{x}} {a:>9} [input image][edited image]" + '{{"score": <1-5>}}')
@example(text="5, 5 [edited image]" + '{"score": <5, 5>}')
def test_whatever_is_imported_gives_a_rubric_that_works_or_a_question(text: str) -> None:
    hints = Hints(images=("input", "edited"), texts=("instruction",), scale=FIVE, no_words=True)
    for given_hints in (None, hints, dataclasses.replace(hints, factors=("fit",), example=0)):
        result = import_prompt(text, "mine", given_hints)
        if result.rubric is None:
            assert result.asks and all(one.option for one in result.asks)
            continue
        rubric = files.parse(files.dump(result.rubric))
        assert rubric == result.rubric
        for layout in LAYOUTS:
            question = ask(rubric, EDIT, DIGESTS, layout)
            roles = [part.role for part in question.parts if isinstance(part, ImagePart)]
            assert sorted(roles) == sorted(rubric.images)
            assert isinstance(
                check(rubric, reply(rubric, question.identifier), identifier=question.identifier), Verdict
            )


def test_more_braces_than_any_prompt_has_are_refused() -> None:
    with pytest.raises(RubricError, match="more braces"):
        import_prompt("{}" * 200_000, "mine")
