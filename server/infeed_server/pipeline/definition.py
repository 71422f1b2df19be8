"""The definition of a pipeline, the same in YAML and Python: source, order, transforms, batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from infeed.shared.errors import ConfigError
from infeed.shared.spec import MAX_BATCH_SIZE, OnError, Remainder
from infeed.shared.spec.segment import MAX_SEGMENTS
from infeed_server.config.model import Definition, as_tuple
from infeed_server.order import MAX_SEED, Mode
from infeed_server.sources.base import ProgressCallback, Source
from infeed_server.sources.beside import HasSource
from infeed_server.sources.registry import AddedSource, AnySource, open_sources
from infeed_server.storage.files import PathString, rebase
from infeed_server.transforms import TransformList
from infeed_server.transforms.targets import Targets

MAX_STEP = 1 << 40
"""Greatest step of a range that is skipped: its position is a 64-bit integer."""


def _needs_global(order: str, info: ValidationInfo) -> str:
    if order == "stable" and info.data.get("mode", "global") != "global":
        raise ValueError(
            f"should be left out with mode: {info.data['mode']}, which has no stable order"
        )
    return order


class Shuffle(Definition):
    """The order of samples.

    With `mode: window`, the samples of a window come from a few blocks, so reads are close to each
    other, and neighbouring small records are read together.
    """

    mode: Literal["global", "window", "none"] = "global"
    """How the samples of an epoch are permuted: see below."""
    order: Annotated[Literal["permuted", "stable"], AfterValidator(_needs_global)] = "permuted"
    """With `mode: global`: `stable` changes at most one slot of an epoch for each added sample. It
    takes 16 bytes of memory per sample and epoch; `permuted` takes none."""
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    """Seed of the order and of every random transform; a trainer may choose another."""
    block: Annotated[int, Field(ge=1, lt=1 << 63)] = 1024
    """With `mode: window`: consecutive samples that stay together."""
    window: Annotated[int, Field(ge=1, lt=1 << 63)] = 16384
    """With `mode: window`: positions within which samples are mixed."""

    @property
    def order_mode(self) -> Mode:
        """The mode of the sample order."""
        return "stable" if self.order == "stable" else self.mode


SampleName = Annotated[int, Field(ge=0)] | Annotated[str, Field(min_length=1)]
"""The id of a sample, or the end of its file's path."""


def _as_samples(value: Any) -> Any:
    """Returns a list as a tuple. Raises `ValueError` for what is neither a path nor a list."""
    if not isinstance(value, str | Path | list | tuple):
        raise ValueError("should be a path, or a list of samples such as [48120, cat/7.jpg]")
    return as_tuple(value)


class Remove(Definition):
    """The samples that a pipeline removes."""

    samples: Annotated[PathString | tuple[SampleName, ...], BeforeValidator(_as_samples)]
    """Ids and file names, or the path of a text file with one per line, followed by ` # ` and the
    reason. A name is the end of a sample's file path, from any folder on; in double quotes it may
    contain ` # `. Add new entries at the end: runs count them."""
    then: Literal["substitute", "shrink"] = "substitute"
    """What fills their slots: another sample, chosen by the removed one's key, so that all other
    slots stay bit-identical; or `shrink`: epochs become shorter, and their last samples fill the
    holes."""

    def resolve(self, base: Path) -> Remove:
        """Returns the same with a relative path resolved against a directory."""
        return self.model_copy(update={"samples": rebase(self.samples, base)})


class BatchOptions(Definition):
    """The batches of a pipeline."""

    size: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]
    """Slots of a batch; a trainer may choose another size."""
    remainder: Remainder = "drop"
    """At the end of the last epoch, drop the samples that do not fill a batch on every rank, or pad
    with empty slots; a trainer may override it."""

    def check(self, sample_count: int) -> None:
        """Raises `ConfigError` if an epoch has no batch."""
        if self.remainder == "drop" and self.size > sample_count:
            raise ConfigError(
                f"{self.size} is larger than the data set, which has {sample_count} samples; use a "
                f"smaller size, or batch: {{size: {self.size}, remainder: pad}} to fill a batch "
                "with empty slots",
                at=("batch", "size"),
            )


def _with_size(value: Any) -> Any:
    return {"size": value} if type(value) is int else value


def with_samples(value: Any) -> Any:
    """Returns the value of `remove` as a mapping."""
    return value if isinstance(value, dict | Remove | None) else {"samples": value}


def _in_order(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if len(ranges) >= MAX_SEGMENTS:
        raise ValueError(f"should be at most {MAX_SEGMENTS - 1} ranges")
    end = 0
    for first, last in ranges:
        if not end <= first < last:
            raise ValueError(
                f"should be ranges [first, end] in order and without overlap; [{first}, {last}] "
                + ("is empty" if first >= last else f"begins before {end}")
            )
        end = last
    return ranges


def _as_range(value: Any) -> Any:
    """Returns a list as a tuple. Raises `ValueError` for what has no two ends."""
    if not (isinstance(value, list | tuple) and len(value) == 2):
        raise ValueError("should be a range of steps such as [48000, 48100]")
    return tuple(value)


RemoveOption = Annotated[Remove | None, BeforeValidator(with_samples)]

Step = Annotated[int, Field(ge=0, le=MAX_STEP)]

StepRanges = Annotated[
    tuple[Annotated[tuple[Step, Step], BeforeValidator(_as_range)], ...],
    BeforeValidator(as_tuple),
    AfterValidator(_in_order),
    Field(examples=["[[48000, 48100]]"]),
]


class Pipeline(HasSource):
    """A pipeline that a server can serve."""

    source: AnySource
    """Source of the samples; one of its keys selects the kind."""
    add: Annotated[
        tuple[AddedSource, ...],
        BeforeValidator(as_tuple),
        Field(examples=["[{images: data/more}]"]),
    ] = ()
    """More sources with the same columns, whose samples follow those of the first."""
    remove: RemoveOption = None
    """Samples to leave out: the path of a file, a list of ids and file names, or [more
    options](samples.md#removed-samples)."""
    skip: StepRanges = ()
    """Ranges of steps to leave out, `[[first, end], ...]`, numbered as in a run without `skip`, in
    steps of `batch.size` samples over all ranks. Their samples return in the next epoch."""
    shuffle: Shuffle = Shuffle(mode="none")
    """Order of the samples."""
    transforms: TransformList = ()
    """Steps on each sample, applied in this order."""
    targets: Annotated[Targets, Field(examples=["{boxes: boxes}"])] = {}  # noqa: RUF012 - immutable
    """Fields that belong to a picture, `{mask: mask, boxes: {boxes: xyxy}, points: keypoints}`: a
    transform that moves the picture moves these [targets](targets.md) by the same draw."""
    batch: Annotated[BatchOptions | None, BeforeValidator(_with_size)] = None
    """Batch options, or the size alone; required unless the elements of a `dataset` are batches."""
    on_error: OnError = "raise"
    """Treatment of bad samples, which cannot be read or transformed."""
    quarantine: str | None = None
    """Path of the log of bad samples, one JSON object per line; the default is
    `quarantine/NAME.jsonl` in the working directory."""

    def linked(self, pipelines: Mapping[str, Pipeline]) -> Pipeline:
        """Returns the pipeline linked with the others that its source names. Raises
        `ConfigError`."""
        return self.model_copy(update={"source": self.source.linked(pipelines)})

    def resolve(self, base: Path) -> Pipeline:
        """Returns the pipeline with its relative paths resolved against a directory."""
        quarantine = self.quarantine and str(base / self.quarantine)
        update = {
            "source": self.source.resolve(base),
            "add": tuple(source.resolve(base) for source in self.add),
            "remove": self.remove and self.remove.resolve(base),
            "quarantine": quarantine,
            "transforms": tuple(step.resolve(base) for step in self.transforms),
        }
        return self.model_copy(update=update)

    def open(self, progress: ProgressCallback | None = None) -> Source:
        """Opens the source and the added ones. Raises `SourceError` and `ConfigError`. A file that
        ends within a record is an error here, unless bad samples are tolerated."""
        keep_damaged = self.on_error != "raise"
        return open_sources((self.source, *self.add), progress, keep_damaged=keep_damaged)
