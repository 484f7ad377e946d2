"""Extension points: what the core uses by name, and packages provide.

A provider is an object behind a "module:attribute" string, imported when it is used. Ours are in `BUILT_IN`. Those of
another distribution are its entry points, in one group for each kind:

    [project.entry-points."editjudge.judges"]
    size = "my_package:open_size_judge"

| kind | used for | a provider is |
|---|---|---|
| `judges` | `--judge NAME`, `--judge NAME:REST` | `open(spec, options, resources) -> Judge`; see `judges.registry` |
| `screens` | `audit`, rewards | `screen(edit) -> list[DegenerateImage]` |
| `evidence` | review, reports, `ROLE@change_map` | `draw(before, edited, mask, evidence) -> {name: PNG}` |
| `regions` | `ROLE@change` in a rubric | `find(before, edited) -> box in pixels or None` |
| `contradictions` | report, review, `export` | `check(store, run, edits) -> Iterator[CheckedVerdict]` |
| `controls` | attention checks of `/rate` | `controls(pairs=False) -> [(Edit, expected scores)]` |
| `routes` | `serve` | `extend(site) -> web.site.Extension` |
| `engines` | `run --engine NAME` | `async execute(cluster, job, store, options) -> Outcome` |
| `sinks` | `export --format NAME` | `write(store, run, folder) -> list of the written paths` |
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any, Literal, NamedTuple

from editjudge.errors import UsageError

Kind = Literal[
    "judges",
    "screens",
    "evidence",
    "regions",
    "contradictions",
    "controls",
    "routes",
    "engines",
    "sinks",
]

EXTRAS = {
    "inspect": {"inspect_ai": "inspect-ai"},
    "measured": {
        "numpy": "numpy",
        "scipy": "scipy",
        "cv2": "opencv-python-headless",
        "onnxruntime": "onnxruntime",
        "rapidocr": "rapidocr",
    },
    "probes": {"cv2": "opencv-python-headless", "skimage": "scikit-image"},
    "ray": {"ray": "ray"},
}
"""Distributions of the extras that providers of ours need, by the module to import."""


class Plugin(NamedTuple):
    """Location of an object, and the extra of ours without which it cannot be used."""

    target: str
    extra: str = ""

    def load(self) -> Any:
        """Import the object."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


BUILT_IN: dict[Kind, dict[str, Plugin]] = {
    "judges": {
        "measured": Plugin("editjudge.vision.measured:open_measured", "measured"),
        "metrics": Plugin("editjudge.vision.metrics:open_metrics", "measured"),
    },
    "screens": {
        "measured": Plugin("editjudge.vision.measured.degenerate:screen", "measured"),
    },
    "evidence": {
        "measured": Plugin("editjudge.vision.measured:evidence_pictures", "measured"),
    },
    "regions": {
        "change": Plugin("editjudge.vision.measured:changed_region", "measured"),
    },
    "contradictions": {
        "measured": Plugin("editjudge.vision.contradictions:checked_verdicts"),
    },
    "controls": {
        "probes": Plugin("editjudge.vision.probes.making:controls", "probes"),
    },
    "routes": {
        "rewards": Plugin("editjudge.rewards.service:extension"),
    },
    "engines": {
        "ray": Plugin("editjudge.cluster.driver:execute", "ray"),
    },
    "sinks": {
        "inspect": Plugin("editjudge.integrations.inspect:export_inspect", "inspect"),
    },
}


class MissingExtra(UsageError):
    """An extra that is not installed."""

    def __init__(self, what: str, extra: str, distributions: list[str]) -> None:
        super().__init__(
            f"{what} needs an extra ({', '.join(distributions)}): pip install 'editjudge[{extra}]'"
        )


def missing(extra: str) -> list[str]:
    """Return the distributions of an extra that are not installed."""
    modules = EXTRAS.get(extra, {})
    return [name for module, name in modules.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # another thread is importing it, and it has no spec yet
        return True


@functools.cache
def providers(kind: Kind) -> dict[str, Plugin]:
    """Return all providers of a kind by name, ours first; those of other distributions replace none of ours."""
    import importlib.metadata

    others = importlib.metadata.entry_points(group=f"editjudge.{kind}")
    installed = {point.name: Plugin(point.value) for point in others}
    return {**BUILT_IN[kind], **installed, **BUILT_IN[kind]}


def load(kind: Kind, name: str, what: str) -> Any:
    """Return a provider's object. Raise `MissingExtra`, about `what`, if what it needs is not installed."""
    provider = providers(kind)[name]
    if lacking := missing(provider.extra):
        raise MissingExtra(what, provider.extra, lacking)
    return provider.load()


def usable(kind: Kind) -> list[Any]:
    """Return the objects of all providers of a kind whose extra is installed."""
    return [
        provider.load()
        for provider in providers(kind).values()
        if not missing(provider.extra)
    ]
