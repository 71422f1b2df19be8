"""One measured consumer, in a process of its own: prints what it got as a line of JSON.

    python -m benchmarks.consume KIND ADDRESS DATASET SECONDS [COMPRESSION]

KIND is infeed, service (tf.data service), inprocess, flight or tcp. The clock runs from the end
of the warm-up to the last batch; `cpu_seconds` is this process alone, all threads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

WARM_UP = 4
"""Batches that are not counted."""


def infeed_batches(address: str, dataset: str, _: str) -> Iterator[Any]:
    import infeed

    with infeed.connect(address, dataset) as feed:
        for batch in feed:
            yield batch["image"]


def service_batches(address: str, dataset: str, compression: str) -> Iterator[Any]:
    import tensorflow as tf
    from benchmarks.datasets import BY_NAME

    distributed = BY_NAME[dataset]().apply(
        tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
            service=f"grpc://{address}",
            compression=None if compression == "none" else "AUTO",
        )
    )
    for element in distributed.prefetch(2):
        yield element["image"]


def inprocess_batches(_: str, dataset: str, __: str) -> Iterator[Any]:
    from benchmarks.datasets import BY_NAME

    for element in BY_NAME[dataset]():
        yield element["image"]


KINDS = {
    "infeed": infeed_batches,
    "service": service_batches,
    "inprocess": inprocess_batches,
}


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    kind, address, dataset, seconds, *rest = sys.argv[1:]
    begin = time.perf_counter()
    batches = KINDS[kind](address, dataset, rest[0] if rest else "none")
    first = next(batches)
    first_batch = time.perf_counter() - begin
    for _ in range(WARM_UP):
        next(batches)
    count, images, payload = 0, len(first), _size(first)
    start, cpu = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - start) < float(seconds):
        next(batches)
        count += 1
    print(
        json.dumps(
            {
                "seconds": elapsed,
                "cpu_seconds": time.process_time() - cpu,
                "batches": count,
                "images": count * images,
                "bytes": count * payload,
                "first_batch_seconds": first_batch,
            }
        ),
        flush=True,
    )
    # Interpreters with TensorFlow's prefetching threads end slowly; nothing is left to save.
    os._exit(0)


def _size(batch: Any) -> int:
    return int(batch.nbytes) if hasattr(batch, "nbytes") else int(batch.numpy().nbytes)


if __name__ == "__main__":
    main()
