"""Where a server's own data service listens, from one start to the next."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from infeed.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.runtime import places as module
from infeed_server.runtime.places import FILE, places

ANY = Address("127.0.0.1", 0)


def test_they_are_kept_and_more_can_come(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    first = places(folder, ANY, 2)
    assert len({first.dispatcher, *first.workers}) == 3
    assert places(folder, ANY, 2) == first
    more = places(folder, ANY, 3)
    assert (more.dispatcher, more.workers[:2]) == (first.dispatcher, first.workers)
    assert len(set(more.workers)) == 3
    assert places(folder, Address("127.0.0.1", 8472), 3).dispatcher == "127.0.0.1:8472"


def test_fewer_workers_than_the_journal_has_are_refused(tmp_path: Path) -> None:
    places(tmp_path, ANY, 3)
    with pytest.raises(ConfigError, match=r"journal is of 3 workers, not 2; give --workers 3"):
        places(tmp_path, ANY, 2)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"dispatcher": 1, "workers": []}', '{"dispatcher": "x", "workers": 0}'],
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ConfigError, match=f"{FILE} cannot be read: .*; take another folder"):
        places(tmp_path, ANY, 1)


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--work-dir .*/file/x: cannot write there: not a dir"):
        places(tmp_path / "file" / "x", ANY, 1)


def test_who_is_about_to_end_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FREE_SECONDS", 0.3)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    looks = []
    taken = module._taken
    monkeypatch.setattr(module, "_taken", lambda address: looks.append(address) or taken(address))
    found = places(tmp_path, ANY, 1)
    found.await_free()
    assert looks == [found.dispatcher, *found.workers]
    port = int(found.workers[0].rpartition(":")[2])
    with closing(socket.create_server(("127.0.0.1", port))):
        found.await_free()
    assert looks.count(found.workers[0]) > 2
