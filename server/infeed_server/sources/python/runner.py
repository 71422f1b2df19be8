"""Runners of requests to the user's Python code: the protocol, and a thread of the server."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from infeed_server.processes.daemon_executor import DaemonExecutor
from infeed_server.processes.worker_pool import OnBegin, PoolClosedError


class Runner(Protocol):
    """Answers requests; several threads may send them."""

    def submit(self, request: Any, on_begin: OnBegin) -> Future[Any]:
        """Returns the future of the answer. Raises `PoolClosedError`."""

    def close(self) -> None: ...


class ThreadRunner:
    """Makes the handler and answers all requests on one thread of its own.

    Few data sets are made for several threads at a time, and some, such as SQLite's, only for that
    which made them.
    """

    def __init__(self, handler: Callable[[Any], Callable[[Any], Any]], argument: Any) -> None:
        self._thread = DaemonExecutor("infeed-python")
        self._new_handler = partial(handler, argument)
        self._handler: Callable[[Any], Any] | None = None

    def submit(self, request: Any, on_begin: OnBegin) -> Future[Any]:
        try:
            return self._thread.submit(self._perform, request, on_begin)
        except RuntimeError:  # the executor is closed
            raise PoolClosedError from None

    def close(self) -> None:
        self._thread.close()

    def _perform(self, request: Any, on_begin: OnBegin) -> Any:
        on_begin(os.getpid())
        if self._handler is None:
            self._handler = self._new_handler()
        return self._handler(request)
