"""`infeed demo`: from files to a trained model, with a server in another process."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import keras
from rich.console import Console
from rich.progress import track

import infeed
from infeed.shared.errors import ServerUnavailableError
from infeed.tensorflow import from_generator
from infeed_server.demo import shapes

ACCURACY = 0.95
"""Accuracy on the test set below which the demo exits with status 1."""

_PARTS = {"train": 2000, "test": 500}
"""Part → images."""

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
        for number, (part, count) in enumerate(_PARTS.items()):
            images = shapes.write_images(root / part, count, seed=number)
            for _ in track(images, f"drawing {part:5}", count, console=console, transient=True):
                pass
        definition = root / "pipelines.yaml"
        definition.write_text(_DEFINITION, encoding="utf-8")
        console.print(f"drew {sum(_PARTS.values())} JPEGs of {len(shapes.SHAPES)} shapes")
        with serving(definition, root / "server.log") as target:
            console.print(f"served from another process at {target}; training on it in this one")
            accuracy, rate, stats = _train(target, epochs, console)
    console.print(f"accuracy on unseen images: [bold]{accuracy:.1%}[/]")
    console.print(f"{rate:.0f} images/s")
    console.print(f"the trainer waited {stats.wait_share:.1%} of the time")
    console.print(f"verdict: {stats.verdict}", markup=False, highlight=False)
    if accuracy < ACCURACY:
        console.print(f"[red]below the {ACCURACY:.0%} that this data set allows[/]")
    return 0 if accuracy >= ACCURACY else 1


@contextmanager
def serving(definition: Path, log: Path) -> Iterator[str]:
    """Serves a YAML file on a free loopback port within the block, and yields its address.

    The server's log goes to a file; if the server does not start, the error has its last lines.
    """
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


def _train(target: str, epochs: int, console: Console) -> tuple[float, float, infeed.Stats]:
    """Trains on the pipeline `train`; returns the accuracy on `test`, images/s, and statistics."""
    keras.utils.set_random_seed(17)
    model = _model()
    with infeed.connect(target, "train") as feed:
        steps = (feed.spec.sample_count or 0) // feed.batch_size
        started = time.perf_counter()
        model.fit(
            from_generator(feed),
            epochs=epochs,
            steps_per_epoch=steps,
            shuffle=False,  # the pipeline does
            verbose=1 if console.is_terminal else 2,  # a progress bar, or a line for each epoch
        )
        rate = epochs * steps * feed.batch_size / (time.perf_counter() - started)
        stats = feed.stats()
    with infeed.connect(target, "test", epochs=1, remainder="pad") as feed:
        scores = model.evaluate(from_generator(feed), verbose=0, return_dict=True)
    return float(scores["accuracy"]), rate, stats


def _model() -> keras.Model:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((48, 48, 3)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(len(shapes.SHAPES), activation="softmax"),
        ]
    )
    optimizer, loss = keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, weighted_metrics=["accuracy"])
    return model
