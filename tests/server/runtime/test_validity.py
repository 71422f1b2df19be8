"""Tests of `runtime/validity.py`."""

from __future__ import annotations

import ssl
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509

from infeed_server.runtime.validity import validity


def utc(*parts: Any) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (utc(2000, 1, 2, 3, 4, 5), utc(2038, 1, 1)),
        (utc(1999, 12, 31, 23, 59, 59), utc(2049, 12, 31)),
        (utc(2049, 12, 31), utc(2050, 1, 1)),  # the second has another form
        (utc(2051, 2, 28), utc(9999, 12, 31, 23, 59, 59)),
    ],
)
def test_dates_are_those_of_the_first_certificate(
    tmp_path: Path, first: datetime, last: datetime
) -> None:
    leaf = trustme.CA().issue_cert("localhost", not_before=first, not_after=last)
    file = tmp_path / "both.pem"
    leaf.private_key_and_cert_chain_pem.write_to_path(str(file))
    trustme.CA().cert_pem.write_to_path(str(file), append=True)
    assert validity(str(file)) == (first, last)


def test_dates_are_those_that_cryptography_reads(pki: Any) -> None:
    for file in (pki.ca, pki.server, pki.server_expired, pki.trainer):
        cert = x509.load_pem_x509_certificate(file.read_bytes())
        assert validity(str(file)) == (cert.not_valid_before_utc, cert.not_valid_after_utc)


@pytest.mark.parametrize(
    "content",
    ["", "no certificate", "{begin}\nMAA=\n{end}\n", "{begin}\n\n{end}\n", "{begin}\n"],
)
def test_file_without_dates_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "cert.pem"
    begin, end = (f"-----{word} CERTIFICATE-----" for word in ("BEGIN", "END"))
    file.write_text(content.format(begin=begin, end=end))
    with pytest.raises(ValueError):  # noqa: PT011 - some are of Python's ssl module
        validity(str(file))


def test_certificate_that_is_cut_off_is_refused(pki: Any, tmp_path: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert(pki.ca.read_text())
    file = tmp_path / "cert.pem"
    for size in range(1, 150):
        file.write_text(ssl.DER_cert_to_PEM_cert(der[:size]))
        with pytest.raises(ValueError):  # noqa: PT011 - likewise
            validity(str(file))
