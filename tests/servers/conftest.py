"""Models and servers that the tests of this folder share; each is made once, and only where a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "xllamacpp", reason="the wheel of xllamacpp (extra `local`) is not installed here"
)
pytest.importorskip("gguf", reason="the wheel of gguf is not installed here")

from bench.recorded_server import serve
from bench.servers import write_models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder


def _files(folder: Path) -> tuple[Path, Path]:
    return folder / "tiny.gguf", folder / "mmproj-tiny.gguf"


@pytest.fixture(scope="session")
def tiny_server(models: Path) -> Iterator[str]:
    with serve(*_files(models / "tiny"), context=16_384) as address:
        yield address


@pytest.fixture
def never_server(models: Path) -> Iterator[str]:
    """One for each test: it goes on with an answer after its client has hung up."""
    with serve(*_files(models / "never"), context=16_384) as address:
        yield address


@pytest.fixture(scope="session")
def no_text_server(models: Path) -> Iterator[str]:
    with serve(*_files(models / "no_text"), context=16_384) as address:
        yield address


@pytest.fixture(scope="session")
def small_server(models: Path) -> Iterator[str]:
    with serve(*_files(models / "tiny"), context=1_024) as address:
        yield address


@pytest.fixture(scope="session")
def blind_server(models: Path) -> Iterator[str]:
    with serve(models / "tiny" / "tiny.gguf", "", context=16_384) as address:
        yield address
