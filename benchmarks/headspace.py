"""Forecast of `infeed.headspace` on an input-bound loop, against the same loop with a fast input.

    .venv/bin/python -m benchmarks.headspace [FOLDER_OF_IMAGES] [--pairs 5]

The loop is input-bound because a server decodes its images; the fast input is a pipeline of the
same shapes that are decoded already. A step reads the batch, and then sleeps 20 ms as its host does
while an accelerator computes. The two loops take turns; the result is the median of the ratios of
the pairs. Without a folder, it draws images.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import infeed
from infeed.adapters.replay import Headspace
from infeed_server.demo import serving, shapes

STEP_SECONDS = 0.02
WARM_UP_STEPS = 20
STEPS = 60
BATCH = 64
"""Images that take the server longer than a step."""

MIN_WAIT_SHARE = 0.2
"""Of a step; with less, the loop is not input-bound, and the forecast shows nothing."""
SIDE = 224

DEFINITION = """\
pipelines:
  decoded-by-the-server:
    source: {{images: {folder}}}
    shuffle: {{seed: 17}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - resize: {{field: image, size: [{side}, {side}]}}
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: {batch}}}
  decoded-before:
    source: {{arrays: {arrays}}}
    shuffle: {{seed: 17}}
    transforms:
      - normalize: {{field: image, scale: 255.0}}
    batch: {{size: {batch}}}
"""


def step(batch: infeed.Batch) -> float:
    """Returns the mean of the images, after the time of a step."""
    mean = float(batch["image"].mean())
    time.sleep(STEP_SECONDS)
    return mean


def forecast(target: str) -> Headspace:
    """Returns what headspace says about the slow input."""
    with infeed.connect(target, "decoded-by-the-server") as feed:
        for batch in islice(feed, STEPS):
            step(batch)
        with infeed.headspace(feed, steps=STEPS) as replay:
            for batch in replay:
                step(batch)
        return replay.result()


def truth(target: str) -> float:
    """Returns the seconds of a step with the fast input, its waits included."""
    with infeed.connect(target, "decoded-before") as feed:
        for batch in islice(feed, WARM_UP_STEPS):
            step(batch)
        began = time.monotonic()
        for batch in islice(feed, STEPS):
            step(batch)
        return (time.monotonic() - began) / STEPS


def pairs(target: str, count: int) -> Iterator[float]:
    """Yields the forecast ÷ the truth."""
    for _ in range(count):
        result, seconds = forecast(target), truth(target)
        print(result)
        if (result.wait_seconds or 0.0) < MIN_WAIT_SHARE * (result.current_step_seconds or 0.0):
            raise SystemExit("the loop is not input-bound: give larger images")
        print(f"  with the fast input a step takes {1000 * seconds:.2f} ms")
        yield result.step_seconds / seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("images", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "drawn" if options.images is None else options.images.resolve()
        if options.images is None:
            list(shapes.write_images(folder, 500, seed=0))
        arrays, definition = Path(name) / "decoded.npz", Path(name) / "pipelines.yaml"
        pixels = np.random.default_rng(0).integers(0, 256, (256, SIDE, SIDE, 3), np.uint8)
        np.savez(arrays, image=pixels)
        text = DEFINITION.format(folder=folder, arrays=arrays, side=SIDE, batch=BATCH)
        definition.write_text(text)
        with serving(definition, Path(name) / "server.log") as target:
            truth(target)  # warm-up
            ratios = list(pairs(target, options.pairs))
    median = statistics.median(ratios)
    spread = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    print(f"forecast ÷ truth: {median:.3f} (pairs {spread}); within 10 %: {abs(median - 1) <= 0.1}")


if __name__ == "__main__":
    main()
