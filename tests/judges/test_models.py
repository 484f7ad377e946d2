"""Facts about models: announced shutdowns, and the models that the documents name."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

from editjudge.judges.cost import listed_price
from editjudge.judges.models import WARNED_DAYS, Shutdown, shutdown_of, table

DAY = datetime.date(2026, 11, 18)


@pytest.mark.parametrize(
    ("spec", "date"),
    [
        ("openai/gpt-4.1", "2027-01-14"),
        ("openai/gpt-4.1-2025-04-14", "2027-01-14"),
        ("openai/gpt-4o-2024-05-13", "2026-10-23"),
        ("openai/gpt-5-mini", "2026-12-11"),
        ("openrouter/openai/gpt-5", "2026-12-11"),
        ("openrouter/google/gemini-2.5-pro:free", "2026-12-01"),
    ],
)
def test_a_shutdown_is_known_by_name_snapshot_and_router(spec: str, date: str) -> None:
    shutdown = shutdown_of(spec)
    assert shutdown and str(shutdown.date) == date
    assert shutdown.source.startswith("https://")


@pytest.mark.parametrize(
    "spec",
    ["openai/gpt-6-luna", "azure/gpt-4.1", "vllm/gpt-4.1", "openai/stub", "measured"],
)
def test_nothing_is_claimed_of_other_judges(spec: str) -> None:
    assert shutdown_of(spec) is None


@pytest.mark.parametrize(
    ("days", "part"),
    [
        (WARNED_DAYS + 1, None),
        (57, "in 57 days"),
        (1, "in 1 day:"),
        (0, "was switched off"),
        (-9, "was switched off"),
    ],
)
def test_a_shutdown_is_reported_in_time(days: int, part: str | None) -> None:
    date = DAY + datetime.timedelta(days=days)
    message = Shutdown("gpt-4.1", date, "https://example.org").message(DAY)
    assert part in message if part else message == ""


def test_a_model_is_listed_once_with_a_date_and_a_source() -> None:
    names = [
        f"{group['provider']}/{model}"
        for group in table()["shutdowns"]
        for date, models in group["dates"].items()
        for model in models
        if isinstance(date, datetime.date)
    ]
    assert len(names) == len(set(names)) > 20


def test_the_models_of_the_documents_have_a_price_and_no_shutdown() -> None:
    for spec in table()["current"]:
        assert listed_price(spec), spec
        assert shutdown_of(spec) is None, spec


ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("examples/**/*.py")),
    *sorted(ROOT.glob("editjudge/cli/*.py")),
    ROOT / "editjudge" / "api.py",
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_example_names_a_model_that_is_switched_off_or_announced(path: Path) -> None:
    text = path.read_text("utf-8")
    specs = re.findall(
        r"(?:judges?[ =(\[\"']+)((?:openai|google|anthropic)/[\w.-]+)", text
    )
    assert [spec for spec in specs if shutdown_of(spec.rstrip("."))] == []
