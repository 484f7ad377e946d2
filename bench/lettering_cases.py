"""Lettering cases with known answers: text drawn on plain and photographic grounds, as requested or with one fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from bench.lighting_cases import HALVES, photographs, read
from editjudge.vision.probes import drawing

Pixels = Any
"""RGB in levels of 255."""
WIDTH = 640
HEIGHT = 448


@dataclass(frozen=True)
class Sign:
    """One line of text on a page."""

    text: str
    x: float
    y: float
    size: int = 40


Page = tuple[Sign, ...]


@dataclass(frozen=True)
class TextCase:
    kind: str
    ground: str
    instruction: str
    before: Pixels
    after: Pixels
    as_asked: bool


@dataclass(frozen=True)
class Texts:
    """Texts of one case: the old and the new one of a sign, and two lines that are to stay."""

    old: str
    new: str
    title: str
    foot: str

    @property
    def page(self) -> Page:
        return (
            Sign(self.title, 0.08, 0.08, 34),
            Sign(self.old, 0.1, 0.4, 46),
            Sign(self.foot, 0.3, 0.8, 30),
        )

    def written(self, text: str) -> Page:
        """Return the page with this text instead of the old one."""
        return tuple(replace(s, text=text) if s.text == self.old else s for s in self.page)  # fmt: skip

    @property
    def request(self) -> str:
        return f'replace "{self.old}" with "{self.new}"'


TEXTS = {
    "develop": (
        Texts("GRAND HOTEL", "CAFÉ NOIR", "Harbour Street", "open every day"),
        Texts("Monday", "Friday", "Weekly Market", "fresh fruit and bread"),
        Texts("Winter Sale", "Summer Sale", "City Centre", "until the end of May"),
        Texts("Lemon Cake", "Crème Brûlée", "Garden Kitchen", "made this morning"),
        Texts("Platform 4", "Platform 9", "Northern Line", "mind the step"),
        Texts("Small Rooms", "Große Zimmer", "Hotel Linden", "with breakfast"),
    ),
    "report": (
        Texts("OLD TOWN BAR", "JALAPEÑO GRILL", "Market Square", "music on Saturday"),
        Texts("Closed", "Welcome", "Public Library", "ring the bell"),
        Texts("Green Tea", "Black Coffee", "Corner Bakery", "freshly roasted"),
        Texts("Boat Trips", "Bøker og Té", "Fishing Village", "tickets at the pier"),
        Texts("Gate 17", "Gate 28", "Western Airport", "boarding soon"),
        Texts("Stone Bridge", "Château Noël", "Walking Tour", "meet at noon"),
    ),
}  # fmt: skip
FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf")


# --- drawing --------------------------------------------------------------------------------------------------


def font(name: str, size: int) -> Any:
    """Return a font of the system, or the one that Pillow carries."""
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return ImageFont.load_default(size)


def plain_ground(rng: np.random.Generator) -> Pixels:
    colour = rng.integers(185, 250, 3)
    fall = np.linspace(1, rng.uniform(0.85, 1), HEIGHT)[:, None, None]
    noise = rng.normal(0, 2, (HEIGHT, WIDTH, 3))
    return np.clip(colour * fall + noise, 0, 255).astype(np.uint8)


def drawn(ground: Pixels, page: Page, face: str, contrast: float = 1.0) -> Pixels:
    """Write a page on a ground: dark or light letters with a thin outline, fainter with less contrast."""
    image = Image.fromarray(ground)
    pen = ImageDraw.Draw(image)
    dark = float(ground.mean()) > 115
    ink = np.array([25, 25, 35] if dark else [245, 240, 230])
    rim = np.array([245, 245, 240] if dark else [20, 20, 25])
    mean = ground.reshape(-1, 3).mean(axis=0)
    colour = tuple(int(c) for c in mean + (ink - mean) * contrast)
    for sign in page:
        at = (sign.x * WIDTH, sign.y * HEIGHT)
        letters = font(face, sign.size)
        room = 0.97 * WIDTH - at[0]
        if (wide := pen.textlength(sign.text, letters)) > room:
            letters = font(face, int(sign.size * room / wide))
        outline = 2 if contrast == 1.0 else 0
        pen.text(
            at,
            sign.text,
            fill=colour,
            font=letters,
            stroke_width=outline,
            stroke_fill=tuple(int(c) for c in rim),
        )
    return np.asarray(image)


# --- kinds ----------------------------------------------------------------------------------------------------

Kind = Callable[[Texts, np.random.Generator], tuple[str, Page, Page, bool]]
"""Returns the instruction, both pages, and whether the edit is as asked."""


def spelt(change: Callable[[str, np.random.Generator], str]) -> Kind:
    """Return a kind in which the new text is misspelt."""

    def make(t: Texts, rng: np.random.Generator) -> tuple[str, Page, Page, bool]:
        return t.request, t.page, t.written(change(t.new, rng)), False

    return make


def _letters(text: str) -> list[int]:
    return [at for at, letter in enumerate(text) if letter.isalnum()]


def letter_off(text: str, rng: np.random.Generator) -> str:
    at = int(rng.choice(_letters(text)))
    letter = str(rng.choice([c for c in "aeknrtuhm" if c != text[at].lower()]))
    return text[:at] + (letter.upper() if text[at].isupper() else letter) + text[at + 1 :]  # fmt: skip


def letter_doubled(text: str, rng: np.random.Generator) -> str:
    at = int(rng.choice(_letters(text)))
    double = text[at].lower() if at and text[at - 1].islower() else text[at]
    return text[: at + 1] + double + text[at + 1 :]


def letter_dropped(text: str, rng: np.random.Generator) -> str:
    at = int(rng.choice(_letters(text)))
    return text[:at] + text[at + 1 :]


def longer_word(text: str, _rng: np.random.Generator) -> str:
    ending = "E" if text.isupper() else "e"
    return text + (ending if text[-1].isalpha() else "5")


_PLAIN = str.maketrans("ÉÑéèêëûßøîïâ", "ENeeeeusoiia")
_ACCENTED = str.maketrans("aeouAEOU", "áèöüÁÈÖÜ")


def accent_changed(text: str, rng: np.random.Generator) -> str:
    """Drop all accents, or add one if there is none."""
    bare = text.translate(_PLAIN)
    if bare != text:
        return bare
    vowels = [at for at, letter in enumerate(text) if letter in "aeouAEOU"]
    if not vowels:
        return letter_doubled(text, rng)
    at = int(rng.choice(vowels))
    return text[:at] + text[at].translate(_ACCENTED) + text[at + 1 :]


def case_changed(text: str, _rng: np.random.Generator) -> str:
    return text.lower() if text.isupper() else text.upper()


def fewer_words(text: str, _rng: np.random.Generator) -> str:
    return text.split(maxsplit=1)[0] if " " in text else text[: len(text) // 2]


def exact(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    return t.request, t.page, t.written(t.new), True


def rewritten(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    return f'change the text to "{t.new}"', t.page[1:2], t.written(t.new)[1:2], True


def added(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    page = (t.page[0], t.page[2])
    new = Sign(t.new, 0.1, 0.4, 46)
    return f'add the text "{t.new}"', page, (*page, new), True


def small_type(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    small = [tuple(replace(s, size=13) for s in page) for page in (t.page, t.written(t.new))]  # fmt: skip
    return t.request, small[0], small[1], True


def two_lines(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    parts = f"{t.new} {t.foot}".split(maxsplit=1)
    wish = f'replace "{t.old}" with "{parts[0]} {parts[1]}"'
    lines = (Sign(parts[0], 0.1, 0.35, 42), Sign(parts[1], 0.1, 0.5, 42))
    return wish, t.page[:2], (t.page[0], *lines), True


def removed(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    return f'remove the text "{t.old}"', t.page, (t.page[0], t.page[2]), True


def removed_with_more(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    return f'remove the text "{t.old}"', t.page, t.page[:1], False


def still_there(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    """The other line changes its size instead."""
    larger = (t.page[0], t.page[1], replace(t.page[2], size=38))
    return t.request, t.page, larger, False


def beside_old(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    return t.request, t.page, (*t.page, Sign(t.new, 0.1, 0.6, 46)), False


def extra_word(t: Texts, rng: Any) -> tuple[str, Page, Page, bool]:
    more = str(rng.choice(["Station", "Please", "Number", "Tonight"]))
    return t.request, t.page, t.written(f"{t.new} {more}"), False


def other_deleted(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    return t.request, t.page, t.written(t.new)[:2], False


def other_altered(t: Texts, rng: np.random.Generator) -> tuple[str, Page, Page, bool]:
    page = t.written(t.new)
    return t.request, t.page, (*page[:2], replace(page[2], text=letter_off(t.foot, rng))), False  # fmt: skip


def other_word_gone(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    page = t.written(t.new)
    return t.request, t.page, (*page[:2], replace(page[2], text=t.foot.rsplit(" ", 1)[0])), False  # fmt: skip


def other_added(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    more = Sign("special offer", 0.5, 0.65, 30)
    return t.request, t.page, (*t.written(t.new), more), False


def wrong_place(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    wish = f'add the text "{t.new}" in the lower right corner'
    page = t.page[:1]
    return wish, page, (*page, Sign(t.new, 0.05, 0.3, 32)), False


def never_written(t: Texts, _rng: Any) -> tuple[str, Page, Page, bool]:
    """The text is to be added, and another sign is moved instead."""
    moved = (t.page[0], replace(t.page[2], y=0.6))
    return f'add the text "{t.new}"', (t.page[0], t.page[2]), moved, False


KINDS: dict[str, Kind] = {
    "exact": exact,
    "exact, low contrast": exact,
    "exact, rewritten": rewritten,
    "exact, added": added,
    "exact, small type": small_type,
    "exact, two lines": two_lines,
    "exact, removed": removed,
    "letter off": spelt(letter_off),
    "letter doubled": spelt(letter_doubled),
    "letter dropped": spelt(letter_dropped),
    "longer word": spelt(longer_word),
    "accent changed": spelt(accent_changed),
    "case changed": spelt(case_changed),
    "missing word": spelt(fewer_words),
    "extra word": extra_word,
    "removed with more": removed_with_more,
    "old text still there": still_there,
    "new text beside the old": beside_old,
    "other text deleted": other_deleted,
    "other text altered": other_altered,
    "word of other text gone": other_word_gone,
    "other text added": other_added,
    "wrong place": wrong_place,
    "never written": never_written,
}


def cases(data: Path, half: str, each: int, seed: int = 0) -> Iterator[TextCase]:
    """Yield `each` cases of every kind, on plain and photographic grounds in turn."""
    texts = TEXTS[half]
    grounds = list(_photographs(data, half))
    for turn, (kind, make) in enumerate(KINDS.items()):
        for index in range(each):
            rng = np.random.default_rng([seed, HALVES.index(half), turn, index])
            chosen = texts[(index + turn) % len(texts)]
            request, old, new, as_asked = make(chosen, rng)
            on_photograph = index % 2 == 1
            ground = plain_ground(rng)
            if on_photograph:
                ground = grounds[(turn * 3 + index) % len(grounds)]
            face = FONTS[(turn + index) % len(FONTS)]
            contrast = 0.3 if kind.endswith("low contrast") else 1.0
            before, after = (drawn(ground, page, face, contrast) for page in (old, new))
            name = "photograph" if on_photograph else "plain"
            yield TextCase(kind, name, request, before, after, as_asked)


def _photographs(data: Path, half: str) -> Sequence[Pixels]:
    """Return photographs in the shape of a page: of the data if it is there, else those of the probes."""
    if data.is_dir():
        images = [read(file) for file in list(photographs(data, half).values())[:12]]
    else:
        files = [drawing.photograph(index).file for index in range(3)]
        images = [drawing.levels(drawing.read(file)) for file in files]
    return [cv2.resize(image, (WIDTH, HEIGHT)) for image in images]
