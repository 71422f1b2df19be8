"""`infeed_server.order.hashing` as TensorFlow graph operations, with the same bits."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.order import hashing


def u64(value: int | list[int]) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def mix(values: tf.Tensor) -> tf.Tensor:
    """Hashes words, of any shape, as `hashing.mix` does."""
    return with_shape_of(values, _mix_any(values))


def combine(state: tf.Tensor | hashing.Words, *parts: tf.Tensor | int) -> tf.Tensor:
    """Continues `hashing.combine` from the uint64 state of the parts before."""
    for part in parts:
        if isinstance(part, int):
            mixed = hashing.mix(hashing.to_words(part))
        else:
            mixed = mix(part if part.dtype == tf.uint64 else tf.bitcast(part, tf.uint64))
        state = mix(tf.bitwise.bitwise_xor(state, mixed))
    return state


def with_shape_of(values: tf.Tensor, result: tf.Tensor) -> tf.Tensor:
    """Restores the static shape of `values`, which a traced function of any shape loses."""
    result.set_shape(values.shape)
    return result


# Traced once for all datasets of a process: tracing takes as long as building the rest of a
# dataset's graph.
@tf.function(input_signature=[tf.TensorSpec(None, tf.uint64)], autograph=False)  # type: ignore[untyped-decorator]
def _mix_any(values: tf.Tensor) -> tf.Tensor:
    def fold(z: tf.Tensor, bits: int) -> tf.Tensor:
        return tf.bitwise.bitwise_xor(z, tf.bitwise.right_shift(z, u64(bits)))

    z = values + hashing.GOLDEN_GAMMA
    z = fold(z, 30) * hashing.MULTIPLIER_1
    z = fold(z, 27) * hashing.MULTIPLIER_2
    return fold(z, 31)
