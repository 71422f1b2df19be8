"""Health: whether each pipeline can be served now, and why not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

logger = logging.getLogger(__name__)

WHOLE_SERVER = ""
"""The name under which subscribers hear of the server as a whole, as in gRPC's health service."""


@dataclass(frozen=True)
class Readiness:
    """Whether something can be served, and the reason, which people read."""

    ready: bool
    reason: str


Subscriber = Callable[[str, Readiness], None]
"""Called with a pipeline's name, or `WHOLE_SERVER`, and what holds for it from now on."""


class Health:
    """The one flag that `/readyz` and gRPC's health service both show. Thread-safe.

    The server is ready when it has pipelines and each of them is ready.
    """

    def __init__(self) -> None:
        # Held while subscribers are called, so that all of them hear all changes in one order;
        # reentrant, so that a subscriber may ask what holds now.
        self._lock = threading.RLock()
        self._pipelines: dict[str, Readiness] = {}
        self._subscribers: list[Subscriber] = []
        self._drained: str | None = None
        self._overall = self._summary()

    def set(self, name: str, ready: bool, reason: str) -> None:
        """Says what holds for a pipeline from now on. A change is logged; the same again is not."""
        if not name:
            raise ValueError("a pipeline needs a name; the empty one means the whole server")
        with self._lock:
            readiness = Readiness(ready, reason)
            if self._pipelines.get(name) == readiness:
                return
            self._pipelines[name] = readiness
            _log(f"pipeline {name!r}", readiness)
            self._publish(name)
            self._update_overall()

    def drain(self, reason: str = "shutting down") -> None:
        """Says for good that nothing is ready any more, so that no new trainer is sent here.

        What `set` says afterwards is kept but makes nothing ready.
        """
        with self._lock:
            if self._drained is not None:
                return
            self._drained = reason
            for name in self._pipelines:
                self._publish(name)
            self._update_overall()

    @property
    def ready(self) -> bool:
        """Whether every pipeline can be served."""
        return self.overall.ready

    @property
    def overall(self) -> Readiness:
        """What holds for the server as a whole."""
        with self._lock:
            return self._overall

    @property
    def parts(self) -> Mapping[str, Readiness]:
        """What holds for each pipeline, by name; a copy, in the order of names."""
        with self._lock:
            return {name: self._effective(name) for name in sorted(self._pipelines)}

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls the function with everything that holds now and then with each change.

        It is called in the thread that makes the change, so it must be quick and must not raise.
        """
        with self._lock:
            self._subscribers.append(subscriber)
            for name, readiness in self.parts.items():
                subscriber(name, readiness)
            subscriber(WHOLE_SERVER, self._overall)

    def _effective(self, name: str) -> Readiness:
        if self._drained is not None:
            return Readiness(False, self._drained)
        return self._pipelines[name]

    def _publish(self, name: str) -> None:
        for subscriber in self._subscribers:
            subscriber(name, self._effective(name))

    def _update_overall(self) -> None:
        overall = self._summary()
        if overall == self._overall:
            return
        self._overall = overall
        _log("server", overall)
        for subscriber in self._subscribers:
            subscriber(WHOLE_SERVER, overall)

    def _summary(self) -> Readiness:
        if self._drained is not None:
            return Readiness(False, self._drained)
        if not self._pipelines:
            return Readiness(False, "no pipeline is loaded yet")
        waiting = [name for name in sorted(self._pipelines) if not self._pipelines[name].ready]
        if waiting:
            why = "; ".join(f"{name}: {self._pipelines[name].reason}" for name in waiting)
            return Readiness(False, f"{len(waiting)} of {len(self._pipelines)} not ready: {why}")
        return Readiness(True, "every pipeline is ready")


def _log(what: str, readiness: Readiness) -> None:
    state = "ready" if readiness.ready else "not ready"
    logger.info("%s is %s: %s", what, state, readiness.reason)


__all__ = ["WHOLE_SERVER", "Health", "Readiness", "Subscriber"]
