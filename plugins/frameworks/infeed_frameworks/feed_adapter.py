"""Feed adapter: an iterator over one feed in a framework's types, connected by the first batch.

Frameworks create a data set long before they read it, and restore its state after they create its
iterator.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infeed.client import check_target, connect, fetch_plan
from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.prefetch.feed_options import FeedOptions
from infeed.shared.arguments import refuse_copy
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed.stats import Stats
from infeed_frameworks.named_fields import NamedFields

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from infeed.client import ConnectOptions


class FeedAdapter:
    """An iterator over one feed, which connects when it is first needed; thread-safe.

    Its position is the feed's: if a signal handler raises within `next`, the batch that the feed
    has delivered may be lost although the state counts it.
    """

    def __init__(
        self,
        target: str | Feed,
        pipeline: str | None = None,
        fields: NamedFields = NamedFields(),  # noqa: B008 - frozen
        **options: Unpack[ConnectOptions],
    ) -> None:
        """Takes the arguments of `infeed.connect`, or a feed alone. Raises `InvalidRequestError`,
        and `CursorError` if the option `state` is not a cursor."""
        super().__init__()
        self._given = self._feed = target if isinstance(target, Feed) else None
        if self._given is not None:
            if given := ["pipeline"] * (pipeline is not None) + sorted(options):
                raise InvalidRequestError(
                    f"the feed is already connected and cannot take {', '.join(given)}; "
                    "give them to infeed.connect"
                )
        else:
            check_target(target, options)
            if pipeline is None:
                raise InvalidRequestError("pipeline is missing: give its name after the target")
        self._target, self._pipeline, self._fields = str(target), pipeline or "", fields
        if (state := options.get("state")) is not None:
            options["state"] = Cursor.from_json(state)
        self._options = options
        self._closed = False
        self._lock = threading.Lock()

    def _late_options(self) -> ConnectOptions:
        """Returns options that are known only when the adapter connects, such as the shard."""
        return {}

    def _check(self, feed: Feed) -> None:
        """Raises `InvalidRequestError` if the options do not fit the feed."""
        self._fields.check(feed)

    @property
    def feed(self) -> Feed:
        """The connected feed. Raises the errors of `infeed.connect`, `FeedClosedError` after
        `close`, and `InvalidRequestError` if the options do not fit the feed."""
        with self._lock:
            if self._feed is None:
                if self._closed:
                    raise FeedClosedError(f"the feed of {self._pipeline!r} was closed")
                options: ConnectOptions = {**self._options, **self._late_options()}
                self._feed = connect(self._target, self._pipeline, **options)
                if self._closed:
                    self._feed.close()
            self._check(self._feed)
            return self._feed

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """The feed's `classes`."""
        return self.feed.classes

    def __iter__(self) -> Self:
        """Returns itself: a second loop continues. Raises `FeedClosedError` after the end."""
        if self._feed is not None:
            iter(self._feed)
        return self

    def __len__(self) -> int:
        """Returns the feed's steps; raises `TypeError` if they are endless or unknown."""
        return len(self.feed)

    def __bool__(self) -> bool:
        """Returns True, even without batches or a length, and without connecting."""
        return True

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last batch that was returned, without connecting."""
        if (feed := self._feed) is not None:
            return feed.state()
        cursor = self._options.get("state")
        if not isinstance(cursor, Cursor) or self._options.get("steps"):
            cursor = fetch_plan(
                self._target, self._pipeline, FeedOptions(**self._options)
            ).cursor_at(0)
        return cursor.to_json()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor with the next batch, on a new connection. Raises `CursorError`, and
        `InvalidRequestError` if the caller passed the feed."""
        cursor = Cursor.from_json(state)
        if self._given is not None:
            raise InvalidRequestError(
                "the state of a connected feed cannot be replaced: connect it with "
                "infeed.connect(..., state=...), or pass target and pipeline instead of a feed"
            )
        with self._lock:
            before, self._feed = self._feed, None
            self._options = {**self._options, "state": cursor}
            self._closed = False
        if before is not None:
            before.close()

    def stats(self) -> Stats:
        """Returns the statistics of the feed so far."""
        return self.feed.stats()

    def close(self) -> None:
        """Ends the feed within two seconds, even if another thread waits for a batch; the batches
        stay valid."""
        # Does not wait for a connecting thread, which closes the feed once connected.
        self._closed = True
        if (feed := self._feed) is not None:
            feed.close()

    __reduce__ = refuse_copy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
