"""Tests of `dataset_identity`: what tells one data set from another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infeed import ConfigError
from infeed_server.sources.python.user_code import dataset_identity


class Plain:
    pass


class Named:
    fingerprint = "v1"


class Method:
    def fingerprint(self) -> bytes:
        return b"v2"


class HuggingFace:
    """Has the private attribute of `datasets.Dataset`, and a repr that leaves out the content."""

    _fingerprint = "3a7b"

    def __repr__(self) -> str:
        return "Dataset({features: ['text'], num_rows: 3})"


class Versioned(HuggingFace):
    """One that its user has given a fingerprint."""

    fingerprint = 7


class Grain:
    """Has a repr of what it reads, as Grain asks of its sources."""

    def __repr__(self) -> str:
        return "ArrayRecordDataSource(paths=['a-0.arrayrecord'])"


class Address:
    def __repr__(self) -> str:
        return f"Address({object()!r})"


class Wrong:
    fingerprint = 1.5


@pytest.mark.parametrize(
    ("dataset", "identity"),
    [
        (Named(), "fingerprint 'v1'"),
        (Method(), "fingerprint b'v2'"),
        (HuggingFace(), "_fingerprint '3a7b'"),
        (Versioned(), "fingerprint 7"),
        (Grain(), "repr ArrayRecordDataSource(paths=['a-0.arrayrecord'])"),
    ],
)
def test_identity_of_an_object(dataset: Any, identity: str) -> None:
    assert dataset_identity(dataset, "m:d") == identity


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (Plain(), "a Plain has no repr of its own"),
        (Address(), "its repr has a memory address, which changes with each start"),
        ([1, 2], "the repr of a list does not identify its content"),
        (np.arange(10_000), "the repr of a ndarray does not identify its content"),
        (np.ma.masked_array([1, 2]), "the repr of a MaskedArray does not identify its content"),
    ],
)
def test_object_without_identity_is_refused(dataset: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match="m:d has no identity") as caught:
        dataset_identity(dataset, "m:d")
    assert reason in caught.value.message
    assert "identity: v1" in caught.value.message


def test_fingerprint_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="the fingerprint of m:d is a float, not text, bytes or"):
        dataset_identity(Wrong(), "m:d")
