"""Results as other benchmarks lay them out in folders, as rows of a manifest.

GEdit-Bench     TREE/MODEL/fullset/TASK/LANGUAGE/KEY.png, the source beside it as KEY_SRCIMG.png
ImgEdit-Bench   TREE/MODEL/KEY.png, sources below another folder under the `id` of the benchmark's JSON
RISEBench       TREE/MODEL/images/CATEGORY/INDEX.png, sources and reference pictures below another folder
OmniContext     TREE/MODEL/fullset/TASK/KEY.png, reference pictures as ORIGINALS/KEY/*.png
PICABench       TREE/INPUT_PATH and TREE/OUTPUT_PATH, as its meta_info.json names them, which holds the questions too

In all of them the instructions come from the benchmark's own data, which decides what there is to judge: a picture that
a model did not produce stays a row. One tree may hold one model, or a folder for each.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from editjudge.errors import ManifestError
from editjudge.files import read_jsonl

Row = dict[str, Any]
Fact = Mapping[str, Any]
"""What a benchmark says of one edit: `key`, the instruction, its kind."""


def gedit(tree: Path, facts: Iterable[Fact], originals: Path | None = None) -> Iterator[Row]:
    """A row for each model and edit, in those languages that any model has pictures of."""
    models = _models(tree, lambda folder: (folder / "fullset").is_dir(), "a folder `fullset`")
    places = [(fact, Path("fullset", _word(fact, "task_type"), _word(fact, "instruction_language"))) for fact in facts]
    present = {place for _, place in places if any((model / place).is_dir() for model in models.values())}
    for name, model in models.items():
        for fact, place in places:
            if place not in present:
                continue
            key = _word(fact, "key")
            # Every model keeps a copy of the source; where one has not, another's is the same picture.
            copies = [folder / place / f"{key}_SRCIMG.png" for folder in (model, *models.values())]
            source = next((copy for copy in copies if copy.exists()), copies[0])
            source, output = originals / f"{key}.png" if originals else source, model / place / f"{key}.png"
            row = _row(
                name, f"{place.name}/{key}", source, output, _word(fact, "instruction"), _word(fact, "task_type")
            )
            yield row | {"language": place.name}


def imgedit(tree: Path, facts: Iterable[Fact], originals: Path | None = None) -> Iterator[Row]:
    """A row for each model and edit."""
    originals = _required(originals, "ImgEdit-Bench keeps its sources apart: name their folder with --originals")
    facts = list(facts)
    keys = {_word(fact, "key") for fact in facts}
    models = _models(tree, lambda folder: any(p.stem in keys for p in folder.iterdir()), "a picture named by a key")
    for (name, model), fact in itertools.product(models.items(), facts):
        key = _word(fact, "key")
        source, output = originals / _word(fact, "id"), _picture(model, key)
        yield _row(name, key, source, output, _word(fact, "prompt"), _word(fact, "edit_type"))


def risebench(tree: Path, facts: Iterable[Fact], originals: Path | None = None) -> Iterator[Row]:
    """A row for each model and edit, with what its answer is held against: a text or a picture."""
    originals = _required(originals, "RISEBench keeps its sources apart: name their folder (`data`) with --originals")
    models = _models(tree, lambda folder: (folder / "images").is_dir(), "a folder `images`")
    texts = ("reference", "reference_txt", "subtask", "consistency_free", "reasoning_img", "reasoning_wo_ins")
    for (name, model), fact in itertools.product(models.items(), facts):
        index, category = _word(fact, "index"), _word(fact, "category")
        output = _picture(model / "images" / category, index)
        row = _row(name, index, originals / _word(fact, "image"), output, _word(fact, "instruction"), category)
        row |= {key: str(fact[key]) for key in texts if _given(fact.get(key))}
        if _given(fact.get("reference_img")):
            row["ground_truth"] = originals / _word(fact, "reference_img")
        yield row


def omnicontext(tree: Path, facts: Iterable[Fact], originals: Path | None = None) -> Iterator[Row]:
    """A row for each model and edit; the first reference picture is the input, by which edits are grouped."""
    needed = "OmniContext's reference pictures are in its data set: save them as ORIGINALS/KEY/1.png ..."
    originals = _required(originals, needed)
    models = _models(tree, lambda folder: (folder / "fullset").is_dir(), "a folder `fullset`")
    for (name, model), fact in itertools.product(models.items(), facts):
        key, task = _word(fact, "key"), _word(fact, "task_type")
        references = sorted(path for path in (originals / key).glob("*") if path.is_file())
        if not references:
            raise ManifestError(f"{originals / key}: no reference pictures; save those of the data set there")
        output = model / "fullset" / task / f"{key}.png"
        row = _row(name, key, references[0], output, _word(fact, "instruction"), task)
        yield row | {"references": references, "task_type": task}


def picabench(tree: Path, facts: Iterable[Fact], originals: Path | None = None) -> Iterator[Row]:
    """A row for each edit, with its questions in `checks`."""
    root, name = originals or tree, tree.resolve().name
    for fact in facts:
        index = _word(fact, "index")
        output = tree / _word(fact, "output_path") if _given(fact.get("output_path")) else None
        source, category = root / _word(fact, "input_path"), _word(fact, "physics_category")
        row = _row(name, index, source, output, _word(fact, "edit_instruction"), category)
        row |= {key: _word(fact, key) for key in ("physics_law", "edit_operation")}
        yield row | {"checks": [_check(check, index) for check in _list(fact.get("annotated_qa_pairs"))]}


def _row(model: str, key: str, source: Path, output: Path | None, instruction: str, kind: str) -> Row:
    row: Row = {"id": f"{model}/{key}", "input": source, "edited": output, "instruction": instruction}
    row |= {"model": model, "edit_type": kind}
    return row if output else {name: value for name, value in row.items() if name != "edited"}


def _required(originals: Path | None, message: str) -> Path:
    if originals is None:
        raise ManifestError(message)
    return originals


def _picture(folder: Path, name: str) -> Path:
    """The picture of this name, whatever its format; as a PNG where there is none."""
    return next(iter(sorted(folder.glob(f"{name}.*"))), folder / f"{name}.png")


def _check(check: Any, index: str) -> dict[str, Any]:
    box = check.get("box") if isinstance(check, dict) else None
    sides = [box.get(side) for side in ("x", "y", "width", "height")] if isinstance(box, dict) else []
    if not sides or not all(isinstance(side, int | float) for side in sides):
        raise ManifestError(f"edit {index}: a question without a box of x, y, width and height: {str(check)[:200]}")
    return {"question": _word(check, "question"), "answer": _word(check, "answer"), "box": sides}


def _list(value: Any) -> list[Any]:
    """A list, or the lists of an object by kind, as one."""
    if isinstance(value, dict):
        return [one for some in value.values() for one in _list(some)]
    return value if isinstance(value, list) else []


def _given(value: Any) -> bool:
    return value not in (None, "", False) and str(value) != "nan"


LAYOUTS: Mapping[str, Callable[[Path, Iterable[Fact], Path | None], Iterator[Row]]] = {
    "gedit": gedit,
    "imgedit": imgedit,
    "risebench": risebench,
    "omnicontext": omnicontext,
    "picabench": picabench,
}


def read_facts(path: Path) -> list[dict[str, Any]]:
    """A benchmark's own list of edits: JSON (a list, or objects by key), JSONL, CSV or Parquet."""
    try:
        if path.suffix == ".parquet" or path.is_dir():
            return _parquet(path)
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                return list(csv.DictReader(file))
            if path.suffix in (".jsonl", ".ndjson"):
                facts: Any = [value for _, value in read_jsonl(path)]
            else:
                facts = json.load(file)
    except (OSError, ValueError) as error:
        raise ManifestError(
            f"{path}: cannot be read as a list of edits: {getattr(error, 'strerror', None) or error}"
        ) from None
    if isinstance(facts, dict):
        facts = [{"key": key, **value} if isinstance(value, dict) else value for key, value in facts.items()]
    if not isinstance(facts, list) or not all(isinstance(fact, dict) for fact in facts):
        raise ManifestError(f"{path}: expected a list of objects, or objects by key")
    return facts


def relative(row: Row, folder: Path) -> tuple[Row, bool]:
    """The row with paths as a manifest in `folder` names them, and whether one of them leads out of it."""
    folder, outside, written = folder.resolve(), False, dict(row)
    for role, value in row.items():
        several = isinstance(value, list)
        paths = [path for path in (value if several else [value]) if isinstance(path, Path)]
        outside |= any(not path.resolve().is_relative_to(folder) for path in paths)
        names = [Path(os.path.relpath(path.resolve(), folder)).as_posix() for path in paths]
        if names:
            written[role] = names if several else names[0]
    return written, outside


def _models(tree: Path, holds: Callable[[Path], bool], what: str) -> dict[str, Path]:
    if not tree.is_dir():
        raise ManifestError(f"{tree}: no such folder")
    if holds(tree):
        return {tree.resolve().name: tree}
    models = {folder.name: folder for folder in sorted(tree.iterdir()) if folder.is_dir() and holds(folder)}
    if not models:
        raise ManifestError(f"{tree}: neither it nor a folder in it holds {what}; is this another layout?")
    return models


_FREE_TEXT = ("instruction", "prompt", "edit_instruction", "question", "answer")


def _word(fact: Fact, name: str) -> str:
    """A field that must be there; a key or kind becomes part of a path, so it may not lead anywhere else."""
    value = fact.get(name)
    if not isinstance(value, str | int) or value == "":
        raise ManifestError(f"an edit of the benchmark has no `{name}`: {str(dict(fact))[:200]}")
    text = str(value)
    if name not in _FREE_TEXT and (".." in Path(text).parts or Path(text).is_absolute() or "\0" in text):
        raise ManifestError(f"`{name}` is {text[:200]!r}, which leads out of the tree")
    return text


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        from pyarrow import dataset
    except ImportError:
        raise ManifestError(f"{path}: Parquet needs the extra: pip install 'editjudge[parquet]'") from None
    table = dataset.dataset(path, format="parquet")
    # Everything but pictures, which a list of edits may hold as bytes.
    heavy = ("binary", "large_binary", "struct", "list")
    rows: list[dict[str, Any]] = table.to_table(
        [f.name for f in table.schema if not str(f.type).startswith(heavy)]
    ).to_pylist()
    return rows
