"""Options of tf.data: the CPUs and the memory of this process, not the host's."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.engines import cgroup

_RAM_BUDGET_DIVISOR = 8
"""tf.data may buffer the memory of this process divided by this, for each iterator."""


def within_limits(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with the budgets of autotuning, except those that its options have.

    By default tf.data counts the host's CPUs and half of its memory, whatever a container may use:
    autotuned buffers can then grow until the kernel kills the process.
    """
    options, own = tf.data.Options(), dataset.options().autotune
    if not own.cpu_budget:
        options.autotune.cpu_budget = cgroup.cpu_count()
    if not own.ram_budget:
        options.autotune.ram_budget = cgroup.memory_bytes() // _RAM_BUDGET_DIVISOR
    return dataset.with_options(options)


def graph_options() -> tf.data.Options:
    """Returns the options of a batch pipeline: its threads, memory and autotuning."""
    options = tf.data.Options()
    options.deterministic = True
    # The one map that benefits is parallel; others would only hold more requests in flight.
    options.experimental_optimization.map_parallelization = False
    cpus = cgroup.cpu_count()
    options.autotune.cpu_budget = cpus
    # tf.data's default is half of the host's memory, for each pipeline.
    options.autotune.ram_budget = cgroup.memory_bytes() // _RAM_BUDGET_DIVISOR
    # A private pool: the thread that waits for requests would starve others in a shared one.
    # TensorFlow's shared pools also count the host's CPUs, whatever the quota is.
    options.threading.private_threadpool_size = cpus + 2
    # Samples keep all CPUs busy; an operation that splits its work would only wake threads.
    options.threading.max_intra_op_parallelism = 1
    return options
