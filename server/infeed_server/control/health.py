"""Health: whether each pipeline can be served now, and why not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol

log = logging.getLogger(__name__)

_MAX_REASONS = 5
"""Pipelines that are not ready whose reasons the server's own reason has."""

SHUTTING_DOWN = "shutting down"
"""The reason of a server that is not ready because it ends."""


@dataclass(frozen=True)
class Readiness:
    """Whether something can be served, and a readable reason."""

    ready: bool
    reason: str


class HealthView(Protocol):
    """The health that `/readyz` shows: of a server, of several processes, or of a role."""

    @property
    def overall(self) -> Readiness:
        """Readiness of the server as a whole."""

    @property
    def parts(self) -> Mapping[str, Readiness]:
        """Readiness of each part, such as a pipeline, by name."""


ReadinessPolicy = Literal["all", "any"]
"""How many pipelines must be ready for the server to be ready."""

Subscriber = Callable[[str, Readiness], None]
"""Called with the name of a pipeline, "" for the server as a whole, and its new readiness."""


class Health:
    """The readiness that `/readyz` and gRPC's health service show. Thread-safe.

    The server is ready when it has pipelines, and all or any of them are ready, by the policy.
    """

    def __init__(self, policy: ReadinessPolicy = "all") -> None:
        self._policy = policy
        # Held while subscribers are called, so that all of them get all changes in one order;
        # reentrant, so that a subscriber may read the current state.
        self._lock = threading.RLock()
        self._pipelines: dict[str, Readiness] = {}
        self._subscribers: list[Subscriber] = []
        self._drain_reason: str | None = None
        self._overall = self._summary()

    def set(self, name: str, ready: bool, reason: str, level: int = logging.INFO) -> None:
        """Sets the readiness of a pipeline, and logs it if it changed, with the level."""
        with self._lock:
            readiness = Readiness(ready, reason)
            if self._pipelines.get(name) == readiness:
                return
            self._pipelines[name] = readiness
            if self._drain_reason is None:
                _log(f"pipeline {name!r}", readiness, level)
                self._notify(name, readiness)
            self._update_overall()

    def drain(self, reason: str = SHUTTING_DOWN) -> None:
        """Makes every pipeline unready, so that load balancers send no new trainer here.

        This is final: a later `set` has no effect.
        """
        with self._lock:
            if self._drain_reason is not None:
                return
            self._drain_reason = reason
            for name, readiness in self.parts.items():
                self._notify(name, readiness)
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
        """Calls the function with the current readiness of each pipeline and of the server, and
        then with each change.

        It runs on the thread that makes the change, so it must be quick and must not raise.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            for name, readiness in {**self.parts, "": self._overall}.items():
                subscriber(name, readiness)

    def _update_overall(self) -> None:
        overall = self._summary()
        if overall == self._overall:
            return
        if overall.ready != self._overall.ready:  # else the line of the pipeline is enough
            _log("server", overall)
        self._overall = overall
        self._notify("", overall)

    def _notify(self, name: str, readiness: Readiness) -> None:
        for subscriber in self._subscribers:
            subscriber(name, readiness)

    def _summary(self) -> Readiness:
        if self._drain_reason is not None:
            return Readiness(False, self._drain_reason)
        if not self._pipelines:
            return Readiness(False, "no pipeline is loaded yet")
        unready = {name: one.reason for name, one in self._pipelines.items() if not one.ready}
        if not unready:
            return Readiness(True, "every pipeline is ready")
        reasons = [f"{name}: {why}" for name, why in islice(unready.items(), _MAX_REASONS)]
        if len(unready) > _MAX_REASONS:
            reasons.append(f"and {len(unready) - _MAX_REASONS} more")
        ready = self._policy == "any" and len(unready) < len(self._pipelines)
        problem = f"{len(unready)} of {len(self._pipelines)} not ready: {'; '.join(reasons)}"
        return Readiness(ready, problem)


def _log(subject: str, readiness: Readiness, level: int = logging.INFO) -> None:
    state = "ready" if readiness.ready else "not ready"
    log.log(level, "%s is %s: %s", subject, state, readiness.reason)
