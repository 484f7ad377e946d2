"""Rows that are read from folders: a folder for each model, or the result folders of other benchmarks.

GEdit-Bench     TREE/MODEL/fullset/TASK/LANGUAGE/KEY.png, with the source next to it as KEY_SRCIMG.png
ImgEdit-Bench   TREE/MODEL/KEY.png, with sources in another folder, named by the `id` in the benchmark's JSON
RISEBench       TREE/MODEL/images/CATEGORY/INDEX.png, with sources and reference images in another folder
OmniContext     TREE/MODEL/fullset/TASK/KEY.png, with reference images as ORIGINALS/KEY/*.png
PICABench       TREE/INPUT_PATH and TREE/OUTPUT_PATH from its meta_info.json, which also has the questions

The benchmark's data defines the rows and their instructions, so an image that a model did not produce still has a row.
A tree is either one model's folder or contains a folder for each model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any

from editjudge.edit import IMAGE_ROLES
from editjudge.errors import ManifestError
from editjudge.manifest.reader import LineError, Reader, Row, csv_rows, jsonl
from editjudge.manifest.tables import typed_rows

# --- a folder for each model ----------------------------------------------------------------------------------

_SUFFIXES = ".png .jpg .jpeg .webp .gif .bmp .tif .tiff .heic .heif".split()
_MANIFESTS = (".jsonl", ".ndjson", ".json", ".csv")
_SHARED = ("input", "ground_truth", "mask")
"""Folders that do not belong to a model."""


def folder_rows(root: Path, reader: Reader) -> Iterator[Row]:
    """Yield a row for each input and model, and an error for each image that has no input."""
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
        expected = 'expected a folder "input" with images, and a folder of images for each model'
        if manifest:
            raise ManifestError(
                f"{reader.name}: is not a manifest itself, but contains one: name {manifest} instead ({expected})",
                code="folder_with_a_manifest",
            )
        raise ManifestError(
            f"{reader.name}: found the folders {list(folders)!r:.200}; {expected}",
            code="no_input_folder",
        )
    if manifest:
        reader.notify(
            f"{reader.name}: read as a folder for each model; to read the manifest in it, name {manifest}"
        )
    for folder, files in {**models, **shared}.items():
        for strange in sorted(files.keys() - inputs.keys()):
            message = (
                f"{folder}/{files[strange]} has no image of the same name in input"
            )
            yield 0, reader.wrong(0, "input", message)
    instructions, problems = _instructions(root, reader, inputs)
    yield from problems
    for number, (name, model) in enumerate(product(sorted(inputs), models), 1):
        row = {
            "id": f"{model}/{name}",
            "model": model,
            "edited": None,
            **instructions.get(name, {}),
        }
        for role, files in shared.items():
            if name in files:
                row[role] = f"{role}/{files[name]}"
        if name in models[model]:
            row["edited"] = f"{model}/{models[model][name]}"
        yield number, row


def _manifest_in(root: Path) -> Path | None:
    """Return a file that begins like a manifest, or None if there is none. Files with ratings or scores are ignored."""
    for path in sorted(root.iterdir()):
        if path.suffix.lower() in _MANIFESTS and path.is_file():
            with path.open("rb") as file:
                head = file.read(4096)
            if b"input" in head and b"edited" in head:
                return path
    return None


def _images_in(folder: Path) -> dict[str, str]:
    """Return the image files in a folder, keyed by name without extension."""
    files: dict[str, str] = {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix.lower() in _SUFFIXES and not name.startswith("."):
            if name in files:
                raise ManifestError(
                    f"{folder}: found {files[name]} and {file}; expected one image for each name",
                    code="two_images_of_one_name",
                )
            files[name] = file
    return files


def _instructions(
    root: Path, reader: Reader, inputs: Mapping[str, str]
) -> tuple[dict[str, dict[str, object]], list[Row]]:
    """Return the rows of a folder's instructions file, keyed by image name, and the errors in it."""
    names = ("instructions.csv", "instructions.jsonl")
    files = [root / name for name in names if (root / name).exists()]
    if not files:
        reader.notify(
            f"{reader.name}: no instructions.csv or instructions.jsonl; every instruction is empty"
        )
        return {}, []
    if len(files) == 2:
        raise ManifestError(
            f"{reader.name}: found instructions.csv and instructions.jsonl; expected one of them"
        )
    path = files[0]
    reader = Reader(path)
    rows: dict[str, dict[str, object]] = {}
    problems: list[Row] = []
    for line, row in (csv_rows if path.suffix == ".csv" else jsonl)(path, reader):
        if isinstance(row, LineError):
            problems.append((line, row))
            continue
        text = str(row.pop("name", None) or "")
        name = text if text in inputs else os.path.splitext(text)[0]
        wrong: tuple[str, str] | None = None
        if name not in inputs:
            wrong = ("name", f"found {text!r}, expected the name of an image in input")
        elif name in rows:
            wrong = (
                "name",
                f"found {text!r} a second time, expected one line for each image",
            )
        elif taken := row.keys() & {"id", "model", *IMAGE_ROLES}:
            wrong = (
                min(taken),
                "the names of the folders define this field; leave it out",
            )
        elif not isinstance(row.get("instruction"), str):
            wrong = (
                "instruction",
                f"found {row.get('instruction')!r:.80}, expected text",
            )
        if wrong:
            problems.append((line, reader.wrong(line, *wrong)))
        else:
            rows[name] = row
    for name in sorted(inputs.keys() - rows.keys()):
        message = f"no line for input/{inputs[name]}"
        problems.append((0, reader.wrong(0, "name", message)))
    return rows, problems


# --- results of other benchmarks ------------------------------------------------------------------------------

ResultRow = dict[str, Any]
"""A row of a manifest, with images as paths."""
Fact = Mapping[str, object]
"""An entry of a benchmark's list of edits: key, instruction and edit type."""


def gedit(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit, in every language for which any model has images."""
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
        # Every model has a copy of the source image. If one is missing, another model's copy is the same.
        copies = [m / folder / f"{key}_SRCIMG.png" for m in (model, *models.values())]
        source = next((copy for copy in copies if copy.exists()), copies[0])
        if originals:
            source = originals / f"{key}.png"
        yield {
            **_row(name, f"{folder.name}/{key}", fact, "instruction", "task_type"),
            "input": source,
            "edited": model / folder / f"{key}.png",
            "language": folder.name,
        }


def _row(model: str, key: str, fact: Fact, instruction: str, kind: str) -> ResultRow:
    """Return all fields of a row except images. `instruction` and `kind` are the names that the benchmark uses for
    these fields.
    """
    return {
        "id": f"{model}/{key}",
        "input": None,
        "edited": None,
        "instruction": _field(fact, instruction),
        "model": model,
        "edit_type": _field(fact, kind),
    }


def imgedit(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit."""
    originals = _required(
        originals,
        "ImgEdit-Bench has its sources in a separate folder: name it with --originals",
    )
    facts = list(facts)
    keys = {_field(fact, "key") for fact in facts}
    models = _models(
        tree,
        lambda folder: any(path.stem in keys for path in folder.iterdir()),
        "an image named by a key",
    )
    for (name, model), fact in product(models.items(), facts):
        key = _field(fact, "key")
        yield {
            **_row(name, key, fact, "prompt", "edit_type"),
            "input": originals / _field(fact, "id"),
            "edited": _image(model, key),
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
    """Yield a row for each model and edit. The reference answer is a text or an image."""
    originals = _required(
        originals,
        "RISEBench has its sources in a separate folder: name it (`data`) with --originals",
    )
    models = _models(
        tree, lambda folder: (folder / "images").is_dir(), "a folder `images`"
    )
    for (name, model), fact in product(models.items(), facts):
        index = _field(fact, "index")
        row = {
            **_row(name, index, fact, "instruction", "category"),
            "input": originals / _field(fact, "image"),
        }
        row["edited"] = _image(model / "images" / row["edit_type"], index)
        row |= {key: str(fact[key]) for key in _RISE_TEXTS if _has(fact, key)}
        if _has(fact, "reference_img"):
            row["ground_truth"] = originals / _field(fact, "reference_img")
        yield row


def omnicontext(
    tree: Path, facts: Iterable[Fact], originals: Path | None = None
) -> Iterator[ResultRow]:
    """Yield a row for each model and edit. The first reference image is the input, and edits with the same input form a
    group.
    """
    originals = _required(
        originals,
        "the reference images of OmniContext are in its data set: save them as ORIGINALS/KEY/1.png ...",
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
                f"{originals / key}: no reference images; save those of the data set there"
            )
        yield {
            **_row(name, key, fact, "instruction", "task_type"),
            "input": references[0],
            "edited": model / "fullset" / task / f"{key}.png",
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
        row = _row(name, index, fact, "edit_instruction", "physics_category")
        row["input"] = (originals or tree) / _field(fact, "input_path")
        if _has(fact, "output_path"):
            row["edited"] = tree / _field(fact, "output_path")
        else:
            del row["edited"]
        yield row | {
            "physics_law": _field(fact, "physics_law"),
            "edit_operation": _field(fact, "edit_operation"),
            "checks": [
                _check(check, index)
                for check in _flattened(fact.get("annotated_qa_pairs"))
            ],
        }


def _check(check: object, index: str) -> dict[str, object]:
    fact = check if isinstance(check, dict) else {}
    box = fact.get("box")
    sides = []
    if isinstance(box, dict):
        sides = [box.get(side) for side in ("x", "y", "width", "height")]
    if not sides or not all(isinstance(side, int | float) for side in sides):
        raise ManifestError(
            f"edit {index}: a question without a box of x, y, width and height: {str(check)[:200]}"
        )
    return {
        "question": _field(fact, "question"),
        "answer": _field(fact, "answer"),
        "box": sides,
    }


def _flattened(value: object) -> list[object]:
    """Return a list unchanged. If the value is an object, join the lists inside it into one."""
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
    """Return each model's folder, keyed by model name: the tree itself, or its subfolders."""
    if not tree.is_dir():
        raise ManifestError(f"{tree}: no such folder")
    if holds(tree):
        return {tree.resolve().name: tree}
    folders = (folder for folder in sorted(tree.iterdir()) if folder.is_dir())
    models = {folder.name: folder for folder in folders if holds(folder)}
    if not models:
        raise ManifestError(
            f"{tree}: neither it nor a folder in it contains {what}; check the name of the layout"
        )
    return models


def _required(originals: Path | None, message: str) -> Path:
    if originals is None:
        raise ManifestError(message)
    return originals


def _image(folder: Path, name: str) -> Path:
    """Return the path of the image with this name, in any format. If there is none, return the path that a PNG would
    have.
    """
    return min(folder.glob(f"{name}.*"), default=folder / f"{name}.png")


def _has(fact: Fact, name: str) -> bool:
    value = fact.get(name)
    return value not in (None, "", False) and str(value) != "nan"


_FREE_TEXT = ("instruction", "prompt", "edit_instruction", "question", "answer")


def _field(fact: Fact, name: str) -> str:
    """Return a required field as a string. Keys and kinds become parts of a path, so they must not lead out of the
    tree.
    """
    value = fact.get(name)
    if not isinstance(value, str | int) or value == "":
        raise ManifestError(
            f"an edit of the benchmark has no `{name}`: {str(dict(fact))[:200]}"
        )
    text = str(value)
    path = Path(text)
    leads_out = path.is_absolute() or ".." in path.parts or "\0" in text
    if leads_out and name not in _FREE_TEXT:
        raise ManifestError(
            f"`{name}` is {text[:200]!r}, which is a path outside the tree"
        )
    return text


def read_facts(path: Path) -> list[Fact]:
    """Read a benchmark's list of edits from JSON (a list, or an object that maps keys to edits), JSONL, CSV or Parquet."""
    facts: Any
    formats = {
        ".jsonl": jsonl,
        ".ndjson": jsonl,
        ".csv": csv_rows,
        ".parquet": typed_rows,
    }
    read = typed_rows if path.is_dir() else formats.get(path.suffix)
    try:
        if read:
            # A list of edits may include images as bytes, which are skipped without a notice.
            reader = Reader(path, notify=lambda _: None)
            rows: list[Fact] = []
            for _, row in read(path, reader):
                if isinstance(row, LineError):
                    raise row
                rows.append(row)
            return rows
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ManifestError(
            f"{path}: cannot be read as a list of edits: {reason}"
        ) from None
    if isinstance(facts, dict):
        facts = [
            {"key": key, **value} if isinstance(value, dict) else value
            for key, value in facts.items()
        ]
    if not isinstance(facts, list) or not all(isinstance(fact, dict) for fact in facts):
        raise ManifestError(f"{path}: expected a list of objects, or objects by key")
    return facts


def relative(row: ResultRow, folder: Path) -> tuple[ResultRow, bool]:
    """Return the row with paths relative to a manifest in `folder`, and whether any of them leads out of that folder."""
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
