"""Export of a run as samples that `fiftyone.Dataset.from_json` reads. FiftyOne itself is not needed to write them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from editjudge.errors import ImageError
from editjudge.judgement import DONE
from editjudge.report.tracking import label
from editjudge.running.images import image_path
from editjudge.store.export import edits_with_scores
from editjudge.store.records import Item, RunRecord
from editjudge.store.store import Store
from editjudge.store.tables import complete_file

_FIELD = "fiftyone.core.fields"


def export_fiftyone(store: Store, run: RunRecord, folder: Path) -> list[Path]:
    """Write samples.json, with a sample for each edit. Samples name the images that were judged where they are.

    A score is a `Regression` with its status; a failed one has no value, and its status is a tag of the sample. The
    file of a sample without an output does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names: dict[tuple[object, ...], str] = {}
    texts: dict[str, None] = {}
    samples = []
    several = len(run.spec.get("judges", ())) > 1
    for item, scores in edits_with_scores(store, run):
        sample = _sample(run, item, folder)
        texts.update(dict.fromkeys(name for name in sample if name != "filepath"))
        statuses = {str(row["status"]) for row in scores} - {*DONE}
        for row in scores:
            parts = (row["judge"], row["rubric"], row["factor"], row["repeat"], row["order"])  # fmt: skip
            name = names.setdefault(parts, _name(row, {*names.values()}, several))
            sample[name] = {
                "_cls": "Regression",
                "value": row["score"],
                "status": row["status"],
                "choice": row["choice"],
                "reason": row["justification"] or row["abstained"],
            }
        samples.append({**sample, "tags": sorted(statuses)})
    label_field = f"{_FIELD}.EmbeddedDocumentField(fiftyone.core.labels.Regression)"
    document = {
        "name": run.name,
        "media_type": "image",
        "sample_fields": {
            **dict.fromkeys(texts, f"{_FIELD}.StringField"),
            **dict.fromkeys(names.values(), label_field),
        },
        "info": {"run": run.name, "judges": run.spec.get("judges", [])},
        "samples": samples,
    }
    path = folder / "samples.json"
    with complete_file(path) as file:
        json.dump(document, file, indent=1, allow_nan=False)
    return [path]


def _sample(run: RunRecord, item: Item, folder: Path) -> dict[str, object]:
    missing = folder.absolute() / "missing" / f"{label(item.item)}.png"
    sample: dict[str, object] = {
        "filepath": str(missing),
        "item": item.item,
        "model": item.model,
        "edit_type": item.edit_type,
        "instruction": item.instruction,
        "image_problem": None,
    }
    for role in item.images:
        field = "filepath" if role == "edited" else f"{_plain(role)}_path"
        try:
            sample[field] = str(image_path(run, item, role))
        except ImageError as error:
            sample["image_problem"] = f"{role}: {error}"
    return sample


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name).strip("_")


def _name(row: dict[str, object], taken: set[str], several: bool) -> str:
    """Return the field of a score. It includes the judge if there are several, the order of a pair and the repeat."""
    parts = [row["rubric"], row["factor"] or "judgement"]
    if several:
        parts.insert(0, row["judge"])
    parts += [row["order"]] if row["order"] else []
    parts += [row["repeat"]] if row["repeat"] else []
    name = _plain("_".join(map(str, parts)))
    return f"{name}_{len(taken)}" if name in taken else name
