"""Facts about models from models.yaml: when they are shut down, and how they count the tokens of an image."""

from __future__ import annotations

import datetime
import functools
import math
import re
from dataclasses import dataclass
from typing import Any

from editjudge.judges import read_table

WARNED_DAYS = 180
"""Number of days before a shutdown from which it is reported."""


@dataclass(frozen=True)
class Shutdown:
    """Day from which a vendor no longer serves a model, with the page that announces it."""

    model: str
    date: datetime.date
    source: str

    def message(self, today: datetime.date) -> str:
        """Return a sentence about the shutdown, or nothing if it is far away."""
        days = (self.date - today).days
        if days > WARNED_DAYS:
            return ""
        if days <= 0:
            return (
                f"{self.model} was switched off on {self.date} ({self.source}): name another judge; "
                "see `editjudge docs bridge`"
            )
        count = "1 day" if days == 1 else f"{days} days"
        return f"{self.model} is switched off on {self.date}, in {count}: see `editjudge docs bridge`"


@functools.cache
def table() -> dict[str, Any]:
    """Return models.yaml."""
    facts: dict[str, Any] = read_table("models.yaml")
    return facts


def vendor_model(spec: str) -> str:
    """Return a judge as vendor/model. OpenRouter names the vendor after its own name."""
    return spec.removeprefix("openrouter/").partition(":")[0]


def undated(spec: str) -> str:
    """Return a judge without the date of its snapshot."""
    return re.sub(r"[-@](?:\d{4}-?\d{2}-?\d{2}|latest)$", "", spec)


@functools.cache
def _shutdowns() -> dict[str, Shutdown]:
    return {
        f"{group['provider']}/{model}": Shutdown(model, date, group["source"])
        for group in table()["shutdowns"]
        for date, models in group["dates"].items()
        for model in models
    }


def shutdown_of(spec: str) -> Shutdown | None:
    """Return the announced shutdown of a judge, or None if none is known. An Azure deployment has a name of the user's
    choice and Azure's own schedule, so nothing is known of it.
    """
    name = vendor_model(spec)
    listed = _shutdowns()
    entry = listed.get(name) or listed.get(undated(name))
    if entry is None:
        return None
    return Shutdown(name.partition("/")[2], entry.date, entry.source)


def image_tokens(spec: str, width: int, height: int) -> int:
    """Estimate the number of tokens of an image with the vendor's rule. The server's own count is recorded later."""
    name = vendor_model(spec)
    rule = next(rule for rule in table()["images"] if re.match(rule["model"], name))
    shrink = min(1.0, rule.get("side", math.inf) / max(width, height))
    shrink = min(shrink, rule.get("short", math.inf) / min(width, height))
    columns = math.ceil(width * shrink / rule["patch"])
    rows = math.ceil(height * shrink / rule["patch"])
    patches = min(columns * rows, rule.get("most", math.inf))
    tokens: float = rule.get("base", 0) + rule.get("each", 1) * patches
    return math.ceil(tokens)
