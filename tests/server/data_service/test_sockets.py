"""Tests of `process_sockets`."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from infeed_server.data_service import sockets
from infeed_server.data_service.sockets import process_sockets


def test_listener_and_connections_of_the_port_are_found() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            accepted = server.accept()[0]
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind(("127.0.0.1", port))
            inodes = {os.fstat(each.fileno()).st_ino: each for each in (server, accepted)}
            listening = {each.inode: each.is_listening for each in process_sockets(port)}
            assert listening == {inode: each is server for inode, each in inodes.items()}
            assert [each.inode for each in process_sockets(client.getsockname()[1])] == [
                os.fstat(client.fileno()).st_ino
            ]
            accepted.close()
            udp.close()


def test_no_descriptor_stays_open() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert len(list(process_sockets(server.getsockname()[1]))) == 1
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_system_without_proc_has_no_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sockets, "_DESCRIPTORS", tmp_path / "none")
    assert list(process_sockets(1)) == []
