"""Stores of objects: found by the schemes of paths."""

from __future__ import annotations

import sys

import pytest

from infeed.shared.errors import ConfigError, MissingExtraError
from infeed_server.storage import stores
from infeed_server.storage.files import list_files


def test_an_unknown_scheme_names_those_that_are_available() -> None:
    text = r"'hdfs://bkt/\*': unknown scheme hdfs://; available: az://, .*gs://, .*s3://$"
    with pytest.raises(ConfigError, match=text):
        list_files(["hdfs://bkt/*"])


def test_a_store_without_its_extra_names_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_loaded", {})
    for name in [name for name in sys.modules if name.startswith("infeed_formats.stores")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError, match=r"'s3' needs .*pip install 'infeed\[stores\]'"):
        list_files(["s3://bkt/*"])
