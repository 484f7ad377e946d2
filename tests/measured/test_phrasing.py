"""What an instruction asks for is read from narrow phrasings only; every other sentence proves nothing."""

from __future__ import annotations

import pytest

from editjudge.vision.measured.lettering import request
from editjudge.vision.measured.phrasing import may_stay
from editjudge.vision.measured.proof import asked_colour

WRITE = {
    'change the text to "OPEN"': "OPEN",
    "Change the title to 'Autumn Fair'": "Autumn Fair",
    'change the text on the sign to "NO PARKING"': "NO PARKING",
    "Change the sign to say “Bakery”": "Bakery",
    'set the caption to read "The End"': "The End",
    'replace the text on the mug with "BOSS"': "BOSS",
    'add the text "SALE"': "SALE",
    'Please add the text "SALE" at the bottom of the picture.': "SALE",
    "insert the word 'hello' on the wall": "hello",
    'write "GARDEN" on the fence': "GARDEN",
    "Write «Bonjour» on the door": "Bonjour",
    "print „Grüße“ on the card": "Grüße",
    "write 「営業中」 on the lantern": "営業中",
    'put the caption "Summer" above the door': "Summer",
    'Could you please add a headline that says "News"?': None,  # a question mark is not part of any tested phrasing
    'add a sign that says "BEWARE"': "BEWARE",
    "add a small banner reading 'Welcome home'": "Welcome home",
    'make the sign say "Closed"': "Closed",
    "let the old billboard read `Drink milk`": "Drink milk",
    'add the sentence "don\'t look back" in the lower right corner': "don't look back",
    'add the text "not for sale" to the window': "not for sale",
    'add the text "SALE", keeping everything as it is': "SALE",
}
REPLACE = {
    'replace "A1" with "B2"': ("A1", "B2"),
    "Change 'OPEN' to 'CLOSED'": ("OPEN", "CLOSED"),
    'replace the word "cat" with the word "dog"': ("cat", "dog"),
    'replace "Monday" with "Friday" on the sign': ("Monday", "Friday"),
    'change the text on the door from "PUSH" to "PULL"': ("PUSH", "PULL"),
    "change the sign from ‘stop’ to ‘go’": ("stop", "go"),
    "swap 'left' for 'right'": ("left", "right"),
    'Translate the text "Exit" in the picture to "Ausgang"': ("Exit", "Ausgang"),
    "change 12/24 to 12/31": ("12/24", "12/31"),
    "Replace 7 with 9 on the jersey.": ("7", "9"),
}
DELETE = {
    'remove the text "SALE"': ("SALE",),
    "Delete 'Chengdu'": ("Chengdu",),
    'erase the words "old town" from the map': ("old town",),
    'get rid of the caption "fig. 3"': ("fig. 3",),
    "remove 'A.M.' and 'P.M.' from the clock": ("A.M.", "P.M."),
    "Delete the word 'bag' from the text 'Gift bag'": ("bag",),
    'Can you remove the "SALE"': ("SALE",),
}
NO_LETTERING = [
    'remove the car in front of the "EXIT" sign',
    'remove the "EXIT" sign',
    'remove all text except "SALE"',
    'remove everything but the word "SALE"',
    'delete all words other than "OPEN"',
    'remove the text but keep "SALE"',
    'do not remove the text "SALE"',
    "don't add the text 'SALE'",
    'remove the text below "SALE"',
    'remove the man holding the "PEACE" poster',
    'replace the "STOP" sign with a tree',
    'replace the "cat" with a "dog" statue',
    'make the "LOVE" letters red',
    'change the color of "OPEN" to "red"',
    'change the font of text "OPEN" to "Arial"',
    "change the text color to 'blue'",
    'make "SALE" bigger',
    "move 'DAY' under 'NIGHT'",
    'swap "left" with "right"',
    'add a "cool" hat to the man',
    "Add 'a red hat' to the man",
    "insert 'a cat' on the sofa",
    'turn the dog into a "husky"',
    'add the text "SALE" and remove the dog',
    'write "HI" on the wall and paint the door',
    'add the text "SALE" or "OFFER"',
    'add either the word "one" or the word "two"',
    'add the text "SALE" only if there is a sign',
    'translate "Ausgang" to "English"',
    'give it a "vintage" look',
    'the so-called "author" should smile',
    'make it look like a "Star Wars" poster',
    'change the number of cats to "5"',
    "change the number of apples to 5",
    "make the number of birds 3",
    "turn 2 cars into 4 cars",
    "remove player number 17",
    "change the time on the clock to 10:30",
    "Remove the Chinese lantern",
    "change the food to Chinese",
    "turn the garden into Chinese",
    "Remove the English muffin",
    "Reduce the Chinese characters in the picture.",
    'Ersetze „Montag“ durch „Freitag“',  # no tested phrasing outside English
    "remplacez «lundi» par «mardi»",
    'cambia "lunes" por "martes"',
    "把“开”改成“关”",
    "删除文字“打折”",
    "what's the dog's name on the cat's bowl",
    'remove the text ⟦0⟧ "SALE"',
    'change the text "SALE" on both signs to "SOLD"',
    'write "HELLO" in red',
    'write "hello" in French',
    'write "HELLO" on both boards',
    'write "HELLO" three times on the wall',
    'write "HELLO" in a bold font on the wall',
    'write "HELLO" where the old sign was',
    'add the character "Pikachu" next to the boy',
    'make the woman read "Moby Dick"',
    'make the man say "cheese"',
    "set the year to 2077",
    "set the year in the scene to 2077",
    "",
]  # fmt: skip
COLOUR = {
    "Change the dress to blue": "blue",
    "make the cat's nose black": "black",
    "Let the van turn black.": "black",
    "Make all the grass green.": "green",
    "Make the man's pants all white.": "white",
    "turn her hair white": "white",
    "make the motorcycles and cars pink": "pink",
    "please paint the door bright red": "red",
    "change the color of the car to yellow": "yellow",
    "recolour the sofa to teal": "teal",
    "turn the car into a red one": "red",
    "dye his beard purple!": "purple",
    "make the sky orange instead": "orange",
    "make the curtains blue in color": "blue",
    "make the wall green, keeping everything as it is": "green",
    "let the roof be painted brown": "brown",
}
NO_COLOUR = [
    "make the car anything but red",
    "make the car any colour but red",
    "make the picture less yellow",
    "make the room look less yellow",
    "make the sky more blue",
    "use another colour instead of blue",
    "make the car red instead of blue",
    "paint the car instead of blue",
    "make the car not red",
    "don't make the car red",
    "make the meadow without any green",
    "change the car from red to blue",
    "turn the red car green",
    "keep the red car red",
    "make the house, but leave the door red",
    "make the van like the red one",
    "make it look as red",
    "make it reddish",
    "make the car slightly red",
    "make the car light blue",
    "make the car dark red",
    "make the background black and white",
    "turn off the red",
    "turn down the green",
    "remove the red car",
    "move the red car to the left",
    "make the red car larger",
    "make the man next to the red car smile",
    "make the dog jump over the red",
    "change the painting to the Red Square",
    "make it look like the Black Forest",
    "add a blue bird",
    "make the car blue and add a dog",
    "make the car red or blue",
    "make the car red if it is parked",
    "make the lights stop being red",
    "make the shirt match the blue",
    "make the eyes no longer red",
    "make the sky never green",
    "make the lake other than blue",
    "make the word 'red' blue",
    "mach das Auto rot",
    "rends la voiture red s'il te plaît",
    "haz el coche azul",
    "把汽车变成 red",
    "make the man hug the woman wearing red",
    "make the apples stop glowing red",
    "make the sign say red",
    "recolor the car that is red",
    "turn the girl into Snow White",
    "change the word to Red",
    "change the word to red",
    "Change the dress to Red",
    "",
]


@pytest.mark.parametrize(("instruction", "text"), WRITE.items())
def test_a_tested_phrasing_asks_for_a_text(instruction: str, text: str | None) -> None:
    assert [(wish.act, wish.new) for wish in request(instruction)] == (
        [("write", text)] if text else []
    )


@pytest.mark.parametrize(("instruction", "texts"), REPLACE.items())
def test_a_tested_phrasing_asks_for_a_text_in_place_of_another(
    instruction: str, texts: tuple[str, str]
) -> None:
    assert [(wish.act, wish.old, wish.new) for wish in request(instruction)] == [
        ("replace", *texts)
    ]


@pytest.mark.parametrize(("instruction", "texts"), DELETE.items())
def test_a_tested_phrasing_asks_for_a_text_to_go(
    instruction: str, texts: tuple[str, ...]
) -> None:
    assert [(wish.act, wish.old) for wish in request(instruction)] == [
        ("delete", text) for text in texts
    ]


@pytest.mark.parametrize("instruction", NO_LETTERING)
def test_quoted_words_elsewhere_are_no_lettering(instruction: str) -> None:
    assert request(instruction) == ()


@pytest.mark.parametrize(("instruction", "colour"), COLOUR.items())
def test_a_tested_phrasing_asks_for_a_colour(instruction: str, colour: str) -> None:
    assert asked_colour(instruction) == colour


@pytest.mark.parametrize("instruction", NO_COLOUR)
def test_a_colour_under_negation_comparison_or_as_a_referent_is_not_asked_for(
    instruction: str,
) -> None:
    assert asked_colour(instruction) is None


@pytest.mark.parametrize(
    ("instruction", "stays"),
    [
        ("make no changes", True),
        ("Don't change anything", True),
        ("leave the picture as it is", True),
        ("remove the dog if there is one", True),
        ("", True),
        ("keep the image the same", True),
        ("leave the picture alone", True),
        ("do not add a hat", True),
        ("remove any cats", True),
        ("remove the logo if present", True),
        ("never add a hat", True),
        ("make the car red, keeping everything else the same", False),
        ("make the car red", False),
        ("remove the dog", False),
    ],
)
def test_an_unchanged_picture_may_be_what_was_asked_for(
    instruction: str, stays: bool
) -> None:
    assert may_stay(instruction) is stays
