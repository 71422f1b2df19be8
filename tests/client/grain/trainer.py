"""A process of a training on JAX: reads a feed by Grain, and saves or restores with Orbax.

python -m tests.client.grain.trainer '{"coordinator": ..., "index": 0, "count": 2, ...}'

It prints the ids of its samples as JSON, last.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import infeed
import infeed.grain
from infeed import ranks


def main(job: dict[str, Any]) -> None:
    """Trains to the end, or for `job["steps"]`, then prints the ids of this process's samples.

    The dataset is made before JAX knows its processes, and gets no shard.
    """
    dataset = infeed.grain.FeedDataset(
        job["target"],
        "fake",
        ids="_id",
        batch_size=job["batch_size"],
        epochs=2,
        remainder="pad",
    )
    if job["count"] > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(job["coordinator"], job["count"], job["index"])
    index, count = jax.process_index(), jax.process_count()
    assert (index, count) == (job["index"], job["count"])
    iterator = iter(dataset)
    assert ranks.evidence_of_ranks() == (
        f"jax.distributed is initialized with {count} processes" if count > 1 else ""
    )
    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    total = jax.device_put(np.zeros((), np.int32), NamedSharding(mesh, PartitionSpec()))
    add = jax.jit(lambda total, ids: total + ids.sum())
    if job["restore"]:
        total = restore(iterator, total, Path(job["folder"]), job["restore"])
    seen: list[int] = []
    for step, batch in enumerate(iterator, 1):
        shape = (job["batch_size"] * count,)
        ids = np.maximum(batch["_id"], 0).astype(np.int32)
        total = add(total, jax.make_array_from_process_local_data(sharding, ids, shape))
        seen += [int(number) for number in batch["_id"] if number >= 0]
        if step == job["steps"]:
            save(iterator, total, Path(job["folder"]))
            break
    assert iterator.feed.shard == infeed.Shard(index, count)
    print(json.dumps({"ids": seen, "total": int(total)}))


def save(iterator: Any, total: Any, folder: Path) -> None:
    """Saves by Grain's handler and by the v1 API."""
    from orbax.checkpoint.experimental import v1

    with ocp.CheckpointManager(folder / "handler") as manager:
        args = ocp.args.Composite(
            model=ocp.args.StandardSave({"total": total}),
            feed=grain.checkpoint.CheckpointSave(iterator),
        )
        manager.save(1, args=args)
    v1.save_checkpointables(folder / "v1", {"model": {"total": total}, "feed": iterator})


def restore(iterator: Any, total: Any, folder: Path, way: str) -> Any:
    """Restores by `infeed.grain`'s handler, or by the v1 API; returns the model."""
    from orbax.checkpoint.experimental import v1

    if way == "v1":
        loaded = v1.load_checkpointables(
            folder / "v1", {"model": {"total": total}, "feed": iterator}
        )
        return loaded["model"]["total"]
    with ocp.CheckpointManager(folder / "handler") as manager:
        args = ocp.args.Composite(
            model=ocp.args.StandardRestore({"total": total}),
            feed=infeed.grain.CheckpointRestore(iterator),
        )
        return manager.restore(1, args=args)["model"]["total"]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
