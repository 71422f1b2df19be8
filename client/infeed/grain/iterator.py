"""Iterator of a feed for Grain: elements, state, prefetch and Orbax's protocol."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grain

from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.grain.checkpoint import load_into, save_of
from infeed.lazy_feed import LazyFeed
from infeed.named_fields import NamedFields
from infeed.spec import Array


class FeedIterator(grain.DatasetIterator):  # type: ignore[misc]
    """Iterates over the batches of one feed, as exact dicts of NumPy arrays, each `[slots, ...]`.

    Made by `FeedDataset`. The feed is connected by the first of `next`, `start_prefetch` and
    `feed`. Errors of the feed arrive as they are; after `close`, `next` raises `FeedClosedError`.
    """

    def __init__(
        self,
        feed: LazyFeed,
        fields: NamedFields,
        state: Mapping[str, Any] | None,
        first_state: Callable[[], dict[str, Any]],
    ) -> None:
        """Takes the state at which the feed begins, or None, and what returns that of position 0,
        called at most once."""
        super().__init__()
        self._feed = feed
        self._fields = fields
        self._start = None if state is None else Cursor.from_json(state).to_json()
        self._first_state = first_state

    @property
    def feed(self) -> Feed:
        """The feed, connected: its `spec`, `steps` and `stats()`."""
        return self._feed.open()

    def __next__(self) -> dict[str, Array]:
        return self._fields.arrays(self._feed.open().next())

    def get_state(self) -> dict[str, Any]:
        """Returns the cursor after the last element that `next` returned: a dict for JSON.

        It counts samples over all ranks, so it is the same on every rank after the same step. While
        the feed is not connected, it is the state that was set, or that of position 0.
        """
        if self._feed.is_open:
            return self._feed.open().state()
        if self._start is None:
            self._start = self._first_state()
        return dict(self._start)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a state of `get_state`, of any rank and any number of ranks.

        Connects nothing. Raises `CursorError` if it is no cursor, and `InvalidRequestError` if the
        dataset was given a feed that is connected already.
        """
        start = Cursor.from_json(state).to_json()
        self._feed.load_state(start)
        self._start = start
        self._closed = False

    def start_prefetch(self) -> None:
        """Connects the feed, which prefetches from then on. Idempotent."""
        self._feed.open()

    def close(self) -> None:
        """Ends the feed and its threads. Idempotent; the state can still be read."""
        # Grain's transformations call this in their `__del__`, also when the interpreter ends: then
        # modules are gone, `sys` first of all here, and the threads with them.
        if sys is None or sys.is_finalizing():
            return
        self._closed = True
        self._feed.close()

    def __del__(self) -> None:
        """Does nothing: Grain would close the feed here, and so wait for its threads in the
        garbage collector. A feed that is dropped ends by itself."""

    async def save(self, directory: Any) -> Awaitable[None]:
        """Takes the state now; the result writes it. Part of Orbax's stateful-checkpointable
        protocol, as in `Checkpointable`."""
        return save_of(self, directory)

    async def load(self, directory: Any) -> Awaitable[None]:
        """Returns what reads and sets the state, saved by any number of processes."""
        return load_into(self, directory)

    def __str__(self) -> str:
        return "FeedIterator"
