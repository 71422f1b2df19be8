"""Log lines about the servers of a feed."""

from __future__ import annotations

import logging

from infeed.prefetch.feed_plan import FeedPlan
from infeed.shared.errors import InfeedError

log = logging.getLogger(__name__)


class ServerLog:
    """Writes a warning when a server is lost or left out, and when it serves the feed again.

    Each has the feed and the server as fields, for handlers that write JSON.
    """

    def __init__(self, plan: FeedPlan) -> None:
        self._feed = plan.spec.name
        self._fields = plan.log_fields

    def on_lost(self, server: str, error: InfeedError, *, accepted: bool) -> None:
        """Warns; `accepted`: the server had accepted the stream that was lost."""
        problem = "is lost" if accepted else "cannot be reached"
        self._warn(server, f"{self._feed}: {server} {problem}, and is tried again: {error.message}")

    def on_back(self, server: str) -> None:
        self._warn(server, f"{self._feed}: {server} is back")

    def on_left_out(self, server: str, error: InfeedError) -> None:
        reason = f"{type(error).__name__}: {error.message}"
        self._warn(server, f"{server} is left out of the feed for now: {reason}")

    def on_serving_again(self, server: str) -> None:
        self._warn(server, f"{server} serves the feed again")

    def _warn(self, server: str, line: str) -> None:
        log.warning("%s", line, extra={"fields": {**self._fields, "server": server}})
