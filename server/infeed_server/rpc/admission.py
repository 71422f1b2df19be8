"""Admission of calls: tokens, limits and the process's threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from infeed.shared.errors import AuthenticationError, ServerUnavailableError
from infeed_server.engines.monitor import Refusal
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.limits import Limits, client_name
from infeed_server.rpc.resources import OutOfThreadsError, require_threads
from infeed_server.rpc.status import CallError
from infeed_server.serving.auth import Authenticator

_STREAM_SUFFIX = "/StreamBatches"

_HEALTH_PREFIX = "/grpc.health.v1.Health/"
"""Health checks need no token, and reveal nothing else."""

MAX_HEALTH_CALLS = 32
"""Calls with a thread each: more let clients without a token hold more threads."""

_MAX_PEER_HEALTH_CALLS = 8
"""Calls of one client: with fewer, the probes of a proxy could not overlap."""


class OpenCalls:
    """The calls of one kind that are open, in total and by client. Not thread-safe."""

    def __init__(self, kind: str, limit: int, peer_limit: int, options: bool = True) -> None:
        """`kind` is a plural for messages; with `options`, `--max-KIND` and `--peer-KIND` exist."""
        self._kind = kind
        self._limit = limit
        self._peer_limit = peer_limit
        self._options = options
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def add(self, client: str) -> None:
        """Counts one more call of the client. Raises `CallError` if that is too many."""
        if len(self) >= self._limit:
            raise self._full(None, self._limit)
        # All clients of a Unix socket are the empty one, which has no limit of its own.
        if client and self._open[client] >= self._peer_limit:
            raise self._full(client, self._peer_limit)
        self._open[client] += 1

    def remove(self, client: str) -> None:
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def _full(self, client: str | None, limit: int) -> CallError:
        text = f"{client or 'the server'} has {limit} {self._kind} open already: close some"
        if self._options:
            text += f", or raise --{'peer' if client else 'max'}-{self._kind}"
        error = ServerUnavailableError(text, limit=self._kind, client=client)
        reason: Refusal = "streams" if self._kind == "streams" else "calls"
        return CallError(error, "RESOURCE_EXHAUSTED", reason)


class Admission:
    """Authenticates calls, counts those that are open, and refuses too many. Thread-safe."""

    def __init__(self, limits: Limits, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self.streams = OpenCalls("streams", limits.max_streams, limits.peer_streams)
        self.calls = OpenCalls("calls", limits.max_calls, limits.peer_calls)
        self.health_calls = OpenCalls(
            "health calls", MAX_HEALTH_CALLS, _MAX_PEER_HEALTH_CALLS, options=False
        )
        self._lock = threading.Lock()
        self._stopping = False

    def stop(self) -> None:
        """Refuses whatever comes from now on."""
        with self._lock:
            self._stopping = True

    @contextmanager
    def admit(self, call: ServerCall) -> Iterator[None]:
        """Authenticates a call, and counts it in the block. Raises `CallError`."""
        client = client_name(call.peer(), call.client_certificate)
        if call.method.startswith(_HEALTH_PREFIX):
            kind = self.health_calls
        else:
            kind = self.streams if call.method.endswith(_STREAM_SUFFIX) else self.calls
            try:
                call.caller = self._authenticator.authenticate(call.authorization, client)
            except AuthenticationError as error:
                raise CallError(error, refusal="unauthenticated") from None
            client = call.caller.name
        with self._lock:
            self._add(kind, client)
        try:
            yield
        finally:
            with self._lock:
                kind.remove(client)

    def _add(self, kind: OpenCalls, client: str) -> None:
        if self._stopping:
            raise CallError(
                ServerUnavailableError("the server is shutting down"), refusal="stopping"
            )
        try:
            require_threads(streams=int(kind is self.streams))
        except OutOfThreadsError as error:
            problem = ServerUnavailableError(str(error))
            raise CallError(problem, "RESOURCE_EXHAUSTED", "threads") from None
        kind.add(client)
