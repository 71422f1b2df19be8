"""Tests of `imports.py`, and of what is not imported."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


@pytest.mark.parametrize("module", ["infeed_server.runtime.multiprocess", "infeed_python.worker"])
def test_parent_and_workers_do_not_load_tensorflow(module: str) -> None:
    code = f"import sys, {module}; print('tensorflow' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "False\n"


def test_a_format_is_imported_by_the_first_pipeline_that_uses_it() -> None:
    code = """
import sys
from infeed_server.imports import defer_tensorflow
defer_tensorflow()
from infeed_server import Pipeline
Pipeline.model_validate({"source": {"images": "photos"}})
before = "infeed_formats" in sys.modules
Pipeline.model_validate({"source": {"tokens": "*.idx"}})
print(before, sorted(name for name in sys.modules if name.count(".") == 1 and "_formats." in name))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stdout == "False ['infeed_formats.tokens']\n"


def test_deferred_tensorflow_is_loaded_by_its_first_use(tmp_path: Path) -> None:
    # A package of that name, so that the test need not load the real one.
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("value = object()\n")
    (package / "inner.py").write_text("other = 1\n")
    code = """
from infeed_server.imports import defer_tensorflow, is_tensorflow_loaded, load_tensorflow
defer_tensorflow()
import tensorflow as deferred
assert not hasattr(deferred, '__file__') and not is_tensorflow_loaded()
assert deferred.value and is_tensorflow_loaded()
import tensorflow as loaded
assert loaded is not deferred and loaded.value is deferred.value
from tensorflow.inner import other
load_tensorflow()
defer_tensorflow()
import tensorflow as again
assert again is loaded
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=200)
    code = """
from infeed_server.imports import defer_tensorflow
defer_tensorflow()
import tensorflow as deferred
from tensorflow.inner import other
import tensorflow as loaded
assert loaded is not deferred and loaded.inner.__spec__.origin.endswith('inner.py')
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=200)
