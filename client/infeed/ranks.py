"""Ranks of a training, as its launcher or JAX tells them; imports no framework.

A feed without a shard belongs to a single trainer: in a training of several processes, each of
them would read the same batches.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from infeed.cursor import Shard

log = logging.getLogger(__name__)

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Accelerate, Kubernetes' PyTorchJob
    # Of a step: a batch script has SLURM_NTASKS too, and is one process.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
)
"""Environment variables of a launcher: the process's rank, the number of processes."""

_has_warned = False


def evidence_of_ranks() -> str:
    """Returns what shows that this process is one of several, such as "WORLD_SIZE=8"; else ""."""
    if (shard := jax_shard()) is not None and shard.world_size > 1:
        return f"jax.distributed is initialized with {shard.world_size} processes"
    for rank, size in LAUNCHERS:
        if rank in os.environ and _number(os.environ.get(size)) > 1:
            return f"{size}={os.environ[size]}"
    if (count := _tensorflow_workers(os.environ.get("TF_CONFIG", ""))) > 1:
        return f"TF_CONFIG has {count} workers"
    return ""


def warn_of_equal_batches(subject: str, remedy: str) -> None:
    """Logs once in a process that each rank reads the same batches, if there are several ranks."""
    global _has_warned  # noqa: PLW0603 - once in a process
    if not _has_warned and (evidence := evidence_of_ranks()):
        _has_warned = True
        log.warning(
            "%s: this process is one of several (%s), and every one of them reads the same "
            "batches; give %s",
            subject,
            evidence,
            remedy,
        )


def jax_shard() -> Shard | None:
    """Returns this process's share among the processes of `jax.distributed`; None if that is not
    initialized: a look at JAX's processes would initialise its backend too early."""
    jax = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)  # none while another thread imports JAX
    if jax is None or distributed is None or not distributed.is_initialized():
        return None
    return Shard(jax.process_index(), jax.process_count())


def _tensorflow_workers(config: str) -> int:
    """Returns the number of training tasks in the cluster of a TF_CONFIG."""
    try:
        cluster = json.loads(config)["cluster"]
        return sum(len(cluster.get(job, ())) for job in ("chief", "worker"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return 1


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 1
