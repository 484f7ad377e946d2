"""What `import editjudge as ej` offers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import editjudge
from editjudge.api import Run
from editjudge.errors import InputError, Option
from editjudge.running.summary import Summary
from tests.faults import shows


@pytest.mark.parametrize("name", editjudge.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(editjudge, name) is not None


def documented() -> Iterator[tuple[str, Any]]:
    for name in editjudge.__all__:
        thing = getattr(editjudge, name)
        yield name, thing
        if inspect.isclass(thing):
            for part, value in vars(thing).items():
                method = (
                    value.func
                    if isinstance(value, functools.cached_property)
                    else value
                )
                if not part.startswith("_") and (
                    inspect.isfunction(method) or isinstance(method, property)
                ):
                    yield f"{name}.{part}", method


@pytest.mark.parametrize(("name", "thing"), list(documented()))
def test_every_public_name_says_what_it_is(name: str, thing: Any) -> None:
    said = inspect.getdoc(thing) or ""
    assert said and not said.startswith(f"{name}("), (
        "a dataclass says no more than its signature"
    )
    assert said.partition("\n\n")[0].rstrip('"').endswith((".", ":"))


FUNCTIONS = [
    name for name in editjudge.__all__ if inspect.isfunction(getattr(editjudge, name))
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_says_what_it_raises_and_is_typed(name: str) -> None:
    function = getattr(editjudge, name)
    assert "raises" in (inspect.getdoc(function) or "").lower()
    signature = inspect.signature(function)
    kinds = [
        signature.return_annotation,
        *(parameter.annotation for parameter in signature.parameters.values()),
    ]
    assert inspect.Signature.empty not in kinds
    loose = [
        n
        for n, p in signature.parameters.items()
        if p.annotation == "Any" and p.kind is not p.VAR_KEYWORD
    ]
    assert loose == []


def test_the_list_of_names_is_complete_and_sorted() -> None:
    assert set(editjudge.__all__) == set(editjudge._WHERE)
    assert editjudge.__all__ == sorted(editjudge.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        editjudge.nothing  # noqa: B018  (looking it up is the test)


def test_a_submodule_does_not_shadow_the_function_of_its_name() -> None:
    """`editjudge.run` is a package and a function: whoever imports the package first must still get the function."""
    code = "import editjudge.running.pace, editjudge as ej; print(callable(ej.run), callable(ej.judge))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("first", ["judge", "open", "Run"])
def test_the_function_has_its_real_signature_whatever_was_used_before(
    first: str,
) -> None:
    code = f"import editjudge as ej, inspect; ej.{first}; print(*inspect.signature(ej.run).parameters, ej.run.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert {"manifest", "judges", "store", "temperature", "progress", "run"} <= {
        *done.stdout.split()
    }


def test_the_namespace_that_a_user_completes_in_has_the_public_names_and_nothing_else() -> (
    None
):
    code = "import editjudge as ej; ej.judge; ej.run; print(*dir(ej))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == editjudge.__all__


@pytest.mark.parametrize("name", ["judge", "run", "arun"])
def test_every_option_of_a_judge_is_a_parameter_with_its_type_and_default(
    name: str,
) -> None:
    parameters = inspect.signature(getattr(editjudge, name)).parameters
    assert (parameters["reasks"].default, parameters["reasks"].annotation) == (2, "int")
    assert parameters["temperature"].default is None and "options" not in parameters


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [
        ("run", "judgs", "has no argument 'judgs'; did you mean \"judges\"?"),
        ("arun", "column", 'did you mean "columns"?'),
        ("judge", "judg", 'did you mean "judge"?'),
        ("open", "stor", 'did you mean "store"?'),
        (
            "run",
            "weather",
            "run() has no argument 'weather'; it takes manifest, rubrics, judges, ",
        ),
    ],
)
def test_a_mistyped_argument_gets_a_suggestion(
    name: str, argument: str, words: str
) -> None:
    function = getattr(editjudge, name)
    with pytest.raises(TypeError, match=re.escape(words)):
        asyncio.run(
            function("x.jsonl", **{argument: 1})
        ) if name == "arun" else function("x", **{argument: 1})


@pytest.mark.parametrize(
    ("option", "in_python"),
    [
        (Option("repeats", 0), "repeats=0"),
        (Option("column", {"input": "src"}), 'columns={"input": "src"}'),
        (Option("allow-outside", True), "allow_outside=True"),
        (Option("judge", "metrics"), 'judges="metrics"'),
        (Option("prices"), "prices="),
        (Option("no-binary"), "--no-binary"),
    ],
)
def test_errors_name_arguments_where_the_command_line_names_options(
    option: Option, in_python: str
) -> None:
    error = InputError(f"give {option}, or leave it out", options=[option])
    assert str(error) == f"give {option}, or leave it out"
    words = error.in_python(inspect.signature(editjudge.run).parameters)
    assert words == f"give {in_python}, or leave it out"


def test_a_run_shows_itself_on_one_line_and_not_the_address_of_its_store() -> None:
    run = Run(
        3,
        "first",
        "finished",
        Summary(Counter(refused=1, ok=5)),
        "postgresql://ann:secret@db/edits",
    )
    assert shows(repr(run), "Run 'first' (3)", "finished", 6, "5 ok, 1 refused")
    assert "secret" not in repr(run) and "\n" not in repr(run)


def test_errors_name_the_mapping_of_raters_factors() -> None:
    mapping = Option("map-factor", {"PQ": "nope"})
    assert str(mapping) == "--map-factor PQ=nope"
    assert mapping.in_python(["map_factor"]) == 'map_factor={"PQ": "nope"}'
