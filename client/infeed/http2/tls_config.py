"""TLS configuration of a client, and loading of PEM files into an SSL context."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infeed.errors import ConfigError
from infeed.http2.target import host_name

if TYPE_CHECKING:
    import ssl

PathLike = str | os.PathLike[str]

ALPN = "h2"
"""The ALPN protocol name of HTTP/2, which both ends must negotiate."""


@dataclass(frozen=True)
class TLS:
    """TLS options of a client: the authorities it trusts, and its own certificate.

    All files are PEM. They are read for each connection, so they can be renewed at any time.
    """

    ca: PathLike | None = None
    """The authorities that may sign a server's certificate; None: those of the system."""
    cert: PathLike | None = None
    """The client's certificate and its chain, for servers that require one (mutual TLS)."""
    key: PathLike | None = None
    """The private key of `cert`, without a passphrase; None: it is in the same file."""
    server_name: str | None = None
    """The name that the server's certificate must be valid for; None: the target's host."""

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise ConfigError("tls: key without its certificate; set cert too")

    def context(self) -> ssl.SSLContext:
        """Creates the SSL context of a connection. Raises `ConfigError` that names the file."""
        import ssl  # noqa: PLC0415 - a tenth of the time that `import infeed` may take

        if self.ca is None:
            context = ssl.create_default_context()
        else:  # without the system's authorities, which are slow to load and not to be trusted
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            load_ca(context, self.ca, "tls: ca")
        context.set_alpn_protocols([ALPN])
        context.options |= ssl.OP_NO_RENEGOTIATION  # HTTP/2 forbids it: a write would have to read
        if self.cert is not None:
            load_certificate(context, self.cert, self.key, "tls: cert", "tls: key")
        return context


def certificate_name(tls: TLS, address: str) -> str:
    """Returns the name that the certificate of the server at an address must be valid for."""
    return tls.server_name or host_name(address).rstrip(".")


def validate_tls(tls: TLS, address: str) -> None:
    """Raises `ConfigError` for an invalid file, or a name that no certificate can be valid for."""
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


def load_ca(context: ssl.SSLContext, ca: PathLike, option: str) -> None:
    """Loads a file's authorities into the context. Raises `ConfigError`."""
    import ssl  # noqa: PLC0415 - see above

    _require_readable(ca, option)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise ConfigError(f"{option} {ca}: holds no certificate in PEM form", file=ca) from None


def load_certificate(
    context: ssl.SSLContext,
    cert: PathLike,
    key: PathLike | None,
    cert_option: str,
    key_option: str,
) -> None:
    """Loads a certificate and its private key into the context. Raises `ConfigError`."""
    import ssl  # noqa: PLC0415 - see above

    def refuse_passphrase() -> str:  # without it, OpenSSL prompts at the terminal
        raise ConfigError(
            f"{key_option} {key or cert}: is locked with a passphrase; use one without",
            file=key or cert,
        )

    _require_readable(cert, cert_option)
    if key is not None:
        _require_readable(key, key_option)
    try:
        context.load_cert_chain(cert, key, password=refuse_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{key_option} {key}: is not the key of the certificate {cert}", file=key
            ) from None
        files = f"{cert_option} {cert}" + (f" or {key_option} {key}" if key else "")
        raise ConfigError(
            f"{files}: does not hold a certificate and its private key in PEM form", file=cert
        ) from None


def _require_readable(file: PathLike, option: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise ConfigError(f"{option} {file}: {problem}", file=file) from None
