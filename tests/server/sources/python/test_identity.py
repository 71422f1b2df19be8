"""Tests of `dataset_identity`: what tells one data set from another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infeed import ConfigError
from infeed_server.sources.python.user_code import dataset_identity


def of_type(name: str, **attributes: Any) -> Any:
    """Returns an object of a class with these attributes."""
    return type(name, (), attributes)()


HUGGING_FACE = {"_fingerprint": "3a7b", "__repr__": lambda _: "Dataset({num_rows: 3})"}
GRAIN = "ArrayRecordDataSource(paths=['a-0.arrayrecord'])"


@pytest.mark.parametrize(
    ("dataset", "identity"),
    [
        (of_type("Named", fingerprint="v1"), "fingerprint 'v1'"),
        (of_type("Method", fingerprint=lambda _: b"v2"), "fingerprint b'v2'"),
        (of_type("Dataset", **HUGGING_FACE), "_fingerprint '3a7b'"),
        (of_type("Dataset", **HUGGING_FACE, fingerprint=7), "fingerprint 7"),
        (of_type("Grain", __repr__=lambda _: GRAIN), f"repr {GRAIN}"),
    ],
)
def test_identity_of_an_object(dataset: Any, identity: str) -> None:
    assert dataset_identity(dataset, "m:d") == identity


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (of_type("Plain"), "a Plain has no repr of its own"),
        (
            of_type("Address", __repr__=lambda _: repr(object())),
            "its repr has a memory address, which changes with each start",
        ),
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
        dataset_identity(of_type("Wrong", fingerprint=1.5), "m:d")
