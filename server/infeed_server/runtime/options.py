"""Server options, each written once for both `infeed serve` and `Server` in Python."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_server.config.address import Address
from infeed_server.config.options import Options, option
from infeed_server.rpc.limits import Limits

DEFAULT_LISTEN = "127.0.0.1:7470"
DEFAULT_HTTP = "127.0.0.1:7471"

_SECURITY = "Security"
"""The title of the TLS and token options in `infeed serve --help`."""


class Readiness(str, Enum):
    """The values of `--readiness`."""

    ALL = "all"
    ANY = "any"


class Decoder(str, Enum):
    """The values of `--decoder`."""

    AUTO = "auto"
    NATIVE = "native"
    TENSORFLOW = "tensorflow"


def _file(text: str) -> Any:
    return option(None, text, _SECURITY, metavar="FILE")


class GeneralOptions(Options):
    """Addresses and resources of a server."""

    listen: str = option(DEFAULT_LISTEN, "Address that trainers connect to.", metavar="HOST:PORT")
    http: str | None = option(
        DEFAULT_HTTP,
        "Address of the dashboard, API, metrics and health, or 'off'.",
        metavar="HOST:PORT",
    )
    http_hosts: list[str] | None = option(
        None,
        "Host name that requests to --http may use, besides IP addresses and this machine's own "
        "name; can be repeated.",
        names=["--http-host"],
    )
    grace: float = option(
        20.0, "Seconds that open streams have to end at shutdown.", metavar="SECONDS", min=0
    )
    """Together with the other steps of a shutdown, below the 30 seconds that orchestrators wait."""
    readiness: Readiness = option(
        Readiness.ALL,
        "Pipelines that must be ready before the server is ready: all of them, or any one.",
    )
    decoder: Decoder = option(
        Decoder.AUTO,
        "JPEG decoder: native (infeed-jpeg, the same pixels in less time), tensorflow, or auto, "
        "which uses native if it is available.",
    )
    memory_limit: int | None = option(
        None,
        "Maximum MiB of unsent batches. Default: a quarter of the memory.",
        metavar="MIB",
        min=1,
    )
    skip_broken: bool = option(
        False, "If a pipeline is invalid or cannot be opened, serve the others."
    )
    processes: int = option(1, "Processes that share the port, for hosts with many cores.", min=1)
    one_of: int = option(1, "Number of processes, including this one.", hidden=True)
    with_parent: bool = option(False, "End when standard input does.", hidden=True)
    parent_token: str | None = option(
        None, "SHA-256 of the only token that the control plane accepts, its parent's.", hidden=True
    )


class Security(Options):
    """TLS and tokens, for trainers and for the control plane."""

    http_tls: bool = option(
        False,
        "Serve the dashboard, API, metrics and health over TLS, with --tls-cert's certificate.",
        _SECURITY,
    )
    http_tokens: str | None = _file(
        "File of bearer tokens for --http; only tokens with the pattern '*' give access."
    )
    tls_cert: str | None = _file("The server's certificate (PEM); trainers then connect with TLS.")
    tls_key: str | None = _file("The certificate's private key, unless it is in the same file.")
    tls_client_ca: str | None = _file(
        "Certificate authorities (PEM); trainers must present a certificate from one of them."
    )
    tokens: str | None = _file("File of bearer tokens, with the pipelines that each may read.")
    insecure: bool = option(False, "Allow unencrypted connections from other machines.", _SECURITY)


class ServeOptions(Limits, Security, GeneralOptions):
    """The options of `infeed serve`. Help lists the groups from the last base to the first."""


class ServerOptions(ServeOptions):
    """The options of a server in Python."""

    engine: Callable[..., Any] | None = None
    """An `OpenEngine`, which opens the engine of another package; None: the local engine."""

    def __init__(
        self, listen: str = DEFAULT_LISTEN, http: str | None = DEFAULT_HTTP, **options: Any
    ) -> None:
        """Accepts the addresses by position too; `http=None` means `off`. Raises `ConfigError`."""
        super().__init__(listen=listen, http=http, **options)
        if self.tls_cert is None and (self.tls_key or self.tls_client_ca or self.http_tls):
            given = "key" if self.tls_key else "client-ca" if self.tls_client_ca else ""
            name = f"--tls-{given}" if given else "--http-tls"
            raise ConfigError(f"{name}: needs the server's certificate too; add --tls-cert")

        if self.engine and self.decoder is Decoder.NATIVE:
            raise ConfigError(
                "--decoder native: workers of another engine decode with TensorFlow; leave out "
                "--decoder, or use --engine local"
            )

    @property
    def shares_port(self) -> bool:
        """Whether other processes listen on the same port; the kernel distributes connections."""
        return self.one_of > 1

    def listen_address(self) -> Address:
        """Returns `listen`, parsed. Raises `ConfigError` for a malformed or unsafe address."""
        encrypted = self.tls_cert is not None
        return Address.parse_safe(
            "--listen", self.listen, encrypted=encrypted, insecure=self.insecure
        )
