"""Tables of a load test's report, which the text and the page share. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from infeed.loadtest.figures import Figures
from infeed.loadtest.find_max import Search
from infeed.loadtest.plan import UTILISATION_THRESHOLD
from infeed.loadtest.summary import Summary
from infeed.shared.capacity import capacity
from infeed.shared.report import ServerReport

FIGURE_HEADS = ("util.", "wait p50", "p99", "longest", "starved")
_SERVER_HEADS = (
    *("server", "batches/s", "MB/s", "source", "transform", "no budget", "no request"),
    *("processors", "memory", "could make"),
)


class Headline(NamedTuple):
    """A figure of the whole test."""

    title: str
    value: str
    detail: str
    kind: str = ""
    """"good" or "bad", if it is either."""


def overview(summary: Summary) -> Iterator[Headline]:
    """Yields the figures of the whole test."""
    figures = summary.figures
    if figures.utilisation is not None:
        # No goal, unless it is asked for as a threshold: then a check says what became of it.
        word, kind = ("at least", "good") if summary.keeps_utilisation else ("below", "bad")
        detail = (
            f"of the worst trainer (rank {summary.worst.rank}), {word} the "
            f"{percent_text(UTILISATION_THRESHOLD, 0)} of MLPerf Storage; "
            f"all {percent_text(figures.utilisation)}"
        )
        yield Headline("Accelerator utilisation", percent_text(summary.utilisation), detail, kind)
    detail = (
        f"samples/s, {summary.bytes_per_second / 1e6:.1f} MB/s, measured over "
        f"{summary.seconds:.1f} s of {summary.total_seconds:.1f} s"
    )
    yield Headline("Throughput", f"{summary.samples_per_second:,.0f}", detail)
    detail = f"p50 {seconds_text(figures.wait_p50)}, longest {seconds_text(figures.wait_max)}"
    yield Headline("Wait p99", seconds_text(figures.wait_p99), detail)
    detail = f"{figures.starved_steps} of {figures.steps} waited over 1 ms"
    yield Headline("Starved steps", percent_text(figures.starved_share), detail)


@dataclass(frozen=True)
class Table:
    """A table of text."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def lines(self) -> Iterator[str]:
        """Yields lines of text with columns of equal width."""
        rows = [self.heads, *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *rest in rows:
            cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
            yield "  ".join([f"{first:<{widths[0]}}", *cells])


def trainer_table(summary: Summary, most: int | None = None) -> Table:
    """Returns a row for each trainer; with `most`, for those with the least utilisation."""
    worst = sorted(summary.trainers, key=lambda trainer: trainer.figures.utilisation or 0.0)
    rows = [
        (
            *(str(trainer.rank), str(trainer.figures.steps), *figure_cells(trainer.figures)),
            ", ".join(map(seconds_text, trainer.first_batch_seconds)) or "none",
        )
        for trainer in sorted(worst[:most], key=lambda trainer: trainer.rank)
    ]
    return Table(("rank", "steps", *FIGURE_HEADS, "first batch"), rows)


def figure_cells(figures: Figures) -> tuple[str, ...]:
    """Returns the cells of a trainer below `FIGURE_HEADS`."""
    if not figures.steps:
        return ("-",) * len(FIGURE_HEADS)
    waits = map(seconds_text, (figures.wait_p50, figures.wait_p99, figures.wait_max))
    return percent_text(figures.utilisation), *waits, percent_text(figures.starved_share)


def probe_table(search: Search) -> Table:
    """Returns a row for each load test of a search, by the number of trainers."""
    rows = [
        (
            *(str(probe.trainers), percent_text(probe.utilisation)),
            *(
                f"{probe.samples_per_second:.0f}",
                "-" if probe.forecast is None else str(probe.forecast),
            ),
        )
        for probe in sorted(search.probes, key=lambda probe: probe.trainers)
    ]
    return Table(("trainers", "util. of the worst", "samples/s", "forecast of trainers"), rows)


def server_table(summary: Summary) -> Table:
    """Returns a row for each server."""
    rows = []
    for address, report in summary.servers.items():
        able = capacity(report)
        could = "-" if able is None else f"{able:.1f}/s"
        lost = address in summary.missing
        rows.append((address, *_server_cells(report), "lost" if lost else could))
    return Table(_SERVER_HEADS, rows)


def _server_cells(report: ServerReport) -> Iterator[str]:
    yield f"{report.batches / report.seconds:.1f}"
    yield f"{report.bytes / report.seconds / 1e6:.1f}"
    for name in ("source", "transform", "no_budget", "no_request"):
        yield percent_text(getattr(report, f"{name}_seconds") / report.seconds, 0)
    yield f"{report.cpu_share * report.cores:.1f} of {report.cores:g}"
    memory, limit = report.memory_bytes, report.memory_limit_bytes
    yield memory_text(memory) + (f" ({percent_text(memory / limit, 0)})" if limit else "")


def seconds_text(value: float) -> str:
    """Returns a time with a fit unit."""
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def percent_text(share: float | None, digits: int = 1) -> str:
    """Returns a share as a percentage; a dash for None."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def memory_text(count: int) -> str:
    """Returns bytes in MB or GB; a dash where they are unknown."""
    if not count:
        return "-"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
