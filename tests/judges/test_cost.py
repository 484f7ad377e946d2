"""What asking costs: a dated file, and rules of thumb before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from editjudge.errors import InputError
from editjudge.judgement import Usage
from editjudge.judges import cost as module
from editjudge.judges.cost import (
    Price,
    answer_tokens,
    prices,
    question_tokens,
)
from editjudge.judges.models import image_tokens
from editjudge.rubrics.files import load, load_one
from tests.faults import raises

PRICE = Price(input=10.0, output=40.0, cached=1.0)


def test_a_reply_costs_what_it_counted() -> None:
    assert PRICE.of(Usage(1_000_000, 100_000)) == pytest.approx(14.0)


def test_cached_tokens_are_part_of_the_input_and_cheaper() -> None:
    assert PRICE.of(Usage(1_000_000, 0, cached_tokens=400_000)) == pytest.approx(6.4)
    assert Price(10.0, 40.0).of(
        Usage(1_000_000, 0, cached_tokens=400_000)
    ) == pytest.approx(10.0)


@pytest.mark.parametrize(
    "usage", [Usage(), Usage(input_tokens=5), Usage(output_tokens=5)]
)
def test_what_the_server_did_not_count_has_no_price(usage: Usage) -> None:
    assert PRICE.of(usage) is None


def test_a_listed_price_names_the_version_of_its_list() -> None:
    price = prices().of("openai/gpt-6-luna")
    assert price and price.as_of.startswith("genai-prices 0.")
    assert 0 < (price.cached or 0) < price.input < price.output


def test_a_batch_costs_less_where_the_list_says_so() -> None:
    price = prices().of("anthropic/claude-sonnet-5-5")
    batch = prices().of("anthropic/claude-sonnet-5-5", batch=True)
    assert price and batch and batch.output < price.output
    assert prices().of("openrouter/openai/gpt-4.1", batch=True) is None


def test_a_long_question_has_the_price_of_its_tier() -> None:
    price = prices().of("openai/gpt-6-luna")
    assert price and price.long
    short = price.of(Usage(price.long_from, 0)) or 0.0
    long = price.of(Usage(price.long_from + 1, 0)) or 0.0
    assert long > 1.5 * short


@pytest.mark.parametrize(
    ("spec", "known"),
    [
        ("openai/gpt-4.1", True),
        ("openai/gpt-4.1-2025-04-14", True),
        ("anthropic/claude-sonnet-4-5-20250929", True),
        ("anthropic/claude-sonnet-4-5@20250929", True),
        ("google/gemini-2.5-pro-latest", True),
        ("openai/gpt-4.1-turbo", False),
        ("openai/gpt-99", False),
        ("openrouter/openai/gpt-4.1", True),
        ("azure/my-deployment", False),
        ("vllm/gpt-4.1", False),
    ],
)
def test_a_dated_snapshot_has_the_price_of_its_model_and_nothing_else_has(
    spec: str, known: bool
) -> None:
    assert (prices().of(spec) is not None) is known


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "prices.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    mine = prices(
        file(
            tmp_path,
            "as_of: 2026-02-03\nmodels:\n  vllm/qwen: {input: 0, output: 0.5}\n",
        )
    )
    assert (mine.as_of, mine.of("vllm/qwen")) == ("2026-02-03", Price(0, 0.5))
    listed = mine.of("openai/gpt-4.1")
    assert listed and listed.as_of.startswith("genai-prices")


def test_the_environment_names_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path, "as_of: 2026-02-03\nmodels: {}\n")
    monkeypatch.setenv("EDITJUDGE_PRICES", str(path))
    assert module.prices.__wrapped__(None).as_of == "2026-02-03"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "models: {}",
        "as_of: 2026-01-01",
        "as_of: 2026-01-01\nmodels: [a]",
        "as_of: 2026-01-01\nmodels: {a/b: 3}",
        "as_of: 2026-01-01\nmodels: {a/b: {input: 1}}",
        "as_of: 2026-01-01\nmodels: {a/b: {input: 1, output: 2, discount: 3}}",
        "as_of: 2026-01-01\nmodels: {a/b: {input: -1, output: 2}}",
        "as_of: 2026-01-01\nmodels: {a/b: {input: 1, output: free}}",
        "as_of: 2026-01-01\nmodels: {a/b: {input: .nan, output: 2}}",
        "{",
        b"\xff\xfe\x00\x01",
    ],
)
def test_a_file_that_is_no_price_list_is_refused_by_name(
    text: str | bytes, tmp_path: Path
) -> None:
    with raises(InputError, "not_a_price_file", "prices.yaml"):
        prices(file(tmp_path, text))


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with raises(InputError, "not_a_price_file", "gone.yaml"):
        prices(tmp_path / "gone.yaml")


@pytest.mark.parametrize(
    ("judge", "size", "tokens"),
    [
        ("openai/gpt-4.1", (512, 512), 85 + 170),
        ("openai/gpt-4o", (1024, 1024), 85 + 4 * 170),  # shrinks to 768 x 768
        ("openai/gpt-4o", (2048, 4096), 85 + 6 * 170),  # shrinks to 768 x 1536
        ("openrouter/openai/gpt-4o", (512, 512), 85 + 170),
        ("openai/gpt-4o-mini", (512, 512), 2833 + 5667),
        ("openai/gpt-4.1-mini", (4096, 4096), 2489),  # 1,536 patches at 1.62
        ("openai/gpt-6-luna", (1024, 1024), 1229),
        ("openai/gpt-6-luna", (1920, 1080), 2448),
        ("anthropic/claude-haiku-4-5", (512, 512), 361),
        ("anthropic/claude-haiku-4-5", (3136, 3136), 1568),
        ("anthropic/claude-sonnet-5-5", (1024, 1024), 1369),
        ("google/gemini-2.5-pro", (384, 384), 258),
        ("google/gemini-2.5-pro", (1536, 1536), 4 * 258),
        ("google/gemini-3.8-flash", (4032, 3024), 1120),
        ("vllm/qwen", (512, 512), 85 + 170),
    ],
)
def test_images_count_by_the_vendors_rules(
    judge: str, size: tuple[int, int], tokens: int
) -> None:
    assert image_tokens(judge, *size) == tokens


def test_a_question_counts_its_images_and_its_words() -> None:
    sizes = [(512, 512), (512, 512)]
    assert question_tokens("openai/gpt-4.1", sizes, 400) == 2 * 255 + 100


def test_longer_answers_count_more() -> None:
    counts = [
        answer_tokens(load_one(name))
        for name in ("compliance", "fidelity", "quality", "online")
    ]
    assert counts == sorted(counts)
    assert answer_tokens(load("fidelity")) > 3 * 30
