"""Monitor of engines and streams for tests that do not look at metrics."""

from __future__ import annotations

from infeed.spec import OnError
from infeed_server.engines.monitor import Stage
from infeed_server.http2.refusals import Refusal


class NullMonitor:
    """A monitor that ignores all events."""

    def on_stage(self, pipeline: str, stage: Stage, seconds: float) -> None: ...

    def on_bad_sample(self, pipeline: str, action: OnError) -> None: ...

    def on_stream_opened(self, pipeline: str) -> None: ...

    def on_stream_closed(self, pipeline: str) -> None: ...

    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None: ...

    def on_refused(self, reason: Refusal) -> None: ...

    def on_call(self, method: str, status: str) -> None: ...

    def on_connections(self, count: int) -> None: ...
