"""Monitor of engines and streams for tests that do not look at metrics."""

from __future__ import annotations

from infeed.spec import OnError
from infeed_server.engines.monitor import Stage


class NullMonitor:
    """A monitor that ignores all events."""

    def on_stage(self, pipeline: str, stage: Stage, seconds: float) -> None: ...

    def on_bad_sample(self, pipeline: str, action: OnError) -> None: ...

    def on_stream_opened(self, pipeline: str) -> None: ...

    def on_stream_closed(self, pipeline: str) -> None: ...

    def on_batch_sent(self, pipeline: str, samples: int, size: int) -> None: ...
