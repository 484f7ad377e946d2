"""Simulate judges to check a passport's decisions: false alarms of honest judges, and power to find a bias.

    nice python -m bench.passport

A simulated judge gives every question one whole score from 1 to 7 (as if all factors moved together, the worst case for
noise): the quality of the edit, which varies over photographs, plus noise. The lines, their shams and the correction
are those of `editjudge probe --passport`.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

from editjudge.stats.columns import Floats
from editjudge.stats.sign_flip import PairedEffect, decide, noise_effect, paired_effect
from editjudge.vision.probes.passport import QUICK, PassportLine, lines

QUALITY = {
    "clean": 6.3,
    "damage1": 5.3,
    "damage3": 1.8,
    "no_op": 2.0,
    "noisy_copy": 2.0,
}
"""Mean score by view. Other views of a line that falls have 2, variants of the middling edit 4."""


class SimulatedJudge:
    """A judge with noise of one standard deviation, and a bias for one view."""

    def __init__(
        self, noise: float, n: int, seed: int, biased: str = "", bias: float = 0.0
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._noise = noise
        self._n = n
        self._biased = biased
        self._bias = bias
        self._scenes = self._random.normal(0, 0.6, n)
        self._answers: dict[tuple[str, int], Floats] = {}

    def answer(self, view: str, repeat: int, mean: float) -> Floats:
        if (view, repeat) not in self._answers:
            quality = QUALITY.get(view, mean) + self._scenes
            if view == self._biased:
                quality = quality + self._bias
            noisy = quality + self._random.normal(0, self._noise, self._n)
            self._answers[view, repeat] = np.clip(np.rint(noisy), 1, 7)
        return self._answers[view, repeat]

    def mean(self, view: str, mean: float) -> Floats:
        repeats = (0, 1) if view in ("clean", "base") else (0,)
        answers: Floats = np.mean([self.answer(view, n, mean) for n in repeats], axis=0)
        return answers

    def differences(self, line: PassportLine) -> Floats:
        treated_mean = 2.0 if line.rule == "falls" else 4.0
        arms = []
        for treated, compared in line.arms:
            if line.steady:
                first = self.answer(compared, 0, 4.0)
                change = self.answer(treated, 0, 4.0) - first
                noise = self.answer(compared, 1, 4.0) - first
                arms.append(np.abs(change) - np.abs(noise))
            else:
                change = self.mean(treated, treated_mean) - self.mean(compared, 4.0)
                arms.append(change)
        result: Floats = np.mean(arms, axis=0) if arms else np.array([])
        return result

    def verdicts(self, asked: list[PassportLine]) -> dict[str, str]:
        effects = [paired_effect(self.differences(line)) for line in asked]
        decisions = decide([line.rule for line in asked], effects)
        found: dict[str, str] = dict(
            zip([line.name for line in asked], decisions, strict=True)
        )
        squares = [
            (self.answer(view, 0, 4.0) - self.answer(view, 1, 4.0)) ** 2 / 2
            for view in ("clean", "base")
        ]
        noise = noise_effect(np.mean(squares, axis=0).tolist())
        return {**found, "noise_sd": noise.decision}


def asked(n: int) -> list[PassportLine]:
    return [line for line in lines() if line.arms and (line.quick or n > QUICK)]


def false_alarms(noise: float, n: int, judges: int) -> tuple[float, Counter[str]]:
    """Return the share of honest judges with any fault beside noise, and the lines that named one."""
    wrong = 0
    named: Counter[str] = Counter()
    for seed in range(judges):
        found = SimulatedJudge(noise, n, seed).verdicts(asked(n))
        faults = [
            name
            for name, answer in found.items()
            if answer == "no" and name != "noise_sd"
        ]
        wrong += bool(faults)
        named.update(faults)
    return wrong / judges, named


def power(noise: float, n: int, bias: float, judges: int) -> tuple[float, float]:
    """Return the share of judges whose bias for saturation is found, and the share that is wrongly called free of it.
    The other lines of the family get p = 1, the worst case for Holm's correction."""
    every = asked(n)
    place = [line.name for line in every].index("no_bias:saturation")
    effects = [PairedEffect(0.0, None, 1.0, n)] * len(every)
    answers: Counter[str] = Counter()
    for seed in range(judges):
        judge = SimulatedJudge(noise, n, seed, "saturation", bias)
        effects[place] = paired_effect(judge.differences(every[place]))
        answers[decide([line.rule for line in every], effects)[place]] += 1
    return answers["no"] / judges, answers["yes"] / judges


def free(noise: float, n: int, judges: int) -> float:
    """Return the share of honest judges that are shown to be free of a bias for saturation."""
    return power(noise, n, 0.0, judges)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judges", type=int, default=200)
    parser.add_argument("--power", action="store_true", help="only the table of power")
    options = parser.parse_args()
    if not options.power:
        print_false_alarms(options.judges)
    print_power(options.judges)


def print_false_alarms(judges: int) -> None:
    print("false alarms: share of honest judges with any `no` beside noise_sd")
    for n in (12, 24, 48):
        for noise in (0.0, 0.25, 0.5, 1.0):
            share, named = false_alarms(noise, n, judges)
            print(f"n {n:3}  SD {noise:4}: {share:.3f}  {dict(named)}", flush=True)


def print_power(judges: int) -> None:
    print("SD | photographs | bias .5 found | called free | bias 1 found | honest shown free")  # fmt: skip
    for noise in (0.5, 1.0):
        for n in (12, 24, 48, 96, 192):
            half, wrong = power(noise, n, 0.5, judges)
            one, _ = power(noise, n, 1.0, judges)
            cells = (half, wrong, one, free(noise, n, judges))
            print(f"{noise} | {n} | " + " | ".join(f"{cell:.2f}" for cell in cells), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
