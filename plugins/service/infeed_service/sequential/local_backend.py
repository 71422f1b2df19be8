"""The local backend: a user's dataset, read in this process and checked for determinism."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Generator
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed.shared.spec import PipelineSpec
from infeed_server.engines.tf_data import RAM_BUDGET_DIVISOR, TfIterator
from infeed_server.processes import cgroup
from infeed_service.sequential.plan import SequentialPlan
from infeed_service.sequential.window import Block, ReadKey

_MAX_READ_KEYS = 64
"""Read keys whose first block is remembered; beyond them, the oldest is forgotten."""


class LocalBackend:
    """A `DatasetBackend` that reads epoch after epoch. Sample ids count from 0 in each epoch."""

    def __init__(self, plan: SequentialPlan) -> None:
        self._plan = plan
        self._first_blocks: OrderedDict[ReadKey, bytes] = OrderedDict()
        """Digests of the first blocks of earlier reads."""
        self._lock = threading.Lock()

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    def read(self, key: ReadKey) -> Generator[Block, None, None]:
        """Yields the elements of the key's number of epochs. Raises `SourceError` and
        `UserCodeError`."""
        plan, position, epoch = self._plan, 0, 0
        try:
            dataset = within_limits(plan.dataset(key.seed, key.slots))
            while not key.epochs or epoch < key.epochs:
                samples = 0
                with contextlib.closing(TfIterator(dataset)) as elements:
                    for number, values in enumerate(elements):
                        label = f"element {number} of epoch {epoch}"
                        rows = _count_rows(plan, values, key.slots, label)
                        length = 1 if plan.batched else rows
                        ids = samples + np.arange(rows)
                        block = Block(position, length, epoch, values, ids)
                        if not position:
                            self._check_first(key, block.to_numpy())
                        yield block
                        position += length
                        samples += rows
                if not samples:
                    raise plan.empty_error()
                epoch += 1
        except tf.errors.OpError as error:
            raise plan.source.explain(error, self.spec.name) from error

    def _check_first(self, key: ReadKey, block: Block) -> None:
        """Detects random draws that the analysis of the dataset missed; reads that begin alike can
        still differ later. Trusts the user's own declaration."""
        if self.spec.guarantee.order == "none" or self._plan.source.deterministic:
            return
        digest = _digest(block)
        with self._lock:
            known = self._first_blocks.setdefault(key, digest)
            if len(self._first_blocks) > _MAX_READ_KEYS:
                self._first_blocks.popitem(last=False)
        if known != digest:
            raise SourceError(
                f"the dataset of {self._plan.source.label} is not deterministic, as infeed "
                "assumed: a second read began with other elements; seed its random operations, or "
                "set deterministic: false",
                pipeline=self.spec.name,
            )


def within_limits(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with budgets for autotuning, unless its options have them. By default
    tf.data counts the host's CPUs and half of its memory, not what a container may use, so
    autotuned buffers can grow until the kernel kills the process."""
    options, own = tf.data.Options(), dataset.options().autotune
    if not own.cpu_budget:
        options.autotune.cpu_budget = cgroup.cpu_count()
    if not own.ram_budget:
        options.autotune.ram_budget = cgroup.memory_bytes() // RAM_BUDGET_DIVISOR
    return dataset.with_options(options)


def _count_rows(plan: SequentialPlan, values: dict[str, Any], slots: int, label: str) -> int:
    """Counts the rows of an element. Raises `SourceError` if they do not fit the slots."""
    counts = {name: int(value.shape[0]) for name, value in values.items()}
    rows = next(iter(counts.values()))
    if rows <= slots and set(counts.values()) == {rows}:
        return rows
    fields = ", ".join(f"{name!r} has {count} rows" for name, count in counts.items())
    raise SourceError(
        f"the dataset of {plan.source.label}: {label} is not a batch of at most {slots} samples: "
        f"{fields}",
        pipeline=plan.spec.name,
    )


def _digest(block: Block) -> bytes:
    result = hashlib.sha256()
    for name, array in sorted(block.arrays.items()):
        data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
        result.update(f"{name} {array.dtype} {array.shape} {len(data)} ".encode() + data)
    return result.digest()
