"""TLS as a trainer asks for it: whom it trusts, and who it is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infeed.errors import ConfigError

if TYPE_CHECKING:
    import ssl

PathLike = str | os.PathLike[str]

ALPN = "h2"
"""What both ends say in the handshake that they speak."""


@dataclass(frozen=True)
class TLS:
    """How a trainer makes sure that it talks to its server, and to nobody else.

    All files are PEM, and are read anew for each connection, so they may be renewed at any time.
    """

    ca: PathLike | None = None
    """Whose signature a server's certificate must bear; None: the system's authorities."""
    cert: PathLike | None = None
    """The trainer's own certificate, with what leads up to its authority, for servers that ask for
    one (mutual TLS)."""
    key: PathLike | None = None
    """The private key of `cert`, without a passphrase; None: it is in the same file."""
    server_name: str | None = None
    """The name that the server's certificate must bear; None: the target's host."""

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise ConfigError("tls: a key without the certificate that it belongs to; give cert")

    def context(self) -> ssl.SSLContext:
        """What a connection is made with. Raises `ConfigError` that names the file."""
        import ssl  # noqa: PLC0415 - a tenth of what `import infeed` may take

        if self.ca is None:
            context = ssl.create_default_context()
        else:  # the system's authorities, which take long to load, are not to be trusted
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trust(context, self.ca, "tls: ca")
        context.set_alpn_protocols([ALPN])
        context.options |= ssl.OP_NO_RENEGOTIATION  # HTTP/2 forbids it: a write would have to read
        if self.cert is not None:
            show(context, self.cert, self.key, "tls: cert", "tls: key")
        return context


def trust(context: ssl.SSLContext, ca: PathLike, option: str) -> None:
    """Makes the context trust a file's authorities. Raises `ConfigError`."""
    import ssl  # noqa: PLC0415 - see above

    _require_readable(ca, option)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise ConfigError(f"{option} {ca}: holds no certificate in PEM form", file=ca) from None


def show(
    context: ssl.SSLContext,
    cert: PathLike,
    key: PathLike | None,
    cert_option: str,
    key_option: str,
) -> None:
    """Makes the context show a certificate. Raises `ConfigError`."""
    import ssl  # noqa: PLC0415 - see above

    def no_passphrase() -> str:  # or OpenSSL would ask for one at the terminal
        raise ConfigError(
            f"{key_option} {key or cert}: is locked with a passphrase; give one without",
            file=key or cert,
        )

    _require_readable(cert, cert_option)
    if key is not None:
        _require_readable(key, key_option)
    try:
        context.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{key_option} {key}: is not the key of the certificate {cert}", file=key
            ) from None
        where = f"{cert_option} {cert}" + (f" or {key_option} {key}" if key else "")
        raise ConfigError(
            f"{where}: does not hold a certificate and its private key in PEM form", file=cert
        ) from None


def _require_readable(file: PathLike, option: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise ConfigError(f"{option} {file}: {problem}", file=file) from None


__all__ = ["ALPN", "TLS", "PathLike", "show", "trust"]
