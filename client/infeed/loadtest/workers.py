"""Workers: the processes of simulated trainers, and of the proxies that delay them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from infeed.http2.target import expand_hosts, is_local, parse_target
from infeed.http2.tls_config import TLS
from infeed.loadtest.plan import LoadPlan
from infeed.loadtest.trainer import Record
from infeed.shared.errors import InvalidRequestError, ServerUnavailableError

_END_TIMEOUT_SECONDS = 3.0
"""Seconds for a trainer to end before it is killed."""

_TRAINER = """
from multiprocessing.connection import Connection
from infeed.loadtest.trainer import run_process
run_process(Connection({}))
"""


class Worker:
    """One simulated trainer, which can be killed and started again."""

    def __init__(self, rank: int, plan: LoadPlan, options: Mapping[str, Any]) -> None:
        """`options` are of `connect`, but for `state`."""
        self.rank = rank
        self.records: Connection | None = None
        """Where its records arrive; None while it does not run."""
        self._plan, self._options = plan, options
        self._process: subprocess.Popen[Any] | None = None

    def start(self, state: Mapping[str, Any] | None = None) -> None:
        """Starts the trainer at a cursor."""
        self.records, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            self._process = _start("-c", _TRAINER.format(number), pass_fds=[number])
        self.order((self._plan.step_seconds, self._plan.steps, {**self._options, "state": state}))

    def order(self, value: Any) -> None:
        """Sends the seconds of a stall, or None to stop, unless the trainer has ended."""
        if self.records is not None:
            with contextlib.suppress(OSError):
                self.records.send(value)

    def kill(self) -> Iterator[Record]:
        """Ends the trainer without its last point; yields the records that it had sent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(EOFError, OSError):
            while self.records is not None and self.records.poll():
                yield self.records.recv()
        self.end()

    def end(self) -> int | None:
        """Ends what is left of the trainer; returns the exit status of its process."""
        if self.records is not None:
            self.records.close()
            self.records = None
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            return process.wait(_END_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _start(*words: str, **options: Any) -> subprocess.Popen[Any]:
    """Runs Python in a session of its own, which Ctrl-C on a terminal does not reach."""
    return subprocess.Popen(  # noqa: S603 - the modules of this package
        [sys.executable, *words], start_new_session=True, **options
    )


@contextlib.contextmanager
def route(
    target: str, connection: Mapping[str, Any], rtt_ms: float, jitter_ms: float
) -> Iterator[tuple[str, dict[str, str]]]:
    """Runs a delaying proxy for each server of a target, if there is a delay.

    Yields the target of the trainers, and by the address of a proxy its server's. Raises
    `InvalidRequestError` where a proxy would weaken TLS or a token.
    """
    if not (rtt_ms or jitter_ms):
        yield target, {}
        return
    servers = [host for address in parse_target(target) for host in expand_hosts(address)]
    _check_security(connection, servers)
    delays = (str(rtt_ms / 2), str(jitter_ms / 2))
    addresses: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for server in servers:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = stack.enter_context(
                _start("-m", "infeed.loadtest.delay", server, *delays, **pipes)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            ready, _, port = process.stdout.readline().partition(" ")
            if not ready:
                raise ServerUnavailableError(f"the proxy of {server} did not start: see its error")
            addresses[f"127.0.0.1:{port.strip()}"] = server
        yield ",".join(addresses), addresses


def _check_security(connection: Mapping[str, Any], servers: list[str]) -> None:
    tls = connection.get("tls")
    if not tls and connection.get("token") is not None and not all(map(is_local, servers)):
        raise InvalidRequestError(
            "--rtt-ms would send the token unencrypted to another machine; use TLS"
        )
    if tls and not (isinstance(tls, TLS) and tls.server_name):
        raise InvalidRequestError(
            "--rtt-ms with TLS needs --tls-server-name, the name in the servers' certificate, for "
            "trainers connect to a proxy on this machine"
        )
