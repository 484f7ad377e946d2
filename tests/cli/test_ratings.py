"""`editjudge ratings import`, and the files of ratings and scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from editjudge.store import Store
from editjudge.store.ratings import add_ratings, read_ratings
from tests.faults import check_error, shows

from .stores import Call, call

__all__ = ["call"]

ROWS = [
    ("a", "p1", "alignment", 6),
    ("a", "p2", "alignment", 5.5),
    ("b", "p1", "alignment", 2),
]


def write(path: Path, rows: Sequence[tuple[object, ...]] = tuple(ROWS)) -> Path:
    names = ("item", "rater", "factor", "score")
    if path.suffix == ".csv":
        lines = [names, *rows]
        path.write_text(
            "".join(
                ",".join("" if v is None else str(v) for v in row) + "\n"
                for row in lines
            ),
            "utf-8",
        )
    elif path.suffix == ".jsonl":
        path.write_text(
            "".join(
                json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows
            ),
            "utf-8",
        )
    else:
        arrow = pytest.importorskip("pyarrow")
        columns = {n: [row[i] for row in rows] for i, n in enumerate(names)}
        pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), path)
    return path


def kept(path: Path) -> list[tuple[str, str, str, float]]:
    with Store.open(path, readonly=True) as store:
        return [row[:4] for row in read_ratings(store)]


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.parquet"])
def test_every_kind_of_file_is_read(call: Call, tmp_path: Path, name: str) -> None:
    rows = [(*row[:3], float(row[3])) for row in ROWS]
    done = call(
        "ratings",
        "import",
        write(tmp_path / name, rows),
        "--store",
        tmp_path / "s.db",
        "--json",
    )
    assert done.document == {
        "file": str(tmp_path / name), "ratings": 3, "raters": 2, "items": 2, "new": 3, "kept": 3, "unbound": 3,
    }  # fmt: skip
    assert kept(tmp_path / "s.db") == sorted(rows)


def test_twice_is_once_and_another_score_of_an_id_that_no_run_has_is_refused(
    call: Call, tmp_path: Path
) -> None:
    store = tmp_path / "s.db"
    for _ in range(2):
        done = call("ratings", "import", write(tmp_path / "r.csv"), "--store", store)
    assert shows(done.out, "3 ratings of 2 items by 2 raters", "0 new", "has 3", "3")
    done = call(
        "ratings",
        "import",
        write(tmp_path / "n.csv", [("a", "p1", "alignment", 7)]),
        "--store",
        store,
    )
    assert done.code == 2
    check_error(
        done.error, "another_score", "'p1'", "'a'", "--run RUN", "--manifest FILE"
    )
    assert kept(store)[0] == ("a", "p1", "alignment", 6.0)


def test_names_that_a_spreadsheet_would_run_come_back_as_they_were(
    call: Call, tmp_path: Path
) -> None:
    names = ["=a", "+b", "-c", "@d", "'=e", "''-f", "-5", "'-5", "'quoted'", "plain"]
    rows = sorted((name, name, "alignment", float(n)) for n, name in enumerate(names))
    stores = [tmp_path / "a.db", tmp_path / "b.db"]
    call("ratings", "import", write(tmp_path / "r.jsonl", rows), "--store", stores[0])
    call("ratings", "export", tmp_path / "out.csv", "--store", stores[0])
    call("ratings", "import", tmp_path / "out.csv", "--store", stores[1])
    assert kept(stores[0]) == kept(stores[1]) == rows


def test_an_unanswered_question_is_no_rating(call: Call, tmp_path: Path) -> None:
    rows = [*ROWS, ("b", "p2", "alignment", None)]
    call(
        "ratings",
        "import",
        write(tmp_path / "r.csv", rows),
        "--store",
        tmp_path / "s.db",
    )
    assert len(kept(tmp_path / "s.db")) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "item,rater,factor,score\na,p,f,high\n",
            ":2: field \"score\": found 'high', expected a number",
        ),
        ("item,rater,factor,score\na,p,f,nan\n", ":2: field \"score\": found 'nan'"),
        (
            "item,rater,factor,score\na,p,f,1\n,p,f,1\n",
            ':3: field "item": found None, expected a name',
        ),
        ("item,rater,score\na,p,1\n", ':2: field "factor": is missing; found'),
        ("item,rater,factor,score\na,p,f\n", ":2: found 3 cells, expected 4"),
        (
            "item,rater,factor,score\na,p,f,1\na,p,f,2\n",
            ":3: p gave a on f 1 on line 2 and 2 here",
        ),
        ("item,rater,factor,score\n", "has no rows"),
        ("", "expected names, each once"),
        ("item,rater,factor,score\na,p,f,\nb,p,f,\n", "every score is empty"),
        (
            "item,rater,factor,score\na,p,f,1_000\n",
            ":2: field \"score\": found '1_000'",
        ),
        ("item,rater,factor,score\na,p,f,\u0663\n", ':2: field "score": found'),
        ("item,rater,factor,score\na,p,f,inf\n", ":2: field \"score\": found 'inf'"),
        (
            "item,rater,factor,score\na,p,f,1e999\n",
            ":2: field \"score\": found '1e999'",
        ),
        ("item,rater,factor,score,score\na,p,f,1,2\n", "expected names, each once"),
        ("item;rater;factor;score\na;p;f;1\n", "expected commas between cells"),
    ],
)
def test_an_error_names_line_and_field_and_nothing_is_kept(
    call: Call, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "r.csv"
    path.write_text(text)
    done = call("ratings", "import", path, "--store", tmp_path / "s.db")
    assert (done.code, done.out) == (1, "") and said in done.err
    assert not (tmp_path / "s.db").exists()


def test_what_people_chose_of_pairs_comes_back_from_an_export(
    call: Call, tmp_path: Path
) -> None:
    text = "item,rater,factor,score,choice\np,ann,overall,0.5,both_bad\nq,ann,overall,1,a\nr,ann,overall,0.5,tie\n"
    (tmp_path / "r.csv").write_text(text)
    assert (
        call("ratings", "import", tmp_path / "r.csv", "--store", tmp_path / "s.db").code
        == 0
    )
    call("ratings", "export", tmp_path / "out.csv", "--store", tmp_path / "s.db")
    assert (tmp_path / "out.csv").read_text() == text
    (tmp_path / "wrong.csv").write_text(
        "item,rater,factor,score,choice\np,ann,overall,1,both_bad\n"
    )
    done = call(
        "ratings", "import", tmp_path / "wrong.csv", "--store", tmp_path / "t.db"
    )
    assert done.code == 1
    check_error(done.error, "bad_line", ':2: field "choice"', "both_bad")


def test_a_new_score_takes_the_choice_of_the_old_one_away(
    call: Call, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for score in (0.5, 1.0):
            choice = "both_bad" if score == 0.5 else ""
            row = ("p", "ann", "overall", score, "content", "", choice)
            add_ratings(store, [row])
            assert [row.choice for row in read_ratings(store)] == [choice]


def test_a_file_that_is_none_is_told(call: Call, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv", tmp_path / "r.xlsx"):
        assert call("ratings", "import", path, "--store", tmp_path / "s.db").code == 1
