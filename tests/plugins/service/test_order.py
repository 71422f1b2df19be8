"""Tests of the sample order in a graph: bit-identical to NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.order import Mode, SampleOrder
from infeed_service.order import GraphSampleOrder

MODES: tuple[Mode, ...] = ("global", "window", "none")
MAX_POSITION = 2**61


def assert_same(order: SampleOrder, positions: list[int]) -> None:
    actual = GraphSampleOrder(order).slots(tf.constant(positions, tf.int64))
    for number, position in enumerate(positions):
        expected = order.slots(position, 1)
        assert actual.index[number] == expected.index[0]
        assert actual.epoch[number] == expected.epoch[0]
        assert np.array_equal(actual.key[number], expected.key[0])


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
def test_range_equals_the_numpy_order(
    mode: Mode, *, count: int, seed: int, block: int, window: int, start: int, slots: int
) -> None:
    order = SampleOrder(count, seed, mode, block, window)
    expected = order.slots(start, slots)
    actual = GraphSampleOrder(order).slots(tf.range(start, start + slots, dtype=tf.int64))
    assert np.array_equal(actual.index, expected.index)
    assert np.array_equal(actual.epoch, expected.epoch)
    assert np.array_equal(actual.key, expected.key)


@pytest.mark.parametrize("mode", MODES)
@examples(8)
@given(
    count=st.integers(1, 2**40),
    seed=st.integers(0, 2**63 - 1),
    positions=st.lists(st.integers(0, MAX_POSITION), min_size=1, max_size=6),
)
def test_vector_may_span_many_epochs(
    mode: Mode, count: int, seed: int, positions: list[int]
) -> None:
    assert_same(SampleOrder(count, seed, mode), [*positions, 0, MAX_POSITION])


@examples(20)
@given(
    count=st.integers(1, 50) | st.integers(1, 2**62),
    index=st.integers(0, 2**62),
    key=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2),
)
def test_substitutes_equal_the_numpy_order(count: int, index: int, key: tuple[int, int]) -> None:
    order = SampleOrder(count, 3)
    index %= count
    expected = order.substitute(index, np.array(key))
    substitute, new_key = GraphSampleOrder(order).substitute(
        tf.constant(index, tf.int64), tf.constant(key, tf.int64)
    )
    assert (substitute.shape, new_key.shape) == ((), (2,))
    assert substitute == expected.index[0]
    assert np.array_equal(new_key, expected.key[0])
