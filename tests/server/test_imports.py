"""Imports without the garbage collector, and those that are left out."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from infeed_server.imports import without_collection


@pytest.fixture
def frozen() -> Iterator[int]:
    """Gives the number of objects that were frozen before."""
    yield gc.get_freeze_count()
    assert gc.isenabled()


def test_nothing_is_collected_within_the_block_and_its_objects_are_frozen(frozen: int) -> None:
    with without_collection():
        assert not gc.isenabled()
        made = [[] for _ in range(10_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)


def test_after_an_error_garbage_is_collected_again(frozen: int) -> None:
    with pytest.raises(ImportError), without_collection():
        raise ImportError
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled(frozen: int) -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_parent_of_several_processes_does_not_load_tensorflow() -> None:
    code = "import sys, infeed_server.runtime.processes; print('tensorflow' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
