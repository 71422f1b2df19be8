"""Servers under comparison, each a context manager on a free loopback port."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.photos import photo_folder
from benchmarks.processes import ROOT, BenchmarkError, started
from benchmarks.throttle import throttled
from tests.harness.ports import ReservedPort
from tests.harness.server import InfeedServer, Launch, spawn
from tests.harness.spawned import SpawnedProcess, python_module


@dataclass(frozen=True)
class Running:
    """Address of a running server, and the ids of its processes."""

    address: str
    pids: tuple[int, ...] = ()


Server = Callable[[], AbstractContextManager[Running]]


@contextmanager
def infeed(
    *options: str,
    launch: Launch = spawn,
    pipelines: str = "pipelines.yaml",
    on_unix: bool = False,
    query: str = "",
) -> Iterator[Running]:
    """Runs `infeed serve` on the benchmarks' pipelines; `query` are options of the consumers."""
    text = (ROOT / "benchmarks" / pipelines).read_text().replace("PHOTOS", str(photo_folder()))
    with tempfile.TemporaryDirectory() as folder:
        definition = Path(folder) / "pipelines.yaml"
        definition.write_text(text)
        log = Path(folder) / "server"
        listen = f"unix:{folder}/socket" if on_unix else "127.0.0.1:0"
        with InfeedServer(
            definition, log, *options, listen=listen, cwd=ROOT, launch=launch
        ) as server:
            yield Running(server.address + query, (server.pid,))


def infeed_map_style() -> AbstractContextManager[Running]:
    """Runs `infeed` on a Python data set, read by worker processes."""
    return infeed(pipelines="map_style.yaml")


def infeed_on_unix() -> AbstractContextManager[Running]:
    """Runs `infeed` at a Unix socket, over which batches are in shared memory."""
    return infeed(on_unix=True)


def infeed_without_checksums() -> AbstractContextManager[Running]:
    return infeed(query="?checksum=off")


def infeed_in_tls() -> AbstractContextManager[Running]:
    """Runs `infeed` with a certificate; the address names its CA's file."""
    return _in_tls()


def infeed_unobserved() -> AbstractContextManager[Running]:
    """Runs `infeed` without metrics, states and reports."""
    return infeed(launch=_launch_unobserved)


def _launch_unobserved(arguments: Sequence[str], log: Path, cwd: Path) -> SpawnedProcess:
    command = python_module("benchmarks.unobserved", *arguments)
    return SpawnedProcess(command, log, cwd=cwd, environment={"PYTHONPATH": str(ROOT)})


@contextmanager
def _in_tls(launch: Launch = spawn) -> Iterator[Running]:
    import trustme

    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    with (
        authority.cert_pem.tempfile() as ca,
        pair.tempfile() as cert,
        infeed("--tls-cert", cert, launch=launch) as running,
    ):
        yield replace(running, address=f"{running.address}?ca={ca}")


def gateway() -> AbstractContextManager[Running]:
    """Runs the tf-data-service engine with an embedded dispatcher and one worker."""
    return infeed("--engine", "tf-data-service", "--workers", "1")


@contextmanager
def service(delay_ms: float | None = None) -> Iterator[Running]:
    """Runs tf.data service: a dispatcher and one worker, each behind a proxy with `delay_ms`."""
    with ExitStack() as stack:
        dispatcher = stack.enter_context(started("benchmarks.service", "dispatcher"))
        target = f"localhost:{_port(dispatcher.read_line())}"
        port = stack.enter_context(ReservedPort()).number
        advertised = f"localhost:{port}"
        address = target
        if delay_ms is not None:
            advertised = stack.enter_context(delayed(advertised, delay_ms))
            address = stack.enter_context(delayed(target, delay_ms))
        worker = started("benchmarks.service", "worker", target, str(port), advertised)
        process = stack.enter_context(worker)
        process.read_line()
        yield Running(address, (dispatcher.pid, process.pid))


@contextmanager
def flight(dataset: str) -> Iterator[Running]:
    with started("benchmarks.flight", dataset, "grpc://127.0.0.1:0") as process:
        yield Running(f"grpc://127.0.0.1:{_port(process.read_line())}", (process.pid,))


@contextmanager
def flight_on_unix(dataset: str) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder:
        address = f"grpc+unix://{folder}/socket"
        with started("benchmarks.flight", dataset, address) as process:
            process.read_line()
            yield Running(address, (process.pid,))


@contextmanager
def tcp(dataset: str) -> Iterator[Running]:
    with started("benchmarks.tcp", dataset) as process:
        yield Running(f"127.0.0.1:{_port(process.read_line())}", (process.pid,))


@contextmanager
def no_server() -> Iterator[Running]:
    """Runs nothing, for a consumer without a server."""
    yield Running("-")


def delayed_server(server: Server, delay_ms: float) -> Server:
    """Returns the same server behind a proxy that delays each direction."""

    @contextmanager
    def run() -> Iterator[Running]:
        with server() as running, delayed(running.address, delay_ms) as address:
            yield Running(address, running.pids)

    return run


@contextmanager
def infeed_on_flows(*rates: float, options: str = "") -> Iterator[Running]:
    """Runs `infeed serve` behind a link that limits the bytes per second of each of a consumer's
    connections; a query has the consumer's other options of `connect`."""
    with infeed() as running, throttled(running.address, rates) as address:
        yield Running(f"{address}?connections={len(rates)}&{options}", running.pids)


@contextmanager
def delayed(target: str, delay_ms: float) -> Iterator[str]:
    """Runs a delaying proxy to `target` and yields its address."""
    with started("benchmarks.delay", target, str(delay_ms)) as process:
        yield f"127.0.0.1:{_port(process.read_line())}"


def delayed_service(delay_ms: float) -> Server:
    """Returns tf.data service with each process behind a proxy that delays each direction."""
    return partial(service, delay_ms)


def _port(line: str) -> str:
    word, port = line.split()
    if word != "ready":
        raise BenchmarkError(f"a server printed {line!r}, not 'ready PORT'")
    return port
