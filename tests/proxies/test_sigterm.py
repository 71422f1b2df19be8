"""SIGTERM of real servers behind each proxy, while a feed reads continuously."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.nursery import Nursery
from tests.harness.ports import ReservedPort
from tests.harness.proxies import HOSTS
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until

import infeed

SAMPLES, SLOTS = 2000, 8

MAX_SECONDS = 15.0
"""From SIGTERM to exit, on a busy machine; the grace period is an hour."""

DEFINITION = f"pipelines: {{a: {{source: {{arrays: a.npz}}, batch: {{size: {SLOTS}}}}}}}"

pytestmark = pytest.mark.slow


@pytest.fixture
def servers(nursery: Nursery, tmp_path: Path) -> Iterator[list[InfeedServer]]:
    """Two servers at `HOSTS`, with equal ports and a grace period of an hour."""
    np.savez(tmp_path / "a.npz", x=np.arange(SAMPLES * 1000).reshape(SAMPLES, 1000))
    definition = tmp_path / "pipelines.yaml"
    definition.write_text(DEFINITION)
    with ExitStack() as stack:
        rpc, http = (stack.enter_context(ReservedPort()).number for _ in range(2))
        yield [
            stack.enter_context(
                InfeedServer(
                    definition,
                    tmp_path / host,
                    *("--grace", "3600"),
                    listen=f"{host}:{rpc}",
                    http=f"{host}:{http}",
                    launch=nursery.start,
                )
            )
            for host in HOSTS
        ]


class Trainer(threading.Thread):
    """Reads a feed without a pause until `end`."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.feed = infeed.connect(address, "a", prefetch_bytes=1 << 20)
        self.ids: list[int] = []
        self._ended = threading.Event()

    def run(self) -> None:
        with self.feed:
            while not self._ended.is_set():
                self.ids += next(self.feed).sample_ids.tolist()

    def wait_for_batches(self) -> None:
        count = len(self.ids) + 10 * SLOTS
        wait_until(lambda: len(self.ids) >= count or not self.is_alive(), "batches arrive")

    def end(self) -> None:
        self._ended.set()
        self.join(60)


def test_sigterm_ends_servers_behind_the_proxy(
    servers: list[InfeedServer], start_proxy: Any, proxy_name: str
) -> None:
    """Each server in turn, as the proxy chooses which one has the stream."""
    ports = (item.split(":")[1] for item in (servers[0].address, servers[0].http))
    proxy = start_proxy(*map(int, ports))
    trainer = Trainer(proxy.address)
    trainer.start()
    seconds = []
    try:
        for server in servers:
            trainer.wait_for_batches()
            begin = time.monotonic()
            assert server.terminate() == 0
            seconds.append(time.monotonic() - begin)
            trainer.wait_for_batches()
            server.start()
            server.wait_until_serving()
    finally:
        trainer.end()
    assert trainer.feed.stats().reconnects >= 1
    assert trainer.ids == [position % SAMPLES for position in range(len(trainer.ids))]
    shown = ", ".join(f"{second:.1f}" for second in seconds)
    print(f"{proxy_name}: {shown} s from SIGTERM to exit")
    assert max(seconds) < MAX_SECONDS
