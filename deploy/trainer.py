"""Reader of a pipeline's epochs as one rank, which counts every sample. Exits with 0 only if exact.

Environment variables: TARGET ("host:port"), PIPELINE, EPOCHS (default 1), RANK (0), WORLD_SIZE
(1), and SAMPLES, the number of samples, for a pipeline that does not report it; and, as the
commands, for TLS and tokens: INFEED_TLS_CA, INFEED_TLS_CERT, INFEED_TLS_KEY, INFEED_TOKEN_FILE. The
light install is enough.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import infeed
from infeed.shared.spec import PipelineSpec


def main() -> int:
    # As process 1 of a container, Python would ignore SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    target, pipeline = setting("TARGET"), setting("PIPELINE")
    epochs, rank, world_size = number("EPOCHS", 1), number("RANK", 0), number("WORLD_SIZE", 1)
    shard = infeed.Shard(rank=rank, world_size=world_size)
    options: dict[str, Any] = {"shard": shard, "epochs": epochs, "remainder": "pad", **security()}
    with infeed.connect(target, pipeline, **options) as feed:
        count = require_sample_count(feed.spec, number("SAMPLES", 0), world_size)
        print(
            f"{pipeline} at {target}: {count} samples, rank {rank} of {world_size}, {epochs} epochs"
        )
        print(f"guarantee: {feed.guarantee}")
        started_at = time.monotonic()
        counts = count_samples(feed, count)
        seconds = time.monotonic() - started_at
        share = rank_share(count * epochs, feed.spec.stride(feed.batch_size), rank, world_size)
        print(report(counts, epochs, seconds))
        print(feed.stats())
    exact = is_exact(counts, epochs, world_size, share)
    print("exact" if exact else f"NOT EXACT: {counts.sum()} samples delivered, {share} expected")
    return 0 if exact else 1


def security() -> dict[str, Any]:
    """Returns the arguments of `infeed.connect` for TLS and a token; without variables none.

    All files are read for each connection or call, so that renewed ones need no restart.
    """
    arguments: dict[str, Any] = {}
    ca, cert, key = (os.environ.get(f"INFEED_TLS_{part}") for part in ("CA", "CERT", "KEY"))
    if ca or cert or key:
        arguments["tls"] = infeed.TLS(ca or None, cert or None, key or None)
    if file := os.environ.get("INFEED_TOKEN_FILE"):
        arguments["token"] = lambda: Path(file).read_text(encoding="utf-8").strip()
    return arguments


def require_sample_count(spec: PipelineSpec, configured: int, world_size: int) -> int:
    """Returns the number of samples; `configured` is SAMPLES, 0 if unset. Exits if unknown."""
    if world_size > 1 and spec.guarantee.order == "none":
        sys.exit(
            f"{spec.name!r} guarantees no order, so the samples of a rank are unknown: "
            "count with WORLD_SIZE=1"
        )
    count = spec.sample_count or configured
    if not count:
        sys.exit(f"{spec.name!r} does not report its number of samples: set SAMPLES")
    return count


def count_samples(feed: infeed.Feed, count: int) -> np.ndarray:
    """Returns how often each sample was delivered: int64[count], by index in the source."""
    counts = np.zeros(count, np.int64)
    for batch in feed:
        ids = batch.sample_ids[batch.mask]
        if len(ids) and ids.max() >= count:
            sys.exit(
                f"sample {ids.max()} delivered, but expected only {count} samples: set SAMPLES"
            )
        np.add.at(counts, ids, 1)
    return counts


def rank_share(positions: int, stride: int, rank: int, world_size: int) -> int:
    """Returns how many positions belong to a rank: ranks take blocks of `stride` in turn."""
    blocks, rest = divmod(positions, stride)
    whole = len(range(rank, blocks, world_size)) * stride
    return whole + (rest if blocks % world_size == rank else 0)


def is_exact(counts: np.ndarray, epochs: int, world_size: int, share: int) -> bool:
    """Returns whether a rank got its share and, if it is alone, every sample once an epoch."""
    if world_size == 1:
        return bool((counts == epochs).all())
    return bool((counts <= epochs).all()) and int(counts.sum()) == share


def report(counts: np.ndarray, epochs: int, seconds: float) -> str:
    """Returns how many samples were delivered less than once an epoch, once, and more often."""
    fewer = int((counts < epochs).sum())
    equal = int((counts == epochs).sum())
    more = int((counts > epochs).sum())
    below = "0x" if epochs == 1 else f"<{epochs}x"
    return (
        f"samples seen {below}: {fewer}, {epochs}x: {equal}, >{epochs}x: {more}\n"
        f"{counts.sum()} images in {seconds:.1f} s: {counts.sum() / seconds:.0f} images/s"
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
