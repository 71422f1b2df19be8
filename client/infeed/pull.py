"""A Python function as a `tf.data.Dataset`, one call for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

Element = Any
"""A nested structure of arrays."""

Signature = Any
"""The same structure of `tf.TensorSpec`, of shapes that are fully known."""


def pull(take: Callable[[int], Element | None], signature: Signature) -> tf.data.Dataset:
    """What `take` gives when tf.data asks for elements 0, 1, ...; None is the end.

    Counting begins anew with each iteration of the dataset. An exception of `take` becomes a
    TensorFlow error whose message holds it.

    `Dataset.from_generator` would do, but making one also sets the C allocator of the whole
    process to give each block of 128 KiB or more back to the kernel when it is freed, whatever it
    was told before. Then images and batches are made of pages that the kernel must find and clear
    anew: some 65 page faults for each photo, against 1.
    """
    specs = tf.nest.flatten(signature)
    nothing = [_nothing(spec) for spec in specs]

    def following(number: Any) -> tuple[Any, ...]:
        element = take(int(number))
        if element is None:
            return (False, *nothing)
        return (True, *tf.nest.flatten(element))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(number: tf.Tensor) -> tuple[tf.Tensor, Element]:
        types = [tf.bool, *(spec.dtype for spec in specs)]
        more, *parts = tf.numpy_function(following, [number], types)
        parts = [tf.ensure_shape(part, spec.shape) for part, spec in zip(parts, specs, strict=True)]
        return tf.ensure_shape(more, []), tf.nest.pack_sequence_as(signature, parts)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def has_more(more: tf.Tensor, _: Element) -> tf.Tensor:
        return more

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def element_of(_: tf.Tensor, element: Element) -> Element:
        return element

    # Synchronous: tf.data would take the last step for one to parallelize, and take ahead.
    calls = tf.data.Dataset.counter().map(call, synchronous=True)
    return calls.take_while(has_more).map(element_of, synchronous=True)


def _nothing(spec: tf.TensorSpec) -> Any:
    kind = spec.dtype.as_numpy_dtype
    return np.full(spec.shape, b"" if kind is object else 0, kind)


__all__ = ["Element", "Signature", "pull"]
