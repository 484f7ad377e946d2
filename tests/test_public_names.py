"""What `import editjudge as ej` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import editjudge


@pytest.mark.parametrize("name", editjudge.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(editjudge, name) is not None


def test_the_list_of_names_is_complete_and_sorted() -> None:
    assert set(editjudge.__all__) == set(editjudge._WHERE)
    assert editjudge.__all__ == sorted(editjudge.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        editjudge.nothing  # noqa: B018


def test_a_submodule_does_not_shadow_the_function_of_its_name() -> None:
    """`editjudge.run` is a package and a function: whoever imports the package first must still get the function."""
    code = "import editjudge.run.pace, editjudge as ej; print(callable(ej.run), callable(ej.judge))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
