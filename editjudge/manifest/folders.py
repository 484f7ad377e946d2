"""Rows of folders: a folder a model, and the results of other benchmarks as they lay them out.

GEdit-Bench     TREE/MODEL/fullset/TASK/LANGUAGE/KEY.png, the source beside it as KEY_SRCIMG.png
ImgEdit-Bench   TREE/MODEL/KEY.png, sources below another folder under the `id` of the benchmark's JSON
RISEBench       TREE/MODEL/images/CATEGORY/INDEX.png, sources and reference images below another folder
OmniContext     TREE/MODEL/fullset/TASK/KEY.png, reference images as ORIGINALS/KEY/*.png
PICABench       TREE/INPUT_PATH and TREE/OUTPUT_PATH, as its meta_info.json names them, which holds the questions too

In all of these the instructions come from the benchmark's own data, which decides what there is to judge: an image that
a model did not produce stays a row. One tree may hold one model, or a folder for each.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any

from editjudge.edit import IMAGE_ROLES
from editjudge.errors import ManifestError
from editjudge.files import read_jsonl
from editjudge.manifest.reader import LineError, Reader, Row, csv_rows, jsonl

# --- a folder a model -----------------------------------------------------------------------------------------

_SUFFIXES = ".png .jpg .jpeg .webp .gif .bmp .tif .tiff .heic .heif".split()
_MANIFESTS = (".jsonl", ".ndjson", ".json", ".csv")
_SHARED = ("input", "ground_truth", "mask")
"""Folders beside those of the models."""


def folder_rows(root: Path, reader: Reader) -> Iterator[Row]:
    """Yield a row for each input and model, and an error for each image that belongs to no input."""
    folders = {
        entry.name: _images_in(entry)
        for entry in sorted(root.iterdir())
        if entry.is_dir() and not entry.name.startswith((".", "_"))
    }
    shared = {role: folders[role] for role in _SHARED if role in folders}
    models = {name: files for name, files in folders.items() if name not in _SHARED}
    inputs = shared.get("input", {})
    manifest = _manifest_in(root)
    if not inputs or not models or (manifest and not any(models.values())):
        expected = 'expected "input" with pictures in it, and a folder for each model with its pictures'
        if manifest:
            raise ManifestError(
                f"{reader.place}: is not laid out as a manifest, but holds one: name {manifest} instead ({expected})"
            )
        raise ManifestError(
            f"{reader.place}: found the folders {list(folders)!r:.200}; {expected}"
        )
    if manifest:
        reader.notify(
            f"{reader.place}: read as a folder for each model; to read the manifest in it, name {manifest}"
        )
    for folder, files in {**models, **shared}.items():
        for strange in sorted(files.keys() - inputs.keys()):
            message = f"{folder}/{files[strange]} has no picture of that name in input"
            yield 0, reader.wrong(0, "input", message)
    instructions = _Instructions(root, reader, inputs)
    yield from instructions.problems
    for number, (name, model) in enumerate(product(sorted(inputs), models), 1):
        row = {
            "id": f"{model}/{name}",
            "model": model,
            "edited": None,
            **instructions.rows.get(name, {}),
        }
        for role, files in shared.items():
            if name in files:
                row[role] = f"{role}/{files[name]}"
        if name in models[model]:
            row["edited"] = f"{model}/{models[model][name]}"
        yield number, row


def _manifest_in(root: Path) -> Path | None:
    """Return a file that begins as a manifest does, which ratings and scores beside it do not."""
    for path in sorted(root.iterdir()):
        if path.suffix.lower() in _MANIFESTS and path.is_file():
            with path.open("rb") as file:
                head = file.read(4096)
            if b"input" in head and b"edited" in head:
                return path
    return None


def _images_in(folder: Path) -> dict[str, str]:
    """Return the image files of a folder, by name without extension."""
    files: dict[str, str] = {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix.lower() in _SUFFIXES and not name.startswith("."):
            if name in files:
                raise ManifestError(
                    f"{folder}: found {files[name]} and {file}; expected one picture a name"
                )
            files[name] = file
    return files


class _Instructions:
    """Rows of a folder's instructions file, by name, and what is wrong with it."""

    def __init__(self, root: Path, reader: Reader, inputs: Mapping[str, str]) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.problems: list[Row] = []
        self._inputs = inputs
        names = ("instructions.csv", "instructions.jsonl")
        files = [root / name for name in names if (root / name).exists()]
        if not files:
            reader.notify(
                f"{reader.place}: no instructions.csv or instructions.jsonl; every instruction is empty"
            )
        elif len(files) == 2:
            raise ManifestError(
                f"{reader.place}: found instructions.csv and instructions.jsonl; expected one of them"
            )
        else:
            self._read(files[0])

    def _read(self, path: Path) -> None:
        reader = Reader(path)
        rows = csv_rows if path.suffix == ".csv" else jsonl
        for line, row in rows(path, reader):
            try:
                if isinstance(row, LineError):
                    raise row
                self._add(line, row, reader)
            except LineError as error:
                self.problems.append((line, error))
        for name in sorted(self._inputs.keys() - self.rows.keys()):
            message = f"no line for input/{self._inputs[name]}"
            self.problems.append((0, reader.wrong(0, "name", message)))

    def _add(self, line: int, row: dict[str, Any], reader: Reader) -> None:
        text = str(row.pop("name", None) or "")
        name = text if text in self._inputs else os.path.splitext(text)[0]
        if name not in self._inputs:
            message = f"found {text!r}, expected the name of a picture in input"
            raise reader.wrong(line, "name", message)
        if name in self.rows:
            message = f"found {text!r} a second time, expected one line a picture"
            raise reader.wrong(line, "name", message)
        if taken := row.keys() & {"id", "model", *IMAGE_ROLES}:
            message = "the folders say this; leave the field out"
            raise reader.wrong(line, min(taken), message)
        if not isinstance(row.get("instruction"), str):
            message = f"found {row.get('instruction')!r:.80}, expected text"
            raise reader.wrong(line, "instruction", message)
        self.rows[name] = row


# --- results of other benchmarks ------------------------------------------------------------------------------

ResultRow = dict[str, Any]
"""A row of a manifest, its images as paths."""
Fact = Mapping[str, Any]
"""Entry of a benchmark's list of edits: `key`, the instruction, its kind."""


def gedit(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit, in those languages that any model has images of."""
    models = _models(
        tree, lambda folder: (folder / "fullset").is_dir(), "a folder `fullset`"
    )
    facts = list(facts)

    def folder_of(fact: Fact) -> Path:
        language = _field(fact, "instruction_language")
        return Path("fullset", _field(fact, "task_type"), language)

    present = {
        folder
        for folder in {folder_of(fact) for fact in facts}
        if any((model / folder).is_dir() for model in models.values())
    }
    for (name, model), fact in product(models.items(), facts):
        folder = folder_of(fact)
        if folder not in present:
            continue
        key = _field(fact, "key")
        # Every model keeps a copy of the source; if one has not, another's is the same image.
        copies = [m / folder / f"{key}_SRCIMG.png" for m in (model, *models.values())]
        source = next((copy for copy in copies if copy.exists()), copies[0])
        if originals:
            source = originals / f"{key}.png"
        yield {
            "id": f"{name}/{folder.name}/{key}",
            "input": source,
            "edited": model / folder / f"{key}.png",
            "instruction": _field(fact, "instruction"),
            "model": name,
            "edit_type": _field(fact, "task_type"),
            "language": folder.name,
        }


def imgedit(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit."""
    originals = _required(
        originals,
        "ImgEdit-Bench keeps its sources apart: name their folder with --originals",
    )
    facts = list(facts)
    keys = {_field(fact, "key") for fact in facts}
    models = _models(
        tree,
        lambda folder: any(path.stem in keys for path in folder.iterdir()),
        "a picture named by a key",
    )
    for (name, model), fact in product(models.items(), facts):
        key = _field(fact, "key")
        yield {
            "id": f"{name}/{key}",
            "input": originals / _field(fact, "id"),
            "edited": _image(model, key),
            "instruction": _field(fact, "prompt"),
            "model": name,
            "edit_type": _field(fact, "edit_type"),
        }


_RISE_TEXTS = (
    "reference",
    "reference_txt",
    "subtask",
    "consistency_free",
    "reasoning_img",
    "reasoning_wo_ins",
)


def risebench(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit, with the reference of its answer: a text or an image."""
    originals = _required(
        originals,
        "RISEBench keeps its sources apart: name their folder (`data`) with --originals",
    )
    models = _models(
        tree, lambda folder: (folder / "images").is_dir(), "a folder `images`"
    )
    for (name, model), fact in product(models.items(), facts):
        index = _field(fact, "index")
        category = _field(fact, "category")
        row: ResultRow = {
            "id": f"{name}/{index}",
            "input": originals / _field(fact, "image"),
            "edited": _image(model / "images" / category, index),
            "instruction": _field(fact, "instruction"),
            "model": name,
            "edit_type": category,
        }
        row |= {key: str(fact[key]) for key in _RISE_TEXTS if _has(fact, key)}
        if _has(fact, "reference_img"):
            row["ground_truth"] = originals / _field(fact, "reference_img")
        yield row


def omnicontext(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit; the first reference image is the input, by which edits are grouped."""
    originals = _required(
        originals,
        "OmniContext's reference pictures are in its data set: save them as ORIGINALS/KEY/1.png ...",
    )
    models = _models(
        tree, lambda folder: (folder / "fullset").is_dir(), "a folder `fullset`"
    )
    for (name, model), fact in product(models.items(), facts):
        key = _field(fact, "key")
        task = _field(fact, "task_type")
        references = sorted(p for p in (originals / key).glob("*") if p.is_file())
        if not references:
            raise ManifestError(
                f"{originals / key}: no reference pictures; save those of the data set there"
            )
        yield {
            "id": f"{name}/{key}",
            "input": references[0],
            "edited": model / "fullset" / task / f"{key}.png",
            "instruction": _field(fact, "instruction"),
            "model": name,
            "edit_type": task,
            "references": references,
            "task_type": task,
        }


def picabench(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each edit, with its questions in `checks`."""
    name = tree.resolve().name
    for fact in facts:
        index = _field(fact, "index")
        row: ResultRow = {
            "id": f"{name}/{index}",
            "input": (originals or tree) / _field(fact, "input_path"),
        }
        if _has(fact, "output_path"):
            row["edited"] = tree / _field(fact, "output_path")
        yield row | {
            "instruction": _field(fact, "edit_instruction"),
            "model": name,
            "edit_type": _field(fact, "physics_category"),
            "physics_law": _field(fact, "physics_law"),
            "edit_operation": _field(fact, "edit_operation"),
            "checks": [
                _check(check, index)
                for check in _flattened(fact.get("annotated_qa_pairs"))
            ],
        }


def _check(check: Any, index: str) -> dict[str, Any]:
    box = check.get("box") if isinstance(check, dict) else None
    sides = []
    if isinstance(box, dict):
        sides = [box.get(side) for side in ("x", "y", "width", "height")]
    if not sides or not all(isinstance(side, int | float) for side in sides):
        raise ManifestError(
            f"edit {index}: a question without a box of x, y, width and height: {str(check)[:200]}"
        )
    return {
        "question": _field(check, "question"),
        "answer": _field(check, "answer"),
        "box": sides,
    }


def _flattened(value: Any) -> list[Any]:
    """Return a list, or the lists of an object by kind, as one."""
    if isinstance(value, dict):
        return list(chain.from_iterable(map(_flattened, value.values())))
    return value if isinstance(value, list) else []


LAYOUTS: Mapping[
    str, Callable[[Path, Iterable[Fact], Path | None], Iterator[ResultRow]]
] = {
    "gedit": gedit,
    "imgedit": imgedit,
    "risebench": risebench,
    "omnicontext": omnicontext,
    "picabench": picabench,
}


def _models(tree: Path, holds: Callable[[Path], bool], what: str) -> dict[str, Path]:
    """Return the folder of each model, by name: the tree itself, or those in it."""
    if not tree.is_dir():
        raise ManifestError(f"{tree}: no such folder")
    if holds(tree):
        return {tree.resolve().name: tree}
    folders = (folder for folder in sorted(tree.iterdir()) if folder.is_dir())
    models = {folder.name: folder for folder in folders if holds(folder)}
    if not models:
        raise ManifestError(
            f"{tree}: neither it nor a folder in it holds {what}; is this another layout?"
        )
    return models


def _required(originals: Path | None, message: str) -> Path:
    if originals is None:
        raise ManifestError(message)
    return originals


def _image(folder: Path, name: str) -> Path:
    """Return the image of this name, whatever its format; as a PNG if there is none."""
    return min(folder.glob(f"{name}.*"), default=folder / f"{name}.png")


def _has(fact: Fact, name: str) -> bool:
    value = fact.get(name)
    return value not in (None, "", False) and str(value) != "nan"


_FREE_TEXT = ("instruction", "prompt", "edit_instruction", "question", "answer")


def _field(fact: Fact, name: str) -> str:
    """Return a field that is required; a key or kind becomes part of a path, so it may not lead out of the tree."""
    value = fact.get(name)
    if not isinstance(value, str | int) or value == "":
        raise ManifestError(
            f"an edit of the benchmark has no `{name}`: {str(dict(fact))[:200]}"
        )
    text = str(value)
    path = Path(text)
    leads_out = path.is_absolute() or ".." in path.parts or "\0" in text
    if leads_out and name not in _FREE_TEXT:
        raise ManifestError(f"`{name}` is {text[:200]!r}, which leads out of the tree")
    return text


def read_facts(path: Path) -> list[dict[str, Any]]:
    """Read a benchmark's own list of edits: JSON (a list, or objects by key), JSONL, CSV or Parquet."""
    try:
        if path.suffix == ".parquet" or path.is_dir():
            return _parquet(path)
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        facts: Any
        if path.suffix in (".jsonl", ".ndjson"):
            facts = [value for _, value in read_jsonl(path)]
        else:
            facts = json.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise _not_a_list(path, reason) from None
    except ValueError as error:
        raise _not_a_list(path, error) from None
    if isinstance(facts, dict):
        facts = [
            {"key": key, **value} if isinstance(value, dict) else value
            for key, value in facts.items()
        ]
    if not isinstance(facts, list) or not all(isinstance(fact, dict) for fact in facts):
        raise ManifestError(f"{path}: expected a list of objects, or objects by key")
    return facts


def _not_a_list(path: Path, reason: object) -> ManifestError:
    return ManifestError(f"{path}: cannot be read as a list of edits: {reason}")


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import dataset
    except ImportError:
        raise ManifestError(
            f"{path}: Parquet needs the extra: pip install 'editjudge[parquet]'"
        ) from None
    table = dataset.dataset(path, format="parquet")
    # Everything but images, which a list of edits may hold as bytes.
    heavy = ("binary", "large_binary", "struct", "list")
    columns = [f.name for f in table.schema if not str(f.type).startswith(heavy)]
    rows: list[dict[str, Any]] = table.to_table(columns).to_pylist()
    return rows


def relative(row: ResultRow, folder: Path) -> tuple[ResultRow, bool]:
    """Return the row with paths as a manifest in `folder` names them, and whether one of them leads out of it."""
    folder = folder.resolve()
    outside = False

    def named(path: Path) -> str:
        nonlocal outside
        path = path.resolve()
        outside |= not path.is_relative_to(folder)
        return Path(os.path.relpath(path, folder)).as_posix()

    written = dict(row)
    for role, value in row.items():
        if isinstance(value, Path):
            written[role] = named(value)
        elif isinstance(value, list) and value and isinstance(value[0], Path):
            written[role] = [named(path) for path in value]
    return written, outside
