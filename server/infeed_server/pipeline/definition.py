"""What a pipeline is: source, order, transforms, batch. YAML and Python make the same thing."""

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

    `seed` also drives the augmentation, so it counts under `mode: none` too. `block` and
    `window`, in samples, belong to `mode: window`: samples of one window lie in a few blocks, so
    reads stay near each other, and neighbouring small records are read together.
    """

    mode: Mode = "global"
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    block: Annotated[int, Field(ge=1)] = 1024
    window: Annotated[int, Field(ge=1)] = 16384


class BatchOptions(Definition):
    """How samples are put together.

    `size` slots in a batch, which a trainer may ask to be another. `remainder` says what becomes
    of the samples at the end of the last epoch that fill no batch: dropped, or padded with empty
    slots.
    """

    size: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]
    remainder: Remainder = "drop"


class Pipeline(Definition):
    """A pipeline that a server can serve.

    `batch` may be left out only for a `dataset` source whose elements are batches already.
    `on_error` says what becomes of a sample that cannot be read or transformed; each is written
    to the log `quarantine`, one JSON object a line.
    """

    source: AnySource
    shuffle: Shuffle = Shuffle(mode="none")
    transforms: TransformList = ()
    batch: BatchOptions | None = None
    on_error: OnError = "raise"
    quarantine: str | None = None

    def resolve(self, base: Path) -> Pipeline:
        """The same pipeline with relative paths taken from a directory, such as the YAML file's."""
        quarantine = self.quarantine and str(base / self.quarantine)
        update = {"source": self.source.resolve(base), "quarantine": quarantine}
        return self.model_copy(update=update)
