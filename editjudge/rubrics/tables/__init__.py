"""Tables of words and patterns that the readers of replies and prompts look up, as YAML files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any


@functools.cache
def load_table(name: str) -> Any:
    """The content of `NAME.yaml` in this folder."""
    import yaml

    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text("utf-8"))
