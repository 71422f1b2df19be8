"""Consumers of batches: one function for infeed and one for each of its peers.

Each function imports and builds what it needs, and returns an iterator that connects at its first
`next`. Batches are arrays of images, or tensors from tf.data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl

Batches = Iterator[Any]

_MANY = 1_000_000
"""Batches of an epoch that is endless in practice."""

Consumer = Callable[[str, str, str, int], Batches]
"""Function of the server's address, the data set, the compression (`none`, `auto`) and a seed."""


_NUMBERS = {"connections", "prefetch_batches", "batch_size"}
"""Options of `connect` in the query of an address."""


def infeed(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads with infeed; the address can have `ca`, a file, and `connect`'s options as a query."""
    del compression
    import infeed

    target, _, query = address.partition("?")
    options: dict[str, Any] = dict(parse_qsl(query))
    if ca := options.pop("ca", None):
        options["tls"] = infeed.TLS(ca=ca)
    options |= {name: int(options[name]) for name in options.keys() & _NUMBERS}

    def batches() -> Batches:
        with infeed.connect(target, dataset, seed=seed, **options) as feed:
            for batch in feed:
                yield batch["image"]

    return batches()


def jax(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads with infeed's adapter for JAX, to one device."""
    del compression
    import infeed.jax

    def batches() -> Batches:
        with infeed.jax.connect(address, dataset, seed=seed, remainder="drop") as feed:
            for batch in feed:
                yield batch["image"].block_until_ready()

    return batches()


def torch(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads with infeed's adapter for PyTorch."""
    del compression
    import infeed.torch

    def batches() -> Batches:
        with infeed.torch.connect(address, dataset, seed=seed) as feed:
            for batch in feed:
                yield batch["image"]

    return batches()


def grain(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads with infeed's adapter for Grain."""
    del compression
    import infeed.grain

    return (batch["image"] for batch in infeed.grain.FeedDataset(address, dataset, seed=seed))


def tensors(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads tensors with infeed's eager iterator for TensorFlow."""
    del compression
    import infeed.tensorflow

    def batches() -> Batches:
        with infeed.tensorflow.connect(address, dataset, seed=seed) as feed:
            for batch in feed:
                yield batch["image"]

    return batches()


def from_generator(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads a `tf.data.Dataset` of a feed."""
    del compression
    import infeed
    import infeed.tensorflow

    def batches() -> Batches:
        with infeed.connect(address, dataset, seed=seed) as feed:
            for batch in infeed.tensorflow.from_generator(feed, label=None):
                yield batch["image"]

    return batches()


def distribute(address: str, dataset: str, compression: str, seed: int) -> Batches:
    """Reads directly from the workers of the tf-data-service engine, with finish transforms."""
    import infeed.tensorflow

    distributed = infeed.tensorflow.distribute(
        address, dataset, seed=seed, compression=compression, label=None
    )
    return (element["image"] for element in distributed)


def service(address: str, dataset: str, compression: str, _: int) -> Batches:
    import tensorflow as tf
    from benchmarks.datasets import BY_NAME

    source = BY_NAME[dataset]()

    def batches() -> Batches:
        distributed = source.apply(
            tf.data.experimental.service.distribute(
                processing_mode=tf.data.experimental.service.ShardingPolicy.OFF,
                service=f"grpc://{address}",
                compression=None if compression == "none" else "AUTO",
            )
        )
        for element in distributed.prefetch(tf.data.AUTOTUNE):
            yield element["image"]

    return batches()


def inprocess(_: str, dataset: str, __: str, ___: int) -> Batches:
    """Runs tf.data in the trainer's own process, on every core."""
    from benchmarks.datasets import BY_NAME

    source = BY_NAME[dataset]()
    return (element["image"] for element in source)


def dataloader(_: str, __: str, ___: str, seed: int) -> Batches:
    """Reads the photos of the Python data set with PyTorch, on the trainer's own host."""
    import torch
    from benchmarks.arrays import BATCH
    from benchmarks.map_style import PROCESSES, CroppedPhotos
    from torch.utils.data import DataLoader

    loader = DataLoader(
        CroppedPhotos(),
        batch_size=BATCH,
        shuffle=True,
        generator=torch.Generator().manual_seed(seed),
        num_workers=PROCESSES,
        persistent_workers=True,
        drop_last=True,
    )

    def batches() -> Batches:
        while True:
            for batch in loader:
                yield batch["image"].numpy()

    return batches()


def torch_workers(_: str, __: str, ___: str, seed: int) -> Batches:
    """Reads photos with PyTorch, in one worker process for each core of the trainer's host.

    One epoch is longer than any run: the end of an epoch would leave the workers idle.
    """
    import torch
    from benchmarks.arrays import BATCH
    from benchmarks.map_style import ResizedPhotos
    from torch.utils.data import DataLoader, RandomSampler

    photos = ResizedPhotos()
    generator = torch.Generator().manual_seed(seed)
    sampler = RandomSampler(photos, num_samples=BATCH * _MANY, generator=generator)
    loader = DataLoader(photos, BATCH, sampler=sampler, num_workers=_cores(), prefetch_factor=4)
    return (batch["image"].numpy() for batch in loader)


def grain_workers(_: str, __: str, ___: str, seed: int) -> Batches:
    """Reads photos with Grain, in one worker process for each core of the trainer's host."""
    import grain
    from absl import flags
    from benchmarks.arrays import BATCH
    from benchmarks.map_style import ResizedPhotos

    flags.FLAGS.mark_as_parsed()  # Grain's workers read them; absl.app.run does the same
    photos = grain.MapDataset.source(ResizedPhotos()).seed(seed).shuffle().repeat().batch(BATCH)
    threads = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
    workers = grain.MultiprocessingOptions(num_workers=_cores())
    elements = iter(photos.to_iter_dataset(threads).mp_prefetch(workers))
    return (element["image"] for element in elements)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def flight(address: str, dataset: str, _: str, __: int) -> Batches:
    from benchmarks.flight import batches

    return batches(address, dataset)


def tcp(address: str, dataset: str, _: str, __: int) -> Batches:
    from benchmarks.tcp import batches

    return batches(address, dataset)


KINDS: dict[str, Consumer] = {
    "infeed": infeed,
    "jax": jax,
    "torch": torch,
    "grain": grain,
    "tensors": tensors,
    "from_generator": from_generator,
    "distribute": distribute,
    "service": service,
    "inprocess": inprocess,
    "dataloader": dataloader,
    "torch_workers": torch_workers,
    "grain_workers": grain_workers,
    "flight": flight,
    "tcp": tcp,
}
