"""Tests of `process_sockets`."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from infeed_server.data_service import sockets
from infeed_server.data_service.sockets import process_sockets


def inode(each: socket.socket) -> int:
    return os.fstat(each.fileno()).st_ino


def inodes(port: int, *, listening: bool) -> list[int]:
    return [inode(each) for each in process_sockets(port, listening=listening)]


def test_listener_and_connections_of_the_port_are_found() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            accepted = server.accept()[0]
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind(("127.0.0.1", port))
            assert inodes(port, listening=True) == [inode(server)]
            assert inodes(port, listening=False) == [inode(accepted)]
            assert inodes(client.getsockname()[1], listening=False) == [inode(client)]
            accepted.close()
            udp.close()


def test_no_descriptor_stays_open() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert len(list(process_sockets(server.getsockname()[1], listening=True))) == 1
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_system_without_proc_has_no_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sockets, "_DESCRIPTORS", tmp_path / "none")
    assert list(process_sockets(1, listening=True)) == []
