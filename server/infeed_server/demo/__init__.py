"""`infeed demo`: from files to a trained model, with a server in another process."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import track

from infeed.shared.errors import ServerUnavailableError
from infeed_server.demo import shapes
from infeed_server.demo.training import train

ACCURACY = 0.95
"""Accuracy on the test set below which the demo exits with status 1."""

_TRAIN, _TEST = 2000, 500

_DEFINITION = """\
# The demo's pipelines. `infeed serve` takes any file like this one.
pipelines:
  train:
    source: {images: train, labels: train/labels.csv}
    shuffle: {seed: 17, mode: global}
    transforms:
      - decode_image: {field: image, channels: 3}
      - random_crop: {field: image, size: [48, 48]}
      - random_flip_left_right: {field: image}
      - random_brightness: {field: image, max_delta: 0.1}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 50}
  test:
    source: {images: test, labels: test/labels.csv}
    transforms:
      - decode_image: {field: image, channels: 3}
      - center_crop: {field: image, size: [48, 48]}
      - normalize: {field: image, scale: 255.0}
    batch: {size: 64}
"""


def run(console: Console, epochs: int, directory: Path | None) -> int:
    """Draws the data set, serves it from another process, trains on it; returns the exit status."""
    folder = nullcontext(str(directory)) if directory else tempfile.TemporaryDirectory("-infeed")
    with folder as name:
        root = Path(name)
        for number, (part, count) in enumerate((("train", _TRAIN), ("test", _TEST))):
            images = shapes.write_images(root / part, count, seed=number)
            for _ in track(images, f"drawing {part:5}", count, console=console, transient=True):
                pass
        definition = root / "pipelines.yaml"
        definition.write_text(_DEFINITION, encoding="utf-8")
        console.print(f"drew {_TRAIN} + {_TEST} JPEGs of {len(shapes.SHAPES)} shapes")
        with serving(definition, root / "server.log") as target:
            console.print(f"served from another process at {target}; training on it in this one")
            result = train(target, epochs, console)
    console.print(f"accuracy on unseen images: [bold]{result.accuracy:.1%}[/]")
    console.print(f"{result.images_per_second:.0f} images/s")
    console.print(f"the trainer waited {result.stats.wait_share:.1%} of the time")
    console.print(f"verdict: {result.stats.verdict}", markup=False, highlight=False)
    if result.accuracy < ACCURACY:
        console.print(f"[red]below the {ACCURACY:.0%} that this data set allows[/]")
    return 0 if result.accuracy >= ACCURACY else 1


@contextmanager
def serving(definition: Path, log: Path) -> Iterator[str]:
    """Serves a YAML file on a free loopback port within the block, and yields its address. The
    server's log goes to a file; if the server does not start, the error has its last lines."""
    ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = [sys.executable, "-m", "infeed", "serve", str(definition), *ports]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,  # noqa: S603
    ):
        try:
            assert process.stdout is not None
            ready = re.search(r"serving on (\S+)", process.stdout.readline())
            if ready is None:
                tail = "\n".join(log.read_text().splitlines()[-20:])
                raise ServerUnavailableError(f"the server did not start:\n{tail}")
            yield ready[1]
        finally:
            process.terminate()
