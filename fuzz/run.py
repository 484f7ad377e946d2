"""Coverage-guided fuzzing of one target: `python -m fuzz.run contract --seconds 120`; needs the extra `fuzz`.

Exits with 0 where nothing was found. What was found is written to `--found`, a file for each.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["editjudge", "PIL", "starlette", "python_multipart"]
):
    from fuzz.targets import TARGETS, seeds

_SLOWEST = 20
"""Seconds after which an input counts as a hang; the slowest takes milliseconds."""
_MEMORY = 2048
"""Megabytes after which it counts as a leak or a bomb."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--found", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    warnings.simplefilter("error")
    logging.disable()  # the parser of multipart bodies says something of each that is broken
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(options.target)):
            Path(corpus, str(number)).write_bytes(seed)
        words = [
            f"-max_total_time={options.seconds}",
            f"-timeout={_SLOWEST}",
            f"-rss_limit_mb={_MEMORY}",
            f"-artifact_prefix={options.found}/{options.target}-",
            "-print_final_stats=1",
            "-max_len=8192",
        ]
        atheris.Setup([sys.argv[0], *words, corpus], TARGETS[options.target])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
