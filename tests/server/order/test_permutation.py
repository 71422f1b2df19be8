"""Tests of permutations: bijective, keyed and uniform."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.order.permutation import SORTED_COUNT, permutation


@examples(30)
@given(count=st.integers(1, 3000), key=st.integers(0, 2**63 - 1))
def test_permutation_is_a_bijection_with_an_inverse(count: int, key: int) -> None:
    order = permutation(count, key)
    image = order.forward(np.arange(count))
    assert sorted(image) == list(range(count))
    assert np.array_equal(order.inverse(image), np.arange(count))


def test_large_counts_need_no_memory() -> None:
    count = 10**15
    values = np.array([0, 1, count // 2, count - 1])
    order = permutation(count, 3)
    image = order.forward(values)
    assert len(set(image.tolist())) == 4
    assert ((image >= 0) & (image < count)).all()
    assert np.array_equal(order.inverse(image), values)


def chi_square(counts: Any) -> float:
    """Returns the statistic of counts that should be equal."""
    mean = np.mean(counts)
    return float(((counts - mean) ** 2 / mean).sum())


# Counts on either side of the change from one kind of permutation to the other.
@pytest.mark.parametrize(
    ("count", "limit"),
    # 99.9 % of uniform samples lie below the limit, for (count - 1)^2 degrees of freedom.
    [(3, 18.5), (7, 67.9), (SORTED_COUNT, 4251.0), (SORTED_COUNT + 1, 4382.0)],
)
def test_each_image_of_each_value_is_equally_likely(count: int, limit: float) -> None:
    counts = np.zeros((count, count))
    for key in range(300 * count if count < 10 else 1500):
        counts[np.arange(count), permutation(count, key).forward(np.arange(count))] += 1
    assert chi_square(counts) < limit


def test_each_permutation_of_five_is_equally_likely() -> None:
    orders = Counter(tuple(permutation(5, key).forward(np.arange(5))) for key in range(12_000))
    assert len(orders) == 120
    # 119 degrees of freedom: 99.9 % of uniform samples lie below 172.
    assert chi_square(list(orders.values())) < 172


def test_consecutive_keys_are_unrelated() -> None:
    first, second = (permutation(1000, 5, epoch).forward(np.arange(1000)) for epoch in (0, 1))
    assert (first == second).sum() < 10


def test_permutation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 elements"):
        permutation(0)
