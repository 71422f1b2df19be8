"""The addresses of a server's own data service, saved beside its journal.

The journal identifies the workers by their addresses, so a server that continues from a journal
starts its dispatcher and workers at the previous ones.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.data_service.dispatcher.role import writing_to

FILE_NAME = "infeed-addresses.json"

FREE_TIMEOUT_SECONDS = 15.0
"""For the workers of a killed server to exit, which they do when they notice its end."""

_FREE_POLL_INTERVAL_SECONDS = 0.2

_FIRST_PORT = 20_000
_TPU_PORTS = range(29_000, 29_007)
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_FIRST_ASSIGNED_PORT = 32_768


@dataclass(frozen=True)
class SavedAddresses:
    """Addresses to listen on, host:port."""

    dispatcher: str
    workers: tuple[str, ...]

    def wait_until_free(self) -> None:
        """Waits until no process listens on the addresses, or for the timeout: then the process
        that is to listen reports the problem."""
        deadline = time.monotonic() + FREE_TIMEOUT_SECONDS
        for address in (self.dispatcher, *self.workers):
            while _in_use(address) and time.monotonic() < deadline:
                time.sleep(_FREE_POLL_INTERVAL_SECONDS)


def load_saved_addresses(folder: Path, listen: Address, workers: int) -> SavedAddresses:
    """Loads the addresses in the folder, adds free ones on the host of `listen`, and saves them.

    A port of `listen` is the dispatcher's. Raises `ConfigError` for a folder that has more workers,
    or cannot be read or written.
    """
    dispatcher, saved = _read(folder / FILE_NAME)
    if len(saved) > workers:
        raise ConfigError(
            f"--work-dir {folder}: its journal is of {len(saved)} workers, not {workers}; give "
            f"--workers {len(saved)}, or another folder",
            directory=str(folder),
        )
    first, *others = _free_addresses(listen.host, 1 + workers - len(saved))
    if listen.port:
        dispatcher = str(listen)
    addresses = SavedAddresses(dispatcher or first, (*saved, *others))
    with writing_to(folder):
        (folder / FILE_NAME).write_text(json.dumps(asdict(addresses)))
    return addresses


def _read(file: Path) -> tuple[str, list[str]]:
    """Reads the addresses of the dispatcher, "" without a file, and of the workers."""
    if not file.exists():
        return "", []
    try:
        saved = json.loads(file.read_text())
        return str(Address.parse(saved["dispatcher"])), [
            str(Address.parse(worker)) for worker in saved["workers"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise ConfigError(
            f"--work-dir: {file} cannot be read: {error}; give another folder", file=str(file)
        ) from None


def _free_addresses(host: str, count: int) -> list[str]:
    """Returns addresses that nothing listens on, with ports that the system gives to no other
    process by itself: they are to be free at each later start."""
    ports = [port for port in range(_FIRST_PORT, _first_assigned_port()) if port not in _TPU_PORTS]
    random.shuffle(ports)
    addresses = (str(Address(host, port)) for port in ports)
    free = list(islice((each for each in addresses if not _in_use(each)), count))
    if len(free) < count:
        raise ConfigError(
            f"--work-dir: {host} has {len(free)} free ports from {_FIRST_PORT} to "
            f"{_first_assigned_port()}, and {count} are needed; give --dispatcher-listen"
        )
    return free


def _first_assigned_port() -> int:
    """Returns the first of the ports that the system assigns to connections and to port 0."""
    try:
        return int(_PORT_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # not Linux
        return _DEFAULT_FIRST_ASSIGNED_PORT


def _in_use(address: str) -> bool:
    try:
        Address.parse(address).require_free()
    except ConfigError:
        return True
    return False
