"""Whether the dispatcher is still the one that a worker began with.

A dispatcher that lost its journal counts tasks from the beginning, so a worker takes new tasks for
those of the same number that it has, and serves what nobody asked for. It has to begin anew too.
"""

from __future__ import annotations

import logging

from infeed.errors import InfeedError
from infeed.inquiry import Dispatcher
from infeed_server.cluster import marker
from infeed_server.cluster.rounds import Rounds

LOOK_SECONDS = 2.0

log = logging.getLogger(__name__)


class JournalWatch(Rounds):
    """Asks the dispatcher at host:port again and again. One that infeed did not start has no name
    for its journal: of that only is known whether it answers."""

    def __init__(self, dispatcher: str) -> None:
        super().__init__("journal", LOOK_SECONDS)
        self._dispatcher = Dispatcher(dispatcher)
        self._journal = ""
        self.away: str | None = None
        """Why the dispatcher does not answer; None when it does."""
        self.reason: str | None = None
        """What makes the worker useless; it stays."""

    def look(self) -> None:
        try:
            left = marker.read(self._dispatcher, marker.DISPATCHER)
        except InfeedError as error:
            if self.away is None:
                log.warning("the dispatcher is away: %s", error.message)
            self.away = error.message
            return
        if self.away is not None:
            log.info("the dispatcher at %s is back", self._dispatcher.address)
        self.away = None
        journal = left.journal if left else ""
        if self._journal and journal and journal != self._journal:
            self.reason = (
                f"the dispatcher at {self._dispatcher.address} began a new journal ({journal}, "
                f"before {self._journal}) and knows nothing of what this worker works on"
            )
        self._journal = self._journal or journal
