"""The watch over one read of a job: why no more batches of it can arrive.

TensorFlow's client waits without a timeout for a lost worker. When a dispatcher has lost its
journal, the client ends with an error about an unknown id, or takes the job that now has the id for
its own.
"""

from __future__ import annotations

from infeed.shared.errors import SourceError
from infeed_tfdata.gateway.client import LOST_TIMEOUT_SECONDS, DataServiceClient


class ReadWatch:
    """Watches one read. For one thread."""

    def __init__(self, client: DataServiceClient, pipeline: str) -> None:
        self._client = client
        self._pipeline = pipeline
        self._lost_journals = client.lost_journals
        # The dispatcher has ended the tasks of these, or does so at its next check.
        self._lost_before = set(client.lost_workers)

    def require_job(self) -> None:
        """Raises `SourceError` when the dispatcher lost its journal since the read began."""
        if self._client.lost_journals != self._lost_journals:
            raise SourceError(
                f"the job of {self._pipeline!r} was lost: the dispatcher at {self._client.address} "
                "returned without its journal; start the feed again, from the beginning, and give "
                "the dispatcher a --work-dir that it keeps",
                pipeline=self._pipeline,
            )

    def on_wait(self, seconds: float) -> None:
        """Checks a read that has waited for a batch for so long.

        Raises `SourceError` once the tasks of workers that were lost meanwhile should have ended.
        """
        self._client.require()
        self.require_job()
        if seconds < LOST_TIMEOUT_SECONDS:
            return
        # All of the lost ones: while one may still return, the read waits for it.
        lost = [name for name in self._client.lost_workers if name not in self._lost_before]
        if lost and {*lost} <= {*self._client.lost_for(LOST_TIMEOUT_SECONDS)}:
            names = ", ".join(lost)
            raise SourceError(
                f"no batch of {self._pipeline!r} for {seconds:.0f} s, since workers of "
                f"TensorFlow's data service are lost and their tasks have not ended: {names}; "
                "start the workers again at these addresses, and the feed from the beginning",
                pipeline=self._pipeline,
                workers=names,
            )
