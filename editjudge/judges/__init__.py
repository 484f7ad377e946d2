"""Judges: vision-language models behind an API or in a file, recorded replies, and plug-ins."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_table(name: str) -> Any:
    """Read a YAML file that belongs to this package."""
    return read_yaml(Path(__file__).parent / name)


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    try:
        from yaml import CSafeLoader as Loader  # ten times as fast, if it is built
    except ImportError:
        from yaml import SafeLoader as Loader  # type: ignore[assignment]
    return Loader(path.read_text("utf-8")).get_single_data()
