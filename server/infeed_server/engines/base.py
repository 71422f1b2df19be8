"""The engine interface: an engine answers requests for batches of one pipeline."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infeed.shared.errors import ServerUnavailableError
from infeed.shared.spec import Array, PipelineSpec, Remainder
from infeed.shared.spec.segment import Lineage
from infeed.wire.batch import Payload
from infeed_server.engines.figures import Figures
from infeed_server.engines.memory_budget import MemoryBudget, StreamQuota

if TYPE_CHECKING:
    from infeed.shared.telemetry.batch_span import BatchSpan


@dataclass(frozen=True)
class Trainer:
    """The peer of a stream: rank `rank` of `world_size`. All its streams have the same `feed_id`.
    `job_name` is the job that the trainer joins, if the engine has jobs; empty: its own.
    `remainder` None means the pipeline's."""

    rank: int = 0
    world_size: int = 1
    feed_id: str = ""
    job_name: str = ""
    remainder: Remainder | None = None


RunKey = tuple[int, Lineage]
"""The seed of a run, and its segments."""


@dataclass(frozen=True)
class Request:
    """The positions [start, start + count) of the stream under `seed`, in `slots` slots. The answer
    is `EndOfData` if data of unknown length has fewer than `min_position_count` positions (0: start
    + 1). If the data ends before `step_end`, the batch states its length."""

    seed: int
    start: int
    count: int
    slots: int
    min_position_count: int = 0
    step_end: int = 0
    lineage: Lineage = ()
    """The segments of the run; empty: its definition alone."""
    span: BatchSpan | None = field(default=None, compare=False)
    """The span of the batch, if it is traced."""

    @property
    def run(self) -> RunKey:
        """What the samples at the positions depend on."""
        return self.seed, self.lineage


@dataclass(frozen=True)
class HostBatch:
    """A batch in memory, in the wire spec: arrays by field, slots first. `sample_ids` is
    int64[slots], -1 in an empty slot; `mask` is bool[slots]. `position_count` is the length of the
    data if it ends before the request's `step_end`. `payloads` are those of a batch that several
    streams send."""

    start: int
    epoch: int
    arrays: dict[str, Array]
    sample_ids: Array
    mask: Array
    position_count: int | None = None
    payloads: SharedPayloads | None = field(default=None, compare=False)

    def payload(self, finished: bool, make: Callable[[bool], Payload]) -> Payload:
        """Returns the payload, `finished` on the server or not, from `make(is_shared)`."""
        return make(False) if self.payloads is None else self.payloads.get(finished, make)


class SharedPayloads:
    """The payloads of one batch, each made once. Thread-safe."""

    def __init__(self, on_made: Callable[[int], None]) -> None:
        """Calls `on_made` with the bytes of each."""
        self._on_made = on_made
        self._payloads: dict[bool, Payload] = {}
        self._lock = threading.Lock()

    def get(self, finished: bool, make: Callable[[bool], Payload]) -> Payload:
        with self._lock:
            if finished not in self._payloads:
                self._payloads[finished] = make(True)
                self._on_made(self._payloads[finished].size)
            return self._payloads[finished]


@dataclass(frozen=True)
class EndOfData:
    """The data has `position_count` positions, too few for the request."""

    position_count: int


Answer = HostBatch | EndOfData


class Session(ABC):
    """One stream's access to an engine."""

    def __init__(self, quota: StreamQuota) -> None:
        self._quota = quota

    @abstractmethod
    def submit(self, request: Request) -> Future[Answer]:
        """Starts work on a request. Requests start in order, but may complete in any order."""

    def set_batch_bytes(self, size: int) -> None:
        """Sets the payload size of the stream's batches, in bytes; a smaller size is ignored.
        Before the first call, the stream may hold only a few unsent batches."""
        self._quota.set_batch_bytes(size)

    @abstractmethod
    def on_sent(self) -> None:
        """Releases the memory of one answer that has been sent."""

    def held_seconds(self) -> Mapping[str, float]:
        """Returns the time so far in which unsent batches, or the memory limit alone, kept a
        request waiting: `unsent_seconds` and `shortage_seconds`."""
        return self._quota.held_seconds()

    @abstractmethod
    def close(self) -> None:
        """Drops unanswered requests."""


class Engine(ABC):
    """Serves one pipeline. `capabilities` has what only some engines know."""

    has_jobs: bool = False
    """Whether trainers can share batches as a job, by its name."""

    def __init__(self, spec: PipelineSpec, budget: MemoryBudget) -> None:
        self.spec = spec
        self.budget = budget

    @abstractmethod
    def open(self, slots: int, epochs: int, trainer: Trainer) -> Session:
        """Opens a stream of batches of `slots` slots; `epochs` 0 is endless."""

    @abstractmethod
    def warm_up(self) -> Answer:
        """Makes the first batch of the default size, so that the first trainer need not wait.
        Raises the errors of a stream: `SampleError`, `UserCodeError`."""

    def figures(self) -> Figures:
        """Returns what the engine has done so far, and what it holds now."""
        return Figures()

    @abstractmethod
    def close(self) -> None:
        """Stops all work; pending requests fail with `ServerUnavailableError`."""


def mean_string_bytes(answer: Answer) -> int:
    """Returns the bytes of the byte strings of one sample: the mean over a batch."""
    if isinstance(answer, EndOfData):
        return 0
    fields = [array for array in answer.arrays.values() if array.dtype == object]
    total = sum(len(string) for array in fields for string in array.flat)
    return total // max(1, int(answer.mask.sum()))


def shutting_down() -> ServerUnavailableError:
    """Returns the error of all pending requests at shutdown."""
    return ServerUnavailableError("the server is shutting down")
