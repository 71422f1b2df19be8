"""Capabilities of some engines: a known order of samples."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.segment import Lineage
from infeed_server.engines.base import Engine
from infeed_server.order import RunOrder


@runtime_checkable
class RandomAccess(Protocol):
    """An engine whose samples are read by index, in an order that is arithmetic."""

    @property
    def spec(self) -> PipelineSpec: ...

    def order(self, seed: int, lineage: Lineage = ()) -> RunOrder:
        """Returns the order of a run. Raises `InvalidRequestError` for segments that the pipeline
        cannot have."""

    def bad_samples(self) -> list[dict[str, Any]]:
        """Returns the latest bad samples for JSON, newest first."""

    def provenance(self, sample_id: int) -> tuple[str | None, int | None]:
        """Returns the file of a sample and its offset there in bytes; None where unknown."""


def random_access(engine: Engine) -> RandomAccess:
    """Returns the engine. Raises `InvalidRequestError` if its order is unknown."""
    if isinstance(engine, RandomAccess):
        return engine
    raise InvalidRequestError(
        f"pipeline {engine.spec.name!r} has no random access, so the samples at its positions "
        "are not known; use an indexed source on the local engine",
        pipeline=engine.spec.name,
    )


def requires_other_engine(engine: Engine, what: str) -> InvalidRequestError:
    """Returns the error for a feature that a trainer requests and the engine lacks."""
    return InvalidRequestError(
        f"pipeline {engine.spec.name!r} has no {what}, because this server uses the local engine; "
        "read it with infeed.connect(...), or start the server with another --engine",
        pipeline=engine.spec.name,
    )
