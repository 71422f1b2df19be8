"""CPU time of the compiled JPEG decoder, compared with plain tf.data.

    .venv/bin/python -m benchmarks.jpeg

Five cases: `resize` (decode, resize, flip), `centre` (a short side of 256 with antialias, then its
centre, as for an evaluation), `crop` (a random window of each photo, resized), `packed` (the same
for photos packed to a short side of 256), and `markers` (packed with `--restart-markers` too). Both
sides make the same batches of 64 photos of 224 x 224 pixels, which are compared first. They take
turns batch by batch, with one thread and with two; the result is the median of the turns' ratios.
tf.data runs without its default optimizations, which cost more than they save here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from benchmarks.crop import SIDE, draw_windows, read_photos
from benchmarks.photos import describe

import infeed_jpeg
from infeed_tools.pack.images import shrink
from infeed_tools.pack.options import PackOptions

SHORT_SIDE = 256
BATCH = 64
BATCHES = 3
"""Batches of a turn, always the same."""

TURNS = 15

Batch = Callable[[], npt.NDArray[np.uint8]]
Windows = npt.NDArray[np.int32]


class Case(NamedTuple):
    """Photos, and the window or the part of each."""

    photos: list[bytes]
    windows: Windows | None = None
    parts: Windows | None = None
    """Height and width of a resized photo, then top and left of the part that is taken."""


def centres(photos: list[bytes]) -> Windows:
    sizes = infeed_jpeg.read_headers(photos)
    resized = np.round(sizes * (SHORT_SIDE / sizes.min(1, keepdims=True))).astype(np.int32)
    return np.hstack([resized, (resized - SIDE) // 2])


def by_tensorflow(case: Case, threads: int) -> Batch:
    photos, windows, parts = case
    flips = np.arange(len(photos)) % 2 == 1

    def load(contents: tf.Tensor, window: tf.Tensor, flip: tf.Tensor) -> tf.Tensor:
        if windows is None:
            pixels = tf.io.decode_jpeg(contents, channels=3)
        else:
            pixels = tf.io.decode_and_crop_jpeg(contents, window, channels=3)
        if parts is None:
            pixels = tf.image.resize(pixels, [SIDE, SIDE])
        else:
            pixels = tf.image.resize(pixels, window[:2], antialias=True)
            pixels = tf.image.crop_to_bounding_box(pixels, window[2], window[3], SIDE, SIDE)
        pixels = tf.cast(tf.round(pixels), tf.uint8)
        return tf.cond(flip, lambda: tf.reverse(pixels, [1]), lambda: pixels)

    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    tables = (table for table in (windows, parts) if table is not None)
    table = next(tables, np.zeros((len(photos), 4), np.int32))
    samples = tf.data.Dataset.from_tensor_slices((photos, table, flips)).repeat()
    batches = samples.map(load, num_parallel_calls=threads).batch(BATCH)
    iterator = iter(batches.with_options(options))
    return lambda: next(iterator).numpy()


def by_infeed_jpeg(case: Case, threads: int) -> Batch:
    photos, windows, parts = case
    if windows is None:
        sizes = infeed_jpeg.read_headers(photos)
        windows = np.hstack([np.zeros_like(sizes), sizes])
    flips = (np.arange(len(photos)) % 2).astype(np.uint8)

    def batches() -> Iterator[npt.NDArray[np.uint8]]:
        while True:
            for begin in range(0, len(photos), BATCH):
                some = slice(begin, begin + BATCH)
                out = np.empty((BATCH, SIDE, SIDE, 3), np.uint8)
                statuses = infeed_jpeg.decode_batch(
                    photos[some],
                    windows[some],
                    flips[some],
                    out,
                    threads,
                    parts=None if parts is None else parts[some],
                    antialias=parts is not None,
                )
                assert not statuses.any()
                yield out

    return batches().__next__


def seconds(batch: Batch) -> tuple[float, float]:
    """Returns the CPU time and the duration of a turn's batches, for each photo."""
    cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(BATCHES):
        batch()
    count = BATCH * BATCHES
    return (time.process_time() - cpu) / count, (time.perf_counter() - begin) / count


def compare(title: str, case: Case, threads: int) -> None:
    theirs, ours = (make(case, threads) for make in (by_tensorflow, by_infeed_jpeg))
    for _ in range(BATCHES):
        if case.windows is None:  # not for windows: TensorFlow's differ at their edges
            np.testing.assert_array_equal(ours(), theirs())
        else:
            ours(), theirs()
    turns = [(seconds(theirs), seconds(ours)) for _ in range(TURNS)]
    text = [f"{title:7} {threads} thread{'s' * (threads > 1)}:"]
    for kind, name in enumerate(("CPU", "wall")):
        ratios = sorted(other[kind] / own[kind] for other, own in turns)
        least = [min(side[kind] for side in sides) * 1e6 for sides in zip(*turns, strict=True)]
        text.append(
            f"{name} {statistics.median(ratios):.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}]"
            f" ({least[0]:.0f} and {least[1]:.0f} µs)"
        )
    print("  ".join(text), flush=True)


def accepted(photos: list[bytes]) -> list[bytes]:
    """Returns whole batches of the photos that the decoder supports, and prints their share."""
    sizes = infeed_jpeg.read_headers(photos)
    taken = [photo for photo, size in zip(photos, sizes, strict=True) if size.all()]
    print(f"{len(taken)} of {len(photos)} photos are decoded by infeed_jpeg")
    return taken[: BATCH * BATCHES]


def main() -> None:
    print(f"{describe()}; tf.data ÷ infeed_jpeg, and the least of each for a photo:")
    photos = accepted(read_photos())
    packed, marked = (
        accepted([shrink(photo, options).content for photo in photos])
        for options in (
            PackOptions(short_side=SHORT_SIDE),
            PackOptions(short_side=SHORT_SIDE, restart_markers=True),
        )
    )
    for threads in (1, 2):
        compare("resize", Case(photos), threads)
        compare("centre", Case(photos, parts=centres(photos)), threads)
        for title, some in (("crop", photos), ("packed", packed), ("markers", marked)):
            compare(title, Case(some, np.array(draw_windows(some), np.int32)), threads)


if __name__ == "__main__":
    main()
