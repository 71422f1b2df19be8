"""Datasets of tf.data: options for this process's CPUs and memory instead of the host's, and an
iterator whose close never blocks."""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infeed_server.processes import cgroup

RAM_BUDGET_DIVISOR = 8
"""Each iterator of tf.data may buffer this process's memory divided by this."""


def graph_options() -> tf.data.Options:
    """Returns the options of a batch pipeline: its threads, memory and autotuning."""
    options = tf.data.Options()
    options.deterministic = True
    # The one map that benefits is parallel; others would only hold more requests in flight.
    options.experimental_optimization.map_parallelization = False
    cpus = cgroup.cpu_count()
    options.autotune.cpu_budget = cpus
    # tf.data's default is half of the host's memory, for each pipeline.
    options.autotune.ram_budget = cgroup.memory_bytes() // RAM_BUDGET_DIVISOR
    # A private pool: the thread that waits for requests would starve others in a shared one.
    # TensorFlow's shared pools also count the host's CPUs, not the quota.
    options.threading.private_threadpool_size = cpus + 1
    # Samples keep all CPUs busy; an operation that splits its work would only wake threads.
    options.threading.max_intra_op_parallelism = 1
    return options


def unbatched(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the samples of batches. TensorFlow's `unbatch` aborts the process for a batch of
    empty samples, such as shape [8, 0]."""
    parts = tf.nest.flatten(batches.element_spec)
    if all(part.shape[1:].num_elements() for part in parts):
        return batches.unbatch()
    return batches.flat_map(tf.data.Dataset.from_tensor_slices)


_END_TIMEOUT_SECONDS = 2.0
"""Time that an ending process waits for threads in TensorFlow: with less, the interpreter may end
while a thread is in C++ frames, which aborts the process."""

_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads that may be in TensorFlow."""


def start_thread(name: str, target: Callable[..., object], *arguments: object) -> None:
    """Starts a thread that reads a dataset; an ending process waits a moment for it."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    _threads.add(thread)  # a thread that has not started cannot be joined


@atexit.register
def _wait_for_threads() -> None:
    deadline = time.monotonic() + _END_TIMEOUT_SECONDS
    # A reader that ends starts the thread that destroys its iterator.
    while running := [thread for thread in list(_threads) if thread.is_alive()]:
        if (left := deadline - time.monotonic()) <= 0:
            break
        running[0].join(left)


class TfIterator:
    """An iterator over a dataset; it must be closed. Destroying one of TensorFlow's iterators can
    take up to a minute: an autotuning thread that has just gone to sleep misses the request to end.
    So a separate thread destroys them."""

    def __init__(self, dataset: tf.data.Dataset) -> None:
        # The only reference, so that `clear` destroys the iterator.
        self._only: list[Any] = [iter(dataset)]

    def __iter__(self) -> TfIterator:
        return self

    def __next__(self) -> Any:
        """Returns the next element. Iteration may continue after an error of TensorFlow."""
        try:
            return next(self._only[0])
        except Exception as error:  # noqa: BLE001 - raised again, without its frames
            # TensorFlow's frames hold the iterator. The last reference to the error would destroy
            # it, and block: usually in the garbage collector, on an arbitrary thread.
            error.__context__ = None
            raise error.with_traceback(None) from None

    def close(self) -> None:
        # At interpreter exit no new thread runs, and starting one would block forever.
        if not sys.is_finalizing():
            start_thread("infeed-retire", self._only.clear)
