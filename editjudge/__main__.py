"""Entry point of `python -m editjudge`."""

from editjudge.cli import main

main()
