"""The sample order as TensorFlow graph operations, bit-identical to `sample_order`.

For tf.data workers, which run none of this package's Python. Positions are vectors and may span
epochs, so round keys, and window sizes in mode `window`, are computed for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed_server.order import hashing
from infeed_server.order.permutation import ROUNDS, half_widths
from infeed_server.order.sample_order import (
    BLOCK_DOMAIN,
    KEY_DOMAIN,
    SUBSTITUTE_DOMAIN,
    WINDOW_DOMAIN,
    SampleOrder,
)


@dataclass(frozen=True)
class GraphSlots:
    """The samples at n positions: int64[n] index and epoch, int64[n, 2] key."""

    index: tf.Tensor
    epoch: tf.Tensor
    key: tf.Tensor


@dataclass(frozen=True)
class GraphSampleOrder:
    """`SampleOrder` as graph operations."""

    order: SampleOrder

    def slots(self, positions: tf.Tensor) -> GraphSlots:
        """Returns the samples at these positions: int64[n], each from 0 to 2^63 - 1."""
        count = tf.constant(self.order.count, tf.int64)
        epoch, offset = positions // count, positions % count
        index = self._index(epoch, offset)
        key = _to_key(_combine(self._seed_state, KEY_DOMAIN, epoch, index))
        return GraphSlots(index, epoch, key)

    def substitute(self, index: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the index, int64 scalar, and key, int64[2], of a bad sample's substitute."""
        count = self.order.count
        drawn = _combine(np.zeros(1, np.uint64), key[0], key[1], SUBSTITUTE_DOMAIN)
        other = tf.bitcast(drawn % np.uint64(max(count - 1, 1)), tf.int64)
        # Skips the bad sample itself.
        skip = tf.logical_and(other >= index, count > 1)
        return (other + tf.cast(skip, tf.int64))[0], _to_key(drawn)[0]

    @property
    def _seed_state(self) -> hashing.Words:
        return hashing.combine(self.order.seed)

    def _index(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        if self.order.mode == "global":
            domain = _Domain.of(self.order.count)
            return _Permutation(domain, _combine(self._seed_state, epoch)).forward(offset)
        if self.order.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offset))
        return offset

    def _within_window(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        count, window = self.order.count, self.order.window
        number = offset // window
        begin = number * window
        # Only the last window can be smaller.
        last = (count - 1) // window
        domain = _Domain.where(
            number == last, _Domain.of(count - last * window), _Domain.of(min(window, count))
        )
        state = _combine(self._seed_state, epoch, WINDOW_DOMAIN, number)
        return begin + _Permutation(domain, state).forward(offset - begin)

    def _unblock(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        block = self.order.block
        block_count = -(-self.order.count // block)
        state = _combine(self._seed_state, epoch, BLOCK_DOMAIN)
        permutation = _Permutation(_Domain.of(block_count), state)
        shortfall = block_count * block - self.order.count
        last = tf.fill(tf.shape(offset), tf.constant(block_count - 1, tf.int64))
        behind = offset >= (permutation.inverse(last) + 1) * block - shortfall
        shift = tf.where(behind, tf.constant(shortfall, tf.int64), tf.constant(0, tf.int64))
        shifted = offset + shift
        return permutation.forward(shifted // block) * block + shifted % block


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
        return cls(*(_u64([each]) for each in (count, low, (1 << low) - 1, high, (1 << high) - 1)))

    @classmethod
    def where(cls, condition: tf.Tensor, one: _Domain, other: _Domain) -> _Domain:
        """Selects `one` where the condition, bool[n], holds, and `other` elsewhere."""
        pairs = zip(vars(one).values(), vars(other).values(), strict=True)
        return cls(*(tf.where(condition, a, b) for a, b in pairs))


class _Permutation:
    """`Permutation` of a domain. `state`, uint64[n], is the combined key."""

    def __init__(self, domain: _Domain, state: tf.Tensor) -> None:
        self._arguments = (state, *vars(domain).values())

    def forward(self, values: tf.Tensor) -> tf.Tensor:
        return _with_shape_of(values, _forward(values, *self._arguments))

    def inverse(self, values: tf.Tensor) -> tf.Tensor:
        return _with_shape_of(values, _inverse(values, *self._arguments))


class _Feistel:
    """The Feistel network of a permutation."""

    def __init__(self, state: tf.Tensor, domain: _Domain) -> None:
        self._domain = domain
        numbers = hashing.mix(hashing.to_words(np.arange(ROUNDS)))[:, np.newaxis]
        self._keys = tf.unstack(_mix(tf.bitwise.bitwise_xor(state, numbers)), ROUNDS)

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
            scrambled = tf.bitwise.bitwise_and(_mix(tf.bitwise.bitwise_xor(right, key)), mask)
            left, right = right, tf.bitwise.bitwise_xor(left, scrambled)
        return self._join(left, right)

    def decrypt(self, values: tf.Tensor) -> tf.Tensor:
        left, right = self._split(values)
        for key, mask in zip(reversed(self._keys), reversed(self._masks()), strict=True):
            scrambled = tf.bitwise.bitwise_and(_mix(tf.bitwise.bitwise_xor(left, key)), mask)
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


# Traced once for all datasets of a process, as is `_mix_any`: tracing takes as long as building the
# rest of a dataset's graph.
_SIGNATURE = [tf.TensorSpec([None], tf.int64), *[tf.TensorSpec([None], tf.uint64)] * 6]


@tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
def _forward(values: tf.Tensor, state: tf.Tensor, *domain: tf.Tensor) -> tf.Tensor:
    network = _Feistel(state, _Domain(*domain))
    return network.cycle_walk(values, network.encrypt)


@tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
def _inverse(values: tf.Tensor, state: tf.Tensor, *domain: tf.Tensor) -> tf.Tensor:
    network = _Feistel(state, _Domain(*domain))
    return network.cycle_walk(values, network.decrypt)


def _u64(value: int | list[int]) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Hashes words as `hashing.mix` does."""
    return _with_shape_of(values, _mix_any(values))


def _with_shape_of(values: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """Restores the static shape of `values`, which a traced function of any shape loses."""
    result.set_shape(values.shape)
    return result


@tf.function(input_signature=[tf.TensorSpec(None, tf.uint64)], autograph=False)  # type: ignore[untyped-decorator]
def _mix_any(values: tf.Tensor) -> tf.Tensor:
    def fold(z: tf.Tensor, bits: int) -> tf.Tensor:
        return tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, _u64(bits)))

    z = values + hashing.GOLDEN_GAMMA
    z = fold(z, 30) * hashing.MULTIPLIER_1
    z = fold(z, 27) * hashing.MULTIPLIER_2
    return fold(z, 31)


def _combine(state: tf.Tensor | hashing.Words, *parts: tf.Tensor | int) -> tf.Tensor:
    """Continues `hashing.combine` from the uint64 state of the parts before."""
    for part in parts:
        if isinstance(part, int):
            mixed = hashing.mix(hashing.to_words(part))
        else:
            mixed = _mix(part if part.dtype == tf.uint64 else tf.bitcast(part, tf.uint64))
        state = _mix(tf.bitwise.bitwise_xor(state, mixed))
    return state


def _to_key(state: tf.Tensor) -> tf.Tensor:
    halves = [_combine(np.zeros(1, np.uint64), state, number) for number in (0, 1)]
    return tf.bitcast(tf.stack(halves, axis=-1), tf.int64)
