"""JAX adapter: `connect` returns an iterator of dicts of global `jax.Array`s.

    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    batches = infeed.jax.connect(
        "localhost:7470",
        "imagenet-train",
        sharding=NamedSharding(mesh, PartitionSpec("data")),
        global_batch_size=1024,
    )
    for batch in batches:
        params = step(params, batch["image"], batch["label"])

The import initialises no backend, so you may call `jax.distributed.initialize` afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infeed.adapters import added_names, require

require("jax", "JAX")

if TYPE_CHECKING:
    from infeed_frameworks.jax.device_feed import DeviceFeed, connect

__all__ = ["DeviceFeed", "connect"]

__getattr__, __dir__ = added_names(__name__)
