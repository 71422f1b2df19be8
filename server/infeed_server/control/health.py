"""Health: whether each pipeline can be served now, and why not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Readiness:
    """Whether something can be served, and a readable reason."""

    ready: bool
    reason: str


Subscriber = Callable[[Readiness], None]
"""Called with the new readiness of the server as a whole."""


class Health:
    """The readiness that `/readyz` and gRPC's health service show. Thread-safe.

    The server is ready when it has pipelines and each of them is ready.
    """

    def __init__(self) -> None:
        # Held while subscribers are called, so that all of them get all changes in one order;
        # reentrant, so that a subscriber may read the current state.
        self._lock = threading.RLock()
        self._pipelines: dict[str, Readiness] = {}
        self._subscribers: list[Subscriber] = []
        self._drain_reason: str | None = None
        self._overall = self._summary()

    def set(self, name: str, ready: bool, reason: str) -> None:
        """Sets the readiness of a pipeline, and logs it if it changed."""
        with self._lock:
            readiness = Readiness(ready, reason)
            if self._pipelines.get(name) == readiness:
                return
            self._pipelines[name] = readiness
            _log(f"pipeline {name!r}", readiness)
            self._update_overall()

    def drain(self, reason: str = "shutting down") -> None:
        """Makes every pipeline unready, so that load balancers send no new trainer here.

        This is final: a later `set` has no effect.
        """
        with self._lock:
            self._drain_reason = self._drain_reason or reason
            self._update_overall()

    @property
    def overall(self) -> Readiness:
        """Readiness of the server as a whole."""
        with self._lock:
            return self._overall

    @property
    def parts(self) -> Mapping[str, Readiness]:
        """Readiness of each pipeline, a copy sorted by name."""
        with self._lock:
            if self._drain_reason is None:
                return dict(sorted(self._pipelines.items()))
            return dict.fromkeys(sorted(self._pipelines), Readiness(False, self._drain_reason))

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls the function with the current readiness, and then with each change.

        It runs on the thread that makes the change, so it must be quick and must not raise.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            subscriber(self._overall)

    def _update_overall(self) -> None:
        overall = self._summary()
        if overall == self._overall:
            return
        self._overall = overall
        _log("server", overall)
        for subscriber in self._subscribers:
            subscriber(overall)

    def _summary(self) -> Readiness:
        if self._drain_reason is not None:
            return Readiness(False, self._drain_reason)
        if not self._pipelines:
            return Readiness(False, "no pipeline is loaded yet")
        unready = [name for name in sorted(self._pipelines) if not self._pipelines[name].ready]
        if unready:
            reasons = "; ".join(f"{name}: {self._pipelines[name].reason}" for name in unready)
            return Readiness(
                False, f"{len(unready)} of {len(self._pipelines)} not ready: {reasons}"
            )
        return Readiness(True, "every pipeline is ready")


def _log(subject: str, readiness: Readiness) -> None:
    state = "ready" if readiness.ready else "not ready"
    log.info("%s is %s: %s", subject, state, readiness.reason)
