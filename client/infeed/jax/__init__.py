"""JAX adapter: the only package of the client that imports JAX.

`connect` returns an iterator of dicts of global `jax.Array`s:

    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    batches = infeed.jax.connect(
        "localhost:7470",
        "imagenet-train",
        sharding=NamedSharding(mesh, PartitionSpec("data")),
        global_batch_size=1024,
    )
    for batch in batches:
        params = step(params, batch["image"], batch["label"])

Importing it initialises no backend, so `jax.distributed.initialize` may follow.
"""

from __future__ import annotations

from infeed.shared.errors import MissingExtraError

try:
    import jax  # noqa: F401 - only to see whether it is installed
except ImportError:
    raise MissingExtraError("infeed.jax needs JAX: pip install 'infeed[jax]'") from None

from infeed.jax.connection import connect
from infeed.jax.device_feed import DeviceFeed

__all__ = ["DeviceFeed", "connect"]


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
