"""Tests of the saved addresses of a server's own data service."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.data_service.gateway import saved_addresses as module
from infeed_server.data_service.gateway.saved_addresses import FILE_NAME, load_saved_addresses

ANY = Address("127.0.0.1", 0)


def test_addresses_are_kept_and_extended(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    first = load_saved_addresses(folder, ANY, 2)
    assert len({first.dispatcher, *first.workers}) == 3
    assert load_saved_addresses(folder, ANY, 2) == first
    more = load_saved_addresses(folder, ANY, 3)
    assert (more.dispatcher, more.workers[:2]) == (first.dispatcher, first.workers)
    assert len(set(more.workers)) == 3
    assert (
        load_saved_addresses(folder, Address("127.0.0.1", 7472), 3).dispatcher == "127.0.0.1:7472"
    )


def test_fewer_workers_than_in_the_journal_are_refused(tmp_path: Path) -> None:
    load_saved_addresses(tmp_path, ANY, 3)
    with pytest.raises(ConfigError, match=r"journal is of 3 workers, not 2; give --workers 3"):
        load_saved_addresses(tmp_path, ANY, 2)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"dispatcher": 1, "workers": []}', '{"dispatcher": "x", "workers": 0}'],
)
def test_invalid_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ConfigError, match=f"{FILE_NAME} cannot be read: .*; give another folder"):
        load_saved_addresses(tmp_path, ANY, 1)


def test_work_dir_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--work-dir .*/file/x: cannot write there: not a dir"):
        load_saved_addresses(tmp_path / "file" / "x", ANY, 1)


def test_addresses_in_use_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREE_TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(module, "_FREE_POLL_INTERVAL_SECONDS", 0.01)
    polls = []
    in_use = module._in_use
    monkeypatch.setattr(module, "_in_use", lambda address: polls.append(address) or in_use(address))
    addresses = load_saved_addresses(tmp_path, ANY, 1)
    polls.clear()
    addresses.wait_until_free()
    assert polls == [addresses.dispatcher, *addresses.workers]
    port = int(addresses.workers[0].rpartition(":")[2])
    with closing(socket.create_server(("127.0.0.1", port))):
        addresses.wait_until_free()
    assert polls.count(addresses.workers[0]) > 2


def test_ports_are_none_that_the_system_assigns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text("20003\t60999\n")
    monkeypatch.setattr(module, "_PORT_RANGE", tmp_path / "range")
    busy = {"127.0.0.1:20001"}
    monkeypatch.setattr(module, "_in_use", busy.__contains__)
    addresses = load_saved_addresses(tmp_path, ANY, 1)
    assert {addresses.dispatcher, *addresses.workers} == {"127.0.0.1:20000", "127.0.0.1:20002"}
    with pytest.raises(ConfigError, match=r"2 free ports from 20000 to 20003, and 3 are needed"):
        load_saved_addresses(tmp_path / "other", ANY, 2)
