"""Extension points. The core looks up objects by name, and other packages may provide them.

A provider is an object named by a "module:attribute" string and imported on first use. `BUILT_IN` lists our own. Other
distributions declare theirs as entry points, in one group for each kind:

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
| `trackers` | `run --log NAME`, `run --log NAME:WHERE` | `log(run, where) -> where it is now`; see `integrations.trackers` |
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
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
    "trackers",
]

EXTRAS = {
    "hf": {"datasets": "datasets", "numpy": "numpy", "scipy": "scipy"},
    "inspect": {"inspect_ai": "inspect-ai"},
    "measured": {
        "numpy": "numpy",
        "scipy": "scipy",
        "cv2": "opencv-python-headless",
        "onnxruntime": "onnxruntime",
        "rapidocr": "rapidocr",
    },
    "mlflow": {"mlflow": "mlflow-skinny", "alembic": "alembic"},
    "probes": {"cv2": "opencv-python-headless", "skimage": "scikit-image"},
    "ray": {"ray": "ray"},
    "stats": {"numpy": "numpy", "scipy": "scipy", "jinja2": "jinja2"},
    "tensorboard": {"tensorboardX": "tensorboardX"},
    "wandb": {"wandb": "wandb"},
}
"""For each extra that is checked before use, its modules and the distributions that contain them."""
EXTRA_OF_MODULE = {
    "alembic": "mlflow",
    "cv2": "measured",
    "datasets": "hf",
    "inspect_ai": "inspect",
    "jinja2": "stats",
    "jsonschema": "conformance",
    "markupsafe": "stats",
    "mlflow": "mlflow",
    "msgpack": "web",
    "multipart": "web",
    "numpy": "stats",
    "onnxruntime": "measured",
    "pillow_heif": "heic",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "python_multipart": "web",
    "rapidocr": "measured",
    "ray": "ray",
    "scipy": "stats",
    "skimage": "probes",
    "starlette": "web",
    "tensorboardX": "tensorboard",
    "torch": "clip",
    "transformers": "clip",
    "uvicorn": "web",
    "wandb": "wandb",
    "xllamacpp": "local",
}
"""The smallest extra that installs each module."""


def default_judge() -> str:
    """Return the default judge: the one that EDITJUDGE_JUDGE names, or else the embedded judge."""
    return os.environ.get("EDITJUDGE_JUDGE") or "measured"


class Plugin(NamedTuple):
    """The import path of an object, and the extra that it needs."""

    target: str
    extra: str = ""

    def load(self) -> Any:
        """Import the plug-in's object and return it."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


BUILT_IN: dict[Kind, dict[str, Plugin]] = {
    "judges": {
        "measured": Plugin("editjudge.vision.measured:open_measured", "measured"),
        "metrics": Plugin("editjudge.vision.metrics:open_metrics", "measured"),
        "python": Plugin("editjudge.judges.python:open_python"),
        "http": Plugin("editjudge.rewards.client:open_server"),
        "https": Plugin("editjudge.rewards.client:open_server"),
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
        "datasets": Plugin("editjudge.integrations.hugging_face:export_datasets", "hf"),
        "eval-results": Plugin(
            "editjudge.integrations.hugging_face:export_eval_results", "stats"
        ),
        "fiftyone": Plugin("editjudge.integrations.fiftyone:export_fiftyone", "stats"),
        "inspect": Plugin("editjudge.integrations.inspect:export_inspect", "inspect"),
    },
    "trackers": {
        "mlflow": Plugin("editjudge.integrations.trackers:log_mlflow", "mlflow"),
        "tensorboard": Plugin(
            "editjudge.integrations.trackers:log_tensorboard", "tensorboard"
        ),
        "wandb": Plugin("editjudge.integrations.trackers:log_wandb", "wandb"),
    },
}


class MissingExtra(UsageError):
    """Raised when an extra is not installed."""

    def __init__(self, what: str, extra: str, distributions: list[str]) -> None:
        super().__init__(
            f"{what} needs an extra ({', '.join(distributions)}): pip install 'editjudge[{extra}]'"
        )

    @classmethod
    def of(
        cls, what: str, error: ModuleNotFoundError, extra: str = ""
    ) -> MissingExtra | None:
        """Return the error for a missing module that an extra installs. Return None if no extra installs it, since that
        is a bug.
        """
        module = (error.name or "").partition(".")[0]
        if module not in EXTRA_OF_MODULE:
            return None
        return cls(what, extra or EXTRA_OF_MODULE[module], [module])


def need_extra(extra: str, what: str) -> None:
    """Raise `MissingExtra` if an extra is not installed. `what` is the subject of the message."""
    if lacking := missing(extra):
        raise MissingExtra(what, extra, lacking)


def missing(extra: str) -> list[str]:
    """Return the distributions of an extra that are not installed."""
    modules = EXTRAS.get(extra, {})
    return [name for module, name in modules.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # another thread is importing it and has not set its spec yet
        return True


@functools.cache
def providers(kind: Kind) -> dict[str, Plugin]:
    """Return all providers of a kind, keyed by name. Other distributions cannot replace the built-in providers."""
    import importlib.metadata

    others = importlib.metadata.entry_points(group=f"editjudge.{kind}")
    installed = {point.name: Plugin(point.value) for point in others}
    return {**BUILT_IN[kind], **installed, **BUILT_IN[kind]}


def load(kind: Kind, name: str, what: str) -> Any:
    """Return the object that a provider names. Raise `MissingExtra` if its extra is not installed. `what` is the
    subject of the message.
    """
    provider = providers(kind)[name]
    need_extra(provider.extra, what)
    return provider.load()


def usable(kind: Kind) -> list[Any]:
    """Return the objects of all providers of a kind. Providers whose extras are not installed are left out."""
    return [
        provider.load()
        for provider in providers(kind).values()
        if not missing(provider.extra)
    ]
