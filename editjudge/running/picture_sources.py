"""The pictures of a run that is in a store: where they lie, and which of them may be shown."""

from __future__ import annotations

from pathlib import Path

from editjudge.errors import ImageError
from editjudge.media.source import confine, is_url, name_of, read
from editjudge.store.records import Item, RunRecord

_ELSEWHERE = "an imported run shows pictures of its own folder alone, or of the one that `import-run --pictures` names"


def root_of(run: RunRecord) -> Path | None:
    """The folder that a run's pictures lie below: of an imported run the one it was imported from, whatever its spec,
    which somebody else wrote, says. None where a run of our own was allowed to read elsewhere."""
    if run.imported_from is not None:
        return Path(run.imported_from)
    if run.spec.get("allow_outside"):
        return None
    manifest = Path(str(run.spec.get("manifest", "")))
    return manifest if manifest.is_dir() else manifest.parent


def picture_path(run: RunRecord, item: Item, role: str) -> Path:
    """The file of a picture, if it lies where pictures of the run may lie."""
    source = item.images.get(role, {}).get("source")
    if source is None:
        raise ImageError(f"the edit has no {role.replace('_', ' ')} picture")
    if source in ("data: URL", "picture given as bytes"):
        raise ImageError("came inside the manifest, and is not kept in the store")
    if is_url(source):
        raise ImageError("lies at an address, and nothing is fetched from there")
    if run.imported_from is None and not isinstance(run.spec.get("manifest"), str):
        raise ImageError("the run does not say where its pictures are")
    if not Path(source).is_absolute():
        raise ImageError(f"{name_of(source)}: the picture was not kept as a file")
    root = root_of(run)
    if root is not None:
        try:
            confine(source, root)
        except (OSError, ValueError) as error:
            raise ImageError(f"{name_of(source)}: cannot be read: {error}") from None
        except ImageError as error:
            raise ImageError(
                f"{error}; {_ELSEWHERE}"
                if run.imported_from is not None
                else str(error)
            ) from None
    return Path(source)


def picture_of(run: RunRecord, item: Item, role: str) -> bytes:
    """A picture of an edit, encoded as its file is."""
    return read(picture_path(run, item, role), root=root_of(run))
