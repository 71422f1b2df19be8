"""Charts of a load test's page, drawn by matplotlib as inline SVG in the colours of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from infeed.loadtest.find_max import Search
from infeed.loadtest.plan import UTILISATION_THRESHOLD
from infeed.loadtest.series import STATES, Row
from infeed.loadtest.summary import Summary
from infeed.loadtest.tables import percent_text, seconds_text

_WIDTH, _HEIGHT = 520, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 14, 30
"""Pixels of the page, without zoom."""

_PAGE_COLORS = ("ink", "soft", "line", "bad", "c1", "c2", "c3", "cpu", *STATES)
_COLORS = {name: f"#fe00{index:02x}" for index, name in enumerate(_PAGE_COLORS)}
"""A colour that nothing else has, for each of the style sheet: it is replaced by its name, so that
the plots follow the light and the dark theme."""

_MAP = LinearSegmentedColormap.from_list("utilisation", ["#b3261e", "#f0d9a8", "#1f5fbf"])
"""From 0 to 100 %; the page has the same as a ramp."""

_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "infeed", "font.size": 12}

_STATE_NAMES = {
    "transform": "waits for transforms",
    "source": "waits for the source",
    "no_budget": "waits for room to send",
    "no_request": "has no request",
}


@dataclass(frozen=True)
class Chart:
    """A plot with a heading."""

    title: str
    svg: str
    caption: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    """Names of what has a colour of the style sheet."""
    has_ramp: bool = False


def time_charts(summary: Summary) -> Iterator[Chart]:
    """Yields the charts over time: throughput, waits, starved steps, trainers and servers."""
    series = summary.series
    rate = series.samples_per_second
    plot = _Plot("Samples per second over time", summary)
    plot.line(rate, "c1", area=True)
    plot.axes.set_ylim(0, 1.08 * max(filter(None, rate), default=0.0) or 1.0)
    plot.axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    yield Chart(
        "Throughput", plot.svg([f"{value or 0:.0f} samples/s" for value in rate]), "samples/s"
    )
    yield _waits(summary)
    plot = _Plot("Share of starved steps over time", summary)
    plot.line(series.starved_share, "c2", area=True)
    _set_shares(plot.axes)
    svg = plot.svg([percent_text(share) for share in series.starved_share])
    yield Chart("Starved steps", svg, "share of the steps that waited over 1 ms")
    if summary.figures.utilisation is not None:
        yield _utilisations(summary)
    for address, rows in series.servers.items():
        yield _server(summary, address, rows)


def _waits(summary: Summary) -> Chart:
    series = summary.series
    rows = {"p50": series.wait_p50, "p99": series.wait_p99, "longest": series.wait_max}
    colors = {"p50": "c1", "p99": "c2", "longest": "c3"}
    plot = _Plot("Waits over time", summary)
    known = [value for row in rows.values() for value in row if value]
    low, high = max(1e-6, min([1e-4, *known])), max([1e-1, *known])
    plot.axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
    plot.axes.set_yscale("log")
    for name, row in reversed(rows.items()):
        plot.line(row, colors[name])
    plot.axes.yaxis.set_major_locator(LogLocator(numticks=6))
    plot.axes.yaxis.set_minor_locator(NullLocator())
    plot.axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _decade(value)))
    tips = [
        ", ".join(
            f"{name} {'-' if (at := row[bin_]) is None else seconds_text(at)}"
            for name, row in rows.items()
        )
        for bin_ in range(series.bins)
    ]
    return Chart("Waits for a batch", plot.svg(tips), legend={colors[name]: name for name in rows})


def _utilisations(summary: Summary) -> Chart:
    rows = summary.series.utilisation
    height = min(420, max(_HEIGHT, 44 + 14 * len(rows)))
    plot = _Plot("Utilisation of each trainer over time", summary, height)
    shares = np.array(rows, np.float64)  # NaN where no step ended, which is drawn empty
    end = summary.series.bin_seconds * summary.series.bins
    plot.axes.imshow(
        *(shares,), cmap=_MAP, vmin=0, vmax=1, extent=(0, end, len(rows) - 0.5, -0.5),
        aspect="auto", interpolation="none", zorder=2,
    )  # fmt: skip
    plot.axes.set_xlim(0, summary.series.end)
    plot.axes.yaxis.set_major_locator(MaxNLocator(16, integer=True))
    plot.axes.grid(visible=False)
    tips = []
    for column in shares.T:
        known = np.flatnonzero(np.isfinite(column))
        worst = known[column[known].argmin()] if len(known) else 0
        tips.append(f"least {percent_text(column[worst], 0)}, rank {worst}" if len(known) else "-")
    caption = "100 % to 0 %, by rank; empty: no step ended"
    return Chart("Utilisation of each trainer", plot.svg(tips), caption, has_ramp=True)


def _server(summary: Summary, address: str, rows: Mapping[str, Row]) -> Chart:
    plot = _Plot(f"What the pipeline of {address} waited for", summary)
    states = [np.array(rows[name], np.float64) for name in STATES]
    colors = [_COLORS[name] for name in STATES]
    plot.axes.stackplot(plot.xs, *states, colors=colors, linewidth=0)
    plot.line(rows["cpu"], "cpu", dashed=True)
    _set_shares(plot.axes)
    tips = [
        ", ".join(
            f"{text} {percent_text(rows[name][bin_], 0)}" for name, text in _STATE_NAMES.items()
        )
        + f"; processors {percent_text(rows['cpu'][bin_], 0)}"
        for bin_ in range(summary.series.bins)
    ]
    legend = {**_STATE_NAMES, "cpu": "processors used"}
    return Chart(f"Server {address}", plot.svg(tips), legend=legend)


def search_chart(search: Search) -> Chart:
    """Returns the chart of a search for the number of trainers."""
    probes = sorted(search.probes, key=lambda probe: probe.trainers)
    figure, axes = _figure(_HEIGHT)
    xs, ys = [probe.trainers for probe in probes], [probe.utilisation for probe in probes]
    axes.plot(xs, ys, "o-", color=_COLORS["c1"], clip_on=False)
    axes.axhline(UTILISATION_THRESHOLD, color=_COLORS["bad"], linestyle=(0, (5, 4)), linewidth=1.5)
    if search.forecast is not None:
        _mark(axes, search.forecast)
    axes.set_xlim(0, 1.05 * max(float(search.forecast or 0), *map(float, xs), 2.0))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    _set_shares(axes)
    tips = [
        (x - 0.5, x + 0.5, f"{x} trainers: {percent_text(y)}") for x, y in zip(xs, ys, strict=True)
    ]
    svg = _svg(figure, axes, "Utilisation by number of trainers", tips)
    return Chart("Utilisation by number of trainers", svg, "marked: the forecast")


class _Plot:
    """A plot over the time of a test, with its events."""

    def __init__(self, title: str, summary: Summary, height: int = _HEIGHT) -> None:
        """`title` is the name for screen readers."""
        self._title, self._series, self._events = title, summary.series, summary.events
        self._figure, self.axes = _figure(height)
        width = self._series.bin_seconds
        self.xs = (np.arange(self._series.bins) + 0.5) * width
        self.axes.set_xlim(0, self._series.end)
        self.axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
        self.axes.axvspan(0, self._series.begin, color=_COLORS["ink"], alpha=0.06, linewidth=0)
        for at, _ in self._events:
            _mark(self.axes, at)

    def line(self, row: Row, color: str, *, area: bool = False, dashed: bool = False) -> None:
        """Draws a line through the values; where one is missing, the line is broken."""
        values = np.array(row, np.float64)
        style = (0, (5, 3)) if dashed else "-"
        self.axes.plot(self.xs, values, color=_COLORS[color], linewidth=2, linestyle=style)
        known = np.isfinite(np.concatenate([[np.nan], values, [np.nan]]))
        alone = known[1:-1] & ~known[:-2] & ~known[2:]
        self.axes.plot(self.xs[alone], values[alone], "o", color=_COLORS[color], markersize=5)
        if area:
            self.axes.fill_between(self.xs, values, color=_COLORS[color], alpha=0.16, linewidth=0)

    def svg(self, texts: Sequence[str]) -> str:
        """Returns the plot; a bin's text and events appear under the pointer."""
        width = self._series.bin_seconds
        tips = []
        for number, text in enumerate(texts):
            begin = number * width
            # What remains at the end is part of the last bin.
            end = begin + width if number + 1 < len(texts) else self._series.end
            events = [text for at, text in self._events if begin <= at < end]
            tips.append((begin, end, "\n".join([f"{begin:g} s: {text}", *events])))
        return _svg(self._figure, self.axes, self._title, tips)


def _figure(height: int) -> tuple[Figure, Axes]:
    """Returns a figure of so many pixels, and its axes with the grid of the page."""
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
        figure.patch.set_alpha(0)
        size = (_WIDTH - _LEFT - _RIGHT) / _WIDTH, (height - _TOP - _BOTTOM) / height
        axes = figure.add_axes((_LEFT / _WIDTH, _BOTTOM / height, *size))
    axes.patch.set_alpha(0)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelcolor=_COLORS["soft"], pad=6)
    axes.grid(axis="y", color=_COLORS["line"], linewidth=1)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    return figure, axes


def _mark(axes: Axes, at: float) -> None:
    """Marks a value of x at which something happened."""
    axes.axvline(at, color=_COLORS["bad"], linestyle=(0, (2, 3)), linewidth=1.5)
    top: dict[str, Any] = {
        "transform": axes.get_xaxis_transform(),
        "clip_on": False,
        "linewidth": 0,
    }
    axes.plot([at], [1.02], "v", color=_COLORS["bad"], markersize=7, **top)


def _set_shares(axes: Axes) -> None:
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))


def _svg(figure: Figure, axes: Axes, title: str, tips: Sequence[tuple[float, float, str]]) -> str:
    """Returns a figure as SVG; each of the texts appears under the pointer in its interval of x."""
    output = io.StringIO()
    with mpl.rc_context(_SETTINGS):
        figure.savefig(output, format="svg")
    body = output.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # other plots have the same
    body = re.sub(r"#fe00([0-9a-f]{2})", lambda found: _css(int(found[1], 16)), body)
    place: Callable[[float], float] = lambda x: float(axes.transData.transform((x, 1))[0])  # noqa: E731
    height = figure.get_figheight() * 72
    body += "".join(
        f'<rect class="tip" x="{place(begin):.1f}" width="{place(end) - place(begin):.1f}" '
        f'y="{_TOP}" height="{height - _TOP - _BOTTOM:.1f}"><title>{escape(text)}</title></rect>'
        for begin, end, text in tips
    )
    name = escape(title)
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{name}">{body}</svg>'


def _css(index: int) -> str:
    return f"var(--{_PAGE_COLORS[index]})"


def _decade(seconds: float) -> str:
    """Returns a power of ten seconds without decimals."""
    if seconds < 0.9e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.9 else f"{seconds:.0f} s"
