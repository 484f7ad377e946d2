"""Options of `serve` that say what clients of the reward API may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from editjudge.cli.options import Finite, bundle
from editjudge.errors import UsageError

if TYPE_CHECKING:
    from editjudge.web.service_options import Terms

_TERMS = (
    click.option("--allow-judge", "judges", multiple=True, help="Judge that a request may name besides; repeatable."),
    click.option("--rubric", "rubrics", multiple=True, help="Asked where a request names none [online]; repeatable."),
    click.option("--allow-rubric", "more_rubrics", multiple=True, help="That a request may name besides; repeatable."),
    click.option("--formula", help="How scores become a reward: mean, min, product, geometric_mean."),
    click.option("--weight", "weights", multiple=True, metavar="FACTOR=W", help="Factor of a reward; repeatable."),
    click.option(
        "--degenerate",
        type=click.Choice(["null", "worst"]),
        help="Reward of an output that is no edit: null [default], or worst, which is 0.",
    ),
    click.option(
        "--mix",
        "mixture",
        multiple=True,
        metavar="JUDGE=W",
        help="Reward by the weighted mean of several judges; repeatable.",
    ),
    click.option(
        "--dialect",
        "dialects",
        multiple=True,
        metavar="NAME",
        help="Also speak a trainer's protocol: flow-factory, unirl, edit-r1, flow-grpo, editscore, or a YAML file that "
        "describes another; repeatable.",
    ),
    click.option("--fresh", is_flag=True, help="Ask again what the store has an answer to."),
    click.option("--budget", type=Finite(min=0), metavar="USD", help="Ask judges nothing more once this is spent."),
    click.option("--max-waiting", type=click.IntRange(1), help="Edits taken in and not judged yet."),
    click.option("--deadline", type=Finite(min=0.1), help="Seconds that a request may wait."),
    click.option("--drain", type=Finite(min=0), help="Seconds to finish what was taken in when the server is stopped."),
    click.option("--concurrency", type=click.IntRange(1), help="Most requests in flight to a judge."),
    click.option("--keep-pictures", "pictures", type=click.Path(path_type=Path), help="Folder for pictures sent."),
)

_NAMES = (
    *(
        "judges",
        "rubrics",
        "more_rubrics",
        "formula",
        "weights",
        "degenerate",
        "mixture",
        "dialects",
        "fresh",
        "budget",
    ),
    *("max_waiting", "deadline", "drain", "concurrency", "pictures"),
)


def _terms(given: dict[str, Any]) -> Terms:
    from editjudge.web.reduction import FORMULAS
    from editjudge.web.service_options import Terms

    if given["dialects"]:
        from editjudge.web.dialects import chosen

        chosen(given["dialects"])  # raises for one that is not known, and for two that want the same path
    if given["formula"] not in (None, *FORMULAS):
        raise UsageError(f"--formula {given['formula']}: expected one of {', '.join(FORMULAS)}")
    given["weights"] = dict(_weight("--weight FACTOR", text) for text in given["weights"]) or None
    given["mixture"] = dict(_weight("--mix JUDGE", text) for text in given["mixture"]) or None
    return Terms(**{name: value for name, value in given.items() if value not in (None, ())})


def _weight(meant: str, text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = 0.0
    if not name or not 0 < weight < float("inf"):
        option, kind = meant.split()
        raise UsageError(f'{option} "{text}": expected {kind}=NUMBER, with a number above 0')
    return name, weight


terms_options = bundle(_TERMS, _NAMES, "terms", _terms)
"""The verb gets them as one `terms`."""
