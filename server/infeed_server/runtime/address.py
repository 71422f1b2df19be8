"""Addresses to listen on, and which of them are safe without TLS."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from infeed.errors import ConfigError


@dataclass(frozen=True)
class Address:
    """`host:port`; port 0 takes a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises `ConfigError` for anything but `host:port` (IPv6 hosts in brackets)."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535 or not host.strip("[]"):
            raise ConfigError(f"{text!r} is not of the form host:port, such as 127.0.0.1:8470")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            found = socket.getaddrinfo(self.host, None)
        except OSError:
            raise ConfigError(f"cannot listen on {self}: no such host", address=str(self)) from None
        return all(ipaddress.ip_address(item[4][0]).is_loopback for item in found)


def require_safe(address: Address, option: str, *, insecure: bool) -> None:
    """Refuses an address that strangers can reach, unless the caller said it means that."""
    if not insecure and not address.is_loopback:
        raise ConfigError(
            f"{option} {address}: other machines could connect, unencrypted and unasked who they "
            "are; add --insecure if the network is trusted, or listen on 127.0.0.1",
            address=str(address),
        )
