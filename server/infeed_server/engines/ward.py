"""What becomes of batches that failed: the bad samples are found, logged, and replaced."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from infeed.errors import InfeedError, SampleError, ServerError
from infeed_server.engines.diagnosis import examine
from infeed_server.engines.monitor import Monitor
from infeed_server.engines.quarantine import Quarantine
from infeed_server.engines.work import Work, settle
from infeed_server.pipeline.plan import IndexedPlan

log = logging.getLogger(__name__)

_MAX_REPLACEMENTS = 1000
"""For one batch. More means that the source holds hardly a good sample."""

_RETRIES = 2
"""For a batch that failed although each of its samples is good: a passing fault of storage."""


class Ward:
    """Treats failed batches on a thread of its own, so that good ones need not wait.

    What is done to a slot depends on its sample and key alone, never on what this server has met
    before: so every server puts the same sample there.
    """

    def __init__(self, plan: IndexedPlan, quarantine: Quarantine, monitor: Monitor) -> None:
        self._plan = plan
        self._action = plan.spec.on_error
        self._quarantine = quarantine
        self._monitor = monitor
        self._known: dict[int, InfeedError] = {}
        self._thread = ThreadPoolExecutor(1, f"infeed-ward-{plan.spec.name}")

    def admit(self, work: Work, error: Exception, *, again: Callable[[Work], None]) -> None:
        """Replaces the bad samples, then calls `again`; or settles the work with an error."""
        self._thread.submit(self._treat, work, error, again)

    def replace_known(self, work: Work) -> None:
        """Replaces samples that are bad whatever their key, before they fail once more."""
        if self._action == "raise" or not self._known:
            return
        for slot in range(len(work.index)):
            while int(work.index[slot]) in self._known and work.replacements < _MAX_REPLACEMENTS:
                self._replace(work, slot)

    def close(self) -> None:
        self._thread.shutdown()

    def _treat(self, work: Work, error: Exception, again: Callable[[Work], None]) -> None:
        try:
            self._replace_bad(work, error)
        except InfeedError as final:
            settle(work, final)
        except Exception as unforeseen:
            log.exception("while looking for the bad sample of a batch")
            settle(work, ServerError(f"{type(unforeseen).__name__}: {unforeseen}"))
        else:
            again(work)

    def _replace_bad(self, work: Work, error: Exception) -> None:
        before = work.replacements
        for slot in range(len(work.index)):
            self._cure(work, slot)
        if work.replacements == before:
            work.retries += 1
            if work.retries > _RETRIES:
                raise _unexplained(work, error)

    def _cure(self, work: Work, slot: int) -> None:
        """Replaces the sample of a slot until it is good."""
        source, steps = self._plan.whole
        while found := examine(source, steps, int(work.index[slot]), work.key[slot]):
            self._quarantine.add(found.error)
            # A slot that is empty anyway holds a sample nobody asked for.
            if self._action == "raise" and work.mask[slot]:
                self._monitor.bad_sample(self._plan.spec.name, self._action)
                raise found.error
            if not found.keyed:
                self._known[int(work.index[slot])] = found.error
            if work.replacements >= _MAX_REPLACEMENTS:
                raise SampleError(
                    f"no good sample found in {work.replacements} draws for the batch at position "
                    f"{work.request.start}; the last bad one: {found.error.message}",
                    **found.error.metadata,
                )
            self._replace(work, slot)

    def _replace(self, work: Work, slot: int) -> None:
        self._monitor.bad_sample(self._plan.spec.name, self._action)
        work.replace(slot, masked=self._action == "mask")


def _unexplained(work: Work, error: Exception) -> InfeedError:
    if isinstance(error, InfeedError):
        return error
    return ServerError(
        f"the batch at position {work.request.start} fails, although each of its samples is good "
        f"by itself: {error}"
    )
