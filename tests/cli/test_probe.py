"""`editjudge probe`: a judge before edits whose right answer is known, from the pictures to the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from editjudge.vision.probes.making import probes
from tests.faults import shows
from tests.running.made import SPECS, editjudge, environment, stub

OPENAI = SPECS["openai"]
LIGHT = ("probe", "--photos", "1", "--rubric", "lighting")
FOUND = "## Difference Analysis\n- {}: {}\n\n## CP Decision\n\n## JSON\n" + (
    '{{"Contextual_Preservation": {{"reason": "As listed.", "score": {}}}}}'
)


def reply(score: int) -> str:
    return FOUND.format(
        "light" if score else "a ball", "allowed" if score else "not allowed", score
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A judge that knows every answer about light, but for one to which it said nothing."""
    rows = []
    for probe in probes(1, about={"lighting"}):
        (expected,) = probe.expected.values()
        if probe.control != "light only":
            rows.append(
                {
                    "item": probe.edit.id,
                    "rubric": "lighting",
                    "reply": reply(expected[0]),
                }
            )
    path = tmp_path / "replies.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_embedded_judge_is_probed_from_pictures_to_page(tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    arguments = ("--rubric", "compliance", "--photos", "1", "--judge", "measured")
    result = editjudge(
        "probe", *arguments, "--store", tmp_path / "s.db", "-o", page, "--json"
    )
    assert result.code == 0, result.err
    document = result.json
    assert document["judge"] == "measured" and document["photographs"] == 1
    assert {s["own"]["family"] for s in document["sensitivities"]} >= {
        "off_colour",
        "misspelt",
    }
    by_control = {c["control"]: c for c in document["controls"]}
    assert (by_control["no-op"]["score"], by_control["no-op"]["outcome"]) == (
        1,
        "passed",
    )
    assert page.read_text().startswith("<!doctype html>") and document[
        "written"
    ] == str(page)
    again = editjudge("probe", *arguments, "--store", tmp_path / "s.db")
    assert (
        again.code == 0
        and "Controls: " in again.out
        and shows(again.out, "injection attempts", "0 of 0")
    )
    runs = editjudge("runs", "list", "--store", tmp_path / "s.db", "--json").json[
        "runs"
    ]
    assert [run["spec"]["manifest"] for run in runs] == [
        "probe-request, seed 0, 1 photographs"
    ]


def test_recorded_replies_are_probed_and_a_missing_one_stays_a_failure(
    tmp_path: Path, recorded: Path
) -> None:
    result = editjudge(
        *LIGHT, "--judge", f"replay:{recorded}", "--store", tmp_path / "s.db", "--json"
    )
    assert result.code == 3
    assert result.json["statuses"] == {"ok": 3, "unreachable": 1}
    outcomes = {
        c["control"]: (c["outcome"], c["score"]) for c in result.json["controls"]
    }
    assert outcomes["light only"] == ("not judged", None)
    assert {
        name for name, (outcome, _) in outcomes.items() if outcome == "passed"
    } == outcomes.keys() - {"light only"}
    patient = editjudge(
        *LIGHT,
        "--judge",
        f"replay:{recorded}",
        "--store",
        tmp_path / "s.db",
        "--max-failures",
        "0.3",
    )
    assert patient.code == 0 and shows(patient.out, "3 of 3 passed", "1 not judged")


def test_a_judge_over_http_has_its_cost_shown_first_and_is_asked_once(
    tmp_path: Path,
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: 10, output: 40}}\n"
    )
    words = (
        *LIGHT,
        "--judge",
        OPENAI,
        "--store",
        tmp_path / "s.db",
        "--prices",
        prices,
        "--seed",
        "2",
    )
    with stub() as server:
        dry = editjudge(*words, "--dry-run", "--json")
        assert (
            dry.json["calls"] == 4 and dry.json["price"] > 0 and server.ledger.paid == 0
        )
        first = editjudge(*words, "--json")
        assert (
            "4 calls, 8 images" in first.err
            and "list prices of 2026-01-01" in first.err
        )
        again = editjudge(*words, "--json")
        assert server.ledger.paid == 4
    assert (
        first.json["controls"] == again.json["controls"]
        and len(first.json["controls"]) == 4
    )
    assert first.json["made_from"] == "seed 2, 1 photographs"


def test_a_budget_ends_the_asking_and_what_was_not_asked_is_no_figure(
    tmp_path: Path,
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        f"as_of: 2026-01-01\nmodels:\n  {OPENAI}: {{input: 10, output: 40}}\n"
    )
    with stub():
        told = editjudge(*LIGHT, "--judge", OPENAI, "--store", tmp_path / "s.db", "--prices", prices, "--budget", "0",
                         "--json")  # fmt: skip
    assert (
        told.code == 4 and told.json["statuses"] == {} and told.json["controls"] == []
    )


def test_a_dry_run_needs_no_key_and_makes_no_store(tmp_path: Path) -> None:
    words = (*LIGHT, "--judge", "openai/gpt-4.1", "--store", tmp_path / "s.db")
    with environment({"OPENAI_API_KEY": None}):
        assert editjudge(*words, "--dry-run", "--json").json["price"] > 0
        refused = editjudge(*words)
    assert refused.code == 2 and "OPENAI_API_KEY" in refused.err
    assert not (tmp_path / "s.db").exists()


def test_a_set_is_written_for_people_to_look_at(tmp_path: Path, recorded: Path) -> None:
    folder = tmp_path / "set"
    told = editjudge(*LIGHT, "--judge", f"replay:{recorded}", "--store", tmp_path / "s.db", "--write", folder,
                     "-o", tmp_path / "p.md")  # fmt: skip
    assert told.code == 3 and (tmp_path / "p.md").read_text().startswith(
        "# Probes of replay:"
    )
    rows = [
        json.loads(line)
        for line in (folder / "probe-light.jsonl").read_text().splitlines()
    ]
    assert len(rows) == 4 and all((folder / row["edited"]).is_file() for row in rows)
    audited = editjudge("audit", folder / "probe-light.jsonl", "--json")
    assert "error" not in audited.err.lower()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("-o", "p.pdf"), 2, "expected a name that ends in .html, .json, .md"),
        (("--seed", "-1"), 2, "at least 0"),
        (("--photos", "0"), 2, "0"),
        (("--rubric", "preservatoin"), 2, "did you mean"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    words: tuple[str, ...], code: int, complaint: str
) -> None:
    told = editjudge("probe", "--judge", "measured", *words)
    assert told.code == code and complaint in told.err


def test_an_unknown_provider_is_refused_before_images_are_made(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    told = editjudge("probe", "--judge", "opnai/gpt-4.1", "--write", folder)
    assert told.code == 2 and "openai" in told.err
    assert not folder.exists()
