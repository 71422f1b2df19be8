"""What a trainer shows a server, and what it wants to be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from infeed.errors import ConfigError, InfeedError, UserCodeError
from infeed.http2 import Headers
from infeed.link import Link
from infeed.target import host, is_local
from infeed.tls import TLS

Token = str | Callable[[], str]
"""A bearer token, or what gives one: asked for each call, so that it may be renewed."""


@dataclass(frozen=True)
class Credentials:
    """Of one transport. Without any, connections are in the clear and nobody is told who asks."""

    token: Token | None = field(default=None, repr=False)
    tls: TLS | bool | None = None
    """True: with the system's authorities. False: in the clear, and the token too. None: in the
    clear, but a token only to this machine."""

    def check(self, address: str) -> None:
        """Raises `ConfigError` where the token could be read by others, or a file is wrong, or a
        name is none that a certificate can bear."""
        if self.token is not None and self.tls is None and not is_local(address):
            raise ConfigError(
                f"a token for {address} would travel in the clear, for everybody on the way to "
                "read; give tls=True or tls=infeed.TLS(...), or tls=False if the network is "
                "trusted",
                address=address,
            )
        try:
            self.link(address, address)
        except (TypeError, ValueError) as error:  # the former for a NUL
            name = (self._tls and self._tls.server_name) or host(address)
            raise ConfigError(
                f"{name!r} is no name that the certificate of {address} could bear: {error}",
                address=address,
            ) from None

    def link(self, address: str, name: str) -> Link:
        """A connection to an address. `name` is the address as the user wrote it: what a name
        stands for may change, and it is the name that a certificate bears."""
        if (secure := self._tls) is None:
            return Link(address)
        from infeed.secure import SecureLink  # noqa: PLC0415 - only who uses TLS pays for it

        return SecureLink(address, secure.context(), secure.server_name or host(name).rstrip("."))

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"

    def headers(self) -> Headers:
        """What a request shows of who asks. Raises `ConfigError`, and `UserCodeError` when the
        function that gives the token fails."""
        if self.token is None:
            return []
        token = self.token if isinstance(self.token, str) else _ask(self.token)
        if not isinstance(token, str):
            raise ConfigError(f"a token is text, not {type(token).__name__}")
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


def _ask(token: Callable[[], str]) -> str:
    try:
        return token()
    except InfeedError:
        raise
    except Exception as error:  # or an OSError of its own would be taken for a lost server
        raise UserCodeError(
            f"the function that gives the token failed: {type(error).__name__}: {error}"
        ) from error


__all__ = ["Credentials", "Token"]
