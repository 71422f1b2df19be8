"""The seam between a feed and its servers, and its one real implementation, gRPC."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from infeed.call import NONE, Call, GrpcCall, only_message
from infeed.credentials import Credentials
from infeed.errors import (
    AuthenticationError,
    ConfigError,
    InfeedError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerUnavailableError,
    StallError,
)
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import PipelineSpec
from infeed.target import parse_target, servers
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to reach a server; doubled from the first to the longest."""

_REFUSALS = (AuthenticationError, PermissionDeniedError, PipelineNotFoundError)
"""Of several servers, another one may do."""

_SERVICE = "/infeed.v1.FeedService/"
_PAGE_SIZE = 1_000
_MAX_PAGES = 100


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

    def register_dataset(self, request: DatasetRequest, timeout: float = 20.0) -> RegisteredDataset:
        """The pipeline as a data set of TensorFlow's data service. Waits as `get_pipeline` does.

        Raises `PipelineNotFoundError`, `InvalidRequestError`, `FingerprintError` and
        `ServerUnavailableError`.
        """

    def servers(self) -> tuple[str, ...]:
        """The servers that the target stands for now; names are looked up each time."""

    def open_stream(
        self,
        server: str,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        draining: Callable[[], None],
    ) -> Call:
        """Opens a stream to one of the servers.

        The requests are taken as fast as the iterator gives them. `draining` is called when the
        server says that it will soon be gone: it still sends what it was asked for.
        """

    def close(self) -> None:
        """Ends every call. Idempotent."""


class GrpcTransport:
    """gRPC to `host:port`, `dns:///host:port` or `unix:/path`, or several, separated by commas."""

    def __init__(self, target: str, credentials: Credentials = NONE) -> None:
        """Raises `InvalidRequestError` for a target, `ConfigError` for credentials."""
        self.target = target
        self._addresses = parse_target(target)
        for address in self._addresses:
            credentials.check(address)
        self._credentials = credentials
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()
        self._current = 0
        self._calls: set[GrpcCall] = set()
        self._closed = False

    def list_pipelines(self, timeout: float = 20.0) -> list[PipelineSpec]:
        found: list[PipelineSpec] = []
        token = ""
        deadline = time.monotonic() + timeout
        for _ in range(_MAX_PAGES):
            request = service.ListPipelinesRequest(page_size=_PAGE_SIZE, page_token=token)
            left = max(0.0, deadline - time.monotonic())
            page = self._unary("ListPipelines", request, service.ListPipelinesResponse, left)
            found.extend(PipelineSpec.from_proto(pipeline) for pipeline in page.pipelines)
            token = page.next_page_token
            if not token:
                return found
        raise ProtocolError(
            f"{self.target} lists pipelines without an end: {len(found)} on {_MAX_PAGES} pages",
            target=self.target,
        )

    def get_pipeline(self, name: str, timeout: float = 20.0) -> PipelineSpec:
        request = service.GetPipelineRequest(name=name)
        answer = self._unary("GetPipeline", request, service.GetPipelineResponse, timeout)
        if answer.pipeline.name != name:
            raise ProtocolError(
                f"{self.target} describes the pipeline {answer.pipeline.name!r}, where {name!r} "
                "was asked for",
                target=self.target,
            )
        return PipelineSpec.from_proto(answer.pipeline)

    def register_dataset(self, request: DatasetRequest, timeout: float = 20.0) -> RegisteredDataset:
        answer = self._unary(
            "RegisterDataset", request.to_proto(), service.RegisterDatasetResponse, timeout
        )
        return RegisteredDataset.from_proto(answer)

    def servers(self) -> tuple[str, ...]:
        found = {one: name for name in self._addresses for one in servers(name)}
        self._names |= found
        return tuple(found)

    def open_stream(
        self,
        server: str,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        draining: Callable[[], None],
    ) -> Call:
        try:
            return self._call(server, "StreamBatches", requests, draining=draining)
        except ConfigError as error:  # files that were good: somebody is about to renew them
            raise ServerUnavailableError(
                f"no connection to {server}: {error.message}", target=server
            ) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            calls, self._calls = self._calls, set()
        for call in calls:
            call.cancel()

    def _unary(self, name: str, request: Any, response: Any, timeout: float) -> Any:
        """Calls until a server answers; when none does, the last reason is told.

        One that refuses is no answer while there are others; its refusal is told, if none does.
        """
        deadline = time.monotonic() + timeout
        each = max(1.0, timeout / len(self._addresses))
        pause = FIRST_PAUSE
        last: InfeedError | None = None
        refusals: dict[str, InfeedError] = {}
        while (left := deadline - time.monotonic()) > 0:
            address = self._addresses[self._current]
            call = self._call(address, name, iter([request]), timeout=min(left, each))
            try:
                with contextlib.closing(call):
                    return only_message(call, response)
            except (ServerUnavailableError, StallError) as error:
                last = error
                self._leave(call.server)
            except _REFUSALS as error:
                refusals[address] = error
                if len(refusals) == len(set(self._addresses)):
                    raise
                self._leave(address)
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE)
        for refusal in refusals.values():
            raise refusal
        why = last.message if last else "there was no time to ask"
        raise ServerUnavailableError(
            f"no infeed server answered at {self.target} within {timeout:g} s; last reason: {why}",
            target=self.target,
            seconds=timeout,
        ) from None

    def _leave(self, address: str) -> None:
        """Makes the next address the current one, unless another thread did already."""
        with self._lock:
            if self._addresses[self._current] == address:
                self._current = (self._current + 1) % len(self._addresses)

    def _call(
        self,
        address: str,
        name: str,
        requests: Iterator[Any],
        *,
        timeout: float | None = None,
        draining: Callable[[], None] = lambda: None,
    ) -> GrpcCall:
        with self._lock:
            if self._closed:
                raise ServerUnavailableError(f"the connection to {self.target} was closed")
            call = GrpcCall(
                address,
                _SERVICE + name,
                requests,
                timeout=timeout,
                draining=draining,
                closed=self._forget,
                credentials=self._credentials,
                name=self._names.get(address),
            )
            self._calls.add(call)
            return call

    def _forget(self, call: GrpcCall) -> None:
        with self._lock:
            self._calls.discard(call)


__all__ = ["GrpcTransport", "Transport"]
