"""gRPC transport: the calls of a feed to the servers of a target."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from infeed.http2.socket import CONNECT_TIMEOUT_SECONDS
from infeed.http2.target import expand_hosts, parse_target
from infeed.http2.tls_config import TLS
from infeed.rpc.call import NO_CREDENTIALS, GrpcCall, read_single_response
from infeed.rpc.credentials import Credentials, Token
from infeed.shared.errors import (
    AuthenticationError,
    ConfigError,
    InfeedError,
    InvalidRequestError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    SourceError,
    StallError,
)
from infeed.shared.spec import PipelineSpec
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS, Call, Transport
from infeed.v1 import feed_service_pb2 as service
from infeed.v1 import stream_pb2

_REFUSALS = (
    *(AuthenticationError, PermissionDeniedError, PipelineNotFoundError),
    *(ProtocolError, ServerError, SourceError),
)
"""Errors of one server for which another one is tried."""

log = logging.getLogger(__name__)

_WARNING_SECONDS = 2.0
"""Seconds without an answer before a warning tells which server is awaited."""

_SERVICE = "/infeed.v1.FeedService/"
_METHODS = service.DESCRIPTOR.services_by_name["FeedService"].methods_by_name
_PAGE_SIZE = 1_000


def open_transport(
    target: str, token: Token | None, tls: TLS | bool | None, transport: Transport | None
) -> Transport:
    """Returns `transport`, or a gRPC transport to the target if that is None."""
    credentials = Credentials(token, tls)
    if transport is None:
        return GrpcTransport(target, credentials)
    if not hasattr(transport, "get_pipeline"):
        raise InvalidRequestError(
            "transport must be None or a transport such as infeed.testing.FakeTransport(...), not "
            f"{transport!r}; the address of a server is the first argument"
        )
    if credentials != NO_CREDENTIALS:
        raise InvalidRequestError(
            "token and tls cannot be combined with transport; pass them to the transport"
        )
    return transport


class GrpcTransport:
    """Transport to `host:port`, `dns:///host:port` or `unix:/path`, or several, comma-separated."""

    def __init__(self, target: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        self.target = target
        self._addresses = parse_target(target)
        for address in self._addresses:
            credentials.validate(address)
        self._current = 0
        """The index of the address that responded last."""
        self._credentials = credentials
        self._names: dict[str, str] = {}
        """The address as the user wrote it, by server."""
        self._lock = threading.Lock()
        self._calls: WeakSet[GrpcCall] = WeakSet()
        self._closed = False

    def list_pipelines(self, timeout: float = 20.0) -> list[PipelineSpec]:
        pipelines: list[PipelineSpec] = []
        page_token = ""
        deadline = time.monotonic() + timeout
        while True:
            request = service.ListPipelinesRequest(page_size=_PAGE_SIZE, page_token=page_token)
            left = max(0.0, deadline - time.monotonic())
            page = self.call("ListPipelines", request, left)
            pipelines.extend(PipelineSpec.from_proto(pipeline) for pipeline in page.pipelines)
            page_token = page.next_page_token
            if not page_token:
                return pipelines

    def control_plane(self, timeout: float = 20.0) -> str:
        """Returns the URL of the server's control plane; "" if the server reports none."""
        return str(self._first_page(timeout).control_plane)

    def broken_pipelines(self, timeout: float = 20.0) -> dict[str, str]:
        """Returns why the server cannot serve some of its pipelines, by name."""
        return {broken.name: broken.reason for broken in self._first_page(timeout).broken}

    def _first_page(self, timeout: float) -> service.ListPipelinesResponse:
        request = service.ListPipelinesRequest(page_size=1)
        page: service.ListPipelinesResponse = self.call("ListPipelines", request, timeout)
        return page

    def get_pipeline(self, name: str, timeout: float = 20.0) -> PipelineSpec:
        request = service.GetPipelineRequest(name=name)
        response = self.call("GetPipeline", request, timeout)
        if response.pipeline.name != name:
            other = response.pipeline.name
            raise ProtocolError(
                f"{self.target} returned the pipeline {other!r} instead of {name!r}"
            )
        return PipelineSpec.from_proto(response.pipeline)

    def servers(self) -> tuple[str, ...]:
        names = {server: name for name in self._addresses for server in expand_hosts(name)}
        self._names |= names
        return tuple(names)

    def for_server(self, server: str) -> GrpcTransport:
        """Returns a transport to one of `servers()` alone, with the same credentials."""
        transport = GrpcTransport(server, self._credentials)
        transport._names = {server: self._names.get(server, server)}
        return transport

    def open_stream(
        self,
        server: str,
        requests: Iterator[stream_pb2.StreamBatchesRequest],
        draining: Callable[[], None],
    ) -> Call:
        try:
            return self._new_call(server, "StreamBatches", requests, on_draining=draining)
        except ConfigError as error:  # the files were valid before: they are being renewed
            raise ServerUnavailableError(
                f"no connection to {server}: {error.message}", target=server
            ) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def call(self, method: str, request: Message, timeout: float = 20.0) -> Any:
        """Returns the first response from any server. Raises at once if all servers refuse, else at
        the timeout: a server's refusal if there was one, or the last error."""
        response = GetMessageClass(_METHODS[method].output_type)
        began = time.monotonic()
        backoff, connect_timeout = MIN_BACKOFF_SECONDS, CONNECT_TIMEOUT_SECONDS
        problem = "the timeout left no time for a call"
        refusals: dict[str, InfeedError] = {}
        has_warned = False
        while (left := began + timeout - time.monotonic()) > 0:
            address = self._addresses[self._current]
            call = self._new_call(
                address,
                method,
                iter([request]),
                timeout=min(left, max(1.0, timeout / len(self._addresses))),
                connect_timeout=connect_timeout,
            )
            try:
                with closing(call):
                    return read_single_response(call, response)
            except (ServerUnavailableError, StallError) as error:
                connect_timeout *= 2  # a server may just be slow, as when all connect
                problem = error.message
            except _REFUSALS as error:
                refusals[address], problem = error, error.message
                if len(refusals) == len(set(self._addresses)):
                    raise
            with self._lock:
                if self._addresses[self._current] == address:  # else another thread has moved on
                    self._current = (self._current + 1) % len(self._addresses)
            if not has_warned and time.monotonic() - began >= _WARNING_SECONDS:
                log.warning("waiting for %s, %.3g s at most: %s", self.target, timeout, problem)
                has_warned = True
            time.sleep(min(backoff, max(0.0, began + timeout - time.monotonic())))
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
        for refusal in refusals.values():
            raise refusal
        raise ServerUnavailableError(
            f"no infeed server answered at {self.target} within {round(timeout, 2):g} s; last "
            f"reason: {problem}",
            target=self.target,
        )

    def _new_call(
        self, address: str, method: str, requests: Iterator[Any], **options: Any
    ) -> GrpcCall:
        with self._lock:
            if self._closed:
                raise ServerUnavailableError(f"the connection to {self.target} was closed")
            credentials = replace(self._credentials, name=self._names.get(address))
            call = GrpcCall(address, _SERVICE + method, requests, credentials, **options)
            self._calls.add(call)
        return call
