"""What charts show; `templates/charts.html` draws them as inline SVG. A report's tables have the same figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from editjudge.report.templating import render_macro
from editjudge.stats.statistic import Interval

SERIES = 8
"""Models or judges that one chart tells apart, by colour and by shape."""


def draw(chart: Chart) -> str:
    """A chart as SVG in an HTML figure."""
    return render_macro("charts.html", "chart", chart)


@dataclass(frozen=True)
class Dot:
    """A figure with its interval, of one row and one series."""

    row: str
    series: str
    value: float
    ci: Interval | None


@dataclass(frozen=True)
class DotChart:
    """A row for each name, a mark for each series, a line for each interval."""

    title: str
    dots: Sequence[Dot]
    low: float
    high: float
    ticks: Sequence[float]
    kind: ClassVar[str] = "dots"

    @property
    def rows(self) -> list[str]:
        return _unique(dot.row for dot in self.dots)

    @property
    def series(self) -> list[str]:
        return _unique(dot.series for dot in self.dots)[:SERIES]

    def share(self, value: float) -> float:
        """Where a value lies on the axis, from 0 to 1."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


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
class HeatMap(_Grid):
    """Means, shaded on one scale."""

    low: float
    high: float
    kind: ClassVar[str] = "heat"

    def step(self, value: float | None) -> str:
        """The shade, 0 to 8; `none` without a score."""
        return "none" if value is None else f"{round((value - self.low) / (self.high - self.low) * 8)}"

    def text(self, value: float | None) -> str:
        # A scale as narrow as a share has its differences behind the first decimal.
        return "–" if value is None else f"{value:.1f}" if self.high - self.low > 2 else f"{value:.3g}"


@dataclass(frozen=True)
class Histograms(_Grid):
    """Of each cell how often each score was given."""

    kind: ClassVar[str] = "histograms"

    @property
    def columns(self) -> list[str]:
        return super().columns[:SERIES]


@dataclass(frozen=True)
class SlopeMap(_Grid):
    """Of each defect and factor how the score moves with the dose (`probes.result.DoseResponse`)."""

    kind: ClassVar[str] = "slopes"

    def direction(self, slope: float | None) -> str:
        return "unscored" if slope is None else "lost" if slope < 0 else "gained"

    def strength(self, slope: float | None) -> float:
        """Opacity of the colour: six points over four doses are the most that a scale of 7 has."""
        return 1.0 if slope is None else 0.66 * min(1.0, abs(slope) / 1.5)


@dataclass(frozen=True)
class Bar:
    """So many of so many, of one row and one series."""

    row: str
    series: str
    part: int
    whole: int

    @property
    def share(self) -> float:
        return self.part / self.whole if self.whole else 0.0

    @property
    def text(self) -> str:
        return f"{self.share:.1%} ({self.part:,} of {self.whole:,})" if self.whole else "none"


@dataclass(frozen=True)
class BarChart:
    """Shares; equal rows stand together."""

    title: str
    all_bars: Sequence[Bar]
    kind: ClassVar[str] = "shares"

    @property
    def series(self) -> list[str]:
        return _unique(bar.series for bar in self.all_bars)[:SERIES]

    @property
    def bars(self) -> list[Bar]:
        return [bar for bar in self.all_bars if bar.series in self.series]

    @property
    def rows(self) -> list[str]:
        return _unique(bar.row for bar in self.bars)

    @property
    def largest(self) -> float:
        return max((bar.share for bar in self.bars), default=0.0) or 1.0


Chart = DotChart | HeatMap | Histograms | SlopeMap | BarChart


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
