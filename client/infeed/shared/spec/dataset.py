"""A pipeline as a data set of TensorFlow's data service: the request, and the registration."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec.dtypes import enum_name
from infeed.shared.spec.pipeline import Remainder
from infeed.v1 import feed_service_pb2, spec_pb2

Compression = Literal["none", "snappy", "auto"]
"""Compression of elements on their way from the workers; "auto": unless TensorFlow detects that
worker and trainer share a host."""

COMPRESSIONS = get_args(Compression)

MAX_JOB_NAME_LENGTH = 128
"""Characters."""


@dataclass(frozen=True)
class DatasetRequest:
    """Request for a data set; None and an `epochs` of 0 mean what `RegisterDatasetRequest` says."""

    pipeline: str
    fingerprint: str = ""
    batch_size: int | None = None
    seed: int | None = None
    epochs: int = 0
    remainder: Remainder | None = None
    compression: Compression | None = None
    shard_hint: bool = False

    def to_proto(self) -> feed_service_pb2.RegisterDatasetRequest:
        return feed_service_pb2.RegisterDatasetRequest(
            pipeline=self.pipeline,
            fingerprint=self.fingerprint,
            batch_size=self.batch_size or 0,
            seed=self.seed,
            epochs=self.epochs,
            remainder=f"REMAINDER_{(self.remainder or 'unspecified').upper()}",
            compression=f"COMPRESSION_{(self.compression or 'unspecified').upper()}",
            shard_hint=self.shard_hint,
        )

    @classmethod
    def from_proto(cls, message: feed_service_pb2.RegisterDatasetRequest) -> DatasetRequest:
        """Converts a message. Raises `InvalidRequestError` for an unknown enum value."""
        return cls(
            pipeline=message.pipeline,
            fingerprint=message.fingerprint,
            batch_size=message.batch_size or None,
            seed=message.seed if message.HasField("seed") else None,
            epochs=message.epochs,
            remainder=optional_enum_name(spec_pb2.Remainder, message.remainder, "REMAINDER_"),
            compression=optional_enum_name(
                feed_service_pb2.Compression, message.compression, "COMPRESSION_"
            ),
            shard_hint=message.shard_hint,
        )


@dataclass(frozen=True)
class RegisteredDataset:
    """A registered data set; `RegisterDatasetResponse` documents the fields."""

    dispatcher_address: str
    dataset_id: str
    tensorflow_version: str
    seed: int
    batch_size: int
    may_mask: bool
    lost_workers: tuple[str, ...] = ()

    def to_proto(self) -> feed_service_pb2.RegisterDatasetResponse:
        return feed_service_pb2.RegisterDatasetResponse(**vars(self))

    @classmethod
    def from_proto(cls, message: feed_service_pb2.RegisterDatasetResponse) -> RegisteredDataset:
        values = {field.name: getattr(message, field.name) for field in fields(cls)}
        return cls(**{**values, "lost_workers": tuple(message.lost_workers)})


def optional_enum_name(enum: Any, value: int, prefix: str) -> Any:
    """Returns the name of an enum value without its prefix; None for the unspecified one.

    Raises `InvalidRequestError` for an unknown value.
    """
    if value not in enum.values():
        name = enum.DESCRIPTOR.name.lower()
        raise InvalidRequestError(f"unknown {name} {value}", **{name: value})
    return enum_name(enum, value, prefix) if value else None
