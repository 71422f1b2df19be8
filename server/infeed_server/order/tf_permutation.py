"""Permutations as TensorFlow graph operations, bit-identical to `infeed_server.order.permutation`.

Each value has a key of its own: `state`, uint64[n], is the combined key of each of n values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed_server.order import hashing
from infeed_server.order.permutation import ROUNDS, SORTED_COUNT, half_widths
from infeed_server.order.tf_hashing import mix, u64, with_shape_of


def forward(values: tf.Tensor, count: int, state: tf.Tensor) -> tf.Tensor:
    """Returns the images, int64[n], of values in [0, count)."""
    if count > SORTED_COUNT:
        return with_shape_of(values, _forward(values, state, *vars(_Domain.of(count)).values()))
    return tf.cast(tf.gather(_sorted(count, state), values, batch_dims=1), tf.int64)


def inverse(values: tf.Tensor, count: int, state: tf.Tensor) -> tf.Tensor:
    """Returns the preimages, int64[n], of values in [0, count)."""
    if count > SORTED_COUNT:
        return with_shape_of(values, _inverse(values, state, *vars(_Domain.of(count)).values()))
    found = tf.cast(values, tf.int32)[:, tf.newaxis] == _sorted(count, state)
    return tf.argmax(tf.cast(found, tf.int32), axis=1)


def forward_of_either(
    values: tf.Tensor, condition: tf.Tensor, count: int, other: int, state: tf.Tensor
) -> tf.Tensor:
    """Returns the images in [0, count) where the condition, bool[n], holds, else in [0, other)."""
    if count == other:
        return forward(values, count, state)
    if min(count, other) > SORTED_COUNT:
        domain = _Domain.where(condition, _Domain.of(count), _Domain.of(other))
        return with_shape_of(values, _forward(values, state, *vars(domain).values()))
    # A value that the other count has may be none of this one.
    zeros = tf.zeros_like(values)
    images = forward(tf.where(condition, values, zeros), count, state)
    others = forward(tf.where(condition, zeros, values), other, state)
    return tf.where(condition, images, others)


def _sorted(count: int, state: tf.Tensor) -> tf.Tensor:
    """Returns the images of 0, 1, … count - 1 under each key, int32[n, count]."""
    numbers = hashing.mix(hashing.to_words(np.arange(count)))
    hashes = mix(tf.bitwise.bitwise_xor(state[:, tf.newaxis], numbers))
    return tf.argsort(hashes, axis=1, stable=True)


@dataclass(frozen=True)
class _Domain:
    """[0, count), with the widths in bits of its numbers' halves: uint64[1], or one per element."""

    count: tf.Tensor
    low: tf.Tensor
    low_mask: tf.Tensor
    high: tf.Tensor
    high_mask: tf.Tensor

    @classmethod
    def of(cls, count: int) -> _Domain:
        high, low = half_widths(count)
        return cls(*(u64([each]) for each in (count, low, (1 << low) - 1, high, (1 << high) - 1)))

    @classmethod
    def where(cls, condition: tf.Tensor, one: _Domain, other: _Domain) -> _Domain:
        """Selects `one` where the condition, bool[n], holds, and `other` elsewhere."""
        pairs = zip(vars(one).values(), vars(other).values(), strict=True)
        return cls(*(tf.where(condition, a, b) for a, b in pairs))


class _Feistel:
    """The Feistel network of a permutation."""

    def __init__(self, state: tf.Tensor, domain: _Domain) -> None:
        self._domain = domain
        numbers = hashing.mix(hashing.to_words(np.arange(ROUNDS)))[:, np.newaxis]
        self._keys = tf.unstack(mix(tf.bitwise.bitwise_xor(state, numbers)), ROUNDS)

    def cycle_walk(self, values: tf.Tensor, step: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Applies `step` to the values outside of the domain until none is left."""

        def walk(out: tf.Tensor, outside: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            out = tf.where(outside, step(out), out)
            return out, out >= self._domain.count

        start = tf.bitcast(values, tf.uint64)
        everywhere = tf.fill(tf.shape(start), value=True)
        out, _ = tf.while_loop(
            lambda _, outside: tf.reduce_any(outside),
            walk,
            (start, everywhere),
            parallel_iterations=1,
        )
        return tf.bitcast(out, tf.int64)

    def encrypt(self, values: tf.Tensor) -> tf.Tensor:
        left, right = self._split(values)
        for key, mask in zip(self._keys, self._masks(), strict=True):
            scrambled = tf.bitwise.bitwise_and(mix(tf.bitwise.bitwise_xor(right, key)), mask)
            left, right = right, tf.bitwise.bitwise_xor(left, scrambled)
        return self._join(left, right)

    def decrypt(self, values: tf.Tensor) -> tf.Tensor:
        left, right = self._split(values)
        for key, mask in zip(reversed(self._keys), reversed(self._masks()), strict=True):
            scrambled = tf.bitwise.bitwise_and(mix(tf.bitwise.bitwise_xor(left, key)), mask)
            left, right = tf.bitwise.bitwise_xor(right, scrambled), left
        return self._join(left, right)

    def _masks(self) -> Sequence[tf.Tensor]:
        """Returns the mask of each round: the halves, of unequal width, swap in every round."""
        return (self._domain.high_mask, self._domain.low_mask) * (ROUNDS // 2)

    def _split(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        left = tf.bitwise.right_shift(values, self._domain.low)
        return left, tf.bitwise.bitwise_and(values, self._domain.low_mask)

    def _join(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.bitwise_or(tf.bitwise.left_shift(left, self._domain.low), right)


# Traced once for all datasets of a process, as is `mix`.
_SIGNATURE = [tf.TensorSpec([None], tf.int64), *[tf.TensorSpec([None], tf.uint64)] * 6]


@tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
def _forward(values: tf.Tensor, state: tf.Tensor, *domain: tf.Tensor) -> tf.Tensor:
    network = _Feistel(state, _Domain(*domain))
    return network.cycle_walk(values, network.encrypt)


@tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
def _inverse(values: tf.Tensor, state: tf.Tensor, *domain: tf.Tensor) -> tf.Tensor:
    network = _Feistel(state, _Domain(*domain))
    return network.cycle_walk(values, network.decrypt)
