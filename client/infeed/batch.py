"""Batch: the input of one training step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from infeed.shared.arguments import did_you_mean
from infeed.shared.errors import FieldNotFoundError
from infeed.shared.pytree import register_with_jax
from infeed.shared.spec import Array, parts_of


class Batch(dict[str, Array]):
    """A dict of field name → array (slots first) that also knows where each slot comes from.

    start       the position of its first slot
    epoch       the epoch of its first slot, from 0
    sample_ids  int64 for each slot: the sample's index in the source, -1 for an empty slot
    mask        bool for each slot: whether it holds a sample. In an empty slot a field is zero, or
                has the value of the option `empty`
    source      str for each slot: the part of a mixture that has its sample; empty without parts

    JAX treats it as a container, like a dict: `jax.tree.map(f, batch)` returns a plain dict.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        *,
        start: int,
        epoch: int,
        sample_ids: Array,
        mask: Array,
        parts: Mapping[str, int] = {},
    ) -> None:
        super().__init__(arrays)
        register_with_jax(Batch)
        self.start = start
        self.epoch = epoch
        self.sample_ids = sample_ids
        self.mask = mask
        self._parts = parts

    def __missing__(self, name: object) -> NoReturn:
        raise FieldNotFoundError(
            f"the batch has no field {name!r}{did_you_mean(name, self)}; fields: {', '.join(self)}",
            field=name,
        )

    def replaced(self, arrays: Mapping[str, Array]) -> Batch:
        """Returns a batch with the same slots and other arrays."""
        return Batch(
            arrays,
            start=self.start,
            epoch=self.epoch,
            sample_ids=self.sample_ids,
            mask=self.mask,
            parts=self._parts,
        )

    @property
    def source(self) -> Array:
        return parts_of(self._parts, self.sample_ids)

    @property
    def slots(self) -> int:
        """Number of slots, the batch size."""
        return len(self.sample_ids)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {x.dtype}{list(x.shape)}" for name, x in self.items())
        return f"Batch(start={self.start}, epoch={self.epoch}, {fields})"
