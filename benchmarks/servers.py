"""The servers that are compared: each for as long as a block lasts, on a free loopback port."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.arrays import PHOTOS
from benchmarks.processes import ROOT, BenchmarkError, started
from tests.harness.server import InfeedServer


@dataclass(frozen=True)
class Running:
    """A server that runs: where trainers connect, and the processes that it consists of."""

    address: str
    pids: tuple[int, ...] = ()


Server = Callable[[], AbstractContextManager[Running]]


@contextmanager
def infeed(*options: str) -> Iterator[Running]:
    """`infeed serve` on the benchmarks' pipelines."""
    if not PHOTOS.is_dir():
        raise BenchmarkError(f"no folder {PHOTOS}; set INFEED_BENCH_PHOTOS to one of JPEGs")
    text = (ROOT / "benchmarks/pipelines.yaml").read_text().replace("PHOTOS", str(PHOTOS.resolve()))
    with tempfile.TemporaryDirectory() as folder:
        definition = Path(folder) / "pipelines.yaml"
        definition.write_text(text)
        with InfeedServer(definition, Path(folder) / "server", *options) as server:
            yield Running(server.address, (server.pid,))


@contextmanager
def infeed_in_tls() -> Iterator[Running]:
    """The same with a certificate; the address names the file of the authority that made it."""
    import trustme

    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    with (
        authority.cert_pem.tempfile() as ca,
        pair.tempfile() as cert,
        infeed("--tls-cert", cert) as running,
    ):
        yield replace(running, address=f"{running.address}?ca={ca}")


def gateway() -> AbstractContextManager[Running]:
    """infeed's second engine: a dispatcher within, and one worker."""
    return infeed("--engine", "tf-data-service", "--workers", "1")


@contextmanager
def service(delay_ms: float | None = None) -> Iterator[Running]:
    """tf.data service: a dispatcher with one worker; the trainer's way to both may be longer."""
    with ExitStack() as stack:
        dispatcher = stack.enter_context(started("benchmarks.service", "dispatcher"))
        target = f"localhost:{_port(dispatcher.read_line())}"
        port = _free_port()
        advertised = f"localhost:{port}"
        way = target
        if delay_ms is not None:
            advertised = stack.enter_context(delayed(advertised, delay_ms))
            way = stack.enter_context(delayed(target, delay_ms))
        worker = started("benchmarks.service", "worker", target, str(port), advertised)
        process = stack.enter_context(worker)
        process.read_line()
        yield Running(way, (dispatcher.pid, process.pid))


@contextmanager
def flight(dataset: str) -> Iterator[Running]:
    with started("benchmarks.flight", dataset) as process:
        yield Running(f"127.0.0.1:{_port(process.read_line())}", (process.pid,))


@contextmanager
def tcp(dataset: str) -> Iterator[Running]:
    with started("benchmarks.tcp", dataset) as process:
        yield Running(f"127.0.0.1:{_port(process.read_line())}", (process.pid,))


@contextmanager
def nobody() -> Iterator[Running]:
    """For a consumer that needs no server."""
    yield Running("-")


def further(server: Server, delay_ms: float) -> Server:
    """The same server behind a proxy, `delay_ms` away in each direction."""

    @contextmanager
    def behind() -> Iterator[Running]:
        with server() as running, delayed(running.address, delay_ms) as address:
            yield Running(address, running.pids)

    return behind


@contextmanager
def delayed(target: str, delay_ms: float) -> Iterator[str]:
    """The address of a proxy to `target`."""
    with started("benchmarks.delay", target, str(delay_ms)) as process:
        yield f"127.0.0.1:{_port(process.read_line())}"


def service_further(delay_ms: float) -> Server:
    """tf.data service, each of its processes `delay_ms` away in each direction."""
    return partial(service, delay_ms)


def _port(line: str) -> str:
    word, port = line.split()
    if word != "ready":
        raise BenchmarkError(f"a server said {line!r}")
    return port


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
