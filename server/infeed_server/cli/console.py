"""The console: progress bars on standard error, the ready line on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from infeed_server.imports import without_gc
from infeed_server.processes.stderr_relay import without_banner

console = Console(stderr=True)


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
def named_progress(console: Console) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Yields a function that adds a progress bar for a name, shown from its first update on."""
    columns = (DownloadColumn(), TransferSpeedColumn())
    with _bars(console, "index of", *columns) as progress:

        def add_bar(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None, visible=False)
            return lambda done, total: progress.update(
                task, completed=done, total=total, visible=True
            )

        yield add_bar


@contextmanager
def sample_progress(
    console: Console, name: str, samples: int | None
) -> Iterator[Callable[[int], None]]:
    """Shows a bar of samples; yields a function that adds to it."""
    with _bars(console, "scan of", MofNCompleteColumn()) as progress:
        task = progress.add_task(name, total=samples)
        yield lambda count: progress.advance(task, count)


def _bars(console: Console, text: str, *columns: ProgressColumn) -> Progress:
    """Returns bars for a terminal: elsewhere rich would write an empty line at the end."""
    description = TextColumn(f"{text} {{task.description}}")
    return Progress(
        *(description, BarColumn(), *columns, TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class StepProgress:
    """The step of a long command: on a terminal one line with its seconds, elsewhere a line each.

    Nothing is shown before the first step, so that another bar can be.
    """

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def show(self, step: str) -> None:
        """Shows a step in place of the one before."""
        text = f"{self._name}: {step}"
        if not self._console.is_terminal:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        for task in self._live.task_ids:
            self._live.remove_task(task)
        self._live.add_task(escape(text), total=None)
        self._live.start()

    def stop(self) -> None:
        """Removes the line from a terminal."""
        if self._live.task_ids:
            self._live.stop()
