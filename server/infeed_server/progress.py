"""A progress bar for the record index, drawn with rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def named_progress(
    console: Console,
) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Gives a function that makes a bar for a name; a bar shows once it is told of bytes."""
    columns = (
        TextColumn("index of {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:

        def bar(name: str) -> Callable[[int, int], None]:
            task = bars.add_task(name, total=None, visible=False)

            def advance(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total, visible=True)

            return advance

        yield bar
