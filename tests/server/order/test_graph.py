"""The order as graph operations: the same bits as NumPy's, whatever is asked for."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.order import Mode, Order
from infeed_server.order.graph import GraphOrder

MODES: tuple[Mode, ...] = ("global", "window", "none")
LAST = 2**61


def assert_same(order: Order, positions: list[int]) -> None:
    got = GraphOrder(order).slots(tf.constant(positions, tf.int64))
    for number, position in enumerate(positions):
        wanted = order.slots(position, 1)
        assert got.index[number] == wanted.index[0]
        assert got.epoch[number] == wanted.epoch[0]
        assert np.array_equal(got.key[number], wanted.key[0])


@pytest.mark.parametrize("mode", MODES)
@examples(8)
@given(
    count=st.integers(1, 400),
    seed=st.integers(0, 2**63 - 1),
    block=st.integers(1, 50),
    window=st.integers(1, 120),
    start=st.integers(0, 2000),
    slots=st.integers(1, 500),
)
def test_a_batch_is_that_of_the_order(
    mode: Mode, *, count: int, seed: int, block: int, window: int, start: int, slots: int
) -> None:
    order = Order(count, seed, mode, block, window)
    wanted = order.slots(start, slots)
    got = GraphOrder(order).slots(tf.range(start, start + slots, dtype=tf.int64))
    assert np.array_equal(got.index, wanted.index)
    assert np.array_equal(got.epoch, wanted.epoch)
    assert np.array_equal(got.key, wanted.key)


@pytest.mark.parametrize("mode", MODES)
@examples(8)
@given(
    count=st.integers(1, 2**40),
    seed=st.integers(0, 2**63 - 1),
    positions=st.lists(st.integers(0, LAST), min_size=1, max_size=6),
)
def test_positions_of_many_epochs_stand_in_one_vector(
    mode: Mode, count: int, seed: int, positions: list[int]
) -> None:
    assert_same(Order(count, seed, mode), [*positions, 0, LAST])


@examples(20)
@given(
    count=st.integers(1, 50) | st.integers(1, 2**62),
    index=st.integers(0, 2**62),
    key=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2),
)
def test_stand_ins_are_drawn_alike(count: int, index: int, key: tuple[int, int]) -> None:
    order = Order(count, 3)
    index %= count
    wanted = order.substitute(index, np.array(key))
    other, fresh = GraphOrder(order).substitute(
        tf.constant(index, tf.int64), tf.constant(key, tf.int64)
    )
    assert (other.shape, fresh.shape) == ((), (2,))
    assert other == wanted.index[0]
    assert np.array_equal(fresh, wanted.key[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_dataset_computes_it_with_static_shapes(mode: Mode) -> None:
    order = Order(1_000_003, 17, mode)  # epoch 0 ends inside the second of the three batches
    in_graph = GraphOrder(order)

    def batch(number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        slots = in_graph.slots(number * 64 + tf.range(64, dtype=tf.int64))
        return slots.index, slots.epoch, slots.key

    batches = tf.data.Dataset.from_tensor_slices(np.arange(15_624, 15_627)).map(batch)
    assert [spec.shape for spec in batches.element_spec] == [(64,), (64,), (64, 2)]
    for number, (index, epoch, key) in zip(range(15_624, 15_627), batches, strict=True):
        wanted = order.slots(number * 64, 64)
        assert np.array_equal(index, wanted.index)
        assert np.array_equal(epoch, wanted.epoch)
        assert np.array_equal(key, wanted.key)
