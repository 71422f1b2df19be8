"""Reads a pipeline's epochs as one rank, counts every sample, and reports. Exits 0 only if exact.

Set by environment variables: TARGET ("host:port"), PIPELINE, EPOCHS (default 1), RANK (0),
WORLD_SIZE (1), and SAMPLES, how many the source has, for a pipeline that does not tell. The light
install is enough.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import infeed
from infeed.spec import PipelineSpec


def main() -> int:
    # As process 1 of a container Python would ignore the signal that stops it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    target, pipeline = setting("TARGET"), setting("PIPELINE")
    epochs, rank, world_size = number("EPOCHS", 1), number("RANK", 0), number("WORLD_SIZE", 1)
    shard = infeed.Shard(rank=rank, world_size=world_size)
    with infeed.connect(target, pipeline, shard=shard, epochs=epochs, remainder="pad") as feed:
        count = countable(feed.spec, number("SAMPLES", 0), world_size)
        print(
            f"{pipeline} at {target}: {count} samples, rank {rank} of {world_size}, {epochs} epochs"
        )
        print(f"promised: {feed.guarantee}")
        began = time.monotonic()
        seen = count_samples(feed, count)
        seconds = time.monotonic() - began
        share = rank_share(count * epochs, feed.spec.stride(feed.batch_size), rank, world_size)
        print(report(seen, epochs, seconds))
        print(feed.stats())
    exact = is_exact(seen, epochs, world_size, share)
    print("exact" if exact else f"NOT EXACT: {seen.sum()} samples delivered, {share} are due")
    return 0 if exact else 1


def countable(spec: PipelineSpec, told: int, world_size: int) -> int:
    """How many samples there are to be counted; `told` is what SAMPLES says, 0 for nothing."""
    if world_size > 1 and spec.guarantee.order == "none":
        sys.exit(
            f"{spec.name!r} promises no order, so nobody knows which samples are one rank's: "
            "count with WORLD_SIZE=1"
        )
    count = spec.sample_count or told
    if not count:
        sys.exit(f"{spec.name!r} does not tell how many samples it has: set SAMPLES")
    return count


def count_samples(feed: infeed.Feed, count: int) -> np.ndarray:
    """How often each sample came: int64[count], by the sample's index in the source."""
    seen = np.zeros(count, np.int64)
    for batch in feed:
        ids = batch.sample_ids[batch.mask]
        if len(ids) and ids.max() >= count:
            sys.exit(f"sample {ids.max()} came, and there are said to be {count}: set SAMPLES")
        np.add.at(seen, ids, 1)
    return seen


def rank_share(positions: int, stride: int, rank: int, world_size: int) -> int:
    """How many of the positions belong to a rank: blocks of `stride` go round the ranks."""
    blocks, rest = divmod(positions, stride)
    mine = len(range(rank, blocks, world_size)) * stride
    return mine + (rest if blocks % world_size == rank else 0)


def is_exact(seen: np.ndarray, epochs: int, world_size: int, share: int) -> bool:
    """Whether a rank got its share and, where it is alone, every sample once an epoch."""
    if world_size == 1:
        return bool((seen == epochs).all())
    return bool((seen <= epochs).all()) and int(seen.sum()) == share


def report(seen: np.ndarray, epochs: int, seconds: float) -> str:
    """How many samples came less often than the epochs say, just as often, and more often."""
    fewer, even, more = (int(n.sum()) for n in (seen < epochs, seen == epochs, seen > epochs))
    below = "0x" if epochs == 1 else f"<{epochs}x"
    return (
        f"samples seen {below}: {fewer}, {epochs}x: {even}, >{epochs}x: {more}\n"
        f"{seen.sum()} images in {seconds:.1f} s: {seen.sum() / seconds:.0f} images/s"
    )


def setting(name: str) -> str:
    if not (value := os.environ.get(name, "")):
        sys.exit(f"set {name}; see the top of {__file__}")
    return value


def number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        sys.exit(f"{name} is {text!r}, not a number")
    return int(text)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except infeed.InfeedError as error:
        sys.exit(f"{error.reason}: {error}")
