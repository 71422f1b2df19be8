"""Tests of permutations: bijective, keyed and uniform."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed_server.order import Permutation


@examples(30)
@given(count=st.integers(1, 3000), key=st.integers(0, 2**63 - 1))
def test_permutation_is_a_bijection_with_an_inverse(count: int, key: int) -> None:
    permutation = Permutation(count, key)
    image = permutation.forward(np.arange(count))
    assert sorted(image) == list(range(count))
    assert np.array_equal(permutation.inverse(image), np.arange(count))


def test_large_counts_need_no_memory() -> None:
    count = 10**15
    values = np.array([0, 1, count // 2, count - 1])
    permutation = Permutation(count, 3)
    image = permutation.forward(values)
    assert len(set(image.tolist())) == 4
    assert ((image >= 0) & (image < count)).all()
    assert np.array_equal(permutation.inverse(image), values)


def test_images_are_uniform_over_keys() -> None:
    count, draws = 7, 2100
    counts = np.zeros((count, count))
    for key in range(draws):
        counts[np.arange(count), Permutation(count, key).forward(np.arange(count))] += 1
    expected = draws / count
    chi_square = ((counts - expected) ** 2 / expected).sum()
    # 36 degrees of freedom: 99.9 % of uniform samples lie below 67.9.
    assert chi_square < 67.9


def test_all_permutations_of_four_occur() -> None:
    orders = Counter(tuple(Permutation(4, key).forward(np.arange(4))) for key in range(1200))
    assert len(orders) == 24
    assert min(orders.values()) > 25


def test_consecutive_keys_are_unrelated() -> None:
    first, second = (Permutation(1000, 5, epoch).forward(np.arange(1000)) for epoch in (0, 1))
    assert (first == second).sum() < 10


def test_permutation_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="0 elements"):
        Permutation(0)
