"""Proxies with the configurations of deploy/proxies, as processes on loopback."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.harness.ports import ReservedPort
from tests.harness.process import ROOT
from tests.harness.spawned import SpawnedProcess

HOSTS = ("127.0.0.2", "127.0.0.3")
"""Addresses of the two servers. Their ports are the same, as in the configurations."""

_OWN_PORT = "7480"
"""The proxy's port in the configurations; the servers' is 7470, of `--http` 7471."""


@dataclass(frozen=True)
class _Kind:
    """A program, its configuration, and its arguments for a file of it and an empty folder."""

    file: str
    arguments: Callable[[Path], list[str]]


_KINDS = {
    "nginx": _Kind(
        "nginx.conf",
        lambda file: [
            *("-p", f"{file.parent}/", "-c", str(file), "-e", "stderr"),
            *("-g", f"daemon off; pid {file}.pid;"),
        ],
    ),
    "haproxy": _Kind("haproxy.cfg", lambda file: ["-db", "-f", str(file)]),
    "envoy": _Kind(
        "envoy.yaml",
        lambda file: ["-c", str(file), "--use-dynamic-base-id", "--log-level", "warning"],
    ),
    "caddy": _Kind(
        "Caddyfile", lambda file: ["run", "--config", str(file), "--adapter", "caddyfile"]
    ),
}

PROXIES = tuple(_KINDS)
INSTALLED = tuple(name for name in PROXIES if shutil.which(name))


def in_front_of(rpc_port: int, http_port: int) -> dict[str, object]:
    """Returns the replacements for servers with these ports at `HOSTS`."""
    return {"7470": rpc_port, "7471": http_port, "10.0.0.1": HOSTS[0], "10.0.0.2": HOSTS[1]}


def _replaced(text: str, replacements: Mapping[str, object]) -> str:
    """Replaces all at once: a new port can have the digits of an old one."""
    old = re.compile("|".join(map(re.escape, replacements)))
    return old.sub(lambda match: str(replacements[match[0]]), text)


class ProxyProcess:
    """A proxy, until `close`."""

    def __init__(self, name: str, folder: Path, replacements: Mapping[str, object]) -> None:
        """`folder` must not exist. `replacements` are for the addresses in the configuration."""
        self.name = name
        kind = _KINDS[name]
        self._port = ReservedPort()
        self.address = self._port.address
        text = (ROOT / "deploy/proxies" / kind.file).read_text(encoding="utf-8")
        text = _replaced(text, {_OWN_PORT: self._port.number, **replacements})
        folder.mkdir()
        file = folder / kind.file
        file.write_text(text, encoding="utf-8")
        environment = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.process = SpawnedProcess(
            [name, *kind.arguments(file)], folder / name, cwd=folder, environment=environment
        )

    def wait_until_listening(self) -> None:
        self.process.wait_until(self._is_listening, f"{self.address} listens")

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port.number)) == 0

    def close(self) -> None:
        # At SIGTERM, some wait for their clients.
        self.process.signal(signal.SIGINT if self.process.log.name == "nginx" else signal.SIGTERM)
        self.process.stop()
        self._port.close()
