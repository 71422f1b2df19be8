"""Device feed: the iterator over the global batches of a feed, some of them on the devices already.

No thread: each `next` begins the transfer of the batches that have arrived and returns the first
one. The transfers run while the devices compute, and the waits in `stats()` are the loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from infeed.adapters.lazy_feed import LazyFeed
from infeed.batch import Batch
from infeed.feed import Feed
from infeed.jax.global_arrays import GlobalArrays, TransferredBatch
from infeed.shared.copies import refuse_copy
from infeed.shared.errors import FeedClosedError
from infeed.stats import Stats


class DeviceFeed(Iterator[dict[str, Any]]):
    """Iterates over dicts of field → global `jax.Array`, in order, each once.

    Returned by `infeed.jax.connect`. The first batch connects; so do `len`, `feed` and
    `stats`. Fields of byte strings are NumPy arrays with the rows of this process. One thread
    iterates; any may call `close`.
    """

    def __init__(
        self, feed: LazyFeed, convert: Callable[[LazyFeed], GlobalArrays], device_prefetch: int
    ) -> None:
        """`convert` opens the feed for a sharding. `device_prefetch` batches are transferred while
        the loop has one."""
        self._lazy = feed
        self._convert = convert
        self._device_prefetch = device_prefetch
        self._opened: tuple[Feed, GlobalArrays] | None = None
        self._queue: deque[Batch | TransferredBatch] = deque()
        """Batches that were taken from the feed and not yet by the loop, in order."""
        self._returned = 0
        """Batches of the feed that the loop has, or had before."""

    @property
    def feed(self) -> Feed:
        """The feed of this process, connected: `steps`, `steps_per_epoch`, `spec` and more."""
        return self._open()[0]

    def __len__(self) -> int:
        """Returns the number of steps; raises `TypeError` if the feed is endless."""
        return len(self.feed)

    def __bool__(self) -> bool:
        """Returns True, without connecting."""
        return True

    def __iter__(self) -> DeviceFeed:
        """Returns the iterator itself: a second loop continues after the last batch.

        Raises `FeedClosedError` if all batches were returned before.
        """
        if self._opened is not None and not self._queue:
            iter(self._opened[0])
        return self

    def __next__(self) -> dict[str, Any]:
        """Returns the next batch, an exact dict; raises `StopIteration` after the last.

        Raises as `infeed.connect` does, and the error that ended the feed, after the batches before
        it.
        """
        feed, arrays = self._open()
        queue = self._queue
        while not queue or (len(queue) <= self._device_prefetch and feed.has_next):
            try:
                self._take(feed, arrays)
            except Exception:
                if not queue:
                    raise
                break  # raised again, when the batches before it are taken
        if isinstance(queue[0], Batch):
            self._transfer(0, arrays)
        first = queue[0]
        assert isinstance(first, TransferredBatch)
        batch = arrays.finish(first)
        # No call may follow: an interrupt comes after one, and would lose the batch.
        self._returned += 1
        del queue[0]
        return batch

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last batch that the loop has taken, for JSON.

        Batches on the devices that the loop has not taken do not count. It is the same on every
        process: save it with the model, once. Neither connects nor initialises JAX: before the
        first batch it is the state to begin at, or that of position 0, from the pipeline's spec.
        """
        # Without `feed`: a signal handler may call it while its thread holds a lock of JAX.
        if (opened := self._opened) is not None:
            return opened[0].state(steps=self._returned)
        return self._lazy.open().state() if self._lazy.is_open else self._lazy.first_state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor with the next batch. Raises `CursorError` if it is none."""
        self._lazy.load_state(state)
        # First: an interrupted call must not leave batches of the feed before to the next one.
        self._queue.clear()
        self._opened = None

    def stats(self) -> Stats:
        """Returns the feed's statistics: the waits of the loop, and rates."""
        return self.feed.stats()

    def close(self) -> None:
        """Ends the feed within two seconds, even if another thread waits for a batch."""
        self._lazy.close()

    __reduce__ = refuse_copy

    def __enter__(self) -> DeviceFeed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[Feed, GlobalArrays]:
        if self._opened is None:
            arrays = self._convert(self._lazy)
            feed = self._lazy.open()
            self._returned = feed.delivered
            self._opened = (feed, arrays)
        return self._opened

    def _take(self, feed: Feed, arrays: GlobalArrays) -> None:
        """Takes a batch from the feed, and begins its transfer."""
        queue = self._queue
        taken = self._returned + len(queue)
        if feed.delivered != taken:
            raise FeedClosedError(
                f"batch {taken + 1} of {feed.spec.name!r} was taken from the feed by another "
                "consumer; connect again with the state of this iterator"
            )
        # One call, not next() and append(): Python runs signal handlers after a call, and an
        # exception of theirs between these two would lose the batch.
        queue.extend(islice(iter(feed.next, None), 1))
        if taken == self._returned + len(queue):
            raise StopIteration
        self._transfer(-1, arrays)

    def _transfer(self, index: int, arrays: GlobalArrays) -> None:
        batch = self._queue[index]
        assert isinstance(batch, Batch)
        self._queue[index] = arrays.transfer(batch)
