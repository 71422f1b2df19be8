"""Reports on the last seconds of a trainer, and of a server that feeds it.

proto/infeed/v1/stream.proto documents the figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from infeed.shared.sliding_window import WINDOW_SECONDS
from infeed.shared.spec.messages import from_message, to_message
from infeed.v1 import stream_pb2

REPORT_INTERVAL_SECONDS = 1.0
"""Seconds between a feed's reports to each of its servers; shorter intervals cost more."""

R = TypeVar("R", "TrainerReport", "ServerReport")

_TRAINER_SUMS = (
    *("seconds", "steps", "wait_seconds", "starved_steps"),
    *("receive_seconds", "cpu_seconds", "finish_seconds", "bytes"),
)
"""Figures of a trainer's report that grow in its seconds."""

_MAX_VALUE = 1 << 62

_MAX_TEXT = 300
"""Characters of an address at most: the server keeps and shows one for each trainer."""

_MIN_STEP_SECONDS = 1e-6
"""Shortest step time to report: figures derived from its rate must stay bounded."""


@dataclass(frozen=True)
class TrainerReport:
    """The last `seconds` of a feed, as the trainer sees them; 0 before the second batch."""

    seconds: float = 0.0
    steps: int = 0
    wait_seconds: float = 0.0
    starved_steps: int = 0
    receive_seconds: float = 0.0
    cpu_seconds: float = 0.0
    finish_seconds: float = 0.0
    bytes: int = 0
    streams: int = 0
    ready_batches: int = 0
    total_steps: int = 0
    position: int = 0
    slow_connection: str = ""
    slow_rate: float = 0.0
    other_rate: float = 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time that the trainer spent waiting, 0 to 1."""
        return min(1.0, self.wait_seconds / self.seconds) if self.seconds else 0.0

    @property
    def step_seconds(self) -> float | None:
        """Mean time of a step, excluding the wait for its batch; None before the first."""
        if not self.steps:
            return None
        mean = (self.seconds - self.wait_seconds) / self.steps
        return mean if mean >= _MIN_STEP_SECONDS else 0.0

    def after(self, earlier: TrainerReport) -> TrainerReport:
        """Returns the last seconds of two feeds, one after the other: of the earlier one as much
        as a window lacks, but at least two steps."""
        share = 0.0
        if self.seconds < WINDOW_SECONDS and earlier.seconds:
            lacking = (WINDOW_SECONDS - self.seconds) / earlier.seconds
            share = min(1.0, max(lacking, 2 / max(1, earlier.steps)))
        sums: dict[str, Any] = {"total_steps": earlier.total_steps + self.total_steps}
        for name in _TRAINER_SUMS:
            own, part = getattr(self, name), share * getattr(earlier, name)
            sums[name] = own + (round(part) if isinstance(own, int) else part)
        return replace(self, **sums)

    def to_proto(self) -> stream_pb2.TrainerReport:
        return to_message(stream_pb2.TrainerReport, self)

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return dict(vars(self))

    @classmethod
    def from_proto(cls, message: stream_pb2.TrainerReport) -> TrainerReport:
        """Raises `ValueError` for a figure that is negative, infinite or NaN."""
        return _checked(from_message(cls, message))


@dataclass(frozen=True)
class RankReport:
    """The report of one rank of a job."""

    rank: int
    report: TrainerReport


@dataclass(frozen=True)
class ServerReport:
    """The last `seconds` of a server, for one pipeline and all of its trainers. The times of its
    four states, `no_request`, `no_budget`, `source` and `transform`, add up to them."""

    seconds: float = 0.0
    batches: int = 0
    bytes: int = 0
    no_request_seconds: float = 0.0
    no_budget_seconds: float = 0.0
    source_seconds: float = 0.0
    transform_seconds: float = 0.0
    encode_seconds: float = 0.0
    send_seconds: float = 0.0
    cpu_seconds: float = 0.0
    cores: float = 1.0
    available_cores: float = 0.0
    memory_bytes: int = 0
    memory_limit_bytes: int = 0
    processes: int = 1
    process_id: int = 0
    repair_seconds: float = 0.0
    unsent_seconds: float = 0.0
    shortage_seconds: float = 0.0
    python_workers: int = 0
    python_seconds: float = 0.0
    python_samples: int = 0
    slowest_sample_seconds: float = 0.0
    slowest_sample: int = 0
    is_sequential: bool = False
    computed_samples: int = 0
    shared_samples: int = 0
    recomputed_samples: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    worst: RankReport | None = None

    @property
    def busy_seconds(self) -> float:
        """Time that the pipeline spent on the source or on transforms."""
        return self.source_seconds + self.transform_seconds

    @property
    def cpu_share(self) -> float:
        """Share of the processors that the server used, 0 to 1."""
        available = self.seconds * self.cores
        return min(1.0, self.cpu_seconds / available) if available else 0.0

    @property
    def python_share(self) -> float:
        """Share of the time that its Python workers were busy, 0 to 1."""
        time = self.seconds * self.python_workers
        return min(1.0, self.python_seconds / time) if time else 0.0

    @property
    def shared_share(self) -> float:
        """Share of the requested samples that had been made for another stream, 0 to 1."""
        made = self.computed_samples + self.recomputed_samples
        return self.shared_samples / max(1, self.shared_samples + made)

    @property
    def cached_share(self) -> float:
        """Share of the samples that came from the cache, 0 to 1."""
        return self.cache_hits / max(1, self.cache_hits + self.cache_misses)

    @property
    def usable_cores(self) -> float:
        """Processors not used by other processes; all processors if that is unknown."""
        return min(self.cores, self.available_cores) if self.available_cores else self.cores

    def to_proto(self) -> stream_pb2.ServerReport:
        worst = self.worst
        return to_message(
            stream_pb2.ServerReport,
            self,
            worst=worst and stream_pb2.RankReport(rank=worst.rank, report=worst.report.to_proto()),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name, without the worst rank."""
        return {name: value for name, value in vars(self).items() if name != "worst"}

    @classmethod
    def from_proto(cls, message: stream_pb2.ServerReport) -> ServerReport:
        """Raises `ValueError` for a figure that is negative, infinite or NaN."""
        worst = None
        if message.HasField("worst"):
            report = TrainerReport.from_proto(message.worst.report)
            worst = RankReport(message.worst.rank, report)
        processes = message.processes or 1  # 0: a server without `--processes`
        return _checked(from_message(cls, message, worst=worst, processes=processes))


def _checked(report: R) -> R:
    for name, value in report.to_json().items():
        if isinstance(value, str):
            if len(value) > _MAX_TEXT:
                raise ValueError(f"{name} has {len(value)} characters; at most {_MAX_TEXT}")
        elif not 0 <= value <= _MAX_VALUE:  # NaN, too
            kind = type(report).__name__
            raise ValueError(f"{kind}.{name} is {value!r}; it must be from 0 to 2^62")
    return report


_STATES = (
    *("no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds"),
    "repair_seconds",
)
_OF_STREAMS = ("unsent_seconds", "shortage_seconds")
"""Figures taken from the worst stream: any stream can keep a trainer waiting."""
_TIMES = ("encode_seconds", "send_seconds", "cpu_seconds", "python_seconds")
SAMPLE_COUNTS = (
    *("computed_samples", "shared_samples", "recomputed_samples"),
    *("cache_hits", "cache_misses"),
)
_COUNTS = ("batches", "bytes", "python_samples", *SAMPLE_COUNTS)
_SHARED = ("cores", "available_cores", "memory_bytes", "memory_limit_bytes", "python_workers")
"""Figures split among the processes, independent of the time that a report covers."""


def merge_processes(reports: Iterable[ServerReport]) -> ServerReport:
    """Returns the report of several processes (`infeed serve --processes`), or servers, as one.

    A report that covers less time is extrapolated, and processes that have not reported are assumed
    to be like the others: `processes` is the ratio of the server to the merged reports.
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
        **{name: max(scaled(name)) for name in _OF_STREAMS},
    }
    return replace(
        max(reports, key=lambda report: report.slowest_sample_seconds),
        seconds=seconds,
        processes=max(1, max(report.processes for report in reports) // len(reports)),
        process_id=0,
        is_sequential=any(report.is_sequential for report in reports),
        worst=None,
        **values,
    )
