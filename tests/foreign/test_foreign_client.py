"""A client in JavaScript, written from docs/architecture.md: batches, tokens, errors, a drain."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.counting_engine import SAMPLES, SLOTS, CountingEngine
from tests.harness.process import ROOT
from tests.harness.spawned import SpawnedProcess

from infeed_server.config.address import Address
from infeed_server.rpc.server import RpcServer
from infeed_server.serving.auth import TokenAuthenticator, new_token, token_entry
from infeed_server.serving.catalog import Catalog
from infeed_server.serving.instrument import Instrument

CLIENT = Path(__file__).with_name("client.cjs")
MODULES = ROOT / "build/node/node_modules"
"""Where `npm install --prefix build/node @grpc/grpc-js @grpc/proto-loader` puts them."""

LONG_SECONDS = 3600.0

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "@grpc/grpc-js").is_dir(),
    reason="needs node, and npm install --prefix build/node @grpc/grpc-js @grpc/proto-loader",
)


@pytest.fixture
def token() -> str:
    return new_token()


@pytest.fixture
def servers(tmp_path: Path, token: str) -> Iterator[list[RpcServer]]:
    """Two servers that require the token."""
    file = tmp_path / "tokens.yaml"
    file.write_text(token_entry(token, "javascript", ["n"]))
    catalog = Catalog({"n": CountingEngine("n")})
    running = [
        RpcServer(catalog, Instrument(), authenticator=TokenAuthenticator(str(file)))
        for _ in range(2)
    ]
    for server in running:
        server.open(Address.parse("127.0.0.1:0"))
        server.set_serving(True)
        server.start()
    yield running
    for server in running:
        server.stop(0)


@pytest.fixture
def start_client(
    servers: list[RpcServer], tmp_path: Path
) -> Iterator[Callable[..., SpawnedProcess]]:
    """Starts the client: `start_client(pipeline, epochs, token)`."""
    started: list[SpawnedProcess] = []

    def start(pipeline: str, epochs: int, token: str) -> SpawnedProcess:
        addresses = [f"127.0.0.1:{server.port}" for server in servers]
        command = ["node", str(CLIENT), str(ROOT / "proto"), pipeline, str(epochs), token]
        environment = {"NODE_PATH": str(MODULES)}
        started.append(
            SpawnedProcess([*command, *addresses], tmp_path / "node", environment=environment)
        )
        return started[-1]

    yield start
    for item in started:
        item.stop()


def lines(process: SpawnedProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.stdout.splitlines()]


def test_every_sample_is_read_across_a_drain(
    servers: list[RpcServer], start_client: Any, token: str
) -> None:
    epochs = 8  # long enough to be under way when the server stops
    process = start_client("n", epochs, token)
    process.read_line()
    stop = threading.Thread(target=servers[0].stop, args=(LONG_SECONDS,))
    stop.start()
    stop.join(100)
    assert not stop.is_alive()
    assert process.wait() == 0, process.log_tail
    batches = [line for line in lines(process) if "ids" in line]
    drained = [line["draining"] for line in lines(process) if "draining" in line]
    ids = [item for batch in batches for item in batch["ids"]]
    assert ids == [position % SAMPLES for position in range(epochs * SAMPLES)]
    assert [batch["epoch"] for batch in batches] == [
        SLOTS * step // SAMPLES for step in range(epochs * SAMPLES // SLOTS)
    ]
    assert all(batch["first"] == batch["ids"] for batch in batches)
    assert drained == [f"127.0.0.1:{servers[0].port}"]
    assert {batch["server"] for batch in batches} == {f"127.0.0.1:{s.port}" for s in servers}


@pytest.mark.parametrize(
    ("pipeline", "has_token", "error", "reason"),
    [
        ("n", False, "UNAUTHENTICATED", "infeed.dev/UNAUTHENTICATED"),
        ("other", True, "PERMISSION_DENIED", "infeed.dev/PERMISSION_DENIED"),
    ],
)
def test_errors_have_a_reason(
    start_client: Any, token: str, pipeline: str, has_token: bool, error: str, reason: str
) -> None:
    process = start_client(pipeline, 1, token if has_token else "")
    assert process.wait() == 1
    assert lines(process) == [{"error": error, "reason": reason}]
