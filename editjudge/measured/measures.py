"""All measures of one pair of pictures, by family and name: what scores, words and evidence are made from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from editjudge.measured.boundary import find_seam
from editjudge.measured.change import Change, find_change
from editjudge.measured.detail import damage, everywhere, find_detail, in_edit
from editjudge.measured.naturalness import find_content, find_naturalness
from editjudge.measured.network import Sight, look
from editjudge.measured.scene import Scene, View
from editjudge.measured.shading import find_shading
from editjudge.measured.structure import find_structure, redrawn, share_kept, structure_map, trust, turned
from editjudge.measured.style import find_style

Values: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Measures:
    scene: Scene
    change: Change
    values: Values
    """Each measure as `family.name`; one that could not be taken is absent."""

    @cached_property
    def sight(self) -> Sight:
        """What the network sees, looked at when it is first needed."""
        return look(self.scene, self.change)


def measure(scene: Scene) -> Measures:
    change = find_change(scene)
    likeness, weight = structure_map(scene)
    lit, _ = structure_map(scene, light=True)  # light that drowns structure is light, and no loss of structure
    detail = find_detail(scene, change, likeness)
    overall, texture = everywhere(detail), in_edit(detail)
    structure = find_structure(scene, change, likeness, weight)
    lost = structure["lost outside"] if change.outside.any() else structure["lost"]
    natural, content = _both(find_naturalness, scene), _both(find_content, scene)
    families = {
        "change": _spread(change, scene.mask is not None),
        "overall": overall | damage(scene),
        "texture": texture,
        "seam": find_seam(scene, change),
        "light": find_shading(scene, change, lit),
        "style": find_style(scene, change),
        "structure": structure,
        "trust": trust(texture["kept"], share_kept(lit, detail.inside), lost, float(change.inside.mean())),
        "redrawn": redrawn(scene),
        "turned": turned(scene, change),
        "natural": natural,
        "content": content,
    }
    values = {
        f"{family}.{name}": float(v) for family, family_values in families.items() for name, v in family_values.items()
    }
    # What could not be measured is absent: it is no evidence that nothing is wrong.
    return Measures(scene, change, {name: v for name, v in values.items() if math.isfinite(v)})


def _both(find: Callable[[View], dict[str, float]], scene: Scene) -> dict[str, float]:
    """Of the picture before, and what the edit added to it."""
    before, after = find(scene.before), find(scene.after)
    return before | {f"{name} gain": value - before[name] for name, value in after.items()}


def _spread(change: Change, masked: bool) -> dict[str, float]:
    outside, inside = change.outside > 0, change.inside
    stray = float(((change.visible > 1) & outside).mean())
    return {
        # Without a mask a change over much of the picture is more than one edit's target; a mask over all of it
        # leaves nothing that should have stayed.
        "stray": (stray if outside.any() else math.nan) if masked else stray + max(0.0, change.share - 0.25),
        "share": change.share,
        "visible share": float((change.visible > 1).mean()),
        "tint": change.tint,
        "floor": change.floor,
        "mean": float(change.difference.mean()),
        "mean inside": float(change.difference[inside].mean()) if inside.any() else math.nan,
        "mean outside": float(change.difference[outside].mean()) if outside.any() else math.nan,
        "visible outside": float((change.visible[outside] > 1).mean()) if outside.any() else math.nan,
    }
