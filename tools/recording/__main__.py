"""Command line: `python -m tools.recording FILE [--images N] [--epochs N] [--kill-at STEP]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tools.recording.picture import draw
from tools.recording.run import record


def main(
    file: Annotated[Path, typer.Argument(help="SVG to write.")],
    images: Annotated[int, typer.Option(min=100, help="Images of an epoch.")] = 2000,
    epochs: Annotated[int, typer.Option(min=1)] = 3,
    kill_at: Annotated[int, typer.Option(help="Printed step that is followed by the kill.")] = 48,
) -> None:
    """Records a run and writes its picture."""
    recording = record(images, epochs, kill_at)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(draw(recording), encoding="utf-8")
    for line in recording.trainer:
        print(line.text)


if __name__ == "__main__":
    typer.run(main)
