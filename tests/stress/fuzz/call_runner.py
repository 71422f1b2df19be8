"""Runner of many concurrent calls over a few connections of grpcio's client."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
from tests.stress.fuzz.calls import Call, Catalog, Draw
from tests.stress.fuzz.case import Case

HANG_TIMEOUT_SECONDS = 120.0
"""Time after which a call counts as hanging."""

_CONNECTIONS = 4
_CONCURRENT_CALLS = 32

_LIMIT_TEXTS = {
    "UNAVAILABLE": "jobs that read at different positions",
    "RESOURCE_EXHAUSTED": "health calls open already",
}
"""Parts of messages that depend on the concurrent calls: the most readers of a sequential data set,
and the most health calls of a host."""

Outcome = Callable[[Case[Draw], str, "str | None"], None]
"""Callback for each case, with its outcome, and its problem or None."""


class CallRunner:
    """Runs cases that are calls, many concurrently."""

    def __init__(
        self,
        address: str,
        catalog: Catalog,
        seed: int,
        outcome: Outcome,
        timeout: float = HANG_TIMEOUT_SECONDS,
    ) -> None:
        self._address = address
        self._catalog = catalog
        self._seed = seed
        self._outcome = outcome
        self._timeout = timeout

    def run(self, cases: Iterable[Case[Draw]]) -> None:
        """Runs the cases until each has ended."""
        with ExitStack() as stack:
            channels = [
                stack.enter_context(grpc.insecure_channel(self._address, [("number", number)]))
                for number in range(_CONNECTIONS)
            ]
            pool = stack.enter_context(ThreadPoolExecutor(_CONCURRENT_CALLS))
            list(pool.map(self._run_case, cases, itertools.cycle(channels)))

    def _run_case(self, case: Case[Draw], channel: grpc.Channel) -> None:
        call = case.draw(case.rng(self._seed), self._catalog)
        code, details, responses = self._call(channel, call)
        outcome, problem = self._evaluate(call, code, details)
        if problem is None and call.check is not None:
            problem = call.check(responses)
        self._outcome(case, outcome, problem)

    def _call(self, channel: grpc.Channel, call: Call) -> tuple[str, str, list[bytes]]:
        """Returns the status, its details, and the responses."""
        ended = threading.Event()

        def requests() -> Iterator[bytes]:
            yield from call.messages
            if not call.end:
                ended.wait()

        method: Any = channel.stream_stream(call.method)
        running = method(requests(), timeout=self._timeout)
        if call.cancel_after_seconds is not None:
            timer = threading.Timer(call.cancel_after_seconds, running.cancel)
            timer.daemon = True
            timer.start()
        responses: list[bytes] = []
        try:
            responses.extend(running)
        except grpc.RpcError as error:
            status: Any = error
            return status.code().name, status.details() or "", responses
        finally:
            ended.set()
        return "OK", "", responses

    def _evaluate(self, call: Call, code: str, details: str) -> tuple[str, str | None]:
        """Returns the outcome of a call, and its problem or None."""
        if code == "CANCELLED" and call.cancel_after_seconds is not None:
            return "left", None
        if code == "DEADLINE_EXCEEDED":
            return "hangs", "no end in sight"
        if code in call.codes or (code in _LIMIT_TEXTS and _LIMIT_TEXTS[code] in details):
            return code, None
        return code, f"{code} ({details[:300]}), not {sorted(call.codes)}"
