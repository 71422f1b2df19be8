"""Addresses beyond this host, and addresses without a server."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed

NUMBERS = """
pipelines:
  one:
    source: {arrays: data.npz}
    batch: {size: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("addresses")
    np.savez(folder / "data.npz", x=np.arange(10))
    (folder / "numbers.yaml").write_text(NUMBERS)
    return folder


@pytest.fixture
def listening() -> Iterator[str]:
    """An address where connections are accepted, but not served."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed(new_address: Callable[[], str]) -> str:
    """An address that refuses connections."""
    return new_address()


def test_insecure_allows_all_addresses(command_line: Any, folder: Path) -> None:
    arguments = ("serve", "numbers.yaml", "--http", "off", "--listen", "0.0.0.0:0", "--insecure")
    server = command_line.start(*arguments, cwd=folder)
    port = server.address.rpartition(":")[2]
    with infeed.connect(f"127.0.0.1:{port}", "one") as feed:
        assert feed.next(60).start == 0
    server.signal(signal.SIGTERM)
    assert server.wait() == 0


def test_connect_without_a_server_retries_until_its_timeout(closed: str) -> None:
    begin = time.monotonic()
    with pytest.raises(infeed.ServerUnavailableError) as caught:
        infeed.connect(closed, "one", timeout=0.5)
    assert time.monotonic() - begin >= 0.5
    assert re.match(
        f"no infeed server answered at {closed} within 0.5 s; last rea", str(caught.value)
    )
    assert caught.value.metadata["target"] == closed


def test_connect_to_a_silent_listener_fails(listening: str) -> None:
    with pytest.raises(infeed.ServerUnavailableError, match="no infeed server answered at"):
        infeed.connect(listening, "one", timeout=0.5)
