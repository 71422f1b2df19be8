"""The server's certificate, and whose trainers it lets in."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from infeed.errors import ConfigError
from infeed.tls import ALPN, show, trust
from infeed_server.config.watched import Watched


@dataclass(frozen=True)
class TLSFiles:
    """PEM files. With `client_ca`, trainers have to show a certificate that it has signed."""

    cert: str
    key: str | None = None
    """None: it is in the certificate's file."""
    client_ca: str | None = None

    def context(self) -> ssl.SSLContext:
        """What connections are made with. Raises `ConfigError` that names the file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols([ALPN])
        context.options |= ssl.OP_NO_RENEGOTIATION  # HTTP/2 forbids it: a write would have to read
        show(context, self.cert, self.key, "--tls-cert", "--tls-key")
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            trust(context, self.client_ca, "--tls-client-ca")
        return context

    def watched(self) -> Watched[ssl.SSLContext]:
        """The context for each new connection: files that are renewed are read again."""
        files = [file for file in (self.cert, self.key, self.client_ca) if file is not None]
        return Watched(files, self.context)


def tls_files(cert: str | None, key: str | None, client_ca: str | None) -> TLSFiles | None:
    """What the options say. Raises `ConfigError` for one without the other."""
    if cert is None:
        lonely = "--tls-key" if key else "--tls-client-ca" if client_ca else None
        if lonely:
            raise ConfigError(f"{lonely}: TLS needs the server's certificate too: --tls-cert")
        return None
    return TLSFiles(cert, key, client_ca)
