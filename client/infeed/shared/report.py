"""Reports: the last seconds of a trainer, and of a server that feeds it, as both ends know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from infeed.v1 import stream_pb2

REPORT_INTERVAL_SECONDS = 1.0
"""Between two reports of a feed to each of its servers."""

_MAX_VALUE = 1 << 62

_MIN_STEP_SECONDS = 1e-6
"""A shorter step was not measured: a figure that is computed from its rate would be unbounded."""


@dataclass(frozen=True)
class TrainerReport:
    """The last `seconds` of a feed, as the training sees it. All times are in seconds."""

    seconds: float = 0.0
    """The time that the report covers; 0: the trainer took no second batch yet."""
    steps: int = 0
    """Batches that the training took in this time."""
    wait_seconds: float = 0.0
    """Time that the training waited for batches."""
    starved_steps: int = 0
    """Batches that the training waited for, for more than a millisecond."""
    receive_seconds: float = 0.0
    """Time between the first and the last byte of a batch, summed over streams."""
    cpu_seconds: float = 0.0
    """Processor time of the client's own threads: receiving, checksums, finish transforms."""
    finish_seconds: float = 0.0
    """Time of the finish transforms."""
    bytes: int = 0
    """Bytes on the wire of the batches that were received."""
    streams: int = 0
    """Streams that are open."""
    ready_batches: int = 0
    """Batches that wait in the client."""
    total_steps: int = 0
    """Batches that the training has taken since the feed was opened."""
    position: int = 0
    """The position of the cursor."""

    @property
    def wait_share(self) -> float:
        """Share of the time that the training waited, 0 to 1."""
        return min(1.0, self.wait_seconds / self.seconds) if self.seconds else 0.0

    @property
    def step_seconds(self) -> float | None:
        """Mean time of a step without the wait for its batch; None before the first."""
        if not self.steps:
            return None
        mean = (self.seconds - self.wait_seconds) / self.steps
        return mean if mean >= _MIN_STEP_SECONDS else 0.0

    def to_proto(self) -> stream_pb2.TrainerReport:
        return stream_pb2.TrainerReport(**self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return dict(vars(self))

    @classmethod
    def from_proto(cls, message: stream_pb2.TrainerReport) -> TrainerReport:
        """Raises `ValueError` for a figure that is negative, infinite or NaN."""
        return cls(**_values(cls, message))


@dataclass(frozen=True)
class RankReport:
    """The report of one rank of a job."""

    rank: int
    report: TrainerReport

    def to_proto(self) -> stream_pb2.RankReport:
        return stream_pb2.RankReport(rank=self.rank, report=self.report.to_proto())


@dataclass(frozen=True)
class ServerReport:
    """The last `seconds` of a server, for one pipeline and all of its trainers. Times in seconds.

    A pipeline is at any time in one of four states, whose times add up to `seconds`.
    """

    seconds: float = 0.0
    """The time that the report covers."""
    batches: int = 0
    """Batches that were sent."""
    bytes: int = 0
    """Payload bytes that were sent."""
    no_request_seconds: float = 0.0
    """State: nothing is requested."""
    no_budget_seconds: float = 0.0
    """State: requested by streams that hold as many unsent batches as they may."""
    source_seconds: float = 0.0
    """State: waiting for the source."""
    transform_seconds: float = 0.0
    """State: waiting for the transforms."""
    encode_seconds: float = 0.0
    """Time of the encoding of batches, over all threads."""
    send_seconds: float = 0.0
    """Time of the sending of batches, over all streams."""
    cpu_seconds: float = 0.0
    """Processor time of the server's processes, for all pipelines."""
    cores: float = 1.0
    """Processors that the server may use."""
    available_cores: float = 0.0
    """Of `cores`, those that it used or could have used, because no other process did; 0: unknown.
    """
    memory_bytes: int = 0
    """Resident memory of the server's processes at the end of this time; 0: unknown."""
    memory_limit_bytes: int = 0
    """Memory that the server may use: its host's, or its container's; 0: unknown."""
    processes: int = 1
    """Processes of one host that serve at this address together, if the report is of one of them.
    """
    process_id: int = 0
    """Identifier of the process on its host; 0: unknown, or several processes."""
    shortage_seconds: float = 0.0
    """Time with a request of this job for which only the server's memory limit had no room."""
    python_workers: int = 0
    """Workers that run the user's Python code where samples are read: processes, or one thread."""
    python_seconds: float = 0.0
    """Time that they worked, summed over them."""
    python_samples: int = 0
    """Samples that they read."""
    slowest_sample_seconds: float = 0.0
    """The longest time that one sample took them; 0: unknown."""
    slowest_sample: int = 0
    """The index of that sample."""
    is_sequential: bool = False
    """Whether the pipeline reads one data set in its own order, which servers cannot share."""
    worst: RankReport | None = None
    """The rank of the job that waited most, if it is another one."""

    @property
    def busy_seconds(self) -> float:
        """Time that the pipeline worked: on the source, or on transforms."""
        return self.source_seconds + self.transform_seconds

    @property
    def cpu_share(self) -> float:
        """Share of the processors that the server used, 0 to 1."""
        available = self.seconds * self.cores
        return min(1.0, self.cpu_seconds / available) if available else 0.0

    @property
    def python_share(self) -> float:
        """Share of the time of its Python workers in which they worked, 0 to 1."""
        time = self.seconds * self.python_workers
        return min(1.0, self.python_seconds / time) if time else 0.0

    @property
    def usable_cores(self) -> float:
        """Processors without those that other processes used; all where these are unknown."""
        return min(self.cores, self.available_cores) if self.available_cores else self.cores

    def to_proto(self) -> stream_pb2.ServerReport:
        worst = self.worst and self.worst.to_proto()
        return stream_pb2.ServerReport(**{**self.to_json(), "worst": worst})

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name, without the worst rank."""
        names = [field.name for field in fields(self) if field.name != "worst"]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_proto(cls, message: stream_pb2.ServerReport) -> ServerReport:
        """Raises `ValueError` for a figure that is negative, infinite or NaN."""
        worst = None
        if message.HasField("worst"):
            report = TrainerReport.from_proto(message.worst.report)
            worst = RankReport(message.worst.rank, report)
        values = _values(cls, message)
        values["processes"] = max(1, values["processes"])  # 0: a server without `--processes`
        return cls(**values, worst=worst)


def _values(cls: type[TrainerReport | ServerReport], message: Any) -> dict[str, Any]:
    names = [field.name for field in fields(cls) if field.name != "worst"]
    values = {name: getattr(message, name) for name in names}
    for name, value in values.items():
        if not 0 <= value <= _MAX_VALUE:  # NaN, too
            raise ValueError(f"{cls.__name__}.{name} is {value!r}; it must be from 0 to 2^62")
    return values


_STATES = ("no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds")

_TIMES = ("encode_seconds", "send_seconds", "cpu_seconds", "python_seconds")

_COUNTS = ("batches", "bytes", "python_samples")

_SHARED = ("cores", "available_cores", "memory_bytes", "memory_limit_bytes", "python_workers")
"""Each process has its share of these, whatever time its report covers."""


def merge_processes(reports: Iterable[ServerReport]) -> ServerReport:
    """Returns the report of one server, of whose processes (`infeed serve --processes`) these are.

    Its states add up to its time, as in the report of one process. A report that covers less time
    than the longest one is taken to go on like this. Processes that have not reported are taken to
    be like the others: `processes` says how many times the merged ones are the server.
    """
    first, *others = reports = list(reports)
    if not others:
        return first
    seconds = max(report.seconds for report in reports)
    scales = [seconds / report.seconds if report.seconds else 0.0 for report in reports]

    def scaled(name: str) -> list[float]:
        return [scale * getattr(one, name) for scale, one in zip(scales, reports, strict=True)]

    values: dict[str, Any] = {
        **{name: sum(getattr(report, name) for report in reports) for name in _SHARED},
        **{name: sum(scaled(name)) for name in _TIMES},
        **{name: round(sum(scaled(name))) for name in _COUNTS},
        **{name: sum(scaled(name)) / len(reports) for name in _STATES},
    }
    slowest = max(reports, key=lambda report: report.slowest_sample_seconds)
    return replace(
        slowest,
        seconds=seconds,
        processes=max(1, max(report.processes for report in reports) // len(reports)),
        process_id=0,
        shortage_seconds=max(scaled("shortage_seconds")),
        is_sequential=any(report.is_sequential for report in reports),
        worst=None,
        **values,
    )
