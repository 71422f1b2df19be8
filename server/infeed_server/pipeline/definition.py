"""The definition of a pipeline, the same in YAML and Python: source, order, transforms, batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from infeed.shared.spec import MAX_BATCH_SIZE, OnError, Remainder
from infeed_server.config.model import Definition
from infeed_server.order import MAX_SEED, Mode
from infeed_server.sources import AnySource
from infeed_server.transforms import Cache, TransformList


class Shuffle(Definition):
    """The order of samples.

    With `mode: window` the samples of a window are in a few blocks, so reads are near each other,
    and neighbouring small records are read together.
    """

    mode: Mode = "global"
    """How the samples of an epoch are permuted: see below."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """Seed of the order and of every random transform; a trainer may choose another."""
    block: Annotated[int, Field(ge=1, lt=1 << 63)] = 1024
    """With `mode: window`: consecutive samples that stay together."""
    window: Annotated[int, Field(ge=1, lt=1 << 63)] = 16384
    """With `mode: window`: positions within which samples are mixed."""


class BatchOptions(Definition):
    """The batches of a pipeline."""

    size: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]
    """Slots of a batch; a trainer may choose another size."""
    remainder: Remainder = "drop"
    """At the end of the last epoch: drop the samples that do not fill a batch on every rank, or pad
    with empty slots; a trainer may choose the other."""


def _with_size(value: Any) -> Any:
    return {"size": value} if type(value) is int else value


def _with_store(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("should be auto, or a mapping such as {store: auto, budget: 8GiB}")
    return {"store": value} if isinstance(value, str) else value


def _is_auto(cache: Cache | None) -> Cache | None:
    if cache is not None and cache.store != "auto":
        place = f"put a cache with store: {cache.store} into transforms, at its place"
        raise ValueError(f"it is auto, or {{store: auto, budget: 8GiB}}; {place}")
    return cache


class Pipeline(Definition):
    """A pipeline that a server can serve."""

    source: AnySource
    """Source of the samples, which one of its keys selects."""
    shuffle: Shuffle = Shuffle(mode="none")
    """Order of the samples."""
    transforms: TransformList = ()
    """Steps on each sample, applied in this order."""
    cache: Annotated[Cache | None, BeforeValidator(_with_store), AfterValidator(_is_auto)] = None
    """`auto`: a cache where it pays, see [cache](#cache); `{store: auto, budget: 8GiB}` bounds it.
    A cache at a place of your choice is one of the transforms."""
    batch: Annotated[BatchOptions | None, BeforeValidator(_with_size)] = None
    """Batch options, or the size alone; required unless the elements of a `dataset` are batches."""
    on_error: OnError = "raise"
    """Treatment of bad samples, which cannot be read or transformed."""
    quarantine: str | None = None
    """Path of the log of bad samples, one JSON object per line; the default is
    `quarantine/NAME.jsonl` in the working directory."""

    def resolve(self, base: Path) -> Pipeline:
        """Returns the pipeline with its relative paths resolved against a directory."""
        quarantine = self.quarantine and str(base / self.quarantine)
        update = {
            "source": self.source.resolve(base),
            "quarantine": quarantine,
            "cache": self.cache and self.cache.resolve(base),
            "transforms": tuple(
                step.resolve(base) if isinstance(step, Cache) else step for step in self.transforms
            ),
        }
        return self.model_copy(update=update)
