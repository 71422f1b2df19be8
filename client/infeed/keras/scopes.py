"""Scopes of TensorFlow's distribution strategies, which Keras must save outside of."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import tensorflow as tf

T = TypeVar("T")


def outside_of_scopes(function: Callable[[], T]) -> T:
    """Returns what a function returns in no scope of a strategy.

    Keras creates variables while it saves. In the scope of several workers the creation is a
    collective operation, which a worker that saves alone begins without the others.
    """
    if not tf.distribute.has_strategy():
        return function()
    # The scopes are those of a thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()
