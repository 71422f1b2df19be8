"""Addresses to listen on, and which of them are safe without TLS."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infeed.errors import ConfigError


@dataclass(frozen=True)
class Address:
    """`host:port`, where port 0 takes a free one; or `unix:/path`, which is all host."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises `ConfigError` for anything but `host:port` (IPv6 in brackets) and `unix:/path`."""
        if text.startswith("unix:/"):
            return cls(text, 0)
        host, colon, port = text.rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() else 65536
        if not colon or number > 65535 or not host.strip("[]"):
            raise ConfigError(
                f"{text!r} is not of the form host:port, such as 127.0.0.1:8470 (a port is from 0 "
                "to 65535), or unix:/path",
                address=text,
            )
        return cls(host.strip("[]"), number)

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
        return all(ipaddress.ip_address(item[4][0]).is_loopback for item in self._resolved())

    def require_free(self) -> None:
        """Raises `ConfigError` when the address cannot be listened on now."""
        if self.is_unix:
            self._require_free_path()
            return
        family, kind, proto, _, place = self._resolved()[0]
        try:
            with socket.socket(family, kind, proto) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                # Only listening finds the port taken: two sockets may be bound to one.
                probe.listen(1)
        except OSError as error:
            problem = error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on {self}: {problem[:1].lower()}{problem[1:]}", address=str(self)
            ) from None

    def _require_free_path(self) -> None:
        path = Path(self.host.removeprefix("unix:"))
        if not path.parent.is_dir():
            raise ConfigError(
                f"cannot listen on {self}: no folder {path.parent}", address=self.host
            )
        if path.exists() and not path.is_socket():
            raise ConfigError(f"cannot listen on {self}: it is no socket", address=self.host)
        # gRPC would take the path away from whoever listens there; a leftover may be replaced.
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                taken = probe.connect_ex(str(path)) == 0
            except OSError as error:  # a path that is too long for a socket
                raise ConfigError(f"cannot listen on {self}: {error}", address=self.host) from None
            if taken:
                raise ConfigError(
                    f"cannot listen on {self}: another server does", address=self.host
                )

    def _resolved(self) -> list[Any]:
        try:
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # the latter for a text that no host's name can be
            raise ConfigError(f"cannot listen on {self}: no such host", address=str(self)) from None


def require_safe(address: Address, option: str, *, encrypted: bool, insecure: bool) -> None:
    """Refuses an address that strangers can reach, unless what is sent there is encrypted, or the
    caller said it means that."""
    if not (encrypted or insecure or address.is_loopback):
        remedy = "give --tls-cert and --tls-key, " if option == "--listen" else ""
        raise ConfigError(
            f"{option} {address}: other machines could connect, unencrypted and unasked who they "
            f"are; {remedy}add --insecure if the network is trusted, or listen on 127.0.0.1",
            address=str(address),
        )
