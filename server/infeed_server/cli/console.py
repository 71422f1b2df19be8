"""The console: progress bars and a server's panel on standard error, its ready line on output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from infeed.shared.printable import printable_lines
from infeed_server.imports import without_gc
from infeed_server.processes.stderr_relay import without_banner
from infeed_server.version import VERSION

if TYPE_CHECKING:
    from infeed_server.runtime.server import Server

_MAX_PIPELINES = 20
"""Pipelines shown: more fill the terminal."""

_MIN_WIDTH = 120
"""Characters of a line of a report that is not written to a terminal."""

console = Console(stderr=True)


def report_console(file: TextIO | None = None) -> Console:
    """Returns a console for a report with tables; None: on standard output."""
    out = Console(file=file)
    if not out.is_terminal:
        out.width = max(out.width, _MIN_WIDTH)
    return out


def print_line(out: Console, text: str) -> None:
    """Prints text as it is: a path that is wrapped at the terminal's width cannot be copied."""
    out.print(printable_lines(text), highlight=False, markup=False, soft_wrap=True)


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Imports TensorFlow in the block, quickly and without its banner."""
    with without_gc(), without_banner():
        yield


def announce(address: str, http: str | None, out: TextIO | None = None) -> None:
    """Prints the ready line, from which scripts read the ports if they gave port 0.

    `out` is standard output by default.
    """
    print(f"serving on {address} (http {http or 'off'})", file=out, flush=True)


@contextmanager
def named_progress() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Yields a function that adds a progress bar for a name, shown from its first update on."""
    with _bars("index of", DownloadColumn(), TransferSpeedColumn()) as progress:

        def add_bar(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None, visible=False)
            return lambda done, total: progress.update(
                task, completed=done, total=total, visible=True
            )

        yield add_bar


@contextmanager
def index_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar while the files of one pipeline are indexed."""
    with named_progress() as add_bar:
        yield add_bar(name)


@contextmanager
def sample_progress(name: str, samples: int | None) -> Iterator[Callable[[int], None]]:
    """Shows a bar of samples; yields a function that adds to it."""
    with _bars("scan of", MofNCompleteColumn()) as progress:
        yield partial(progress.advance, progress.add_task(name, total=samples))


def _bars(text: str, *columns: ProgressColumn) -> Progress:
    """Returns bars for a terminal: elsewhere rich would write an empty line at the end."""
    return Progress(
        *(TextColumn(f"{text} {{task.description}}"), BarColumn(), *columns, TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def server_panel(server: Server) -> Panel:
    """Returns the panel of a started server: its addresses, and what it serves."""
    lines = [f"trainers   {server.address}"]
    if server.http_address:
        lines.append(f"dashboard  http://{server.http_address}")
    states = server.health.parts
    for spec in server.pipeline_specs[:_MAX_PIPELINES]:
        state = states[spec.name]
        ready = "ready" if state.ready else f"not ready: {state.reason.partition(chr(10))[0]}"
        samples = "unknown" if spec.sample_count is None else f"{spec.sample_count:,}"
        lines.append(f"{spec.name}  {samples} samples, batches of {spec.batch_size}, {ready}")
    if len(states) > _MAX_PIPELINES:
        lines.append(f"and {len(states) - _MAX_PIPELINES} more; `infeed list` has all")
    text = Text(printable_lines("\n".join(lines)))
    return Panel(text, title=f"infeed {VERSION}", title_align="left", expand=False)
