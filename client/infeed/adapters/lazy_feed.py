"""Lazy feed: a connection for the adapters of frameworks, opened by the first batch.

Frameworks create a data set long before they read it, restore its state after they have created its
iterator, or send it to another process first.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infeed.client import connect
from infeed.cursor import Cursor
from infeed.feed import Feed
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import FeedPlan, plan_feed
from infeed.rpc.channel import open_transport
from infeed.shared.arguments import check_text, refuse_copy
from infeed.shared.errors import FeedClosedError, InvalidRequestError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class LazyFeed:
    """A feed of `infeed.connect`, opened when it is first needed; thread-safe.

    Raises `InvalidRequestError` for a target of another type, and if a feed comes with more
    arguments; `CursorError` if its option `state` is no cursor.
    """

    def __init__(
        self, target: str | Feed, pipeline: str | None = None, **options: Unpack[ConnectOptions]
    ) -> None:
        """Takes the arguments of `infeed.connect`, or a feed alone."""
        self._given = self._feed = target if isinstance(target, Feed) else None
        if self._given is not None:
            if given := ["pipeline"] * (pipeline is not None) + sorted(options):
                raise InvalidRequestError(
                    f"a feed is connected already, so {', '.join(given)} cannot be given with it; "
                    "give them to infeed.connect"
                )
        else:
            check_text("target", target, '"localhost:7470"')
            if pipeline is None:
                raise InvalidRequestError("pipeline is missing: give its name after the target")
        self._target, self._pipeline = str(target), pipeline or ""
        if (state := options.get("state")) is not None:
            options["state"] = Cursor.from_json(state)
        self._options = options
        self._closed = False
        self._lock = threading.Lock()

    __reduce__ = refuse_copy

    @property
    def is_open(self) -> bool:
        """Whether the feed is connected; it is without an error, also after `close`."""
        return self._feed is not None

    def state(self) -> dict[str, Any]:
        """Returns the cursor after the last delivered batch, for JSON, without opening the feed.

        Before it is open, that is the cursor to begin at, or position 0 by the pipeline's spec;
        raises as `infeed.connect` then.
        """
        if (feed := self._feed) is not None:
            return feed.state()
        cursor = self._options.get("state")
        if not isinstance(cursor, Cursor):
            cursor = first_cursor(fetch_plan(self._target, self._pipeline, self._options))
        return cursor.to_json()

    def update_options(self, **options: Unpack[ConnectOptions]) -> None:
        """Sets options of `infeed.connect` that are known late, for an own feed's next `open`."""
        with self._lock:
            self._options = {**self._options, **options}

    def open(self) -> Feed:
        """Returns the feed, connected on the first call. Raises as `infeed.connect` does, and
        `FeedClosedError` after `close`."""
        with self._lock:
            if self._feed is None:
                if self._closed:
                    raise FeedClosedError(f"the feed of {self._pipeline!r} was closed")
                self._feed = connect(self._target, self._pipeline, **self._options)
                if self._closed:
                    self._feed.close()
            return self._feed

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor: the next `open` connects there; an own feed is closed before.

        Raises `CursorError` if it is none, and `InvalidRequestError` for a feed that was given,
        whose position was chosen by `infeed.connect`.
        """
        cursor = Cursor.from_json(state)
        if self._given is not None:
            raise InvalidRequestError(
                "the state of a feed that was given cannot be replaced: connect it with "
                "infeed.connect(..., state=...), or give target and pipeline instead of it"
            )
        with self._lock:
            before, self._feed = self._feed, None
            self._options = {**self._options, "state": cursor}
            self._closed = False
        if before is not None:
            before.close()

    def close(self) -> None:
        """Closes the feed; one that was not opened stays so.

        Does not wait for a thread that connects, whose feed is closed as soon as there is one.
        """
        self._closed = True
        if (feed := self._feed) is not None:
            feed.close()


def first_cursor(plan: FeedPlan) -> Cursor:
    """Returns the cursor of position 0."""
    return Cursor(plan.spec.name, plan.spec.fingerprint, plan.contract.seed, 0)


def fetch_plan(target: str, pipeline: str, options: ConnectOptions) -> FeedPlan:
    """Returns the plan of the feed that `infeed.connect` opens with these options.

    Opens no stream. Raises what `infeed.connect` raises.
    """
    checked = FeedOptions(**options)
    check_text("pipeline", pipeline)
    channel = open_transport(target, checked.token, checked.tls, checked.transport)
    try:
        return plan_feed(channel.get_pipeline(pipeline, checked.timeout), checked)
    finally:
        if checked.transport is None:
            channel.close()


__all__ = ["LazyFeed", "fetch_plan", "first_cursor"]
