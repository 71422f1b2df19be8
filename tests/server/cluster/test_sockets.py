"""The sockets of this process, by their port."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from infeed_server.cluster import sockets
from infeed_server.cluster.sockets import owned


def test_who_listens_and_what_was_accepted() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            accepted = server.accept()[0]
            stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            stranger.bind(("127.0.0.1", port))  # of the same number, but not of TCP
            inodes = {os.fstat(each.fileno()).st_ino: each for each in (server, accepted)}
            found = {each.inode: each.listens for each in owned(port)}
            assert found == {inode: each is server for inode, each in inodes.items()}
            assert [each.inode for each in owned(client.getsockname()[1])] == [
                os.fstat(client.fileno()).st_ino
            ]
            accepted.close()
            stranger.close()


def test_looking_leaves_nothing_open() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert len(list(owned(server.getsockname()[1]))) == 1
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sockets, "_DESCRIPTORS", tmp_path / "none")
    assert list(owned(1)) == []
