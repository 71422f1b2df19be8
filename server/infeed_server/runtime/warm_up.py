"""Warm-up of pipelines: their first batches, and whether they are ready."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from infeed.shared.errors import InfeedError, SourceError
from infeed_server.engines.base import Engine, mean_string_bytes
from infeed_server.engines.capabilities import RandomAccess
from infeed_server.processes.periodic import PeriodicTask
from infeed_server.serving.health import Health, Readiness

_WARM_UP_INTERVAL_SECONDS = 10.0
"""Time between attempts at a first batch after a storage fault: a longer one delays readiness."""


class WarmUp:
    """Makes the first batch of each pipeline, and sets the pipeline's readiness.

    `refused` holds the last batch of each pipeline that was refused because of its files. After a
    new refusal the first batch is made again, so a pipeline with missing files becomes unready.
    """

    def __init__(
        self, health: Health, engines: Mapping[str, Engine], refused: Mapping[str, object]
    ) -> None:
        self.string_bytes: dict[str, int] = {}
        """Mean bytes of a sample's byte strings in the first batch, by pipeline."""
        self._health = health
        self._engines = engines
        self._refused = refused
        self._seen: dict[str, object] = {}
        """The batches of `refused` after which the first batch was made again."""
        self._cold: set[str] = set()
        """Pipelines whose first batch failed with a fault that can pass."""
        self._before: dict[str, Readiness] = {}
        """Readiness of each pipeline before the remote engine failed; empty while it works."""
        self._retries = PeriodicTask("warm-up", _WARM_UP_INTERVAL_SECONDS, self.warm_again)

    def start(self) -> None:
        """Returns when each pipeline has tried its first batch."""
        for name in self._engines:
            self._warm(name)
        self._retries.start()

    def stop(self) -> None:
        self._retries.stop()

    def warm_again(self) -> None:
        """Repeats the first batch of each pipeline that had a storage fault."""
        refused = {name: batch for name, batch in self._refused.items() if name in self._engines}
        new = {name for name, batch in refused.items() if self._seen.get(name) is not batch}
        self._seen = refused
        for name in sorted(self._cold | new):
            self._warm(name)

    def on_remote_status(self, problem: str | None) -> None:
        """Makes all pipelines unready while a remote engine has a problem."""
        if problem:
            self._before = self._before or dict(self._health.parts)
            for name in self._engines:
                self._health.set(name, ready=False, reason=problem)
        else:
            for name, readiness in self._before.items():
                self._health.set(name, readiness.ready, readiness.reason)
            self._before = {}

    def _warm(self, name: str) -> None:
        """Makes a first batch. A pipeline whose batch fails is still served, so that its trainers
        get the error and can read the batches that do not fail. A storage fault can pass, so the
        batch is retried unless reading it means reading all data before it."""
        engine = self._engines[name]
        self._cold.discard(name)
        try:
            self.string_bytes[name] = mean_string_bytes(engine.warm_up())
        except Exception as error:  # noqa: BLE001 - an engine can be any package's
            name_of = "" if isinstance(error, InfeedError) else f"{type(error).__name__}: "
            reason = f"its first batch fails: {name_of}{error}"
            self._health.set(name, ready=False, reason=reason, level=logging.ERROR)
            if isinstance(error, SourceError) and isinstance(engine, RandomAccess):
                self._cold.add(name)
        else:
            self._health.set(name, ready=True, reason="its first batch is ready")
