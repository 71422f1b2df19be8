"""Later epochs with a cache, compared with the first, in which it is filled."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.photos import PATTERN, photo_folder
from tests.harness.server import InfeedServer

import infeed

COPIES = 8
"""Copies of each photo: an epoch of 500 would end before a rate can be measured."""

SIDE, BATCH = 96, 32
"""Pixels of an image, and images of a batch: small enough to measure the cache, not the network."""

SAMPLE_BYTES = SIDE * SIDE * 3 + 200
"""Bytes of a record in the cache, including what the store adds."""

PIPELINE = """
pipelines:
  photos:
    source: {{images: {folder}/photos}}
    shuffle: {{seed: 1}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - resize: {{field: image, size: [{side}, {side}]}}
      - cache: {{{cache}, path: {folder}/cache}}
      - random_flip_left_right: {{field: image}}
    batch: {{size: {batch}}}
"""


def compare(store: str, part: float, at_least: float, plan: Plan) -> list[Finding]:
    """Compares the second epoch with the first, in new servers whose cache has room for a part."""
    first, second = [], []
    for _ in range(plan.pairs):
        with _server(store, part) as server:
            rates = list(_epochs(server, 2))
            first.append(rates[0])
            second.append(rates[1])
    target = Target(at_least)
    return [Finding("images/s", Figures("second epoch", second), Figures("first", first), target)]


@contextmanager
def _server(store: str, part: float) -> Iterator[InfeedServer]:
    """Serves the photos behind a cache with room for a part of them."""
    photos = sorted(photo_folder().glob(PATTERN))
    budget = max(1 << 20, int(part * COPIES * len(photos) * SAMPLE_BYTES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for copy in range(COPIES):
            (folder / "photos" / str(copy)).mkdir(parents=True)
            for photo in photos:
                shutil.copy(photo, folder / "photos" / str(copy) / photo.name)
        definition = folder / "pipelines.yaml"
        cache = f"store: {store}, budget: {budget}"
        definition.write_text(PIPELINE.format(folder=folder, side=SIDE, cache=cache, batch=BATCH))
        with InfeedServer(definition, folder / "log") as server:
            yield server


def _epochs(server: InfeedServer, count: int) -> Iterator[float]:
    """Yields the images per second of each epoch, from its second batch on."""
    with infeed.connect(server.address, "photos", epochs=count) as feed:
        steps = feed.steps_per_epoch or 0
        for _ in range(count):
            next(feed)
            begin = time.perf_counter()
            for _ in range(steps - 1):
                next(feed)
            yield (steps - 1) * BATCH / (time.perf_counter() - begin)
