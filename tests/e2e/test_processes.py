"""`infeed serve --processes`: several processes on one port; a lost one is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.harness.children import children, is_alive
from tests.harness.http_get import fetch, metric
from tests.harness.waiting import wait_until

import infeed
from infeed import TLS
from infeed_server.processes.signals import ShutdownSignal
from infeed_server.runtime.multiprocess import serve_processes
from infeed_server.runtime.options import ServerOptions
from infeed_server.serving.auth import hash_token

TEXT = """
pipelines:
  n:
    source: {arrays: n.npy}
    shuffle: {seed: 3}
    batch: {size: 4}
"""
BEN = "infeed_ben"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_definition(tmp_path)
    return tmp_path


def write_definition(folder: Path) -> None:
    np.save(folder / "n.npy", np.arange(100))
    (folder / "pipelines.yaml").write_text(TEXT)


def readiness(http: str) -> Any:
    return fetch(http, "/readyz").json


def listening() -> dict[int, set[str]]:
    """Returns the addresses of loopback at which each process listens."""
    # C-core listens with sockets of IPv6, at addresses of IPv4.
    tables = (Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    ports = {f"socket:[{row[9]}]": int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}
    found: dict[int, set[str]] = {}
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if port := ports.get(str(file.readlink())):
                found.setdefault(int(file.parts[2]), set()).add(f"127.0.0.1:{port}")
    return found


def serving(address: str) -> dict[int, str]:
    """Returns the control plane's address of each process that serves at an address."""
    found = {pid: all_ - {address} for pid, all_ in listening().items() if address in all_}
    return {pid: others.pop() for pid, others in found.items()}


# As `infeed`, but it kills a process that hangs sooner.
IMPATIENT = """
import infeed.cli
from infeed_server.runtime import multiprocess

multiprocess.HANG_TIMEOUT_SECONDS = 4.0
infeed.cli.main()
"""


class Pair:
    """A server of two processes, with TLS and tokens."""

    def __init__(self, command_line: Any, folder: Path, pki: Any) -> None:
        grant = {"name": "ben", "sha256": hash_token(BEN), "pipelines": ["n"]}
        (folder / "tokens.yaml").write_text(yaml.safe_dump({"tokens": [grant]}))
        (folder / "impatient.py").write_text(IMPATIENT)
        self.parent = command_line.start(
            *("python", "impatient.py", "serve", "pipelines.yaml", "--processes", "2"),
            *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--tokens", "tokens.yaml"),
            *("--tls-cert", str(pki.server), "--tls-key", str(pki.server_key)),
            cwd=folder,
        )
        self.options: dict[str, Any] = {"tls": TLS(pki.ca), "token": BEN}
        self.address = self.parent.address
        self.http = self.parent.http

    def read_epoch(self) -> list[Any]:
        """Returns the sample ids of each batch of an epoch."""
        with infeed.connect(self.address, "n", epochs=1, **self.options) as feed:
            return [batch.sample_ids.tolist() for batch in feed]


@pytest.fixture(scope="module")
def pair(command_line: Any, pki: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One server for all tests, since it takes seconds to start."""
    folder = tmp_path_factory.mktemp("pair")
    write_definition(folder)
    pair = Pair(command_line, folder, pki)
    try:
        yield pair
        pids = children(pair.parent.pid)
        assert len(pids) == 2
        pair.parent.signal(signal.SIGTERM)
        assert pair.parent.wait() == 0
        assert not any(is_alive(pid) for pid in pids)
    finally:
        pair.parent.kill()


def test_two_processes_serve_one_pipeline(pair: Pair) -> None:
    assert readiness(pair.http)["ready"]
    assert len(children(pair.parent.pid)) == 2
    before = metric(pair.http, "infeed_batches_total")
    # The kernel chooses a process for each connection.
    epochs = [pair.read_epoch() for _ in range(3)]
    assert sorted(index for batch in epochs[0] for index in batch) == list(range(100))
    assert all(other == epochs[0] for other in epochs)
    # Of 25 batches: a feed can close before its last batch is counted. After a reconnect, batches
    # are sent twice.
    wait_until(
        lambda: metric(pair.http, "infeed_batches_total") >= before + 3 * 24,
        "the batches are counted",
    )


def test_killed_process_restarts_and_its_feed_continues(pair: Pair) -> None:
    expected = pair.read_epoch()
    with infeed.connect(pair.address, "n", epochs=1, **pair.options) as feed:
        before = [next(feed).sample_ids.tolist() for _ in range(5)]
        os.kill(children(pair.parent.pid)[0], signal.SIGKILL)
        after = [batch.sample_ids.tolist() for batch in feed]
    assert before + after == expected
    responses: list[dict[str, Any]] = []

    def restarting() -> bool:
        responses.append(readiness(pair.http))
        return "restarting: process" in responses[-1]["reason"]

    wait_until(restarting, "the exited process is named")
    assert all(response["ready"] for response in responses)  # the other one serves
    wait_until(lambda: not restarting(), "both processes serve again")
    assert "ended with status -9" in pair.parent.stderr


def test_hung_process_is_replaced_and_feeds_go_elsewhere(pair: Pair) -> None:
    expected = pair.read_epoch()
    victim = next(iter(serving(pair.address)))
    os.kill(victim, signal.SIGSTOP)
    # The kernel sends some of them to the process that hangs.
    assert [pair.read_epoch() for _ in range(3)] == [expected] * 3
    wait_until(lambda: not is_alive(victim), "the process that hangs is killed")
    assert "has not answered for 4 s; killing it" in pair.parent.stderr
    wait_until(lambda: "in 2 of 2 processes" in readiness(pair.http)["reason"], "another serves")
    assert len(serving(pair.address)) == 2


def test_control_plane_of_a_child_answers_its_parent_alone(pair: Pair) -> None:
    for http in serving(pair.address).values():
        for headers in ({}, {"authorization": f"Bearer {BEN}"}):
            assert fetch(http, "/metrics", **headers).status == 401
        assert readiness(http) == {"ready": True}


# As its parent starts it: stdin is the read end of a pipe, here a named one.
ONE_OF_TWO = """
import os
import infeed.cli

os.dup2(os.open("parent", os.O_RDONLY), 0)
infeed.cli.main()
"""


def start_one_of_two(command_line: Any, folder: Path) -> Any:
    os.mkfifo(folder / "parent")
    (folder / "one_of_two.py").write_text(ONE_OF_TWO)
    options = ("--listen", "127.0.0.1:0", "--http", "off", "--one-of", "2", "--with-parent")
    return command_line.start(
        "python", "one_of_two.py", "serve", "pipelines.yaml", *options, cwd=folder
    )


def test_process_exits_when_its_parent_closes_the_pipe(command_line: Any, folder: Path) -> None:
    process = start_one_of_two(command_line, folder)
    with (folder / "parent").open("w"):
        with infeed.connect(process.address, "n", epochs=1) as feed:
            assert len(list(feed)) == 25
        assert not process.ended
    assert process.wait() == 0


UNIX = "unix:/tmp/none/s"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        # Reported once, not by each process.
        (ServerOptions("127.0.0.1:0", None, processes=2, tls_cert="/none.pem"), "--tls-cert /none"),
        (ServerOptions(UNIX, None, processes=2), f"processes cannot share {UNIX}"),
        (ServerOptions("0.0.0.0:0", None, processes=2), "--insecure"),
        (ServerOptions("127.0.0.1:0", "0.0.0.0:0", processes=2), "--http 0.0.0.0:0"),
    ],
)
def test_options_that_processes_cannot_share_are_refused(
    options: ServerOptions, message: str
) -> None:
    with pytest.raises(infeed.ConfigError, match=message):
        serve_processes("pipelines.yaml", options, ShutdownSignal(), pytest.fail)
