"""Charts of a load test's page, drawn by matplotlib as one inline SVG."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from infeed.shared.spec import Array
from infeed_tools.loadtest.series import STATES, Row, Series
from infeed_tools.loadtest.summary import Summary

_WIDTH, _HEIGHT = 9.0, 2.4
"""Inches of a chart."""

_MIN_WAIT_MS = 0.1
"""Milliseconds at the bottom of the waits' scale: training does not notice shorter ones."""

_SETTINGS: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "infeed", "font.size": 10}


def draw_charts(summary: Summary) -> str:
    """Returns the charts of throughput, waits, trainers and servers, stacked."""
    series = summary.series
    charts: list[Callable[[Axes], None]] = [
        partial(_draw_throughput, series=series),
        partial(_draw_waits, series=series),
        *([partial(_draw_trainers, series=series)] if summary.utilisation is not None else []),
        *(partial(_draw_server, series=series, address=address) for address in series.servers),
    ]
    with mpl.rc_context(_SETTINGS):
        figure = Figure((_WIDTH, _HEIGHT * len(charts)), layout="constrained")
        for panel, draw in zip(figure.subplots(len(charts), sharex=True), charts, strict=True):
            draw(panel)
            panel.set_xlim(0, series.end)
            panel.axvspan(0, series.begin, color="black", alpha=0.06, linewidth=0)
            for at, _ in summary.tally.events():
                panel.axvline(at, color="tab:red", linestyle="dotted")
        panel.set_xlabel("seconds (grey: before the measured time; dotted: an event)")
        output = io.StringIO()
        without = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(output, format="svg", metadata=without)
    body = output.getvalue().partition("<svg")[2].partition(">")[2]
    view = f"0 0 {72 * _WIDTH:g} {72 * _HEIGHT * len(charts):g}"
    return f'<svg viewBox="{view}" role="img" aria-label="Charts over the time of the test">{body}'


def _draw_throughput(panel: Axes, series: Series) -> None:
    panel.set_title("throughput, samples/s")
    _line(panel, series, series.samples_per_second)
    panel.set_ylim(bottom=0)


def _draw_waits(panel: Axes, series: Series) -> None:
    panel.set_title("waits for a batch, ms")
    panel.set_yscale("log")
    for name, row in series.waits.items():
        _line(panel, series, np.maximum(_MIN_WAIT_MS, 1000 * np.array(row, np.float64)), name)
    panel.legend()


def _draw_trainers(panel: Axes, series: Series) -> None:
    panel.set_title("utilisation of each trainer, by rank (empty: no step)")
    shares = np.array(series.utilisation, np.float64)
    extent = (0, series.bin_seconds * series.bins, len(shares) - 0.5, -0.5)
    image = panel.imshow(
        shares, "RdYlBu", vmin=0, vmax=1, extent=extent, aspect="auto", interpolation="none"
    )
    panel.yaxis.set_major_locator(MaxNLocator(16, integer=True))
    panel.figure.colorbar(image, ax=panel)


def _draw_server(panel: Axes, series: Series, address: str) -> None:
    rows = series.servers[address]
    panel.set_title(f"waits of the pipeline at {address}, and its processors")
    states = [np.array(rows[name], np.float64) for name in STATES]
    panel.stackplot(_times(series), *states, labels=[name.replace("_", " ") for name in STATES])
    _line(panel, series, rows["cpu"], "processors used", color="black", linestyle="dashed")
    panel.set_ylim(0, 1)
    panel.legend()


def _line(panel: Axes, series: Series, row: Row | Array, label: str = "", **style: Any) -> None:
    """Draws a line through the values, broken where one is missing."""
    values = np.array(row, np.float64)
    # Without markers, values without neighbours would be invisible.
    panel.plot(_times(series), values, label=label, marker="o", markersize=2, **style)


def _times(series: Series) -> Array:
    return (np.arange(series.bins) + 0.5) * series.bin_seconds
