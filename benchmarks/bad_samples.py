"""The first epoch with damaged photos, compared with one of the same photos undamaged."""

from __future__ import annotations

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

COPIES = 16
"""Copies of each photo: an epoch of 500 photos would mostly measure its start."""

EVERY = 100
"""One photo in this many is cut off in its middle."""

BATCH = 32

PIPELINE = """
  {name}:
    source: {{images: {folder}/{photos}}}
    shuffle: {{seed: 1}}
    transforms:
      - decode_image: {{field: image, channels: 3}}
      - random_resized_crop: {{field: image, size: [160, 160]}}
      - random_flip_left_right: {{field: image}}
    batch: {{size: {batch}}}
    on_error: {action}
    quarantine: {folder}/{name}.jsonl
"""


def compare(plan: Plan) -> list[Finding]:
    """Compares both ways to go on without bad samples, in new servers that know none of them."""
    rates: dict[str, list[float]] = {name: [] for name in _pipelines()}
    for pair in range(plan.pairs):
        with _server() as server:
            for name in list(rates)[:: 1 if pair % 2 else -1]:
                rates[name].append(_first_epoch(server, name))
    target = Target(0.9)
    return [
        Finding(
            f"images/s, {action}",
            Figures("1 % damaged", rates[f"{action}-damaged"]),
            Figures("undamaged", rates[f"{action}-clean"]),
            target,
        )
        for action in ("substitute", "mask")
    ]


def _pipelines() -> dict[str, tuple[str, str]]:
    """Returns the action and the folder of photos of each pipeline, by name."""
    return {
        f"{action}-{photos}": (action, photos)
        for action in ("substitute", "mask")
        for photos in ("clean", "damaged")
    }


@contextmanager
def _server() -> Iterator[InfeedServer]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = sorted(photo_folder().glob(PATTERN))
        for number, copy in enumerate(photo for photo in photos for _ in range(COPIES)):
            for kind in ("clean", "damaged"):
                file = folder / kind / str(number % COPIES) / copy.name
                file.parent.mkdir(parents=True, exist_ok=True)
                if kind == "damaged" and number % EVERY == 0:
                    file.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])
                else:
                    file.symlink_to(copy.absolute())
        definition = folder / "pipelines.yaml"
        pipelines = "".join(
            PIPELINE.format(name=name, folder=folder, photos=kind, action=action, batch=BATCH)
            for name, (action, kind) in _pipelines().items()
        )
        definition.write_text(f"pipelines:{pipelines}")
        with InfeedServer(definition, folder / "log") as server:
            yield server


def _first_epoch(server: InfeedServer, pipeline: str) -> float:
    """Returns the images per second, from the second batch on."""
    with infeed.connect(server.address, pipeline, epochs=1) as feed:
        steps = feed.steps_per_epoch or 0
        next(feed)
        begin = time.perf_counter()
        for _ in range(steps - 1):
            next(feed)
        return (steps - 1) * BATCH / (time.perf_counter() - begin)
