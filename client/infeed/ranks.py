"""Ranks of a training job, from its launcher or JAX: without a shard, all read the same batches."""

from __future__ import annotations

import json
import logging
import os
import sys

from infeed.cursor import Shard

log = logging.getLogger(__name__)

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Accelerate, Kubernetes' PyTorchJob
    # SLURM_STEP_…, not SLURM_NTASKS: a batch script has the latter too, and is one process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
)
"""A launcher's environment variables: the process's rank, and the number of processes."""

_has_warned = False


def evidence_of_ranks() -> str:
    """Returns the evidence of several processes, such as "WORLD_SIZE=8"; "" if there is none."""
    if (shard := jax_shard()) is not None and shard.world_size > 1:
        return f"jax.distributed is initialized with {shard.world_size} processes"
    for rank, size in LAUNCHERS:
        ranks = os.environ.get(size, "")
        if rank in os.environ and ranks.isdecimal() and int(ranks) > 1:
            return f"{size}={ranks}"
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG", "{}"))["cluster"]
        count = sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f"TF_CONFIG has {count} workers" if count > 1 else ""


def warn_of_equal_batches(subject: str, remedy: str) -> None:
    """Warns, once per process, that all ranks read the same batches, if there are several ranks."""
    global _has_warned  # noqa: PLW0603 - once in a process
    if not _has_warned and (evidence := evidence_of_ranks()):
        _has_warned = True
        log.warning(
            "%s: this process is one of several (%s), and each of them reads the same batches; "
            "give %s",
            subject,
            evidence,
            remedy,
        )


def jax_shard() -> Shard | None:
    """Returns this process's shard among those of `jax.distributed`; None if that is not
    initialized: asking JAX for its processes would initialise a backend too early."""
    jax = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)  # absent while another thread is importing JAX
    if jax is None or distributed is None or not distributed.is_initialized():
        return None
    return Shard(jax.process_index(), jax.process_count())
