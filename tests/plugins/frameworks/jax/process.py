"""One of two JAX processes of four virtual devices each, for test_two_processes.py.

    python process.py PROCESS COORDINATOR SERVER FOLDER

Prints JSON: for each layout of the mesh the sample ids of each device, and the state; or the error.
Saves the state of the first layout with Orbax in FOLDER.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import infeed

STEPS = 3
ROWS = 8


def layouts() -> dict[str, Any]:
    """Returns meshes of (data, model) devices by name; devices 0 to 3 are of process 0."""
    devices = np.array(jax.devices())
    return {
        "two groups each": devices.reshape(4, 2),
        "replicas": devices.reshape(2, 4).T,
        "one group": devices.reshape(1, 8),
        "other order": devices.reshape(4, 2)[::-1],
        "alternating": devices.reshape(4, 2)[[0, 2, 1, 3]],
        "uneven": devices[:6].reshape(3, 2),
    }


def read(devices: Any, server: str) -> dict[str, Any]:
    mesh = Mesh(devices, ("data", "model"))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    options = {"sharding": sharding, "global_batch_size": ROWS, "ids": "id", "seed": 3}
    if mesh.shape["data"] == 3:
        options["global_batch_size"] = 9
    numbers = {device: number for number, device in enumerate(jax.devices())}
    steps, totals = [], []
    with infeed.jax.connect(server, "fake", **options) as batches:
        for _ in range(STEPS):
            batch = next(batches)
            assert len(batch["image"].sharding.device_set) == devices.size
            # A program over all devices, between the programs of the finish transforms.
            totals.append(float(batch["image"].sum()))
            steps.append(
                {
                    numbers[shard.device]: [np.asarray(shard.data).tolist(), shard.index[0].start]
                    for shard in batch["id"].addressable_shards
                }
            )
        shard = batches.feed.shard
        return {
            "steps": steps,
            "totals": totals,
            "state": batches.state(),
            "shard": [shard.rank, shard.world_size],
        }


def refusals(process: int, server: str) -> dict[str, Any]:
    """Returns the errors of a shard that the sharding does not make, as an option and of a feed."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharding, other = (mesh, PartitionSpec("data")), infeed.Shard(1 - process, 2)
    errors = {}
    with infeed.connect(server, "fake", shard=other) as feed:
        for name, batches in {
            "shard": infeed.jax.connect(server, "fake", sharding=sharding, shard=other),
            "feed": infeed.jax.connect(feed, sharding=sharding),
        }.items():
            try:
                next(batches)
            except infeed.InvalidRequestError as error:
                errors[name] = {"error": str(error)}
    return errors


def save(folder: str, state: dict[str, Any]) -> None:
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(folder) as manager:
        manager.save(STEPS, args=ocp.args.Composite(feed=ocp.args.JsonSave(state)))


def main(process: int, coordinator: str, server: str, folder: str) -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, num_processes=2, process_id=process)
    results: dict[str, Any] = {}
    for name, devices in layouts().items():
        try:
            results[name] = read(devices, server)
        except infeed.InvalidRequestError as error:
            results[name] = {"error": str(error)}
    alone = Mesh(np.array(jax.local_devices()), ("data",))
    try:
        next(infeed.jax.connect(server, "fake", sharding=(alone, PartitionSpec("data"))))
    except infeed.InvalidRequestError as error:
        results["alone"] = {"error": str(error)}
    results.update(refusals(process, server))
    save(folder, results["two groups each"]["state"])
    print(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
