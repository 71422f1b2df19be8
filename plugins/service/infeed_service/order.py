"""The sample order as TensorFlow graph operations, bit-identical to `infeed_server.order`.

It is for tf.data workers, which run none of infeed's Python. Positions are vectors and may span
epochs, so each of n values has its own combined key in `state`, uint64[n].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from infeed_server.order import hashing
from infeed_server.order.permutation import ROUNDS, SORTED_COUNT, half_widths
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
        return GraphSlots(index, epoch, _to_key(combine(self._seed, KEY_DOMAIN, epoch, index)))

    def substitute(self, index: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the index, int64 scalar, and key, int64[2], of a bad sample's substitute."""
        count = self.order.count
        drawn = combine(np.zeros(1, np.uint64), key[0], key[1], SUBSTITUTE_DOMAIN)
        other = tf.bitcast(drawn % np.uint64(max(count - 1, 1)), tf.int64)
        # Skips the bad sample itself.
        skip = tf.logical_and(other >= index, count > 1)
        return (other + tf.cast(skip, tf.int64))[0], _to_key(drawn)[0]

    @property
    def _seed(self) -> hashing.Words:
        return hashing.combine(self.order.seed)

    def _index(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        if self.order.mode == "global":
            return permute(offset, self.order.count, combine(self._seed, epoch))
        if self.order.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offset))
        return offset

    def _within_window(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        count, window = self.order.count, min(self.order.window, self.order.count)
        number, within = offset // window, offset % window
        state = combine(self._seed, epoch, WINDOW_DOMAIN, number)
        is_last = number == (count - 1) // window
        last = count - (count - 1) // window * window
        if last == window:
            images = permute(within, window, state)
        else:  # a value valid in one window may be out of range in the other
            zeros = tf.zeros_like(within)
            in_last = permute(tf.where(is_last, within, zeros), last, state)
            in_others = permute(tf.where(is_last, zeros, within), window, state)
            images = tf.where(is_last, in_last, in_others)
        return number * window + images

    def _unblock(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        block = self.order.block
        block_count = -(-self.order.count // block)
        state = combine(self._seed, epoch, BLOCK_DOMAIN)
        shortfall = block_count * block - self.order.count
        last = tf.fill(tf.shape(offset), tf.constant(block_count - 1, tf.int64))
        short_block = permute(last, block_count, state, inverse=True)
        behind = offset >= (short_block + 1) * block - shortfall
        shifted = offset + tf.cast(behind, tf.int64) * shortfall
        return permute(shifted // block, block_count, state) * block + shifted % block


def permute(values: tf.Tensor, count: int, state: tf.Tensor, *, inverse: bool = False) -> tf.Tensor:
    """Returns the images, int64[n], of values in [0, count), or their preimages."""
    if count > SORTED_COUNT:
        high, low = half_widths(count)
        domain = (count, low, (1 << low) - 1, (1 << high) - 1)
        words = [tf.constant(word, tf.uint64) for word in domain]
        return _with_shape_of(values, (_decrypt if inverse else _encrypt)(values, state, *words))
    numbers = hashing.mix(hashing.to_words(np.arange(count)))
    images = tf.argsort(mix(state[:, tf.newaxis] ^ numbers), axis=1, stable=True)
    if inverse:
        found = tf.cast(values, tf.int32)[:, tf.newaxis] == images
        return tf.argmax(tf.cast(found, tf.int32), axis=1)
    return tf.cast(tf.gather(images, values, batch_dims=1), tf.int64)


def mix(values: tf.Tensor) -> tf.Tensor:
    """Hashes words, of any shape, as `hashing.mix` does."""
    return _with_shape_of(values, _mix_any(values))


def combine(state: tf.Tensor | hashing.Words, *parts: tf.Tensor | int) -> tf.Tensor:
    """Continues `hashing.combine` from the uint64 state of the parts before."""
    for part in parts:
        if isinstance(part, int):
            mixed = hashing.mix(hashing.to_words(part))
        else:
            mixed = mix(part if part.dtype == tf.uint64 else tf.bitcast(part, tf.uint64))
        state = mix(tf.bitwise.bitwise_xor(state, mixed))
    return state


def _to_key(state: tf.Tensor) -> tf.Tensor:
    halves = [combine(np.zeros(1, np.uint64), state, number) for number in (0, 1)]
    return tf.bitcast(tf.stack(halves, axis=-1), tf.int64)


def _with_shape_of(values: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """Restores the static shape of `values`, which a function traced for any shape loses."""
    result.set_shape(values.shape)
    return result


# Traced once for all datasets of a process: tracing takes as long as building the rest of a
# dataset's graph.
@tf.function(input_signature=[tf.TensorSpec(None, tf.uint64)], autograph=False)  # type: ignore[untyped-decorator]
def _mix_any(values: tf.Tensor) -> tf.Tensor:
    z = values + hashing.GOLDEN_GAMMA
    z = (z ^ _shift(z, 30)) * hashing.MULTIPLIER_1
    z = (z ^ _shift(z, 27)) * hashing.MULTIPLIER_2
    return z ^ _shift(z, 31)


def _shift(words: tf.Tensor, bits: int | tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(words, tf.cast(bits, tf.uint64))


_SIGNATURE = [
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.uint64),
    *[tf.TensorSpec([], tf.uint64)] * 4,
]


def _network(*, inverse: bool) -> Callable[..., tf.Tensor]:
    """Returns the traced Feistel network of `FeistelPermutation`."""

    @tf.function(input_signature=_SIGNATURE, autograph=False)  # type: ignore[untyped-decorator]
    def permuted(values: tf.Tensor, state: tf.Tensor, count: tf.Tensor, *widths: tf.Tensor) -> Any:
        low, low_mask, high_mask = widths
        # The halves, of unequal width, swap in every round.
        masks = (high_mask, low_mask) * (ROUNDS // 2)
        rounds = list(zip(_round_keys(state), masks, strict=True))

        def step(words: tf.Tensor) -> tf.Tensor:
            left, right = _shift(words, low), words & low_mask
            for key, mask in reversed(rounds) if inverse else rounds:
                if inverse:
                    left, right = right ^ (mix(left ^ key) & mask), left
                else:
                    left, right = right, left ^ (mix(right ^ key) & mask)
            return tf.bitwise.left_shift(left, low) | right

        return _cycle_walk(values, count, step)

    return permuted  # type: ignore[no-any-return]


def _round_keys(state: tf.Tensor) -> list[tf.Tensor]:
    numbers = hashing.mix(hashing.to_words(np.arange(ROUNDS)))[:, np.newaxis]
    keys: list[tf.Tensor] = tf.unstack(mix(state ^ numbers), ROUNDS)
    return keys


def _cycle_walk(
    values: tf.Tensor, count: tf.Tensor, step: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """Applies `step` at least once, then again to values outside [0, count) until none is left."""

    def walk(out: tf.Tensor, outside: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        out = tf.where(outside, step(out), out)
        return out, out >= count

    start = tf.bitcast(values, tf.uint64)
    out, _ = tf.while_loop(
        lambda _, outside: tf.reduce_any(outside),
        walk,
        (start, tf.fill(tf.shape(start), value=True)),
        parallel_iterations=1,
    )
    return tf.bitcast(out, tf.int64)


_encrypt, _decrypt = _network(inverse=False), _network(inverse=True)
