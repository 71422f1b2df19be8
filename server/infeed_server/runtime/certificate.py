"""The server's TLS files: its certificate, and its trainers' certificate authorities."""

from __future__ import annotations

import logging
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509

from infeed.shared.pem import load_ca, load_certificate
from infeed_server.config.reloading import ReloadingValue
from infeed_server.runtime.options import ServerOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TLSFiles:
    """PEM files. With `client_ca`, trainers must present a certificate that it signed."""

    cert: str
    key: str | None = None
    """None: the key is in the certificate's file."""
    client_ca: str | None = None

    def check(self) -> None:
        """Raises a `ConfigError` that names an unusable file. Only warns about an expired
        certificate, since this host's clock may be wrong."""
        context = self._context()
        if (end := self.expires_at()) is not None and end < time.time():
            log.warning("--tls-cert %s: the certificate has expired; renew it", self.cert)
        if self.client_ca is not None:
            load_ca(context, self.client_ca, "--tls-client-ca")

    def credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials of the gRPC server, which reads the files at each handshake.
        Raises `ConfigError`."""
        files = [file for file in (self.cert, self.key, self.client_ca) if file is not None]
        current = ReloadingValue(files, self._configuration)
        used = current.value

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal used
            before, used = used, current.value
            return None if used is before else used

        need_client = self.client_ca is not None
        return grpc.dynamic_ssl_server_credentials(used, changed, need_client)  # type: ignore[arg-type]

    def http_context(self) -> ssl.SSLContext:
        """Returns the context of the control plane, which reads the files at each handshake.
        Clients need no certificate: probes and browsers have none."""
        files = [file for file in (self.cert, self.key) if file is not None]
        current = ReloadingValue(files, self._context)

        def use_current(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            connection.context = current.value

        context = self._context()
        context.sni_callback = use_current  # called without a server's name too
        return context

    def expires_at(self) -> float | None:
        """Returns the Unix time at which the certificate in the file expires; None if the file is
        unreadable, in which case the server keeps the previous certificate."""
        try:
            cert = x509.load_pem_x509_certificates(Path(self.cert).read_bytes())[0]
            return cert.not_valid_after_utc.timestamp()
        except (OSError, ValueError):
            return None

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        self.check()  # C-core reports no reason for a bad file
        cert = Path(self.cert).read_bytes()
        key = cert if self.key is None else Path(self.key).read_bytes()
        ca = None if self.client_ca is None else Path(self.client_ca).read_bytes()
        return grpc.ssl_server_certificate_configuration([(key, cert)], ca)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        load_certificate(context, self.cert, self.key, "--tls-cert", "--tls-key")
        return context


def tls_files(options: ServerOptions) -> TLSFiles | None:
    """Returns the files that the options name; None without TLS."""
    if options.tls_cert is None:
        return None
    return TLSFiles(options.tls_cert, options.tls_key, options.tls_client_ca)
