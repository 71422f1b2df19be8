"""A job that has ended already must not look like one without data."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def not_ended(dataset: tf.data.Dataset, message: str) -> tf.data.Dataset:
    """The same elements; without a single one, iterating raises `InvalidArgumentError` with the
    message, where TensorFlow would just end.

    All in the graph: a last element is appended that says so, what comes before it is counted,
    and it is taken off again.
    """
    spec = dataset.element_spec

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def real(*element: Any) -> Any:
        return True, element[0] if len(element) == 1 else element

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def last(_: tf.Tensor) -> Any:
        return False, tf.nest.map_structure(lambda part: tf.zeros(part.shape, part.dtype), spec)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def checked(some: tf.Tensor, pair: Any) -> Any:
        is_real, element = pair
        with tf.control_dependencies([tf.debugging.Assert(some | is_real, [message])]):
            return tf.constant(True), (tf.identity(is_real), element)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def flag_of(is_real: tf.Tensor, _: Any) -> tf.Tensor:
        return is_real

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def element_of(_: tf.Tensor, element: Any) -> Any:
        return element

    # Synchronous: tf.data would take these steps for ones to parallelize, and take ahead.
    marked = dataset.map(real, synchronous=True)
    end = tf.data.Dataset.range(1).map(last, synchronous=True)
    both = marked.concatenate(end).scan(tf.constant(False), checked)
    return both.take_while(flag_of).map(element_of, synchronous=True)


__all__ = ["not_ended"]
