"""The servers of a run, and everything that can happen to them."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.events import Event, Kind
from tests.chaos.link import Link
from tests.chaos.pipelines import Served
from tests.chaos.processes import until
from tests.chaos.servers import Server

SERVERS = 3
LINKED = 0
"""The one that trainers reach by a link."""


class Stage:
    """The servers, one of them behind a link. A context manager: all end with it."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.servers = [Server(served.definition, folder) for _ in range(SERVERS)]
        self.link = Link(self.servers[LINKED].port)
        addresses = [server.address for server in self.servers]
        addresses[LINKED] = self.link.address
        self.target = ",".join(addresses)

    def start(self) -> None:
        """Starts those that are down; returns when all serve, and nothing disturbs them."""
        until(lambda: not any(server.frozen for server in self.servers), "the last freeze ends")
        for server in self.servers:
            if not server.running:
                server.start()
        for server in self.servers:
            server.wait_until_serving()

    @property
    def can_answer(self) -> bool:
        """Whether a server is there that trainers can reach."""
        there = [server.serves and not server.frozen for server in self.servers]
        there[LINKED] = there[LINKED] and not self.link.stalled
        return any(there)

    def ready_for(self, event: Event) -> bool:
        server = self.servers[event.server]
        server.check()
        if event.kind is Kind.RESTART:
            return not server.running
        return server.serves and not server.frozen

    def apply(self, event: Event) -> None:
        server = self.servers[event.server]
        if event.kind is Kind.KILL:
            server.kill()
        elif event.kind is Kind.TERMINATE:
            server.terminate()
        elif event.kind is Kind.FREEZE:
            server.freeze(event.seconds)
        elif event.kind is Kind.RESTART:
            server.start()
        elif event.kind is Kind.STALL:
            self.link.stall(event.seconds)
        elif event.kind is Kind.RESET:
            self.link.reset(event.bytes)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()
        for server in self.servers:
            server.stop()


__all__ = ["LINKED", "SERVERS", "Stage"]
