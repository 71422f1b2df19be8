"""Device feed: the iterator over the global batches of a feed, some of them on the devices already.

No thread: each `next` begins the transfer of the batches that have arrived and returns the first
one. The transfers run while the devices compute, and the waits in `stats()` are the loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infeed.adapters.feed_adapter import FeedAdapter
from infeed.adapters.lazy_feed import LazyFeed
from infeed.feed import Feed
from infeed.jax.global_arrays import GlobalArrays, TransferredBatch


class DeviceFeed(FeedAdapter, Iterator[dict[str, Any]]):
    """Iterates over dicts of field → global `jax.Array`, in order, each once.

    Returned by `infeed.jax.connect`. The first batch connects; so do `len`, `feed` and
    `stats`. Fields of byte strings are NumPy arrays with the rows of this process. One thread
    iterates; any may call `close`. The state is the same on every process: save it with the model,
    once. Batches on the devices that the loop has not taken do not count.
    """

    def __init__(
        self, lazy: LazyFeed, convert: Callable[[LazyFeed], GlobalArrays], device_prefetch: int
    ) -> None:
        """`convert` opens the feed for a sharding. `device_prefetch` batches are transferred while
        the loop has one."""
        super().__init__(lazy)
        self._convert = convert
        self._device_prefetch = device_prefetch
        self._arrays: GlobalArrays | None = None
        self._queue: deque[TransferredBatch | Exception] = deque()
        """Batches that the feed has delivered and the loop has not taken, in order; an error in
        place of one that cannot be transferred."""

    @property
    def feed(self) -> Feed:
        """The feed of this process, connected: `steps`, `steps_per_epoch`, `spec` and more."""
        if self._arrays is None:
            self._arrays = self._convert(self._lazy)
        return self._lazy.open()

    def __iter__(self) -> DeviceFeed:
        """Returns the iterator itself: a second loop continues after the last batch.

        Raises `FeedClosedError` if all batches were returned before.
        """
        return self if self._queue else super().__iter__()

    def __next__(self) -> dict[str, Any]:
        """Returns the next batch, an exact dict; raises `StopIteration` after the last.

        Raises as `infeed.connect` does, and the error that ended the feed, after the batches before
        it.
        """
        feed, queue = self.feed, self._queue
        assert self._arrays is not None
        while not queue or (len(queue) <= self._device_prefetch and feed.has_next):
            try:
                batch = feed.next()
            except Exception:
                if not queue:
                    raise
                break  # raised again, when the batches before it are taken
            try:
                queue.append(self._arrays.transfer(batch))
            except Exception as error:  # noqa: BLE001 - raised after the batches before it
                queue.append(error)
        if isinstance(queue[0], Exception):
            raise queue[0]
        batch_on_devices = self._arrays.finish(queue[0])
        queue.popleft()
        return batch_on_devices

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last batch that the loop has taken, for JSON.

        Neither connects nor initialises JAX: before the first batch it is the state to begin at, or
        position 0, from the pipeline's spec.
        """
        if not self._queue:
            return super().state()
        feed = self._lazy.open()
        return feed.state(feed.delivered - len(self._queue))

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor with the next batch. Raises `CursorError` if it is none."""
        super().load_state(state)
        self._queue.clear()
        self._arrays = None
