"""What a trainer trusts and shows: contexts from PEM files, and errors that name the file."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from infeed.errors import ConfigError
from infeed.tls import TLS


def test_names_and_authorities_are_always_checked(pki: Any) -> None:
    for tls in (
        TLS(),
        TLS(ca=pki.ca),
        TLS(ca=str(pki.ca)),
        TLS(cert=pki.server, key=pki.server_key),
    ):
        context = tls.context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_COMPRESSION


def test_what_renews_keys_in_the_middle_is_off(pki: Any) -> None:
    # HTTP/2 forbids it (RFC 9113, 9.2.1): a write could wait for a read in it.
    assert TLS(ca=pki.ca).context().options & ssl.OP_NO_RENEGOTIATION
    assert TLS().context().options & ssl.OP_NO_RENEGOTIATION


def test_an_authority_of_ones_own_is_the_only_one(
    pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki.stranger_ca))  # as the system's
    assert TLS().context().get_ca_certs()
    (only,) = TLS(ca=pki.ca).context().get_ca_certs(binary_form=True)
    assert only == ssl.PEM_cert_to_DER_cert(pki.ca.read_text())


def test_the_authorities_of_the_system_are_not_loaded_beside_ones_own(
    pki: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take 50 ms, for each connection."""
    loaded: list[ssl.SSLContext] = []
    monkeypatch.setattr(
        ssl.SSLContext, "load_default_certs", lambda context, *_: loaded.append(context)
    )
    TLS(ca=pki.ca).context()
    assert not loaded
    context = TLS().context()
    assert loaded == [context]


def test_a_key_may_stand_in_the_file_of_its_certificate(pki: Any, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(pki.trainer.read_bytes() + pki.trainer_key.read_bytes())
    TLS(ca=pki.ca, cert=both).context()


def test_a_key_without_its_certificate(pki: Any) -> None:
    with pytest.raises(ConfigError, match="a key without the certificate"):
        TLS(key=pki.trainer_key)


def test_files_are_read_anew_for_each_connection(pki: Any, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(pki.ca.read_bytes())
    tls = TLS(ca=ca)
    first = tls.context().get_ca_certs(binary_form=True)
    ca.write_bytes(pki.stranger_ca.read_bytes())
    assert tls.context().get_ca_certs(binary_form=True) != first
    ca.unlink()
    with pytest.raises(ConfigError, match=r"tls: ca .*ca\.pem: no such file"):
        tls.context()


GARBAGE = {
    "empty": b"",
    "text": b"no certificate\n",
    "bytes": bytes(range(256)),
    "cut": b"-----BEGIN CERTIFICATE-----\nMIIB\n",
    "spoilt": b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
}


@pytest.mark.parametrize("kind", [*GARBAGE, "key"])
def test_what_is_no_authority(pki: Any, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(GARBAGE[kind] if kind in GARBAGE else pki.server_key.read_bytes())
    with pytest.raises(ConfigError) as caught:
        TLS(ca=file).context()
    assert str(caught.value) == f"tls: ca {file}: holds no certificate in PEM form"
    assert caught.value.metadata["file"] == str(file)


@pytest.mark.parametrize("kind", [*GARBAGE, "ca"])
@pytest.mark.parametrize("spoilt", ["cert", "key"])
def test_what_is_no_certificate_or_key(pki: Any, tmp_path: Path, kind: str, spoilt: str) -> None:
    file = tmp_path / "it.pem"
    file.write_bytes(GARBAGE[kind] if kind in GARBAGE else pki.ca.read_bytes())
    files = {"cert": pki.trainer, "key": pki.trainer_key, spoilt: file}
    with pytest.raises(ConfigError) as caught:
        TLS(**files).context()
    assert str(file) in str(caught.value)
    if kind != "ca":  # which is a certificate, that of another key
        assert f"tls: {spoilt}" in str(caught.value)
    assert "MII" not in str(caught.value)  # never the content


def test_a_certificate_without_any_key(pki: Any) -> None:
    with pytest.raises(ConfigError, match=r"does not hold a certificate and its private key"):
        TLS(cert=pki.trainer).context()


def test_the_key_of_another(pki: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        TLS(cert=pki.trainer, key=pki.stranger_key).context()
    assert str(caught.value) == (
        f"tls: key {pki.stranger_key}: is not the key of the certificate {pki.trainer}"
    )


def test_a_locked_key_asks_nobody(pki: Any, tmp_path: Path, capfd: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        TLS(cert=pki.server, key=pki.locked_key).context()
    assert str(caught.value) == (
        f"tls: key {pki.locked_key}: is locked with a passphrase; give one without"
    )
    both = tmp_path / "both.pem"
    both.write_bytes(pki.server.read_bytes() + pki.locked_key.read_bytes())
    with pytest.raises(ConfigError, match="is locked with a passphrase"):
        TLS(cert=both).context()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("option", ["ca", "cert", "key"])
def test_files_that_cannot_be_read(pki: Any, tmp_path: Path, option: str) -> None:
    files = {"ca": pki.ca, "cert": pki.trainer, "key": pki.trainer_key}
    for file, why in ((tmp_path / "none.pem", "no such file or directory"), (tmp_path, "is a dir")):
        with pytest.raises(ConfigError, match=f"^tls: {option} {file}: {why}"):
            TLS(**{**files, option: file}).context()
