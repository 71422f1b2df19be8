"""Restarts of a feed, for evaluations: each iteration has a connection of its own."""

from __future__ import annotations

from infeed.feed import Feed
from infeed.shared.errors import InvalidRequestError


class Restarts:
    """The feed of each iteration, which begins where the first one began. Raises
    `InvalidRequestError` for an endless feed."""

    def __init__(self, feed: Feed) -> None:
        if feed.endless:
            raise InvalidRequestError(
                f"restart=True: the feed of {feed.spec.name!r} is endless, so an evaluation of it "
                "has no end; give infeed.connect epochs=1"
            )
        self._first = self._current = feed
        self._has_begun = False

    def begin(self) -> Feed:
        """Returns the feed of the next iteration, and closes the one before."""
        if self._has_begun or self._first.delivered:
            self.end()
            self._current = self._first.again()
        self._has_begun = True
        return self._current

    def end(self) -> None:
        """Closes the connection of the current iteration, except the first, which is the user's."""
        if self._current is not self._first:
            self._current.close()
