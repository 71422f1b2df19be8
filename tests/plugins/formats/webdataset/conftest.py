"""Tars for the tests, written by Python's `tarfile`."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Members = Sequence[tuple[str, bytes]]


@pytest.fixture
def write_tar(tmp_path: Path) -> Callable[..., Path]:
    """`write_tar(name, [(member, bytes), ...], format)` writes a tar and returns its path."""

    def write(name: str, members: Members, tar_format: int = tarfile.PAX_FORMAT) -> Path:
        path = tmp_path / name
        with tarfile.open(path, "w", format=tar_format) as tar:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    return write
