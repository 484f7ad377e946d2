"""Alias of `editjudge.rewards.conformance`, which can be run with `python -m editjudge.conformance URL`."""

import sys

from editjudge.rewards.conformance import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
