"""What engines and streams report while they run; `control.Metrics` is what listens."""

from __future__ import annotations

from typing import Literal, Protocol

from infeed.spec import OnError

Stage = Literal["read", "transform", "encode", "send"]
"""A batch's way through the server: out of the source, through the graph, into messages (with the
finish transforms that a trainer leaves to the server), onto the wire."""


class Monitor(Protocol):
    """Counts and times, by pipeline. Every method is cheap and thread-safe."""

    def stage(self, pipeline: str, stage: Stage, seconds: float) -> None:
        """One batch took that long in a stage: read, transform, encode or send."""

    def bad_sample(self, pipeline: str, action: OnError) -> None:
        """A sample could not be read or transformed, and this was done."""

    def stream_opened(self, pipeline: str) -> None: ...

    def stream_closed(self, pipeline: str) -> None: ...

    def batch_sent(self, pipeline: str, samples: int, size: int) -> None:
        """A batch of that many samples and bytes went out."""


class Silent:
    """Listens to nothing."""

    def stage(self, pipeline: str, stage: Stage, seconds: float) -> None: ...

    def bad_sample(self, pipeline: str, action: OnError) -> None: ...

    def stream_opened(self, pipeline: str) -> None: ...

    def stream_closed(self, pipeline: str) -> None: ...

    def batch_sent(self, pipeline: str, samples: int, size: int) -> None: ...
