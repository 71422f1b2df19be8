"""Addresses that cannot or must not be listened on: refused at once, before any source is opened;
and servers that are not there."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed

# The source does not exist: a message about it would mean that the address came second.
ADDRESS_FIRST = """
pipelines:
  one:
    source: {arrays: nowhere.npz}
    batch: {size: 2}
"""
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
    (folder / "nowhere.yaml").write_text(ADDRESS_FIRST)
    (folder / "numbers.yaml").write_text(NUMBERS)
    return folder


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that is listened on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address that is not listened on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_taken_port(command_line: Any, folder: Path, taken: str, option: str) -> None:
    other = "--http" if option == "--listen" else "--listen"
    words = ("serve", "nowhere.yaml", option, taken, other, "127.0.0.1:0")
    command = command_line.run(*words, cwd=folder)
    assert command.status == 1
    assert command.stderr.rstrip("\n").endswith(
        f"error: cannot listen on {taken}: address already in use"
    )


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:0", "--listen 0.0.0.0:0: other machines could connect.* add --insecure"),
        ("[::]:0", r"--listen \[::\]:0: other machines could connect.* add --insecure"),
        ("8470", "'8470' is not of the form host:port"),
        ("127.0.0.1:", "not of the form host:port"),
        ("127.0.0.1:65536", "'127.0.0.1:65536' is not .*a port is from 0 to 65535"),
        ("127.0.0.1:²", "not of the form host:port"),
        (":8470", "not of the form host:port"),
        ("no-host.invalid:8470", "cannot listen on no-host.invalid:8470: no such host"),
        ("a" * 80 + ":8470", "no such host"),
    ],
)
def test_addresses_that_are_refused(folder: Path, listen: str, words: str) -> None:
    from infeed_server.pipeline.load import load
    from infeed_server.runtime.options import ServerOptions
    from infeed_server.runtime.server import Server

    pipelines = load(str(folder / "nowhere.yaml"))
    with pytest.raises(infeed.ConfigError, match=words):
        Server(pipelines, ServerOptions(listen, None))


def test_all_addresses_are_served_with_insecure(command_line: Any, folder: Path) -> None:
    words = ("serve", "numbers.yaml", "--http", "off", "--listen", "0.0.0.0:0", "--insecure")
    allowed = command_line.start(*words, cwd=folder)
    port = allowed.address.rpartition(":")[2]
    with infeed.connect(f"127.0.0.1:{port}", "one") as feed:
        assert feed.next(60).start == 0
    allowed.signal(signal.SIGTERM)
    assert allowed.wait() == 0


def test_a_server_that_was_never_there(closed: str) -> None:
    begin = time.monotonic()
    with pytest.raises(infeed.ServerUnavailableError) as caught:
        infeed.connect(closed, "one", timeout=0.5)
    assert time.monotonic() - begin >= 0.5  # it may have been about to start
    assert re.match(
        f"no infeed server answered at {closed} within 0.5 s; last rea", str(caught.value)
    )
    assert caught.value.metadata["target"] == closed


def test_something_else_that_listens(taken: str) -> None:
    with pytest.raises(infeed.ServerUnavailableError, match="no infeed server answered at"):
        infeed.connect(taken, "one", timeout=0.5)
