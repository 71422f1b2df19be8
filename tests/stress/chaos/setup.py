"""Servers of a run, and the events that apply to them."""

from __future__ import annotations

from pathlib import Path

from tests.harness.proxies import ProxyProcess
from tests.harness.server import Launch
from tests.harness.waiting import wait_until
from tests.stress.chaos.fault_schedule import Event, FaultKind
from tests.stress.chaos.faulty_proxy import FaultyProxy
from tests.stress.chaos.pipelines import ServedPipeline
from tests.stress.chaos.servers import FaultyServer

SERVERS = 3
PROXIED = 0
"""Index of the server that trainers reach through the proxy."""


_UPSTREAM = "server {} fail_timeout=2s;"
"""A server in deploy/proxies/nginx.conf."""

PROXIES = ("none", "nginx")
"""What is between trainers and servers, besides the proxy with faults: nothing, or one nginx for
all, so that the trainers' target is a single address."""


class Setup:
    """Servers, one of them behind a proxy with faults. A context manager that ends all of them."""

    def __init__(
        self, served: ServedPipeline, folder: Path, launch: Launch, proxy: str = "none"
    ) -> None:
        """`proxy` is one of `PROXIES`."""
        self.servers = [
            FaultyServer(served.definition, folder, launch=launch) for _ in range(SERVERS)
        ]
        self.proxy = FaultyProxy(self.servers[PROXIED].port)
        addresses = [server.address for server in self.servers]
        addresses[PROXIED] = self.proxy.address
        self._proxies: list[FaultyProxy | ProxyProcess] = [self.proxy]
        if proxy == "nginx":
            upstreams = " ".join(_UPSTREAM.format(address) for address in addresses)
            first, second = map(_UPSTREAM.format, ("10.0.0.1:7470", "10.0.0.2:7470"))
            replacements = {first: upstreams, second: ""}
            balancer = ProxyProcess("nginx", folder / "nginx", replacements)
            self._proxies.append(balancer)
            addresses = [balancer.address]
        self.target = ",".join(addresses)

    def start(self) -> None:
        """Starts the servers that are down, and waits until all serve without faults."""
        wait_until(
            lambda: not any(server.frozen for server in self.servers), "the last freeze ends"
        )
        for server in self.servers:
            if not server.running:
                server.start()
        for server in self.servers:
            server.wait_until_serving()

    def ready_for(self, event: Event) -> bool:
        server = self.servers[event.server]
        server.check()
        if event.kind is FaultKind.RESTART:
            return not server.running
        return server.can_answer

    def has_started(self, index: int) -> bool:
        """Whether a server serves, or was killed or terminated since its start."""
        server = self.servers[index]
        server.check()
        return server.serves or not server.running

    def apply(self, event: Event) -> None:
        server = self.servers[event.server]
        if event.kind is FaultKind.KILL:
            server.kill()
        elif event.kind is FaultKind.TERMINATE:
            server.ask_to_stop()
        elif event.kind is FaultKind.FREEZE:
            server.freeze(event.seconds)
        elif event.kind is FaultKind.RESTART:
            server.start()
        elif event.kind is FaultKind.STALL:
            self.proxy.stall(event.seconds)
        elif event.kind is FaultKind.RESET:
            self.proxy.reset(event.bytes)

    def __enter__(self) -> Setup:
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            proxy.close()
        for server in self.servers:
            server.close()
