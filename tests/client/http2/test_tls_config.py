"""SSL contexts from PEM files, and errors that name the file."""

from __future__ import annotations

import ssl
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from infeed.cli.connection import Connection
from infeed.http2.tls_config import TLS, spelled
from infeed.shared.errors import ConfigError


def test_only_the_given_ca_is_trusted(pki: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki.untrusted_ca))  # the system's
    assert TLS().context().get_ca_certs()
    (only,) = TLS(ca=pki.ca).context().get_ca_certs(binary_form=True)
    assert only == ssl.PEM_cert_to_DER_cert(pki.ca.read_text())


def test_key_without_a_certificate_is_refused(pki: Any) -> None:
    with pytest.raises(ConfigError, match="key given without its certificate"):
        TLS(key=pki.trainer_key)


GARBAGE = {
    "empty": b"",
    "text": b"no certificate\n",
    "bytes": bytes(range(256)),
    "cut": b"-----BEGIN CERTIFICATE-----\nMIIB\n",
    "invalid": b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
}


def test_errors_name_each_option_as_programs_and_commands_give_it() -> None:
    of_commands = {field.name for field in fields(Connection)}
    for option in (field.name for field in fields(TLS)):
        program, command = spelled(option).split(", or --")
        assert program == f"TLS({option}=...)"
        assert command.replace("-", "_") in of_commands
    assert spelled("cert", "key") == "TLS(cert=..., key=...), or --tls-cert and --tls-key"


@pytest.mark.parametrize("kind", [*GARBAGE, "key"])
def test_invalid_ca_file_is_refused(pki: Any, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(GARBAGE[kind] if kind in GARBAGE else pki.server_key.read_bytes())
    with pytest.raises(ConfigError) as caught:
        TLS(ca=file).context()
    assert str(caught.value) == f"tls: ca {file}: holds no certificate in PEM form"
    assert caught.value.metadata["file"] == str(file)


@pytest.mark.parametrize("kind", [*GARBAGE, "ca"])
@pytest.mark.parametrize("option", ["cert", "key"])
def test_invalid_certificate_or_key_is_refused(
    pki: Any, tmp_path: Path, kind: str, option: str
) -> None:
    file = tmp_path / "it.pem"
    file.write_bytes(GARBAGE[kind] if kind in GARBAGE else pki.ca.read_bytes())
    files = {"cert": pki.trainer, "key": pki.trainer_key, option: file}
    with pytest.raises(ConfigError) as caught:
        TLS(**files).context()
    assert str(file) in str(caught.value)
    if kind != "ca":  # "ca" is a certificate, but of another key
        assert f"tls: {option}" in str(caught.value)
    assert "MII" not in str(caught.value)  # never the content
