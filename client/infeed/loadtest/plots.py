"""Plots as inline SVG, drawn with the colours of the page: lines, stacked areas, heat maps.

All functions are pure and return text. Colours are classes of the page's style sheet, so that a
plot follows its light and its dark theme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 12, 30

Row = Sequence[float | None]
Format = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """The range of an axis, linear or logarithmic."""

    low: float
    high: float
    format: Format = "{:g}".format
    is_log: bool = False

    def share(self, value: float) -> float:
        """Returns where a value lies, 0 to 1."""
        if self.is_log:
            value = max(value, self.low)
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Returns values at round distances; none for rows that are counted from the top."""
        if self.high <= self.low:
            return []
        if self.is_log:
            first, last = (round(math.log10(each)) for each in (self.low, self.high))
            every = max(1, math.ceil((last - first) / 5))
            return [10.0**power for power in range(first, last + 1, every)]
        span = (self.high - self.low) / 4
        unit = 10.0 ** math.floor(math.log10(span))
        step = next(unit * each for each in (1, 2, 2.5, 5, 10) if unit * each >= span * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def linear(values: Row, format_value: Format = "{:g}".format, *, least: float = 0.0) -> Axis:
    """Returns an axis from 0 to a little over the largest value, and at least to `least`."""
    largest = max([least, *(each for each in values if each is not None)])
    return Axis(0.0, 1.08 * largest or 1.0, format_value)


def logarithmic(values: Row, low: float, high: float, format_value: Format) -> Axis:
    """Returns an axis over whole decades that covers the values, and at least `low` to `high`."""
    known = [each for each in values if each]
    low = 10.0 ** math.floor(math.log10(max(1e-6, min([low, *known]))) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(max([high, *known])) - 1e-9)
    return Axis(low, high, format_value, is_log=True)


@dataclass(frozen=True)
class Frame:
    """The place of a plot: its axes, and what is shaded and marked in it."""

    title: str
    """Its name for screen readers."""
    x: Axis
    y: Axis
    shaded: Sequence[tuple[float, float]] = ()
    """Intervals of x that are not measured."""
    marks: Sequence[tuple[float, str]] = ()
    """Values of x at which something happened, and what."""
    threshold: float | None = None
    height: int = HEIGHT

    def left(self, value: float) -> float:
        """Returns the horizontal place of a value of x."""
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * self.x.share(value)

    def top(self, value: float) -> float:
        """Returns the vertical place of a value of y."""
        return _TOP + (self.height - _TOP - _BOTTOM) * (1 - self.y.share(value))

    @property
    def bottom(self) -> float:
        return self.height - _BOTTOM


def draw(frame: Frame, *parts: str) -> str:
    """Returns a plot with axes, grid, and parts that were drawn in its frame."""
    ticks = [*_x_ticks(frame), *_y_ticks(frame)]
    under = [_rectangle(frame, begin, end) for begin, end in frame.shaded if end > begin]
    over = [_mark(frame, at, text) for at, text in frame.marks]
    if frame.threshold is not None:
        top = frame.top(frame.threshold)
        over.append(
            f'<line class="threshold" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{top:.1f}" '
            f'y2="{top:.1f}"/>'
        )
    body = "".join([*under, *ticks, *parts, *over])
    title = escape(frame.title)
    return f'<svg viewBox="0 0 {WIDTH} {frame.height}" role="img" aria-label="{title}">{body}</svg>'


def line(frame: Frame, xs: Sequence[float], row: Row, color: str, *, area: bool = False) -> str:
    """Returns a line through the values; where one is missing, the line is broken."""
    parts = []
    for run in _runs(xs, row):
        points = " ".join(f"{frame.left(x):.1f},{frame.top(y):.1f}" for x, y in run)
        if area:
            first, last = frame.left(run[0][0]), frame.left(run[-1][0])
            corners = f"{first:.1f},{frame.bottom} {points} {last:.1f},{frame.bottom}"
            parts.append(f'<polygon class="area {color}" points="{corners}"/>')
        if len(run) == 1:
            x, y = run[0]
            parts.append(
                f'<circle class="dot {color}" cx="{frame.left(x):.1f}" cy="{frame.top(y):.1f}" '
                'r="2.5"/>'
            )
        parts.append(f'<polyline class="line {color}" points="{points}"/>')
    return "".join(parts)


def stack(frame: Frame, xs: Sequence[float], rows: Mapping[str, Row]) -> str:
    """Returns areas on top of each other, by colour; a bin without values is left out."""
    parts = []
    names = list(rows)
    below = [
        0.0 if all(rows[name][at] is not None for name in names) else None for at in range(len(xs))
    ]
    for name in names:
        above = [
            None if low is None else low + (value or 0.0)
            for low, value in zip(below, rows[name], strict=True)
        ]
        for run in _runs(range(len(xs)), above):
            at = [int(index) for index, _ in run]
            upper = [
                f"{frame.left(xs[i]):.1f},{frame.top(y):.1f}"
                for i, (_, y) in zip(at, run, strict=True)
            ]
            lower = [
                f"{frame.left(xs[i]):.1f},{frame.top(below[i] or 0.0):.1f}" for i in reversed(at)
            ]
            parts.append(f'<polygon class="layer {name}" points="{" ".join(upper + lower)}"/>')
        below = above
    return "".join(parts)


def dots(frame: Frame, points: Sequence[tuple[float, float, str]], color: str) -> str:
    """Returns dots at (x, y), each with a text that appears under the pointer."""
    return "".join(
        f'<circle class="dot {color}" cx="{frame.left(x):.1f}" cy="{frame.top(y):.1f}" r="4">'
        f"<title>{escape(text)}</title></circle>"
        for x, y, text in points
    )


def tips(frame: Frame, xs: Sequence[float], width: float, texts: Sequence[str]) -> str:
    """Returns an invisible column for each bin, whose text appears under the pointer."""
    parts = []
    for x, text in zip(xs, texts, strict=True):
        left, right = frame.left(x - width / 2), frame.left(x + width / 2)
        parts.append(
            f'<rect class="tip" x="{left:.1f}" width="{max(0.5, right - left):.1f}" y="{_TOP}" '
            f'height="{frame.bottom - _TOP:.1f}"><title>{escape(text)}</title></rect>'
        )
    return "".join(parts)


def heat_map(frame: Frame, width: float, rows: Sequence[Row], describe: Callable[..., str]) -> str:
    """Returns a cell for each row and bin, coloured by its share; y is the row's number."""
    parts = []
    for number, row in enumerate(rows):
        top, bottom = frame.top(number), frame.top(number + 1)
        gap = 1.0 if abs(bottom - top) > 6 else 0.0
        for index, share in enumerate(row):
            if share is None:
                continue
            left, right = frame.left(index * width), frame.left((index + 1) * width)
            right = min(right, float(WIDTH - _RIGHT))
            parts.append(
                f'<rect class="cell" x="{left:.1f}" width="{max(0.3, right - left - 0.4):.1f}" '
                f'y="{top:.1f}" height="{max(0.5, bottom - top - gap):.1f}" '
                f'style="fill:{_cell_color(share)}">'
                f"<title>{escape(describe(number, index, share))}</title></rect>"
            )
    return "".join(parts)


def _cell_color(share: float) -> str:
    """Returns the colour of a share: from good over the middle to bad."""
    if share >= 0.5:
        return f"color-mix(in oklab,var(--c1) {200 * share - 100:.0f}%,var(--middle))"
    return f"color-mix(in oklab,var(--middle) {200 * share:.0f}%,var(--bad))"


def _runs(xs: Sequence[float], row: Row) -> Iterator[list[tuple[float, float]]]:
    """Yields the points between missing values."""
    run: list[tuple[float, float]] = []
    for x, y in zip(xs, row, strict=True):
        if y is not None:
            run.append((float(x), y))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _x_ticks(frame: Frame) -> Iterator[str]:
    for tick in frame.x.ticks():
        left = frame.left(tick)
        yield (
            f'<text class="tick" x="{left:.1f}" y="{frame.bottom + 18}" text-anchor="middle">'
            f"{escape(frame.x.format(tick))}</text>"
        )


def _y_ticks(frame: Frame) -> Iterator[str]:
    for tick in frame.y.ticks():
        top = frame.top(tick)
        yield (
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{top:.1f}" y2="{top:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 7}" y="{top + 4:.1f}" text-anchor="end">'
            f"{escape(frame.y.format(tick))}</text>"
        )


def _rectangle(frame: Frame, begin: float, end: float) -> str:
    left, right = frame.left(begin), frame.left(end)
    return (
        f'<rect class="shade" x="{left:.1f}" width="{right - left:.1f}" y="{_TOP}" '
        f'height="{frame.bottom - _TOP:.1f}"/>'
    )


def _mark(frame: Frame, at: float, text: str) -> str:
    left = frame.left(at)
    return (
        f'<g class="mark"><title>{escape(text)}</title>'
        f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{_TOP}" y2="{frame.bottom}"/>'
        f'<path d="M{left - 5:.1f} {_TOP - 8} h10 l-5 8 z"/></g>'
    )
