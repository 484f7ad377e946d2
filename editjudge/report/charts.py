"""Charts as inline SVG: figures that a report's tables have too, at a glance. Colours come from its stylesheet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from editjudge.report.markup import Child, Markup, short, tag
from editjudge.stats.statistic import Interval

SERIES = 8
"""Models or judges that one chart tells apart, by colour and by shape."""
_WIDTH, _LABEL, _TOP = 1040, 190, 24
_Scale = Callable[[float], float]


@dataclass(frozen=True)
class Dot:
    """A figure with its interval, of one row and one series."""

    row: str
    series: str
    value: float
    ci: Interval | None


def dots(title: str, found: Sequence[Dot], low: float, high: float, ticks: Sequence[float]) -> Markup:
    """A row for each name, a mark for each series, a line for each interval."""
    rows, series = _names(d.row for d in found), _names(d.series for d in found)[:SERIES]
    pitch = max(26, 8 * len(series) + 14)
    height, right = _TOP + pitch * len(rows), _WIDTH - 20

    def x(value: float) -> float:
        return _LABEL + (min(max(value, low), high) - low) / (high - low) * (right - _LABEL)

    bands: list[Child] = []
    marks: list[Child] = []
    for n, row in enumerate(rows):
        top = _TOP + pitch * n
        bands += [tag("rect", x=0, y=top, width=_WIDTH, height=pitch, class_="band")] if n % 2 == 0 else []
        marks.append(_label(row, top + pitch / 2))
        for d in (d for d in found if d.row == row and d.series in series):
            s = series.index(d.series)
            y = top + pitch / 2 + (s - (len(series) - 1) / 2) * 8
            if d.ci:
                marks.append(tag("line", x1=x(d.ci.lo), x2=x(d.ci.hi), y1=y, y2=y, class_=f"interval s{s}"))
            marks.append(_mark(s, x(d.value), y))
    return _figure(title, series, _WIDTH, height, [bands, _axis(x, ticks, height), marks])


def heat(title: str, cells: Mapping[tuple[str, str], float], low: float, high: float) -> Markup:
    """A field for each row and column, stronger where the mean is higher; none where there is no score."""
    rows, columns = _names(row for row, _ in cells), _names(column for _, column in cells)
    wide = min(78.0, (_WIDTH - _LABEL - 50) / max(1, len(columns)))
    head, tall = 96, 26
    parts: list[Child] = []
    for c, column in enumerate(columns):
        at = f"translate({_LABEL + wide * (c + 0.5):g} {head - 8}) rotate(-35)"
        parts.append(tag("text", short(column, 24), transform=at, class_="column"))
    for r, row in enumerate(rows):
        y = head + tall * r
        parts.append(_label(row, y + tall / 2))
        for c, column in enumerate(columns):
            value, x = cells.get((row, column)), _LABEL + wide * c
            step = "none" if value is None else f"{round((value - low) / (high - low) * 8)}"
            parts.append(tag("rect", x=x + 1, y=y + 1, width=wide - 2, height=tall - 2, rx=2, class_=f"heat h{step}"))
            # A scale as narrow as a share has its differences behind the first decimal.
            text = "–" if value is None else f"{value:.1f}" if high - low > 2 else f"{value:.3g}"
            parts.append(tag("text", text, x=x + wide / 2, y=y + 17, class_=f"cell t{step}"))
    return _figure(title, (), _WIDTH, head + tall * len(rows) + 2, parts)


def histograms(title: str, cells: Mapping[tuple[str, str], Mapping[str, int]]) -> Markup:
    """A small histogram for each row and column: the share of verdicts that gave each score."""
    rows, columns = _names(row for row, _ in cells), _names(column for _, column in cells)[:SERIES]
    wide, tall = min(150.0, (_WIDTH - _LABEL) / max(1, len(columns))), 40
    parts: list[Child] = [
        tag("text", short(column, max(8, int(wide / 6.8))), x=_LABEL + wide * c, y=14, class_="head")
        for c, column in enumerate(columns)
    ]
    for r, row in enumerate(rows):
        base = _TOP + tall * (r + 1) - 6
        parts.append(_label(row, base - 10))
        for c, column in enumerate(columns):
            parts.append(_bars(cells.get((row, column), {}), _LABEL + wide * c, base, wide - 16, tall - 12))
    return _figure(title, (), _WIDTH, _TOP + tall * len(rows), parts)


def shares(title: str, found: Sequence[tuple[str, str, int, int]]) -> Markup:
    """A bar for each row and series: so many of so many."""
    series = _names(name for _, name, *_ in found)[:SERIES]
    shown = [entry for entry in found if entry[1] in series]
    most = max((part / whole for *_, part, whole in shown if whole), default=0.0) or 1.0
    parts: list[Child] = []
    y = 0
    for n, (row, name, part, whole) in enumerate(shown):
        if n == 0 or row != shown[n - 1][0]:
            y += 8 if n else 0
            parts.append(_label(row, y + 10))
        wide = part / whole / most * (_WIDTH - _LABEL - 150) if whole else 0.0
        look = f"bar s{series.index(name)}"
        parts.append(tag("rect", x=_LABEL, y=y + 2, width=max(wide, 1.0), height=15, rx=2, class_=look))
        text = f"{part / whole:.1%} ({part:,} of {whole:,})" if whole else "none"
        parts.append(tag("text", text, x=_LABEL + wide + 8, y=y + 14, class_="value"))
        y += 20
    return _figure(title, series, _WIDTH, y + 4, parts)


# --- pieces ---------------------------------------------------------------------------------------------------


def _names(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _figure(title: str, series: Sequence[str], width: int, height: int, parts: Sequence[Child]) -> Markup:
    drawing = tag("svg", tag("title", title), parts, viewBox=f"0 0 {width} {height}", width=width, height=height,
                  role="img", aria_label=title)  # fmt: skip
    # A drawing that is wider than a tablet scrolls by itself, also by keyboard.
    frame = tag("div", drawing, class_="scroll", tabindex="0", role="region", aria_label=f"Chart: {title}")
    return tag("figure", tag("figcaption", title), _legend(series) if series else None, frame, class_="chart")


def _legend(series: Sequence[str]) -> Markup:
    box: dict[str, str] = {"viewBox": "0 0 14 14", "width": "14", "height": "14", "aria_hidden": "true"}
    keys = [tag("li", tag("svg", _mark(s, 7, 7), **box), short(name, 48)) for s, name in enumerate(series)]
    return tag("ul", keys, class_="legend")


def _label(text: str, y: float) -> Markup:
    return tag("text", short(text, 27), x=_LABEL - 12, y=y + 4, class_="row")


def _axis(x: _Scale, ticks: Sequence[float], height: int) -> list[Child]:
    lines: list[Child] = [tag("line", x1=x(t), x2=x(t), y1=_TOP - 4, y2=height, class_="grid") for t in ticks]
    return lines + [tag("text", f"{t:g}", x=x(t), y=_TOP - 9, class_="tick") for t in ticks]


def _mark(series: int, x: float, y: float) -> Markup:
    """Shapes as well as colours, for paper and for people who see colours otherwise."""
    look = f"mark s{series}"
    match series % 4:
        case 0:
            return tag("circle", cx=x, cy=y, r=4, class_=look)
        case 1:
            return tag("rect", x=x - 3.5, y=y - 3.5, width=7, height=7, class_=look)
        case 2:
            return tag("path", d=f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z", class_=look)
        case _:
            return tag("path", d=f"M{x:.1f} {y - 4.5:.1f}l5 8.5h-10z", class_=look)


def _bars(counts: Mapping[str, int], left: float, base: float, width: float, height: float) -> list[Child]:
    total, step = sum(counts.values()), width / max(1, len(counts))
    parts: list[Child] = [tag("line", x1=left, x2=left + width, y1=base + 0.5, y2=base + 0.5, class_="grid")]
    for n, (value, count) in enumerate(counts.items()):
        tall = height * count / total if total else 0.0
        title = tag("title", f"{value}: {count:,} of {total:,}")
        parts.append(
            tag("rect", title, x=left + step * n, y=base - tall, width=max(step - 2, 1.0), height=tall, class_="bar s0")
        )
    return parts
