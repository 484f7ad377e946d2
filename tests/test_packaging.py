"""What is installed: a lock that covers all that is asked for, and a wheel that holds all that is needed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from editjudge.cli.doctor import _extras

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOCKS = sorted(
    path.stem
    for path in ROOT.glob("requirements/*.txt")
    if not path.stem.startswith("torch")
)
"""With a hash for every file; that of torch goes by name, since a CPU build has another hash than what an index has."""


def wanted(requirements: list[str]) -> list[Requirement]:
    """Those of others; our own extras are followed to what they name."""
    found = []
    for requirement in map(Requirement, requirements):
        ours = requirement.name == "editjudge"
        found += (
            wanted([name for extra in requirement.extras for name in EXTRAS[extra]])
            if ours
            else [requirement]
        )
    return found


def locked(name: str) -> dict[str, list[tuple[str, int]]]:
    """Versions of each package, and how many hashes each has; some platforms and Pythons have one of their own."""
    pins: dict[str, list[tuple[str, int]]] = {}
    text = re.sub(
        r"^ *#.*\n",
        "",
        (ROOT / "requirements" / f"{name}.txt").read_text("utf-8"),
        flags=re.MULTILINE,
    )
    for entry in text.replace("\\\n", " ").splitlines():
        requirement = Requirement(entry.split(" --hash")[0])
        (version,) = (
            pin.version for pin in requirement.specifier if pin.operator == "=="
        )
        hashes = len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry))
        pins.setdefault(canonicalize_name(requirement.name), []).append(
            (version, hashes)
        )
    return pins


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_every_dependency_in_a_version_that_fits_with_its_hashes_and_from_nowhere_in_particular(
    name: str,
) -> None:
    pins = locked(name)
    for requirement in wanted([*PROJECT["dependencies"], *EXTRAS[name]]):
        versions = [version for version, _ in pins[canonicalize_name(requirement.name)]]
        # each Python may have a version of its own
        which = any if requirement.marker else all
        assert versions and which(
            requirement.specifier.contains(version) for version in versions
        ), requirement
    assert all(hashes for pinned in pins.values() for _, hashes in pinned)
    text = (ROOT / "requirements" / f"{name}.txt").read_text("utf-8")
    assert not re.search(r"://|index-url|find-links|@ | /\w", text)


def test_what_two_locks_share_has_one_version() -> None:
    dev = locked("dev")
    assert LOCKS == ["demo", "dev", "fuzz", "release"]
    for name in LOCKS:
        assert all(
            dev.get(package, pinned) == pinned
            for package, pinned in locked(name).items()
        )


def test_the_versions_beside_torch_are_those_of_the_lock() -> None:
    dev = locked("dev")
    beside = locked("torch")
    assert beside["torch"] == [("2.13.0", 0)] and "torchvision" not in beside
    shared = {name for name in beside if name in dev}
    assert {"numpy", "pillow", "pytest"} <= shared
    for name in shared:
        assert beside[name][0][0] in [version for version, _ in dev[name]], name


def test_every_extra_that_is_promised_exists_and_all_has_each_of_them() -> None:
    promised = {
        "measured",
        "web",
        "ray",
        "postgres",
        "parquet",
        "hf",
        "inspect",
        "stats",
        "probes",
        "heic",
        "local",
    }
    promised |= {"conformance", "mlflow", "tensorboard", "wandb"}
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.extras == promised
    apart = {"clip"}  # torch is gigabytes: who wants it names it
    assert set(EXTRAS) == promised | apart | {"all", "demo", "dev", "fuzz", "release"}
    assert set(_extras()) == promised | apart  # what `doctor` tells users of


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, by the locked hatchling and without a network."""
    folder = tmp_path_factory.mktemp("dist")
    words = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-d",
        str(folder),
        "-t",
        "wheel",
        "-t",
        "sdist",
    ]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(
    built: Path,
) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = [
        path
        for path in (ROOT / "editjudge").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    expected = {str(path.relative_to(ROOT)) for path in source}
    pages = [path for path in (ROOT / "docs").rglob("*") if path.is_file()]
    expected |= {f"editjudge/{path.relative_to(ROOT)}" for path in pages}
    assert expected == {name for name in names if name.startswith("editjudge/")}
    assert "editjudge/py.typed" in names
    assert {
        name.split("/")[0] for name in names if not name.startswith("editjudge/")
    } == {wheel.stem[:15] + ".dist-info"}


def test_the_sdist_can_be_tested_and_has_nothing_that_was_made_here(
    built: Path,
) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {
        "Makefile",
        "tests/test_packaging.py",
        "requirements/dev.txt",
        "LICENSE",
        "CONTRIBUTING.md",
    } <= names
    assert [
        name
        for name in names
        if re.search(r"\.(pyc|db|whl)$|^(demo|dist|build|\.venvs?)/", name)
    ] == []


def test_the_core_alone_starts_from_the_wheel(built: Path, tmp_path: Path) -> None:
    """Unpacked beside nothing but the core's own requirements: what an extra brings cannot be imported."""
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [sys.executable, "-m", "zipfile", "-e", str(wheel), str(tmp_path)], check=True
    )
    heavy = [
        "numpy",
        "cv2",
        "scipy",
        "starlette",
        "pyarrow",
        "ray",
        "datasets",
        "inspect_ai",
        "psycopg",
        "skimage",
    ]
    code = f"import sys; sys.modules.update(dict.fromkeys({heavy})); from editjudge.cli import main; main()"
    words = [sys.executable, "-c", code, "rubric", "list", "--json"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "lighting" in json.dumps(json.loads(done.stdout))


def test_the_version_is_the_same_everywhere_and_has_its_section_in_the_changelog() -> (
    None
):
    import editjudge

    assert PROJECT["version"] == editjudge.__version__
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(
        rf"^## \[{re.escape(editjudge.__version__)}\] - \d{{4}}-\d\d-\d\d$",
        changes,
        re.MULTILINE,
    )
