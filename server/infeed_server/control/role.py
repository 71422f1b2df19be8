"""What a process of TensorFlow's data service shows: its health, and metrics of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from infeed_server.control.health import Readiness

log = logging.getLogger(__name__)


class RoleHealth:
    """Whether the process is ready, and what it knows of others, which makes it no less ready."""

    def __init__(self, role: str, parts: Callable[[], Mapping[str, Readiness]] = dict) -> None:
        self._role = role
        self._parts = parts
        self.overall = Readiness(False, "starting")

    @property
    def parts(self) -> Mapping[str, Readiness]:
        return self._parts()

    def say(self, *, ready: bool, reason: str) -> None:
        """What holds from now on. A change is logged."""
        now = Readiness(ready, reason)
        if now != self.overall:
            self.overall = now
            log.info("%s is %s: %s", self._role, "ready" if ready else "not ready", reason)


class RoleMetrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self, role: str, version: str, tensorflow: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("infeed_build", "The versions of this process.", registry=self.registry).info(
            {"role": role, "version": version, "tensorflow": tensorflow}
        )

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Asks for the value at every scrape; it must be quick."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def expose(self, accept: str = "") -> tuple[bytes, str]:
        """Everything, in the form that an HTTP `Accept` header prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
