"""Outputs that are no edit: each kind is found, real edits are left alone, and what was asked for is not reported."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw

from editjudge.edit import Edit
from editjudge.rubrics.files import resolve
from editjudge.vision.measured import degenerate, resemblance
from editjudge.vision.measured.assess import Assessment, Subject, assess
from editjudge.vision.measured.calibration import load
from editjudge.vision.measured.degenerate import (
    Degenerate,
    classify,
    find_degenerate,
    find_flat,
    screen,
    worst,
)
from editjudge.vision.measured.resemblance import gray

from .made import Picture, encoded, jpeg, photograph, recoloured

ASKED = "make the cup blue"
RNG = np.random.default_rng(5)
SHAPE = photograph().shape


def flat(*colour: int) -> Picture:
    return np.broadcast_to(np.array(colour, np.uint8), SHAPE).copy()


def noise(shape: tuple[int, ...] = SHAPE) -> Picture:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


def marked() -> Picture:
    picture = flat(0, 0, 0)
    cv2.putText(
        picture,
        "PREVIEW",
        (20, 320),
        cv2.FONT_HERSHEY_SIMPLEX,
        0.6,
        (255, 255, 255),
        1,
        cv2.LINE_AA,
    )
    return picture


def gradient() -> Picture:
    y, x = np.mgrid[0 : 1 : SHAPE[0] * 1j, 0 : 1 : SHAPE[1] * 1j]
    return np.dstack([255 * x, 255 * y, 255 * (1 - x)]).astype(np.uint8)


def board(n: int = 8) -> Picture:
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    return np.repeat(
        (((y * n // SHAPE[0] + x * n // SHAPE[1]) % 2) * 255)[..., None], 3, 2
    ).astype(np.uint8)


def thumbnail(side: int, enlarge: int) -> Callable[[Picture], Picture]:
    def blown_up(p: Picture) -> Picture:
        small = cv2.resize(
            p,
            (side, round(side * p.shape[0] / p.shape[1])),
            interpolation=cv2.INTER_AREA,
        )
        return cv2.resize(small, p.shape[1::-1], interpolation=enlarge)

    return blown_up


def tiled(across: int, down: int) -> Callable[[Picture], Picture]:
    def tiles(p: Picture) -> Picture:
        one = cv2.resize(
            p, (p.shape[1] // across, p.shape[0] // down), interpolation=cv2.INTER_AREA
        )
        return np.tile(one, (down, across, 1))

    return tiles


def middle(p: Picture) -> Picture:
    height, width = p.shape[:2]
    part = p[height // 4 : 3 * height // 4, width // 4 : 3 * width // 4]
    return cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC)


def painted(share: float, level: int) -> Callable[[Picture], Picture]:
    """The lower part in one grey, as of a JPEG that was cut off."""

    def paint(p: Picture) -> Picture:
        painted = p.copy()
        painted[round(len(p) * (1 - share)) :] = level
        return painted

    return paint


def hollow(p: Picture) -> Picture:
    height, width = p.shape[:2]
    part = (slice(height // 4, 3 * height // 4), slice(width // 4, 3 * width // 4))
    hollow = p.copy()
    hollow[part] = p[part].mean(axis=(0, 1)).astype(np.uint8)
    return hollow


def halves(p: Picture) -> Picture:
    halves = flat(200, 30, 40)
    halves[:, p.shape[1] // 2 :] = (20, 60, 160)
    return halves


def resized(width: int, height: int) -> Callable[[Picture], Picture]:
    return lambda p: cv2.resize(p, (width, height), interpolation=cv2.INTER_AREA)


CASES: dict[str, tuple[str, Callable[[Picture], Picture]]] = {
    "black": ("flat", lambda _: flat(0, 0, 0)),
    "white": ("flat", lambda _: flat(255, 255, 255)),
    "grey": ("flat", lambda _: flat(128, 128, 128)),
    "red": ("flat", lambda _: flat(200, 20, 30)),
    "black as a poor JPEG": ("flat", lambda _: jpeg(flat(0, 0, 0), 30)),
    "black with sensor noise": (
        "near_flat",
        lambda p: np.abs(RNG.normal(3, 5, p.shape)).clip(0, 255).astype(np.uint8),
    ),
    "black with a watermark": ("near_flat", lambda _: marked()),
    "gradient": ("near_flat", lambda _: gradient()),
    "noise": ("noise", lambda p: noise(p.shape)),
    "grey noise": ("noise", lambda p: np.repeat(noise(p.shape)[..., :1], 3, 2)),
    "noise as a poor JPEG": ("noise", lambda p: jpeg(noise(p.shape), 40)),
    "noise at four fifths": (
        "noise",
        lambda p: (0.2 * p + 0.8 * noise(p.shape)).astype(np.uint8),
    ),
    "enlarged noise": (
        "noise",
        lambda p: cv2.resize(
            noise((43, 53, 3)), p.shape[1::-1], interpolation=cv2.INTER_CUBIC
        ),
    ),
    "32 pixels, smooth": ("upscaled", thumbnail(32, cv2.INTER_CUBIC)),
    "32 pixels, linear": ("upscaled", thumbnail(32, cv2.INTER_LINEAR)),
    "32 pixels, blocks": ("upscaled", thumbnail(32, cv2.INTER_NEAREST)),
    "16 pixels": ("upscaled", thumbnail(16, cv2.INTER_LANCZOS4)),
    "the lower half grey": ("partly_blank", painted(0.5, 128)),
    "the lower 70 % black": ("partly_blank", painted(0.7, 0)),
    "the middle in its mean colour": ("partly_blank", hollow),
    "two flat halves": ("near_flat", halves),
    "64 by 64 pixels": ("thumbnail", resized(64, 64)),
    "8 by 8 pixels": ("thumbnail", resized(8, 8)),
    "2 by 2 pixels": ("thumbnail", resized(2, 2)),
    "1 by 1 pixel": ("thumbnail", resized(1, 1)),
    "a strip": ("thumbnail", resized(2000, 60)),
    "ten by ten": ("tile", tiled(10, 10)),
    "the input": ("unchanged", lambda p: p),
    "the input as a poor JPEG": ("unchanged", lambda p: jpeg(p, 30)),
    "the input, halved": (
        "unchanged",
        lambda p: cv2.resize(p, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
    ),
    "the input, 256 colours": (
        "unchanged",
        lambda p: np.asarray(Image.fromarray(p).quantize(256).convert("RGB")),
    ),
    "the input as a JPEG": ("unchanged", lambda p: jpeg(p, 85)),
    "the input, smaller": (
        "unchanged",
        lambda p: cv2.resize(p, None, fx=0.8, fy=0.8, interpolation=cv2.INTER_AREA),
    ),
    "mirrored": ("mirrored", np.fliplr),
    "upside down": ("mirrored", lambda p: np.rot90(p, 2)),
    "turned": ("mirrored", np.rot90),
    "mirrored as a JPEG": (
        "mirrored",
        lambda p: jpeg(np.ascontiguousarray(np.fliplr(p)), 70),
    ),
    "two by two": ("tile", tiled(2, 2)),
    "three by one": ("tile", tiled(3, 1)),
    "a part, enlarged": ("tile", middle),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_an_output_that_is_no_edit_is_found(name: str, seed: int) -> None:
    kind, make = CASES[name]
    before = photograph(seed)
    output = find_degenerate(before, np.ascontiguousarray(make(before)), ASKED)
    assert output is not None and output.kind == kind
    assert len(output.words.split()) >= 5


@pytest.mark.parametrize("seed", range(3))
def test_another_picture_is_unrelated(seed: int) -> None:
    output = find_degenerate(photograph(seed), photograph(seed + 1), ASKED)
    assert output is not None and output.kind == "unrelated"


def test_a_small_thing_on_a_plain_ground_may_be_made_a_little_smaller() -> None:
    def thing(size: int) -> Picture:
        picture = np.full((320, 320, 3), 235, np.uint8)
        picture[60 : 60 + size, 60 : 60 + size] = (40, 90, 160)
        return picture

    # 9 % and 7 % of the picture
    assert find_degenerate(thing(96), thing(85), ASKED) is None
    gone = find_degenerate(thing(96), thing(16), ASKED)
    assert gone is not None and gone.kind == "near_flat"


@pytest.mark.parametrize("side", [64, 256, 512])
@pytest.mark.parametrize("antialiased", [False, True])
def test_an_object_of_a_drawing_in_another_colour_is_an_edit(
    side: int, antialiased: bool
) -> None:
    """A drawing has few colours, and so has its edit: that is no palette made for the input."""

    def drawing(colour: str) -> Picture:
        image = Image.new("RGB", (2 * side, 2 * side), "white")
        ImageDraw.Draw(image).ellipse(
            [0.6 * side, 0.6 * side, 1.4 * side, 1.4 * side], fill=colour
        )
        return np.asarray(
            image.resize(
                (side, side),
                Image.Resampling.LANCZOS if antialiased else Image.Resampling.NEAREST,
            )
        )

    assert (
        find_degenerate(drawing("red"), drawing("blue"), "make the disc blue") is None
    )


def test_a_board_of_squares_is_no_edit_of_a_photograph() -> None:
    assert find_degenerate(photograph(), board(), ASKED) is not None


def pencil_drawing(p: Picture) -> Picture:
    gray = cv2.cvtColor(p, cv2.COLOR_RGB2GRAY)
    pencil = cv2.divide(gray, 255 - cv2.GaussianBlur(255 - gray, (0, 0), 8), scale=256)
    return np.repeat(pencil[..., None], 3, 2)


EDITS: dict[str, Callable[[Picture], Picture]] = {
    "another colour": recoloured,
    "night": lambda p: (p * 0.2).astype(np.uint8),
    "a tint": lambda p: (p * np.array([1.0, 0.8, 0.6])).astype(np.uint8),
    "black and white": lambda p: np.repeat(
        cv2.cvtColor(p, cv2.COLOR_RGB2GRAY)[..., None], 3, 2
    ),
    "a negative": lambda p: 255 - p,
    "one bit": lambda p: np.asarray(Image.fromarray(p).convert("1").convert("RGB")),
    "another sky": lambda p: np.where(
        np.arange(p.shape[0])[:, None, None] < p.shape[0] // 3, gradient(), p
    ),
    "a poor JPEG": lambda p: jpeg(recoloured(p), 12),
    "blurred by three pixels": lambda p: cv2.GaussianBlur(recoloured(p), (0, 0), 3),
    "grainy": lambda p: np.clip(
        recoloured(p) + RNG.normal(0, 25, p.shape), 0, 255
    ).astype(np.uint8),
    "a pencil drawing": pencil_drawing,
    "another background": lambda p: np.where(
        cv2.GaussianBlur(_disc(p), (0, 0), 2)[..., None] > 0.5, p, gradient()
    ),
}


def _disc(p: Picture) -> Picture:
    mask = np.zeros(p.shape[:2], np.float32)
    cv2.ellipse(
        mask,
        (p.shape[1] // 2, p.shape[0] // 2),
        (p.shape[1] // 3, p.shape[0] // 3),
        0,
        0,
        360,
        1.0,
        -1,
    )
    return mask


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_left_alone_however_bad(name: str, seed: int) -> None:
    before = photograph(seed)
    assert find_degenerate(before, EDITS[name](before), ASKED) is None


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("make it all black", "black"),
        ("Replace the picture with a solid colour", "red"),
        ("turn it into a blank canvas", "white"),
        ("replace everything with a gradient", "gradient"),
        ("flip the picture horizontally", "mirrored"),
        ("rotate the photo by 90 degrees", "turned"),
        ("turn the image upside down", "upside down"),
        ("pixelate the picture", "32 pixels, blocks"),
        ("blur everything", "32 pixels, smooth"),
        ("make a collage of four copies", "two by two"),
        ("zoom in on the cup", "a part, enlarged"),
        ("cover it in television static", "noise"),
    ],
)
def test_what_was_asked_for_in_so_many_words_is_not_reported(
    instruction: str, name: str
) -> None:
    before = photograph()
    assert (
        find_degenerate(
            before, np.ascontiguousarray(CASES[name][1](before)), instruction
        )
        is None
    )


@pytest.mark.parametrize(
    ("name", "instruction"),
    [
        ("black", "Replace the background with a solid color."),
        ("black", "Make the dress all black"),
        ("black", "Add a black frame around the photo"),
        ("black with sensor noise", "Change the time of day to night"),
        ("noise", "Remove the noise from the photo"),
        ("32 pixels, smooth", "Remove the fog"),
        ("32 pixels, smooth", "Blur the background"),
        ("two by two", "Replace the bathroom tiles with wood"),
        ("mirrored", "Hang a mirror on the wall"),
        ("turned", "rotate the cup"),
        ("64 by 64 pixels", "make the cup smaller"),
        ("the lower half grey", "make the left car grey"),
    ],
)
def test_a_word_in_an_instruction_about_something_else_excuses_nothing(
    name: str, instruction: str
) -> None:
    before = photograph()
    output = find_degenerate(
        before, np.ascontiguousarray(CASES[name][1](before)), instruction
    )
    assert output is not None and output.kind == CASES[name][0]


def test_another_picture_on_the_wall_does_not_excuse_another_picture() -> None:
    assert (
        find_degenerate(
            photograph(0), photograph(1), "Add a different picture to the wall"
        )
        is not None
    )
    assert (
        find_degenerate(
            photograph(0), photograph(1), "Generate a completely new image of a cat"
        )
        is None
    )


@pytest.mark.parametrize("rubric", ["preservation", "quality"])
@pytest.mark.parametrize(
    ("name", "instruction"),
    [("black", "make the whole image black"), ("noise", "turn it into noise")],
)
def test_what_was_asked_for_has_nothing_to_score(
    name: str, instruction: str, rubric: str
) -> None:
    subject = Subject(
        {"input": photograph(), "edited": CASES[name][1](photograph())}, instruction
    )
    assert not assess(resolve([rubric])[0], subject, load()).scores


@pytest.mark.parametrize(
    "instruction", ["make it all white", "make the background black", "make it night"]
)
def test_a_black_frame_is_reported_where_something_else_was_asked_for(
    instruction: str,
) -> None:
    output = find_degenerate(photograph(), flat(0, 0, 0), instruction)
    assert output is not None and output.kind == "flat"


def test_what_the_input_is_already_is_not_held_against_the_edit() -> None:
    empty = marked()
    drawn = empty.copy()
    cv2.circle(drawn, (200, 150), 12, (255, 0, 0), -1)
    assert find_degenerate(empty, drawn, "add a red dot") is None
    assert find_degenerate(noise(), recoloured(noise()), ASKED) is None
    assert find_degenerate(flat(255, 255, 255), photograph(), "draw a cup") is None


def test_an_almost_empty_input_that_comes_back_is_unchanged() -> None:
    for empty in (marked(), flat(255, 255, 255)):
        output = find_degenerate(empty, empty, "add a red dot")
        assert output is not None and output.kind == "unchanged"


def test_one_small_digit_is_an_edit() -> None:
    pages = []
    for digit in "45":
        page = np.full((768, 768, 3), 250, np.uint8)
        cv2.putText(
            page,
            f"ISSUED IN 202{digit}",
            (300, 400),
            cv2.FONT_HERSHEY_SIMPLEX,
            0.4,
            (20, 20, 20),
            1,
            cv2.LINE_AA,
        )
        cv2.rectangle(page, (60, 450), (700, 700), (120, 60, 30), -1)
        pages.append(page)
    assert (
        find_degenerate(pages[0], pages[1], "change the year on the page to 2025")
        is None
    )
    for again in (jpeg(pages[0], 70), pages[0]):
        output = find_degenerate(pages[0], again, "change the year on the page to 2025")
        assert output is not None and output.kind == "unchanged"


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in CASES
        if CASES[name][0] in ("thumbnail", "unchanged", "mirrored")
    ],
)
def test_rewards_are_told_by_the_files_what_the_judge_is_told_by_the_pixels(
    name: str,
) -> None:
    before = photograph()
    edited = np.ascontiguousarray(CASES[name][1](before))
    (output,) = screen(
        Edit("1", input=encoded(before), edited=encoded(edited), instruction=ASKED)
    )
    seen = classify(before, edited, ASKED)
    assert seen is not None and (output.kind, output.words) == (seen.kind, seen.words)
    assert seen.set_aside is (seen.kind == "thumbnail")
    assert output.set_aside is (seen.kind != "mirrored")


def test_an_output_too_small_for_anything_is_reported_without_an_input() -> None:
    output = find_degenerate(None, np.zeros((8, 8, 3), np.uint8))
    assert output is not None and output.kind == "thumbnail"


def test_the_subject_drawn_anew_is_not_certainly_another_picture() -> None:
    cat = photograph(1)
    redrawn = np.ascontiguousarray(np.roll(np.fliplr(cat), 60, axis=1)[20:, :-40])
    output = classify(
        cat, cv2.resize(redrawn, (420, 340)), "A photo of a cat facing the camera."
    )
    assert output is None or not output.certain


def test_a_picture_too_small_to_be_measured_is_not_reported() -> None:
    dot = np.zeros((8, 8, 3), np.uint8)
    assert find_degenerate(dot, dot, ASKED) is None and find_flat(dot) is None


def assessed(edited: Picture, rubric: str) -> Assessment:
    (asked,) = resolve([rubric])
    return assess(
        asked, Subject({"input": photograph(), "edited": edited}, ASKED), load()
    )


NO_EDIT = (
    *(
        "black",
        "black with a watermark",
        "noise",
        "two by two",
        "32 pixels, smooth",
        "64 by 64 pixels",
        "1 by 1 pixel",
    ),
    *("a strip", "the lower half grey", "the middle in its mean colour"),
)


@pytest.mark.parametrize("name", NO_EDIT)
@pytest.mark.parametrize(
    "rubric", ["preservation", "quality", "fidelity", "compliance", "lighting"]
)
def test_every_scored_factor_of_an_output_that_is_no_edit_is_the_worst(
    name: str, rubric: str
) -> None:
    found = assessed(CASES[name][1](photograph()), rubric)
    lowest = 0 if rubric == "lighting" else 1
    assert set(found.scores.values()) <= {lowest}
    assert set(found.scores) | set(found.abstained) == {
        factor.key for factor in resolve([rubric])[0].factors
    }
    assert found.evidence["degenerate"]["kind"] == CASES[name][0]
    assert all("edited picture" in words for words in found.justifications.values())


def test_of_another_picture_preservation_is_the_worst_and_quality_is_not_scored() -> (
    None
):
    assert set(assessed(photograph(1), "preservation").scores.values()) == {1}
    assert not assessed(photograph(1), "quality").scores


def test_of_what_may_be_another_picture_quality_is_scored_and_preservation_is_not() -> (
    None
):
    doubtful = Degenerate("unrelated", "may be another picture", certain=False)
    assert worst(doubtful, "image_quality") is None
    preservation = worst(doubtful, "unchanged_regions")
    assert preservation is not None and preservation.score is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["an eighth of the light", "a tenth of the contrast", "a round hole"]
)
def test_structure_that_is_gone_is_lost(name: str, seed: int) -> None:
    before = photograph(seed)
    edited = {
        "an eighth of the light": lambda p: (p * 0.08).astype(np.uint8),
        "a tenth of the contrast": lambda p: (p * 0.1 + 115).astype(np.uint8),
        "a round hole": lambda p: np.where(
            _disc(p)[..., None] > 0.5, p.mean(axis=(0, 1)).astype(np.uint8), p
        ),
    }[name](before)
    (rubric,) = resolve(["preservation"])
    found = assess(rubric, Subject({"input": before, "edited": edited}, ASKED), load())
    assert found.scores["identity_preservation"] <= 3


@pytest.mark.parametrize("seed", range(3))
def test_a_negative_and_a_turned_picture_are_changed_everywhere(seed: int) -> None:
    (rubric,) = resolve(["preservation"])
    for edited in (
        255 - photograph(seed),
        np.ascontiguousarray(np.rot90(photograph(seed), 2)),
    ):
        found = assess(
            rubric,
            Subject({"input": photograph(seed), "edited": edited}, ASKED),
            load(),
        )
        assert found.scores["unchanged_regions"] <= 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("enlarge", [False, True])
def test_a_crop_by_a_few_percent_is_no_edit(seed: int, enlarge: bool) -> None:
    before = photograph(seed)
    cropped = np.ascontiguousarray(before[7:-7, 9:-9])
    if enlarge:
        cropped = cv2.resize(
            cropped, before.shape[1::-1], interpolation=cv2.INTER_CUBIC
        )
    (rubric,) = resolve(["preservation"])
    found = assess(rubric, Subject({"input": before, "edited": cropped}, ASKED), load())
    assert (
        found.scores["identity_preservation"] >= 6
        and found.scores["unchanged_regions"] >= 5
    )


@pytest.mark.parametrize("name", ["the input", "mirrored"])
def test_the_input_returned_or_mirrored_keeps_its_measured_scores_and_is_flagged(
    name: str,
) -> None:
    found = assessed(np.ascontiguousarray(CASES[name][1](photograph())), "preservation")
    assert found.evidence["degenerate"]["kind"] == CASES[name][0]
    assert (found.scores["unchanged_regions"] == 7) is (name == "the input")
    assert (
        found.scores["unchanged_regions"] != 7
        or found.scores["identity_preservation"] == 7
    )


# --- the fast looks that come first ---------------------------------------------------------------------------


def _pictures() -> list[Picture]:
    """From photographs to next to nothing, with all that lies between."""
    plain = [
        *map(photograph, range(3)),
        flat(10, 200, 30),
        gradient(),
        board(),
        marked(),
        noise(),
    ]
    mixed = [
        cv2.addWeighted(p, share, gradient(), 1 - share, 0)
        for p in plain[:3]
        for share in (0.05, 0.1, 0.2, 0.5)
    ]
    boxed = [p.copy() for p in plain[:3]]
    for picture in boxed:
        picture[100:300, 80:400] = 90
    return [*plain, *mixed, *boxed, *(jpeg(p, 20) for p in mixed[:4])]


def test_the_lower_bound_of_detail_is_none_of_an_empty_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures = _pictures()
    bounds = [degenerate._off_one_surface(picture) for picture in pictures]
    empty = degenerate._EMPTY
    monkeypatch.setattr(degenerate, "_EMPTY", 1.0)  # no bound is enough
    shares = [degenerate._off_one_surface(picture) for picture in pictures]
    excluded = [n for n, share in enumerate(shares) if share != bounds[n]]
    assert len(excluded) > 5
    assert all(2 * empty < bounds[n] < shares[n] for n in excluded)


@pytest.mark.parametrize("n", range(2, resemblance._COARSE + 1))
def test_tiles_pass_the_fast_look(n: int) -> None:
    for tiles in (tiled(n, 1)(photograph(1)), jpeg(tiled(1, n)(photograph(2)), 50)):
        assert resemblance._may_repeat(gray(tiles, n * (192 // n)), n)
    assert not resemblance._may_repeat(gray(photograph(1), n * (192 // n)), n)


def test_what_was_only_saved_moved_or_cropped_is_not_surely_changed() -> None:
    for n in range(3):
        picture = photograph(n)
        shifted = np.roll(picture, (8, -10), axis=(0, 1))
        shifted[:8] = picture[:8]
        shifted[:, -10:] = picture[:, -10:]
        cropped = cv2.resize(
            picture[12:-12, 15:-15], picture.shape[1::-1], interpolation=cv2.INTER_CUBIC
        )
        for same in (picture, jpeg(picture, 20), shifted, cropped):
            cells = resemblance._changed_cells(picture, same)
            assert cells < resemblance._CERTAIN
        cells = resemblance._changed_cells(picture, 255 - picture)
        assert cells > resemblance._MANY
