"""The sample order as TensorFlow graph operations, bit-identical to `sample_order`.

For tf.data workers, which run none of this package's Python. Positions are vectors and may span
epochs, so round keys, and window sizes in mode `window`, are computed for each element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from infeed_server.order import hashing, tf_permutation
from infeed_server.order.sample_order import (
    BLOCK_DOMAIN,
    KEY_DOMAIN,
    SUBSTITUTE_DOMAIN,
    WINDOW_DOMAIN,
    SampleOrder,
)
from infeed_server.order.tf_hashing import combine


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
        key = _to_key(combine(self._seed_state, KEY_DOMAIN, epoch, index))
        return GraphSlots(index, epoch, key)

    def substitute(self, index: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the index, int64 scalar, and key, int64[2], of a bad sample's substitute."""
        count = self.order.count
        drawn = combine(np.zeros(1, np.uint64), key[0], key[1], SUBSTITUTE_DOMAIN)
        other = tf.bitcast(drawn % np.uint64(max(count - 1, 1)), tf.int64)
        # Skips the bad sample itself.
        skip = tf.logical_and(other >= index, count > 1)
        return (other + tf.cast(skip, tf.int64))[0], _to_key(drawn)[0]

    @property
    def _seed_state(self) -> hashing.Words:
        return hashing.combine(self.order.seed)

    def _index(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        if self.order.mode == "global":
            state = combine(self._seed_state, epoch)
            return tf_permutation.forward(offset, self.order.count, state)
        if self.order.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offset))
        return offset

    def _within_window(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        count, window = self.order.count, self.order.window
        number = offset // window
        begin = number * window
        # Only the last window can be smaller.
        last = (count - 1) // window
        sizes = count - last * window, min(window, count)
        state = combine(self._seed_state, epoch, WINDOW_DOMAIN, number)
        return begin + tf_permutation.forward_of_either(
            offset - begin, number == last, *sizes, state
        )

    def _unblock(self, epoch: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        block = self.order.block
        block_count = -(-self.order.count // block)
        state = combine(self._seed_state, epoch, BLOCK_DOMAIN)
        shortfall = block_count * block - self.order.count
        last = tf.fill(tf.shape(offset), tf.constant(block_count - 1, tf.int64))
        short_block = tf_permutation.inverse(last, block_count, state)
        behind = offset >= (short_block + 1) * block - shortfall
        shift = tf.where(behind, tf.constant(shortfall, tf.int64), tf.constant(0, tf.int64))
        shifted = offset + shift
        blocks = tf_permutation.forward(shifted // block, block_count, state)
        return blocks * block + shifted % block


def _to_key(state: tf.Tensor) -> tf.Tensor:
    halves = [combine(np.zeros(1, np.uint64), state, number) for number in (0, 1)]
    return tf.bitcast(tf.stack(halves, axis=-1), tf.int64)
