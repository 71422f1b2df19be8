"""Tensors of a feed: views of its arrays, and their copies on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from infeed.batch import Batch
from infeed.client import check_options
from infeed.feed import Feed
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import BYTES, Array
from infeed_frameworks.feed_adapter import FeedAdapter
from infeed_frameworks.named_fields import NamedFields, check_names
from infeed_frameworks.torch.shard import ShardChoice

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions

Tensors = Any
"""The fields of a batch by name, a dict; with the option `fields` a tuple of them."""


class TensorFeed(FeedAdapter, Iterator[Tensors]):
    """Iterates over the batches of one rank as writable tensors, in order, each once."""

    def __init__(
        self,
        target: str | Feed,
        pipeline: str | None,
        convert: TensorConverter,
        **options: Unpack[ConnectOptions],
    ) -> None:
        super().__init__(target, pipeline, convert.fields, **options)
        self._convert = convert
        self._shard = ShardChoice(self._given.shard if self._given else options.get("shard"))

    def _late_options(self) -> ConnectOptions:
        return {"shard": self._shard.for_batches()}

    def _check(self, feed: Feed) -> None:
        self._convert.check(feed)

    def __next__(self) -> Tensors:
        """Returns the next batch; raises `StopIteration` after the last, and the feed's errors."""
        feed = self.feed
        self._shard.check_unchanged(feed.shard)
        return self._convert(feed.next(), feed)


def connect(
    target: str | Feed,
    pipeline: str | None = None,
    *,
    device: str | torch.device | None = None,
    ids: str | None = None,
    mask: str | None = None,
    part: str | None = None,
    fields: Sequence[str] | None = None,
    channels_first: Sequence[str] | None = None,
    **options: Unpack[ConnectOptions],
) -> TensorFeed:
    """Opens a feed of tensors.

    target          as for `infeed.connect`, or a feed of it
    pipeline        name of the pipeline; None for a feed
    device          the tensors' device; "cuda" copies through pinned memory and does not wait for
                    the copies; None: tensors of the batch's own memory, without a copy
    ids             name of a field for the sample ids, int64 for each slot; None: no such field
    mask            name of a field for the mask, bool for each slot; None: no such field
    part            name of a field for the number of each slot's part of a mixture, int64, -1 for
                    an empty slot; None: no such field
    fields          names of the fields of a batch, which is then a tuple in their order; None: a
                    batch is a dict of all
    channels_first  names of fields [height, width, channels] that become
                    [channels, height, width], by a view in the memory format `channels_last`
    options         as for `infeed.connect`. Without `shard`, rank and world size are those in
                    `torch.distributed`
    """
    check_options(options, connect)
    convert = TensorConverter(device, NamedFields(ids, mask, part, fields), channels_first)
    feed = TensorFeed(target, pipeline, convert, **options)
    feed.feed  # noqa: B018 - connects
    return feed


class TensorConverter:
    """Converts batches to plain dicts of field name → tensor, or list of `bytes`; if the fields are
    chosen, to tuples of these."""

    def __init__(
        self,
        device: str | torch.device | None,
        fields: NamedFields,
        channels_first: Sequence[str] | None,
    ) -> None:
        try:
            self._device = None if device is None else torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise InvalidRequestError(f"device {device!r} is unknown to PyTorch: {error}") from None
        self.fields = fields
        self._channels_first: Sequence[str] = ()
        if channels_first is not None:
            self._channels_first = check_names("channels_first", channels_first, '["image"]')

    def check(self, feed: Feed) -> None:
        """Raises `InvalidRequestError` as `NamedFields.check` does, and for a field with channels
        first that is not a picture."""
        self.fields.check(feed)
        spec = {field.name: field for field in self.fields.spec(feed)}
        for name in self._channels_first:
            if name not in spec or len(spec[name].shape) != 3 or spec[name].data_type == BYTES:
                shapes = ", ".join(f"{x.name} {x.data_type}{[*x.shape]}" for x in spec.values())
                raise InvalidRequestError(
                    f"channels_first: {name!r} is not a field [height, width, channels] of "
                    f"{feed.spec.name!r}; its fields: {shapes}"
                )

    def __call__(self, batch: Batch, feed: Feed) -> Tensors:
        """Returns the fields of a feed's batch, slots first: int64[slots] ids and parts and
        bool[slots] mask if named. A tensor keeps the memory of its array, so that it is not used
        again."""
        fields = {name: to_tensor(x) for name, x in self.fields.arrays(batch, feed).items()}
        if self._device is not None:
            fields = {
                name: copy_to_device(x, self._device) if isinstance(x, torch.Tensor) else x
                for name, x in fields.items()
            }
        for name in self._channels_first:
            fields[name] = fields[name].permute(0, 3, 1, 2)
        if self.fields.fields is None:
            return fields
        return tuple(fields[name] for name in self.fields.fields)


def to_tensor(x: Array) -> Any:
    """Returns a writable tensor of an array's type and shape, without a copy if it is writable."""
    if x.dtype == object:
        return x.tolist()
    if not x.flags.writeable:
        x = x.copy()
    if x.dtype.name == "bfloat16":  # NumPy's comes from ml_dtypes, which PyTorch does not know
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def copy_to_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the tensor on a device; for CUDA the copy overlaps with Python and other kernels."""
    if device.type != "cuda":
        # Without pinned memory, a non-blocking copy could read memory that is used again.
        return x.to(device)
    # PyTorch's allocator uses pinned memory again only after the copies from it.
    return x.pin_memory().to(device, non_blocking=True)
