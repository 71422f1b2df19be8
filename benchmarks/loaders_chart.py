"""Chart of the case `loaders` for the README: rates, and processor time of the trainer's host.

    python -m benchmarks.loaders_chart FOLDER [--results bench-results/results.json]

Writes loaders.svg, whose text follows the light or dark mode of the system.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
import typer

mpl.use("Agg")

from benchmarks.findings import Figures, rounded
from benchmarks.loaders import RATE, SERVER_CPU, TRAINER_CPU
from benchmarks.results import Outcome
from matplotlib import pyplot as plt

DECODERS = {"infeed": "infeed-jpeg", "Grain": "Pillow", "DataLoader": "Pillow"}
"""Decoders of the sides that do not use TensorFlow's."""

_DEFAULT = Path("bench-results/results.json")


_INK, _GREY = "#1f2328", "#59636e"
_DARK = {_INK: "#f0f6fc", _GREY: "#9198a1"}
"""Colours on a light page, and their replacements on a dark one."""

_OURS, _PEER = "#2a9d6f", "#8a93a0"


def main(
    folder: Annotated[Path, typer.Argument(help="Folder for the pictures.")],
    results: Annotated[Path, typer.Option(help="Results of `python -m benchmarks`.")] = _DEFAULT,
) -> None:
    """Draws the chart from saved results."""
    saved = json.loads(results.read_text())
    if "loaders" not in saved["cases"]:
        raise typer.BadParameter(f"{results}: no case loaders; run python -m benchmarks loaders")
    outcome = Outcome.from_json(saved["cases"]["loaders"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "loaders.svg").write_text(_svg(outcome, saved["machine"]))


def sides(outcome: Outcome) -> dict[str, dict[str, Figures]]:
    """Returns the figures by side and measure, infeed first."""
    found: dict[str, dict[str, Figures]] = {}
    for finding in outcome.findings:
        assert finding.theirs is not None
        for figures in (finding.ours, finding.theirs):
            found.setdefault(figures.name, {})[finding.measure] = figures
    return found


def caption(outcome: Outcome, machine: dict[str, str]) -> str:
    """Returns the conditions of the run: work, hardware, versions and date."""
    assert outcome.plan is not None
    plural = "" if outcome.plan.pairs == 1 else "s"
    return (
        f"{machine['photos']}; decoded, resized to 224 x 224, batches of 64 in uint8, over TCP\n"
        f"on one host: {machine['processor']}, cores {machine['cores']}, {machine['kernel']}, "
        f"TensorFlow {machine['TensorFlow']}, infeed {machine['infeed']}\n"
        f"{outcome.time[:10]}, median of {outcome.plan.pairs} run{plural} of "
        f"{outcome.plan.seconds:g} s, lines: lowest and highest; "
        f"load before the run {outcome.load:.1f}"
    )


def _svg(outcome: Outcome, machine: dict[str, str]) -> str:
    """Draws the chart for a light page, with a style sheet for a dark one."""
    measured = sides(outcome)
    names = list(measured)
    # A fixed salt and no date: otherwise each drawing of the same figures would differ.
    style = {"svg.hashsalt": "infeed", "text.color": _INK, "font.size": 10}
    with plt.rc_context(style):
        figure, (rates, times) = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")
        rates.set_title("images per second", loc="left", fontsize=11)
        times.set_title("CPU seconds per 1,000 images, trainer's host", loc="left", fontsize=11)
        for row, name in enumerate(names):
            colour = _PEER if row else _OURS
            _bar(rates, row, measured[name][RATE], colour)
            own = measured[name][TRAINER_CPU]
            server = measured[name].get(SERVER_CPU)
            if server is not None:
                times.barh(row, server.median, 0.6, left=own.median, color=colour, alpha=0.35)
            end = own.median + (server.median if server else 0.0)
            _bar(times, row, own, colour, max(end, *own.values))
            if server is not None:
                note = f"+ {rounded(server.median)} on the server"
                times.annotate(
                    note, (end, row), (52, 0), textcoords="offset points", va="center",
                    color=_GREY, fontsize=9,
                )  # fmt: skip
        for axes in (rates, times):
            axes.set_yticks(range(len(names)), [_label(name) for name in names], color=_INK)
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_xticks([])
            axes.set_facecolor("none")
            axes.tick_params(length=0)
            axes.margins(x=0.22)
            for spine in axes.spines.values():
                spine.set_visible(False)
        times.set_yticklabels([])
        times.set_xlim(0, 1.9 * max(_total(measured[name]) for name in names))
        figure.supxlabel(caption(outcome, machine), fontsize=7.5, color=_GREY, x=0.01, ha="left")
        svg = io.StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
    rules = (
        f'[style*="{name}: {light}"] {{{name}: {dark} !important}}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    return svg.getvalue().replace("</svg>", f"{style}</svg>")


def _bar(axes: Any, row: int, figures: Figures, colour: str, end: float | None = None) -> None:
    axes.barh(row, figures.median, 0.6, color=colour)
    axes.hlines(row, min(figures.values), max(figures.values), color=_INK, linewidth=1)
    place = max(figures.median, *figures.values) if end is None else end
    axes.text(place, row, f" {rounded(figures.median)}", va="center", color=_INK, weight="bold")


def _label(name: str) -> str:
    return f"{name}\n{DECODERS[name]}" if name in DECODERS else f"{name}\nTensorFlow"


def _total(measures: dict[str, Figures]) -> float:
    return sum(measures[name].median for name in (TRAINER_CPU, SERVER_CPU) if name in measures)


if __name__ == "__main__":
    typer.run(main)
