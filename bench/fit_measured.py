"""Fits the calibration of the embedded judge to people's ratings, and says how well it then agrees with them.

    python bench/fit_measured.py [--data ../shared/data] [--manifest M --ratings R] [--cache FOLDER] [-o FILE]

Rated edits are manifests with a `ratings.csv` (`item, rater, factor, score`) of perceptual quality. Only parameters
are written: cut points, which are set by hand on known-answer edits and kept here with their reasons, and the weights
of ridge regressions, one for each kind of evidence. Agreement is Spearman's rho of the mean of the
quality scores, as shipped (whole numbers), with the mean rating: pooled and within editing model, on photographs that
were not fitted to (all edits and turns of a photograph are in one fold), and on editing models that were not fitted to
either. Intervals resample photographs.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from scipy.stats import rankdata
from sklearn.model_selection import GroupKFold

from editjudge.media.image import decode
from editjudge.rubrics.scale import Scale
from editjudge.vision.measured import network as eyes
from editjudge.vision.measured.calibration import (
    FILE,
    Calibration,
    Learnt,
    calibration,
    features,
)
from editjudge.vision.measured.factors import on_scale
from editjudge.vision.measured.measures import measure
from editjudge.vision.measured.scene import compose

Array = Any
QUALITY = ("texture_and_detail", "image_quality", "color_and_lighting", "seamlessness")
FACTOR = "PQ"
SCALE = Scale(tuple(range(1, 8)))
RIDGE = 1.0
LAST = ("channels 16", "gains 16")
"""Channels that are left out of `whole` and `near`: the last layer has 1,280 and adds nothing to the others there."""
POINTS = 4.0
"""The most points that the learnt part takes off: with more, other factors answer more than half as much as the own
one to a thing replaced (.54 with 4.5, for .005 within)."""
OFFSETS = dict(zip(QUALITY, (0.375, 0.125, -0.125, -0.375), strict=True))
"""Evenly over one step of the scale."""
OWN_MODEL = 0.5
"""Share of the difference between editing models' means that is learnt: what tells models apart is partly quality."""

CUTS: dict[str, list[tuple[str, list[tuple[float, float]]]]] = {
    # Points taken off at each value of a measure. First value: seen in clean edits and re-encoded copies. Last: the
    # strongest dose of the defect on photographs. Between them the doses are spread over the scale.
    "unchanged_regions": [
        (
            "change.stray",
            [(0.002, 0), (0.06, 1.3), (0.11, 2.4), (0.2, 4.0), (0.3, 5.2), (0.7, 6.0)],
        ),
        ("change.mean outside", [(3, 0), (8, 1.2), (20, 3.0)]),
        ("change.shifted", [(0.12, 0), (0.36, 0.8), (0.7, 2.2), (1.0, 3.0)]),
        ("change.shift", [(3, 0), (6, 1.0), (12, 2.0), (25, 3.0)]),
    ],
    "global_consistency": [
        ("style.turned", [(4, 0), (25, 0.8), (50, 1.8), (75, 3.0), (100, 4.2)]),
        ("style.tinted", [(1.5, 0), (5, 1.2), (10, 2.6), (15, 4.0), (20, 5.4)]),
    ],
    "identity_preservation": [
        ("structure.lost inside", [(0.04, 0), (0.25, 1.8), (0.6, 4.5), (0.9, 6.0)]),
        ("structure.lost outside", [(0.06, 0), (0.25, 1.5), (0.7, 4.5)]),
    ],
    "texture_and_detail": [
        (
            "texture.lost",
            [
                (0.2, 0),
                (0.55, 1.2),
                (0.9, 2.5),
                (1.15, 3.4),
                (1.4, 4.3),
                (2.0, 5.2),
                (2.8, 6.0),
            ],
        ),
        ("texture.noise", [(2.2, 0), (3.5, 1.2), (5.2, 2.4), (9.0, 3.8), (15.0, 5.5)]),
    ],
    "image_quality": [
        (
            "overall.blocks",
            [(0.25, 0), (0.45, 1.0), (0.8, 1.9), (1.3, 2.6), (2.0, 3.0)],
        ),
        ("overall.flat", [(0.08, 0), (0.2, 0.9), (0.26, 1.7), (0.36, 2.6), (0.5, 3.0)]),
        ("overall.blur", [(0.3, 0), (0.7, 1.3), (1.25, 3.0), (1.7, 4.3), (2.4, 5.7)]),
        ("overall.noise", [(0.5, 0), (2.0, 2.0), (4.5, 6.0)]),
    ],
    "color_and_lighting": [
        (
            "light.slope against",
            [(0.35, 0), (0.6, 1.1), (1.0, 2.4), (1.5, 3.9), (2.1, 5.5)],
        )
    ],
    "seamlessness": [
        (
            "seam.step",
            [(1.0, 0), (2.2, 0.9), (4.5, 2.1), (8.0, 3.5), (11.5, 4.6), (16.0, 6.0)],
        )
    ],
    "reference alignment": [
        ("target.agreement missing", [(0.08, 0), (0.5, 2.5), (1.0, 6.0)])
    ],
    "reference completeness": [
        ("target.coverage missing", [(0.05, 0), (0.5, 3.0), (0.95, 6.0)])
    ],
    "reference scale_realism": [("target.size", [(0.15, 0), (1.0, 3.0), (2.5, 6.0)])],
    "reference spatial_relationship": [
        ("target.offset", [(0.01, 0), (0.1, 3.0), (0.3, 6.0)])
    ],
}
TRUST = {
    "structure.lost inside": "trust.thing",
    "texture_and_detail": "trust.edit",
    "seamlessness": "trust.edit",
    "color_and_lighting": "trust.light",
    "image_quality": "trust.whole",
}
"""Factors whose measures compare a thing with itself, and the measure that says whether it still is itself."""


@dataclass(frozen=True)
class Rated:
    """Edits with what was measured and what people said."""

    names: list[str]
    values: Array
    """Edits by measures; NaN where one could not be taken."""
    sight: dict[str, Array]
    rating: Array
    model: Array
    group: Array
    """The photograph."""
    source: Array
    """The set that the edit comes from."""
    masked: Array
    """Whether a mask says where the edit belongs."""

    def part(self, chosen: Array) -> Rated:
        rows = (self.rating, self.model, self.group, self.source, self.masked)
        sight = {name: row[chosen] for name, row in self.sight.items()}
        return Rated(
            self.names, self.values[chosen], sight, *(row[chosen] for row in rows)
        )

    def __add__(self, other: Rated) -> Rated:
        names = sorted({*self.names, *other.names})
        values = np.full((len(self.rating) + len(other.rating), len(names)), np.nan)
        for one, start in ((self, 0), (other, len(self.rating))):
            columns = [names.index(name) for name in one.names]
            values[start : start + len(one.rating), columns] = one.values
        sight = {
            name: np.concatenate([row, other.sight[name]])
            for name, row in self.sight.items()
        }
        pairs = (
            (getattr(one, name) for one in (self, other))
            for name in ("rating", "model", "group", "source", "masked")
        )
        return Rated(
            names, values, sight, *(np.concatenate(list(pair)) for pair in pairs)
        )


# --- measuring ------------------------------------------------------------------------------------------------


def read_rated(manifest: Path, ratings: Path, cache: Path | None) -> Rated:
    scores: dict[str, list[float]] = defaultdict(list)
    with ratings.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["factor"] == FACTOR:
                scores[row["item"]].append(float(row["score"]))
    edits = [
        edit
        for edit in map(json.loads, manifest.read_text("utf-8").splitlines())
        if edit["id"] in scores
    ]
    names, values, sight = _measured(
        manifest, edits, cache and cache / f"{manifest.parent.name}.npz"
    )
    return Rated(
        names,
        values,
        sight,
        np.array([np.mean(scores[edit["id"]]) for edit in edits]),
        np.array([f"{manifest.parent.name} {edit.get('model')}" for edit in edits]),
        np.array(
            [photograph(str(edit.get("group") or edit["input"])) for edit in edits]
        ),
        np.array([manifest.parent.name] * len(edits)),
        np.array([bool(edit.get("mask")) for edit in edits]),
    )


def photograph(group: str) -> str:
    """Several inputs are turns of one photograph, `sample_NUMBER_TURN`: each must be in one fold."""
    turn = re.match(r"sample_(\d+)_\d+", Path(group).name)
    return turn[1] if turn else group


def _measured(
    manifest: Path, edits: list[dict[str, Any]], cache: Path | None
) -> tuple[list[str], Array, dict[str, Array]]:
    if cache and cache.exists():
        kept = dict(np.load(cache))
        return list(kept.pop("names")), kept.pop("values"), kept
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(partial(_measure, manifest.parent), edits))
    names = sorted({name for values, _ in rows for name in values})
    values = np.array([[one.get(name, np.nan) for name in names] for one, _ in rows])
    sight = {
        name: np.array([seen[name] for _, seen in rows], np.float32)
        for name in rows[0][1]
    }
    if cache:
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez(cache, names=np.array(names), values=values, **sight)  # type: ignore[arg-type]
    return names, values, sight


def _measure(
    root: Path, edit: dict[str, Any]
) -> tuple[dict[str, float], dict[str, Array]]:
    cv2.setNumThreads(1)
    roles = [
        edit["input"],
        edit["edited"],
        *([edit["mask"]] if edit.get("mask") else []),
    ]
    pictures = [
        np.asarray(decode((root / role).read_bytes(), name=role)) for role in roles
    ]
    found = measure(compose(*pictures))
    return dict(found.values), dict(found.features)


# --- fitting --------------------------------------------------------------------------------------------------


def target(rated: Rated) -> Array:
    """Ratings with part of the difference between editing models taken out, so that edits decide more than makers."""
    wanted = rated.rating.copy()
    for model in np.unique(rated.model):
        mine = rated.model == model
        wanted[mine] -= (1 - OWN_MODEL) * (
            rated.rating[mine].mean() - rated.rating.mean()
        )
    return wanted


def parts(rated: Rated) -> Iterator[tuple[list[str], bool]]:
    """The kinds of evidence, and whether each is for edits with a mask. Each has a regressor of its own, since the many
    would drown the few. Fitted to all edits, in either case."""
    apart = (
        "trust.",
        "drift.",
        "change.shift",
        "change.differing",
    )  # what `change.tint` shows of it is enough
    yield [name for name in rated.names if not name.startswith(apart)], False
    for view in ("whole", "near"):
        yield (
            [
                name
                for name in rated.sight
                if name.startswith(view) and not name.endswith(LAST)
            ],
            False,
        )
    for ends in (
        (" 10",),
        (" 15",),
        (" 16",),
        ("classes", *(f"distance {layer}" for layer in eyes.LAYERS)),
    ):
        yield (
            [
                name
                for name in rated.sight
                if name.startswith("near") and name.endswith(ends)
            ],
            True,
        )


def rows(rated: Rated, chosen: list[str]) -> Array:
    seen = [rated.sight[name] for name in chosen if name in rated.sight]
    return (
        np.hstack(seen)
        if seen
        else rated.values[:, [rated.names.index(name) for name in chosen]]
    )


def fit(known: Array, wanted: Array) -> dict[str, Any]:
    """Ridge weights on standardised rows, rounded as they are shipped."""
    mean = np.nanmean(known, axis=0)
    scale = np.nanstd(known, axis=0)
    scale[scale < 1e-6] = 1.0
    mean = _rounded(mean)
    scale = _rounded(scale)
    x = features(known, mean, scale)
    # In the space of edits, of which there are fewer than numbers.
    dual = np.linalg.solve(x @ x.T + RIDGE * np.eye(len(x)), wanted - wanted.mean())
    return {"mean": mean, "scale": scale, "weights": _rounded(x.T @ dual)}


def _rounded(row: Array) -> Array:
    return np.array([float(f"{x:.4g}") for x in row])


def learn(rated: Rated) -> dict[str, Any]:
    """One regressor for each kind of evidence, and where rated edits that it has not seen lie in their sum."""
    wanted = target(rated)
    regressors = []
    totals = np.zeros((2, len(rated.rating)))
    for chosen, masked in parts(rated):
        known = rows(rated, chosen)
        # Of edits that it has seen it says too much: place and spread are those of its answers on others.
        unseen = np.zeros(len(wanted))
        for train, test in unseen_images(rated, 3):
            fitted = fit(known[train], wanted[train])
            unseen[test] = (
                features(known[test], fitted["mean"], fitted["scale"])
                @ fitted["weights"]
            )
        centre = float(unseen.mean())
        spread = float(unseen.std())
        totals[int(masked)] += (unseen - centre) / spread
        about = {"parts": chosen, "masked": masked, "centre": centre, "spread": spread}
        regressors.append(about | fit(known, wanted))
    return {
        "edits": len(rated.rating),
        "network": eyes.DIGEST,
        "regressors": regressors,
        "ranks": _ranks(totals[0]),
        "masked ranks": _ranks(totals[1]),
        "points": POINTS,
        "offsets": OFFSETS,
    }


def _ranks(total: Array) -> list[list[float]]:
    shares = np.linspace(0, 1, 21)
    return [
        [round(float(np.quantile(total, share)), 4), round(float(share), 3)]
        for share in shares
    ]


def content(learnt: dict[str, Any] | None) -> dict[str, Any]:
    """What the file holds."""
    factors = {
        name: [
            {
                "measure": measure,
                "cuts": cuts,
                "trust": TRUST.get(measure, TRUST.get(name, "")),
            }
            for measure, cuts in terms
        ]
        for name, terms in CUTS.items()
    }
    return {"version": 2, "factors": factors, "learnt": learnt}


# --- how well -------------------------------------------------------------------------------------------------


def quality(found: Calibration, rated: Rated) -> Array:
    """The means of the quality scores of each edit: as whole numbers, and unrounded."""
    ranks = placed(found.learnt, rated) if found.learnt else [None] * len(rated.rating)
    means = []
    for row, rank in zip(rated.values, ranks, strict=True):
        measured = zip(rated.names, row, strict=True)
        values = {name: value for name, value in measured if not np.isnan(value)}
        scores = [found.score(factor, values, rank) for factor in QUALITY]
        rounded = [on_scale(score, SCALE) for score in scores]
        means.append((np.mean(rounded), np.mean(scores)))
    return np.array(means)


def placed(learnt: Learnt, rated: Rated) -> Array:
    """What `Learnt.rank` says of each edit, for many at once."""
    place = np.zeros(len(rated.rating))
    for masked, ranks in ((False, learnt.ranks), (True, learnt.masked_ranks)):
        chosen = rated.masked == masked
        part = rated.part(chosen)
        knots = np.array(ranks)
        kinds = (one for one in learnt.regressors if one.masked == masked)
        total = np.sum(
            [one.answers(rows(part, list(one.parts))) for one in kinds], axis=0
        )
        place[chosen] = np.interp(total, knots[:, 0], knots[:, 1])
    return place


def spearman(a: Array, b: Array) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def agreement(answer: Array, rated: Rated) -> dict[str, float]:
    models = np.unique(rated.model)
    within = [
        spearman(answer[rated.model == m], rated.rating[rated.model == m])
        for m in models
    ]
    return {
        "within": float(np.nanmean(within)),
        "pooled": spearman(answer, rated.rating),
    }


def with_intervals(answer: Array, rated: Rated, times: int = 1000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    groups = np.unique(rated.group)
    members = {group: np.flatnonzero(rated.group == group) for group in groups}
    bare = replace(rated, sight={})
    drawn = defaultdict(list)
    for _ in range(times):
        chosen = np.concatenate([members[g] for g in rng.choice(groups, len(groups))])
        for key, value in agreement(answer[chosen], bare.part(chosen)).items():
            drawn[key].append(value)
    return {
        key: {
            "rho": round(value, 3),
            "ci95": [
                round(float(q), 3) for q in np.nanquantile(drawn[key], [0.025, 0.975])
            ],
        }
        for key, value in agreement(answer, rated).items()
    }


def unseen_images(rated: Rated, folds: int = 6) -> Iterator[tuple[Array, Array]]:
    yield from GroupKFold(folds).split(rated.rating, groups=rated.group)


def unseen_models(rated: Rated) -> Iterator[tuple[Array, Array]]:
    """Neither the editing model nor the photographs of what is judged."""
    for model in np.unique(rated.model):
        for train, test in unseen_images(rated, 2):
            yield train[rated.model[train] != model], test[rated.model[test] == model]


def held_out(rated: Rated, splits: Iterator[tuple[Array, Array]]) -> Array:
    answer = np.zeros((len(rated.rating), 2))
    for train, test in splits:
        found = calibration(content(learn(rated.part(train))))
        answer[test] = quality(found, rated.part(test))
    return answer


def report(rated: Rated) -> dict[str, Any]:
    bare = calibration(content(None))
    ways = {
        "unseen photographs": held_out(rated, unseen_images(rated)),
        "unseen photographs and editing model": held_out(rated, unseen_models(rated)),
        "own measures alone": quality(bare, rated),
    }
    found: dict[str, Any] = {}
    for source in np.unique(rated.source):
        mine = np.flatnonzero(rated.source == source)
        part = rated.part(mine)
        found[str(source)] = {
            "edits": len(mine),
            "photographs": len(np.unique(part.group)),
        }
        for way, answer in ways.items():
            for column, name in enumerate((way, f"{way}, unrounded")):
                agreed = with_intervals(answer[mine, column], part)
                found[str(source)][name] = agreed
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).resolve().parents[2] / "shared" / "data",
    )
    parser.add_argument(
        "--manifest", type=Path, help="rated edits of your own, instead of --data"
    )
    parser.add_argument("--ratings", type=Path)
    parser.add_argument(
        "--cache", type=Path, help="folder in which measures are kept between calls"
    )
    parser.add_argument("-o", "--output", type=Path, default=FILE)
    parser.add_argument(
        "--dry-run", action="store_true", help="report, and write nothing"
    )
    given = parser.parse_args()
    folders = [given.data / name for name in ("imagenhub_text", "imagenhub_mask")]
    manifests = (
        [given.manifest]
        if given.manifest
        else [folder / "manifest.jsonl" for folder in folders]
    )
    if absent := [str(manifest) for manifest in manifests if not manifest.exists()]:
        raise SystemExit(
            f"{', '.join(absent)}: not there; name rated edits with --manifest and --ratings"
        )
    sets = [
        read_rated(one, given.ratings or one.with_name("ratings.csv"), given.cache)
        for one in manifests
    ]
    rated = sets[0] + sets[1] if len(sets) == 2 else sets[0]
    found = report(rated)
    print(json.dumps(found, indent=2))
    if not given.dry_run:
        given.output.write_text(
            json.dumps(_file(rated, found), separators=(",", ":"), default=list) + "\n"
        )


def _file(rated: Rated, found: dict[str, Any]) -> dict[str, Any]:
    sets = ", ".join(sorted(set(rated.source)))
    return content(learn(rated)) | {
        "provenance": {
            "made by": "bench/fit_measured.py",
            "ratings": f"{sets}: mean of people's {FACTOR}, {len(rated.rating)} edits, "
            f"{len(np.unique(rated.group))} photographs, {len(np.unique(rated.model))} editing models",
            "made on": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "agreement": found,
        }
    }


if __name__ == "__main__":
    main()
