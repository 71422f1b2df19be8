"""Tests of the iterator: when it connects, what its state counts, and whose memory it uses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import until

import infeed
from infeed import ranks
from infeed.testing import FakeTransport

jax = pytest.importorskip("jax")


def fake(**options: Any) -> FakeTransport:
    arrays = {"x": np.arange(48, dtype=np.int32)}
    return FakeTransport(arrays, batch_size=4, shuffle=False, **options)


@pytest.fixture
def batches() -> Iterator[infeed.jax.DeviceFeed]:
    with infeed.jax.connect("fake", "fake", epochs=1, transport=fake()) as batches:
        yield batches


def first_of(batch: dict[str, Any]) -> int:
    return int(batch["x"][0])


def until_all_arrived(batches: infeed.jax.DeviceFeed) -> None:
    """Waits for the 12 batches of an epoch of `fake`."""
    until(lambda: batches.stats().prefetched_bytes == 48 * 4)


LAZY = """
import jax
import numpy as np
import infeed
from infeed.testing import FakeTransport
from jax._src import xla_bridge

transport = FakeTransport({"x": np.arange(8, dtype=np.int32)}, batch_size=4)
batches = infeed.jax.connect("fake", "fake", epochs=1, transport=transport, ids="id")
assert iter(batches) is batches and bool(batches)
assert transport.streams == 0, "connected"
assert not xla_bridge._backends, "a backend was initialised"
jax.config.update("jax_num_cpu_devices", 3)  # an error once a backend is initialised
assert next(batches)["x"].shape == (4,)
assert jax.device_count() == 3
batches.close()
"""


def test_nothing_is_connected_before_the_first_batch() -> None:
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", LAZY], check=True, timeout=200, env=env)


def test_state_counts_what_the_loop_has_taken(batches: infeed.jax.DeviceFeed) -> None:
    assert batches.state()["position"] == 0
    until_all_arrived(batches)
    for step in range(1, 4):
        next(batches)
        assert batches.state()["position"] == 4 * step
    assert batches.feed.delivered == 3 + 2  # some are on the devices


def test_first_state_neither_connects_nor_calls_jax(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = fake()
    with infeed.jax.connect("fake", "fake", transport=transport) as batches:
        with monkeypatch.context() as patch:
            # It waits for a lock that a signal handler's thread may hold.
            patch.delattr("infeed_frameworks.jax.device_feed.data_groups")
            state = batches.state()
        assert transport.streams == 0
        assert state == batches.feed.state()


@pytest.mark.parametrize("device_prefetch", [0, 1, 5])
def test_device_prefetch_bounds_the_batches_on_the_devices(device_prefetch: int) -> None:
    options = {"epochs": 1, "transport": fake(), "device_prefetch": device_prefetch}
    with infeed.jax.connect("fake", "fake", **options) as batches:
        until_all_arrived(batches)
        for step in range(1, 12 - device_prefetch):
            assert first_of(next(batches)) == 4 * (step - 1)
            assert batches.feed.delivered == step + device_prefetch


def test_second_loop_has_the_batches_on_the_devices(batches: infeed.jax.DeviceFeed) -> None:
    until_all_arrived(batches)
    taken = [first_of(next(batches)) for _ in range(11)]
    taken += [first_of(batch) for batch in batches]
    assert taken == list(range(0, 48, 4))


def test_integers_of_a_field_without_elements_are_converted() -> None:
    transport = FakeTransport({"n": np.zeros((8, 0), np.int64)}, batch_size=4)
    with infeed.jax.connect("fake", "fake", transport=transport) as batches:
        x = next(batches)["n"]
        assert (x.dtype, x.shape) == (np.int32, (4, 0))


def test_error_comes_after_the_batches_before_it_and_stays() -> None:
    def fail(start: int) -> None:
        if start == 12:
            raise infeed.SampleError("sample 13 is bad")

    transport = fake(before_batch=fail)
    with infeed.jax.connect("fake", "fake", transport=transport) as batches:
        until(lambda: batches.feed.has_next)
        taken = []
        for _ in range(2):
            with pytest.raises(infeed.SampleError, match="sample 13"):
                taken.extend(map(first_of, batches))
        assert taken == [0, 4, 8]
        assert batches.state()["position"] == 12


def test_batch_that_cannot_be_converted_comes_in_its_turn() -> None:
    values = np.arange(16, dtype=np.int64)
    values[9] = 1 << 40
    transport = FakeTransport({"n": values}, batch_size=4, shuffle=False)
    with infeed.jax.connect("fake", "fake", transport=transport) as batches:
        until(lambda: batches.feed.has_next)
        assert next(batches)["n"].dtype == np.int32
        next(batches)
        for _ in range(2):
            with pytest.raises(infeed.InvalidRequestError, match="'n' has values from 8 to 109951"):
                next(batches)
        assert batches.state()["position"] == 8


@pytest.mark.parametrize("release", [False, True])
def test_memory_of_a_device_array_is_not_used_again(release: bool) -> None:
    """JAX on the CPU uses the memory of an aligned array instead of a copy.

    The batches are large enough for the pool of buffers, which lends memory again as soon as
    nothing refers to it.
    """
    pixels = np.arange(256, dtype=np.uint8).repeat(1 << 16).reshape(256, -1)
    transport = FakeTransport({"pixels": pixels}, batch_size=4, seed=1)
    kept: list[tuple[int, Any]] = []
    pointers = set()
    options = {"epochs": 2, "transport": transport, "ids": "id"}
    with infeed.jax.connect("fake", "fake", **options) as batches:
        for step, batch in enumerate(batches):
            pointers.add(batch["pixels"].unsafe_buffer_pointer())
            if not release or step % 3 == 0:
                kept.append((batch["id"], batch["pixels"]))
            if release:
                del batch
    for ids, x in kept:
        np.testing.assert_array_equal(x, pixels[np.asarray(ids)])
    if release:
        assert len(pointers) < 128  # memory is used again, so the test can fail


def test_one_process_of_jax_among_several_warns_of_equal_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ranks, "_has_warned", False)
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    options = {"epochs": 1, "transport": fake()}
    with infeed.jax.connect("fake", "fake", shard=infeed.Shard(0, 2), **options) as batches:
        next(batches)
    assert not caplog.records
    with infeed.jax.connect("fake", "fake", **options) as batches:
        next(batches)
    (record,) = caplog.records
    assert "infeed.jax.connect has no shard" in record.message
    assert "(SLURM_STEP_NUM_TASKS=2)" in record.message
