"""An instrument that records what is reported to it."""

from __future__ import annotations

from collections import Counter

from typing_extensions import override

from infeed.shared.report import ServerReport, TrainerReport
from infeed_server.engines.monitor import Monitor
from infeed_server.serving.instrument import ConnectedTrainer, Instrument


class RecordedEvents(Monitor):
    """Sums of what was counted and measured, by metric and labels."""

    def __init__(self) -> None:
        self.sums: Counter[tuple[str, ...]] = Counter()

    @override
    def count(self, metric: str, *labels: str, amount: float = 1) -> None:
        self.sums[(metric, *labels)] += amount  # type: ignore[assignment]

    @override
    def measure(self, metric: str, value: float, *labels: str, trace_id: str = "") -> None:
        self.sums[(metric, *labels)] += value  # type: ignore[assignment]


class RecordingInstrument(Instrument):
    """Answers each report with an empty one."""

    def __init__(self) -> None:
        self.monitor = RecordedEvents()

    @override
    def on_report(self, trainer: ConnectedTrainer, report: TrainerReport) -> ServerReport:
        return ServerReport()
