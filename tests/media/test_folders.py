"""Files are opened below a folder and nowhere else, whatever links lead out of it and whatever is moved meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from editjudge.files import LeavesFolder
from editjudge.media.source import ConfinedFolder


def content(folder: ConfinedFolder, path: Path) -> bytes:
    with open(folder.open(path), "rb") as file:
        return file.read()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.png").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "a.png").write_bytes(b"top")
    (root / "deep" / "er" / "a.png").write_bytes(b"deep")
    return root


def test_files_below_the_folder_are_opened_also_by_links_that_stay_inside(
    root: Path,
) -> None:
    (root / "link").symlink_to("deep/er")
    (root / "deep" / "file.png").symlink_to("../a.png")
    folder = ConfinedFolder(root)
    for path, expected in (
        ("a.png", b"top"),
        ("link/a.png", b"deep"),
        ("deep/file.png", b"top"),
    ):
        assert content(folder, root / path) == expected
    assert content(folder, root / "deep" / ".." / "a.png") == b"top"


def test_a_root_that_is_itself_a_link_is_a_root(root: Path) -> None:
    (root.parent / "alias").symlink_to("root")
    assert (
        content(ConfinedFolder(root.parent / "alias"), root.parent / "alias" / "a.png")
        == b"top"
    )


@pytest.mark.parametrize(
    "way",
    [
        "../secret/a.png",
        "up/secret/a.png",
        "file.png",
        "out/a.png",
        "link/../secret/a.png",
    ],
)
def test_no_way_leads_out(root: Path, way: str) -> None:
    (root / "up").symlink_to("..")
    (root / "file.png").symlink_to("../secret/a.png")
    (root / "out").symlink_to(root.parent / "secret")
    (root / "link").symlink_to("..")  # so that `link/..` is the parent of the parent
    with pytest.raises((LeavesFolder, FileNotFoundError)):
        ConfinedFolder(root).open(root / way)


def test_a_folder_that_becomes_a_link_after_it_was_resolved_leads_nowhere_else(
    root: Path,
) -> None:
    folder = ConfinedFolder(root)
    assert content(folder, root / "deep" / "er" / "a.png") == b"deep"
    (root / "deep").rename(root / "moved")
    (root / "deep").symlink_to(root.parent)
    (root.parent / "er").symlink_to("secret")
    # the folder that was opened
    assert content(folder, root / "deep" / "er" / "a.png") == b"deep"
    with pytest.raises(LeavesFolder):
        ConfinedFolder(root).open(root / "deep" / "er" / "a.png")


def test_a_folder_put_in_the_place_of_another_is_found(root: Path) -> None:
    folder = ConfinedFolder(root)
    assert content(folder, root / "deep" / "er" / "a.png") == b"deep"
    (root / "deep").rename(root / "old")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "b.png").write_bytes(b"new")
    assert content(folder, root / "deep" / "er" / "b.png") == b"new"
    with pytest.raises(FileNotFoundError):
        folder.open(root / "deep" / "er" / "none.png")


def test_few_folders_stay_open_however_many_are_used(root: Path) -> None:
    folder = ConfinedFolder(root)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        (root / str(number)).mkdir()
        (root / str(number) / "a.png").write_bytes(str(number).encode())

    def read_all() -> None:
        for number in range(300):
            assert content(folder, root / str(number) / "a.png") == str(number).encode()

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read_all()
    assert len(os.listdir("/proc/self/fd")) - before <= 65
