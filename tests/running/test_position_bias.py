"""A judge with known strengths and a known position bias, behind a real server: what comes out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.stub.server import Behaviour, serve_in_thread

from .made import editjudge, variables
from .test_pair_runs import line

STRENGTHS = {"ann": 1.2, "bob": 0.0, "cat": -1.2}
TIE = 0.4
SOURCES = 40


def picture(path: Path, *what: object) -> None:
    """Noise, too large to be left inside a request's JSON."""
    noise = np.random.default_rng(zlib.crc32(repr(what).encode())).integers(
        0, 256, (24, 24, 3), np.uint8
    )
    Image.fromarray(noise).save(path)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Pairs of three models, and whose each output is, by the digest that the server sees."""
    folder = tmp_path_factory.mktemp("pairs")
    owner = {}
    rows = []
    for source in range(SOURCES):
        picture(folder / f"in-{source}.png", "in", source)
        for model in STRENGTHS:
            path = folder / f"{model}-{source}.png"
            picture(path, model, source)
            owner[hashlib.sha256(base64.b64encode(path.read_bytes())).hexdigest()] = (
                model
            )
            row = {
                "id": f"{model}-{source}",
                "input": f"in-{source}.png",
                "edited": path.name,
                "model": model,
            }
            rows.append(row | {"instruction": f"do {source}"})
    (folder / "edits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (
        editjudge("pairs", folder / "edits.jsonl", "-o", folder / "pairs.jsonl").code
        == 0
    )
    return folder, owner


@pytest.mark.parametrize("bias", [0.0, 0.3, 1.0])
def test_strengths_flips_and_ties_of_a_simulated_judge_are_recovered(
    desk: tuple[Path, dict[str, str]], bias: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, owner = desk

    def prefers(first: str, second: str) -> str:
        chance = random.Random(f"{bias} {first} {second}")
        if chance.random() < bias:
            return "a"
        gap = STRENGTHS[owner[first]] - STRENGTHS[owner[second]]
        return chance.choices(
            ["a", "b", "tie"], [np.exp(gap / 2), np.exp(-gap / 2), TIE]
        )[0]

    store = folder / f"{bias}.db"
    with serve_in_thread(behaviour=Behaviour(prefers=prefers)) as stub:
        for name, value in variables(stub.url).items():
            monkeypatch.setenv(name, value)
        words = (
            "run",
            folder / "pairs.jsonl",
            "--rubric",
            "preference",
            "--judge",
            "openai/stub",
            "--store",
            store,
        )
        done = editjudge(*words, "--name", "p", "--json")
        assert done.json["statuses"] == {"ok": 2 * 3 * SOURCES}, done.err
    report = editjudge("report", "p", "--store", store, "--json").json
    overall = report["judges"]["openai/stub"]["overall"]
    if bias == 1:
        assert report["lead"][0].startswith(
            "judge openai/stub is useless here (overall)"
        )
        assert overall["decided"] == 0 and overall["flips"]["share"] == 1
        text = editjudge("report", "p", "--store", store).out
        assert "useless" in text.splitlines()[0] and all(
            model["wins"] == 0 for model in overall["models"]
        )
        return
    assert [model["model"] for model in overall["models"]] == ["ann", "bob", "cat"]
    for model in overall["models"]:
        low, high = model["strength_ci"]
        assert low <= STRENGTHS[model["model"]] <= high
    low, high = overall["position"]["ci"]
    assert low <= bias <= high
    assert (
        overall["flips"]["ci"][0] <= expected_flips(bias) <= overall["flips"]["ci"][1]
    )
    assert overall["tie_rate_of_equals"] == pytest.approx(TIE / (2 + TIE), abs=0.1)
    assert overall["groups"][0] == ["ann"] and overall["useless"] is None


def expected_flips(bias: float) -> float:
    """Over the three pairs: one answer names a, the other b."""
    shares = []
    for x, y in combinations(STRENGTHS.values(), 2):
        odds = np.array([np.exp((x - y) / 2), np.exp((y - x) / 2), TIE])
        win, lose, _ = odds / odds.sum()
        first = bias + (1 - bias) * win  # with x first
        second = (1 - bias) * lose
        back_first = (1 - bias) * win
        back_second = bias + (1 - bias) * lose
        shares.append(first * back_second + second * back_first)
    return float(np.mean(shares))


def test_the_next_pairs_are_those_whose_order_is_in_doubt(
    desk: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, _ = desk
    rows = [
        json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()
    ][: 3 * 12]
    replies = []
    for row in rows:
        for order in ("ab", "ba"):
            models = (
                [row["model_a"], row["model_b"]]
                if order == "ab"
                else [row["model_b"], row["model_a"]]
            )
            # ann is far ahead; bob and cat are equal.
            sure = "a" if models[0] == "ann" else "b"
            choice = sure if "ann" in models else "tie"
            replies.append(line(row["id"], order, choice))
    (tmp_path / "replies.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in replies)
    )
    store = tmp_path / "s.db"
    words = (
        "--rubric",
        "preference",
        "--judge",
        f"replay:{tmp_path}/replies.jsonl",
        "--store",
        store,
        "--name",
        "p",
    )
    assert (
        editjudge("run", folder / "pairs.jsonl", *words, "--limit", len(rows)).code == 0
    )
    out = folder / "next.jsonl"
    asked = (
        "pairs",
        folder / "edits.jsonl",
        "-o",
        out,
        "--next",
        "p",
        "--store",
        store,
    )
    done = editjudge(*asked, "--sample", 10, "--json")
    assert done.json["pairs"] == 10, done.err
    chosen = [json.loads(line) for line in out.read_text().splitlines()]
    assert all({row["model_a"], row["model_b"]} == {"bob", "cat"} for row in chosen)
    known = {row["id"] for row in rows}
    assert not any(
        {row["id"], "|".join(reversed(row["id"].split("|")))} & known for row in chosen
    )
    assert len({row["instruction"] for row in chosen}) == 10
    assert editjudge(*asked).code == 0 and len(out.read_text().splitlines()) == 3
    assert editjudge(*asked, "--factor", "beauty").code == 2


def test_a_run_of_scores_says_nothing_about_the_next_pairs(
    desk: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, _ = desk
    (tmp_path / "none.jsonl").write_text("")
    words = (
        "--rubric",
        "quality",
        "--judge",
        f"replay:{tmp_path}/none.jsonl",
        "--store",
        tmp_path / "s.db",
    )
    editjudge(
        "run", folder / "edits.jsonl", *words, "--name", "q", "--max-failures", "1"
    )
    asked: tuple[Any, ...] = (
        "pairs",
        folder / "edits.jsonl",
        "-o",
        tmp_path / "n.jsonl",
        "--next",
        "q",
    )
    done = editjudge(*asked, "--store", tmp_path / "s.db")
    assert done.code == 2 and "has no pairs" in done.err
