"""One kind of table, and its forms."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from editjudge.errors import one_line
from editjudge.report.answers import together_latex, together_markdown
from editjudge.report.tables import (
    Figure,
    Table,
    coverage_figure,
    p_value,
)
from editjudge.stats.columns import Interval
from tests.faults import shows

SMALL = Table.of(
    ("model", "ok/n", "mean"),
    [
        ("a_b", coverage_figure(9, 10), Figure(5.31234, Interval(5.10123, 5.52345))),
        ("c", coverage_figure(10, 10), Figure(None)),
    ],
    "Scores",
    notes=("c has no score",),
)
HOSTILE = "=cmd|'/c calc'!A0\n\x1b[31m&%$#_{}~^\\<script>[x](y)|\u202e"
hostile = st.text(
    st.characters() | st.sampled_from("|\\&%$#_{}~^<>[]\n\x1b\u202e=+-@,\"'"),
    max_size=40,
)


def test_the_terminal_form_aligns_words_left_and_numbers_right() -> None:
    assert SMALL.text() == "\n".join(
        [
            "Scores",
            "model   ok/n               mean",
            "-------------------------------",
            "a_b     9/10  5.31 [5.10, 5.52]",
            "c      10/10                  -",
            "- c has no score",
        ]
    )


def test_markdown_escapes_what_it_would_obey() -> None:
    assert SMALL.markdown() == "\n".join(
        [
            "**Scores**",
            "",
            "| model | ok/n | mean |",
            "| :-- | --: | --: |",
            "| a\\_b | 9/10 | 5.31 [5.10, 5.52] |",
            "| c | 10/10 | - |",
            "",
            "- c has no score",
        ]
    )


def test_latex_has_booktabs_rules_and_escapes_what_it_would_obey() -> None:
    assert SMALL.latex() == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{Scores}",
            r"\begin{tabular}{lrr}",
            r"\toprule",
            r"model & ok/n & mean \\",
            r"\midrule",
            r"a\_b & 9/10 & 5.31 {[}5.10, 5.52] \\",
            r"c & 10/10 & - \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\smallskip\footnotesize c has no score",
            r"\end{table}",
        ]
    )


def test_programs_get_full_precision_and_limits_of_their_own() -> None:
    assert SMALL.records() == [
        {
            "model": "a_b",
            "ok/n": 9,
            "mean": 5.31234,
            "mean_lo": 5.10123,
            "mean_hi": 5.52345,
        },
        {"model": "c", "ok/n": 10, "mean": None, "mean_lo": None, "mean_hi": None},
    ]
    assert SMALL.csv().splitlines()[1] == "a_b,9,5.31234,5.10123,5.52345"


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_csv_cell_is_a_formula(text: str) -> None:
    table = Table.of((text, "n"), [(text, -1)])
    for row in csv.reader(io.StringIO(table.csv(), newline="")):
        assert row[0].startswith("'")
    assert table.csv().splitlines()[-1].endswith(",-1")


def test_a_number_below_zero_is_not_taken_for_a_formula() -> None:
    assert Table.of(("d",), [(Figure(-0.25, sign=True),)]).csv() == "d\r\n-0.25\r\n"


@given(hostile)
def test_no_form_lets_a_name_out_of_its_cell(name: str) -> None:
    table = Table.of(("model", "n"), [(name, 1)], name, notes=(name,))
    assert all(line.isprintable() for line in table.text().splitlines())
    assert (
        sum(
            line.startswith("| ") and line.endswith(" 1 |")
            for line in table.markdown().splitlines()
        )
        == 1
    )
    row = next(line for line in table.latex().splitlines() if line.endswith(r" & 1 \\"))
    assert row.replace(r"\&", "").count("&") == 1
    assert len(list(csv.reader(io.StringIO(table.csv(), newline="")))) == 2


def test_latex_specials_are_all_escaped() -> None:
    shown = Table.of(("m",), [(r"\ { } $ & # % _ ^ ~ < > |",)]).latex().splitlines()[6]
    assert shown == (
        r"\textbackslash{} \{ \} \$ \& \# \% \_ \textasciicircum{} \textasciitilde{} \textless{} \textgreater{} "
        r"\textbar{} \\"
    )


def test_html_in_a_name_stays_text_in_markdown() -> None:
    assert "<script>" not in Table.of(("m",), [(HOSTILE,)]).markdown()


@settings(deadline=None)  # it is about widths, whatever else the machine does
@given(
    st.lists(st.tuples(hostile, hostile, st.floats(-1e6, 1e6)), min_size=1, max_size=4),
    st.integers(40, 100),
)
def test_the_terminal_form_is_never_wider_than_asked(
    rows: list[tuple[str, str, float]], width: int
) -> None:
    figures = [(a, b, Figure(v, Interval(v - 1, v + 1)), v) for a, b, v in rows]
    table = Table.of(
        ("a long heading", "model", "mean", "v"),
        figures,
        "caption " * 30,
        notes=("note " * 40,),
    )
    assert max(map(cell_len, table.text(width).splitlines())) <= width


def test_a_terminal_does_without_spare_columns_before_it_breaks_names() -> None:
    table = Table.of(("m", "mean", "median"), [("x" * 40, 1.0, 2.0)], spare=("median",))
    assert "median" in table.text(100)
    head, *_, text = table.text(50).splitlines()
    assert "median" not in head and "x" * 40 in table.text(50)
    assert shows(text, "left out", "median")
    assert "left out" not in table.text(100)
    assert "median" in table.markdown()


def test_columns_that_go_together_are_spared_together() -> None:
    table = Table.of(
        ("m", "mean a", "mean b"), [("x" * 40, 1.0, 2.0)], spare=(("mean a", "mean b"),)
    )
    assert "mean a" in table.text(60) and table.text(50).splitlines()[0] == "m"
    assert shows(table.text(50), "left out", "mean a, mean b;")


def test_a_column_is_explained_where_it_is_shown() -> None:
    table = Table.of(
        ("m", "d"),
        [("x" * 40, 1.0)],
        spare=("d",),
        legend={"d": "the effect"},
        notes=("one",),
    )
    assert table.text(60).endswith(
        "- one\n- d: the effect"
    ) and "the effect" not in table.text(42)
    assert "- d: the effect" in table.markdown() and "d: the effect" in table.latex()
    assert table.footnotes == ("one", "d: the effect")


def test_a_column_has_one_number_of_decimals_and_an_interval_without_width_has_no_say() -> (
    None
):
    figures = [(1.5, 1.0, 2.0), (3.31, 2.9, 3.7), (4.0, 4.0, 4.0), (5.24, 5.2, 5.3)]
    rows = [(Figure(mean, Interval(lo, hi)),) for mean, lo, hi in figures]
    shown = ["1.5 [1.0, 2.0]", "3.3 [2.9, 3.7]", "4.0 [4.0, 4.0]", "5.2 [5.2, 5.3]"]
    assert [line[0] for line in Table.of(("mean",), rows).cells(9)] == shown
    assert Table.of(("mean",), rows).cells(2) == [[one] for one in shown[:2]]


def test_a_long_name_is_broken_at_its_joints() -> None:
    lines = (
        Table.of(("m", "n"), [("some-model/with_a-long_name", 1)])
        .text(20)
        .splitlines()[2:]
    )
    assert lines == ["some-model/with_   1", "a-long_name"]


def test_wide_characters_take_two_columns() -> None:
    lines = Table.of(("m", "n"), [("影影", 1), ("abcd", 2)]).text().splitlines()
    assert [cell_len(line) for line in lines[2:]] == [7, 7]


def test_a_name_that_repeats_is_shown_once_and_the_last_name_always() -> None:
    table = Table.of(
        ("f", "m", "v"), [("x", "a", 1), ("x", "a", 2), ("y", "a", 3)], stub=2
    )
    assert [line.split() for line in table.text().splitlines()[2:]] == [
        ["x", "a", "1"],
        ["a", "2"],
        ["y", "a", "3"],
    ]


def test_a_column_that_says_the_same_everywhere_goes_into_the_caption() -> None:
    table = Table.of(
        ("judge", "model", "v"), [("j", "a", 1), ("j", "b", 2)], "Scores", stub=2
    ).folded("judge", "model")
    assert (table.columns, table.caption, table.stub) == (
        ("model", "v"),
        "Scores; judge j",
        1,
    )


def test_an_empty_column_is_left_out() -> None:
    table = Table.of(("m", "failed", "abst."), [("a", 0, 1), ("b", None, 0)]).trimmed(
        "failed", "abst."
    )
    assert table.columns == ("m", "abst.")


def test_a_table_without_rows_says_its_caption_and_notes() -> None:
    table = Table.of(("m",), [], "Nothing", notes=("no scores",))
    assert table.text() == "Nothing\n- no scores"
    assert "tabular" not in table.latex() and "|" not in table.markdown()
    assert table.csv() == "m\r\n"


def test_a_figure_is_rounded_to_what_its_interval_supports() -> None:
    assert str(Figure(5.312, Interval(4.1, 6.5))) == "5.3 [4.1, 6.5]"
    assert str(Figure(5.312, Interval(5.309, 5.315))) == "5.312 [5.309, 5.315]"
    assert str(Figure(-0.001, sign=True)) == "+0.00"
    assert [str(p_value(p)) for p in (None, 0.00001, 0.0123, 0.456)] == [
        "-",
        "<.0001",
        "0.012",
        "0.46",
    ]


def test_a_whole_report_is_one_text() -> None:
    for together in (together_markdown, together_latex):
        text = together("Run x", ["48 judgements"], [SMALL, SMALL])
        assert (
            text.count("c has no score") == 2
            and "48 judgements" in text
            and text.endswith("\n")
        )


def test_clean_text_is_one_printable_line() -> None:
    assert one_line(HOSTILE).isprintable() and one_line("a\n b\tc") == "a b c"
