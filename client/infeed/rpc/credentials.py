"""Credentials of a client: its bearer token and its TLS options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from infeed.http2.connection import Headers
from infeed.http2.socket import ClientSocket
from infeed.http2.target import is_local
from infeed.http2.tls_config import TLS, TURN_ON, certificate_name, validate_tls
from infeed.shared.errors import ConfigError, InfeedError, InvalidRequestError, UserCodeError

Token = str | Callable[[], str]
"""A bearer token, or a function that returns one. It is called for each call, to allow renewal."""


@dataclass(frozen=True)
class Credentials:
    """Credentials of one transport. By default it connects without TLS and authentication."""

    token: Token | None = field(default=None, repr=False)
    tls: TLS | bool | None = None
    """True: TLS with the system's authorities. False: no TLS, even for the token. None: no TLS,
    and a token only for addresses on this machine."""
    name: str | None = None
    """The address as the user wrote it, if a call goes to one of its hosts."""

    def __post_init__(self) -> None:
        if not (self.token is None or isinstance(self.token, str) or callable(self.token)):
            kind = type(self.token).__name__
            raise InvalidRequestError(
                f"token must be a str, or a function that returns one, not {kind}"
            )
        if not (self.tls is None or isinstance(self.tls, bool | TLS)):
            raise InvalidRequestError(
                f"tls must be True, False, None or infeed.TLS(ca=...), not {self.tls!r}"
            )

    def validate(self, address: str) -> None:
        """Raises `ConfigError` for a token that would be sent unencrypted, or invalid files."""
        if self.token is not None and self.tls is None and not is_local(address):
            raise ConfigError(
                f"the token for {address} would be sent unencrypted; {TURN_ON}; or tls=False if "
                "the network is trusted",
                address=address,
            )
        if self.tls_options is not None:
            validate_tls(self.tls_options, address)

    @property
    def tls_options(self) -> TLS | None:
        """The options of a connection with TLS; None: without TLS."""
        return TLS() if self.tls is True else self.tls or None

    @property
    def scheme(self) -> str:
        return "http" if self.tls_options is None else "https"

    def create_socket(self, address: str) -> ClientSocket:
        """Creates a socket, with TLS if there are options for it."""
        if (tls := self.tls_options) is None:
            return ClientSocket(address)
        from infeed.http2.tls_socket import TLSClientSocket  # noqa: PLC0415 - loads ssl

        return TLSClientSocket(address, tls.context(), certificate_name(tls, self.name or address))

    def lack_tls(self, address: str) -> bool:
        """Returns whether the server at an address speaks TLS, which these credentials do not."""
        if self.tls_options is not None:
            return False
        from infeed.http2.tls_socket import answers_tls  # noqa: PLC0415 - loads ssl

        return answers_tls(address)

    def headers(self) -> Headers:
        """Returns the authentication headers of a request."""
        if self.token is None:
            return []
        token = self.token if isinstance(self.token, str) else _call_token_function(self.token)
        is_text = isinstance(token, str) and token.isascii() and token.isprintable()
        if not is_text or not token or " " in token:  # the error must not show the token
            raise ConfigError(
                "the token must be a nonempty str of printable ASCII characters without blanks; "
                "strip the line break of a file"
            )
        return [("authorization", f"Bearer {token}")]


def _call_token_function(token: Callable[[], str]) -> str:
    try:
        return token()
    except InfeedError:
        raise
    except Exception as error:  # an OSError would look like a lost connection
        raise UserCodeError(
            f"the token function failed: {type(error).__name__}: {error}"
        ) from error
