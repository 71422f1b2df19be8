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
from infeed.shared.arguments import check_text
from infeed.shared.copies import refuse_copy
from infeed.shared.errors import FeedClosedError, InvalidRequestError
from infeed.shared.spec import PipelineSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions


class LazyFeed:
    """A feed of `infeed.connect`, opened when it is first needed; thread-safe.

    A signal handler may call every method, also while its thread is within another one.

    Raises `InvalidRequestError` for a target of another type, and if a feed comes with more
    arguments; `CursorError` if its option `state` is no cursor.
    """

    def __init__(
        self, target: str | Feed, pipeline: str | None = None, **options: Unpack[ConnectOptions]
    ) -> None:
        """Takes the arguments of `infeed.connect`, or a feed alone."""
        self._feed: Feed | None = None
        self._is_own = not isinstance(target, Feed)
        if isinstance(target, Feed):
            if pipeline is not None or options:
                given = ["pipeline"] * (pipeline is not None) + sorted(options)
                raise InvalidRequestError(
                    f"a feed is connected already, so {', '.join(given)} cannot be given with it; "
                    "give them to infeed.connect"
                )
            self._feed = target
        else:
            check_text("target", target, '"localhost:7470"')
            if pipeline is None:
                raise InvalidRequestError("pipeline is missing: give its name after the target")
        self._target, self._pipeline = target, pipeline
        if (state := options.get("state")) is not None:
            options["state"] = Cursor.from_json(state).to_json()
        self._options = options
        self._first_state: dict[str, Any] | None = None
        self._closed = False
        # A signal handler may call `open` within the `open` of its thread.
        self._lock = threading.RLock()

    __reduce__ = refuse_copy

    @property
    def is_open(self) -> bool:
        """Whether the feed is connected; it is without an error, also after `close`."""
        return self._feed is not None

    @property
    def initial_state(self) -> dict[str, Any] | None:
        """The cursor that an own feed begins at, for JSON; None for the beginning."""
        state = self._options.get("state")
        return None if state is None else Cursor.from_json(state).to_json()

    def first_state(self) -> dict[str, Any]:
        """Returns the state before the first batch, for JSON, without opening the feed.

        For an own feed without `initial_state` it is the cursor of position 0, from the pipeline's
        spec alone: frameworks take a state before they restore another one, and servers would make
        batches of the beginning, to drop them. Raises as `infeed.connect` does for what it needs:
        server, pipeline and seed.
        """
        if (feed := self._feed) is not None:
            return feed.state(steps=0)
        if (state := self.initial_state) is not None:
            return state
        if self._first_state is None:
            assert isinstance(self._target, str)
            assert self._pipeline is not None
            options = FeedOptions(**self._options)
            spec = _fetch_spec(self._target, self._pipeline, options)
            self._first_state = first_cursor(spec, options.seed).to_json()
        return dict(self._first_state)

    def update_options(self, **options: Unpack[ConnectOptions]) -> None:
        """Sets options of `infeed.connect` that are known late, for an own feed's next `open`."""
        with self._lock:
            self._options = {**self._options, **options}

    def open(self) -> Feed:
        """Returns the feed, connected on the first call. Raises as `infeed.connect` does, and
        `FeedClosedError` after `close`."""
        if (feed := self._feed) is not None:
            return feed
        with self._lock:
            while (feed := self._feed) is None:
                if self._closed:
                    raise FeedClosedError(f"the feed of {self._pipeline!r} was closed")
                assert isinstance(self._target, str)
                assert self._pipeline is not None
                options = self._options
                feed = connect(self._target, self._pipeline, **options)
                # A signal handler has opened the feed or replaced its options meanwhile, if any.
                if self._feed is None and self._options is options:
                    self._feed = feed
                    if self._closed:
                        feed.close()
                else:
                    feed.close()
            return feed

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a cursor: the next `open` connects there; an own feed is closed before.

        Raises `CursorError` if it is none, and `InvalidRequestError` for a feed that was given,
        whose position was chosen by `infeed.connect`.
        """
        loaded = Cursor.from_json(state).to_json()
        with self._lock:
            if not self._is_own:
                raise InvalidRequestError(
                    "the state of a feed that was given cannot be replaced: connect it with "
                    "infeed.connect(..., state=...), or give target and pipeline instead of it"
                )
            if self._feed is not None:
                self._feed.close()
            # First: without a feed, an interrupted call must not leave the state before.
            self._options = {**self._options, "state": loaded}
            self._feed, self._closed = None, False

    def close(self) -> None:
        """Closes the feed; one that was not opened stays so.

        Does not wait for a thread that connects, whose feed is closed as soon as there is one.
        """
        # Without the lock, for a signal handler may call it while its thread connects. `open` sets
        # these in the other order, so one of both sees the other.
        self._closed = True
        if (feed := self._feed) is not None:
            feed.close()


def first_cursor(spec: PipelineSpec, seed: int | None) -> Cursor:
    """Returns the cursor of position 0; without a seed, with the pipeline's."""
    return Cursor(spec.name, spec.fingerprint, spec.seed if seed is None else seed, 0)


def fetch_plan(target: str, pipeline: str, options: ConnectOptions) -> FeedPlan:
    """Returns the plan of the feed that `infeed.connect` opens with these options.

    Opens no stream. Raises what `infeed.connect` raises.
    """
    checked = FeedOptions(**options)
    return plan_feed(_fetch_spec(target, pipeline, checked), checked)


def _fetch_spec(target: str, pipeline: str, options: FeedOptions) -> PipelineSpec:
    check_text("pipeline", pipeline)
    channel = open_transport(target, options.token, options.tls, options.transport)
    try:
        return channel.get_pipeline(pipeline, options.timeout)
    finally:
        if options.transport is None:
            channel.close()


__all__ = ["LazyFeed", "fetch_plan", "first_cursor"]
