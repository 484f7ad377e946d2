"""`editjudge import-run`, and the verbs that read a run from Parquet in the place of a store."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from editjudge.report.gallery import EditView
from editjudge.store import Store
from editjudge.web.app import create
from editjudge.web.site import Site
from editjudge.web.values import edit_url
from tests.faults import check_error, shows
from tests.running.made import picture

from .stores import Call, Spec, call, made, quality

__all__ = ["call"]


def say(model: str, n: int, judge: str, factor: str, repeat: int) -> int | str | None:
    odd = {3: "refused", 5: None, 7: "pending", 9: "bad_image"}
    return odd[n] if n in odd else quality(model, n, judge, factor, repeat)


SPEC = Spec(
    models=("Zoë", "", "ab\ud83d"),
    rubrics=("online",),
    judges=("openai/m", "measured"),
    repeats=1,
    edits=10,
    metadata=lambda n: {"size": "large" if n % 2 else "small", "n": n},
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return made(tmp_path / "s.db", SPEC, say)


@pytest.fixture(params=["parquet", "jsonl"])
def folder(
    request: pytest.FixtureRequest, store: Path, tmp_path: Path, call: Call
) -> Path:
    told = call(
        "export",
        "r",
        "-o",
        tmp_path / "out",
        "--format",
        request.param,
        "--replies",
        "--store",
        store,
    )
    assert told.code == 0, told.err
    return tmp_path / "out"


def kept(store: Path) -> dict[str, Any]:
    """All that a run is."""
    with Store.open(store, readonly=True) as opened:
        run = dataclasses.replace(opened.find_run("r"), imported_from=None)
        rows = list(opened.judgements(run))
        return {
            "run": run,
            "rows": rows,
            "items": list(opened.items(run)),
            "rubrics": opened.rubrics(),
            "replies": {row["key"]: opened.replies(row["key"]) for row in rows},
        }


def test_what_was_exported_comes_back_to_the_row_and_twice_is_once(
    store: Path, folder: Path, tmp_path: Path, call: Call
) -> None:
    for _ in range(2):
        told = call("import-run", folder, "--store", tmp_path / "new.db", "--json")
        assert told.code == 0, told.err
        assert told.document == {
            "run": "r",
            "id": 1,
            "judgements": len(kept(store)["rows"]),
        }
        assert kept(tmp_path / "new.db") == kept(store)
    assert call("import-run", folder, "--store", store).code == 0, (
        "into the store that it came from"
    )


def test_a_report_of_what_came_back_is_the_same(
    store: Path, folder: Path, tmp_path: Path, call: Call
) -> None:
    call("import-run", folder, "--store", tmp_path / "new.db")
    first, second = (
        call("report", "r", "--format", "json", "--store", s)
        for s in (store, tmp_path / "new.db")
    )
    assert first.out == second.out


# --- what is refused ------------------------------------------------------------------------------------------

Change = Callable[[list[dict[str, Any]]], object]


def changed(folder: Path, change: Change, table: str = "judgements") -> int:
    """The same folder with other rows, and how many there are."""
    lines = folder / f"{table}.jsonl"
    if lines.exists():
        rows = [json.loads(line) for line in lines.read_text().splitlines()]
        change(rows)
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return len(rows)
    (path,) = (folder / table).glob("*.parquet")
    shard = pq.read_table(path)
    rows = shard.to_pylist()
    texts = (
        "scores",
        "abstained",
        "evidence",
        "reasons",
        "images",
        "metadata",
        "usage",
        "expected",
        "mass",
    )
    for row in rows:
        row |= {
            name: json.loads(row[name]) for name in texts if row.get(name) is not None
        }
    change(rows)
    for row in rows:
        row |= {
            name: json.dumps(row[name]) for name in texts if row.get(name) is not None
        }
    pq.write_table(pa.Table.from_pylist(rows, shard.schema), path)
    return len(rows)


def sealed(folder: Path) -> None:
    """Write the digests and row counts anew, as whoever forges an export would."""
    path = folder / "run.json"
    about = json.loads(path.read_text())
    for name, entry in about["files"].items():
        entry["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if name.endswith(".jsonl"):
            entry["rows"] = len((folder / name).read_text().splitlines())
        else:
            entry["rows"] = pq.read_metadata(folder / name).num_rows
    path.write_text(json.dumps(about))


def of_earlier_version(folder: Path) -> None:
    """Take the digests out of run.json."""
    path = folder / "run.json"
    about = json.loads(path.read_text())
    about.pop("files", None)
    path.write_text(json.dumps(about))


def set_in(kind: str, **values: Any) -> Change:
    """Change the first row of this status."""
    return lambda rows: next(row for row in rows if row["status"] == kind).update(
        values
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            set_in("refused", scores={"alignment": 1}),
            "a row that is refused has scores",
        ),
        (set_in("ok", scores=None), "a row that is ok has no scores"),
        (
            set_in("ok", scores={"alignment": 9}),
            "scores of 'alignment': found 9, which the rubric preservation does not allow",
        ),
        (set_in("ok", scores={"beauty": 1}), "scores of 'beauty': found 1"),
        (set_in("ok", scores={"alignment": "5"}), "valid integer; found '5'"),
        (
            set_in("ok", scores={"alignment": 5.0}),
            "scores of 'alignment': found 5.0",
        ),
        (set_in("ok", created=1e300), "created: Input should be less than"),
        (
            set_in("ok", evidence={"lettering": [1, 2]}),
            "evidence.lettering has to be an object",
        ),
        (
            set_in("ok", evidence={"lettering": {"edited": [{"box": 7}]}}),
            "evidence.lettering has to be an object",
        ),
        (set_in("ok", scores=[5]), "scores: Input should be a valid dictionary"),
        (set_in("ok", status="splendid"), "status"),
        (set_in("ok", key="../etc"), "key: String should match"),
        (lambda rows: rows.append(dict(rows[4])), "rows of judgements occur once"),
        (set_in("ok", scores={}), "a row that is ok has no scores"),
        (set_in("ok", cost=-0.01), "cost: Input should be greater than or equal to 0"),
        (
            set_in("ok", attempts=-1),
            "attempts: Input should be greater than or equal to 0",
        ),
        (set_in("ok", usage={"input_tokens": -5}), "usage.input_tokens"),
        (set_in("ok", usage={"words": 5}), "usage.words"),
        (
            set_in("ok", expected={"alignment": 7.5}),
            "expected of 'alignment': found 7.5",
        ),
        (set_in("ok", mass={"alignment": 1.5}), "mass of 'alignment': found 1.5"),
        (
            set_in("ok", rubric_hash="0" * 64, scores={"alignment": 99}),
            "run.json has no rubric 000000000000",
        ),
        (set_in("refused", item="nobody's"), 'the export has no item "nobody\'s"'),
        (
            lambda rows: rows[1].update(key=rows[0]["key"]),
            "has another answer on an earlier row",
        ),
    ],
)
def test_a_row_that_contradicts_is_refused_with_file_and_number_and_nothing_is_kept(
    folder: Path, tmp_path: Path, call: Call, change: Change, says: str
) -> None:
    changed(folder, change)
    told = call("import-run", folder, "--store", tmp_path / "new.db")
    assert told.code == 1
    assert says in told.err
    place = told.err.split(": ")[1]
    assert (
        place.partition(":")[0].startswith(str(folder / "judgements"))
        and place.rpartition(":")[2].isdigit()
    )
    assert list(tmp_path.glob("new.db*")) == []
    Store.open(tmp_path / "new.db").close()
    assert says in call("import-run", folder, "--store", tmp_path / "new.db").err
    with Store.open(tmp_path / "new.db", readonly=True) as opened:
        assert opened.runs() == [] and opened.rubrics() == {}


def refused(folder: Path, tmp_path: Path, call: Call) -> str:
    """What is said of a folder that is not imported, of which nothing is kept."""
    told = call("import-run", folder, "--store", tmp_path / "new.db")
    assert told.code == 1, told.out
    assert list(tmp_path.glob("new.db*")) == []
    return told.err


def without_failed(rows: list[dict[str, Any]]) -> None:
    rows[:] = [row for row in rows if row["status"] != "refused"]


def file_of(folder: Path, table: str) -> Path:
    (path,) = [*folder.glob(f"{table}/*.parquet"), *folder.glob(f"{table}.jsonl")]
    return path


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("items", lambda rows: rows.append(rows[0] | {"item": "one more"})),
        ("replies", lambda rows: rows.pop()),
        ("judgements", set_in("ok", model="chosen elsewhere")),
    ],
)
def test_a_file_with_other_rows_is_refused_by_its_digest(
    folder: Path, tmp_path: Path, call: Call, table: str, change: Change
) -> None:
    changed(folder, change, table)
    message = refused(folder, tmp_path, call)
    assert str(file_of(folder, table)) in message and "SHA-256" in message


def test_failed_rows_that_are_lost_are_refused_by_the_counts_alone(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    of_earlier_version(folder)
    assert call("import-run", folder, "--store", tmp_path / "whole.db").code == 0
    changed(folder, without_failed)
    assert shows(refused(folder, tmp_path, call), "fidelity, refused", 3, 0)


@pytest.mark.parametrize(
    "change", [set_in("refused", status="invalid"), set_in("ok", rubric="another")]
)
def test_rows_of_another_status_or_rubric_are_refused_by_the_counts(
    folder: Path, tmp_path: Path, call: Call, change: Change
) -> None:
    of_earlier_version(folder)
    changed(folder, change)
    assert "run.json counts" in refused(folder, tmp_path, call)


def test_one_score_that_was_changed_is_refused_by_the_digest_of_its_file(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    changed(folder, _other_score)
    message = refused(folder, tmp_path, call)
    assert str(file_of(folder, "judgements")) in message and "SHA-256" in message


@pytest.mark.parametrize("table", ["replies", "scores"])
def test_a_file_that_is_missing_or_was_not_exported_is_named(
    folder: Path, tmp_path: Path, call: Call, table: str
) -> None:
    if table == "scores" and not (folder / table).exists():
        table = "items"  # JSONL has no scores
    path = file_of(folder, table)
    data = path.read_bytes()
    path.unlink()
    assert f"{path}: is missing" in refused(folder, tmp_path, call)
    path.write_bytes(data)
    about = json.loads((folder / "run.json").read_text())
    del about["files"][path.relative_to(folder).as_posix()]
    (folder / "run.json").write_text(json.dumps(about))
    assert f"{path}: is not a file of this export" in refused(folder, tmp_path, call)


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "judgements/../../x", "judgements/part-1.parquet/.."],
)
def test_run_json_names_no_file_outside_its_folder(
    folder: Path, tmp_path: Path, call: Call, name: str
) -> None:
    about = json.loads((folder / "run.json").read_text())
    about["files"][name] = {"rows": 1, "sha256": "0" * 64}
    (folder / "run.json").write_text(json.dumps(about))
    assert "run.json: files." in refused(folder, tmp_path, call)


def test_evidence_with_a_number_that_json_has_not_is_refused(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    changed(folder, set_in("ok", evidence={"x": float("nan")}))
    assert str(file_of(folder, "judgements")) in refused(folder, tmp_path, call)


def test_an_edit_or_a_reply_that_stands_twice_is_refused(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    of_earlier_version(folder)
    changed(folder, lambda rows: rows.append(rows[0]), "replies")
    assert str(file_of(folder, "replies")) in refused(folder, tmp_path, call)
    changed(folder, lambda rows: rows.append(rows[0]), "items")
    assert str(file_of(folder, "items")) in refused(folder, tmp_path, call)


def test_a_reply_with_a_latency_below_zero_is_refused(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    changed(folder, lambda rows: rows[2].update(latency=-0.5), "replies")
    assert f"{file_of(folder, 'replies')}:3: latency" in refused(folder, tmp_path, call)


def test_a_line_that_says_a_name_twice_is_refused(
    store: Path, tmp_path: Path, call: Call
) -> None:
    call("export", "r", "-o", tmp_path / "out", "--store", store)
    path = tmp_path / "out" / "judgements.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text(
        "\n".join(
            [first.replace('"status": ', '"status": "ok", "status": ', 1), *others]
        )
    )
    assert f"{path}:1: " in refused(tmp_path / "out", tmp_path, call)


def test_a_run_that_was_exported_twice_into_one_folder_is_read_as_run_json_says(
    store: Path, tmp_path: Path, call: Call
) -> None:
    for form in ("parquet", "jsonl"):
        assert (
            call(
                "export",
                "r",
                "-o",
                tmp_path / "out",
                "--format",
                form,
                "--store",
                store,
            ).code
            == 0
        )
    part = tmp_path / "out" / "judgements" / "part-00000.parquet"
    part.write_bytes(b"nothing")
    assert (
        call("import-run", tmp_path / "out", "--store", tmp_path / "new.db").code == 0
    )
    assert kept(tmp_path / "new.db")["rows"] == kept(store)["rows"]


def test_csv_is_digested_and_not_imported(
    store: Path, tmp_path: Path, call: Call
) -> None:
    call("export", "r", "-o", tmp_path / "out", "--format", "csv", "--store", store)
    data = (tmp_path / "out" / "judgements.csv").read_bytes()
    files = json.loads((tmp_path / "out" / "run.json").read_text())["files"]
    with (tmp_path / "out" / "judgements.csv").open(
        newline="", encoding="utf-8"
    ) as file:
        rows = sum(1 for _ in csv.reader(file)) - 1
    assert files == {
        "judgements.csv": {"rows": rows, "sha256": hashlib.sha256(data).hexdigest()}
    }
    assert "--format jsonl or parquet" in refused(tmp_path / "out", tmp_path, call)


@pytest.mark.parametrize("picture", [{}, {"source": None, "digest": None}])
def test_a_picture_that_lies_nowhere_is_refused(
    folder: Path, tmp_path: Path, call: Call, picture: dict[str, None]
) -> None:
    changed(folder, lambda rows: rows[1]["images"].update(edited=picture), "items")
    assert (
        "images.'edited' has no source"
        in call("import-run", folder, "--store", tmp_path / "new.db").err
    )
    assert list(tmp_path.glob("new.db*")) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"options": 7}, "options: Input should be"),
        ({"judges": ["openai/\ud83d"]}, "judges.0: "),
    ],
)
def test_a_spec_that_pages_cannot_show_is_refused(
    folder: Path, tmp_path: Path, call: Call, changes: dict[str, Any], says: str
) -> None:
    about = json.loads((folder / "run.json").read_text())
    about["spec"] |= changes
    about["spec_hash"] = hashlib.sha256(
        json.dumps(about["spec"], sort_keys=True).encode()
    ).hexdigest()
    (folder / "run.json").write_text(json.dumps(about))
    told = call("import-run", folder, "--store", tmp_path / "new.db")
    assert told.code == 1 and says in told.err
    assert list(tmp_path.glob("new.db*")) == []


def test_another_spec_under_the_same_name_is_refused(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    made(tmp_path / "new.db", Spec(spec={"repeats": 7}))
    result = call("import-run", folder, "--store", tmp_path / "new.db")
    assert result.code == 1
    check_error(result.error, "another_spec", '"r"', "judges, repeats, rubrics")


def test_another_answer_under_the_same_key_is_refused(
    store: Path, folder: Path, call: Call
) -> None:
    changed(folder, _other_score)
    result = call("import-run", folder, "--store", store)
    assert result.code == 1
    check_error(result.error, "another_answer")


def _other_score(rows: list[dict[str, Any]]) -> None:
    scores = next(
        row for row in rows if row["status"] == "ok" and row["judge"] == "openai/m"
    )["scores"]
    factor = next(iter(scores))
    scores[factor] = 1 if scores[factor] != 1 else 2


def test_another_key_for_the_same_task_is_refused(
    store: Path, folder: Path, call: Call
) -> None:
    changed(folder, set_in("pending", key="0" * 64))
    result = call("import-run", folder, "--store", store)
    assert result.code == 1
    check_error(result.error, "another_key", "'r'")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec": {"judges": []}}, "spec does not match spec_hash"),
        ({"state": "splendid"}, "state: "),
        (
            {"rubrics": {"0" * 64: {"name": "x", "content": {}}}},
            "rubric 'x' cannot be read",
        ),
        ({"summary": 3}, "summary: "),
    ],
)
def test_a_run_json_that_contradicts_is_refused(
    folder: Path, tmp_path: Path, call: Call, change: dict[str, Any], says: str
) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    told = call("import-run", folder, "--store", tmp_path / "new.db")
    assert told.code == 1
    assert f"{path}: {says}" in told.err


def test_a_rubric_that_is_not_what_its_hash_says_is_refused(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    path = folder / "run.json"
    about = json.loads(path.read_text())
    key = next(iter(about["rubrics"]))
    about["rubrics"][key]["content"]["task"] = "say seven"
    path.write_text(json.dumps(about))
    told = call("import-run", folder, "--store", tmp_path / "new.db")
    assert told.code == 1
    assert f"hash {key[:12]}" in told.err


def test_a_folder_that_holds_no_run_or_half_of_one_is_explained(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    (folder / "run.json").unlink()
    result = call("import-run", folder, "--store", tmp_path / "new.db")
    assert result.code == 1
    check_error(result.error, "unfinished_export", "run.json")
    (tmp_path / "empty").mkdir()
    result = call("import-run", tmp_path / "empty", "--store", tmp_path / "new.db")
    assert result.code == 1
    check_error(result.error, "no_run", "empty", "judgements.jsonl")


def test_a_broken_file_is_named(folder: Path, tmp_path: Path, call: Call) -> None:
    (path,) = [*folder.glob("judgements/*.parquet"), *folder.glob("judgements.jsonl")]
    path.write_bytes(path.read_bytes()[:2000])
    told = call("import-run", folder, "--store", tmp_path / "new.db")
    assert told.code == 1 and str(path) in told.err


def test_a_column_of_another_type_is_named(
    store: Path, tmp_path: Path, call: Call
) -> None:
    call("export", "r", "-o", tmp_path / "out", "--format", "parquet", "--store", store)
    path = tmp_path / "out" / "judgements" / "part-00000.parquet"
    shard = pq.read_table(path)
    numbers = pa.array(range(len(shard)), pa.int64())
    pq.write_table(
        shard.set_column(shard.schema.get_field_index("scores"), "scores", numbers),
        path,
    )
    told = call("import-run", tmp_path / "out", "--store", tmp_path / "new.db")
    assert told.code == 1 and f"{path}:1: scores: Input should be" in told.err


# --- elsewhere ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_goes_to_an_address_and_comes_back(
    store: Path, tmp_path: Path, call: Call, form: str
) -> None:
    address = (tmp_path / "bucket" / "run").as_uri()
    export = ("export", "r", "-o", address, "--format", form, "--store", store)
    for _ in range(2):  # an earlier export of the same run is replaced
        done = call(*export, "--replies", "--json")
        assert done.code == 0, done.err
        written = done.document["written"]
        assert written[-1] == f"{address}/run.json"
    imported = call("import-run", address, "--store", tmp_path / "new.db")
    assert imported.code == 0, imported.err
    reports = [
        call("report", "r", "--format", "json", "--store", place).document["factors"]
        for place in (store, tmp_path / "new.db")
    ]
    assert reports[0] == reports[1]


def test_an_address_with_another_run_is_not_written_to(
    store: Path, tmp_path: Path, call: Call
) -> None:
    folder = tmp_path / "bucket"
    other = made(tmp_path / "other.db", Spec("another", edits=4))
    for place, run, code in ((store, "r", 0), (other, "another", 2)):
        done = call(
            "export", run, "-o", folder.as_uri(), "--format", "parquet", "--store", place
        )  # fmt: skip
        assert done.code == code, done.err
    assert "run.json of another run" in done.err
    lost = call("import-run", (tmp_path / "none").as_uri(), "--store", store)
    assert lost.code == 1 and "none" in lost.err


# --- pictures of somebody else's ------------------------------------------------------------------------------


@pytest.fixture
def forged(tmp_path: Path, call: Call) -> Path:
    """An export whose maker would like to see pictures of whoever imports it; one lies in the folder itself."""
    mine = tmp_path / "mine"
    folder = tmp_path / "theirs"
    mine.mkdir()
    (mine / "secret.png").write_bytes(picture("secret"))
    store = made(
        tmp_path / "forging.db",
        Spec(models=("m",), rubrics=("online",), edits=6, repeats=1),
        quality,
    )
    assert (
        call("export", "r", "-o", folder, "--format", "jsonl", "--store", store).code
        == 0
    )
    (folder / "own.png").write_bytes(picture("own"))
    (folder / "link.png").symlink_to(mine / "secret.png")
    sources = (folder / "own.png", mine / "secret.png", folder / "link.png", f"{folder}/../mine/secret.png",
               (mine / "secret.png").as_uri(), "/etc/passwd\0.png")  # fmt: skip

    def forge(rows: list[dict[str, Any]]) -> None:
        for row, source in zip(rows, sources, strict=True):
            row["images"] = {
                role: {"source": str(source), "digest": None}
                for role in ("input", "edited")
            }

    changed(folder, forge, "items")
    about = json.loads((folder / "run.json").read_text())
    about["spec"] |= {
        "manifest": str(mine / "m.jsonl"),
        "allow_outside": True,
        "asked_for": ["online"],
    }
    about["spec_hash"] = hashlib.sha256(
        json.dumps(about["spec"], sort_keys=True).encode()
    ).hexdigest()
    (folder / "run.json").write_text(json.dumps(about | {"imported_from": None}))
    sealed(folder)
    return folder


def shown(store: Path) -> list[bool]:
    """Of each edit, whether its pictures are served, and that the report shows as many."""
    with Store.open(store) as opened:
        run = opened.find_run("r")
        client = TestClient(create(Site(opened)), base_url="http://127.0.0.1")
        items = [item.item for item in opened.items(run)]
        served = [
            client.get(edit_url(item, run.id, "images/edited")).status_code == 200
            for item in items
        ]
        assert [client.get(edit_url(item, run.id)).status_code for item in items] == [
            200
        ] * len(items)
        sight = EditView(run, opened)
        assert [
            isinstance(sight.thumbnail(item, "edited"), bytes)
            for item in opened.items(run)
        ] == served
        return served


def test_an_imported_run_shows_pictures_of_its_own_folder_alone(
    forged: Path, tmp_path: Path, call: Call
) -> None:
    assert call("import-run", forged, "--store", tmp_path / "new.db").code == 0
    assert shown(tmp_path / "new.db") == [True, False, False, False, False, False]
    page = call("report", "r", "--format", "html", "--store", tmp_path / "new.db")
    assert page.code == 0 and "import-run --pictures" in page.out


def test_who_imports_may_name_another_folder_of_pictures(
    forged: Path, tmp_path: Path, call: Call
) -> None:
    for pictures in ((), ("--pictures", tmp_path / "mine")):
        assert (
            call("import-run", forged, *pictures, "--store", tmp_path / "new.db").code
            == 0
        )
    assert shown(tmp_path / "new.db") == [False, True, True, True, False, False]


def test_an_imported_run_is_not_done_again(
    forged: Path, tmp_path: Path, call: Call
) -> None:
    call("import-run", forged, "--store", tmp_path / "new.db")
    again = call("runs", "again", "r", "--store", tmp_path / "new.db")
    assert again.code == 2 and "were chosen elsewhere" in again.err


def test_nobody_elses_pictures_get_into_a_run_that_was_made_here(
    store: Path, folder: Path, tmp_path: Path, call: Call
) -> None:
    changed(
        folder,
        lambda rows: rows[0].update(
            images={"edited": {"source": "/x.png", "digest": None}}
        ),
        "items",
    )
    sealed(folder)
    refused = call("import-run", folder, "--store", store)
    assert refused.code == 1
    check_error(refused.error, "other_images", "'r'")


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("spec", {"judges": 5}),
        ("spec", {"rubrics": ["x"]}),
        ("spec", {"layout": "odd"}),
        ("summary", {"statuses": 5}),
    ],
)
def test_a_spec_that_no_page_could_show_is_refused(
    forged: Path, where: str, values: dict[str, Any], tmp_path: Path, call: Call
) -> None:
    about = json.loads((forged / "run.json").read_text())
    about[where] = (about[where] or {}) | values
    about["spec_hash"] = hashlib.sha256(
        json.dumps(about["spec"], sort_keys=True).encode()
    ).hexdigest()
    (forged / "run.json").write_text(json.dumps(about))
    refused = call("import-run", forged, "--store", tmp_path / "new.db")
    assert refused.code == 1 and f"run.json: {next(iter(values))}" in refused.err
