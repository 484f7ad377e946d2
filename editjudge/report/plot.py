"""The forest plot of a comparison for Python: SVG in a notebook, a file of its own, or a figure of Matplotlib."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editjudge.errors import UsageError
from editjudge.report.charts import DotChart, draw
from editjudge.report.templating import stylesheet


@dataclass(frozen=True, repr=False)
class Plot:
    """A forest plot for each judge."""

    charts: Sequence[DotChart]

    @property
    def html(self) -> str:
        return "".join(draw(chart) for chart in self.charts)

    def __repr__(self) -> str:
        dots = [dot for chart in self.charts for dot in chart.dots]
        return f"<Plot of {len(dots)} differences; shown in a notebook, .save(path) writes it>"

    def _repr_html_(self) -> str:
        return f"<style>{stylesheet()}</style>{self.html}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as .html, or through Matplotlib as .png, .pdf or .svg."""
        place = Path(path)
        if place.suffix.lower() == ".html":
            place.write_text(f'<!doctype html>\n<meta charset="utf-8">{self._repr_html_()}\n', "utf-8")
        elif place.suffix.lower() in (".png", ".pdf", ".svg"):
            self.figure().savefig(place, bbox_inches="tight")
        else:
            raise UsageError(f"{place}: the name ends in none of .html, .png, .pdf, .svg")
        return place

    def figure(self) -> Any:
        """As a Matplotlib figure. Raises `UsageError` where Matplotlib is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError("a figure needs Matplotlib: pip install matplotlib; .save('plot.html') does not") from None
        heights = [len({dot.row for dot in chart.dots}) * 0.3 * _series(chart) ** 0.5 + 1 for chart in self.charts]
        figure = Figure(figsize=(7, sum(heights) or 1), layout="constrained")
        panels = figure.subplots(len(self.charts) or 1, 1, squeeze=False, height_ratios=heights or None)[:, 0]
        for panel, chart in zip(panels, self.charts, strict=False):
            _panel(panel, chart)
        return figure


def _series(chart: DotChart) -> int:
    return len({dot.series for dot in chart.dots})


def _panel(panel: Any, chart: DotChart) -> None:
    names = list(dict.fromkeys(dot.row for dot in chart.dots))
    series = list(dict.fromkeys(dot.series for dot in chart.dots))
    for number, one in enumerate(series):
        dots = [dot for dot in chart.dots if dot.series == one]
        shift = (number - (len(series) - 1) / 2) * 0.6 / len(series)
        heights = [names.index(dot.row) + shift for dot in dots]
        values = [dot.value for dot in dots]
        # What has no interval is drawn as a mark alone.
        ends = [(dot.ci.lo, dot.ci.hi) if dot.ci else (dot.value, dot.value) for dot in dots]
        reach = [[value - lo for value, (lo, _) in zip(values, ends, strict=True)],
                 [hi - value for value, (_, hi) in zip(values, ends, strict=True)]]  # fmt: skip
        panel.errorbar(values, heights, xerr=reach, fmt="o", capsize=2, label=_literal(one))
    panel.axvline(0, color="grey", linewidth=0.8)
    panel.set_yticks(range(len(names)), [_literal(name) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.set_xlim(chart.low, chart.high)
    panel.set_xlabel(_literal("          ".join(filter(None, chart.sides))), fontsize="small")
    panel.set_title(chart.title, fontsize="medium", loc="left", parse_math=False)
    panel.legend(fontsize="small")


def _literal(text: str) -> str:
    """A name as it is: Matplotlib reads text between dollars as mathematics."""
    return re.sub(r"([$\\])", r"\\\1", text)
