"""Chart of the ratios of all cases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from benchmarks.findings import Finding, rounded
from benchmarks.results import Results
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

_REACHED, _MISSED, _REPORTED = "#2a9d6f", "#d9822b", "#8a93a0"
_INK = "#2b2f36"

Bars = list[tuple[str, Finding]]
"""Findings with the names of their cases."""


def draw(results: Results, file: Path) -> None:
    """Writes a PNG, or nothing if there is no ratio yet."""
    bars = [
        (name, finding)
        for name, outcome in results.outcomes.items()
        for finding in outcome.findings
        if finding.ratios
    ]
    panels = [
        (title, [bar for bar in bars if bar[1].more_is_better is better])
        for title, better in (("more is better", True), ("less is better", False))
    ]
    panels = [(title, part) for title, part in panels if part]
    if not panels:
        return
    heights = [len(part) + 1.2 for _, part in panels]
    figure, grid = plt.subplots(
        len(panels), 1, figsize=(13, 0.36 * sum(heights) + 1.9), squeeze=False,
        gridspec_kw={"height_ratios": heights}, layout="constrained",
    )  # fmt: skip
    for (title, part), axes in zip(panels, grid[:, 0], strict=True):
        _draw_panel(axes, title, part)
    figure.suptitle(
        f"infeed ÷ peer, medians of pairs\n{_describe(results.machine)}", fontsize=9, color=_INK
    )
    figure.legend(handles=_legend(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _draw_panel(axes: Any, title: str, bars: Bars) -> None:
    axes.set_title(title, loc="left", fontsize=10, color="#666b73")
    axes.set_xscale("log")
    for row, (_, finding) in enumerate(bars):
        ratio, ratios = finding.ratio, finding.ratios
        # Bars start at 1: on the log scale, ratios of 1/2 and 2 have the same length.
        axes.barh(row, ratio - 1, left=1, height=0.62, color=_colour(finding), zorder=2)
        axes.hlines(row, min(ratios), max(ratios), color=_INK, linewidth=1.4, zorder=3)
        if finding.target is not None and finding.target.of == "ratio":
            limit = finding.target.limit
            style = ":" if finding.target.is_aim else "-"
            axes.vlines(limit, row - 0.42, row + 0.42, color="#c1121f", linestyle=style, zorder=4)
    axes.axvline(1, color=_INK, linewidth=0.8, zorder=1)
    labels = [f"{name}  ·  {finding.measure}" for name, finding in bars]
    axes.set_yticks(range(len(bars)), labels, fontsize=9)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    _set_scale(axes, bars)
    _write_figures(axes, bars)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", which="major", color="#e4e6ea", zorder=0)


def _set_scale(axes: Any, bars: Bars) -> None:
    limits = [
        finding.target.limit
        for _, finding in bars
        if finding.target is not None and finding.target.of == "ratio"
    ]
    shown = [1.0, *limits, *(ratio for _, finding in bars for ratio in finding.ratios)]
    low, high = min(shown) / 1.15, max(shown) * 1.15
    ticks = [0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100]
    axes.set_xlim(low, high)
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _write_figures(axes: Any, bars: Bars) -> None:
    """Writes the ratio and both medians to the right of the bars."""
    for row, (_, finding) in enumerate(bars):
        ours, theirs, target = finding.ours, finding.theirs, finding.target
        assert theirs is not None
        figures = f"{rounded(ours.median)} : {rounded(theirs.median)}  {theirs.name}"
        if target is not None and target.of == "figure":
            figures += f"  ({target})"
        style = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9}
        axes.text(
            1.065, row, f"{finding.ratio:.2f}", color=_INK, weight="bold", ha="right", **style
        )
        axes.text(1.08, row, figures, color="#666b73", **style)


def _colour(finding: Finding) -> str:
    return {None: _REPORTED, True: _REACHED, False: _MISSED}[finding.is_reached]


def _legend() -> list[Any]:
    return [
        Patch(color=_REACHED, label="target reached"),
        Patch(color=_MISSED, label="target missed"),
        Patch(color=_REPORTED, label="no target"),
        Line2D([], [], color="#c1121f", label="target (dotted: aim)"),
        Line2D([], [], color=_INK, label="min..max of pairs"),
    ]


def _describe(machine: Mapping[str, str]) -> str:
    words = [f"{name} {value}" for name, value in machine.items() if name != "processor"]
    return ", ".join([machine["processor"], *words])
