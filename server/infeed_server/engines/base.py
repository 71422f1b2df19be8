"""What an engine is: it answers requests for batches of one pipeline."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from infeed.errors import InvalidRequestError
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import Array, PipelineSpec, Remainder


@dataclass(frozen=True)
class Trainer:
    """Who opened a stream: rank `rank` of `world_size`. `feed_id` is that of all its streams.

    `job_name` is that of the job of TensorFlow's data service that it takes part in; empty: of one
    of its own. `remainder` None is the pipeline's.
    """

    rank: int = 0
    world_size: int = 1
    feed_id: str = ""
    job_name: str = ""
    remainder: Remainder | None = None


@dataclass(frozen=True)
class Request:
    """The positions [start, start + count) of the stream that `seed` selects, in `slots` slots.

    Data of unknown length is too short for it with fewer than `needs` positions; 0: start + 1.
    Where it ends before `step_end`, the batch says so.
    """

    seed: int
    start: int
    count: int
    slots: int
    needs: int = 0
    step_end: int = 0


@dataclass(frozen=True)
class HostBatch:
    """A batch in memory, in the wire spec: arrays by field, slots first.

    `sample_ids` is int64[slots], -1 where the slot is empty; `mask` is bool[slots].
    `position_count` is that of the data, where it ends before the request's `step_end`.
    """

    start: int
    epoch: int
    arrays: dict[str, Array]
    sample_ids: Array
    mask: Array
    position_count: int | None = None


@dataclass(frozen=True)
class End:
    """The data, which has that many positions, is too short for the request."""

    position_count: int


Answer = HostBatch | End


class Session(Protocol):
    """One stream's access to an engine."""

    def submit(self, request: Request) -> Future[Answer]:
        """Answers a request later. Requests are worked on in order, but may end in any."""

    def weigh(self, size: int) -> None:
        """Says what a batch of the stream takes, in bytes, as it travels.

        The largest that was told counts for each; until one is, few are made ahead.
        """

    def sent(self) -> None:
        """Says that one answer has been sent, so that its memory is free again."""

    def close(self) -> None:
        """Drops what is not answered yet."""


class Engine(Protocol):
    """Serves one pipeline."""

    @property
    def spec(self) -> PipelineSpec: ...

    def open(self, slots: int, epochs: int, trainer: Trainer) -> Session:
        """A stream of batches of that many slots; `epochs` 0 is endless."""

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        """The pipeline as a data set of TensorFlow's data service; the same for the same request.

        Raises `InvalidRequestError` where the engine makes the batches itself.
        """

    def warm(self) -> None:
        """Makes the first batch of the default size, so that the first trainer need not wait.

        Raises what a stream would: `SampleError`, `UserCodeError`.
        """

    def queued_requests(self) -> int:
        """Requests that nobody works on yet."""

    def unsent_batches(self) -> int:
        """Batches that are being made, or are made and not sent yet."""

    def unsent_bytes(self) -> int:
        """What these take, as they travel."""

    def window_bytes(self) -> int:
        """What is kept of a dataset that is read front to back, for ranks that lie behind."""

    def close(self) -> None:
        """Ends all work; pending requests fail with `ServerUnavailableError`."""


def made_here(pipeline: str, what: str) -> InvalidRequestError:
    """The refusal of what only pipelines on TensorFlow's data service have."""
    return InvalidRequestError(
        f"{pipeline!r} has no {what}: this server makes its batches itself, with the local engine; "
        "read it with infeed.connect(...), or start the server with --engine tf-data-service",
        pipeline=pipeline,
    )


__all__ = ["Answer", "End", "Engine", "HostBatch", "Request", "Session", "Trainer", "made_here"]
