"""Manifests: what becomes an edit, what is refused and how that reads, and what an audit finds."""

from __future__ import annotations

import base64
import csv
import io
import json
import logging
import os
import re
import sys
import tracemalloc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import polars
import pyarrow as arrow
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from editjudge import manifest
from editjudge.edit import Edit
from editjudge.errors import ManifestError
from editjudge.manifest.audit import Audit
from editjudge.manifest.audit import audit as look_over
from tests.faults import raises, shows

ROW = {"id": "a", "input": "in.png", "edited": "out.png", "instruction": "make it blue"}


def picture(
    colour: str = "red",
    size: tuple[int, int] = (8, 6),
    codec: str = "PNG",
    **options: Any,
) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, codec, **options)
    return out.getvalue()


PNG = picture()


def jsonl(
    folder: Path, *rows: Mapping[str, Any] | str | bytes, name: str = "edits.jsonl"
) -> Path:
    path = folder / name
    lines = [row if isinstance(row, str | bytes) else json.dumps(row) for row in rows]
    path.write_bytes(
        b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
        + b"\n"
    )
    return path


def edits(path: Path, **options: Any) -> list[Edit]:
    return list(manifest.read(path, **options))


def attempt(path: Path) -> list[Edit] | ManifestError:
    try:
        return edits(path, notify=lambda _: None)
    except ManifestError as error:
        return error


def refusal(
    folder: Path, *rows: Mapping[str, Any] | str | bytes, **options: Any
) -> str:
    with pytest.raises(ManifestError) as caught:
        edits(jsonl(folder, *rows), **options)
    return str(caught.value)


# --- what becomes an edit -------------------------------------------------------------------------------------


def test_a_line_becomes_an_edit_with_paths_relative_to_the_manifest(
    tmp_path: Path,
) -> None:
    row = ROW | {
        "ground_truth": "gt/a.png",
        "mask": "./mask/a.png",
        "referring_expression": "the left car",
        "model": "M",
        "edit_type": "recolor",
        "group": "g",
        "seed": 7,
        "tags": ["x", {"y": 0.5}],
    }
    assert edits(jsonl(tmp_path, row)) == [
        Edit(
            "a",
            tmp_path / "in.png",
            tmp_path / "out.png",
            "make it blue",
            tmp_path / "gt/a.png",
            tmp_path / "mask/a.png",
            "the left car",
            "M",
            "recolor",
            "g",
            {"seed": 7, "tags": ["x", {"y": 0.5}]},
        )
    ]


def test_an_output_that_is_absent_null_empty_or_not_on_disk_stays_an_edit(
    tmp_path: Path,
) -> None:
    without = {key: value for key, value in ROW.items() if key != "edited"}
    path = jsonl(
        tmp_path,
        ROW,
        without | {"id": "b"},
        ROW | {"id": "c", "edited": None},
        ROW | {"id": "d", "edited": ""},
    )
    assert [edit.edited for edit in edits(path)] == [
        tmp_path / "out.png",
        None,
        None,
        None,
    ]


def test_ids_are_made_from_the_line_number_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    path = jsonl(tmp_path, {"input": "a.png"}, "", {"input": "b.png"})
    notices: list[str] = []
    assert [edit.id for edit in edits(path, notify=notices.append)] == [
        "line-1",
        "line-3",
    ]
    assert notices == [
        f"{path}:1: no id; ids are made from the line's number, such as line-1"
    ]


def test_notices_go_to_the_log_by_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        edits(jsonl(tmp_path, {"input": "a.png"}))
    assert "no id" in caplog.text


def test_byte_order_mark_windows_line_ends_and_blank_lines_are_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "edits.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"id": "a"}\r\n\r\n  \t\n{"id": "b"}')
    assert [edit.id for edit in edits(path)] == ["a", "b"]


def test_a_limit_stops_before_what_comes_after_it(tmp_path: Path) -> None:
    path = jsonl(tmp_path, ROW, ROW | {"id": "b"}, "nonsense")
    assert [edit.id for edit in edits(path, limit=2)] == ["a", "b"]


def test_a_data_url_becomes_bytes(tmp_path: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode(picture()).decode()
    assert edits(jsonl(tmp_path, ROW | {"edited": url}))[0].edited == picture()


def test_names_with_newlines_spaces_and_umlauts_are_names(tmp_path: Path) -> None:
    names = ["a\nb.png", " c .png", "ä/ö:ü.png", "%2e%2e/x.png"]
    path = jsonl(
        tmp_path, *({"id": str(n), "input": name} for n, name in enumerate(names))
    )
    assert [edit.input for edit in edits(path)] == [tmp_path / name for name in names]


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path) -> None:
    stream = manifest.read(jsonl(tmp_path, ROW, "nonsense"))
    assert next(stream).id == "a"
    with pytest.raises(ManifestError):
        next(stream)


def test_memory_does_not_grow_with_what_the_lines_hold(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path, *(ROW | {"id": f"item-{n}", "note": "x" * 2000} for n in range(5000))
    )
    tracemalloc.start()
    for _ in manifest.read(path):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5000 * 300  # of 10 MB: the digests of the ids


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "column 1"),
        ('{"id": "a"} {"id": "b"}', "Extra data"),
        ("[1, 2]", "[1, 2]"),
        ('"text"', "str"),
        ("null", "NoneType"),
        ('{"score": NaN}', "NaN"),
        ('{"score": -Infinity}', "-Infinity"),
        ('{"score": 1e999}', "1e999"),
        ('{"id": "a", "id": "b"}', '"id"'),
        ('{"x": {"y": 1, "y": 1}}', '"y"'),
        (r'{"id": "\ud800"}', "surrogate"),
        (b'{"id": "\xff"}', "column 9"),
        ("[" * 100_000, ""),
        ('{"n": ' + "9" * 5000 + "}", "limit"),
    ],
)
def test_a_line_that_is_no_strict_json_object_is_refused_by_number(
    tmp_path: Path, line: str | bytes, named: str
) -> None:
    path = jsonl(tmp_path, ROW, "", line)
    with raises(ManifestError, "not_json", "edits.jsonl:3: ", named):
        edits(path)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("id", 7.5, "a number (7.5), expected text"),
        ("id", "", "'', expected 1 to 512 characters"),
        (
            "id",
            "a\nb",
            r"'a\nb', expected 1 to 512 characters without control characters",
        ),
        ("id", "a\x7f", "without control characters"),
        ("id", "x" * 513, "513 characters, expected 1 to 512"),
        ("instruction", ["a"], "a list (['a']), expected text"),
        ("model", True, "true or false (True), expected text"),
        ("edited", 3.5, "a number (3.5), expected a path, a data: URL or bytes"),
        ("edited", {"file": "x"}, "an object ({'file': 'x'}), expected a path"),
        ("edited", {"bytes": "text"}, "an object ({'bytes': 'text'}), expected a path"),
        (
            "edited",
            {"path": {"path": "x"}},
            "an object ({'path': {'path': 'x'}}), expected a path",
        ),
        ("edited", "folder/", "'folder/', expected the path of a file"),
        ("edited", "a\0b", r"'a\x00b', expected the path of a file"),
        ("edited", "s3://bucket/a.png", "'s3://bucket/a.png', expected a path"),
        ("edited", "file:///etc/passwd", "'file:///etc/passwd', expected a path"),
        (
            "edited",
            "https://example.org/a.png",
            "addresses are not fetched without --allow-urls",
        ),
        ("edited", "data:image/png;base64,***", "not valid base64"),
    ],
)
def test_a_wrong_value_is_refused_with_field_and_what_was_found(
    tmp_path: Path, field: str, value: Any, expected: str
) -> None:
    message = refusal(tmp_path, ROW | {"id": "first"}, ROW | {field: value})
    assert message.startswith(f'{tmp_path}/edits.jsonl:2: field "{field}": ')
    assert expected in message
    assert "\n" not in message


def test_the_longest_id_and_one_with_odd_spaces_are_fine(tmp_path: Path) -> None:
    ids = ["x" * 512, "a\u00a0b", "👩‍🎨"]
    assert [
        edit.id for edit in edits(jsonl(tmp_path, *({"id": i} for i in ids)))
    ] == ids


def test_a_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    message = refusal(tmp_path, ROW, ROW | {"id": "b"}, ROW)
    assert message.endswith(
        "edits.jsonl:3: field \"id\": 'a' is on line 1 and again on line 3; expected unique ids"
    )


@pytest.mark.parametrize(
    ("wrote", "meant"),
    [
        ("instructions", "instruction"),
        ("Instruction", "instruction"),
        ("instuction", "instruction"),
        ("prompt", "instruction"),
        ("edited_image", "edited"),
        ("output", "edited"),
        ("editd", "edited"),
        ("inputs", "input"),
        ("source_image", "input"),
        ("source", "input"),
        ("image", "input"),
        ("target_img", "edited"),
    ],
)
def test_a_misspelt_field_is_not_metadata(
    tmp_path: Path, wrote: str, meant: str
) -> None:
    row = {key: value for key, value in ROW.items() if key != meant} | {wrote: "x"}
    assert f'edits.jsonl:1: field "{wrote}": did you mean "{meant}"?' in refusal(
        tmp_path, row
    )


def test_a_table_of_something_else_is_named_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("item,rater,factor,score\na,ann,quality,3\n")
    with raises(ManifestError, "no_fields", "'item, rater, factor, score'"):
        edits(path)


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_cells_that_are_not_separated_by_commas_are_noticed(
    tmp_path: Path, sign: str
) -> None:
    path = tmp_path / "edits.csv"
    path.write_text(
        sign.join(["id", "input", "edited"]) + "\n" + sign.join("abc") + "\n"
    )
    with raises(ManifestError, "bad_separator", repr(sign)):
        edits(path)


def test_beside_the_field_itself_the_same_name_is_metadata(tmp_path: Path) -> None:
    row = ROW | {"prompt": "p", "edited_image": "e", "edited_at": "today"}
    assert edits(jsonl(tmp_path, row))[0].metadata == {
        "prompt": "p",
        "edited_image": "e",
        "edited_at": "today",
    }


def test_a_pair_has_two_outputs_and_two_models(tmp_path: Path) -> None:
    notices: list[str] = []
    row = {
        "id": "a|b",
        "input": "a.png",
        "instruction": "x",
        "edited_b": "2.png",
        "edited_a": "1.png",
    }
    (edit,) = edits(
        jsonl(tmp_path, row | {"model_a": "m", "model_b": "n"}), notify=notices.append
    )
    assert [(name, Path(str(source)).name) for name, source in edit.images.items()] == [
        ("edited_a", "1.png"),
        ("edited_b", "2.png"),
    ]
    assert (
        edit.edited is None
        and edit.metadata == {"model_a": "m", "model_b": "n"}
        and notices == []
    )
    turned = edit.with_outputs_swapped()
    assert (
        turned.image("edited_a") == edit.image("edited_b")
        and turned.with_outputs_swapped() == edit
    )


def test_what_may_be_meant_otherwise_is_only_asked(tmp_path: Path) -> None:
    notices: list[str] = []
    row = {
        "id": "a",
        "input": "a.png",
        "instruction": "x",
        "edited_x": "1.png",
        "edited_y": "2.png",
        "gt": "g.png",
    }
    (edit,) = edits(jsonl(tmp_path, row), notify=notices.append)
    assert edit.metadata == {"edited_x": "1.png", "edited_y": "2.png", "gt": "g.png"}
    assert [message.split(": ", 1)[1] for message in notices] == [
        '"edited_x" is kept as metadata; did you mean "edited"? Map it with --column edited=edited_x',
        '"gt" is kept as metadata; did you mean "ground_truth"? Map it with --column ground_truth=gt',
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("none.jsonl", "missing_manifest"),
        ("a.txt", "unknown_ending"),
        ("pipe.jsonl", "not_a_regular_file"),
    ],
)
def test_what_is_no_manifest_is_refused_at_once(
    tmp_path: Path, name: str, code: str
) -> None:
    (tmp_path / "a.txt").write_text("x")
    os.mkfifo(tmp_path / "pipe.jsonl")
    with raises(ManifestError, code, name):
        manifest.read(tmp_path / name)


# --- where pictures may lie -----------------------------------------------------------------------------------


@pytest.fixture
def confined(tmp_path: Path) -> Path:
    """A set with a secret beside it, and links that lead there."""
    root = tmp_path / "set"
    (root / "img").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (root / "img/a.png").write_bytes(b"picture")
    (root / "inside").symlink_to("img")
    (root / "img/inside.png").symlink_to("a.png")
    (root / "img/outside.png").symlink_to("../../secret.png")
    (root / "outside").symlink_to("..")
    return root


@pytest.mark.parametrize(
    "path",
    [
        "img/a.png",
        "img/../img/a.png",
        "inside/a.png",
        "inside/inside.png",
        "img//a.png",
    ],
)
def test_paths_and_links_inside_the_folder_are_allowed(
    confined: Path, path: str
) -> None:
    assert (
        edits(jsonl(confined, {"input": path, "id": "a"}))[0].input == confined / path
    )


@pytest.mark.parametrize(
    "path",
    [
        "../secret.png",
        "img/../../secret.png",
        "img/outside.png",
        "outside/secret.png",
        "outside/../x.png",
        "/etc/hosts",
    ],
)
def test_paths_and_links_that_leave_the_folder_are_refused_unless_allowed(
    confined: Path, path: str
) -> None:
    row = {"id": "a", "input": path}
    with raises(ManifestError, "outside_folder", path):
        edits(jsonl(confined, row))
    assert edits(jsonl(confined, row), allow_outside=True)[0].input == confined / path


def test_a_link_among_many_files_is_found_too(confined: Path) -> None:
    rows = [{"id": str(n), "input": f"img/{n}.png"} for n in range(300)]
    assert "'img/outside.png' is outside" in refusal(
        confined, *rows, {"id": "x", "input": "img/outside.png"}
    )


def test_an_absolute_path_into_the_folder_is_inside_it(confined: Path) -> None:
    assert (
        edits(jsonl(confined, {"id": "a", "input": str(confined / "img/a.png")}))[
            0
        ].input
        == confined / "img/a.png"
    )


def test_a_manifest_reached_through_a_link_is_confined_to_its_own_folder(
    confined: Path, tmp_path: Path
) -> None:
    jsonl(confined, {"id": "a", "input": "img/a.png"})
    (tmp_path / "alias").symlink_to("set")
    assert (
        edits(tmp_path / "alias/edits.jsonl")[0].input == tmp_path / "alias/img/a.png"
    )


def test_addresses_are_kept_where_they_are_allowed(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"id": "a", "input": "https://example.org/a.png"})
    assert edits(path, allow_urls=True)[0].input == "https://example.org/a.png"
    assert "not an address" in refusal(
        tmp_path, {"id": "a", "input": "http://x/a b"}, allow_urls=True
    )


parts = st.sampled_from(
    [
        "img",
        "inside",
        "outside",
        "..",
        ".",
        "",
        "a.png",
        "inside.png",
        "outside.png",
        "secret.png",
    ]
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(path="img/img/../outside.png")  # a folder that does not exist hides the link
@given(path=st.lists(parts, min_size=1, max_size=6).map("/".join))
def test_confinement_agrees_with_resolving_the_path(confined: Path, path: str) -> None:
    stays = (confined / path).resolve().is_relative_to(confined.resolve())
    result = attempt(jsonl(confined, {"id": "a", "input": path}))
    if isinstance(result, ManifestError):
        assert not stays or result.code == "not_a_path"
    else:
        assert stays or result[0].input is None


# --- CSV, Parquet, rows ---------------------------------------------------------------------------------------


def table(folder: Path, *rows: Iterable[str], encoding: str = "utf-8") -> Path:
    path = folder / "edits.csv"
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows(rows)
    return path


def test_csv_has_the_same_fields_and_an_empty_cell_is_nothing(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        ["id", "input", "edited", "instruction", "seed"],
        ["a", "in.png", "out.png", 'say "hi",\nthen leave', "7"],
        [],
        ["b", "in.png", "", "x", ""],
        encoding="utf-8-sig",
    )
    first, second = edits(path)
    assert (first.instruction, first.metadata) == (
        'say "hi",\nthen leave',
        {"seed": "7"},
    )
    assert (second.edited, second.metadata) == (None, {"seed": None})


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (b"id,input\na,x.png\nb\n", "cell_count", "csv:3: found 1"),
        (b'id,note\na,"two\nlines"\nb,c,d\n', "cell_count", "csv:4: found 3"),
        (b"id,id\na,b\n", "bad_columns", "['id', 'id']"),
        (b"", "bad_columns", "csv:1"),
        (b'id,note\na,"open\n', "not_csv", "csv:2"),
        (b'"', "not_csv", "csv:1"),
        (b"id\na\n\xff\n", "not_utf8", "csv:3"),
        (
            b"id,instructions\na,b\n",
            "misspelt_field",
            'csv:2: field "instructions"',
        ),
    ],
)
def test_a_broken_table_is_refused_by_line(
    tmp_path: Path, text: bytes, code: str, named: str
) -> None:
    path = tmp_path / "edits.csv"
    path.write_bytes(text)
    with raises(ManifestError, code, named):
        edits(path)


def test_parquet_takes_bytes_structs_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "edits.parquet"
    columns = {
        "id": ["a", "b"],
        "input": [
            {"bytes": b"png", "path": "in.png"},
            {"bytes": None, "path": "in.png"},
        ],
        "edited": [b"raw", None],
        "mask": ["mask.png", None],
        "instruction": ["x", "y"],
        "thumbnail": [b"small", b"small"],
        "day": arrow.array([0, 1], arrow.date32()),
    }
    parquet.write_table(arrow.table(columns), path)
    notices: list[str] = []
    first, second = edits(path, notify=notices.append)
    assert (first.input, first.edited, first.mask) == (
        b"png",
        b"raw",
        tmp_path / "mask.png",
    )
    assert (second.input, second.edited, second.mask) == (
        tmp_path / "in.png",
        None,
        None,
    )
    assert first.metadata == {"day": "1970-01-01"}
    assert notices == [
        f'{path}: "thumbnail" has images or bytes that no rubric shows; it is not read'
    ]


def test_pictures_in_columns_of_other_names_get_the_mapping_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "edits.parquet"
    parquet.write_table(
        arrow.table({"source": [b"png"], "target": [b"png"], "instruction": ["x"]}),
        path,
    )
    with raises(ManifestError, "misspelt_field", "--column input=source"):
        edits(path, notify=lambda _: None)
    with raises(ManifestError, "misspelt_field", "--column edited=target"):
        list(
            manifest.from_rows(
                [{"input": "a.png", "target": b"png", "instruction": "x"}],
                notify=lambda _: None,
            )
        )


def test_broken_parquet_and_its_numbers_that_are_none_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "edits.parquet"
    path.write_bytes(b"PAR1 nonsense")
    with raises(ManifestError, "not_parquet"):
        edits(path)
    parquet.write_table(
        arrow.table({"id": ["a", "b"], "score": [1.0, float("nan")]}), path
    )
    with raises(ManifestError, "bad_line", 'parquet:2: field "score"', "nan"):
        edits(path)


def test_a_folder_of_parquet_files_is_one_manifest_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    for number, name in enumerate(("b", "a")):
        table = arrow.table(
            {"input": [b"png"] * 2, "instruction": [name] * 2, "raw": [[b"x"]] * 2}
        )
        parquet.write_table(
            table, tmp_path / f"{name}.parquet", row_group_size=number + 1
        )
    notices: list[str] = []
    read = edits(tmp_path, notify=notices.append)
    assert [(edit.id, edit.instruction) for edit in read] == [
        ("row-1", "a"),
        ("row-2", "a"),
        ("row-3", "b"),
        ("row-4", "b"),
    ]
    assert (
        notices[0]
        == f'{tmp_path}: "raw" has images or bytes that no rubric shows; it is not read'
    )
    assert len(notices) == 2  # and that ids are made
    (tmp_path / "c.parquet").write_bytes(b"nonsense")
    with raises(ManifestError, "not_parquet", "c.parquet"):
        edits(tmp_path)


def test_pictures_are_read_a_few_at_a_time_however_large_the_file(
    tmp_path: Path,
) -> None:
    kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    with parquet.ParquetWriter(
        tmp_path / "big.parquet", arrow.schema([("input", kind)]), compression="none"
    ) as file:
        for _ in range(20):
            pictures = [
                {"bytes": os.urandom(50_000), "path": "a.png"} for _ in range(40)
            ]
            file.write_table(arrow.table({"input": arrow.array(pictures, kind)}))
    before = arrow.total_allocated_bytes()
    most = 0
    for edit in manifest.read(tmp_path / "big.parquet", notify=lambda _: None):
        assert isinstance(edit.input, bytes)
        most = max(most, arrow.total_allocated_bytes() - before)
    assert most < (tmp_path / "big.parquet").stat().st_size / 4


def saved(path: Path, **more: Any) -> Path:
    """A dataset with pictures, as `datasets` keeps it."""
    columns = {
        "id": ["a", "b"],
        "input": [PNG, PNG],
        "edited": [PNG, None],
        "instruction": ["x", "y"],
        **more,
    }
    made = datasets.Dataset.from_dict(columns)
    pictures = {name: datasets.Image() for name in ("input", "edited")}
    made = made.map(
        lambda row: {n: row[n] and {"bytes": row[n], "path": None} for n in pictures}
    )
    for name, feature in pictures.items():
        made = made.cast_column(name, feature)
    made.save_to_disk(str(path))
    return path


def test_what_save_to_disk_wrote_is_a_manifest_with_its_pictures_untouched(
    tmp_path: Path,
) -> None:
    first, second = edits(saved(tmp_path / "set", seed=[1, 2]))
    assert (first.id, first.input, first.edited, first.instruction) == (
        "a",
        PNG,
        PNG,
        "x",
    )
    assert (second.edited, second.metadata) == (None, {"seed": 2})


def test_of_a_dataset_with_splits_one_is_named(tmp_path: Path) -> None:
    whole = datasets.load_from_disk(str(saved(tmp_path / "set")))
    datasets.DatasetDict({"train": whole}).save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(
        str(tmp_path / "two")
    )
    assert [edit.id for edit in edits(tmp_path / "one")] == ["a", "b"]
    assert [edit.id for edit in edits(tmp_path / "two" / "test")] == ["a", "b"]
    with raises(ManifestError, "several_splits", "train, test"):
        edits(tmp_path / "two")
    (tmp_path / "set" / "data-00000-of-00001.arrow").write_bytes(b"nonsense")
    with raises(ManifestError, "not_a_dataset"):
        edits(tmp_path / "set")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_dataset_in_memory_and_its_parquet_give_the_same_edits(
    tmp_path: Path, streaming: bool
) -> None:
    on_disk = datasets.load_from_disk(str(saved(tmp_path / "set")))
    on_disk.to_parquet(str(tmp_path / "set.parquet"))
    given = on_disk.to_iterable_dataset() if streaming else on_disk
    read = list(manifest.from_rows(given))
    assert read == edits(tmp_path / "set.parquet") == edits(tmp_path / "set")
    assert read[0].input == PNG


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "set")
    parquet.write_table(arrow.table({"id": ["a"]}), tmp_path / "edits.parquet")
    for module, path, extra in (
        ("datasets", "set", "hf"),
        ("pyarrow.parquet", "edits.parquet", "parquet"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with raises(ManifestError, "missing_extra", f"editjudge[{extra}]"):
            edits(tmp_path / path)


def test_rows_in_memory_become_edits(tmp_path: Path) -> None:
    rows = [
        {
            "input": {"bytes": b"png", "path": None},
            "edited": "out.png",
            "instruction": "x",
            "seed": 1,
        }
    ]
    notices: list[str] = []
    (edit,) = manifest.from_rows(
        rows, name="my/set", root=tmp_path, notify=notices.append
    )
    assert (edit.id, edit.input, edit.edited, edit.metadata) == (
        "row-1",
        b"png",
        tmp_path / "out.png",
        {"seed": 1},
    )
    assert rows[0]["seed"] == 1  # the caller's rows are left as they were


def rows_of_pictures() -> list[dict[str, Any]]:
    picture = Image.effect_noise((6, 4), 80).convert("RGB")
    rest = {"instruction": "x", "seed": 7, "thumbnail": b"small"}
    return [{"id": "a", "input": picture, "edited": np.asarray(picture), "note": "kept", **rest},
            {"id": "b", "input": picture, "edited": None, "note": None, **rest}]  # fmt: skip


@pytest.mark.parametrize("make", [list, pandas.DataFrame, polars.DataFrame])
def test_pictures_in_rows_and_data_frames_are_encoded_without_loss(make: Any) -> None:
    rows = rows_of_pictures()
    if make is polars.DataFrame:  # makes lists of numbers of arrays
        rows[0]["edited"] = rows[0]["input"]
    notices: list[str] = []
    first, second = manifest.from_rows(make(rows), notify=notices.append)
    for source in (first.input, first.edited):
        assert isinstance(source, bytes) and np.array_equal(
            np.asarray(Image.open(io.BytesIO(source))), rows[0]["input"]
        )
    assert second.edited is None and first.metadata == {"note": "kept", "seed": 7}
    assert second.metadata == {"note": None, "seed": 7}
    assert notices == [
        'rows: "thumbnail" has images or bytes that no rubric shows; it is not read'
    ]


def test_what_a_frame_marks_as_missing_is_no_value() -> None:
    frame = pandas.DataFrame(
        {
            "id": ["a", "b"],
            "input": ["a.png"] * 2,
            "edited": ["b.png", None],
            "size": [1.5, None],
        }
    )
    first, second = manifest.from_rows(frame)
    assert (first.metadata, second.metadata, second.edited) == (
        {"size": 1.5},
        {"size": None},
        None,
    )


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (np.full((4, 4, 3), 200.0), "bad_range"),
        (np.zeros((4, 4, 3), np.int64), "bad_dtype"),
        (np.zeros((5, 6, 7), np.uint8), "bad_channels"),
        (Image.new("F", (4, 4)), "unknown_range"),
        (3.5, "not_an_image"),
    ],
)
def test_a_row_with_a_value_that_is_no_picture_is_named(value: Any, code: str) -> None:
    row = {"id": "a", "input": "a.png", "edited": value, "instruction": "x"}
    with raises(ManifestError, code, 'rows:1: field "edited"'):
        list(manifest.from_rows([row]))


def test_metadata_that_json_has_no_value_for_is_named() -> None:
    row = {
        "id": "a",
        "input": "a.png",
        "edited": "b.png",
        "instruction": "x",
        "tags": {1, 2},
    }
    with raises(ManifestError, "bad_line", 'rows:1: field "tags"', "set"):
        list(manifest.from_rows([row]))
    (edit,) = manifest.from_rows(
        [row | {"tags": (1, np.int64(2)), "vector": np.arange(3)}]
    )
    assert edit.metadata == {"tags": [1, 2], "vector": [0, 1, 2]}


# --- a folder with one folder a model -------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "input/a.png",
        "input/b.jpg",
        "m1/a.png",
        "m1/b.png",
        "m2/a.webp",
        "mask/a.png",
        ".git/x.png",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "instructions.csv").write_text(
        "name,instruction,edit_type,source\na,make it blue,recolor,web\nb.jpg,x,,\n"
    )
    return tmp_path


def test_a_folder_per_model_becomes_an_edit_per_model_and_input(tree: Path) -> None:
    read = edits(tree)
    assert [(edit.id, edit.model, edit.edited) for edit in read] == [
        ("m1/a", "m1", tree / "m1/a.png"),
        ("m2/a", "m2", tree / "m2/a.webp"),
        ("m1/b", "m1", tree / "m1/b.png"),
        ("m2/b", "m2", None),
    ]
    assert read[0] == Edit(
        "m1/a", tree / "input/a.png", tree / "m1/a.png", "make it blue", None, tree / "mask/a.png",
        model="m1", edit_type="recolor", metadata={"source": "web"},
    )  # fmt: skip


def test_a_folder_without_instructions_has_empty_ones_and_says_so(tree: Path) -> None:
    (tree / "instructions.csv").unlink()
    notices: list[str] = []
    assert {edit.instruction for edit in edits(tree, notify=notices.append)} == {""}
    assert notices == [
        f"{tree}: no instructions.csv or instructions.jsonl; every instruction is empty"
    ]


@pytest.mark.parametrize(
    ("instructions", "why"),
    [
        ("name,instruction\na,x\n", r"csv: field \"name\": no line for input/b\.jpg"),
        (
            "name,instruction\na,x\nb,\n",
            r"csv:3: field \"instruction\": found None, expected text",
        ),
        (
            "name,instruction\na,x\nz,x\n",
            r"csv:3: field \"name\": found 'z', expected the name of an image in input",
        ),
        (
            "name,instruction\na,x\na.png,x\n",
            r"csv:3: field \"name\": found 'a.png' a second time",
        ),
        (
            "name,instruction,model\na,x,m\n",
            r"csv:2: field \"model\": the names of the folders",
        ),
    ],
)
def test_instructions_that_do_not_fit_the_folder_are_refused(
    tree: Path, instructions: str, why: str
) -> None:
    (tree / "instructions.csv").write_text(instructions)
    with pytest.raises(ManifestError, match=why):
        edits(tree)
    assert not look_over(tree, pixels=False).sound


def test_a_folder_that_is_laid_out_otherwise_is_refused(
    tree: Path, tmp_path: Path
) -> None:
    (tree / "m1/z.png").write_bytes(b"")
    with raises(ManifestError, "bad_line", "m1/z.png"):
        edits(tree)
    (tree / "m1/a.jpg").write_bytes(b"")
    with raises(ManifestError, "two_images_of_one_name", "a.jpg", "a.png"):
        edits(tree)
    (tmp_path / "empty").mkdir()
    with raises(ManifestError, "no_input_folder", "input"):
        edits(tmp_path / "empty")


def test_a_model_folder_that_is_a_link_elsewhere_is_refused(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "a.png").write_bytes(b"")
    (tree / "m3").symlink_to(elsewhere)
    with raises(ManifestError, "outside_folder", "'m3/a.png'"):
        edits(tree)


# --- audit ----------------------------------------------------------------------------------------------------


def findings(audit: Audit) -> list[tuple[str, int, str, str]]:
    return [
        (finding.kind, finding.line, finding.id, finding.field)
        for finding in audit.findings
    ]


def test_an_audit_finds_everything_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(picture("red"))
    (tmp_path / "red again.png").write_bytes(picture("red", compress_level=0))
    (tmp_path / "blue.png").write_bytes(picture("blue"))
    (tmp_path / "wide.png").write_bytes(picture("blue", size=(9, 6)))
    (tmp_path / "broken.png").write_bytes(picture("green")[:-20])
    rows: list[dict[str, Any] | str] = [
        {"id": "fine", "input": "red.png", "edited": "blue.png", "instruction": "x", "model": "m", "edit_type": "t"},
        {"id": "fine", "input": "red.png"},
        "nonsense",
        {"id": "no-op", "input": "red.png", "edited": "red.png", "instruction": "x", "model": "m"},
        {"id": "same pixels", "input": "red.png", "edited": "red again.png", "instruction": "x", "model": "m"},
        {"id": "wide", "input": "red.png", "edited": "wide.png", "instruction": " "},
        {"id": "broken", "input": "broken.png", "edited": "nowhere.png", "instruction": "x", "mask": "gone.png"},
        {"id": "absent", "input": "red.png", "instruction": "x"},
        {"id": "again", "input": "red.png", "edited": "blue.png", "instruction": "x", "model": "n", "edit_type": "t"},
        {"id": "outside", "input": "../x.png"},
    ]  # fmt: skip
    audit = look_over(jsonl(tmp_path, *rows))
    assert sorted(findings(audit)) == sorted(
        [
            ("duplicate_id", 2, "fine", "id"),
            ("bad_line", 3, "", ""),
            ("no_op", 4, "no-op", "edited"),
            ("no_op", 5, "same pixels", "edited"),
            ("duplicate_output", 5, "same pixels", "edited"),
            ("size_change", 6, "wide", "edited"),
            ("empty_instruction", 6, "wide", "instruction"),
            ("broken_file", 7, "broken", "input"),
            ("missing_output", 7, "broken", "edited"),
            ("missing_file", 7, "broken", "mask"),
            ("missing_output", 8, "absent", "edited"),
            ("duplicate_output", 9, "again", "edited"),
            ("contradictory_labels", 9, "again", "model"),
            ("bad_line", 10, "outside", "input"),
        ]
    )
    assert audit.edits == 7 and not audit.sound
    assert audit.models == {"m": 3, "": 3, "n": 1}
    assert audit.edit_types == {"t": 2, "": 5}
    messages = {finding.kind: finding.message for finding in audit.findings}
    assert shows(messages["size_change"], "8 x 6", "9 x 6")
    assert shows(messages["contradictory_labels"], "line 1", "model")
    assert json.loads(json.dumps(audit.as_json()))["counts"]["no_op"] == 2


def test_a_sound_manifest_has_no_findings(tmp_path: Path) -> None:
    (tmp_path / "in.png").write_bytes(picture("red"))
    (tmp_path / "out.png").write_bytes(picture("blue", codec="JPEG"))
    audit = look_over(jsonl(tmp_path, ROW))
    assert (audit.findings, audit.counts, audit.sound, audit.edits) == ([], {}, True, 1)


def test_damage_behind_a_sound_header_is_found_by_decoding(tmp_path: Path) -> None:
    data = bytearray(picture("red", size=(64, 64)))
    data[60:70] = bytes(10)
    (tmp_path / "in.png").write_bytes(data)
    (tmp_path / "out.png").write_bytes(picture("blue", size=(64, 64)))
    path = jsonl(tmp_path, ROW)
    assert look_over(path).counts == {"broken_file": 1}
    assert look_over(path, pixels=False).counts == {}


def test_orientation_counts_when_sizes_are_compared(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[274] = 6
    (tmp_path / "in.png").write_bytes(
        picture("red", size=(8, 6), codec="JPEG", exif=turned.tobytes())
    )
    (tmp_path / "out.png").write_bytes(picture("blue", size=(6, 8)))
    assert look_over(jsonl(tmp_path, ROW)).counts == {}


def test_findings_are_counted_beyond_those_that_are_listed(tmp_path: Path) -> None:
    audit = look_over(
        jsonl(tmp_path, *({"id": str(n), "instruction": "x"} for n in range(50))),
        listed=3,
    )
    assert audit.counts == {"missing_input": 50, "missing_output": 50}
    assert len(audit.findings) == 6


def test_an_audit_refuses_devices_and_does_not_fetch(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    rows: list[dict[str, Any]] = [
        {"id": "pipe", "input": "pipe.png", "edited": "pipe.png", "instruction": "x"},
        {
            "id": "url",
            "input": "http://example.org/a.png",
            "edited": None,
            "instruction": "x",
        },
    ]
    audit = look_over(jsonl(tmp_path, *rows), allow_urls=True)
    assert audit.counts == {"broken_file": 2, "not_fetched": 1, "missing_output": 1}


def test_an_audit_hears_the_notices(tmp_path: Path) -> None:
    audit = look_over(jsonl(tmp_path, {"input": "a.png", "instruction": "x"}))
    assert len(audit.notices) == 1 and "no id" in audit.notices[0]


def test_a_table_that_breaks_in_the_middle_is_audited_up_to_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "edits.csv"
    path.write_bytes(b'id,instruction\na,x\nb,"open\n')
    audit = look_over(path)
    assert audit.counts == {"missing_input": 1, "missing_output": 1, "bad_line": 1}


# --- anything at all ------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(
        st.dictionaries(
            st.sampled_from(manifest.FIELDS) | st.text(max_size=12), values, max_size=6
        ),
        max_size=4,
    )
)
def test_any_json_gives_edits_or_a_manifest_error(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    path = jsonl(tmp_path, *rows)
    result = attempt(path)
    if isinstance(result, ManifestError):
        assert str(result).startswith(f"{path}:")
    else:
        assert len(result) == len(rows)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(content=st.binary(max_size=200), suffix=st.sampled_from(["jsonl", "csv"]))
def test_any_bytes_give_edits_or_a_manifest_error(
    tmp_path: Path, content: bytes, suffix: str
) -> None:
    path = tmp_path / f"edits.{suffix}"
    path.write_bytes(content)
    result = attempt(path)
    assert isinstance(result, list) or str(result).startswith(f"{path}:")


def test_a_whole_number_is_an_id_by_its_digits(tmp_path: Path) -> None:
    assert [edit.id for edit in manifest.read(jsonl(tmp_path, ROW | {"id": 7}))] == [
        "7"
    ]
    with raises(ManifestError, "duplicate_id", "'7'"):
        list(manifest.read(jsonl(tmp_path, ROW | {"id": 7}, ROW | {"id": "7"})))


# --- columns that go by other names ---------------------------------------------------------------------------


FOREIGN = {
    "uid": "one",
    "source": "in.png",
    "target": "out.png",
    "caption": "make it blue",
    "score": 3,
}
COLUMNS = (
    ("id", "uid"),
    ("input", "source"),
    ("edited", "target"),
    ("instruction", "caption"),
)


def foreign_manifests(folder: Path) -> list[Path]:
    rows = [FOREIGN, FOREIGN | {"uid": "two"}]
    jsonl(folder, *rows)
    (folder / "edits.json").write_text(json.dumps(rows, indent=1))
    with (folder / "edits.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(FOREIGN))
        table.writeheader()
        table.writerows(rows)
    pictures = [
        row | {"source": picture(), "target": {"bytes": picture("blue"), "path": None}}
        for row in rows
    ]
    parquet.write_table(arrow.Table.from_pylist(pictures), folder / "edits.parquet")
    return [folder / f"edits.{kind}" for kind in ("jsonl", "json", "csv", "parquet")]


def test_mapped_columns_are_read_as_fields_in_every_format(tmp_path: Path) -> None:
    for path in foreign_manifests(tmp_path):
        one, two = edits(path, named=manifest.NamedInputs(columns=COLUMNS))
        assert (one.id, two.id, one.instruction) == ("one", "two", "make it blue")
        assert str(one.metadata["score"]) == "3" and "caption" not in one.metadata
        expected = (
            (picture(), picture("blue"))
            if path.suffix == ".parquet"
            else ("in.png", "out.png")
        )
        assert (
            tuple(
                p if isinstance(p, bytes) else Path(str(p)).name
                for p in (one.input, one.edited)
            )
            == expected
        )


def test_a_foreign_column_is_named_with_the_mapping_that_would_read_it(
    tmp_path: Path,
) -> None:
    assert "--column input=source" in refusal(tmp_path, FOREIGN)


def test_a_mapping_that_fits_no_column_is_an_error(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"id": "a", "input": "in.png", "edited": "out.png"})
    with raises(
        ManifestError, "unknown_column", "--column input=sorce", "'id, input, edited'"
    ):
        edits(path, named=manifest.NamedInputs(columns=(("input", "sorce"),)))


def test_a_mapped_column_wins_over_one_of_the_fields_name_and_says_so(
    tmp_path: Path,
) -> None:
    path = jsonl(
        tmp_path,
        {"input": "a caption", "source": "in.png", "edited": "out.png", "id": "a"},
    )
    notices: list[str] = []
    (edit,) = edits(
        path,
        named=manifest.NamedInputs(columns=(("input", "source"),)),
        notify=notices.append,
    )
    assert Path(str(edit.input)).name == "in.png"
    assert any('"input" is not read' in notice for notice in notices)


@pytest.mark.parametrize(
    "text", ['{"id": "a"}', "[1]", "[", '"x"', "[{}", '[{"id": NaN}]']
)
def test_json_that_is_no_array_of_objects_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "edits.json"
    path.write_text(text)
    with pytest.raises(ManifestError, match=r"edits\.json.*expected an (array|object)"):
        edits(path)


def test_a_folder_with_a_manifest_in_it_says_which_file_to_name(tmp_path: Path) -> None:
    jsonl(tmp_path, {"id": "a", "input": "in.png", "edited": "out.png"})
    (tmp_path / "a_ratings.csv").write_text("item,rater,factor,score\n")
    for name in ("input", "edited"):
        (tmp_path / name).mkdir()
    (tmp_path / "input/1.png").write_bytes(picture())
    with raises(ManifestError, "folder_with_a_manifest", "edits.jsonl"):
        edits(tmp_path)


def test_a_folder_for_each_model_says_that_the_manifest_in_it_is_not_read(
    tmp_path: Path,
) -> None:
    jsonl(tmp_path, {"id": "a", "input": "in.png", "edited": "out.png"})
    for name in ("input", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(picture())
    notices: list[str] = []
    assert [edit.model for edit in edits(tmp_path, notify=notices.append)] == ["mine"]
    assert any(
        re.search(r"read as a folder for each model.* name .*edits\.jsonl", notice)
        for notice in notices
    )


def test_every_column_that_looks_like_a_field_is_in_the_hint(tmp_path: Path) -> None:
    jsonl(
        tmp_path,
        {"id": "a", "source": "in.png", "target": "out.png", "prompt": "make it blue"},
    )
    mapping = "--column input=source --column edited=target --column instruction=prompt"
    with raises(ManifestError, "misspelt_field", mapping):
        edits(tmp_path / "edits.jsonl")
