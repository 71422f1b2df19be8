"""Limits of a user's tf.data dataset: the CPUs and the memory of this process, not the host's."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.engines import cgroup

RAM_BUDGET_DIVISOR = 8
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
        options.autotune.ram_budget = cgroup.memory_bytes() // RAM_BUDGET_DIVISOR
    return dataset.with_options(options)
