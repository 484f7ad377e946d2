"""Charts as data, which `templates/charts.html` draws as inline SVG and HTML tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from editjudge.errors import UsageError
from editjudge.report.tables import column_decimals, figure_text
from editjudge.report.templating import render_macro, stylesheet
from editjudge.stats.columns import Interval

SERIES = 8
"""Maximum number of models or judges in one chart; each has its own colour and shape."""
THIN = 6
"""Number of edits below which a mean is drawn faint. A comparison of so few source images cannot reach p < .05."""


def draw(chart: Chart) -> str:
    """Return a chart as an HTML figure."""
    return render_macro("charts.html", "chart", chart)


@dataclass(frozen=True)
class Dot:
    """A value with its interval, in one row and one series."""

    row: str
    series: str
    value: float
    ci: Interval | None
    faint: bool = False
    """Whether the marker is hollow, because there is no evidence of a difference."""


@dataclass(frozen=True)
class DotChart:
    """Chart with a row for each name, a marker for each series, and a line for each interval."""

    title: str
    dots: Sequence[Dot]
    low: float
    high: float
    ticks: Sequence[float]
    note: str = ""
    sides: tuple[str, str] = ("", "")
    """Labels to the left and right of 0."""
    kind: ClassVar[str] = "dots"

    @property
    def rows(self) -> list[str]:
        return _unique(dot.row for dot in self.dots)

    @property
    def series(self) -> list[str]:
        return _unique(dot.series for dot in self.dots)[:SERIES]

    def of(self, row: str) -> list[Dot]:
        """Return the dots of a row in series order, so that the listed values match the order of the markers."""
        dots = {dot.series: dot for dot in self.dots if dot.row == row}
        return [dots[name] for name in self.series if name in dots]

    def text(self, dot: Dot) -> str:
        digits = max(2, column_decimals(dot.ci for dot in self.dots))
        return figure_text(dot.value, dot.ci, sign=self.low < 0, digits=digits)

    def percent(self, value: float) -> float:
        """Return the position of a value on the axis, in percent."""
        inside = min(max(value, self.low), self.high)
        return 100 * (inside - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Point:
    """A value with its interval at a position on the horizontal axis."""

    at: float
    value: float
    ci: Interval | None
    faint: bool = False
    """Whether it is drawn hollow, because it is evidently not the best."""


@dataclass(frozen=True)
class LineChart:
    """Chart of one statistic over an axis, with a line for each interval."""

    title: str
    points: Sequence[Point]
    low: float
    high: float
    kind: ClassVar[str] = "line"
    height: ClassVar[int] = 150
    """Distance in pixels between the lowest and the highest value."""
    labels: ClassVar[int] = 8
    """Maximum number of labelled positions, which keeps the numbers from overlapping on a phone."""

    @property
    def ticks(self) -> list[float]:
        """Three to seven round values on the axis."""
        raw = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * n for n in (1, 2, 5, 10) if power * n >= raw)
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]

    def is_labelled(self, index: int) -> bool:
        """Whether this point's position is labelled. The last position and positions at regular distances before it are
        labelled.
        """
        every = math.ceil(len(self.points) / self.labels)
        return (len(self.points) - 1 - index) % every == 0

    def percent(self, at: float) -> float:
        """Return the horizontal position in percent, with a margin for the markers at both ends."""
        first = self.points[0].at
        width = self.points[-1].at - first
        return 4 + 92 * (at - first) / width if width else 50.0

    def pixel(self, value: float) -> float:
        """Return the vertical position in pixels from the top."""
        inside = min(max(value, self.low), self.high)
        return self.height * (self.high - inside) / (self.high - self.low) + 6

    def text(self, point: Point) -> str:
        digits = max(2, column_decimals(point.ci for point in self.points))
        return figure_text(point.value, point.ci, digits=digits)


@dataclass(frozen=True)
class _Grid:
    """Cells arranged by row and column."""

    title: str
    cells: Mapping[tuple[str, str], Any]

    @property
    def rows(self) -> list[str]:
        return _unique(row for row, _ in self.cells)

    @property
    def columns(self) -> list[str]:
        return _unique(column for _, column in self.cells)


@dataclass(frozen=True)
class HeatCell:
    """A mean over `n` edits, on a scale from worst to best score."""

    mean: float | None
    n: int
    ci: Interval | None = None
    scale: tuple[float, float] | None = None
    of: int | None = None
    """Number of edits that should have a score; it may be larger than `n`."""

    @property
    def step(self) -> str:
        """Shade from 0 to 8, or `none` if there is no score or no scale."""
        if self.mean is None or self.scale is None:
            return "none"
        worst, best = self.scale
        return f"{round(min(1.0, max(0.0, (self.mean - worst) / (best - worst))) * 8)}"

    @property
    def thin(self) -> bool:
        return self.n < THIN

    @property
    def _digits(self) -> int:
        # On a scale as narrow as 0 to 1, differences are in the second decimal.
        wide = self.scale is not None and abs(self.scale[1] - self.scale[0]) > 2
        return 1 if wide else column_decimals([self.ci])

    @property
    def text(self) -> str:
        return "–" if self.mean is None else figure_text(self.mean, digits=self._digits)

    @property
    def interval(self) -> str:
        if self.ci is None:
            return ""
        return figure_text(self.mean, self.ci, digits=self._digits).partition(" ")[2]

    @property
    def count(self) -> str:
        of = f"/{self.of:,}" if self.of is not None and self.of > self.n else ""
        return f"n {self.n:,}{of}"


@dataclass(frozen=True)
class HeatMap(_Grid):
    """Means (`HeatCell`), each shaded relative to its own scale."""

    note: str = ""
    kind: ClassVar[str] = "heat"


@dataclass(frozen=True)
class Histograms(_Grid):
    """Frequency of each score in each cell."""

    kind: ClassVar[str] = "histograms"

    @property
    def columns(self) -> list[str]:
        return super().columns[:SERIES]

    def largest(self, row: str) -> float:
        """Return the largest share of any single score in a row. It sets the top of the axis."""
        shares = [
            n / sum(counts.values())
            for (name, _), counts in self.cells.items()
            if name == row
            for n in counts.values()
            if n
        ]
        return max(shares, default=1.0)


@dataclass(frozen=True)
class SlopeMap(_Grid):
    """Slopes by defect and factor: how much the score changes with the dose (`probes.result.DoseResponse`)."""

    kind: ClassVar[str] = "slopes"

    def direction(self, slope: float | None) -> str:
        if slope is None:
            return "unscored"
        return "lost" if slope < 0 else "gained"

    def strength(self, slope: float | None) -> float:
        """Return the opacity of a slope's colour. It is greatest from 1.5 points per dose (six points over four doses)."""
        return 1.0 if slope is None else 0.66 * min(1.0, abs(slope) / 1.5)


Chart = DotChart | LineChart | HeatMap | Histograms | SlopeMap


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


@dataclass(frozen=True, repr=False)
class Plot:
    """Forest plots of a comparison, one for each judge."""

    charts: Sequence[DotChart]

    @property
    def html(self) -> str:
        return "".join(map(draw, self.charts))

    def __repr__(self) -> str:
        dots = [dot for chart in self.charts for dot in chart.dots]
        return f"<Plot of {len(dots)} differences; shown in a notebook, .save(path) writes it>"

    def _repr_html_(self) -> str:
        return f"<style>{stylesheet()}</style>{self.html}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the chart as .html or, with Matplotlib, as .png, .pdf or .svg."""
        file = Path(path)
        if file.suffix.lower() == ".html":
            page = f'<!doctype html>\n<meta charset="utf-8">{self._repr_html_()}\n'
            file.write_text(page, "utf-8")
        elif file.suffix.lower() in (".png", ".pdf", ".svg"):
            self.figure().savefig(file, bbox_inches="tight")
        else:
            raise UsageError(
                f"{file}: unknown ending; expected .html, .png, .pdf or .svg"
            )
        return file

    def figure(self) -> Any:
        """Return a Matplotlib figure. Raises `UsageError` if Matplotlib is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError(
                "a figure needs Matplotlib: pip install matplotlib; .save('plot.html') does not",
                code="not_installed",
            ) from None
        heights = [
            len(chart.rows) * 0.3 * len(chart.series) ** 0.5 + 1
            for chart in self.charts
        ]
        figure = Figure(figsize=(7, sum(heights) or 1), layout="constrained")
        panels = figure.subplots(
            len(self.charts) or 1, 1, squeeze=False, height_ratios=heights or None
        )[:, 0]
        for panel, chart in zip(panels, self.charts, strict=False):
            _panel(panel, chart)
        return figure


def _panel(panel: Any, chart: DotChart) -> None:
    names = chart.rows
    series = chart.series
    for number, name in enumerate(series):
        dots = [dot for dot in chart.dots if dot.series == name]
        shift = (number - (len(series) - 1) / 2) * 0.6 / len(series)
        # A value without an interval has a mark but no line.
        ends = [dot.ci or (dot.value, dot.value) for dot in dots]
        panel.errorbar(
            [dot.value for dot in dots],
            [names.index(dot.row) + shift for dot in dots],
            xerr=[
                [dot.value - lo for dot, (lo, _) in zip(dots, ends, strict=True)],
                [hi - dot.value for dot, (_, hi) in zip(dots, ends, strict=True)],
            ],
            fmt="o",
            capsize=2,
            label=_literal(name),
        )
    panel.axvline(0, color="grey", linewidth=0.8)
    panel.set_yticks(range(len(names)), [_literal(name) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.set_xlim(chart.low, chart.high)
    sides = "          ".join(filter(None, chart.sides))
    panel.set_xlabel(_literal(sides), fontsize="small")
    panel.set_title(chart.title, fontsize="medium", loc="left", parse_math=False)
    panel.legend(fontsize="small")


def _literal(text: str) -> str:
    """Return a name with dollar signs escaped, since Matplotlib reads text between them as mathematics."""
    return re.sub(r"([$\\])", r"\\\1", text)
