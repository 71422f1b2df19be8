"""Tests of `imports.py`, and of what is not imported."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from infeed_server.imports import without_gc


@pytest.fixture
def frozen_before() -> Iterator[int]:
    """Gives the number of objects that were frozen before the test."""
    yield gc.get_freeze_count()
    assert gc.isenabled()


def test_block_disables_gc_and_freezes_its_objects(frozen_before: int) -> None:
    with without_gc():
        assert not gc.isenabled()
        objects = [[] for _ in range(10_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen_before + len(objects)


@pytest.mark.usefixtures("frozen_before")
def test_error_in_block_enables_gc_again() -> None:
    with pytest.raises(ImportError), without_gc():
        raise ImportError
    assert gc.isenabled()


@pytest.mark.usefixtures("frozen_before")
def test_disabled_gc_stays_disabled() -> None:
    gc.disable()
    try:
        with without_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_parent_of_several_processes_does_not_load_tensorflow() -> None:
    code = "import sys, infeed_server.runtime.multiprocess; print('tensorflow' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "False\n"
