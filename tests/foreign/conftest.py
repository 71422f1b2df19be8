"""Data for writers of foreign formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.datasets import jpeg


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of five JPEGs."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.jpg").write_bytes(jpeg(number, (40 + number, 30)))
    return folder


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEED_CACHE_DIR", str(tmp_path / "cache"))
