"""A pipeline as a data set of TensorFlow's data service: the request, and the registration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from infeed.shared.spec import Remainder
from infeed.shared.spec.messages import from_message, optional_enum_name, to_message
from infeed.transport import Transport
from infeed.v1 import feed_service_pb2, spec_pb2

Compression = Literal["none", "snappy", "auto"]
"""Compression of elements sent by the workers; "auto" compresses unless TensorFlow detects that
worker and trainer share a host."""

COMPRESSIONS = get_args(Compression)


@dataclass(frozen=True)
class DatasetRequest:
    """A request for a data set; `RegisterDatasetRequest` documents the fields."""

    pipeline: str
    fingerprint: str = ""
    batch_size: int | None = None
    seed: int | None = None
    epochs: int = 0
    remainder: Remainder | None = None
    compression: Compression | None = None
    shard_hint: bool = False

    def to_proto(self) -> feed_service_pb2.RegisterDatasetRequest:
        return to_message(feed_service_pb2.RegisterDatasetRequest, self)

    @classmethod
    def from_proto(cls, message: feed_service_pb2.RegisterDatasetRequest) -> DatasetRequest:
        """Converts a message. Raises `InvalidRequestError` for an unknown enum value."""
        return from_message(
            cls,
            message,
            batch_size=message.batch_size or None,
            remainder=optional_enum_name(spec_pb2.Remainder, message.remainder),
            compression=optional_enum_name(feed_service_pb2.Compression, message.compression),
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
        return to_message(feed_service_pb2.RegisterDatasetResponse, self)

    @classmethod
    def from_proto(cls, message: feed_service_pb2.RegisterDatasetResponse) -> RegisteredDataset:
        return from_message(cls, message)


def register(
    transport: Transport, request: DatasetRequest, timeout: float = 20.0
) -> RegisteredDataset:
    """Registers a data set at a server. Raises `InvalidRequestError` and `FingerprintError`."""
    answer = transport.call("RegisterDataset", request.to_proto(), timeout)
    return RegisteredDataset.from_proto(answer)
