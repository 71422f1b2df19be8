"""The servers of a run, and everything that can happen to them."""

from __future__ import annotations

from pathlib import Path

from tests.harness.server import Launch
from tests.harness.waiting import wait_until
from tests.stress.chaos.fault_schedule import Event, Kind
from tests.stress.chaos.faulty_proxy import FaultyProxy
from tests.stress.chaos.pipelines import Served
from tests.stress.chaos.servers import FaultyServer

SERVERS = 3
PROXIED = 0
"""The one that trainers reach by a proxy."""


class Setup:
    """The servers, one of them behind a proxy. A context manager: all end with it."""

    def __init__(self, served: Served, folder: Path, launch: Launch) -> None:
        self.servers = [
            FaultyServer(served.definition, folder, launch=launch) for _ in range(SERVERS)
        ]
        self.proxy = FaultyProxy(self.servers[PROXIED].port)
        addresses = [server.address for server in self.servers]
        addresses[PROXIED] = self.proxy.address
        self.target = ",".join(addresses)

    def start(self) -> None:
        """Starts those that are down; returns when all serve, and nothing disturbs them."""
        wait_until(
            lambda: not any(server.frozen for server in self.servers), "the last freeze ends"
        )
        for server in self.servers:
            if not server.running:
                server.start()
        for server in self.servers:
            server.wait_until_serving()

    @property
    def can_answer(self) -> bool:
        """Whether a server is there that trainers can reach."""
        there = [server.can_answer for server in self.servers]
        there[PROXIED] = there[PROXIED] and not self.proxy.stalled
        return any(there)

    def ready_for(self, event: Event) -> bool:
        server = self.servers[event.server]
        server.check()
        if event.kind is Kind.RESTART:
            return not server.running
        return server.can_answer

    def apply(self, event: Event) -> None:
        server = self.servers[event.server]
        if event.kind is Kind.KILL:
            server.kill()
        elif event.kind is Kind.TERMINATE:
            server.ask_to_stop()
        elif event.kind is Kind.FREEZE:
            server.freeze(event.seconds)
        elif event.kind is Kind.RESTART:
            server.start()
        elif event.kind is Kind.STALL:
            self.proxy.stall(event.seconds)
        elif event.kind is Kind.RESET:
            self.proxy.reset(event.bytes)

    def __enter__(self) -> Setup:
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.close()
        for server in self.servers:
            server.close()


__all__ = ["PROXIED", "SERVERS", "Setup"]
