"""The server's TLS files: its certificate, and the authorities of its trainers."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from datetime import datetime, timezone
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
        """Raises `ConfigError` that names a file which cannot be used.

        Warns of a certificate that is not valid now. It is no error: this clock may be wrong.
        """
        context = self._context()
        try:
            first, last = _validity(self.cert)
            now = datetime.now(timezone.utc)
            if not first <= now <= last:
                log.warning(
                    "--tls-cert %s: %s: valid from %s to %s, and now it is %s; trainers refuse it",
                    *(self.cert, "not valid yet" if now < first else "expired"),
                    *(f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (first, last, now)),
                )
        except ValueError as error:  # OpenSSL accepts it, so the server does
            log.debug("--tls-cert %s: its dates cannot be read: %s", self.cert, error)
        if self.client_ca is not None:
            load_ca(context, self.client_ca, "--tls-client-ca")

    def credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials of the gRPC server, whose connections use the files as they are
        at each handshake. Raises `ConfigError`."""
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
        """Returns the context of the control plane, which uses the files as they are at each
        handshake. Clients need no certificate: probes and browsers have none."""
        files = [file for file in (self.cert, self.key) if file is not None]
        current = ReloadingValue(files, self._context)

        def use_current(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            connection.context = current.value

        context = self._context()
        context.sni_callback = use_current  # called without a server's name too
        return context

    def expires_at(self) -> float | None:
        """Returns the Unix time at which the certificate in the file expires; None: it cannot be
        read, so the server still uses the one before."""
        try:
            return _validity(self.cert)[1].timestamp()
        except (OSError, ValueError):
            return None

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        self.check()  # C-core does not say what is wrong with a file
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
    """Returns the files of the options, None without TLS."""
    if options.tls_cert is None:
        return None
    return TLSFiles(options.tls_cert, options.tls_key, options.tls_client_ca)


def _validity(pem: str) -> tuple[datetime, datetime]:
    """Returns the first and the last moment at which the file's first certificate is valid.

    Raises `ValueError` for a file without a certificate.
    """
    cert = x509.load_pem_x509_certificates(Path(pem).read_bytes())[0]
    return cert.not_valid_before_utc, cert.not_valid_after_utc
