"""Tests of `runtime/certificate.py`."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme

from infeed.errors import ConfigError
from infeed_server.config import reloading
from infeed_server.runtime.certificate import TLSFiles, tls_files_from_options
from infeed_server.runtime.validity import validity


def files(pki: Any, **others: Any) -> TLSFiles:
    return TLSFiles(**{"cert": str(pki.server), "key": str(pki.server_key), **others})


def test_without_client_ca_no_certificate_is_required(pki: Any) -> None:
    context = files(pki).context()
    assert context.verify_mode is ssl.CERT_NONE
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


def test_with_client_ca_a_certificate_is_required(pki: Any) -> None:
    context = files(pki, client_ca=str(pki.ca)).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1  # not the system's


def test_certificate_and_key_in_one_file(pki: Any, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(pki.server_key.read_bytes() + pki.server.read_bytes())
    TLSFiles(str(both)).context()


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"cert": "/none"}, "^--tls-cert /none: no such file"),
        ({"key": "/none"}, "^--tls-key /none: no such file"),
        ({"client_ca": "/none"}, "^--tls-client-ca /none: no such file"),
        ({"client_ca": "/dev/null"}, "^--tls-client-ca /dev/null: holds no certificate"),
        ({"cert": "/dev/null"}, r"^--tls-cert /dev/null or --tls-key .*: does not hold"),
        ({"key": "/dev/null"}, r"^--tls-cert .* or --tls-key /dev/null: does not hold"),
        ({"key": None}, "^--tls-cert .*server.pem: does not hold a certificate and its private"),
    ],
)
def test_invalid_file_is_named(pki: Any, others: dict[str, Any], message: str) -> None:
    for make in (TLSFiles.context, TLSFiles.reloading_context):
        with pytest.raises(ConfigError, match=message):
            make(files(pki, **others))


def test_key_that_does_not_fit_is_refused(pki: Any) -> None:
    with pytest.raises(ConfigError, match=r"^--tls-key .*locked_key\.pem: is locked with a pass"):
        files(pki, key=str(pki.locked_key)).context()
    with pytest.raises(ConfigError, match=r"^--tls-key .*trainer_key.*: is not the key of the"):
        files(pki, key=str(pki.trainer_key)).context()


def test_options_without_certificate_are_refused() -> None:
    assert tls_files_from_options(None, None, None) is None
    assert tls_files_from_options("c", None, None) == TLSFiles("c")
    assert tls_files_from_options("c", "k", "a") == TLSFiles("c", "k", "a")
    with pytest.raises(ConfigError, match=r"^--tls-key: TLS needs .*--tls-cert"):
        tls_files_from_options(None, "k", None)
    with pytest.raises(ConfigError, match=r"^--tls-client-ca: TLS needs .*--tls-cert"):
        tls_files_from_options(None, None, "a")


def test_certificate_that_is_not_valid_now_is_warned_of(
    pki: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_SECONDS", 0.0)
    files(pki).context()
    files(pki, client_ca=str(pki.ca)).context()
    assert caplog.text == ""
    expired = {"cert": str(pki.server_expired), "key": str(pki.server_expired_key)}
    files(pki, **expired).context()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    first, last = (each.strftime("%Y-%m-%d %H:%M:%S UTC") for each in validity(expired["cert"]))
    begin = f"--tls-cert {expired['cert']}: expired: valid from {first} to {last}, and now it is 2"
    assert record.getMessage().startswith(begin)
    # Also if it comes with a reload.
    both = tmp_path / "both.pem"
    both.write_bytes(pki.server_key.read_bytes() + pki.server.read_bytes())
    context = TLSFiles(str(both)).reloading_context()
    caplog.clear()
    future = datetime.now(timezone.utc) + timedelta(days=9)
    leaf = trustme.CA().issue_cert("localhost", not_before=future)
    leaf.private_key_and_cert_chain_pem.write_to_path(str(both))
    assert context.value
    assert f"{both}: not valid yet: valid from {future:%Y-%m-%d %H:%M:%S} UTC to" in caplog.text


def test_renewed_files_are_reloaded(
    pki: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "CHECK_INTERVAL_SECONDS", 0.0)
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))

    for file, content in ((cert, pki.server), (key, pki.server_key), (ca, pki.ca)):
        file.write_bytes(content.read_bytes())
    context = TLSFiles(str(cert), str(key), str(ca)).reloading_context()
    first = context.value
    assert context.value is first
    cert.write_bytes(pki.trainer.read_bytes())  # without its key yet
    assert context.value is first
    assert "is not the key of the certificate" in caplog.text
    key.write_bytes(pki.trainer_key.read_bytes())
    second = context.value
    assert second is not first
    assert second.get_ca_certs(binary_form=True) == first.get_ca_certs(binary_form=True)
    trustme.CA().cert_pem.write_to_path(str(ca))
    assert context.value.get_ca_certs(binary_form=True) != first.get_ca_certs(binary_form=True)


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
    assert tls.expires_at() == validity(str(pki.server))[1].timestamp()
    copy.write_bytes(pki.server_expired.read_bytes())
    assert tls.expires_at() == validity(str(pki.server_expired))[1].timestamp()
    copy.write_text("half")
    assert tls.expires_at() is None
    copy.unlink()
    assert tls.expires_at() is None
