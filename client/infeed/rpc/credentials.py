"""Credentials of a client: its bearer token and its TLS options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from infeed.errors import ConfigError, InfeedError, UserCodeError
from infeed.http2.connection import Headers
from infeed.http2.socket import ClientSocket
from infeed.http2.target import host_name, is_local
from infeed.http2.tls_config import TLS

Token = str | Callable[[], str]
"""A bearer token, or a function that returns it; called for each call, so it can be renewed."""


@dataclass(frozen=True)
class Credentials:
    """Credentials of one transport. By default it connects without TLS and authentication."""

    token: Token | None = field(default=None, repr=False)
    tls: TLS | bool | None = None
    """True: TLS with the system's authorities. False: no TLS, even for the token. None: no TLS,
    and a token only for addresses on this machine."""

    def validate(self, address: str) -> None:
        """Raises `ConfigError` for a token that would be sent unencrypted, an invalid file, or a
        name that no certificate can be valid for."""
        if self.token is not None and self.tls is None and not is_local(address):
            raise ConfigError(
                f"the token for {address} would be sent unencrypted; use tls=True or "
                "tls=infeed.TLS(...), or tls=False if the network is trusted",
                address=address,
            )
        try:
            self.create_socket(address, address)
        except (TypeError, ValueError) as error:  # TypeError for a NUL character
            name = (self._tls and self._tls.server_name) or host_name(address)
            raise ConfigError(
                f"{name!r} is not a valid name for the certificate of {address}: {error}",
                address=address,
            ) from None

    def create_socket(self, address: str, name: str) -> ClientSocket:
        """Creates a socket for an address. `name` is the address as the user wrote it: the
        certificate must be valid for its host, whatever hosts the name resolves to."""
        if (tls := self._tls) is None:
            return ClientSocket(address)
        from infeed.http2.tls_socket import TLSClientSocket  # noqa: PLC0415 - loads ssl

        return TLSClientSocket(
            address, tls.context(), tls.server_name or host_name(name).rstrip(".")
        )

    @property
    def scheme(self) -> str:
        return "https" if self._tls else "http"

    def headers(self) -> Headers:
        """Returns the authentication headers of a request.

        Raises `ConfigError`, and `UserCodeError` when the token function fails.
        """
        if self.token is None:
            return []
        token = self.token if isinstance(self.token, str) else _call_token_function(self.token)
        if not isinstance(token, str):
            raise ConfigError(f"the token must be a str, not {type(token).__name__}")
        if not token:
            raise ConfigError("the token is empty")
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise ConfigError(  # without the token itself
                f"the token, of {len(token)} characters, has others than printable ASCII "
                "characters without blanks"
            )
        return [("authorization", f"Bearer {token}")]

    @property
    def _tls(self) -> TLS | None:
        return TLS() if self.tls is True else self.tls or None


def _call_token_function(token: Callable[[], str]) -> str:
    try:
        return token()
    except InfeedError:
        raise
    except Exception as error:  # an OSError would be mistaken for a lost connection
        raise UserCodeError(
            f"the token function failed: {type(error).__name__}: {error}"
        ) from error
