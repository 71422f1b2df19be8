"""Workers: the processes or threads of simulated trainers, and the proxies that delay them."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from infeed.http2.target import expand_hosts, host_name, is_local, parse_target
from infeed.http2.tls_config import TLS
from infeed.loadtest import delay
from infeed.loadtest.trainer import TrainerOptions, run_process, run_thread
from infeed.shared.errors import InvalidRequestError

_START_TIMEOUT_SECONDS = 30.0
_END_TIMEOUT_SECONDS = 3.0

# A fork would copy the threads' locks of this process; feeds refuse to work in one.
_CONTEXT = multiprocessing.get_context("spawn")


class Worker:
    """One simulated trainer, in a process or a thread, which can be killed and started again."""

    def __init__(self, rank: int, options: TrainerOptions, *, threads: bool) -> None:
        self.rank = rank
        self.records: Connection | None = None
        """Where its records arrive; None while it does not run."""
        self._options = options
        self._threads = threads
        self._process: Any = None
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """Whether it has been started, and has not ended yet."""
        return self.records is not None

    def start(self, state: Mapping[str, Any] | None = None) -> None:
        """Starts the trainer, at a cursor."""
        ours, theirs = _CONTEXT.Pipe()
        arguments = (theirs, self._options, state)
        self.records = ours
        if self._threads:
            self._thread = threading.Thread(target=run_thread, args=arguments, daemon=True)
            self._thread.start()
            return
        self._process = _CONTEXT.Process(target=run_process, args=arguments, daemon=True)
        _start(self._process)
        theirs.close()

    def order(self, name: str, value: float = 0.0) -> None:
        """Sends an order, unless the trainer has ended."""
        if self.records is not None:
            with contextlib.suppress(OSError):
                self.records.send((name, value))

    def kill(self) -> None:
        """Ends the trainer without its last point; its records so far can still be read."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        else:
            self.order("kill")
            self._join_thread()

    def end(self) -> int | None:
        """Ends what is left of the trainer; returns the exit status of its process."""
        if self.records is not None:
            self.records.close()
            self.records = None
        status = None
        if self._process is not None:
            self._process.join(_END_TIMEOUT_SECONDS)
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
            status = self._process.exitcode
            self._process.close()
            self._process = None
        self._join_thread()
        return status

    def _join_thread(self) -> None:
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_SECONDS)
            self._thread = None


@dataclass(frozen=True)
class Route:
    """How trainers reach the servers."""

    target: str
    connection: Mapping[str, Any]
    """Options of `connect`: TLS and token."""
    addresses: Mapping[str, str]
    """Address of a proxy → that of its server."""


@contextlib.contextmanager
def route(
    target: str, connection: Mapping[str, Any], rtt_seconds: float, jitter_seconds: float
) -> Iterator[Route]:
    """Runs a delaying proxy for each server of a target, if there is a delay.

    Raises `InvalidRequestError` where a proxy would weaken TLS or a token.
    """
    if not (rtt_seconds or jitter_seconds):
        yield Route(target, connection, {})
        return
    if not delay.IS_SUPPORTED:
        raise InvalidRequestError("--rtt-ms and --jitter-ms need Linux, whose splice they use")
    addresses = [host for each in parse_target(target) for host in expand_hosts(each)]
    connection = _through_proxies(connection, addresses)
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(_proxy(each, rtt_seconds / 2, jitter_seconds / 2))
            for each in addresses
        ]
        proxies = [f"127.0.0.1:{port}" for port in ports]
        yield Route(",".join(proxies), connection, dict(zip(proxies, addresses, strict=True)))


@contextlib.contextmanager
def _proxy(address: str, delay_seconds: float, jitter_seconds: float) -> Iterator[int]:
    ours, theirs = _CONTEXT.Pipe()
    arguments = (address, delay_seconds, jitter_seconds, theirs)
    process: Any = _CONTEXT.Process(target=delay.serve, args=arguments, daemon=True)
    _start(process)
    theirs.close()
    try:
        if not ours.poll(_START_TIMEOUT_SECONDS):
            raise TimeoutError(f"the proxy of {address} did not start")
        yield ours.recv()
    finally:
        ours.close()
        process.kill()
        process.join()
        process.close()


def _start(process: Any) -> None:
    """Starts a process that no Ctrl-C interrupts before it ignores it."""
    resource_tracker.ensure_running()  # the first start of a process would, and admit Ctrl-C again
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _through_proxies(connection: Mapping[str, Any], addresses: list[str]) -> Mapping[str, Any]:
    tls = connection.get("tls")
    if not tls:
        if connection.get("token") is not None and not all(map(is_local, addresses)):
            raise InvalidRequestError(
                "--rtt-ms would send the token unencrypted to another machine; use TLS"
            )
        return connection
    tls = tls if isinstance(tls, TLS) else TLS()
    names = {host_name(each).rstrip(".") for each in addresses}
    if tls.server_name is None and len(names) > 1:
        raise InvalidRequestError(
            f"--rtt-ms with TLS needs --tls-server-name, for the servers have several names: "
            f"{', '.join(sorted(names))}"
        )
    return {**connection, "tls": replace(tls, server_name=tls.server_name or names.pop())}
