"""Weighted schedule: the part that has its turn at each number, and the place in its own turns.

The parts are the leaves of a Huffman tree over integer weights. A node of weight T with a left
child of weight L passes c(m) = ⌊(m·L + ⌊T/2⌋) / T⌋ of its elements 0 to m - 1, the rounded share,
to the left. So an element leads down to a part and a draw, and these lead up again, without a table
or a state. Weights on a path of a Huffman tree grow at least like Fibonacci numbers, which bounds
the sum of the roundings: after any number of elements, a part is less than 1.68 draws away from its
exact share, however many parts there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

MAX_WEIGHT = 1 << 31
"""Bound on the sum of all integer weights, so that products of two stay within 64 bits."""

_NONE = -1


def integer_weights(weights: Sequence[Fraction]) -> list[int]:
    """Returns the smallest integers with the ratios of non-negative weights. Raises `ValueError`
    unless one is positive and all fit."""
    if not any(weights):
        raise ValueError("all are 0; make one of them positive")
    scale = lcm(*(weight.denominator for weight in weights))
    numbers = [int(weight * scale) for weight in weights]
    divisor = gcd(*numbers)
    numbers = [number // divisor for number in numbers]
    if sum(numbers) >= MAX_WEIGHT:
        raise ValueError(
            f"should be ratios of integers whose sum is below {MAX_WEIGHT}; give fewer digits"
        )
    return numbers


class Schedule:
    """The turns of parts with constant weights. A part with weight 0 has none."""

    def __init__(self, weights: Sequence[int]) -> None:
        """The weights are non-negative integers, at least one of them positive."""
        self.parts = len(weights)
        size = 2 * self.parts
        self._total = np.zeros(size, np.int64)
        self._total[: self.parts] = weights
        self._children = np.full((size, 2), _NONE, np.int64)  # left, right
        self._parent, self._side = np.full(size, _NONE), np.zeros(size, np.int64)
        heap = [(weight, part) for part, weight in enumerate(weights) if weight]
        heapq.heapify(heap)
        node = self.parts
        while len(heap) > 1:
            (light, right), (heavy, left) = heapq.heappop(heap), heapq.heappop(heap)
            self._total[node], self._children[node] = light + heavy, (left, right)
            self._parent[[left, right]], self._side[[left, right]] = node, (0, 1)
            heapq.heappush(heap, (light + heavy, node))
            node += 1
        self._root = heap[0][1]
        self._left = self._total[self._children[:, 0]]

    def at(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the part that has each number, and the number's place in its turns, from 0."""
        parts = np.full(numbers.shape, self._root, np.int64)
        draws = numbers.astype(np.int64)
        open_ = np.flatnonzero(parts >= self.parts)
        while open_.size:
            node, m = parts[open_], draws[open_]
            lefts, is_left = self._lefts(node, m)
            parts[open_] = self._children[node, np.where(is_left, 0, 1)]
            draws[open_] = np.where(is_left, lefts, m - lefts)
            open_ = open_[parts[open_] >= self.parts]
        return parts, draws

    def numbers(self, parts: Numbers, draws: Numbers) -> Numbers:
        """Returns the number of each draw of a part, the inverse of `at`. The parts must have
        positive weights."""
        node, numbers = parts.astype(np.int64), draws.astype(np.int64)
        open_ = np.flatnonzero(node != self._root)
        while open_.size:
            child, m = node[open_], numbers[open_]
            up, is_right = self._parent[child], self._side[child] == 1
            total = self._total[up]
            share = self._total[child]
            offset = np.where(is_right, (total - 1) // 2, total // 2)
            # The smallest number up to which the child gets more than m elements. As in `_lefts`,
            # the product of m and the total could exceed 64 bits.
            quotient, rest = np.divmod(m + 1, share)
            numbers[open_] = quotient * total - (offset - rest * total) // share - 1
            node[open_] = up
            open_ = open_[up != self._root]
        return numbers

    def counts(self, end: int) -> Numbers:
        """Returns the number of turns of each part below the number `end`."""
        counts = np.zeros(self.parts, np.int64)
        level = [(self._root, end)]
        while level:
            node, m = level.pop()
            if node < self.parts:
                counts[node] = m
            else:
                lefts = int(self._lefts(np.array([node]), np.array([m]))[0][0])
                left, right = self._children[node].tolist()
                level += [(left, lefts), (right, m - lefts)]
        return counts

    def _lefts(self, node: Numbers, m: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Returns c(m) of nodes, and whether element m goes to the left, which is whether c(m + 1)
        is larger."""
        total, left = self._total[node], self._left[node]
        quotient, rest = _divided(m, total)
        more, remainder = _divided(rest * left + total // 2, total)
        return quotient * left + more, remainder + left >= total


def _divided(numbers: Numbers, by: Numbers) -> tuple[Numbers, Numbers]:
    """Returns quotients and remainders of non-negative numbers. Below 2^52, a float's quotient is
    exact when rounded down, and takes a fraction of the time."""
    is_small = numbers.max(initial=0) < 1 << 52
    quotients = (numbers / by).astype(np.int64) if is_small else numbers // by
    return quotients, numbers - quotients * by
