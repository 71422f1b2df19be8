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
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

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

_METADATA = ("Date", "Creator", "Format", "Type")
"""What matplotlib would write about the file."""

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
    """Yields the charts over time: throughput, waits, trainers and servers."""
    yield _throughput(summary)
    yield _waits(summary)
    if summary.figures.utilisation is not None:
        yield _utilisations(summary)
    for address, rows in summary.series.servers.items():
        yield _server(summary, address, rows)


def _throughput(summary: Summary) -> Chart:
    rate = summary.series.samples_per_second
    plot = _Plot(summary, lambda value: f"{value:,.0f}")
    plot.line(rate, "c1")
    plot.axes.set_ylim(0, 1.08 * max(filter(None, rate), default=0.0) or 1.0)
    tips = [f"{value or 0:.0f} samples/s" for value in rate]
    return Chart("Throughput", plot.svg("Throughput over time", tips), "samples/s")


def _waits(summary: Summary) -> Chart:
    series = summary.series
    rows = {"p50": series.wait_p50, "p99": series.wait_p99, "longest": series.wait_max}
    colors = {"p50": "c1", "p99": "c2", "longest": "c3"}
    plot = _Plot(summary, lambda value: f"{1e3 * value:g} ms")
    known = [value for row in rows.values() for value in row if value]
    low, high = max(1e-6, min([1e-4, *known])), max([1e-1, *known])
    plot.axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
    plot.axes.set_yscale("log")
    for name, row in reversed(rows.items()):
        plot.line(row, colors[name])
    plot.axes.yaxis.set_major_locator(LogLocator(numticks=6))
    plot.axes.yaxis.set_minor_locator(NullLocator())
    plot.label_values()
    legend = {colors[name]: name for name in rows}
    svg = plot.svg("Waits over time", _tips(rows, seconds_text))
    return Chart("Waits for a batch", svg, legend=legend)


def _utilisations(summary: Summary) -> Chart:
    rows = summary.series.utilisation
    height = min(420, max(_HEIGHT, 44 + 14 * len(rows)))
    plot = _Plot(summary, lambda rank: f"{rank:g}", height)
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
    for column in np.where(np.isnan(shares), np.inf, shares).T:
        worst = int(column.argmin())
        is_known = np.isfinite(column[worst])
        tips.append(f"least {percent_text(column[worst], 0)}, rank {worst}" if is_known else "-")
    title, caption = "Utilisation of each trainer", "100 % to 0 %, by rank; empty: no step ended"
    return Chart(title, plot.svg(f"{title} over time", tips), caption, has_ramp=True)


def _server(summary: Summary, address: str, rows: Mapping[str, Row]) -> Chart:
    plot = _Plot(summary, lambda share: f"{100 * share:.0f} %")
    states = [np.array(rows[name], np.float64) for name in STATES]
    colors = [_COLORS[name] for name in STATES]
    plot.axes.stackplot(plot.xs, *states, colors=colors, linewidth=0)
    plot.line(rows["cpu"], "cpu", linestyle=(0, (5, 3)))
    plot.axes.set_ylim(0, 1)
    legend = {**_STATE_NAMES, "cpu": "processors used"}
    tips = _tips({text: rows[name] for name, text in legend.items()}, lambda x: percent_text(x, 0))
    svg = plot.svg(f"What the pipeline of {address} waited for", tips)
    return Chart(f"Server {address}", svg, legend=legend)


def _tips(rows: Mapping[str, Row], text: Callable[[float], str]) -> list[str]:
    """Returns the values of each bin with their names."""
    return [
        ", ".join(
            f"{name} {'-' if value is None else text(value)}"
            for name, value in zip(rows, values, strict=True)
        )
        for values in zip(*rows.values(), strict=True)
    ]


class _Plot:
    """A plot over the time of a test, with its events."""

    def __init__(
        self, summary: Summary, label: Callable[[float], str], height: int = _HEIGHT
    ) -> None:
        """`label` is for values; `height` is in pixels."""
        self._series, self._events, self._height = summary.series, summary.events, height
        self._label = label
        self.xs = (np.arange(self._series.bins) + 0.5) * self._series.bin_seconds
        with mpl.rc_context(_SETTINGS):
            self._figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
            self._figure.patch.set_alpha(0)
            size = (_WIDTH - _LEFT - _RIGHT) / _WIDTH, (height - _TOP - _BOTTOM) / height
            self.axes = axes = self._figure.add_axes((_LEFT / _WIDTH, _BOTTOM / height, *size))
        axes.patch.set_alpha(0)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelcolor=_COLORS["soft"], pad=6)
        axes.grid(axis="y", color=_COLORS["line"], linewidth=1)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlim(0, self._series.end)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
        self.label_values()
        axes.axvspan(0, self._series.begin, color=_COLORS["ink"], alpha=0.06, linewidth=0)
        for at, _ in self._events:
            axes.axvline(at, color=_COLORS["bad"], linestyle=(0, (2, 3)), linewidth=1.5)

    def label_values(self) -> None:
        """Sets the labels of the values, also after a change of their scale."""
        self.axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: self._label(value)))

    def line(self, row: Row, color: str, **style: Any) -> None:
        """Draws a line through the values; where one is missing, the line is broken."""
        # The marks show values without neighbours, and are as wide as the line.
        style = {"linewidth": 2, "marker": "o", "markersize": 2, **style}
        self.axes.plot(self.xs, np.array(row, np.float64), color=_COLORS[color], **style)

    def svg(self, name: str, texts: Sequence[str]) -> str:
        """Returns the plot; a bin's text and events appear under the pointer.

        `name` is for screen readers.
        """
        output = io.StringIO()
        with mpl.rc_context(_SETTINGS):
            self._figure.savefig(output, format="svg", metadata=dict.fromkeys(_METADATA))
        body = output.getvalue().partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
        body = re.sub(r'<g id="[^"]*"', "<g", body)  # other plots have the same
        body = re.sub(
            "#fe00([0-9a-f]{2})", lambda found: f"var(--{_PAGE_COLORS[int(found[1], 16)]})", body
        )
        body += "".join(map(self._tip, range(len(texts)), texts))
        view = f"0 0 {_WIDTH} {self._height}"
        return f'<svg viewBox="{view}" role="img" aria-label="{escape(name)}">{body}</svg>'

    def _tip(self, number: int, text: str) -> str:
        begin = number * self._series.bin_seconds
        # What remains at the end is part of the last bin.
        is_last = number + 1 == self._series.bins
        end = self._series.end if is_last else begin + self._series.bin_seconds
        events = [event for at, event in self._events if begin <= at < end]
        title = escape("\n".join([f"{begin:g} s: {text}", *events]))
        left, right = (float(self.axes.transData.transform((x, 1))[0]) for x in (begin, end))
        return (
            f'<rect class="tip" x="{left:.1f}" width="{right - left:.1f}" y="{_TOP}" '
            f'height="{self._height - _TOP - _BOTTOM}"><title>{title}</title></rect>'
        )
