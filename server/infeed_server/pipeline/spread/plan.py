"""A pipeline that is spread over the workers of the tf.data service, and its variants."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace

import tensorflow as tf

from infeed.errors import InvalidRequestError
from infeed.spec import Guarantee, PipelineSpec, Remainder
from infeed_server.pipeline.fingerprint import fingerprint

ENGINE = "tf-data-service"

GRAPH_VERSION = 3
"""Counted up when the elements of the datasets, or the way they are made, change."""

MOST_POSITIONS = 1 << 61
"""More than anyone reads."""

_RAM_BUDGET = 1 << 30
"""Bytes that tf.data may fill with what it makes ahead. It would take half of the memory of the
host that runs a dataset, and the one who registers it does not know the workers' hosts."""


@dataclass(frozen=True)
class Variant:
    """What of a dataset a trainer chooses.

    `epochs` 0 never ends. `remainder` says what becomes of the samples at the end that fill no
    batch. `hint`: the batches are shared out among the workers, which the sharding policy HINT
    alone makes possible.
    """

    batch_size: int
    seed: int
    epochs: int
    remainder: Remainder
    hint: bool = False


@dataclass(frozen=True)
class SpreadPlan:
    """A pipeline, ready to be registered.

    `location` is a short hash of where the data lies: the graph names files, and the fingerprint
    does not. `sample_count` is None where nobody knows it.
    """

    spec: PipelineSpec
    location: str
    sample_count: int | None
    make: Callable[[Variant], tf.data.Dataset]

    def dataset(self, variant: Variant) -> tf.data.Dataset:
        """The dataset of ready batches, `(fields, about)`.

        `fields`: those of the wire spec, [slots, ...]. `about`: `epoch` int64 and `mask`
        bool[slots], and of an indexed source `start` int64, the first position, and `sample_ids`
        int64[slots], -1 for an empty slot. Raises `InvalidRequestError` for a batch size that
        cannot be had.
        """
        self._check(variant)
        return self.make(variant)

    def dataset_id(self, variant: Variant, compression: str) -> str:
        """The name to register it under: another one whenever anything about it differs."""
        parts = (GRAPH_VERSION, self.spec.fingerprint, self.location, compression)
        return f"{self.spec.name}-{digest(map(repr, (*parts, *astuple(variant))))}"

    def may_mask(self, variant: Variant) -> bool:
        """Whether a batch can have empty slots."""
        # A data set whose elements are batches may end every epoch with one that is not full.
        ends = bool(variant.epochs) or bool(self.spec.batch_stride)
        return (ends and variant.remainder == "pad") or self.spec.on_error == "mask"

    def _check(self, variant: Variant) -> None:
        size, spec, count = variant.batch_size, self.spec, self.sample_count
        if spec.batch_stride and size != spec.batch_size:
            raise InvalidRequestError(
                f"the dataset of {spec.name!r} makes batches of {spec.batch_size}, so {size} "
                "cannot be had",
                batch_size=size,
            )
        if not spec.batch_stride and count is not None and size > count:
            raise InvalidRequestError(
                f"batch size {size} is larger than the data set of {spec.name!r}, which has "
                f"{count} samples",
                batch_size=size,
                sample_count=count,
            )
        if count is not None and variant.epochs * count > MOST_POSITIONS:
            raise InvalidRequestError(
                f"{variant.epochs} epochs of the {count} samples of {spec.name!r} are more than "
                "can be counted; 0 epochs never end",
                epochs=variant.epochs,
            )


def spread_spec(local: PipelineSpec, batch_stride: int = 0) -> PipelineSpec:
    """What trainers are told, from what they are told of the same pipeline on the local engine."""
    return replace(
        local,
        guarantee=Guarantee("none", "at_most_once", "none"),
        sample_count=None,
        fingerprint=fingerprint(engine=ENGINE, pipeline=local.fingerprint),
        batch_stride=batch_stride,
        engine="tf_data_service",
    )


def bounded(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset with a bound on its memory, unless its options have one."""
    if dataset.options().autotune.ram_budget:
        return dataset
    options = tf.data.Options()
    options.autotune.ram_budget = _RAM_BUDGET
    return dataset.with_options(options)


def digest(texts: Iterable[str]) -> str:
    """Texts as 16 hexadecimal characters, the same in every process."""
    whole = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogateescape")
        whole.update(b"%d:%b" % (len(encoded), encoded))
    return whole.hexdigest()[:16]
