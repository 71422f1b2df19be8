"""The definition of a pipeline, the same in YAML and Python: source, order, transforms, batch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from infeed.spec import MAX_BATCH_SIZE, OnError, Remainder
from infeed_server.config.model import Definition
from infeed_server.order import Mode
from infeed_server.sources import AnySource
from infeed_server.transforms import TransformList

MAX_SEED = (1 << 63) - 1


class Shuffle(Definition):
    """The order of samples.

    `seed` also seeds the augmentation, so it has an effect with `mode: none` too. `block` and
    `window`, in samples, are for `mode: window`: the samples of a window are in a few blocks, so
    reads are near each other, and neighbouring small records are read together.
    """

    mode: Mode = "global"
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    block: Annotated[int, Field(ge=1)] = 1024
    window: Annotated[int, Field(ge=1)] = 16384


class BatchOptions(Definition):
    """The batches of a pipeline.

    `size`: slots in a batch; a trainer may request another size. `remainder`: whether samples at
    the end of the last epoch that fill no batch are dropped, or padded with empty slots.
    """

    size: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]
    remainder: Remainder = "drop"


class Pipeline(Definition):
    """A pipeline that a server can serve.

    `batch` may be left out only for a `dataset` source whose elements are batches already.
    `on_error`: what to do with a sample that cannot be read or transformed; each is written to the
    log `quarantine`, one JSON object a line.
    """

    source: AnySource
    shuffle: Shuffle = Shuffle(mode="none")
    transforms: TransformList = ()
    batch: BatchOptions | None = None
    on_error: OnError = "raise"
    quarantine: str | None = None

    def resolve(self, base: Path) -> Pipeline:
        """Returns the pipeline with its relative paths resolved against a directory."""
        quarantine = self.quarantine and str(base / self.quarantine)
        update = {"source": self.source.resolve(base), "quarantine": quarantine}
        return self.model_copy(update=update)
