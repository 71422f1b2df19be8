"""Workers: the processes or threads of simulated trainers, and the proxies that delay them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from infeed.http2.target import expand_hosts, host_name, is_local, parse_target
from infeed.http2.tls_config import TLS
from infeed.loadtest.records import Record
from infeed.loadtest.trainer import TrainerOptions, run_thread
from infeed.shared.errors import InvalidRequestError

_START_TIMEOUT_SECONDS = 30.0
"""Seconds for a proxy to start: less would fail on a busy machine."""

_END_TIMEOUT_SECONDS = 3.0
"""Seconds for a trainer to end before it is killed."""

Process = subprocess.Popen[bytes]


class Worker:
    """One simulated trainer, in a process or a thread, which can be killed and started again."""

    def __init__(self, rank: int, options: TrainerOptions, *, threads: bool) -> None:
        self.rank = rank
        self.records: Connection | None = None
        """Where its records arrive; None while it does not run."""
        self._options = options
        self._threads = threads
        self._process: Process | None = None
        self._thread: threading.Thread | None = None

    def start(self, state: Mapping[str, Any] | None = None) -> None:
        """Starts the trainer, at a cursor."""
        if self._threads:
            self.records, theirs = Pipe()
            arguments = (theirs, self._options, state)
            self._thread = threading.Thread(target=run_thread, args=arguments, daemon=True)
            self._thread.start()
        else:
            self._process, self.records = _start("trainer", (self._options, state))

    def order(self, name: str, value: float = 0.0) -> None:
        """Sends an order, unless the trainer has ended."""
        if self.records is not None:
            with contextlib.suppress(OSError):
                self.records.send((name, value))

    def kill(self) -> Iterator[Record]:
        """Ends the trainer without its last point; yields the records that it had sent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.order("kill")
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_SECONDS)
        with contextlib.suppress(EOFError, OSError):
            while self.records is not None and self.records.poll():
                yield self.records.recv()
        self.end()

    def end(self) -> int | None:
        """Ends what is left of the trainer; returns the exit status of its process."""
        if self.records is not None:
            self.records.close()
            self.records = None
        if self._thread is not None:
            self._thread.join(_END_TIMEOUT_SECONDS)
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            return process.wait(_END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _start(module: str, options: Any) -> tuple[Process, Connection]:
    """Runs a module's `run_process` in a process of its own, and sends it its options.

    Its session is its own too, so that Ctrl-C on a terminal does not reach it.
    """
    ours, theirs = Pipe()
    code = (
        "from multiprocessing.connection import Connection\n"
        f"from infeed.loadtest.{module} import run_process\n"
        f"run_process(Connection({theirs.fileno()}))"
    )
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - the code above
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], start_new_session=True
        )
    with contextlib.suppress(OSError):  # it has ended: its records do, too
        ours.send(options)
    return process, ours


@dataclass(frozen=True)
class Route:
    """How trainers reach the servers."""

    target: str
    connection: Mapping[str, Any]
    """Options of `connect`: TLS and token."""
    addresses: Mapping[str, str]
    """Address of a proxy → its server's address."""


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
    servers = [host for address in parse_target(target) for host in expand_hosts(address)]
    connection = _through_proxies(connection, servers)
    with contextlib.ExitStack() as stack:
        proxies = []
        for server in servers:
            process, ours = _start("delay", (server, rtt_seconds / 2, jitter_seconds / 2))
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.enter_context(ours)
            if not ours.poll(_START_TIMEOUT_SECONDS):
                raise TimeoutError(f"the proxy of {server} did not start")
            proxies.append(f"127.0.0.1:{ours.recv()}")
        yield Route(",".join(proxies), connection, dict(zip(proxies, servers, strict=True)))


def _through_proxies(connection: Mapping[str, Any], servers: list[str]) -> Mapping[str, Any]:
    tls = connection.get("tls")
    if not tls:
        if connection.get("token") is not None and not all(map(is_local, servers)):
            raise InvalidRequestError(
                "--rtt-ms would send the token unencrypted to another machine; use TLS"
            )
        return connection
    tls = tls if isinstance(tls, TLS) else TLS()
    names = {host_name(server).rstrip(".") for server in servers}
    if tls.server_name is None and len(names) > 1:
        raise InvalidRequestError(
            f"--rtt-ms with TLS needs --tls-server-name, for the servers have several names: "
            f"{', '.join(sorted(names))}"
        )
    return {**connection, "tls": replace(tls, server_name=tls.server_name or names.pop())}
