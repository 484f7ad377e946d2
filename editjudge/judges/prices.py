"""What asking costs: list prices from a dated file, and estimates of tokens before anything is sent."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from editjudge.errors import InputError
from editjudge.judgement import Usage
from editjudge.judges import read_yaml
from editjudge.rubrics.model import Rubric

BUILTIN = Path(__file__).parent / "prices.yaml"


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None

    def of(self, usage: Usage) -> float | None:
        """What a reply cost; None where the server did not say what it counted."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.input_tokens)
        at_cached = self.input if self.cached is None else self.cached
        return (
            (usage.input_tokens - cached) * self.input + cached * at_cached + usage.output_tokens * self.output
        ) / 1e6

    def times(self, factor: float) -> Price:
        return Price(self.input * factor, self.output * factor, None if self.cached is None else self.cached * factor)


@dataclass(frozen=True)
class Prices:
    as_of: str
    models: Mapping[str, Price]
    batch: Mapping[str, float] = field(default_factory=dict)
    """By provider, the share of the price that a question in a batch costs."""

    def of(self, spec: str, *, batch: bool = False) -> Price | None:
        """The price of a judge, a dated snapshot at that of its model; None where it is unknown."""
        undated = re.sub(r"[-@](?:\d{4}-?\d{2}-?\d{2}|latest)$", "", spec)
        price = self.models.get(spec) or self.models.get(undated)
        if price is None or not batch:
            return price
        factor = self.batch.get(spec.partition("/")[0])
        return None if factor is None else price.times(factor)


@functools.cache
def prices(path: Path | None = None) -> Prices:
    """From a file of the user's, else from the one that comes with the program."""
    import yaml

    chosen = path or (Path(own) if (own := os.environ.get("EDITJUDGE_PRICES")) else BUILTIN)
    try:
        data = read_yaml(chosen)
        models = {spec: Price(**numbers) for spec, numbers in data["models"].items()}
        for spec, price in models.items():
            if not all(isinstance(n, int | float) and n >= 0 for n in (price.input, price.output, price.cached or 0)):
                raise TypeError(f"{spec}: prices are numbers from 0")
        batch = dict(data.get("batch", {}))
        if not all(isinstance(n, int | float) and n >= 0 for n in batch.values()):
            raise TypeError("batch: shares are numbers from 0")
        return Prices(str(data["as_of"]), models, batch)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{chosen}: not a price file ({error}); expected `as_of` and `models`, each with input and output"
        ) from None


def image_tokens(provider: str, width: int, height: int) -> int:
    """About what a picture counts, by the provider's published rule; the server's own count is what is recorded."""
    if provider == "anthropic":
        shrink = min(1.0, 1568 / max(width, height))
        return math.ceil(width * shrink * height * shrink / 750)
    if provider == "google":
        return 258 * max(1, math.ceil(width / 768) * math.ceil(height / 768))
    # OpenAI's rule for gpt-4o and gpt-4.1, which others come close to: 170 a tile of 512 pixels, and 85.
    shrink = min(1.0, 2048 / max(width, height))
    shrink *= min(1.0, 768 / (min(width, height) * shrink))
    return 85 + 170 * math.ceil(width * shrink / 512) * math.ceil(height * shrink / 512)


def most_image_tokens(spec: str, width: int, height: int) -> int:
    """What a picture counts at most, by any rule that its provider has published for any of its models."""
    provider, _, model = spec.partition("/")
    rule = image_tokens(provider, width, height)
    if "4o-mini" in model:  # counts 2,833 where others count 85, and 5,667 where they count 170
        return 34 * rule
    # 1,536 patches at 2.46 each (OpenAI), 4,784 (Anthropic), 2,240 (Gemini 3).
    if provider in ("openai", "azure", "anthropic", "google"):
        return max(rule, 4_784)
    # A server of one's own may take each 28 x 28 pixels for a token, as Qwen-VL does, without a bound.
    return max(rule, 4_784, math.ceil(width / 28) * math.ceil(height / 28))


def question_tokens(provider: str, sizes: Iterable[tuple[int, int]], characters: int) -> int:
    """About what a question counts: its pictures, and a token for each four characters of its text, which is on the
    high side for rubric text."""
    return sum(image_tokens(provider, *size) for size in sizes) + math.ceil(characters / 4)


def answer_tokens(rubric: Rubric) -> int:
    """About what an answer takes: a word is a token and a half, and each factor has keys around its score."""
    words = rubric.answer.words[1] if rubric.answer.words else 80
    sections = 150 * len(rubric.answer.sections)
    return 30 + sections + len(rubric.factors) * (20 + math.ceil(1.5 * words))
