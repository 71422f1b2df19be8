"""The watch over one read of a job: why no more batches of it can arrive.

TensorFlow's client waits without a timeout for a lost worker. When a dispatcher has lost its
journal, the client ends with an error about an unknown id, or takes the job that now has the id for
its own.
"""

from __future__ import annotations

import logging

from infeed.shared.errors import SourceError
from infeed_server.data_service.gateway.client import LOST_TIMEOUT_SECONDS, DataServiceClient

log = logging.getLogger(__name__)

WARNING_SECONDS = 20.0
"""A wait for a batch after which lost workers are logged."""


class ReadWatch:
    """Watches one read. For one thread."""

    def __init__(self, client: DataServiceClient, pipeline: str) -> None:
        self._client = client
        self._pipeline = pipeline
        self._journal = client.journal
        # The dispatcher has ended the tasks of these, or does so at its next check.
        self._lost_before = set(client.lost_workers)
        self._has_warned = False

    def require_job(self) -> None:
        """Raises `SourceError` when the dispatcher began a new journal since the read began."""
        journal = self._client.journal
        if self._journal and journal and journal != self._journal:
            raise SourceError(
                f"the job of {self._pipeline!r} was lost: the dispatcher at {self._client.address} "
                "returned without its journal; start the feed again, from the beginning, and give "
                "the dispatcher a --work-dir that it keeps",
                pipeline=self._pipeline,
            )

    def on_wait(self, seconds: float) -> None:
        """Checks a read that has waited for a batch for so long.

        Logs workers that were lost since the read began, and raises `SourceError` once their tasks
        should have ended.
        """
        self._client.require()
        self.require_job()
        silent = self._client.silent_seconds()
        lost = {worker: age for worker, age in silent.items() if worker not in self._lost_before}
        if not lost or seconds < WARNING_SECONDS:
            self._has_warned = False
            return
        names = ", ".join(lost)
        if min(seconds, *lost.values()) >= LOST_TIMEOUT_SECONDS:
            raise SourceError(
                f"no batch of {self._pipeline!r} for {seconds:.0f} s, since workers of "
                f"TensorFlow's data service are lost and their tasks have not ended: {names}; "
                "start the workers again at these addresses, and the feed from the beginning",
                pipeline=self._pipeline,
                workers=names,
            )
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s: no batch for %.0f s; these workers do not answer: %s. An infeed dispatcher "
                "ends the tasks of a lost worker after a minute; if it does not, the feed ends "
                "after %.0f s",
                self._pipeline,
                seconds,
                names,
                LOST_TIMEOUT_SECONDS,
            )
