"""Failover of unary calls: one server after the other, until one responds."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from infeed.http2.socket import CONNECT_TIMEOUT_SECONDS
from infeed.rpc.call import GrpcCall, read_single_response
from infeed.shared.errors import (
    AuthenticationError,
    InfeedError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerError,
    ServerUnavailableError,
    SourceError,
    StallError,
)
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS

log = logging.getLogger(__name__)

NOTICE_SECONDS = 2.0
"""Seconds of waiting after which the log says so: fewer would name servers that only start."""

_REFUSALS = (
    AuthenticationError,
    PermissionDeniedError,
    PipelineNotFoundError,
    ProtocolError,
    ServerError,
    SourceError,
)
"""Errors of one server for which another one is tried."""


class Failover:
    """Calls the server that has responded last, and the next one after an error. Thread-safe."""

    def __init__(self, target: str, addresses: Sequence[str]) -> None:
        self._target = target
        self._addresses = addresses
        self._current = 0
        self._lock = threading.Lock()

    def call(
        self, new_call: Callable[[str, float, float], GrpcCall], response: Any, timeout: float
    ) -> Any:
        """Returns the response of the first server that responds; logs once what it waits for.

        `new_call` takes address, timeout and timeout of the connection. At the timeout raises a
        refusal, if a server refused the call, else the last error. A refusal is raised at once when
        every server has refused.
        """
        began = time.monotonic()
        call_timeout = max(1.0, timeout / len(self._addresses))
        backoff, connect_timeout = MIN_BACKOFF_SECONDS, CONNECT_TIMEOUT_SECONDS
        problem, noticed = "the timeout left no time for a call", False
        refusals: dict[str, InfeedError] = {}
        while (left := began + timeout - time.monotonic()) > 0:
            address = self._addresses[self._current]
            call = new_call(address, min(left, call_timeout), connect_timeout)
            try:
                with contextlib.closing(call):
                    return read_single_response(call, response)
            except (ServerUnavailableError, StallError) as error:
                connect_timeout *= 2  # a server may only be slow, as when all trainers connect
                problem = error.message
            except _REFUSALS as error:
                refusals[address], problem = error, error.message
                if len(refusals) == len(set(self._addresses)):
                    raise
            self._switch_from(address)
            waited = time.monotonic() - began
            if waited >= NOTICE_SECONDS and not noticed:
                noticed = True
                line = "waiting for an infeed server at %s, for %.1f s so far: %s"
                log.warning(line, self._target, waited, problem)
            time.sleep(min(backoff, max(0.0, timeout - waited)))
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
        for refusal in refusals.values():
            raise refusal
        raise ServerUnavailableError(
            f"no infeed server answered at {self._target} within {round(timeout, 2):g} s; last "
            f"reason: {problem}",
            target=self._target,
            seconds=timeout,
        )

    def _switch_from(self, address: str) -> None:
        """Makes the next address the current one, unless another thread has done so."""
        with self._lock:
            if self._addresses[self._current] == address:
                self._current = (self._current + 1) % len(self._addresses)
