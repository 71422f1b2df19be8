"""One of two JAX processes that read a feed by Grain and save it, for test_two_processes.py.

    python process.py PROCESS COORDINATOR SERVER FOLDER

Prints JSON: the sample ids of this process, and its shard. The dataset is made before JAX knows its
processes, and gets no shard.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import grain
import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint.experimental import v1

from infeed.grain import FeedDataset

STEPS, BATCH_SIZE = 2, 3


def main(process: int, coordinator: str, server: str, folder: str) -> None:
    dataset = FeedDataset(server, "fake", ids="_id", batch_size=BATCH_SIZE, epochs=2)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, num_processes=2, process_id=process)
    iterator = iter(dataset)
    ids = [int(number) for _ in range(STEPS) for number in next(iterator)["_id"]]
    with ocp.CheckpointManager(f"{folder}/handler") as manager:
        save = grain.checkpoint.CheckpointSave(iterator)
        manager.save(1, args=ocp.args.Composite(feed=save))
    if process == 1:
        write_late()
    for number in range(2):
        v1.save_checkpointables(f"{folder}/v1", {"feed": iterator})
        if number == 0:
            remove(process, Path(folder) / "v1")
    shard = iterator.feed.shard
    print(json.dumps({"ids": ids, "shard": [shard.rank, shard.world_size]}))


def remove(process: int, folder: Path) -> None:
    """Removes a checkpoint, so that it can be saved again.

    Orbax's own `overwrite` hangs now and then: each process looks for the folder, which the other
    may have removed by then, and the two wait for each other at different barriers.
    """
    multihost_utils.sync_global_devices("saved")
    if process == 0:
        shutil.rmtree(folder)
    multihost_utils.sync_global_devices("removed")


def write_late() -> None:
    """Makes this process write its files after the other one."""
    write = type(epath.Path()).write_text

    def late(path: epath.Path, *args: Any, **options: Any) -> int:
        time.sleep(1)
        return write(path, *args, **options)

    type(epath.Path()).write_text = late


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
