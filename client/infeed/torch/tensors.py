"""Tensors of a batch: views of its arrays, and their copies on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infeed.adapters.named_fields import NamedFields
from infeed.batch import Batch
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Array


class TensorConverter:
    """Converts batches to exact dicts of field name → tensor, or list of `bytes`."""

    def __init__(
        self, device: str | torch.device | None, ids: str | None, mask: str | None
    ) -> None:
        """Takes the device of the tensors, and the names of the fields for ids and mask."""
        try:
            self._device = None if device is None else torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise InvalidRequestError(f"device {device!r} is none of PyTorch's: {error}") from None
        self._fields = NamedFields(ids, mask)

    def __call__(self, batch: Batch) -> dict[str, Any]:
        """Returns a batch's fields, slots first: int64[slots] ids and bool[slots] mask if named.

        A tensor keeps the memory of its array, so that it is not used again. Raises
        `InvalidRequestError` if the batch has a field with the name of ids or mask.
        """
        fields = {name: to_tensor(x) for name, x in self._fields.arrays(batch).items()}
        if self._device is None:
            return fields
        return {
            name: copy_to_device(x, self._device) if isinstance(x, torch.Tensor) else x
            for name, x in fields.items()
        }


def to_tensor(x: Array) -> Any:
    """Returns a writable tensor of an array's type and shape, without a copy if it is writable."""
    if x.dtype == object:
        return x.tolist()
    if not x.flags.writeable:
        x = x.copy()
    if x.dtype.name == "bfloat16":  # NumPy's is a type of ml_dtypes, which PyTorch does not know
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def copy_to_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the tensor on a device; for CUDA the copy overlaps with Python and other kernels."""
    if device.type != "cuda":
        # Without pinned memory a copy that does not block could read memory that is used again.
        return x.to(device)
    # PyTorch's allocator of pinned memory uses it again only after the copies from it.
    try:
        return x.pin_memory().to(device, non_blocking=True)
    except (RuntimeError, AssertionError) as error:
        if torch.cuda.is_available():
            raise
        raise InvalidRequestError(
            f"device '{device}': PyTorch finds no CUDA device on this machine, or was built "
            'without CUDA; give device="cpu", or none'
        ) from error
