"""The plan of a pipeline for the tf.data service, and the variants of its dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, replace

import tensorflow as tf

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Guarantee, PipelineSpec, Remainder, RemainderScope
from infeed_server.pipeline.fingerprint import fingerprint

ENGINE = "tf-data-service"

GRAPH_VERSION = 4
"""Increment it when the elements of the datasets change, or the way they are made."""

_RAM_BUDGET_BYTES = 1 << 30
"""tf.data's memory for elements made in advance. The default is half of the memory of the host that
runs a dataset, but the gateway does not know the workers' hosts."""


@dataclass(frozen=True)
class Variant:
    """The properties of a dataset that a trainer chooses.

    `epochs` 0 is endless. `remainder` applies to the last samples, which do not fill a batch.
    `shard_hint` shards the batches among the workers, as the sharding policy HINT requires.
    """

    batch_size: int
    seed: int
    epochs: int
    remainder: Remainder
    shard_hint: bool = False


@dataclass(frozen=True)
class DataServicePlan:
    """A pipeline that can be registered with a dispatcher.

    `location_hash` identifies the location of the data: unlike the fingerprint, the graph contains
    file names. `sample_count` is None if unknown.
    """

    spec: PipelineSpec
    location_hash: str
    sample_count: int | None
    build: Callable[[Variant], tf.data.Dataset]

    def dataset(self, variant: Variant) -> tf.data.Dataset:
        """Builds the dataset of batches, whose elements are `(fields, metadata)`.

        `fields` holds the fields of the wire spec, [slots, ...]. `metadata` holds `epoch` int64 and
        `mask` bool[slots]; for an indexed source also `start` int64, the first position, and
        `sample_ids` int64[slots], -1 for an empty slot. Raises `InvalidRequestError` for a variant
        that is not available.
        """
        self.spec.check_batch_size(variant.batch_size)
        positions = variant.epochs * (self.sample_count or 0)
        if variant.remainder == "drop" and 0 < positions < variant.batch_size:
            raise InvalidRequestError(
                f"no complete batch: a batch needs {variant.batch_size} samples, and "
                f"{self.spec.name!r} has only {positions}; use smaller batches or "
                'remainder="pad"'
            )
        return self.build(variant)

    def dataset_id(self, variant: Variant, compression: str) -> str:
        """Returns the id under which to register a variant; it changes with any part of it."""
        parts = (GRAPH_VERSION, self.spec.fingerprint, self.location_hash, compression)
        return f"{self.spec.name}-{short_hash(map(repr, (*parts, *astuple(variant))))}"

    def may_mask(self, variant: Variant) -> bool:
        """Returns whether a batch can have empty slots."""
        # A user's dataset of batches may end every epoch with a partial batch.
        ends = bool(variant.epochs) or bool(self.spec.batch_stride)
        return (ends and variant.remainder == "pad") or self.spec.on_error == "mask"


def data_service_spec(
    local: PipelineSpec, batch_stride: int = 0, remainder_scope: RemainderScope = "job"
) -> PipelineSpec:
    """Converts a pipeline's spec on the local engine to its spec on the tf.data service."""
    return replace(
        local,
        guarantee=Guarantee("none", "at_most_once", "none"),
        sample_count=None,
        fingerprint=fingerprint(engine=ENGINE, pipeline=local.fingerprint),
        batch_stride=batch_stride,
        engine="tf_data_service",
        remainder_scope=remainder_scope,
    )


def with_ram_budget(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Limits the memory of a dataset, unless its own options do."""
    if dataset.options().autotune.ram_budget:
        return dataset
    options = tf.data.Options()
    options.autotune.ram_budget = _RAM_BUDGET_BYTES
    return dataset.with_options(options)


def short_hash(texts: Iterable[str]) -> str:
    """Returns a hash of 16 hexadecimal characters, equal in every process."""
    sha256 = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogateescape")
        sha256.update(b"%d:%b" % (len(encoded), encoded))
    return sha256.hexdigest()[:16]
