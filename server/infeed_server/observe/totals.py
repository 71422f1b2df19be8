"""Totals: batches, bytes and times of each pipeline since the start of the server."""

from __future__ import annotations

import threading
from collections import defaultdict

from infeed.shared.errors import SourceError
from infeed.shared.spec import OnError
from infeed_server.engines.monitor import EndedCall, Refusal, Stage
from infeed_server.observe.source_errors import SourceErrors


class Totals:
    """Counts for each pipeline what a `Monitor` is called with. Thread-safe."""

    def __init__(self) -> None:
        self._counters: defaultdict[str, defaultdict[str, float]]
        self._counters = defaultdict(lambda: defaultdict(float))
        self._lock = threading.Lock()
        self.source_errors = SourceErrors()

    def counters(self, pipeline: str) -> dict[str, float]:
        """Returns the counts of all, and `STAGE_seconds` of each stage that has run."""
        names = (
            *("batches", "samples", "bytes", "bad_samples", "quarantine_failures"),
            *("source_errors", "streams"),
        )
        with self._lock:
            return {**dict.fromkeys(names, 0), **self._counters[pipeline]}

    # The methods of `engines.monitor.Monitor`.

    def on_stage(
        self,
        pipeline: str,
        stage: Stage,
        seconds: float,
        trace_id: str = "",  # noqa: ARG002
    ) -> None:
        self._add(pipeline, **{f"{stage}_seconds": seconds})

    def on_bad_sample(self, pipeline: str, action: OnError) -> None:  # noqa: ARG002
        self._add(pipeline, bad_samples=1)

    def on_source_error(self, pipeline: str, error: SourceError) -> None:
        self._add(pipeline, source_errors=1)
        self.source_errors.add(pipeline, error)

    def on_quarantine_failed(self, pipeline: str) -> None:
        self._add(pipeline, quarantine_failures=1)

    def on_stream_opened(self, pipeline: str) -> None:
        self._add(pipeline, streams=1)

    def on_stream_closed(self, pipeline: str) -> None:
        self._add(pipeline, streams=-1)

    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        self._add(pipeline, batches=1, samples=samples, bytes=size)

    def on_refused(self, reason: Refusal) -> None:
        """Does nothing: it is of no pipeline."""

    def on_call_started(self, method: str) -> None:
        """Does nothing: it is of no pipeline."""

    def on_call(self, call: EndedCall) -> None:
        """Does nothing: it is of no pipeline."""

    def _add(self, pipeline: str, **values: float) -> None:
        with self._lock:
            counters = self._counters[pipeline]
            for name, value in values.items():
                counters[name] += value
