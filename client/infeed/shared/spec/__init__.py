"""Pipeline specs: fields, guarantees and targets, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.dtypes import BYTES as BYTES
from infeed.shared.spec.dtypes import DATA_TYPES as DATA_TYPES
from infeed.shared.spec.dtypes import Array as Array
from infeed.shared.spec.dtypes import numpy_dtype as numpy_dtype
from infeed.shared.spec.dtypes import shared_range as shared_range
from infeed.shared.spec.finish_transforms import NOISE_FACTORS as NOISE_FACTORS
from infeed.shared.spec.finish_transforms import Cast as Cast
from infeed.shared.spec.finish_transforms import Drawing as Drawing
from infeed.shared.spec.finish_transforms import Elementwise as Elementwise
from infeed.shared.spec.finish_transforms import Erase as Erase
from infeed.shared.spec.finish_transforms import FinishTransform as FinishTransform
from infeed.shared.spec.finish_transforms import MixPairs as MixPairs
from infeed.shared.spec.finish_transforms import Normalize as Normalize
from infeed.shared.spec.finish_transforms import OneHot as OneHot
from infeed.shared.spec.finish_transforms import changed_fields as changed_fields
from infeed.shared.spec.finish_transforms import finish_from_proto as finish_from_proto
from infeed.shared.spec.finish_transforms import finish_to_proto as finish_to_proto
from infeed.shared.spec.finish_transforms import read_fields as read_fields
from infeed.shared.spec.messages import from_message, to_message
from infeed.shared.spec.segment import Lineage, lineage_from_proto, lineage_to_proto
from infeed.v1 import spec_pb2

Remainder = Literal["drop", "pad"]
OnError = Literal["raise", "substitute", "mask"]
FinishPlacement = Literal["trainer", "server", "none"]
"""Where the finish transforms run; "none": the consumer of the feed runs them."""
RemainderScope = Literal["job", "worker"]
"""The data that leaves one remainder: the whole job's, or each worker's."""

MAX_JOB_NAME_LENGTH = 128
"""Characters."""

MAX_BATCH_SIZE = 1 << 17
"""Slots of a batch at most: its header (13 bytes a slot) stays below gRPC's default of 4 MiB."""


@dataclass(frozen=True)
class FieldSpec:
    """One field of a sample: name, data type and shape (without the slots dimension)."""

    name: str
    data_type: str
    shape: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements in one sample."""
        return math.prod(self.shape)

    @property
    def sample_bytes(self) -> int | None:
        """Bytes of one sample; None for byte strings, whose length varies."""
        if self.data_type == BYTES:
            return None
        return self.elements * numpy_dtype(self.data_type).itemsize

    def zeros(self, slots: int) -> Array:
        """Returns an array of empty slots: zeros, or empty strings."""
        empty: Any = b"" if self.data_type == BYTES else 0
        return np.full((slots, *self.shape), empty, dtype=numpy_dtype(self.data_type))

    def __str__(self) -> str:
        return f"{self.name}: {self.data_type}{list(self.shape)}"

    def to_proto(self) -> spec_pb2.FieldSpec:
        return to_message(spec_pb2.FieldSpec, self)

    @classmethod
    def from_proto(cls, message: spec_pb2.FieldSpec) -> FieldSpec:
        return from_message(cls, message)


Spec: TypeAlias = tuple[FieldSpec, ...]
"""The fields of a batch, in order."""


@dataclass(frozen=True)
class Guarantee:
    """A pipeline's guarantees of order, delivery and resuming."""

    order: Literal["deterministic", "none"] = "deterministic"
    delivery: Literal["exactly_once", "at_most_once"] = "exactly_once"
    resume: Literal["constant_time", "replay", "none"] = "constant_time"

    @property
    def has_random_access(self) -> bool:
        """Whether any server can make any batch at any time, bit-identical."""
        return self.resume == "constant_time"

    @property
    def can_resume(self) -> bool:
        """Whether a run can continue at a position."""
        return self.resume != "none"

    def __str__(self) -> str:
        words = (f"{self.order} order", f"{self.delivery} delivery", f"{self.resume} resume")
        return ", ".join(words).replace("_", " ").replace("none ", "no ")


def part_numbers(parts: Mapping[str, int], sample_ids: Array) -> Array:
    """Returns the number of each sample's part, int64; -1 for an empty slot. Samples are numbered
    part by part."""
    ends = np.cumsum([*parts.values()])
    numbers: Array = np.searchsorted(ends, sample_ids, side="right").astype(np.int64)
    numbers[np.asarray(sample_ids) < 0] = -1
    return numbers


def parts_of(parts: Mapping[str, int], sample_ids: Array) -> Array:
    """Returns the name of each sample's part, empty for a sample without one."""
    names: Array = np.array([*parts, ""])[part_numbers(parts, sample_ids)]
    return names


@dataclass(frozen=True)
class TargetSpec:
    """What a field shows of a picture, as spec.proto documents it."""

    field: str
    picture: str
    kind: str
    format: str = ""
    normalized: bool = False


@dataclass(frozen=True)
class PipelineSpec:
    """A served pipeline as `GetPipeline` describes it; spec.proto documents the fields."""

    name: str
    element_spec: Spec
    wire_spec: Spec
    finish_transforms: tuple[FinishTransform, ...]
    sample_count: int | None
    fingerprint: str
    guarantee: Guarantee
    batch_size: int
    seed: int
    remainder: Remainder
    on_error: OnError
    batch_stride: int = 0
    server_version: str = ""
    engine: str = "local"
    remainder_scope: RemainderScope = "job"
    source_kind: str = ""
    shuffle_mode: str = ""
    lineage: Lineage = ()
    """The segments of a run from its beginning on, where the definition skips steps or
    removes samples."""
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    parts: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The parts of a mixture, and the samples of each, which are numbered part by part."""
    targets: tuple[TargetSpec, ...] = field(default=(), compare=False)

    @property
    def is_remote(self) -> bool:
        """Whether processes other than the server make the batches, in no fixed order."""
        return self.engine != "local"

    def stride(self, batch_size: int) -> int:
        """Returns the number of positions from one batch to the next, for a batch size."""
        return self.batch_stride or batch_size

    def check_batch_size(self, size: int) -> None:
        """Raises `InvalidRequestError` for a batch size that the pipeline cannot make."""
        if self.batch_stride and size != self.batch_size:
            raise InvalidRequestError(
                f"batch size {size} is not available: the dataset of {self.name!r} makes batches "
                f"of {self.batch_size}",
                batch_size=size,
            )

    def to_proto(self) -> spec_pb2.Pipeline:
        return to_message(
            spec_pb2.Pipeline,
            self,
            element_spec=[spec.to_proto() for spec in self.element_spec],
            wire_spec=[spec.to_proto() for spec in self.wire_spec],
            finish_transforms=[finish_to_proto(t) for t in self.finish_transforms],
            guarantee=to_message(spec_pb2.Guarantee, self.guarantee),
            lineage=lineage_to_proto(self.lineage) if self.lineage else None,
            classes=[
                spec_pb2.FieldClasses(field=name, names=names)
                for name, names in self.classes.items()
            ],
            parts=[spec_pb2.Part(name=name, samples=n) for name, n in self.parts.items()],
            targets=[to_message(spec_pb2.Target, target) for target in self.targets],
        )

    @classmethod
    def from_proto(cls, message: spec_pb2.Pipeline) -> PipelineSpec:
        return from_message(
            cls,
            message,
            {"engine": "local", "remainder_scope": "job"},
            element_spec=tuple(FieldSpec.from_proto(spec) for spec in message.element_spec),
            wire_spec=tuple(FieldSpec.from_proto(spec) for spec in message.wire_spec),
            finish_transforms=tuple(finish_from_proto(t) for t in message.finish_transforms),
            guarantee=from_message(Guarantee, message.guarantee),
            lineage=lineage_from_proto(message.lineage),
            classes={classes.field: tuple(classes.names) for classes in message.classes},
            parts={part.name: part.samples for part in message.parts},
            targets=tuple(from_message(TargetSpec, target) for target in message.targets),
        )
