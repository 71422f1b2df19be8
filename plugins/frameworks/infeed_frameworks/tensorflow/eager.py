"""Batches as tensors for a custom training loop, without `tf.data` and without copies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from infeed.client import check_options
from infeed.feed import Feed
from infeed.shared.errors import CursorError
from infeed.shared.spec import Array
from infeed_frameworks.feed_adapter import FeedAdapter
from infeed_frameworks.named_fields import NamedFields

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions

ALIGNMENT = 64
"""Bytes. TensorFlow aborts the process at the first use of a tensor that is aligned to less."""


class TensorFeed(FeedAdapter, tf.train.experimental.PythonState):  # type: ignore[misc]
    """Iterates over the batches of a feed as dicts of `tf.Tensor` in the memory of the arrays.

    In a `tf.train.Checkpoint` it saves the cursor after the last batch that it has returned, and
    `restore` continues there, with any world size. Made by `connect`.
    """

    def __next__(self) -> dict[str, tf.Tensor]:
        """Returns the next batch. Raises as `Feed.next` does, and as `infeed.connect` before the
        first batch."""
        feed = self.feed
        arrays = self._fields.arrays(feed.next(), feed)
        return {name: to_tensor(x) for name, x in arrays.items()}

    def serialize(self) -> str:
        """Returns the cursor as text, for `tf.train.Checkpoint`."""
        return json.dumps(self.state())

    def deserialize(self, string_value: str | bytes) -> None:
        """Continues at a cursor that `serialize` has returned. Raises `CursorError`."""
        try:
            state = json.loads(string_value)
        except ValueError as error:
            raise CursorError(f"the checkpoint has no cursor of a feed: {error}") from error
        self.load_state(state)


def connect(
    target: str | Feed,
    pipeline: str | None = None,
    *,
    ids: str | None = None,
    mask: str | None = None,
    part: str | None = None,
    **options: Unpack[ConnectOptions],
) -> TensorFeed:
    """Returns an iterator over dicts of tensors, which connects at its first batch.

    target    as for `infeed.connect`, or an open feed, whose position a checkpoint cannot restore
    pipeline  name of the pipeline; none with a feed
    ids       name of a field for the sample ids, int64 for each slot; None: no such field
    mask      name of a field for the mask, bool for each slot; None: no such field
    part      name of a field for the number of each slot's part of a mixture, int64, -1 for an
              empty slot; None: no such field
    options   as for `infeed.connect`
    """
    check_options(options, connect)
    return TensorFeed(target, pipeline, NamedFields(ids, mask, part), **options)


def to_tensor(array: Array) -> tf.Tensor:
    """Returns an array as a tensor on the CPU, in the array's memory where TensorFlow can use it.

    Byte strings, and arrays that are read-only, not contiguous or not aligned, are copied. The
    tensor keeps the array, so the feed does not use its memory again before the tensor is gone.
    """
    if array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous and array.flags.writeable:
        try:
            return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
        except (BufferError, tf.errors.InvalidArgumentError):
            pass  # DLPack or TensorFlow lacks the type
    if array.dtype == np.object_:
        return tf.constant(array.tolist(), tf.string, array.shape)
    return tf.constant(array)
