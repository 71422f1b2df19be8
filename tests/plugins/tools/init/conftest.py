"""Data for starters."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.datasets import write_datasets
from tests.plugins.formats.stores.conftest import store

__all__ = ["data", "store"]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind of data; tests only read them."""
    root = tmp_path_factory.mktemp("data")
    write_datasets(root)
    return root
