"""Admission of calls: tokens and limits."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from infeed.shared.errors import AuthenticationError, ServerUnavailableError
from infeed_server.engines.base import shutting_down
from infeed_server.rpc.call import ServerCall
from infeed_server.rpc.limits import Limits, client_name
from infeed_server.rpc.status import CallError
from infeed_server.serving.auth import Caller, TokenAuthenticator

STREAMS, CALLS, HEALTH_CALLS = "streams", "calls", "health calls"
"""Kinds of calls with limits of their own."""

_HEALTH_PREFIX = "/grpc.health.v1.Health/"
"""Methods that need no token: health checks, which reveal only health."""

MAX_HEALTH_CALLS = 32
"""Maximum calls, each with a thread: with more, clients without a token can hold more threads."""

_MAX_PEER_HEALTH_CALLS = 8
"""Maximum calls of one client: with fewer, a proxy's probes could not overlap."""


class Admission:
    """Authenticates calls, counts the open ones, and refuses calls over a limit. Thread-safe."""

    def __init__(self, limits: Limits, authenticator: TokenAuthenticator | None) -> None:
        self._authenticator = authenticator
        # Maximum calls, in total and of one client.
        self._limits = {
            STREAMS: (limits.max_streams, limits.peer_streams),
            CALLS: (limits.max_calls, limits.peer_calls),
            HEALTH_CALLS: (MAX_HEALTH_CALLS, _MAX_PEER_HEALTH_CALLS),
        }
        self._open: dict[str, Counter[str]] = {kind: Counter() for kind in self._limits}
        """Open calls by client."""
        self._lock = threading.Lock()
        self.stopping = False
        """Whether all new calls are refused."""

    def open_calls(self, kind: str) -> int:
        return self._open[kind].total()

    @contextmanager
    def admit(self, call: ServerCall) -> Iterator[None]:
        """Authenticates a call, and counts it in the block. Raises `CallError`."""
        client = client_name(call.peer(), call.client_certificate)
        if call.method.startswith(_HEALTH_PREFIX):
            kind = HEALTH_CALLS
        else:
            kind = STREAMS if call.method.endswith("/StreamBatches") else CALLS
            call.caller = Caller(client)
            if self._authenticator is not None:
                try:
                    call.caller = self._authenticator.authenticate(call.authorization)
                except AuthenticationError as error:
                    raise CallError(error, refusal="unauthenticated") from None
            client = call.caller.name
        with self._lock:
            self._require_room(kind, client)
            self._open[kind][client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[kind][client] -= 1
                self._open[kind] += Counter()  # forgets clients without a call

    def _require_room(self, kind: str, client: str) -> None:
        if self.stopping:
            raise CallError(shutting_down(), refusal="stopping")
        limit, peer_limit = self._limits[kind]
        if self.open_calls(kind) >= limit:
            raise _full(kind, limit)
        # All clients of a Unix socket have the empty name, which has no limit of its own.
        if client and self._open[kind][client] >= peer_limit:
            raise _full(kind, peer_limit, client)


def _full(kind: str, limit: int, client: str | None = None) -> CallError:
    text = f"{client or 'the server'} already has {limit} open {kind}: close some"
    if kind != HEALTH_CALLS:
        text += f", or raise --{'peer' if client else 'max'}-{kind}"
    error = ServerUnavailableError(text, limit=kind, client=client)
    return CallError(error, "RESOURCE_EXHAUSTED", "streams" if kind == STREAMS else "calls")
