"""A Python iterator as a tf.data dataset, one call into Python for each element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

Element = Any
"""A nested structure of arrays."""

Signature = Any
"""The same structure of `tf.TensorSpec`, of shapes that are fully known."""


def pull(elements: Iterator[Element], signature: Signature) -> tf.data.Dataset:
    """The elements, each taken when tf.data asks for it; the dataset is iterated once.

    `Dataset.from_generator` would do, but making one also sets the C allocator of the whole
    process to give each block of 128 KiB or more back to the kernel when it is freed, whatever it
    was told before. Then images and batches are made of pages that the kernel must find and clear
    anew: some 65 page faults for each photo, against 1.
    """
    specs = tf.nest.flatten(signature)
    nothing = [_nothing(spec) for spec in specs]

    def following() -> tuple[Any, ...]:
        element = next(elements, None)
        if element is None:
            return (False, *nothing)
        return (True, *tf.nest.flatten(element))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(_: tf.Tensor) -> tuple[tf.Tensor, Element]:
        types = [tf.bool, *(spec.dtype for spec in specs)]
        more, *parts = tf.numpy_function(following, [], types)
        parts = [tf.ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return tf.ensure_shape(more, []), tf.nest.pack_sequence_as(signature, parts)

    calls = tf.data.Dataset.counter().map(call)
    return calls.take_while(lambda more, _: more).map(lambda _, element: element)


def _nothing(spec: tf.TensorSpec) -> Any:
    kind = spec.dtype.as_numpy_dtype
    return np.full(spec.shape, b"" if kind is object else 0, kind)
