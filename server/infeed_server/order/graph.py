"""The sample stream of `order.py` inside a TensorFlow graph, bit for bit.

For batches that are made where no Python of ours runs. Positions come as vectors and may span
epochs, so round keys, and in a window also the sizes, are drawn for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed_server.order import mixing
from infeed_server.order.order import BLOCKS, KEY, SUBSTITUTE, WINDOW, Order
from infeed_server.order.permutation import ROUNDS, bit_widths


@dataclass(frozen=True)
class GraphSlots:
    """What stands at n positions: int64[n] index and epoch, int64[n, 2] key."""

    index: tf.Tensor
    epoch: tf.Tensor
    key: tf.Tensor


@dataclass(frozen=True)
class GraphOrder:
    """`Order` as graph operations."""

    order: Order

    def slots(self, positions: tf.Tensor) -> GraphSlots:
        """What stands at these positions, int64[n], each from 0 to 2^63 - 1."""
        count = tf.constant(self.order.count, tf.int64)
        epoch, offset = positions // count, positions % count
        index = self._index(epoch, offset)
        key = _pair(_extend(self._seeded, KEY, epoch, index))
        return GraphSlots(index, epoch, key)

    def substitute(self, index: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The index, int64 scalar, and key, int64[2], of what stands in for a bad sample."""
        count = self.order.count
        drawn = _extend(np.zeros(1, np.uint64), key[0], key[1], SUBSTITUTE)
        other = tf.bitcast(drawn % np.uint64(max(count - 1, 1)), tf.int64)
        moved = tf.logical_and(other >= index, count > 1)
        return (other + tf.cast(moved, tf.int64))[0], _pair(drawn)[0]

    @property
    def _seeded(self) -> mixing.Words:
        return mixing.combine(self.order.seed)

    def _index(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        if self.order.mode == "global":
            domain = _Domain.of(self.order.count)
            return _Permutation(domain, _extend(self._seeded, epoch)).forward(offset)
        if self.order.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offset))
        return offset

    def _within_window(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        count, window = self.order.count, self.order.window
        number = offset // window
        begin = number * window
        # Only the last one can be smaller.
        last = (count - 1) // window
        domain = _Domain.either(
            number == last, _Domain.of(count - last * window), _Domain.of(min(window, count))
        )
        state = _extend(self._seeded, epoch, WINDOW, number)
        return begin + _Permutation(domain, state).forward(offset - begin)

    def _unblock(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        block = self.order.block
        blocks = -(-self.order.count // block)
        places = _Permutation(_Domain.of(blocks), _extend(self._seeded, epoch, BLOCKS))
        lack = blocks * block - self.order.count
        cut = places.inverse(tf.fill(tf.shape(offset), tf.constant(blocks - 1, tf.int64)))
        behind = offset >= (cut + 1) * block - lack
        moved = offset + tf.where(behind, tf.constant(lack, tf.int64), tf.constant(0, tf.int64))
        return places.forward(moved // block) * block + moved % block


@dataclass(frozen=True)
class _Domain:
    """[0, count) and the halves of its numbers: uint64[1] each, or uint64[n], one per element."""

    count: tf.Tensor
    low: tf.Tensor
    """Bits of the right half."""
    low_mask: tf.Tensor
    high: tf.Tensor
    high_mask: tf.Tensor

    @classmethod
    def of(cls, count: int) -> _Domain:
        high, low = bit_widths(count)
        return cls(*(_u64([each]) for each in (count, low, (1 << low) - 1, high, (1 << high) - 1)))

    @classmethod
    def either(cls, condition: tf.Tensor, one: _Domain, other: _Domain) -> _Domain:
        """`one` where the condition holds, bool[n], and `other` elsewhere."""
        pairs = zip(vars(one).values(), vars(other).values(), strict=True)
        return cls(*(tf.where(condition, a, b) for a, b in pairs))


class _Permutation:
    """`Permutation` of a domain, under the key that was combined into `state`, uint64[n]."""

    def __init__(self, domain: _Domain, state: tf.Tensor) -> None:
        self._chosen = (state, *vars(domain).values())

    def forward(self, values: tf.Tensor) -> tf.Tensor:
        return _like(values, _forward(values, *self._chosen))

    def inverse(self, values: tf.Tensor) -> tf.Tensor:
        return _like(values, _inverse(values, *self._chosen))


class _Feistel:
    """The network of a permutation."""

    def __init__(self, state: tf.Tensor, domain: _Domain) -> None:
        self._domain = domain
        numbers = mixing.mix(mixing.words(np.arange(ROUNDS)))[:, np.newaxis]
        self._keys = tf.unstack(_mix(tf.bitwise.bitwise_xor(state, numbers)), ROUNDS)

    def walk(self, values: tf.Tensor, step: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Sends values through again until all lie inside of the domain."""

        def again(out: tf.Tensor, outside: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            out = tf.where(outside, step(out), out)
            return out, out >= self._domain.count

        start = tf.bitcast(values, tf.uint64)
        everywhere = tf.fill(tf.shape(start), value=True)
        out, _ = tf.while_loop(
            lambda _, outside: tf.reduce_any(outside),
            again,
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
        """Of each round: the halves change places, so their widths do."""
        return (self._domain.high_mask, self._domain.low_mask) * (ROUNDS // 2)

    def _split(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        left = tf.bitwise.right_shift(values, self._domain.low)
        return left, tf.bitwise.bitwise_and(values, self._domain.low_mask)

    def _join(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        return tf.bitwise.bitwise_or(tf.bitwise.left_shift(left, self._domain.low), right)


# Traced once for every dataset of a process, as is `_mix_any`: it takes as long as to make all the
# rest of a dataset's graph.
_SIGNATURE = [tf.TensorSpec([None], tf.int64), *[tf.TensorSpec([None], tf.uint64)] * 6]


@tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
def _forward(values: tf.Tensor, state: tf.Tensor, *domain: tf.Tensor) -> tf.Tensor:
    network = _Feistel(state, _Domain(*domain))
    return network.walk(values, network.encrypt)


@tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
def _inverse(values: tf.Tensor, state: tf.Tensor, *domain: tf.Tensor) -> tf.Tensor:
    network = _Feistel(state, _Domain(*domain))
    return network.walk(values, network.decrypt)


def _u64(value: int | list[int]) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """`mixing.mix`."""
    return _like(values, _mix_any(values))


def _like(values: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """The result of a function of any shape, with the shape that its argument has."""
    result.set_shape(values.shape)
    return result


@tf.function(input_signature=[tf.TensorSpec(None, tf.uint64)], autograph=False)  # type: ignore[untyped-decorator]
def _mix_any(values: tf.Tensor) -> tf.Tensor:
    def fold(z: tf.Tensor, bits: int) -> tf.Tensor:
        return tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, _u64(bits)))

    z = values + mixing.GOLDEN
    z = fold(z, 30) * mixing.FIRST
    z = fold(z, 27) * mixing.SECOND
    return fold(z, 31)


def _extend(state: tf.Tensor | mixing.Words, *parts: tf.Tensor | int) -> tf.Tensor:
    """`mixing.combine` continued: from what the parts before gave, uint64, by more parts."""
    for part in parts:
        if isinstance(part, int):
            mixed = mixing.mix(mixing.words(part))
        else:
            mixed = _mix(part if part.dtype == tf.uint64 else tf.bitcast(part, tf.uint64))
        state = _mix(tf.bitwise.bitwise_xor(state, mixed))
    return state


def _pair(state: tf.Tensor) -> tf.Tensor:
    halves = [_extend(np.zeros(1, np.uint64), state, number) for number in (0, 1)]
    return tf.bitcast(tf.stack(halves, axis=-1), tf.int64)
