"""Transport interface between a feed and its servers: `Transport` and the `Call` that it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from google.protobuf.message import Message

from infeed.shared.spec import PipelineSpec
from infeed.v1 import stream_pb2

MIN_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 1.0
"""Bounds on the delay between attempts to connect, which doubles with each attempt."""


class Call(Protocol):
    """An open stream of messages from one server, in order."""

    @property
    def server(self) -> str:
        """The address of the server."""

    def next(self) -> int | None:
        """Waits for the next message and returns its length; None at the end of the stream."""

    def read_into(self, memory: memoryview) -> None:
        """Reads the next bytes of the message, as many as fit."""

    def cancel(self) -> None:
        """Ends the stream at once; the reading thread gets an error. Callable from any thread."""

    def close(self) -> None:
        """Frees the stream. Only the reading thread calls it."""


class Transport(Protocol):
    """The calls that a feed makes. Thread-safe; connects only when a call needs it."""

    @property
    def target(self) -> str:
        """The target as the user wrote it, for error messages."""

    def get_pipeline(self, name: str, timeout: float = 20.0) -> PipelineSpec:
        """Returns one pipeline. Waits for a server for at most `timeout` seconds."""

    def list_pipelines(self, timeout: float = 20.0) -> Sequence[PipelineSpec]:
        """Returns the pipelines of a server, sorted by name."""

    def call(self, method: str, request: Message, timeout: float = 20.0) -> Any:
        """Returns the response of a FeedService method that has a single one."""

    def servers(self) -> tuple[str, ...]:
        """Returns the addresses of the target's servers; resolves names each time."""

    def open_stream(
        self,
        server: str,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        on_draining: Callable[[], None],
    ) -> Call:
        """Opens a stream to a server; `on_draining` is called when it announces the end."""

    def close(self) -> None:
        """Ends every call. Idempotent."""
