"""Rows of a folder with one folder a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from editjudge.edit import IMAGE_ROLES
from editjudge.errors import ManifestError
from editjudge.manifest.reader import LineError, Reader, Row, csv_rows, jsonl

_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif")
_MANIFESTS = (".jsonl", ".ndjson", ".json", ".csv")
_BESIDE = ("input", "ground_truth", "mask")


def folder_rows(root: Path, reader: Reader) -> Iterator[Row]:
    beside = {role: _named(root / role) for role in _BESIDE if (root / role).is_dir()}
    folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_")))
    models = {name: _named(root / name) for name in folders if name not in _BESIDE}
    inputs = beside.get("input", {})
    manifest = _manifest_in(root)
    if not inputs or not models or (manifest and not any(models.values())):
        expected = 'expected "input" with pictures in it, and a folder for each model with its pictures'
        if manifest:
            raise ManifestError(
                f"{reader.place}: is not laid out as a manifest, but holds one: name {manifest} instead ({expected})"
            )
        raise ManifestError(f"{reader.place}: found the folders {folders!r:.200}; {expected}")
    if manifest:
        reader.notify(f"{reader.place}: read as a folder for each model; to read the manifest in it, name {manifest}")
    for name, pictures in {**models, **beside}.items():
        for strange in sorted(pictures.keys() - inputs.keys()):
            message = f"{name}/{pictures[strange]} has no picture of that name in input"
            yield 0, reader.wrong(0, "input", message)
    about = _Instructions(root, reader, inputs)
    yield from about.problems
    for number, (name, model) in enumerate(((name, model) for name in sorted(inputs) for model in models), 1):
        row = {"id": f"{model}/{name}", "model": model, "edited": None, **about.rows.get(name, {})}
        row |= {role: f"{role}/{files[name]}" for role, files in beside.items() if name in files}
        if name in models[model]:
            row["edited"] = f"{model}/{models[model][name]}"
        yield number, row


def _manifest_in(root: Path) -> Path | None:
    """A file that begins as a manifest does, which ratings and scores beside it do not."""
    for path in sorted(path for path in root.iterdir() if path.suffix.lower() in _MANIFESTS and path.is_file()):
        with path.open("rb") as file:
            head = file.read(4096)
        if b"input" in head and b"edited" in head:
            return path
    return None


def _named(folder: Path) -> dict[str, str]:
    """The pictures of a folder, by name without extension."""
    pictures: dict[str, str] = {}
    for file in sorted(os.listdir(folder)):
        name, suffix = os.path.splitext(file)
        if suffix.lower() in _PICTURES and not name.startswith("."):
            if name in pictures:
                raise ManifestError(f"{folder}: found {pictures[name]} and {file}; expected one picture a name")
            pictures[name] = file
    return pictures


class _Instructions:
    """What the instructions file of a folder says, by name, and what is wrong with it."""

    def __init__(self, root: Path, reader: Reader, pictures: Mapping[str, str]) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.problems: list[Row] = []
        self._pictures = pictures
        files = [path for path in (root / "instructions.csv", root / "instructions.jsonl") if path.exists()]
        if not files:
            reader.notify(f"{reader.place}: no instructions.csv or instructions.jsonl; every instruction is empty")
        elif len(files) == 2:
            raise ManifestError(f"{reader.place}: found instructions.csv and instructions.jsonl; expected one of them")
        else:
            self._read(files[0])

    def _read(self, path: Path) -> None:
        reader = Reader(path)
        for line, row in (csv_rows if path.suffix == ".csv" else jsonl)(path, reader):
            try:
                if isinstance(row, LineError):
                    raise row
                self._take(line, row, reader)
            except LineError as error:
                self.problems.append((line, error))
        for name in sorted(self._pictures.keys() - self.rows.keys()):
            self.problems.append((0, reader.wrong(0, "name", f"no line for input/{self._pictures[name]}")))

    def _take(self, line: int, row: dict[str, Any], reader: Reader) -> None:
        given = str(row.pop("name", None) or "")
        name = given if given in self._pictures else os.path.splitext(given)[0]
        if name not in self._pictures:
            raise reader.wrong(line, "name", f"found {given!r}, expected the name of a picture in input")
        if name in self.rows:
            raise reader.wrong(line, "name", f"found {given!r} a second time, expected one line a picture")
        if taken := row.keys() & {"id", "model", *IMAGE_ROLES}:
            raise reader.wrong(line, min(taken), "the folders say this; leave the field out")
        if not isinstance(row.get("instruction"), str):
            raise reader.wrong(line, "instruction", f"found {row.get('instruction')!r:.80}, expected text")
        self.rows[name] = row
