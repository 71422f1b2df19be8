"""Loading of PEM files into an SSL context, with errors that name the file and its option."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from infeed.shared.errors import ConfigError

if TYPE_CHECKING:
    import ssl

PathLike = str | os.PathLike[str]


def load_ca(context: ssl.SSLContext, ca: PathLike, option: str) -> None:
    """Loads a file's authorities into the context. Raises `ConfigError`."""
    import ssl  # noqa: PLC0415 - a tenth of the time that `import infeed` may take

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
    import ssl  # noqa: PLC0415 - a tenth of the time that `import infeed` may take

    def refuse_passphrase() -> str:  # without it, OpenSSL prompts at the terminal
        raise ConfigError(
            f"{key_option} {key or cert}: is locked with a passphrase; use a key without one",
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
        other = "" if key else "; if the key is in another file, give that too"
        raise ConfigError(
            f"{files}: does not hold a certificate and its private key in PEM form{other}",
            file=cert,
        ) from None


def _require_readable(file: PathLike, option: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise ConfigError(f"{option} {file}: {problem}", file=file) from None
