"""Capabilities of some engines: an order of samples that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.segment import Lineage
from infeed.v1 import feed_service_pb2 as service
from infeed_server.engines.base import Engine, RunKey
from infeed_server.order import Order


@runtime_checkable
class RandomAccess(Protocol):
    """An engine whose samples are read by index, in an order that is arithmetic."""

    @property
    def spec(self) -> PipelineSpec: ...

    def order(self, seed: int, lineage: Lineage = ()) -> Order:
        """Returns the order of a run. Raises `InvalidRequestError` for segments that the pipeline
        cannot have."""

    def describe_slots(self, run: RunKey, positions: range, draws: bool) -> Iterator[service.Slot]:
        """Yields what positions of a run have; `draws`: with what random transforms draw, for
        which the samples are read. Raises as `order` does."""

    def find_sample(self, run: RunKey, sample: str, epochs: int) -> service.FindSampleResponse:
        """Returns where a sample is in so many epochs of a run, by index, file or label. Raises
        `SampleNotFoundError`, and as `order` does."""

    def bad_samples(self) -> list[dict[str, Any]]:
        """Returns the last bad samples for JSON, the last one first."""

    def provenance(self, sample_id: int) -> tuple[str | None, int | None]:
        """Returns the file of a sample and its offset there in bytes; None where unknown."""


def random_access(engine: Engine) -> RandomAccess:
    """Returns the engine. Raises `InvalidRequestError` where its order is not known."""
    if isinstance(engine, RandomAccess):
        return engine
    raise InvalidRequestError(
        f"pipeline {engine.spec.name!r} has no random access, so the samples at its positions "
        "are not known; use an indexed source on the local engine",
        pipeline=engine.spec.name,
    )


def requires_other_engine(engine: Engine, what: str) -> InvalidRequestError:
    """Returns the error for something that a trainer asked for, and the engine does not have."""
    return InvalidRequestError(
        f"{engine.spec.name!r} has no {what}: this server makes its batches itself, with the local "
        "engine; read it with infeed.connect(...), or start the server with an --engine that has "
        "them",
        pipeline=engine.spec.name,
    )
