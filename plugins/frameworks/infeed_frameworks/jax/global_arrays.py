"""Global arrays: host batches of this process as parts of arrays over all devices of a sharding.

A batch crosses to the devices as it came over the network. The finish transforms run there, in a
`jit` function that is dispatched when the batch is taken: an SPMD program must be dispatched in the
same order on every process, while transfers are each process's own and may run ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array, changed_fields, read_fields
from infeed_frameworks.jax.data_groups import trimmed
from infeed_frameworks.jax.finish import finish
from infeed_frameworks.named_fields import NamedFields

TransferredBatch = tuple[dict[str, Any], jax.Array | None]
"""The fields of a batch on the devices, without finish transforms, and byte strings on the host;
the mask, bool [rows of the global batch], None where no finish transform needs it."""


class GlobalArrays:
    """Converts the batches of one feed, whose `world_size` ranks make up a global array."""

    def __init__(self, feed: Feed, sharding: Sharding, world_size: int, named: NamedFields) -> None:
        self._feed = feed
        self._sharding = sharding
        self._rows = feed.batch_size * world_size
        self._named = named
        self._transforms = feed.pending_transforms
        read = {name for transform in self._transforms for name in read_fields(transform)}
        changed = {name for transform in self._transforms for name in changed_fields(transform)}
        self._read = read & {field.name for field in feed.spec.wire_spec}
        self._needs_mask = bool(self._transforms) and feed.may_mask
        dimensions = {field.name: 1 + len(field.shape) for field in feed.spec.element_spec}
        self._finish = jax.jit(
            partial(finish, transforms=self._transforms),
            out_shardings={
                name: trimmed(sharding, dimensions[name])
                for name in (read | changed) & dimensions.keys()
            },
        )

    def transfer(self, batch: Batch) -> TransferredBatch:
        """Begins the transfer of a batch to this process's devices.

        On the CPU, JAX may use the batch's memory instead of a copy; it then refers to the arrays,
        whose memory is not used again before JAX releases it.
        """
        arrays = self._named.arrays(batch, self._feed)
        fields: dict[str, Any] = {name: self._put(name, x) for name, x in arrays.items()}
        if not self._needs_mask:
            return fields, None
        named_mask = self._named.mask
        return fields, fields[named_mask] if named_mask else self._put("mask", batch.mask)

    def finish(self, transferred: TransferredBatch) -> dict[str, Any]:
        """Returns the fields after the finish transforms, which are dispatched, not awaited."""
        fields, mask = transferred
        if not self._transforms:
            return dict(fields)
        finished = self._finish({name: fields[name] for name in self._read}, mask=mask)
        removed = self._read - finished.keys()
        kept = {name: x for name, x in fields.items() if name not in removed}
        return {**kept, **finished}

    def _put(self, name: str, x: Array) -> Any:
        """Returns the global array; `x` holds the rows of this process."""
        if x.dtype == object:
            return x
        x = _with_jax_dtype(name, x)
        shape = (self._rows, *x.shape[1:])
        make: Callable[..., jax.Array] = jax.make_array_from_process_local_data
        return make(trimmed(self._sharding, x.ndim), x, shape)


def _with_jax_dtype(name: str, x: Array) -> Array:
    """Returns `x` in JAX's type for it, with 32 bits at most unless `jax_enable_x64` is set.

    Raises `InvalidRequestError` for integers beyond 32 bits, which JAX would wrap around.
    """
    dtype = jax.dtypes.canonicalize_dtype(x.dtype)
    if dtype == x.dtype:
        return x
    if dtype.kind in "iu" and x.size:
        limits = np.iinfo(dtype)
        low, high = x.min(), x.max()
        if low < limits.min or high > limits.max:
            raise InvalidRequestError(
                f"field {name!r} has values from {low} to {high}, which exceed {dtype}, and "
                f"JAX has no {x.dtype} here; set jax_enable_x64",
                field=name,
            )
    return x.astype(dtype)
