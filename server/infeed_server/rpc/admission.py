"""Admission of calls: tokens, limits and the process's threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from infeed.shared.errors import AuthenticationError, InfeedError, ServerUnavailableError
from infeed_server.engines.monitor import Refusal
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.limits import ConcurrencyLimit, LimitReachedError, Limits, client_name
from infeed_server.rpc.resources import OutOfResourcesError, ThreadReserve
from infeed_server.rpc.status import to_status_error
from infeed_server.rpc.status_error import StatusError
from infeed_server.serving.auth import Authenticator

_STREAM_SUFFIX = "/StreamBatches"

_HEALTH_PREFIX = "/grpc.health.v1.Health/"
"""Health checks need no token, and reveal nothing else."""

MAX_HEALTH_CALLS = 32
"""Open health calls, each with a thread, which clients without a token can hold."""

_MAX_PEER_HEALTH_CALLS = 8
"""Open health calls of one client; with fewer, the probes of a proxy could not overlap."""


class CallRefusedError(StatusError):
    """A call is refused, with a status and the reason for the metrics."""

    def __init__(self, reason: Refusal, status: StatusError) -> None:
        super().__init__(status.code, status.details, status.trailers)
        self.refusal: Refusal = reason


class Admission:
    """Counts open calls, and refuses those that are too many. Thread-safe."""

    def __init__(self, limits: Limits, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self.streams = ConcurrencyLimit("streams", limits.streams, limits.peer_streams)
        self.calls = ConcurrencyLimit("calls", limits.calls, limits.peer_calls)
        self._health_calls = ConcurrencyLimit(
            "health calls", MAX_HEALTH_CALLS, _MAX_PEER_HEALTH_CALLS
        )
        self._threads = ThreadReserve()
        self._lock = threading.Lock()
        self._stopping = False

    def stop(self) -> None:
        """Refuses whatever comes from now on."""
        with self._lock:
            self._stopping = True

    @contextmanager
    def admit(self, call: ServerCall) -> Iterator[None]:
        """Authenticates a call, and counts it in the block. Raises `CallRefusedError`."""
        client = client_name(call.peer(), call.client_certificate)
        if not call.method.startswith(_HEALTH_PREFIX):
            try:
                call.caller = self._authenticator.authenticate(call.authorization, client)
            except AuthenticationError as error:
                raise _refused("unauthenticated", error) from None
            client = call.caller.name
        with self._lock:
            limit = self._count(call.method, client)
        try:
            yield
        finally:
            with self._lock:
                limit.release(client)

    def _count(self, method: str, client: str) -> ConcurrencyLimit:
        if self._stopping:
            status = StatusError(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
            raise CallRefusedError("stopping", status)
        limit = self._limit_of(method)
        try:
            self._threads.require(streams=int(limit is self.streams))
            limit.acquire(client)
        except OutOfResourcesError as error:
            raise _refused(
                "threads", ServerUnavailableError(str(error)), "RESOURCE_EXHAUSTED"
            ) from None
        except LimitReachedError as error:
            problem = ServerUnavailableError(str(error), limit=error.kind, client=error.client)
            reason: Refusal = "streams" if limit is self.streams else "calls"
            raise _refused(reason, problem, "RESOURCE_EXHAUSTED") from None
        return limit

    def _limit_of(self, method: str) -> ConcurrencyLimit:
        if method.startswith(_HEALTH_PREFIX):
            return self._health_calls
        return self.streams if method.endswith(_STREAM_SUFFIX) else self.calls


def _refused(reason: Refusal, error: InfeedError, code: str | None = None) -> CallRefusedError:
    return CallRefusedError(reason, to_status_error(error, code))
