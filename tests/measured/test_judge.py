"""The judge as the rest of the program sees it: judgements, statuses, keys and envelopes."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import re
import struct
import sys
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editjudge import plugins
from editjudge.edit import Edit
from editjudge.errors import UsageError
from editjudge.judgement import Judgement
from editjudge.judges.judge import Options
from editjudge.judges.registry import open_judge
from editjudge.rubrics.answer import envelope
from editjudge.rubrics.contract import check
from editjudge.rubrics.files import resolve
from editjudge.rubrics.verdict import Verdict
from editjudge.running.job import judge_edit
from editjudge.vision.measured import Measured, evidence_pictures

from .made import encoded, photograph, recoloured, region

INPUT = photograph()
EDITED = recoloured(INPUT)
EDIT = Edit(
    "one",
    encoded(INPUT),
    encoded(EDITED),
    "make the thing in the middle look different",
)


def judge(edit: Edit, *rubrics: str) -> dict[str, Judgement]:
    asked = resolve(rubrics)
    found = asyncio.run(judge_edit(edit, asked, "measured", Options()))
    return {
        rubric.name: judgement for rubric, judgement in zip(asked, found, strict=True)
    }


def test_a_clean_edit_is_scored_with_reasons_inside_the_word_limits() -> None:
    for judgement in judge(EDIT, "preservation", "quality").values():
        assert judgement.status == "ok" and judgement.scores
        for key, reason in (judgement.justifications or {}).items():
            assert 15 <= len(reason.split()) <= 30, (key, reason)
            assert any(word in reason for word in ("centre", "picture")), reason


@pytest.mark.parametrize("rubrics", [("preservation", "quality"), ("reference",)])
def test_of_a_picture_that_changed_as_a_whole_every_reason_says_so(
    rubrics: tuple[str, ...],
) -> None:
    darker = encoded((INPUT * 0.5).astype(np.uint8))
    moved: dict[str, str] = {}
    for judgement in judge(
        dataclasses.replace(EDIT, edited=darker, ground_truth=EDIT.input), *rubrics
    ).values():
        moved |= judgement.justifications or {}
    units = re.search(r"shifted by (\d+\.\d) Lab units", moved["global_consistency"])
    assert units and float(units[1]) > 10
    for key in set(moved) - {
        "global_consistency",
        "image_quality",
        "alignment",
        "completeness",
    }:
        assert f"colour shift of {units[1]} units" in moved[key] and moved[
            key
        ].endswith("."), moved[key]
        assert not re.search("nowhere|the edit |0 % visibly", moved[key]), moved[key]


def test_a_shift_of_all_colours_is_said_beside_an_edit_too() -> None:
    darker = encoded((EDITED * 0.5).astype(np.uint8))
    said = (
        judge(dataclasses.replace(EDIT, edited=darker), "preservation")[
            "preservation"
        ].justifications
        or {}
    )
    beside = r"Outside the edit \(.+\), .+ visibly changed beside a colour shift of \d.+ units\."
    assert re.fullmatch(beside, said["unchanged_regions"])


def test_what_needs_understanding_is_left_open_with_the_reason() -> None:
    found = judge(EDIT, "quality", "fidelity")
    assert set(found["quality"].abstained) == {"scale_realism", "spatial_relationship"}
    assert found["fidelity"].status == "abstained"
    assert all(found["fidelity"].abstained.values())


def test_an_unchanged_picture_keeps_everything_and_does_nothing() -> None:
    found = judge(
        dataclasses.replace(EDIT, edited=EDIT.input),
        "preservation",
        "fidelity",
        "compliance",
    )
    assert found["preservation"].scores == {
        "unchanged_regions": 7,
        "global_consistency": 7,
        "identity_preservation": 7,
    }
    assert found["fidelity"].scores == {"alignment": 1, "completeness": 1}
    assert found["compliance"].scores == {"effect_score": 1}


def test_the_ground_truth_as_the_edit_is_perfect() -> None:
    edit = dataclasses.replace(EDIT, ground_truth=EDIT.edited)
    scores = judge(edit, "reference")["reference"].scores
    assert scores is not None and set(scores.values()) == {7} and len(scores) == 12


@pytest.mark.parametrize("rubric", ["preservation", "reference", "lighting"])
def test_the_envelope_of_a_full_verdict_is_accepted_by_the_rubrics_own_contract(
    rubric: str,
) -> None:
    edit = dataclasses.replace(EDIT, ground_truth=EDIT.edited)
    judgement = judge(edit, rubric)[rubric]
    assert judgement.scores is not None and judgement.justifications is not None
    asked = resolve([rubric])[0]
    document = json.dumps(
        envelope(asked, "one", judgement.scores, judgement.justifications, {})
    )
    outcome = check(asked, document, identifier="one", strict=rubric != "lighting")
    assert isinstance(outcome, Verdict) and outcome.scores == judgement.scores


def test_evidence_has_names_units_and_json_values() -> None:
    evidence = judge(EDIT, "preservation")["preservation"].evidence
    json.dumps(evidence, allow_nan=False)
    assert evidence["measures"]["change.share"] == {
        "value": pytest.approx(0.1, abs=0.06),
        "unit": "share of the picture",
    }
    assert evidence["region"]["place"] == "centre"


def test_evidence_is_drawn_as_pictures() -> None:
    drawn = evidence_pictures(encoded(INPUT), encoded(EDITED))
    assert set(drawn) == {"change", "boundary"}
    assert Image.open(io.BytesIO(drawn["change"])).size == (
        INPUT.shape[1],
        INPUT.shape[0],
    )


def test_the_mask_the_ground_truth_and_the_instruction_are_part_of_the_key() -> None:
    mask = encoded((region(INPUT.shape, 0)[..., 0] * 255).astype(np.uint8))
    variants = [
        EDIT,
        dataclasses.replace(EDIT, mask=mask),
        dataclasses.replace(EDIT, ground_truth=EDIT.edited),
        dataclasses.replace(EDIT, instruction="another"),
    ]
    keys = {judge(edit, "preservation")["preservation"].key for edit in variants}
    assert len(keys) == 4


def test_the_calibration_is_part_of_the_key() -> None:
    identity = Measured().identity(EDIT, resolve(["quality"])[0], 0)
    assert len(str(identity["calibration"])) == 64 and identity["version"]


def test_without_its_dependencies_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "missing", lambda _: ["rapidocr"])
    with pytest.raises(UsageError, match=r"rapidocr.*editjudge\[measured\]"):
        asyncio.run(open_judge("measured", Options(), lambda _: None, None))  # type: ignore[arg-type,return-value]


# --- hostile pictures -----------------------------------------------------------------------------------------


def _sixteen_bits() -> bytes:
    return encoded((EDITED.mean(axis=2) * 257).astype(np.uint16))


def _exif_rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(np.rot90(EDITED).copy(), exif=exif)


def _animated() -> bytes:
    out = io.BytesIO()
    frames = [Image.fromarray(EDITED), Image.fromarray(255 - EDITED)]
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    return out.getvalue()


def _converted(mode: str, kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(EDITED).convert(mode).save(out, kind)
    return out.getvalue()


def _bomb() -> bytes:
    """A PNG that claims a picture of 60,000 by 60,000."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body))
            + kind
            + body
            + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 999))
        + chunk(b"IEND", b"")
    )


SOUND: dict[str, Callable[[], bytes]] = {
    "exif_rotated": _exif_rotated,
    "animated": _animated,
    "alpha": lambda: _converted("RGBA", "PNG"),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_picture_in_an_unusual_form_is_measured_as_what_it_shows(name: str) -> None:
    found = judge(dataclasses.replace(EDIT, edited=SOUND[name]()), "preservation")[
        "preservation"
    ]
    assert found.scores == judge(EDIT, "preservation")["preservation"].scores


@pytest.mark.parametrize(
    "make",
    [_sixteen_bits, lambda: _converted("CMYK", "JPEG"), lambda: _converted("P", "GIF")],
)
def test_other_depths_and_colour_models_never_crash(make: Callable[[], bytes]) -> None:
    assert (
        judge(dataclasses.replace(EDIT, edited=make()), "online")["preservation"].status
        == "ok"
    )


@pytest.mark.parametrize("data", [encoded(EDITED)[:-4000], b"", b"no picture", _bomb()])
def test_what_is_no_picture_is_a_bad_image(data: bytes) -> None:
    for judgement in judge(dataclasses.replace(EDIT, edited=data), "online").values():
        assert judgement.status == "bad_image" and judgement.scores is None


@pytest.mark.parametrize("data", [encoded(EDITED)[:-4000], b"no picture", _bomb()])
def test_a_broken_picture_counts_only_against_the_rubric_that_shows_it(
    data: bytes,
) -> None:
    broken = dataclasses.replace(EDIT, mask=data, ground_truth=data)
    found = judge(broken, "preservation", "quality", "reference")
    assert [
        found[name].status for name in ("preservation", "quality", "reference")
    ] == ["ok", "ok", "bad_image"]
    assert (
        found["preservation"].scores
        == judge(EDIT, "preservation")["preservation"].scores
    )


@pytest.mark.parametrize(
    "shape", [(1, 1, 3), (2, 20_000, 3), (20_000, 2, 3), (9, 9, 3)]
)
def test_pictures_without_room_for_a_measurement_are_left_open(
    shape: tuple[int, int, int],
) -> None:
    dark, light = (encoded(np.full(shape, level, np.uint8)) for level in (10, 240))
    different = judge(Edit("x", dark, light, "make it light"), "online")
    assert all(judgement.status == "abstained" for judgement in different.values())
    same = judge(Edit("x", dark, dark, "make it light"), "preservation", "fidelity")
    assert (
        same["preservation"].scores
        and same["preservation"].scores["unchanged_regions"] == 7
    )
    assert same["fidelity"].scores and same["fidelity"].scores["alignment"] == 1


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_picture_of_one_colour_gives_no_wrong_number(level: int) -> None:
    flat = encoded(np.full((64, 64, 3), level, np.uint8))
    found = judge(Edit("x", flat, flat, "anything"), "online")
    assert (
        found["preservation"].scores
        and found["preservation"].scores["unchanged_regions"] == 7
    )
    assert "identity_preservation" in found["preservation"].abstained


def test_a_run_over_a_manifest_asks_the_judge_once_for_each_edit(
    tmp_path: Path,
) -> None:
    import editjudge as ej

    (tmp_path / "a.png").write_bytes(encoded(INPUT))
    (tmp_path / "b.png").write_bytes(encoded(EDITED))
    line: dict[str, Any] = {
        "id": "e",
        "input": "a.png",
        "edited": "b.png",
        "instruction": "recolour it",
    }
    (tmp_path / "m.jsonl").write_text(
        json.dumps(line) + "\n" + json.dumps(line | {"id": "f", "edited": "a.png"})
    )
    ej.run(
        str(tmp_path / "m.jsonl"),
        rubrics=["online"],
        judges=["measured"],
        store=str(tmp_path / "s.db"),
    )


def test_a_library_that_another_thread_is_importing_is_not_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half_imported = types.ModuleType("cv2")
    half_imported.__spec__ = None
    monkeypatch.setitem(sys.modules, "cv2", half_imported)
    assert plugins.missing("measured") == []
