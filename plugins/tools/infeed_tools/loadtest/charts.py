"""Charts of a load test's page, drawn by matplotlib as inline SVG in the colours of the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from infeed_tools.loadtest.series import STATES, Row
from infeed_tools.loadtest.summary import Summary

_WIDTH, _HEIGHT = 520, 210
"""Pixels of the page, without zoom."""

_MIN_WAIT_MS = 0.1
"""Milliseconds at the foot of the waits' scale: shorter ones are no different to a training."""

_PAGE_COLORS = ("ink", "soft", "line", "bad", "c1", "c2", "c3", "cpu", *STATES)
_COLORS = {name: f"#fe00{index:02x}" for index, name in enumerate(_PAGE_COLORS)}
"""A colour that nothing else has, for each of the style sheet: it is replaced by its name, so that
the plots follow the light and the dark theme."""

_MAP = LinearSegmentedColormap.from_list("utilisation", ["#b3261e", "#f0d9a8", "#1f5fbf"])
"""From 0 to 100 %; the page has the same as a ramp."""

_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "infeed", "font.size": 12}

_NAMES = {
    "transform": "waits for transforms",
    "source": "waits for the source",
    "no_budget": "waits for room to send",
    "no_request": "has no request",
    "cpu": "processors used",
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
    """Yields the charts over time: throughput, waits, trainers and servers."""
    series = summary.series
    plot = _Plot(summary, "{:,.0f}")
    plot.line(series.samples_per_second, "c1")
    plot.axes.set_ylim(bottom=0)
    yield Chart("Throughput", plot.svg("Throughput over time"), "samples/s")

    plot = _Plot(summary, "{:g} ms")
    colors = dict(zip(series.waits, ("c1", "c2", "c3"), strict=True))
    longest = max(value or 0.0 for value in series.waits["longest"])
    plot.axes.set_yscale("log")
    for name, row in reversed(series.waits.items()):
        waits = (value if value is None else max(_MIN_WAIT_MS, 1000 * value) for value in row)
        plot.line(tuple(waits), colors[name])
    plot.axes.set_ylim(0.9 * _MIN_WAIT_MS, max(100.0, 1200 * longest))
    plot.axes.yaxis.set_major_locator(LogLocator(numticks=6))
    plot.axes.yaxis.set_minor_locator(NullLocator())
    legend = {color: name for name, color in colors.items()}
    yield Chart("Waits for a batch", plot.svg("Waits over time"), legend=legend)

    if summary.figures.utilisation is not None:
        plot = _Plot(summary, "{:g}", min(420, max(_HEIGHT, 44 + 14 * len(series.utilisation))))
        shares = np.array(series.utilisation, np.float64)  # NaN, where no step ended: empty
        extent = (0, series.bin_seconds * series.bins, len(shares) - 0.5, -0.5)
        plot.axes.imshow(
            shares, _MAP, vmin=0, vmax=1, extent=extent, aspect="auto", interpolation="none"
        )
        plot.axes.set_xlim(0, series.end)
        plot.axes.yaxis.set_major_locator(MaxNLocator(16, integer=True))
        plot.axes.grid(visible=False)
        title, caption = "Utilisation of each trainer", "100 % to 0 %, by rank; empty: no step"
        yield Chart(title, plot.svg(f"{title} over time"), caption, has_ramp=True)

    for address, rows in series.servers.items():
        plot = _Plot(summary, "{:.0%}")
        states = [np.array(rows[name], np.float64) for name in STATES]
        colors_of_states = [_COLORS[name] for name in STATES]
        plot.axes.stackplot(plot.xs, *states, colors=colors_of_states, linewidth=0)
        plot.line(rows["cpu"], "cpu", linestyle=(0, (5, 3)))
        plot.axes.set_ylim(0, 1)
        svg = plot.svg(f"What the pipeline of {address} waited for")
        yield Chart(f"Server {address}", svg, legend=_NAMES)


class _Plot:
    """A plot over the time of a test, with lines at its events."""

    def __init__(self, summary: Summary, label: str, height: int = _HEIGHT) -> None:
        """`label` formats values; `height` is in pixels."""
        series, self._height, self._label = summary.series, height, label
        self.xs = (np.arange(series.bins) + 0.5) * series.bin_seconds
        with mpl.rc_context(_SETTINGS):
            self._figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
            self._figure.patch.set_alpha(0)
            self.axes = axes = self._figure.add_axes((0.11, 30 / height, 0.87, 1 - 44 / height))
        axes.patch.set_alpha(0)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelcolor=_COLORS["soft"], pad=6)
        axes.grid(axis="y", color=_COLORS["line"], linewidth=1)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlim(0, series.end)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
        axes.axvspan(0, series.begin, color=_COLORS["ink"], alpha=0.06, linewidth=0)
        for at, _ in summary.tally.events():
            axes.axvline(at, color=_COLORS["bad"], linestyle=(0, (2, 3)), linewidth=1.5)

    def line(self, row: Row, color: str, **style: Any) -> None:
        """Draws a line through the values; where one is missing, the line is broken."""
        # The marks show values without neighbours, and are as wide as the line.
        style = {"linewidth": 2, "marker": "o", "markersize": 2, **style}
        self.axes.plot(self.xs, np.array(row, np.float64), color=_COLORS[color], **style)

    def svg(self, name: str) -> str:
        """Returns the plot; `name` is for screen readers."""
        label, output = self._label, io.StringIO()
        self.axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: label.format(value)))
        with mpl.rc_context(_SETTINGS):
            no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            self._figure.savefig(output, format="svg", metadata=no_metadata)
        body = output.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
        body = re.sub(r'<g id="[^"]*"', "<g", body)  # other plots have the same
        body = re.sub(
            "#fe00([0-9a-f]{2})", lambda found: f"var(--{_PAGE_COLORS[int(found[1], 16)]})", body
        )
        view = f"0 0 {_WIDTH} {self._height}"
        return f'<svg viewBox="{view}" role="img" aria-label="{escape(name)}">{body}</svg>'
