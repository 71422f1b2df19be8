"""Validity of a certificate: when it begins and ends, read from its PEM file."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

_END = "-----END CERTIFICATE-----"
_SEQUENCE = 0x30
_VERSION = 0xA0
_UTC_TIME = 0x17


def validity(pem: str) -> tuple[datetime, datetime]:
    """Returns the first and the last moment at which the file's first certificate is valid.

    Raises `ValueError` for a file without a certificate, or with times of another form than those
    that RFC 5280 allows.
    """
    text = Path(pem).read_text("ascii", "replace")
    begin = max(0, text.find("-----BEGIN CERTIFICATE-----"))
    end = text.find(_END, begin) + len(_END)
    # Certificate → TBSCertificate → [version], serial number, algorithm, issuer, validity
    certificate = _first(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    fields = [each for each in _elements(_first(certificate)) if each[0] != _VERSION]
    if len(fields) < 4 or fields[3][0] != _SEQUENCE:
        raise ValueError(f"{pem}: no validity in its certificate")
    first, last = (_time(*each) for each in _elements(fields[3][1]))
    return first, last


def _first(data: bytes) -> bytes:
    """Returns the content of the first element of a DER encoding. Raises `ValueError`."""
    for _, content in _elements(data):
        return content
    raise ValueError("an element of the certificate is empty")


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields tag and content of each element of a DER encoding. Raises `ValueError`."""
    while data:
        if len(data) < 2:
            raise ValueError("an element of the certificate is cut off")
        tag, size, begin = data[0], data[1], 2
        if size & 0x80:
            begin += size & 0x7F
            size = int.from_bytes(data[2:begin], "big")
        if len(data) < begin + size:
            raise ValueError("an element of the certificate is cut off")
        yield tag, data[begin : begin + size]
        data = data[begin + size :]


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # years 1950 to 2049, in two digits
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)
