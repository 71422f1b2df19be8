"""TLS configuration of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from infeed.http2.target import host_name
from infeed.shared.errors import ConfigError
from infeed.shared.pem import PathLike, load_ca, load_certificate

if TYPE_CHECKING:
    import ssl

ALPN = "h2"
"""The ALPN protocol name of HTTP/2, which both ends must negotiate."""

TURN_ON = "set tls=True or TLS(ca=...), in a command --tls or --tls-ca"
"""The remedy for a connection without TLS."""


@dataclass(frozen=True)
class TLS:
    """TLS options of a client. All files are PEM, and read for each connection."""

    ca: PathLike | None = None
    """The authorities that may sign a server's certificate; None: the system's."""
    cert: PathLike | None = None
    """The client's certificate and its chain, for servers that require one (mutual TLS)."""
    key: PathLike | None = None
    """The private key of `cert`, without a passphrase; None: it is in the same file."""
    server_name: str | None = None
    """The name that the server's certificate must be valid for; None: the target's host."""

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise ConfigError("tls: key given without its certificate; set cert too")

    def context(self) -> ssl.SSLContext:
        """Creates a connection's SSL context. Raises `ConfigError`, which names the file."""
        import ssl  # noqa: PLC0415 - a tenth of the time that `import infeed` may take

        if self.ca is None:
            context = ssl.create_default_context()
        else:  # the system's authorities are slow to load, and must not be trusted here
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            load_ca(context, self.ca, "tls: ca")
        context.set_alpn_protocols([ALPN])
        context.options |= ssl.OP_NO_RENEGOTIATION  # HTTP/2 forbids it: a write would have to read
        if self.cert is not None:
            load_certificate(context, self.cert, self.key, "tls: cert", "tls: key")
        return context


def spelled(*options: str) -> str:
    """Returns options of `TLS` as programs and commands give them."""
    in_program = ", ".join(f"{option}=..." for option in options)
    in_command = " and ".join(f"--tls-{option.replace('_', '-')}" for option in options)
    return f"TLS({in_program}), or {in_command}"


def certificate_name(tls: TLS, address: str) -> str:
    """Returns the name that the certificate of the server at an address must be valid for."""
    return tls.server_name or host_name(address).rstrip(".")


def validate_tls(tls: TLS, address: str) -> None:
    """Raises `ConfigError` for an invalid file or name."""
    import ssl  # noqa: PLC0415 - see above

    context = tls.context()
    name = certificate_name(tls, address)
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    except (TypeError, ValueError) as error:  # TypeError for a NUL character
        raise ConfigError(
            f"{name!r} is not a valid name for the certificate of {address}: {error}",
            address=address,
        ) from None
