"""The console: progress bars on standard error, the ready line on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TextIO

from rich.console import Console
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

console = Console(stderr=True)


def announce(address: str, http: str | None, out: TextIO | None = None) -> None:
    """Prints the ready line, from which scripts read the ports that replaced port 0. `out` defaults
    to standard output."""
    print(f"serving on {address} (http {http or 'off'})", file=out, flush=True)


@contextmanager
def named_progress(console: Console) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Yields a function that adds a progress bar for a name, shown once it is first updated."""
    with _bars(console, "index of", DownloadColumn(), TransferSpeedColumn()) as progress:

        def add_bar(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None, visible=False)
            return lambda done, total: progress.update(
                task, completed=done, total=total, visible=True
            )

        yield add_bar


@contextmanager
def index_progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar while the files of one pipeline are indexed."""
    with named_progress(console) as add_bar:
        yield add_bar(name)


@contextmanager
def sample_progress(
    console: Console, name: str, samples: int | None, what: str = "scan of"
) -> Iterator[Callable[[int], None]]:
    """Shows a bar of samples; yields a function that adds to it."""
    with _bars(console, what, MofNCompleteColumn()) as progress:
        yield partial(progress.advance, progress.add_task(name, total=samples))


def _bars(console: Console, text: str, *columns: ProgressColumn) -> Progress:
    """Returns bars for a terminal only: elsewhere rich would end with an empty line."""
    return Progress(
        *(TextColumn(f"{text} {{task.description}}"), BarColumn(), *columns, TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
