"""The seam between a feed and its servers, and its one real implementation, gRPC.

`map_errors` is the only place that turns a gRPC error into an `InfeedError`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol, TypeVar

import grpc

from infeed import keepalive
from infeed.errors import (
    InfeedError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    StallError,
)
from infeed.spec import PipelineSpec
from infeed.status import METADATA_KEY, error_from_details
from infeed.target import parse_target
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to reach a server; doubled from the first to the longest."""

_OPTIONS = [
    *keepalive.CLIENT_OPTIONS,
    # A feed re-asks what it is owed by itself. gRPC's own retry would repeat requests unseen.
    ("grpc.enable_retries", 0),
    # gRPC's pauses grow to two minutes: a server that restarts in seconds would be missed.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
_SERVICE = "/infeed.v1.FeedService/"
_LOST = ("RST_STREAM", "Stream removed", "GOAWAY")
_PAGE_SIZE = 1_000

_T = TypeVar("_T")


class Call(Protocol):
    """An open stream: the server's messages as raw bytes, in order."""

    @property
    def server(self) -> str:
        """The address of the server that answers."""

    def __iter__(self) -> Iterator[bytes]:
        """The messages. Raises an `InfeedError` when the stream ends badly."""

    def cancel(self) -> None:
        """Ends the stream at once, from any thread; iterating it ends with an error."""


class Transport(Protocol):
    """What a feed needs of its servers. Thread-safe; connects to nothing before it is asked to."""

    @property
    def target(self) -> str:
        """The target as the user wrote it, for messages."""

    def list_pipelines(self, timeout: float = 20.0) -> list[PipelineSpec]:
        """All pipelines, sorted by name. Waits for a server for up to `timeout` seconds."""

    def get_pipeline(self, name: str, timeout: float = 20.0) -> PipelineSpec:
        """One pipeline. Waits for a server for up to `timeout` seconds.

        Raises `PipelineNotFoundError` and `ServerUnavailableError`.
        """

    def open_stream(self, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> Call:
        """Opens a stream; the requests are taken as fast as the iterator gives them."""

    def close(self) -> None:
        """Ends every call. Idempotent."""


class GrpcTransport:
    """gRPC to `host:port`, `dns:///host:port` or `unix:/path`, or several, separated by commas.

    One server is used at a time: the first that answers, and after a loss the next.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._addresses = parse_target(target)
        self._lock = threading.Lock()
        self._current = 0
        self._channels: dict[str, grpc.Channel] = {}
        self._closed = False

    def list_pipelines(self, timeout: float = 20.0) -> list[PipelineSpec]:
        found: list[PipelineSpec] = []
        token = ""
        while True:
            request = service.ListPipelinesRequest(page_size=_PAGE_SIZE, page_token=token)
            page = self._unary("ListPipelines", request, service.ListPipelinesResponse, timeout)
            found.extend(PipelineSpec.from_proto(pipeline) for pipeline in page.pipelines)
            token = page.next_page_token
            if not token:
                return found

    def get_pipeline(self, name: str, timeout: float = 20.0) -> PipelineSpec:
        request = service.GetPipelineRequest(name=name)
        answer = self._unary("GetPipeline", request, service.GetPipelineResponse, timeout)
        return PipelineSpec.from_proto(answer.pipeline)

    def open_stream(self, requests: Iterator[stream_pb2.StreamBatchesRequest]) -> Call:
        address = self._address()
        method: Any = self._channel(address).stream_stream(
            _SERVICE + "StreamBatches",
            request_serializer=stream_pb2.StreamBatchesRequest.SerializeToString,
            response_deserializer=None,  # the raw bytes: wire.py reads them without a copy
        )
        return _GrpcCall(method(requests), address, lambda: self._leave(address))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
            self._channels.clear()
        for channel in channels:
            channel.close()

    def _unary(self, name: str, request: Any, response: type[_T], timeout: float) -> _T:
        """Calls until a server answers. Without gRPC's wait_for_ready, so the reason is known."""
        deadline = time.monotonic() + timeout
        each = max(1.0, timeout / len(self._addresses))
        pause = FIRST_PAUSE
        last: InfeedError | None = None
        while (left := deadline - time.monotonic()) > 0:
            address = self._address()
            method: Any = self._channel(address).unary_unary(
                _SERVICE + name,
                request_serializer=type(request).SerializeToString,
                response_deserializer=response.FromString,  # type: ignore[attr-defined]
            )
            try:
                with map_errors(address):
                    answer: _T = method(request, timeout=min(left, each))
                    return answer
            except (ServerUnavailableError, StallError) as error:
                last = error
                self._leave(address)
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE)
        why = last.message if last else "there was no time to ask"
        raise ServerUnavailableError(
            f"no infeed server answered at {self.target} within {timeout:g} s; last reason: {why}",
            target=self.target,
            seconds=timeout,
        ) from None

    def _address(self) -> str:
        with self._lock:
            return self._addresses[self._current]

    def _leave(self, address: str) -> None:
        """Makes the next address the current one, unless another thread did already."""
        with self._lock:
            if self._addresses[self._current] == address:
                self._current = (self._current + 1) % len(self._addresses)

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise ServerUnavailableError(f"the connection to {self.target} was closed")
            if address not in self._channels:
                self._channels[address] = grpc.insecure_channel(address, options=_OPTIONS)
            return self._channels[address]


class _GrpcCall:
    def __init__(self, call: Any, address: str, lost: Callable[[], None]) -> None:
        self.server = address
        self._call = call
        self._lost = lost

    def __iter__(self) -> Iterator[bytes]:
        try:
            with map_errors(self.server):
                yield from self._call
        except ServerUnavailableError:
            self._lost()
            raise

    def cancel(self) -> None:
        self._call.cancel()


@contextlib.contextmanager
def map_errors(target: str) -> Iterator[None]:
    """Turns a `grpc.RpcError` of the block into the `InfeedError` that it carries or amounts to."""
    try:
        yield
    except grpc.RpcError as error:
        _raise(error, target)
    except ValueError as error:
        # gRPC's way to say that another thread closed the channel.
        if "closed channel" not in str(error):
            raise
        raise ServerUnavailableError(f"the connection to {target} was closed") from error


def _raise(error: Any, target: str) -> NoReturn:
    for key, value in error.trailing_metadata() or ():
        if key == METADATA_KEY and (told := error_from_details(value)):
            raise told from None
    raise _by_code(error.code(), error.details() or "no reason given", target) from error


def _by_code(code: grpc.StatusCode, details: str, target: str) -> InfeedError:
    if code is grpc.StatusCode.UNAVAILABLE or any(word in details for word in _LOST):
        return ServerUnavailableError(f"no server at {target}: {details}", target=target)
    if code is grpc.StatusCode.CANCELLED:
        # A feed that cancels expects no answer, so this is a server that shuts down.
        return ServerUnavailableError(f"{target} ended the call: {details}", target=target)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return StallError(f"{target} did not answer in time: {details}", target=target)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ProtocolError(
            f"{target} answers, but not as an infeed server of this version: {details}",
            target=target,
        )
    return ServerError(f"{target} failed with {code.name}: {details}", target=target)


__all__ = ["Call", "GrpcTransport", "Transport", "map_errors"]
