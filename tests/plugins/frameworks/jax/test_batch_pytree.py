"""Tests of a NumPy batch as a container of JAX, whenever JAX is imported."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.testing import FakeTransport

jax = pytest.importorskip("jax")


def fake() -> FakeTransport:
    return FakeTransport({"x": np.arange(24, dtype=np.int32), "a": np.ones((24, 2), np.float32)})


@pytest.fixture
def batches() -> list[infeed.Batch]:
    with infeed.connect("fake", "fake", epochs=1, transport=fake()) as feed:
        return list(feed)


def test_tree_map_returns_a_plain_dict(batches: list[infeed.Batch]) -> None:
    doubled = jax.tree.map(lambda x: 2 * x, batches[0])
    assert type(doubled) is dict
    assert list(doubled) == ["a", "x"]
    np.testing.assert_array_equal(doubled["x"], 2 * batches[0]["x"])


def test_keys_are_those_of_a_dict(batches: list[infeed.Batch]) -> None:
    paths, _ = jax.tree_util.tree_flatten_with_path(batches[0])
    expected, _ = jax.tree_util.tree_flatten_with_path(dict(batches[0]))
    assert [path for path, _ in paths] == [path for path, _ in expected]


def test_jit_takes_every_batch_with_one_trace(batches: list[infeed.Batch]) -> None:
    traces = []

    @jax.jit
    def total(batch: Any) -> Any:
        traces.append(1)
        return batch["x"].sum()

    assert sum(int(total(batch)) for batch in batches) == sum(range(24))
    assert len(batches) == 3
    assert len(traces) == 1


SCRIPT = """
import sys
import numpy as np
{before}
import infeed
from infeed.testing import FakeTransport

transport = FakeTransport({{"x": np.arange(8, dtype=np.int32)}}, batch_size=4)
feed = infeed.connect("fake", "fake", epochs=1, transport=transport)
assert ("jax" in sys.modules) is {imported}
first = next(feed)
while feed.stats().prefetched_bytes == 0:  # all batches exist before JAX is imported
    pass
{after}
second = next(feed)
from jax._src import xla_bridge

assert not xla_bridge._backends, "a backend was initialised"
for batch in (first, second):
    assert type(jax.tree.map(np.negative, batch)) is dict
assert jax.device_put(second)["x"].shape == (4,)
feed.close()
"""


@pytest.mark.parametrize("first", [True, False])
def test_jax_may_be_imported_before_or_after_connecting(first: bool) -> None:
    before, after = ("import jax", "") if first else ("", "import jax")
    script = SCRIPT.format(before=before, after=after, imported=first)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=200)
