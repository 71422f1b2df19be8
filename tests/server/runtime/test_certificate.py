"""Tests of `runtime/certificate.py`."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from infeed.shared.errors import ConfigError
from infeed_server.config import reloading
from infeed_server.runtime.certificate import TLSFiles


def files(pki: Any, **others: Any) -> TLSFiles:
    return TLSFiles(**{"cert": str(pki.server), "key": str(pki.server_key), **others})


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"cert": "/none"}, "^--tls-cert /none: no such file"),
        ({"key": "/none"}, "^--tls-key /none: no such file"),
        ({"client_ca": "/none"}, "^--tls-client-ca /none: no such file"),
        ({"client_ca": "/dev/null"}, "^--tls-client-ca /dev/null: holds no certificate"),
        ({"cert": "/dev/null"}, r"^--tls-cert /dev/null or --tls-key .*: does not hold"),
        ({"key": "/dev/null"}, r"^--tls-cert .* or --tls-key /dev/null: does not hold"),
        ({"key": None}, r"^--tls-cert .*server.pem: .*key is in another file, give that"),
    ],
)
def test_invalid_file_is_named(pki: Any, others: dict[str, Any], message: str) -> None:
    for make in (TLSFiles.check, TLSFiles.credentials):
        with pytest.raises(ConfigError, match=message):
            make(files(pki, **others))


def test_key_that_does_not_fit_is_refused(pki: Any) -> None:
    with pytest.raises(ConfigError, match=r"^--tls-key .*locked_key\.pem: is locked with a pass"):
        files(pki, key=str(pki.locked_key)).check()
    with pytest.raises(ConfigError, match=r"^--tls-key .*trainer_key.*: is not the key of the"):
        files(pki, key=str(pki.trainer_key)).check()


def test_expired_certificate_is_warned_of(pki: Any, caplog: pytest.LogCaptureFixture) -> None:
    files(pki).check()
    files(pki, client_ca=str(pki.ca)).check()
    assert caplog.text == ""
    expired = {"cert": str(pki.server_expired), "key": str(pki.server_expired_key)}
    files(pki, **expired).check()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "the certificate has expired" in record.getMessage()


def test_http_uses_the_current_files_without_client_certificates(
    pki: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_SECONDS", 0.0)
    both = tmp_path / "both.pem"
    both.write_bytes(pki.server_key.read_bytes() + pki.server.read_bytes())
    context = TLSFiles(str(both), client_ca=str(pki.ca)).http_context()
    assert presented(context) == ssl.PEM_cert_to_DER_cert(pki.server.read_text())
    both.write_bytes(pki.elsewhere_key.read_bytes() + pki.elsewhere.read_bytes())
    renewed = ssl.PEM_cert_to_DER_cert(pki.elsewhere.read_text())
    assert presented(context) == presented(context, "infeed.example.org") == renewed


def presented(server: ssl.SSLContext, name: str | None = None) -> bytes:
    """Returns the certificate that a server presents to a client, which may send a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):
        for end in (client, other):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    assert client.selected_alpn_protocol() == "http/1.1"
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_end_of_the_certificate_is_that_of_the_file(pki: Any, tmp_path: Path) -> None:
    copy = tmp_path / "server.pem"
    copy.write_bytes(pki.server.read_bytes())
    tls = TLSFiles(str(copy))
    for file in (pki.server, pki.server_expired):
        copy.write_bytes(file.read_bytes())
        cert = x509.load_pem_x509_certificate(file.read_bytes())
        assert tls.expires_at() == cert.not_valid_after_utc.timestamp()
    copy.write_text("half")
    assert tls.expires_at() is None
    copy.unlink()
    assert tls.expires_at() is None
