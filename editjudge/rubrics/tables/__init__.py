"""Tables of words and patterns that the readers of replies and prompts look up, as YAML files."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any


@functools.cache
def load_table(name: str) -> Any:
    """The content of `NAME.yaml` in this folder."""
    import yaml

    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text("utf-8"))


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """A pattern by which prompts are read."""
    table = load_table("prompts")
    text: str = table["patterns"][name]
    for part, content in table["parts"].items():
        text = text.replace(f"<{part}>", content)
    return re.compile(text)


@functools.cache
def words(table: str, name: str) -> frozenset[str]:
    """A list of words of a table."""
    return frozenset(load_table(table)[name].split())
