"""Where a server's own data service listens, kept with its journal.

The journal names the workers by their addresses, and takes no others in their place. So a server
that goes on from a journal starts dispatcher and workers where they were.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from infeed.errors import ConfigError
from infeed_server.config.address import Address

FILE = "infeed-addresses.json"

FREE_SECONDS = 15.0
"""What processes of a server that was killed get to end; they do when they notice."""

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Places:
    """Addresses to listen on, host:port."""

    dispatcher: str
    workers: tuple[str, ...]

    def await_free(self) -> None:
        """Returns when nobody listens there any more, or has not stopped within a while: who is to
        listen there then says so."""
        deadline = time.monotonic() + FREE_SECONDS
        for address in (self.dispatcher, *self.workers):
            while _taken(address) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)


def places(folder: Path, listen: Address, workers: int) -> Places:
    """Those that are kept in the folder, and free ones on the host of `listen` where there are none
    or too few; kept from now on. A port of `listen` is the dispatcher's.

    Raises `ConfigError` for a folder that has more workers, or cannot be read or written.
    """
    dispatcher, kept = _read(folder / FILE)
    if len(kept) > workers:
        raise ConfigError(
            f"--work-dir {folder}: its journal is of {len(kept)} workers, not {workers}; give "
            f"--workers {len(kept)}, or another folder",
            directory=str(folder),
        )
    first, *others = _free(listen.host, 1 + workers - len(kept))
    if listen.port:
        dispatcher = str(listen)
    found = Places(dispatcher or first, (*kept, *others))
    _write(folder / FILE, found)
    return found


def _read(file: Path) -> tuple[str, list[str]]:
    """The dispatcher, "" where there is none, and the workers."""
    if not file.exists():
        return "", []
    try:
        kept = json.loads(file.read_text())
        return str(Address.parse(kept["dispatcher"])), [
            str(Address.parse(worker)) for worker in kept["workers"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise ConfigError(
            f"--work-dir: {file} cannot be read: {error}; take another folder", file=str(file)
        ) from None


def _write(file: Path, found: Places) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"dispatcher": found.dispatcher, "workers": found.workers}))
    except OSError as error:
        problem = error.strerror or str(error)
        raise ConfigError(
            f"--work-dir {file.parent}: cannot write there: {problem[:1].lower()}{problem[1:]}",
            directory=str(file.parent),
        ) from None


def _free(host: str, count: int) -> list[str]:
    """So many addresses of ports that nobody listens on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        made = [
            stack.enter_context(socket.create_server((host, 0), family=family))
            for _ in range(count)
        ]
        return [str(Address(host, each.getsockname()[1])) for each in made]


def _taken(address: str) -> bool:
    try:
        Address.parse(address).require_free()
    except ConfigError:
        return True
    return False


__all__ = ["FILE", "Places", "places"]
