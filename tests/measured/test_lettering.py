"""Lettering: what an instruction asks for, and what the lines that were read prove."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from editjudge.vision.measured.lettering import (
    TextLine,
    TextRequest,
    compare,
    compare_all,
    read_lines,
    request,
)
from editjudge.vision.measured.measures import measure
from editjudge.vision.measured.proof import prove
from editjudge.vision.measured.scene import compose

BOX = (0.1, 0.1, 0.9, 0.2)


@pytest.mark.parametrize(
    ("instruction", "wish"),
    [
        ("Change 'OPEN' to 'CLOSED'", (TextRequest("replace", "OPEN", "CLOSED"),)),
        (
            'replace "Monday" with "Friday" on the sign',
            (TextRequest("replace", "Monday", "Friday", "on the sign"),),
        ),
        ("Change 3/24 to 3/26.", (TextRequest("replace", "3/24", "3/26"),)),
        (
            "Delete the word 'bag' from the text 'Gift bag'",
            (TextRequest("delete", "bag", where="from the text ⟦1⟧"),),
        ),
        (
            "Add the sentence 'welcome' in the upper left corner",
            (TextRequest("write", new="welcome", where="in the upper left corner"),),
        ),
        ("make the sign say “Bakery”", (TextRequest("write", new="Bakery"),)),
        (
            "Insert the words 'Art' and 'Music' below 'Courses'",
            (
                TextRequest("write", new="Art", where="below ⟦2⟧"),
                TextRequest("write", new="Music", where="below ⟦2⟧"),
            ),
        ),
        (
            "Change the year on the date to 2025.",
            (TextRequest("write", new="2025", where="on the date"),),
        ),
        ("A photo of a door for room number 17.", (TextRequest("write", new="17"),)),
        ("Delete Chinese in the picture.", (TextRequest("script", old="chinese"),)),
        (
            "Let the arabic writing be changed to Chinese.",
            (TextRequest("script", new="chinese"),),
        ),
        ("Remove the man with the Chinese hat", ()),
        ("Reduce the Chinese characters in the picture.", ()),
        ("Scale 'Join Us' to 75%.", ()),
        ("Change the font of 'Outfits'.", ()),
        ("Move 'DAY' under 'NIGHT'", ()),
        ("make the car blue", ()),
        ("make the dog's collar red and the cat's bowl blue", ()),
    ],
)
def test_only_what_is_asked_letter_by_letter_is_a_request(
    instruction: str, wish: tuple[TextRequest, ...]
) -> None:
    assert request(instruction) == wish


def lines(*texts: str, confidence: float = 0.99) -> list[TextLine]:
    return [TextLine(text, confidence, BOX) for text in texts]


@pytest.mark.parametrize(
    ("wish", "before", "after", "outcome"),
    [
        (
            TextRequest("replace", "OPEN", "CLOSED"),
            lines("OPEN"),
            lines("CLOSED"),
            "done",
        ),
        (
            TextRequest("replace", "OPEN", "CLOSED"),
            lines("OPEN"),
            lines("CL0SSED"),
            "misspelt",
        ),
        (
            TextRequest("replace", "OPEN", "CLOSED"),
            lines("OPEN"),
            lines("OPEN"),
            "undone",
        ),
        (
            TextRequest("replace", "OPEN", "CLOSED"),
            lines("unread"),
            lines("else"),
            None,
        ),
        (
            TextRequest("replace", "OPEN", "CLOSED"),
            lines("OPEN"),
            lines("CLOSED", confidence=0.6),
            "blurred",
        ),
        (
            TextRequest("replace", "SALE", "SOLD"),
            lines("SALE"),
            lines("SALE", "SOLD"),
            None,
        ),
        (
            TextRequest("replace", "SALE", "SOLD"),
            lines("SALE", "SALE"),
            lines("SALE", "SOLD"),
            None,
        ),
        (
            TextRequest("replace", "SALE", "SOLD"),
            lines("SALE", "SALE"),
            lines("SOLD", "SOLD"),
            "done",
        ),
        (
            TextRequest("replace", "SALE", "SOLD", "on the left sign"),
            lines("SALE", "SALE"),
            lines("SOLD", "SOLD"),
            None,
        ),
        (TextRequest("replace", "cat", "cats"), lines("cat"), lines("cats"), "done"),
        (
            TextRequest("write", new="Bakery", where="on the red door"),
            lines("Street"),
            lines("Street", "Bakery"),
            None,
        ),
        (
            TextRequest("write", new="Bakery", where="on the red door"),
            lines("Street"),
            lines("Street"),
            "undone",
        ),
        (
            TextRequest("delete", "Sale"),
            lines("Big Sale", "Today"),
            lines("Big", "Today"),
            "done",
        ),
        (
            TextRequest("delete", "Sale", where="from the left door"),
            lines("Sale", "Sale"),
            lines("Big"),
            None,
        ),
        (TextRequest("delete", "Sale"), lines("Big Sale"), lines("Big Sale"), "undone"),
        (TextRequest("delete", "Sale"), lines("Big"), lines("Big"), None),
        (TextRequest("delete", "Sale"), lines("Sale", "Sale"), lines("Sale"), None),
        (TextRequest("delete", "A"), lines("A BANANA"), lines("BANANA"), None),
        (
            TextRequest("write", new="Bakery"),
            lines("Street"),
            lines("Street", "Bakery"),
            "done",
        ),
        (
            TextRequest("write", new="Bakery"),
            lines("Street"),
            lines("Street", "Bakrey"),
            "misspelt",
        ),
        (
            TextRequest("write", new="Bakery"),
            lines("Street"),
            lines("Street"),
            "undone",
        ),
        (TextRequest("write", new="Bakery"), lines("Bakery"), lines("Bakery"), None),
        (
            TextRequest("script", old="chinese"),
            lines("城市", "City"),
            lines("City"),
            "done",
        ),
        (
            TextRequest("script", old="chinese"),
            lines("城市", "City"),
            lines("城市"),
            "undone",
        ),
        (
            TextRequest("script", old="chinese"),
            lines("城市", "City"),
            lines("市"),
            None,
        ),
        (TextRequest("script", new="chinese"), lines("City"), lines("City"), "undone"),
        (TextRequest("script", new="chinese"), lines("City"), lines("城市"), None),
    ],
)
def test_lines_prove_what_they_prove_and_no_more(
    wish: TextRequest,
    before: list[TextLine],
    after: list[TextLine],
    outcome: str | None,
) -> None:
    assert compare(wish, before, after, None).outcome == outcome


@pytest.mark.parametrize(
    ("wish", "before", "after", "outcome"),
    [
        (
            TextRequest("replace", "HOTEL", "CAFÉ NOIR"),
            lines("HOTEL"),
            lines("CAFÉ NOIRE"),
            "misspelt",
        ),
        (
            TextRequest("replace", "HOTEL", "CAFÉ NOIR"),
            lines("HOTEL"),
            lines("CAFE NOIR"),
            "misspelt",
        ),
        (
            TextRequest("replace", "HOTEL", "CAFÉ NOIR"),
            lines("HOTEL"),
            lines("CAFÉ"),
            "partial",
        ),
        (
            TextRequest("replace", "HOTEL", "CAFÉ NOIR"),
            lines("HOTEL"),
            lines("CAFÉNOIR"),
            "done",
        ),
        (
            TextRequest("replace", "HOTEL", "CAFÉ NOIR"),
            lines("HOTEL"),
            lines("CAFÉ", "NOIR"),
            "done",
        ),
        (
            TextRequest("replace", "HOTEL", "Café Noir"),
            lines("HOTEL"),
            lines("CAFÉ NOIR"),
            None,
        ),
        (TextRequest("write", new="naïve"), [], lines("naive"), None),
        (TextRequest("write", new="Brûlée"), [], lines("Brülée"), None),
        (TextRequest("write", new="Room 10"), [], lines("Room lO"), None),
        (TextRequest("delete", "Sale"), lines("Sales"), lines("Big"), None),
        (
            TextRequest("write", new="营业中"),
            lines("店"),
            lines("店", "营业中"),
            "done",
        ),
    ],
)
def test_words_and_accents_count_as_a_whole(
    wish: TextRequest,
    before: list[TextLine],
    after: list[TextLine],
    outcome: str | None,
) -> None:
    assert compare(wish, before, after, None).outcome == outcome


@pytest.mark.parametrize(
    ("wish", "before", "after", "outcome", "degree"),
    [
        (
            TextRequest("delete", "Sale"),
            ["Sale", "Open daily"],
            ["Open daily"],
            "done",
            0,
        ),
        (
            TextRequest("delete", "Sale"),
            ["Sale", "Open daily"],
            ["Open"],
            "disturbed",
            0,
        ),
        (TextRequest("delete", "Sale"), ["Sale", "Open daily"], [], "disturbed", 1),
        (
            TextRequest("replace", "Sale", "Sold"),
            ["Sale", "Open daily"],
            ["Sold", "Open daiiy"],
            "done",
            0,
        ),
        (
            TextRequest("replace", "Sale", "Sold"),
            ["Sale", "Open daily"],
            ["Sold", "Opendaily"],
            "done",
            0,
        ),
        (
            TextRequest("replace", "Sale", "Sold"),
            ["Sale", "Open daily"],
            ["Sold", "Open dairy"],
            "disturbed",
            1,
        ),
        (
            TextRequest("replace", "Sale", "Sold"),
            ["Sale"],
            ["Sold out"],
            "disturbed",
            0,
        ),
        (TextRequest("replace", "Sale", "Sold"), ["Sale"], ["Sold x"], None, 0),
        (
            TextRequest("write", new="Sold", unnamed_old=True),
            ["Sale", "Open"],
            ["Sold"],
            "done",
            0,
        ),
        (
            TextRequest("write", new="Sold", unnamed_old=True),
            ["Sale"],
            ["Sold", "offer"],
            "disturbed",
            0,
        ),
    ],
)
def test_other_text_has_to_stay_as_it_was(
    wish: TextRequest,
    before: list[str],
    after: list[str],
    outcome: str | None,
    degree: int,
) -> None:
    reading = compare_all([wish], lines(*before), lines(*after), None)
    assert (reading.outcome, reading.degree) == (outcome, degree)


def test_text_where_no_pixel_changed_is_the_same_however_it_is_read() -> None:
    wish = TextRequest("replace", "Sale", "Sold")
    foot = (0.1, 0.8, 0.9, 0.9)
    before = [TextLine("Sale", 0.99, BOX), TextLine("Open daily", 0.99, foot)]
    after = [TextLine("Sold", 0.99, BOX), TextLine("Open daisy", 0.99, foot)]
    visible = np.zeros((100, 100), bool)
    visible[10:20, 10:90] = True
    assert compare_all([wish], before, after, None, visible).outcome == "done"
    visible[80:90, 10:90] = True
    assert compare_all([wish], before, after, None, visible).outcome == "disturbed"


def test_of_several_texts_the_worst_counts_and_one_unproven_leaves_all_open() -> None:
    both = (TextRequest("write", new="Bakery"), TextRequest("write", new="Garden"))
    assert compare_all(both, [], lines("Bakery", "Garden"), None).outcome == "done"
    assert compare_all(both, [], lines("Bakery", "Gardem"), None).outcome == "misspelt"
    assert (
        compare_all(both, lines("Garden"), lines("Garden", "Bakery"), None).outcome
        is None
    )


def test_text_outside_the_mask_is_in_the_wrong_place() -> None:
    mask = np.zeros((100, 100), np.uint8)
    mask[60:90] = 1
    assert (
        compare(
            TextRequest("write", new="Hi there"), [], lines("Hi there"), mask
        ).outcome
        == "misplaced"
    )
    mask[8:25] = 1
    assert (
        compare(
            TextRequest("write", new="Hi there"), [], lines("Hi there"), mask
        ).outcome
        == "done"
    )


@pytest.mark.parametrize(
    ("where", "outcome"),
    [
        ("in the upper left corner", "misplaced"),
        ("at the bottom of the picture", "done"),
        ("on the right", "done"),
        ("on the left side of the image", "misplaced"),
        ("on the left wall", None),
        ("in the picture", "done"),
        ("", "done"),
    ],
)
def test_text_on_the_other_side_than_the_one_named_is_in_the_wrong_place(
    where: str, outcome: str | None
) -> None:
    line = [TextLine("Hi there", 0.99, (0.6, 0.8, 0.9, 0.9))]
    assert (
        compare(
            TextRequest("write", new="Hi there", where=where), [], line, None
        ).outcome
        == outcome
    )


def test_a_text_far_from_the_one_that_it_replaces_proves_nothing() -> None:
    wish = TextRequest("replace", "SALE", "SOLD")
    elsewhere = [TextLine("SOLD", 0.99, (0.1, 0.7, 0.4, 0.8))]
    assert compare(wish, lines("SALE"), elsewhere, None).outcome is None
    assert compare(wish, lines("SALE"), lines("SOLD"), None).outcome == "done"


def test_printed_words_are_read_without_a_download() -> None:
    picture = np.full((120, 480, 3), 235, np.uint8)
    cv2.putText(
        picture,
        "HARBOUR 27",
        (30, 75),
        cv2.FONT_HERSHEY_SIMPLEX,
        1.8,
        (20, 20, 20),
        4,
        cv2.LINE_AA,
    )
    read = read_lines(picture)
    assert "".join(line.text for line in read).replace(" ", "") == "HARBOUR27"
    assert min(line.confidence for line in read) > 0.8


@pytest.mark.parametrize(
    ("written", "confidence", "fault", "alignment"),
    [
        ("HARBOUR", 0.98, "done", 7.0),
        ("HARBQUR", 0.98, "misspelt", 4.0),
        ("HAXBQUR", 0.98, "misspelt", 3.0),
        ("HARBOUR", 0.8, "blurred", 5.0),
        ("HARBOUR", 0.6, "blurred", 4.0),
        ("HARBOUR", 0.5, "blurred", 3.0),
    ],
)
def test_more_wrong_letters_and_worse_formed_ones_score_lower(
    written: str, confidence: float, fault: str, alignment: float
) -> None:
    line = TextLine(written, confidence, (0.2, 0.2, 0.6, 0.4))
    reading = compare(TextRequest("write", new="HARBOUR"), [], [line], None)
    assert reading.outcome == fault
    rng = np.random.default_rng(0)
    before = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)
    after = before.copy()
    after[20:40, 20:60] = 255 - after[20:40, 20:60]
    measures = measure(compose(before, after))
    verdict = prove("alignment", 'write "HARBOUR"', measures, reading)
    assert verdict.score == alignment
