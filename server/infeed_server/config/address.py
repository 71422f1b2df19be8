"""Addresses to listen on, and whether they are safe without TLS."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.shared.errors import ConfigError

_BACKLOG = 128
"""Maximum number of connections waiting to be accepted."""


@dataclass(frozen=True)
class Address:
    """`host:port`, where port 0 means any free port; or `unix:/path`, kept whole in `host`."""

    host: str
    port: int
    option: str = field(default="", compare=False, repr=False)
    """The option that gave the address, for errors."""

    @classmethod
    def parse(cls, text: str, option: str = "") -> Address:
        """Parses the address given by `option`. Raises `ConfigError` unless it is `host:port` (IPv6
        in brackets) or `unix:/path`."""
        if text.startswith("unix:/"):
            return cls(text, 0, option)
        host, colon, port = text.rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() else 65536
        if not colon or number > 65535 or not host.strip("[]"):
            subject = f"{option} {text!r}".strip()
            raise ConfigError(
                f"{subject} is not of the form host:port, such as 127.0.0.1:7470 (a port is from 0 "
                "to 65535), or unix:/path",
                address=text,
            )
        return cls(host.strip("[]"), number, option)

    @classmethod
    def parse_safe(cls, option: str, text: str, *, encrypted: bool, insecure: bool) -> Address:
        """Parses the listening address given by `option`. Raises `ConfigError` if other machines
        can reach it, unless its traffic is `encrypted` or the user accepts the risk with
        `insecure`."""
        address = cls.parse(text, option)
        if not (encrypted or insecure or address.is_loopback):
            remedy = "give --tls-cert and --tls-key, " if option == "--listen" else ""
            raise ConfigError(
                f"{option} {address}: non-loopback address without TLS; "
                f"{remedy}add --insecure if the network is trusted, or listen on 127.0.0.1",
                address=str(address),
            )
        return address

    @property
    def is_unix(self) -> bool:
        return self.host.startswith("unix:")

    def __str__(self) -> str:
        if self.is_unix:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.is_unix:
            return True
        return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in self._resolve())

    def require_free(self) -> None:
        """Raises `ConfigError` if a server cannot listen on the address now."""
        if self.is_unix:
            self._require_free_path()
            return
        problems = []
        entries = self._resolve()
        for entry in entries:  # gRPC listens on all addresses of the name
            try:
                _listen(entry).close()
            except OSError as error:
                problems.append(error)
        taken = [problem for problem in problems if problem.errno == errno.EADDRINUSE]
        if taken or len(problems) == len(entries):
            raise self._unusable((taken or problems)[0])

    def listen(self) -> socket.socket:
        """Returns a socket that listens on host and port. Raises `ConfigError`."""
        try:
            return _listen(self._resolve()[0])
        except OSError as error:
            raise self._unusable(error) from None

    def _require_free_path(self) -> None:
        path = Path(self.host.removeprefix("unix:"))
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                # A server would replace a live server's socket; a leftover one may be replaced.
                taken = probe.connect_ex(str(path)) == 0
            except OSError:
                raise self._unusable(
                    f"its path of {len(os.fsencode(path))} bytes is too long for a socket; use a "
                    "shorter one, such as unix:/run/infeed/socket"
                ) from None
        if taken:
            raise self._unusable(OSError(errno.EADDRINUSE, ""))
        if path.exists() and not path.is_socket():
            raise self._unusable("not a socket")
        # Detected here rather than after the pipelines are open.
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise self._unusable(
                f"no folder {path.parent} that uid {os.geteuid()} can write to; create it, make "
                "this user its owner, or mount it writable"
            )

    def _resolve(self) -> list[Any]:
        try:
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # UnicodeError: the text cannot be a host name
            raise self._unusable("no such host") from None

    def _unusable(self, problem: str | OSError) -> ConfigError:
        if isinstance(problem, OSError):
            taken = problem.errno == errno.EADDRINUSE
            text = os.strerror(problem.errno) if problem.errno else str(problem)
            problem = text[:1].lower() + text[1:]
            if taken:
                other = f"another {self.option or 'address'}"
                port = "" if self.is_unix else ", where port 0 is any free one"
                problem += f"; stop the process that listens there, or give {other}{port}"
        return ConfigError(f"cannot listen on {self}: {problem}", address=str(self))


def _listen(entry: Any) -> socket.socket:
    """Returns a socket that listens on a `getaddrinfo` entry. Raises `OSError`, also for a port on
    which another process listens; an ended process's port is free."""
    family, _, _, _, address = entry
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
