"""The attacker: each kind of flood is one to the server, and is repeated when it is ended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.stress.floods.attacker import CPU_ONLY, KINDS, flood

from infeed_server.http2.connection import Connection
from infeed_server.http2.listener import Listener
from infeed_server.http2.refusals import Refusal
from infeed_server.http2.socket import ServerSocket


@dataclass
class Accepting:
    """A server of connections without calls."""

    refused: list[Refusal] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def on_connection(self, accepted: socket.socket, peer: str) -> None:
        connection = Connection(
            ServerSocket(accepted, 40), peer, lambda stream: None, on_refused=self.refused.append
        )
        self.threads.append(threading.Thread(target=connection.run))
        self.threads[-1].start()


@pytest.fixture
def server() -> Iterator[tuple[Accepting, str]]:
    accepting = Accepting()
    listener = Listener("127.0.0.1:0")
    listener.start(accepting.on_connection)
    yield accepting, f"127.0.0.1:{listener.port}"
    listener.close()
    for thread in accepting.threads:
        thread.join(60)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != CPU_ONLY])
def test_each_kind_is_a_flood(server: tuple[Accepting, str], kind: str) -> None:
    accepting, address = server
    refused = accepting.refused
    connections = flood(address, kind, lambda: len(refused) >= 2, in_call=False)
    assert connections >= 2
    assert set(refused) == {"flood"}
