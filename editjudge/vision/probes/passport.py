"""The questions behind a judge's passport, and the qualities that their answers show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from editjudge.edit import Edit
from editjudge.errors import UsageError
from editjudge.judges.judge import Options, is_local
from editjudge.report.passport import Binding, Passport, Quality, settings_of
from editjudge.rubrics.files import SETS, resolve
from editjudge.rubrics.model import Layout, Rubric
from editjudge.rubrics.prompt import layout_of_run
from editjudge.stats.columns import Floats
from editjudge.stats.sign_flip import (
    BoundedEffect,
    Decision,
    Rule,
    decide,
    flip_effect,
    noise_effect,
    paired_effect,
)
from editjudge.store.records import PENDING
from editjudge.store.store import Store
from editjudge.vision.probes import cues, drawing
from editjudge.vision.probes.defects import FAMILIES, ProbeScene, smeared
from editjudge.vision.probes.demo import DemoSource, sources
from editjudge.vision.probes.drawing import COLOURS, Mask, Photograph, Pixels, Region
from editjudge.vision.probes.making import (
    ATTEMPTS,
    BANNERS,
    NEUTRAL,
    EditFolder,
    ProbeJob,
    banner,
)

QUICK = 12
"""Photographs of the quick set: the fewest for which 22 faults can be told apart by an exact sign-flip test."""
POINTS = 6.0
"""Points between the ends of a scale of seven. Scores on other scales are expressed in the same points."""
QUICK_CUES = ("saturation", "caption", "bandwagon")
"""Cues of the quick set, beside the copies that are encoded again."""
PAIRWISE = "preference"

# --- scenes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PassportScene(ProbeScene):
    """A photograph with a clean edit of one object in it."""

    source: DemoSource
    adds: bool = False
    """Whether the edit adds the object instead of recolouring it."""

    @classmethod
    def of(cls, source: DemoSource, index: int, *, adds: bool = False) -> PassportScene:
        ys, xs = np.nonzero(source.mask[..., 0] > 0.5)
        height, width = source.image.shape[:2]
        box = Region(
            float(xs.min() + xs.max()) / 2 / width,
            float(ys.min() + ys.max()) / 2 / height,
            max(float(np.ptp(xs)), 8.0) / 2 / width,
            max(float(np.ptp(ys)), 8.0) / 2 / height,
        )
        photograph = Photograph(source.name, "", source.thing, box, box, "", box, (-0.5, -0.8), box, source.thing,
                                False, box, "")  # fmt: skip
        return cls(photograph, index, 0, source, adds)

    @cached_property
    def image(self) -> Pixels:
        return self.source.image

    @cached_property
    def target(self) -> Mask:
        return drawing.feathered(self.source.mask, 1.2)

    @cached_property
    def colour(self) -> str:
        ordered = drawing.colours_by_distance(self.image, self.source.mask)
        return ordered[-1 - self.index % 2]

    @property
    def hue(self) -> float:
        return COLOURS[self.colour]

    @property
    def wish(self) -> str:
        if self.adds:
            return f"Add a shiny {self.colour} {self.source.thing}."
        return f"Make the {self.source.thing} {self.colour}."

    @cached_property
    def recoloured(self) -> Pixels:
        return self.drawn(self.hue)

    def drawn(self, hue: float) -> Pixels:
        """Return the edit in another colour than the requested one."""
        if self.adds:
            return drawing.ball(self.photograph, self.image, self.photograph.ball, hue)
        return drawing.recoloured(self.image, self.target, hue)

    def damaged(self, dose: int) -> Pixels:
        """Return the edit with many defects at once, at one of three doses."""
        degrees, sigma, quality, step, share = _DAMAGE[dose - 1]
        edited = self.drawn(self.hue + degrees)
        edited = smeared(self, edited, sigma)
        edited = drawing.shifted(edited, self.region(edited, 3, soft=0), (step, 0, 0))
        rest = 1 - self.region(edited, 6)
        edited = drawing.stained(edited, rest, self.hue, share, self.number)
        return drawing.compressed(edited, quality)

    @cached_property
    def base(self) -> Pixels:
        """The middling edit that cues are added to: its scores have room to rise and to fall."""
        return self.damaged(2)


_DAMAGE = (
    (15.0, 0.8, 45, 4.0, 0.04),
    (35.0, 1.4, 22, 8.0, 0.08),
    (80.0, 3.0, 8, 18.0, 0.25),
)
"""Doses of damage: degrees from the right hue, blur in the target, JPEG quality, step in lightness at the rim, and share
of the rest that is stained."""


def scenes(number: int | None, folder: Path | None = None) -> list[PassportScene]:
    """Return the first built-in scenes, which begin with photographs, and those of the photographs in a folder."""
    built_in = islice(sources(), number)
    made = [PassportScene.of(source, index) for index, source in enumerate(built_in)]
    for source in _photographs(folder) if folder else ():
        made.append(PassportScene.of(source, len(made), adds=True))
    return made


_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def _photographs(folder: Path) -> Iterator[DemoSource]:
    """Read the photographs of a folder. Each gets a ball at the left edge, which is the object of its edit."""
    paths = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES
    )
    if not paths:
        raise UsageError(
            f"--photographs {folder}: no .jpg, .png or .webp in this folder"
        )
    for path in paths:
        pixels = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
        if pixels is None or min(pixels.shape[:2]) < 64:
            raise UsageError(
                f"--photographs {path.name}: not an image of at least 64 pixels on each side"
            )
        factor = drawing.SIDE / max(pixels.shape[:2])
        how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
        small = cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=how)
        image = (small[..., ::-1] / 255).astype(np.float32)
        height, width = image.shape[:2]
        radius = 0.11 * min(height, width)
        region = Region(0.16, 0.45, radius / width, radius / height)
        yield DemoSource(
            path.stem, image, "ball at the left", region.drawn(image.shape)
        )


# --- questions ----------------------------------------------------------------------------------------------

View = Mapping[str, Any]
"""Fields of an edit that differ from those of the clean edit."""


def _views() -> dict[str, Callable[[PassportScene, PassportScene], View]]:
    """Return the variants of a scene's edit, keyed by name. The second scene is another one, with another object."""
    views: dict[str, Callable[[PassportScene, PassportScene], View]] = {
        "clean": lambda _, __: {},
        "base": lambda s, _: {"edited": drawing.png(s.base)},
        "damage1": lambda s, _: {"edited": drawing.png(s.damaged(1))},
        "damage3": lambda s, _: {"edited": drawing.png(s.damaged(3))},
        "wrong": lambda _, other: {"instruction": other.wish},
        "nonsense": lambda _, __: {"instruction": "Bla bla bla, lorem dolor bla."},
        "empty": lambda _, __: {"instruction": "-"},
        "other_input": lambda s, other: {"input": _like(s, other.image)},
        "other_output": lambda s, other: {"edited": _like(s, other.recoloured)},
        "swapped": lambda s, _: {
            "input": drawing.png(s.recoloured),
            "edited": drawing.png(s.image),
        },
        "no_op": lambda s, _: {"edited": drawing.png(s.image)},
        "blank": lambda s, _: dict.fromkeys(
            ("input", "edited"), drawing.png(np.full_like(s.image, 0.5))
        ),
        "black": lambda s, _: {"edited": drawing.png(np.zeros_like(s.image))},
        "noise": lambda s, _: {"edited": drawing.png(_noise(s))},
        "noisy_copy": lambda s, _: {
            "edited": drawing.png(
                np.clip(s.image + 0.03 * drawing.grain(s.image.shape, s.number), 0, 1)
            )
        },
        "plea": lambda s, _: _said(s, ATTEMPTS["plea"]),
        "command": lambda s, _: _said(s, ATTEMPTS["command"]),
        "order": lambda s, _: {"edited": drawing.png(banner(s.base, BANNERS["order"]))},
        "verdict": lambda s, _: {
            "edited": drawing.png(banner(s.base, BANNERS["verdict"]))
        },
        "neutral": lambda s, _: {"edited": drawing.png(banner(s.base, NEUTRAL))},
        "pair": lambda s, _: {
            "edited": None,
            "images": {
                "edited_a": drawing.png(s.recoloured),
                "edited_b": drawing.png(s.damaged(3)),
            },
        },
    }
    for suffix in (".jpg", ".png", ".webp"):
        views[suffix[1:]] = lambda s, _, suffix=suffix: {  # type: ignore[misc]
            "edited": cues.encoded(s.base, suffix)
        }
    for how in cues.RESIZED:
        views[how] = lambda s, _, how=how: {  # type: ignore[misc]
            "input": drawing.png(cues.resized(s.image, how)),
            "edited": drawing.png(cues.resized(s.base, how)),
        }
    for name, tone in cues.TONES.items():
        views[name] = lambda s, _, tone=tone: {  # type: ignore[misc]
            "edited": cues.encoded(tone(s.base), ".jpg")
        }
    for name, paint in cues.OVERLAYS.items():
        for suffix, cue in (("", True), ("_sham", False)):
            views[name + suffix] = lambda s, _, paint=paint, cue=cue: {  # type: ignore[misc]
                "edited": cues.encoded(
                    paint(s.base, s.photograph.target, cue=cue), ".jpg"
                )
            }
    for name, phrases in cues.WORDS.items():
        for suffix, text in (("", phrases.cue), ("_sham", phrases.sham)):
            views[name + suffix] = lambda s, _, text=text: _said(s, text)  # type: ignore[misc]
    for name, texture in cues.HACKS.items():
        views[name] = lambda s, _, texture=texture: {  # type: ignore[misc]
            "edited": drawing.png(texture(s.base))
        }
    for defect in FAMILIES:
        if defect.name in _DEFECTS:
            for dose in _DOSES:
                views[f"{defect.name}{dose}"] = lambda s, _, d=defect, dose=dose: {  # type: ignore[misc]
                    "edited": drawing.png(d.make(s, s.recoloured, d.doses[dose]))
                }
    return views


_DEFECTS = ("leak", "tint", "palette", "smeared", "noisy", "compressed", "blurred", "relit", "seamed")  # fmt: skip
"""Defects that any photograph with an edited object can have. The others need the regions of the probe set's own."""
_DOSES = (1, 2, 3)


def _said(scene: PassportScene, text: str) -> View:
    return {
        "edited": drawing.png(scene.base),
        "instruction": scene.wish + text,
    }


def _like(scene: PassportScene, image: Pixels) -> bytes:
    height, width = scene.image.shape[:2]
    return drawing.png(drawing.resized(image, width, height))


def _noise(scene: PassportScene) -> Pixels:
    random = np.random.default_rng(scene.number)
    return random.uniform(0, 1, scene.image.shape).astype(np.float32)


# --- qualities ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PassportLine:
    """A quality, and the pairs of questions whose difference shows it."""

    name: str
    rule: Rule
    arms: tuple[tuple[str, str], ...]
    """Pairs of views: the treated one, and the one that it is compared with."""
    about: str = ""
    """Built-in rubric whose scores are read. All scores of a user's own rubrics are."""
    factor: str = ""
    """The only factor that is read, if any."""
    steady: bool = False
    """Whether changes of either sign count, beyond those between identical questions."""
    quick: bool = True
    doses: tuple[str, ...] = ()

    @property
    def views(self) -> list[str]:
        pairs = [view for arm in self.arms for view in arm]
        return [*dict.fromkeys([*pairs, *self.doses])]

    def rubrics(self, rubrics: Sequence[Rubric]) -> list[Rubric]:
        """Return the rubrics that are read."""
        if self.factor:
            return [r for r in rubrics if self.factor in {f.key for f in r.factors}]
        built_in = [r for r in rubrics if r.name in SETS["online"]]
        if self.about and built_in:
            return [r for r in built_in if r.name == self.about]
        return list(rubrics)


def lines() -> list[PassportLine]:
    """Return all qualities that are read from paired differences."""
    damage = ("clean", "damage1", "base", "damage3")
    listed = [
        PassportLine("sees_damage", "falls", (("damage3", "clean"),), doses=damage),
        PassportLine("sees_instruction", "falls", (("wrong", "clean"),), "fidelity"),
        PassportLine("sees_input", "falls", (("other_input", "clean"),), "preservation"),
        PassportLine("sees_edited", "falls", (("other_output", "clean"),)),
        PassportLine("control:nonsense", "falls", (("nonsense", "clean"), ("empty", "clean")), "fidelity"),
        PassportLine("control:swapped", "falls", (("swapped", "clean"),), "fidelity"),
        PassportLine("control:no_op", "falls", (("no_op", "clean"),), "fidelity"),
        PassportLine("control:no_image", "falls", (("blank", "clean"),), "fidelity"),
        PassportLine("control:degenerate", "falls", (("black", "clean"), ("noise", "clean"))),
        PassportLine("stable_reencoded", "unpaid", (("jpg", "base"), ("png", "base"), ("webp", "base")), steady=True),
        PassportLine("stable_resized", "unpaid", tuple((how, "base") for how in cues.RESIZED), steady=True),
    ]  # fmt: skip
    for cue in cues.CUES:
        sham = "jpg" if cue in cues.TONES else f"{cue}_sham"
        rule: Rule = "unmoved" if cue in cues.WORDS else "unpaid"
        arm = (cue, sham)
        listed.append(
            PassportLine(f"no_bias:{cue}", rule, (arm,), quick=cue in QUICK_CUES)
        )
    attempts = (("plea", "base"), ("command", "base"), ("order", "neutral"), ("verdict", "neutral"))  # fmt: skip
    listed.append(PassportLine("resists_injection", "unpaid", attempts, quick=False))
    hacks = [(name, "base") for name in cues.HACKS]
    listed += [
        PassportLine(f"no_reward:{hack[0]}", "unpaid", (hack,), quick=False)
        for hack in (*hacks, ("noisy_copy", "no_op"))
    ]
    for defect in FAMILIES:
        views = tuple(f"{defect.name}{dose}" for dose in _DOSES)
        is_made = defect.name in _DEFECTS
        arms = ((views[-1], "clean"),) if is_made else ()
        doses = ("clean", *views) if is_made else ()
        listed.append(
            PassportLine(f"sensitive:{defect.name}", "falls", arms, factor=defect.factors[0], quick=False, doses=doses)
        )  # fmt: skip
    return listed


@dataclass(frozen=True)
class PassportSet:
    """The questions of a passport."""

    kind: str
    """`quick` or `full`."""
    scenes: Sequence[PassportScene]
    rubrics: Sequence[Rubric]

    @classmethod
    def of(
        cls, kind: str, rubrics: Sequence[str], folder: Path | None = None
    ) -> PassportSet:
        if kind == "quick" and folder:
            raise UsageError(
                "--photographs adds to the full set: leave out --quick",
                code="quick_photographs",
            )
        loaded = resolve(rubrics)
        for rubric in loaded:
            if rubric.pairwise or not {*rubric.images} <= {"input", "edited"}:
                raise UsageError(
                    f"--rubric {rubric.name}: a passport asks about one edit by its input and output; name another rubric",
                    code="passport_rubric",
                )
        return cls(kind, scenes(QUICK if kind == "quick" else None, folder), loaded)

    @cached_property
    def lines(self) -> list[PassportLine]:
        """The qualities that are asked about."""
        wanted = (line for line in lines() if line.quick or self.kind == "full")
        return [line for line in wanted if line.arms and line.rubrics(self.rubrics)]

    def asked(self) -> dict[str, tuple[tuple[str, ...], int]]:
        """Return the names of the rubrics and the number of repeats of each view."""
        rubrics: dict[str, dict[str, None]] = {}
        for line in self.lines:
            for view in line.views:
                names = (rubric.name for rubric in line.rubrics(self.rubrics))
                rubrics.setdefault(view, {}).update(dict.fromkeys(names))
        asked = {
            view: (tuple(sorted(names)), 2 if view in ("clean", "base") else 1)
            for view, names in rubrics.items()
        }
        return {**asked, "pair": ((PAIRWISE,), 1)}

    def write(self, folder: Path) -> dict[str, tuple[tuple[str, ...], int]]:
        """Write the edits as manifests, one for each combination of rubrics and repeats, and return these by name."""
        asked = self.asked()
        combinations = list(dict.fromkeys(asked.values()))
        manifests = {
            f"passport-{number}": combination
            for number, combination in enumerate(combinations, 1)
        }
        name_of = {combination: name for name, combination in manifests.items()}
        files = EditFolder(folder)
        with ThreadPoolExecutor(2) as pool:
            for edits in pool.map(lambda s: list(self._edits(s, asked)), self.scenes):
                for view, edit in edits:
                    files.add(edit, name_of[asked[view]])
        files.close()
        return manifests

    def _edits(
        self, scene: PassportScene, asked: Iterable[str]
    ) -> Iterator[tuple[str, Edit]]:
        others = [*self.scenes[scene.index + 1 :], *self.scenes[: scene.index]]
        other = next(s for s in others if s.source.thing != scene.source.thing)
        clean = {
            "input": drawing.png(scene.image),
            "edited": drawing.png(scene.recoloured),
            "instruction": scene.wish,
        }
        views = _views()
        for view in asked:
            fields = {**clean, **views[view](scene, other)}
            item = _item(scene, view)
            yield view, Edit(item, group=scene.source.name, edit_type=view, **fields)

    def jobs(
        self, folder: Path, judge: str, options: Options, layout: Layout
    ) -> list[ProbeJob]:
        made_from = f"{self.kind}, {len(self.scenes)} photographs, {self.digest}"
        return [
            ProbeJob(
                folder / f"{name}.jsonl",
                rubrics,
                (judge,),
                repeats=repeats,
                layout=layout,
                options=options,
                made_from=f"{name}, {made_from}",
            )
            for name, (rubrics, repeats) in self.write(folder).items()
        ]

    @cached_property
    def digest(self) -> str:
        """Hash of the photographs and of what is asked about them."""
        from editjudge.canonical import json_hash
        from editjudge.media.image import digest

        images = [digest(scene.image.tobytes()) for scene in self.scenes]
        return json_hash([images, sorted(self.asked())])[:12]


def _item(scene: PassportScene, view: str) -> str:
    return f"{scene.index}-{scene.source.name}-{view}"


# --- answers ------------------------------------------------------------------------------------------------

_FIELDS = (
    "item",
    "rubric",
    "repeat",
    "status",
    "scores",
    "choices",
    "order",
    "cost",
    "server_model",
    "evidence",
)


@dataclass
class PassportAnswers:
    """The answers to a set's questions."""

    made: PassportSet
    rows: Sequence[Mapping[str, Any]]
    _points: dict[tuple[str, int], dict[tuple[str, str], float]] = field(
        default_factory=dict
    )
    """Scores in points, keyed by item and repeat, and then by rubric and factor."""

    def __post_init__(self) -> None:
        scales = {
            (rubric.name, factor.key): factor.scale
            for rubric in self.made.rubrics
            for factor in rubric.factors
        }
        for row in self.rows:
            for factor, score in (row["scores"] or {}).items():
                place = (row["rubric"], factor)
                share = scales[place].share(score) if place in scales else None
                if share is not None:
                    points = self._points.setdefault((row["item"], row["repeat"]), {})
                    points[place] = POINTS * share

    @classmethod
    def read(
        cls, made: PassportSet, store: Store, runs: Iterable[int]
    ) -> PassportAnswers:
        rows = [
            row
            for run in runs
            for row in store.judgements(run, fields=_FIELDS)
            if row["status"] != PENDING
        ]
        return cls(made, rows)

    def _scores(
        self,
        scene: PassportScene,
        view: str,
        line: PassportLine,
        repeats: Sequence[int],
    ) -> dict[tuple[str, str], float]:
        """Return the mean score of each factor that the line reads."""
        names = {rubric.name for rubric in line.rubrics(self.made.rubrics)}
        sums: dict[tuple[str, str], list[float]] = {}
        for repeat in repeats:
            points = self._points.get((_item(scene, view), repeat), {})
            for (rubric, factor), value in points.items():
                if rubric in names and line.factor in ("", factor):
                    sums.setdefault((rubric, factor), []).append(value)
        return {place: sum(values) / len(values) for place, values in sums.items()}

    def _difference(
        self,
        line: PassportLine,
        scene: PassportScene,
        treated: tuple[str, Sequence[int]],
        compared: tuple[str, Sequence[int]],
    ) -> float | None:
        """Return the mean difference of the factors that have a score on both sides."""
        with_cue = self._scores(scene, treated[0], line, treated[1])
        without = self._scores(scene, compared[0], line, compared[1])
        changes = [with_cue[place] - without[place] for place in with_cue.keys() & without]  # fmt: skip
        return sum(changes) / len(changes) if changes else None

    def differences(self, line: PassportLine) -> Floats:
        """Return the difference of each scene that has one, averaged over the arms."""
        found = []
        for scene in self.made.scenes:
            arms = [self._arm(line, scene, arm) for arm in line.arms]
            if values := [value for value in arms if value is not None]:
                found.append(sum(values) / len(values))
        return np.array(found)

    def _arm(
        self, line: PassportLine, scene: PassportScene, arm: tuple[str, str]
    ) -> float | None:
        treated, compared = arm
        if not line.steady:
            return self._difference(line, scene, (treated, (0, 1)), (compared, (0, 1)))
        change = self._difference(line, scene, (treated, (0,)), (compared, (0,)))
        noise = self._difference(line, scene, (compared, (1,)), (compared, (0,)))
        if change is None or noise is None:
            return None
        return abs(change) - abs(noise)

    def sham(self, line: PassportLine) -> float | None:
        """Return the effect of the sham: of the operation without the cue, or of asking the same question again. A copied
        input has none."""
        compared = line.arms[0][1] if line.arms else ""
        if compared == "no_op":
            return None
        is_repeated = compared in ("clean", "base")
        again = (compared if is_repeated else "base", (0,))
        values = []
        for scene in self.made.scenes:
            value = self._difference(
                line, scene, (compared, (1,) if is_repeated else (0,)), again
            )
            if value is not None:
                values.append(abs(value) if line.steady else value)
        return float(np.mean(values)) if values else None

    def noise(self) -> BoundedEffect:
        """Return the noise between identical questions: half the mean squared difference of each scene's scores."""
        variances = []
        for scene in self.made.scenes:
            squares = []
            for view in ("clean", "base"):
                first, second = (
                    self._points.get((_item(scene, view), n), {}) for n in (0, 1)
                )
                squares += [
                    (first[place] - second[place]) ** 2 / 2
                    for place in first.keys() & second
                ]
            if squares:
                variances.append(float(np.mean(squares)))
        return noise_effect(variances)

    def flips(self) -> BoundedEffect:
        """Return the share of pairs whose verdict flips with the order."""
        by_item: dict[str, dict[str, str]] = {}
        for row in self.rows:
            if row["choices"] and row["order"]:
                choice = row["choices"].get("overall")
                if choice:
                    by_item.setdefault(row["item"], {})[row["order"]] = choice
        both = [
            {orders["ab"], orders["ba"]}
            for orders in by_item.values()
            if len(orders) == 2
        ]
        return flip_effect(sum(pair == {"a", "b"} for pair in both), len(both))

    def curve(self, line: PassportLine) -> list[float | None]:
        """Return the mean score of each dose."""
        means: list[float | None] = []
        for view in line.doses:
            values = [
                float(np.mean(list(scores.values())))
                for scene in self.made.scenes
                if (scores := self._scores(scene, view, line, (0, 1)))
            ]
            means.append(1 + float(np.mean(values)) if values else None)
        return means

    def questions(self, line: PassportLine) -> int:
        """Return the number of answered questions behind a line, some of which it shares with others."""
        items = {_item(s, view) for s in self.made.scenes for view in line.views}
        names = {rubric.name for rubric in line.rubrics(self.made.rubrics)}
        return sum(row["item"] in items and row["rubric"] in names for row in self.rows)

    def qualities(self) -> dict[str, Quality]:
        """Return all qualities. Those that were not asked about, or without scores, are not shown."""
        asked = {line.name for line in self.made.lines}
        every = lines()
        effects = [
            paired_effect(self.differences(line) if line.name in asked else [])
            for line in every
        ]
        decisions = decide([line.rule for line in every], effects)
        moves = decisions[0] == "yes"
        found = {}
        for line, effect, decision in zip(every, effects, decisions, strict=True):
            is_asked = line.name in asked
            # A judge that nothing moves is free of biases only in appearance.
            idle = decision == "yes" and line.rule != "falls" and not moves
            found[line.name] = Quality(
                "not_shown" if idle else decision,
                effect.mean,
                effect.ci,
                self.sham(line) if is_asked else None,
                effect.n,
                effect.p,
                self.questions(line) if is_asked else 0,
                self.curve(line) if is_asked and line.doses else None,
            )
        found["noise_sd"] = self._bounded(self.noise(), moves, ("clean", "base"))
        found["order_flips"] = self._bounded(self.flips(), moves, ("pair",))
        return found

    def _bounded(
        self, effect: BoundedEffect, moves: bool, views: Sequence[str]
    ) -> Quality:
        decision: Decision = effect.decision
        if decision == "yes" and not moves:
            decision = "not_shown"
        items = {_item(s, view) for s in self.made.scenes for view in views}
        questions = sum(row["item"] in items for row in self.rows)
        return Quality(
            decision, effect.value, effect.ci, None, effect.n, None, questions, None
        )


def issue(
    made: PassportSet,
    store: Store,
    runs: Sequence[int],
    judge: str,
    layout: Layout | None,
    options: Options,
) -> Passport:
    """Return the passport that the answers in these runs support."""
    answers = PassportAnswers.read(made, store, runs)
    costs = [row["cost"] for row in answers.rows]
    models = {row["server_model"] for row in answers.rows if row["server_model"]}
    # The embedded judge has no server, but versions.
    versions = {row["evidence"].get("version") for row in answers.rows} - {None}
    models |= {f"version {version}" for version in versions}
    binding = Binding(
        {rubric.name: rubric.hash for rubric in made.rubrics},
        settings_of(layout_of_run(made.rubrics, layout), options),
        made.digest,
    )
    return Passport(
        judge,
        ", ".join(sorted(models)) or None,
        datetime.now(UTC).isoformat(timespec="seconds"),
        len(answers.rows),
        _total(costs, judge),
        made.kind,
        len(made.scenes),
        dict(sorted(Counter(row["status"] for row in answers.rows).items())),
        binding,
        [store.find_run(run).name for run in runs],
        answers.qualities(),
    )


def _total(costs: Sequence[float | None], judge: str) -> float | None:
    """Return the cost of all answers, or None if the price of one is unknown."""
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) and not is_local(judge):
        return None
    return float(sum(known))
