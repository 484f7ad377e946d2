"""How models mark the thoughts that they write before an answer: one table, with where each form comes from.

A thought is never searched for an answer. What follows a thought that never ends is part of it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


@dataclass(frozen=True, slots=True)
class ThoughtFormat:
    """One way to write a thought; both patterns ignore case unless they say otherwise."""

    source: str
    """Which models or programs write it, and where that is said."""
    hints: tuple[str, ...]
    """One of these, in lower case, stands in every text that holds one of the marks."""
    opening: str
    closing: str
    preopened: bool = True
    """Whether a closing mark alone ends a thought: chat templates may open it in the prompt, so that a reply begins
    inside it and holds its end alone."""
    nests: bool = True
    """Whether a second opening mark has to be closed as well."""
    example: tuple[str, str] = ("", "")
    """An opening and a closing mark, for tests and people."""
    marks: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pattern = rf"(?P<opening>{self.opening})|(?P<closing>{self.closing})"
        object.__setattr__(self, "marks", re.compile(pattern, re.IGNORECASE))


_NAMES = (
    "th(?:ink(?:ing)?|oughts?)(?:_process)?|re(?:asoning|flection)|scratch_?pad|a(?:nalysis|ntthinking)"
    "|inner_monologue|c(?:hain_of_thought|ot)"
)


def _tag(slash: str) -> str:
    """A tag, also with attributes, a prefix (`seed:`, `mm:`, `longcat_`), bars, or escaped as HTML."""
    return rf"(?:<|&lt;)\|?{slash}(?:[a-z]{{1,12}}+[:_])?(?:{_NAMES})(?:\s[^<>]{{0,200}})?\|?(?:>|&gt;)"


FORMATS = (
    ThoughtFormat(
        "Magistral and later Mistral models (vllm/reasoning/mistral_reasoning_parser.py)",
        ("think]",),
        r"\[think\]",
        r"\[/think\]",
        example=("[THINK]", "[/THINK]"),
    ),
    ThoughtFormat(
        "Kimi-VL-Thinking and Kimi-Dev (sglang's KimiDetector)",
        ("think▷",),
        "◁think▷",
        "◁/think▷",
        example=("◁think▷", "◁/think▷"),
    ),
    ThoughtFormat(
        "Kimi K3 (sglang/srt/function_call/kimik3_format.py); the channel of the response ends it as well",
        ("think<|sep|>", "response<|sep|>"),
        r"<\|open\|>think<\|sep\|>",
        r"<\|close\|>think<\|sep\|>|<\|open\|>response<\|sep\|>",
        nests=False,
        example=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ),
    ThoughtFormat(
        "gpt-oss: every channel of the harmony format but `final` (sglang/srt/parser/harmony_parser.py)",
        ("<|channel|>",),
        r"<\|channel\|>(?!\s*final\b)(?:[^<]|<\|constrain\|>){0,200}<\|message\|>",
        r"<\|channel\|>\s*final\b(?:[^<]|<\|constrain\|>){0,200}<\|message\|>",
        nests=False,
        example=("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ),
    ThoughtFormat(
        "gpt-oss behind a server that drops the special tokens (seen in many clients as `analysis...assistantfinal`)",
        ("analysis", "assistantfinal"),
        r"(?-i:\Aanalysis(?=[A-Z{]))",
        "(?-i:assistantfinal)",
        nests=False,
        example=("analysis", "assistantfinal"),
    ),
    ThoughtFormat(
        "Gemma 4 (vllm/reasoning/gemma4_reasoning_parser.py)",
        ("<|channel>", "<channel|>"),
        r"<\|channel>",
        r"<channel\|>",
        example=("<|channel>thought\n", "<channel|>"),
    ),
    ThoughtFormat(
        "Command A Reasoning (vllm/reasoning/cohere_command_reasoning_parser.py)",
        ("_thinking|>",),
        r"<\|start_thinking\|>",
        r"<\|end_thinking\|>",
        example=("<|START_THINKING|>", "<|END_THINKING|>"),
    ),
    ThoughtFormat(
        "Solar Open 2 (vllm/reasoning/solar_open2_reasoning_parser.py)",
        ("<|think:",),
        r"<\|think:start\|>",
        r"<\|think:end\|>",
        example=("<|think:start|>", "<|think:end|>"),
    ),
    ThoughtFormat(
        "Sky-T1, OpenThinker and other models trained on OpenThoughts (its system prompt)",
        ("_of_thought|>",),
        r"<\|begin_of_thought\|>",
        r"<\|end_of_thought\|>",
        example=("<|begin_of_thought|>", "<|end_of_thought|>"),
    ),
    ThoughtFormat(
        "Apertus (vllm/reasoning/apertus_reasoning_parser.py)",
        ("<|inner_",),
        r"<\|inner_prefix\|>",
        r"<\|inner_suffix\|>",
        example=("<|inner_prefix|>", "<|inner_suffix|>"),
    ),
    ThoughtFormat(
        "openPangu (vllm/reasoning/pangu_reasoning_parser.py)",
        ("[unused1",),
        r"\[unused16\]",
        r"\[unused17\]",
        example=("[unused16]", "[unused17]"),
    ),
    ThoughtFormat(
        "Granite 3.2 (vllm/reasoning/granite_reasoning_parser.py); others announce a response without having thought",
        ("my thought process:",),
        r"here(?:['’]s| is) my thought process:",
        r"here(?:['’]s| is) my response:",
        preopened=False,
        example=("Here is my thought process:", "Here is my response:"),
    ),
    ThoughtFormat(
        "Open WebUI, which passes thoughts on folded; other details of a page are none",
        ("<details",),
        r"<details\s[^<>]{0,200}\breasoning\b[^<>]{0,200}>",
        "</details>",
        preopened=False,
        nests=False,
        example=('<details type="reasoning" done="true">', "</details>"),
    ),
    # Last, since some of the others look like a tag with a prefix.
    ThoughtFormat(
        "<think>: DeepSeek-R1, Qwen3, GLM-4.5, MiniMax-M2, ERNIE-4.5, Hunyuan, Step3, OLMo 3, Nemotron, Phi-4 "
        "(vllm/reasoning, sglang/srt/parser/reasoning_parser.py); <thought>: EXAONE Deep (its model card); "
        "<seed:think>: Seed-OSS; <mm:think>: MiniMax-M3; <longcat_think>: LongCat (the same parsers); <thinking>, "
        "<scratchpad>, <reflection>, <reasoning>, <analysis>: published prompts, Reflection-70B, LLaVA-CoT",
        ("think", "thought", "reasoning", "reflection", "scratch", "analysis", "monologue", "cot"),
        _tag(""),
        _tag("/"),
        example=("<think>", "</think>"),
    ),
)

Role = Literal["opening", "closing"]


def marks_in(text: str) -> re.Pattern[str]:
    """One pattern for a brace and the marks that the text may hold. Few texts hold any, and to look for all of them at
    each of millions of places takes seconds."""
    lowered = text.lower()
    return _pattern(tuple(n for n, form in enumerate(FORMATS) if any(hint in lowered for hint in form.hints)))


# How braces and marks begin rules out most places sooner than the marks do: 5 MB of "<a<|" take .9 s, and not 2.6.
_BEGINS = (
    r"(?=[{<&\[◁ah])(?=\{|<\|?/?(?:[a-z]{1,12}+[:_]|th|re|sc|an|in|c[hlo]|op|st|en|be|de)|&lt;|\[[/tu]|◁/?t|a[ns]|he)"
)


@functools.lru_cache(maxsize=64)
def _pattern(numbers: tuple[int, ...]) -> re.Pattern[str]:
    # A group's name says which format and which mark.
    marks = (
        f"|(?P<{role}{number}>{getattr(FORMATS[number], role)})"
        for number in numbers
        for role in (("opening", "closing") if FORMATS[number].preopened else ("opening",))
    )
    return re.compile(rf"{_BEGINS}(?:(?P<brace>\{{){''.join(marks)})", re.IGNORECASE)


class ThoughtMark(NamedTuple):
    format: ThoughtFormat
    role: Role


def format_of(match: re.Match[str]) -> ThoughtMark | None:
    """Which format a mark is of, and whether it opens or closes; None for a brace."""
    name = match.lastgroup or ""
    if name == "brace":
        return None
    role: Role = "opening" if name.startswith("opening") else "closing"
    return ThoughtMark(FORMATS[int(name.removeprefix(role))], role)


def end_of_thought(text: str, position: int, form: ThoughtFormat) -> int | None:
    """Where the thought that opened before `position` ends; only marks of its own format matter inside it."""
    depth = 1
    for match in form.marks.finditer(text, position):
        if match.lastgroup == "closing":
            depth -= 1
        elif form.nests:
            depth += 1
        if depth == 0:
            return match.end()
    return None
