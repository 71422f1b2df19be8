"""Feed adapter: what each iterator over a feed in a framework's types has of its feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infeed.adapters.lazy_feed import LazyFeed
from infeed.feed import Feed
from infeed.shared.arguments import refuse_copy
from infeed.stats import Stats

if TYPE_CHECKING:
    from typing_extensions import Self


class FeedAdapter:
    """An iterator over one feed, which connects when it is first needed.

    Its position is the feed's: an exception that a signal handler raises within `next` may lose the
    batch that the feed has delivered to it, and then the state has counted that batch.
    """

    def __init__(self, lazy: LazyFeed) -> None:
        super().__init__()
        self._lazy = lazy

    @property
    def feed(self) -> Feed:
        """The feed, connected: `steps`, `steps_per_epoch`, `spec` and more."""
        return self._lazy.open()

    def __iter__(self) -> Self:
        """Returns itself: a second loop continues. Raises `FeedClosedError` after the end."""
        if self._lazy.is_open:
            iter(self._lazy.open())
        return self

    def __len__(self) -> int:
        """Returns the batches from the feed's beginning to its end; raises `TypeError` if they are
        endless or unknown."""
        return len(self.feed)

    def __bool__(self) -> bool:
        """Returns True, also without batches or a length, and without connecting."""
        return True

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last batch that was returned, for `state` of any feed.

        Does not connect: before the first batch it is the cursor to begin at, or position 0.
        """
        return self._lazy.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor with the next batch. Raises `CursorError` if it is none."""
        self._lazy.load_state(state)

    def stats(self) -> Stats:
        """Returns the statistics of the feed so far."""
        return self.feed.stats()

    def close(self) -> None:
        """Ends the feed within two seconds, even if another thread waits for a batch; the batches
        stay valid."""
        self._lazy.close()

    __reduce__ = refuse_copy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
