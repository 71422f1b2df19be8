"""The console: log and progress bars on standard error, the ready line on standard output."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

console = Console(stderr=True)


def set_up_logging() -> None:
    """Sets up the log on standard error, and TensorFlow to log errors only.

    TensorFlow reads the environment on import, which every command does later. infeed's server
    uses no accelerators, so a search for them would only cost time and log lines.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    if console.is_terminal:
        handler: logging.Handler = RichHandler(console=console, show_path=False)
        line_format = "%(message)s"
    else:  # Never wrapped: a log collector splits entries at line ends.
        handler = logging.StreamHandler()
        line_format = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=line_format, handlers=[handler])


def announce(address: str, http: str | None) -> None:
    """Prints the ready line, from which scripts read the ports if they gave port 0."""
    print(f"serving on {address} (http {http or 'off'})", flush=True)


@contextmanager
def named_progress(console: Console) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Yields a function that adds a progress bar for a name, shown from its first update on."""
    columns = (
        TextColumn("index of {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:

        def add_bar(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None, visible=False)

            def update(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total, visible=True)

            return update

        yield add_bar
