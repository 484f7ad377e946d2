"""`--read logprobs` against llama.cpp's own server and a judge in a file, held against a softmax of the model's own
logits, which the test works out from the weights that it wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import tiny_model
from bench.recorded_server import serve
from tests.running.made import editjudge, edits

NEVER = dict.fromkeys((" 1", " 5", " 10"), -20.0)
SURE = NEVER | {
    "1": 7.0,
    "3": 9.0,
    "5": 8.0,
    " 3": 6.0,
    '"': 7.5,
    " the": 6.0,
    '", "': 6.5,
    '"}': 6.5,
}
"""Mostly digits; strings end. What spells a score is among the twenty tokens that are listed, or never written."""
TENS = NEVER | {
    "1": 9.0,
    "0": 8.0,
    "7": 8.5,
    "10": 7.0,
    '"': 7.5,
    "}": 7.5,
    "}}": 6.0,
    ",": 6.0,
}
# twenty, and no ties with the rest
TENS |= dict.fromkeys((" light", " same", " change", " shadow", " region"), 1.5)
ENDS = (",", "}", "]", " ", "\n", "\t", "\r")
SCALE = """
name: tens
description: A scale with a number of two digits.
task: How good is the edit?
images: [edited]
scale: {values: [0, 1, 7, 10]}
factors: [{key: good, definition: How good it is.}]
answer: {form: scores}
"""


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flat")
    tiny_model.write(folder / "sure", biases=SURE, flat=True)
    tiny_model.write(folder / "tens", biases=TENS, flat=True)
    return folder


@pytest.fixture(scope="module")
def flat_server(flat: Path) -> Iterator[str]:
    with serve(
        flat / "sure" / "tiny.gguf", flat / "sure" / "mmproj-tiny.gguf", context=16_384
    ) as address:
        yield address


def softmax(biases: dict[str, float]) -> dict[str, float]:
    logits = tiny_model.logits(biases)
    total = math.fsum(math.exp(logit) for logit in logits.values())
    return {token: math.exp(logit) / total for token, logit in logits.items()}


def judged(
    folder: Path, judge: str, *words: object, rubric: object = "compliance"
) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    manifest = edits(folder, 4, referring_expression="the car")
    told = editjudge(
        *(
            "run",
            manifest,
            "--rubric",
            rubric,
            "--judge",
            judge,
            "--store",
            folder / "s.db",
            "--name",
            "r",
            "--json",
        ),
        *("--concurrency", 1, "--max-tokens", 300, "--max-failures", 1, *words),
    )
    assert told.code == 0, told.err
    exported = editjudge(
        "export",
        "r",
        "-o",
        folder / "out",
        "--format",
        "jsonl",
        "--store",
        folder / "s.db",
    )
    assert exported.code == 0, exported.err
    return [
        json.loads(line)
        for line in (folder / "out" / "judgements.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("where", ["server", "file"])
def test_expected_and_mass_are_those_of_a_softmax_over_the_logits(
    where: str, tmp_path: Path, flat: Path, flat_server: str
) -> None:
    shares = softmax(SURE)
    values = {
        1: shares["1"] + shares[" 1"],
        3: shares["3"] + shares[" 3"],
        5: shares["5"] + shares[" 5"],
    }
    mass = sum(values.values())
    mean = sum(value * share for value, share in values.items()) / mass
    judge = "openai-compatible/flat"
    words = ("--base-url", f"{flat_server}/v1")
    if where == "file":
        judge = f"gguf:{flat / 'sure' / 'tiny.gguf'}"
        words = ("-J", "threads=1")
    rows = [
        row
        for row in judged(
            tmp_path, judge, *words, "--read", "logprobs", "--min-mass", 0.5
        )
        if row["scores"]
    ]
    assert len(rows) == 4
    for row in rows:
        assert row["expected"], row["abstained"]
        assert set(row["expected"]) == set(row["mass"]) == set(row["scores"])
        for factor, expected in row["expected"].items():
            assert expected == pytest.approx(mean, abs=1e-4)
            assert row["mass"][factor] == pytest.approx(mass, abs=1e-4)
        assert not row["abstained"] and {
            type(score) for score in row["scores"].values()
        } == {int}


def test_a_number_of_two_tokens_is_read_by_its_chain(
    tmp_path: Path, flat: Path
) -> None:
    """Ten is one token or two; a one is one if it ends there, which only a reply says that wrote a one."""
    (tmp_path / "tens.yaml").write_text(SCALE)
    shares = softmax(TENS)
    listed = sorted(shares, key=shares.__getitem__, reverse=True)[:20]
    ends = math.fsum(shares[token] for token in listed if token.startswith(ENDS))
    whole = {0: shares["0"], 7: shares["7"], 10: shares["10"]}
    by_chain = {
        **whole,
        1: shares["1"] * ends,
        10: shares["10"] + shares["1"] * shares["0"],
    }
    words = (
        "-J",
        "threads=1",
        "--read",
        "logprobs",
        "--min-mass",
        0,
        "--repeats",
        6,
        "--temperature",
        2,
    )
    rows = judged(
        tmp_path,
        f"gguf:{flat / 'tens' / 'tiny.gguf'}",
        *words,
        rubric=tmp_path / "tens.yaml",
    )
    chained = 0
    for row in rows:
        mass = row["mass"]["good"]
        is_chained = row["scores"]["good"] == 1 or mass > sum(whole.values()) + 1e-3
        values = by_chain if is_chained else whole
        chained += is_chained
        assert mass == pytest.approx(sum(values.values()), abs=1e-4)
        expected = sum(value * share for value, share in values.items()) / sum(
            values.values()
        )
        assert row["expected"]["good"] == pytest.approx(expected, abs=1e-4)
    assert len(rows) == 24 and chained  # two fifths of all begin with a one


def test_below_the_least_mass_a_factor_abstains_and_keeps_its_score(
    tmp_path: Path, tiny_server: str
) -> None:
    for row in judged(
        tmp_path,
        "openai-compatible/tiny",
        "--base-url",
        f"{tiny_server}/v1",
        "--read",
        "logprobs",
    ):
        assert row["status"] == "ok" and row["expected"] == {} == row["mass"]
        assert set(row["abstained"]) == set(row["scores"])
        assert all("--min-mass 0.9" in reason for reason in row["abstained"].values())


def test_statistics_are_of_expected_scores_where_that_is_asked_for(
    tmp_path: Path, flat_server: str
) -> None:
    words = ("--base-url", f"{flat_server}/v1", "--read", "logprobs", "--min-mass", 0.5)
    rows = judged(tmp_path, "openai-compatible/flat", *words)
    mean = rows[0]["expected"]["effect_score"]
    store = ("--store", tmp_path / "s.db", "--json")
    report = editjudge("report", "r", "--use", "expected", *store).json
    assert report["of"] == "expected"
    assert [factor["mean"] for factor in report["factors"]] == [pytest.approx(mean)] * 2
    assert (
        editjudge("compare", "r", "--use", "expected", *store).json["of"] == "expected"
    )
    (tmp_path / "ratings.csv").write_text(
        "item,rater,factor,score\n"
        + "".join(f"e{n},ann,effect_score,{n % 3}\n" for n in range(4))
    )
    agreed = editjudge(
        "agree", "r", "--ratings", tmp_path / "ratings.csv", "--use", "expected", *store
    )
    assert agreed.code == 0, agreed.err
    (judge,) = agreed.json["factors"]["effect_score"].values()
    assert judge["mae"] == pytest.approx(
        sum(abs(mean - n % 3) for n in range(4)) / 4, abs=1e-6
    )
    words_alone = editjudge("report", "r", "--use", "expected", *store[:2])
    assert "based on expected scores" in words_alone.out


def test_without_probabilities_there_is_nothing_to_report(
    tmp_path: Path, flat_server: str
) -> None:
    judged(tmp_path, "openai-compatible/flat", "--base-url", f"{flat_server}/v1")
    told = editjudge("report", "r", "--use", "expected", "--store", tmp_path / "s.db")
    assert told.code == 1 and "--read logprobs" in told.err


def test_probabilities_are_part_of_the_key_only_where_they_are_read(
    tmp_path: Path, flat_server: str
) -> None:
    words = ("--base-url", f"{flat_server}/v1")
    plain = {
        row["key"] for row in judged(tmp_path / "a", "openai-compatible/flat", *words)
    }
    other = {
        row["key"]
        for row in judged(
            tmp_path / "b", "openai-compatible/flat", *words, "--min-mass", 0.3
        )
    }
    read = {
        row["key"]
        for row in judged(
            tmp_path / "c", "openai-compatible/flat", *words, "--read", "logprobs"
        )
    }
    assert plain == other and not plain & read
