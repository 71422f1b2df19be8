"""Two servers in this process, behind each installed proxy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.harness.counting_engine import BAD_FROM, CountingEngine
from tests.harness.ports import ReservedPort
from tests.harness.proxies import HOSTS, INSTALLED, PROXIES, ProxyProcess, in_front_of

from infeed.rpc.status import error_from_details
from infeed.shared.errors import InfeedError
from infeed_server.config.address import Address
from infeed_server.rpc.server import RpcServer
from infeed_server.serving.catalog import Catalog
from infeed_server.serving.instrument import Instrument


class BackendServer:
    """A server of the pipelines `n` and `bad`, and `/readyz` of its control plane."""

    def __init__(self, host: str, rpc_port: int, http_port: int) -> None:
        catalog = Catalog({"n": CountingEngine("n"), "bad": CountingEngine("bad", BAD_FROM)})
        self.rpc = RpcServer(catalog, Instrument())
        self.rpc.open(Address.parse(f"{host}:{rpc_port}"))
        self.stopping = False
        backend = self

        class Control(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(503 if backend.stopping else 200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.http = ThreadingHTTPServer((host, http_port), Control)
        self._thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self._thread.start()
        self.rpc.set_serving(True)
        self.rpc.start()

    def stop(self, grace: float) -> None:
        self.stopping = True
        self.rpc.stop(grace)

    def close(self) -> None:
        self.stop(0)
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


@pytest.fixture
def backends() -> Iterator[tuple[BackendServer, BackendServer]]:
    """Two servers at `HOSTS`, with equal ports."""
    with ExitStack() as stack:
        rpc, http = (stack.enter_context(ReservedPort()).number for _ in range(2))
        first, second = (
            stack.enter_context(closing(BackendServer(host, rpc, http))) for host in HOSTS
        )
        yield first, second


@pytest.fixture(params=PROXIES)
def proxy_name(request: pytest.FixtureRequest) -> str:
    """Each proxy; skips those that are not installed."""
    if request.param not in INSTALLED:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture
def start_proxy(proxy_name: str, tmp_path: Path) -> Iterator[Callable[[int, int], ProxyProcess]]:
    """Starts the proxy in front of servers with these ports."""
    running: list[ProxyProcess] = []

    def start(rpc_port: int, http_port: int) -> ProxyProcess:
        replacements = in_front_of(rpc_port, http_port)
        running.append(ProxyProcess(proxy_name, tmp_path / proxy_name, replacements))
        running[-1].wait_until_listening()
        return running[-1]

    yield start
    for item in running:
        item.close()


@pytest.fixture
def proxy(
    start_proxy: Callable[[int, int], ProxyProcess],
    backends: tuple[BackendServer, BackendServer],
) -> ProxyProcess:
    """The proxy in front of `backends`."""
    return start_proxy(backends[0].rpc.port, backends[0].http.server_port)


@pytest.fixture
def error_of() -> Callable[[grpc.RpcError], tuple[str, InfeedError]]:
    """Returns the status code of an error, and the infeed error in its details."""

    def read(rpc_error: Any) -> tuple[str, InfeedError]:
        error = error_from_details(dict(rpc_error.trailing_metadata())["grpc-status-details-bin"])
        assert error is not None
        return rpc_error.code().name, error

    return read
