"""What a trainer shows a server, and what it wants to be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infeed.errors import ConfigError
from infeed.http2 import Headers
from infeed.link import Link
from infeed.target import host, is_local
from infeed.tls import TLS

Token = str | Callable[[], str]
"""A bearer token, or what gives one: asked for each call, so that it may be renewed."""


@dataclass(frozen=True)
class Credentials:
    """Of one transport. Without any, connections are in the clear and nobody is told who asks."""

    token: Token | None = None
    tls: TLS | bool | None = None
    """True: with the system's authorities. False: in the clear, and the token too. None: in the
    clear, but a token only to this machine."""

    def check(self, address: str) -> None:
        """Raises `ConfigError` where the token could be read by others, or a file is wrong."""
        if self.token is not None and self.tls is None and not is_local(address):
            raise ConfigError(
                f"a token for {address} would travel in the clear, for everybody on the way to "
                "read; give tls=True or tls=infeed.TLS(...), or tls=False if the network is "
                "trusted",
                address=address,
            )
        if secure := self._tls:
            secure.context()

    def link(self, address: str, name: str) -> Link:
        """A connection to an address. `name` is the address as the user wrote it: what a name
        stands for may change, and it is the name that a certificate bears."""
        if (secure := self._tls) is None:
            return Link(address)
        from infeed.secure import SecureLink  # noqa: PLC0415 - only who uses TLS pays for it

        return SecureLink(address, secure.context(), secure.server_name or host(name))

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"

    def headers(self) -> Headers:
        """What a request shows of who asks. Raises `ConfigError`."""
        if self.token is None:
            return []
        token = self.token if isinstance(self.token, str) else self.token()
        if not (token and token.isascii() and token.isprintable() and " " not in token):
            raise ConfigError(  # which never shows the token
                "a token is one or more printable ASCII characters without blanks; this one has "
                f"{len(token)} characters, others among them"
                if token
                else "the token is empty"
            )
        return [("authorization", f"Bearer {token}")]

    @property
    def _tls(self) -> TLS | None:
        return TLS() if self.tls is True else self.tls or None


__all__ = ["Credentials", "Token"]
