"""The options of a batch pipeline's tf.data graph: threads, memory and autotuning."""

from __future__ import annotations

import tensorflow as tf

from infeed_server.engines import cgroup
from infeed_server.engines.dataset_limits import RAM_BUDGET_DIVISOR


def graph_options() -> tf.data.Options:
    """Returns the options, for the CPUs and the memory of this process."""
    options = tf.data.Options()
    options.deterministic = True
    # The one map that benefits is parallel; others would only hold more requests in flight.
    options.experimental_optimization.map_parallelization = False
    cpus = cgroup.cpu_count()
    options.autotune.cpu_budget = cpus
    # tf.data's default is half of the host's memory, for each pipeline.
    options.autotune.ram_budget = cgroup.memory_bytes() // RAM_BUDGET_DIVISOR
    # A private pool: the thread that waits for requests would starve others in a shared one.
    # TensorFlow's shared pools also count the host's CPUs, whatever the quota is.
    options.threading.private_threadpool_size = cpus + 2
    # Samples keep all CPUs busy; an operation that splits its work would only wake threads.
    options.threading.max_intra_op_parallelism = 1
    return options
