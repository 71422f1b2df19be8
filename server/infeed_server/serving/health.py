"""Health: whether each pipeline can be served now, and why not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

_MAX_REASONS = 5
"""Maximum pipelines that the server's reason names when they are not ready."""

SHUTTING_DOWN = "shutting down"
"""The reason of a server that is not ready because it shuts down."""


@dataclass(frozen=True)
class Readiness:
    """Whether something can be served, and a readable reason."""

    ready: bool
    reason: str


Subscriber = Callable[[str, Readiness], None]
"""Receives the name of a pipeline, or "" for the server as a whole, and its new readiness."""


class Health:
    """The readiness that gRPC's health service and instruments show. Thread-safe. The server is
    ready when it has pipelines and all are ready, or at least one with the policy `any`."""

    def __init__(self, policy: str = "all") -> None:
        self._policy = policy
        # Held while subscribers are called, so that all of them get all changes in one order;
        # reentrant, so that a subscriber may read the current state.
        self._lock = threading.RLock()
        self._pipelines: dict[str, Readiness] = {}
        self.broken: dict[str, str] = {}
        """The pipelines that the server cannot serve, and why."""
        self._subscribers: list[Subscriber] = []
        self._draining = False
        self._shown = {"": self.overall}
        """What subscribers know."""

    def set(self, name: str, ready: bool, reason: str, level: int = logging.INFO) -> None:
        """Sets the readiness of a pipeline, and logs it if it changed, with the level."""
        readiness = Readiness(ready, reason)
        with self._lock:
            if self._pipelines.get(name) != readiness:
                self._pipelines[name] = readiness
                if not self._draining:
                    _log(f"pipeline {name!r}", readiness, level)
                self._publish()

    def go_without(self, name: str, reason: str) -> None:
        """Makes a pipeline unready for good; the server's own readiness no longer depends on it."""
        with self._lock:
            self.broken[name] = reason
            self.set(name, ready=False, reason=reason, level=logging.ERROR)

    def drain(self) -> None:
        """Makes every pipeline unready for good, so that load balancers send no trainer here."""
        with self._lock:
            self._draining = True
            self._publish()

    @property
    def overall(self) -> Readiness:
        """Readiness of the server as a whole."""
        if self._draining:
            return Readiness(False, SHUTTING_DOWN)
        with self._lock:
            parts = {
                name: part for name, part in self._pipelines.items() if name not in self.broken
            }
        if not parts:
            return Readiness(False, "no pipeline is loaded yet")
        reasons = [f"{name}: {part.reason}" for name, part in parts.items() if not part.ready]
        if not reasons:
            count = len(self.broken)
            left_out = f"{len(parts)} of {len(parts) + count} pipelines ready; {count} broken"
            return Readiness(True, left_out if count else "every pipeline is ready")
        ready = self._policy == "any" and len(reasons) < len(parts)
        shown = "; ".join(reasons[:_MAX_REASONS])
        if len(reasons) > _MAX_REASONS:
            shown += f"; and {len(reasons) - _MAX_REASONS} more"
        return Readiness(ready, f"{len(reasons)} of {len(parts)} not ready: {shown}")

    @property
    def parts(self) -> Mapping[str, Readiness]:
        """Readiness of each pipeline, a copy sorted by name."""
        with self._lock:
            parts = dict(sorted(self._pipelines.items()))
        return dict.fromkeys(parts, Readiness(False, SHUTTING_DOWN)) if self._draining else parts

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls the function with the current readiness of each pipeline and of the server, and
        then with each change. It runs on the thread that makes the change, so it must be quick and
        must not raise."""
        with self._lock:
            self._subscribers.append(subscriber)
            for name, readiness in self._shown.items():
                subscriber(name, readiness)

    def _publish(self) -> None:
        before, self._shown = self._shown, {**self.parts, "": self.overall}
        if before[""].ready != self._shown[""].ready:  # else the pipeline's line is enough
            _log("server", self._shown[""])
        for name, readiness in self._shown.items():
            if before.get(name) != readiness:
                for subscriber in self._subscribers:
                    subscriber(name, readiness)


def _log(subject: str, readiness: Readiness, level: int = logging.INFO) -> None:
    state = "ready" if readiness.ready else "not ready"
    log.log(level, "%s is %s: %s", subject, state, readiness.reason)
