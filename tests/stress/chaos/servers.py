"""Servers that are killed, terminated, frozen and restarted, one of them behind a faulty proxy."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer, Launch, spawn
from tests.harness.waiting import HarnessError, wait_until
from tests.stress.chaos.faulty_proxy import FaultyProxy
from tests.stress.chaos.schedule import PROXIED, SERVERS, Event


class FaultyServer(InfeedServer):
    """`infeed serve` on a port that stays reserved while the server is down."""

    def __init__(
        self, definition: Path, folder: Path, name: str = "server", launch: Launch = spawn
    ) -> None:
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        log = folder / f"{name}-{self.port}"
        super().__init__(definition, log, listen=self._reserved.address, launch=launch)
        self.unclean_exits = 0
        """Number of exits after SIGTERM with a status other than 0."""
        self.running = False
        """Whether it was started, and neither killed nor terminated since."""
        self._is_stopping = False
        self._resume_timer: threading.Timer | None = None

    @property
    def frozen(self) -> bool:
        return self._resume_timer is not None and self._resume_timer.is_alive()

    def check(self) -> None:
        """Raises `HarnessError` if it ended without a signal from this run."""
        if self.running and self.ended:
            tail = self.process.log_tail
            raise HarnessError(f"{self.address} exited with status {self.process.status}: {tail}")

    def start(self) -> None:
        """Starts it after a terminating process has ended; returns before it serves."""
        self._reap()
        super().start()
        self.running = True

    def kill(self) -> None:
        self.running = self._is_stopping = False
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        super().kill()

    def ask_to_stop(self) -> None:
        self.running, self._is_stopping = False, True
        super().ask_to_stop()

    def freeze(self, seconds: float) -> None:
        """Sends SIGSTOP, and SIGCONT after that time."""
        self.process.signal(signal.SIGSTOP)
        self._resume_timer = threading.Timer(seconds, self.process.signal, (signal.SIGCONT,))
        self._resume_timer.daemon = True
        self._resume_timer.start()

    def _reap(self) -> None:
        if self._is_stopping:
            self._is_stopping = False
            self.unclean_exits += self.wait() != 0

    def close(self) -> None:
        """Waits for a terminating process, or kills a running one."""
        try:
            self._reap()
        finally:
            self.kill()
            self._reserved.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class FaultyServers:
    """The servers of a run. A context manager that starts and ends all of them."""

    def __init__(self, definition: Path, folder: Path, launch: Launch) -> None:
        self.servers = [FaultyServer(definition, folder, launch=launch) for _ in range(SERVERS)]
        self.proxy = FaultyProxy(self.servers[PROXIED].port)
        addresses = [server.address for server in self.servers]
        addresses[PROXIED] = self.proxy.address
        self.target = ",".join(addresses)

    def start(self) -> None:
        """Starts the servers that are down, and waits until all serve without faults."""
        wait_until(lambda: not any(item.frozen for item in self.servers), "the last freeze ends")
        for server in self.servers:
            if not server.running:
                server.start()
        for server in self.servers:
            server.wait_until_serving()

    def ready_for(self, event: Event) -> bool:
        """Whether the event's server is down, or for a fault answers."""
        server = self.servers[event.server]
        server.check()
        if event.kind == "restart":
            return not server.running
        stalled = event.server == PROXIED and self.proxy.stalled
        return server.running and server.serves and not server.frozen and not stalled

    def apply(self, event: Event) -> None:
        server = self.servers[event.server]
        actions: dict[str, Callable[[], object]] = {
            "kill": server.kill,
            "terminate": server.ask_to_stop,
            "freeze": lambda: server.freeze(event.seconds),
            "restart": server.start,
            "stall": lambda: self.proxy.stall(event.seconds),
            "reset": lambda: self.proxy.reset(event.bytes),
        }
        actions[event.kind]()

    def __enter__(self) -> FaultyServers:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.close()
        for server in self.servers:
            server.close()
