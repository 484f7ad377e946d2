"""Charts as data; `templates/charts.html` draws them as inline SVG and HTML tables. Tables have the same figures."""

from __future__ import annotations

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
"""Models or judges that one chart tells apart, by colour and by shape."""
THIN = 6
"""A mean of fewer edits is drawn faint: no comparison of so few source images can reach p < .05."""


def draw(chart: Chart) -> str:
    """A chart as an HTML figure."""
    return render_macro("charts.html", "chart", chart)


@dataclass(frozen=True)
class Dot:
    """A figure with its interval, of one row and one series."""

    row: str
    series: str
    value: float
    ci: Interval | None
    faint: bool = False
    """Drawn hollow: no evidence of a difference."""


@dataclass(frozen=True)
class DotChart:
    """A row for each name, a mark for each series, a line for each interval."""

    title: str
    dots: Sequence[Dot]
    low: float
    high: float
    ticks: Sequence[float]
    note: str = ""
    sides: tuple[str, str] = ("", "")
    """Labels left and right of 0."""
    kind: ClassVar[str] = "dots"

    @property
    def rows(self) -> list[str]:
        return _unique(dot.row for dot in self.dots)

    @property
    def series(self) -> list[str]:
        return _unique(dot.series for dot in self.dots)[:SERIES]

    def of(self, row: str) -> list[Dot]:
        """In the order of the series, so that values stand beside their marks."""
        dots = {dot.series: dot for dot in self.dots if dot.row == row}
        return [dots[name] for name in self.series if name in dots]

    def text(self, dot: Dot) -> str:
        return figure_text(
            dot.value,
            dot.ci,
            sign=self.low < 0,
            digits=max(2, column_decimals(dot.ci for dot in self.dots)),
        )

    def percent(self, value: float) -> float:
        """Return where a value lies on the axis."""
        return (
            100
            * (min(max(value, self.low), self.high) - self.low)
            / (self.high - self.low)
        )


@dataclass(frozen=True)
class _Grid:
    """A cell for each row and column that has one."""

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
    """A mean over so many edits, on a scale from its worst score to its best."""

    mean: float | None
    n: int
    ci: Interval | None = None
    scale: tuple[float, float] | None = None
    of: int | None = None
    """Edits that should have a score, where they are more."""

    @property
    def step(self) -> str:
        """The shade, 0 to 8; `none` without a score or a scale."""
        if self.mean is None or self.scale is None:
            return "none"
        worst, best = self.scale
        return f"{round(min(1.0, max(0.0, (self.mean - worst) / (best - worst))) * 8)}"

    @property
    def thin(self) -> bool:
        return self.n < THIN

    @property
    def _digits(self) -> int:
        # A scale as narrow as a share has its differences behind the first decimal.
        wide = self.scale is not None and abs(self.scale[1] - self.scale[0]) > 2
        return 1 if wide else column_decimals([self.ci])

    @property
    def text(self) -> str:
        return "–" if self.mean is None else figure_text(self.mean, digits=self._digits)

    @property
    def interval(self) -> str:
        return (
            ""
            if self.ci is None
            else figure_text(self.mean, self.ci, digits=self._digits).partition(" ")[2]
        )

    @property
    def count(self) -> str:
        return f"n {self.n:,}" + (
            f"/{self.of:,}" if self.of is not None and self.of > self.n else ""
        )


@dataclass(frozen=True)
class HeatMap(_Grid):
    """Means (`HeatCell`), each shaded on its own scale."""

    note: str = ""
    kind: ClassVar[str] = "heat"


@dataclass(frozen=True)
class Histograms(_Grid):
    """Histogram of each cell: how often each score was given."""

    kind: ClassVar[str] = "histograms"

    @property
    def columns(self) -> list[str]:
        return super().columns[:SERIES]

    def largest(self, row: str) -> float:
        """The largest share of one score in a row: the top of its axis."""
        tables = [counts for (name, _), counts in self.cells.items() if name == row]
        return max(
            (
                n / sum(counts.values())
                for counts in tables
                for n in counts.values()
                if n
            ),
            default=1.0,
        )


@dataclass(frozen=True)
class SlopeMap(_Grid):
    """Slope of each defect and factor: how the score moves with the dose (`probes.result.DoseResponse`)."""

    kind: ClassVar[str] = "slopes"

    def direction(self, slope: float | None) -> str:
        if slope is None:
            return "unscored"
        return "lost" if slope < 0 else "gained"

    def strength(self, slope: float | None) -> float:
        """Opacity of the colour: six points over four doses are the most that a scale of 7 has."""
        return 1.0 if slope is None else 0.66 * min(1.0, abs(slope) / 1.5)


Chart = DotChart | HeatMap | Histograms | SlopeMap


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


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
            place.write_text(
                f'<!doctype html>\n<meta charset="utf-8">{self._repr_html_()}\n',
                "utf-8",
            )
        elif place.suffix.lower() in (".png", ".pdf", ".svg"):
            self.figure().savefig(place, bbox_inches="tight")
        else:
            raise UsageError(
                f"{place}: the name ends in none of .html, .png, .pdf, .svg"
            )
        return place

    def figure(self) -> Any:
        """Return a Matplotlib figure. Raises `UsageError` where Matplotlib is not installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError(
                "a figure needs Matplotlib: pip install matplotlib; .save('plot.html') does not"
            ) from None
        heights = [
            len({dot.row for dot in chart.dots}) * 0.3 * _series(chart) ** 0.5 + 1
            for chart in self.charts
        ]
        figure = Figure(figsize=(7, sum(heights) or 1), layout="constrained")
        panels = figure.subplots(
            len(self.charts) or 1, 1, squeeze=False, height_ratios=heights or None
        )[:, 0]
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
        ends = [
            (dot.ci.lo, dot.ci.hi) if dot.ci else (dot.value, dot.value) for dot in dots
        ]
        reach = [[value - lo for value, (lo, _) in zip(values, ends, strict=True)],
                 [hi - value for value, (_, hi) in zip(values, ends, strict=True)]]  # fmt: skip
        panel.errorbar(
            values, heights, xerr=reach, fmt="o", capsize=2, label=_literal(one)
        )
    panel.axvline(0, color="grey", linewidth=0.8)
    panel.set_yticks(range(len(names)), [_literal(name) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.5)
    panel.set_xlim(chart.low, chart.high)
    panel.set_xlabel(
        _literal("          ".join(filter(None, chart.sides))), fontsize="small"
    )
    panel.set_title(chart.title, fontsize="medium", loc="left", parse_math=False)
    panel.legend(fontsize="small")


def _literal(text: str) -> str:
    """A name as it is: Matplotlib reads text between dollars as mathematics."""
    return re.sub(r"([$\\])", r"\\\1", text)
