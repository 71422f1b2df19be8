"""The server's certificate: what its files must hold, and that they may be renewed."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from infeed.errors import ConfigError
from infeed_server.config import watched
from infeed_server.runtime.certificate import TLSFiles, tls_files


def files(pki: Any, **others: Any) -> TLSFiles:
    return TLSFiles(**{"cert": str(pki.server), "key": str(pki.server_key), **others})


def test_a_server_without_authorities_asks_for_no_certificate(pki: Any) -> None:
    context = files(pki).context()
    assert context.verify_mode is ssl.CERT_NONE
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


def test_a_server_with_authorities_insists(pki: Any) -> None:
    context = files(pki, client_ca=str(pki.ca)).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1  # and not the system's


def test_both_in_one_file(pki: Any, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(pki.server_key.read_bytes() + pki.server.read_bytes())
    TLSFiles(str(both)).context()


@pytest.mark.parametrize(
    ("others", "told"),
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
def test_files_that_are_wrong(pki: Any, others: dict[str, Any], told: str) -> None:
    for make in (TLSFiles.context, TLSFiles.watched):
        with pytest.raises(ConfigError, match=told):
            make(files(pki, **others))


def test_keys_that_do_not_fit(pki: Any) -> None:
    with pytest.raises(ConfigError, match=r"^--tls-key .*locked_key\.pem: is locked with a pass"):
        files(pki, key=str(pki.locked_key)).context()
    with pytest.raises(ConfigError, match=r"^--tls-key .*trainer_key.*: is not the key of the"):
        files(pki, key=str(pki.trainer_key)).context()


def test_options_that_need_another() -> None:
    assert tls_files(None, None, None) is None
    assert tls_files("c", None, None) == TLSFiles("c")
    assert tls_files("c", "k", "a") == TLSFiles("c", "k", "a")
    with pytest.raises(ConfigError, match=r"^--tls-key: TLS needs .*--tls-cert"):
        tls_files(None, "k", None)
    with pytest.raises(ConfigError, match=r"^--tls-client-ca: TLS needs .*--tls-cert"):
        tls_files(None, None, "a")


def test_files_that_are_renewed(
    pki: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    cert, key, ca = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))

    def put(certificate: Path, private: Path, authority: Path) -> None:
        for file, content in ((cert, certificate), (key, private), (ca, authority)):
            file.write_bytes(content.read_bytes())

    put(pki.server, pki.server_key, pki.ca)
    it = TLSFiles(str(cert), str(key), str(ca)).watched()
    first = it.value
    assert it.value is first
    cert.write_bytes(pki.stranger.read_bytes())  # whose key comes later
    assert it.value is first
    assert "is not the key of the certificate" in caplog.text
    key.write_bytes(pki.stranger_key.read_bytes())
    second = it.value
    assert second is not first
    assert second.get_ca_certs(binary_form=True) == first.get_ca_certs(binary_form=True)
    ca.write_bytes(pki.stranger_ca.read_bytes())
    assert it.value.get_ca_certs(binary_form=True) != first.get_ca_certs(binary_form=True)
