"""Tables of a load test's report: its trainers and servers, for the text and the page. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from infeed.loadtest.figures import TrainerFigures
from infeed.loadtest.summary import Summary
from infeed.loadtest.tally import Tally
from infeed.shared.capacity import capacity
from infeed.shared.report import ServerReport

_TRAINER_HEADS = (
    *("rank", "steps", "util.", "wait p50", "p99", "p99.9", "longest", "starved", "ready", "step"),
    *("first batch", "processors", "memory"),
)
_SERVER_HEADS = (
    *("server", "batches/s", "MB/s", "source", "transform", "no budget", "no request", "encoding"),
    *("sending", "processors", "memory", "could make"),
)


@dataclass(frozen=True)
class Table:
    """A table of text."""

    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def lines(self, left_out: Collection[str] = ()) -> Iterator[str]:
        """Yields lines of text with columns of equal width, but for those left out."""
        shown = [index for index, head in enumerate(self.heads) if head not in left_out]
        rows = [[row[index] for index in shown] for row in (self.heads, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *rest in rows:
            cells = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
            yield "  ".join([f"{first:<{widths[0]}}", *cells])


def trainer_table(summary: Summary, tally: Tally, most: int | None = None) -> Table:
    """Returns a row for each trainer; with `most`, for those with the least utilisation."""
    worst = sorted(summary.trainers, key=lambda trainer: trainer.figures.utilisation or 0.0)
    shown = sorted(worst[:most], key=lambda trainer: trainer.rank)
    # Threads are in one process, whose figures are in the notes.
    end = -2 if tally.plan.threads else None
    return Table(_TRAINER_HEADS[:end], [_trainer_row(trainer)[:end] for trainer in shown])


def _trainer_row(trainer: TrainerFigures) -> tuple[str, ...]:
    figures = trainer.figures
    measured = (
        percent_text(figures.utilisation),
        seconds_text(figures.wait_p50),
        seconds_text(figures.wait_p99),
        seconds_text(figures.wait_p999),
        seconds_text(figures.wait_max),
        percent_text(figures.starved_share),
        percent_text(figures.readiness, 0),
        seconds_text(figures.step_seconds),
    )
    return (
        str(trainer.rank),
        str(figures.steps),
        *(measured if figures.steps else ("-",) * len(measured)),
        ", ".join(map(seconds_text, trainer.first_batch_seconds)) or "none",
        f"{trainer.cpu_share:.2f}",
        memory_text(trainer.memory_bytes),
    )


def server_table(summary: Summary) -> Table:
    """Returns a row for each server."""
    rows = []
    for address, report in summary.servers.items():
        able = capacity(report)
        could = "-" if able is None else f"{able:.1f}/s"
        lost = address in summary.missing
        rows.append((address, *_server_row(report), "lost" if lost else could))
    return Table(_SERVER_HEADS, rows)


def _server_row(report: ServerReport) -> Iterator[str]:
    yield f"{report.batches / report.seconds:.1f}"
    yield f"{report.bytes / report.seconds / 1e6:.1f}"
    for name in ("source", "transform", "no_budget", "no_request", "encode", "send"):
        yield percent_text(getattr(report, f"{name}_seconds") / report.seconds, 0)
    yield f"{report.cpu_share * report.cores:.1f} of {report.cores:g}"
    limit = ""
    if report.memory_limit_bytes:
        limit = f" ({percent_text(report.memory_bytes / report.memory_limit_bytes, 0)})"
    yield memory_text(report.memory_bytes) + limit


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
