"""Bad samples: finds them in failed batches, logs them to the quarantine, and makes the batches
with substitutes.

A sample is bad because of its bytes. After a fault of storage the batch is refused instead, so that
no fault changes the data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property

import numpy as np

from infeed.shared.errors import InfeedError, SampleError, ServerError, SourceError
from infeed.shared.spec import Array
from infeed_server.engines.base import HostBatch
from infeed_server.engines.indexed.batch_graph import graph_function, make_early
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.indexed.examination import find_bad_sample
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.sample_graph import ColumnsFunction
from infeed_server.sources.base import READ_THREADS
from infeed_server.storage.faults import is_storage_fault, one_line

log = logging.getLogger(__name__)

_MAX_SUBSTITUTIONS = 1000
"""Substitutions in one batch. More means that the source has hardly any good samples."""

_MAX_RETRIES = 2
"""Retries of a batch that failed although each of its samples is good: the fault has passed."""


OnDone = Callable[[BatchTask, HostBatch | InfeedError], None]
"""Receives a task with its batch, or with the error that refuses it."""


class BadSampleHandler:
    """Completes failed batches on threads of its own, so that good batches need not wait. A
    substitute depends only on the bad sample's index and key, never on this server's past, so every
    server chooses the same."""

    def __init__(self, plan: IndexedPlan, quarantine: Quarantine, monitor: Monitor) -> None:
        self._plan = plan
        self._action = plan.spec.on_error
        self._quarantine = quarantine
        self._monitor = monitor
        self._known_bad: set[int] = set()
        self._threads = ThreadPoolExecutor(READ_THREADS, f"infeed-bad-samples-{plan.spec.name}")

    def handle(self, task: BatchTask, error: Exception | None, on_done: OnDone) -> None:
        """Makes the rest of a failed batch on a thread, and calls `on_done`. `error` is None if the
        graph has omitted samples."""
        if isinstance(error, SourceError):
            # The source has tried to read again already.
            on_done(task, error)
        else:
            self._threads.submit(self._process, task, error, on_done)

    def warm_up(self, index: int, key: Array) -> None:
        """Examines and makes a sample, good or bad, unless bad ones are errors: the first time in a
        process takes a third of a second, in which TensorFlow makes its kernels."""
        if self._action != "raise":
            source, steps = self._plan.uncached
            with suppress(SourceError):
                find_bad_sample(source, steps, index, key)
            with suppress(Exception):
                self._graph(self._plan.read(np.array([index]), key[None]), key[None])

    def substitute_known(self, task: BatchTask) -> None:
        """Substitutes known bad samples before they fail again."""
        if self._action != "raise" and self._known_bad:
            for slot in task.left:
                self._skip_known(task, slot)

    def known(self) -> Array:
        """Returns the samples known to be bad under any key; none if bad samples are errors."""
        return np.array([] if self._action == "raise" else list(self._known_bad), np.int64)

    def close(self) -> None:
        self._threads.shutdown()

    def _process(self, task: BatchTask, error: Exception | None, on_done: OnDone) -> None:
        result: HostBatch | InfeedError
        try:
            if error is not None and not task.is_assigned:
                raise error
            self._complete(task, error)
            result = task.to_batch()
        except InfeedError as raised:
            result = raised
        except Exception as unexpected:
            log.exception("a batch failed, but not because of its samples")
            result = ServerError(f"{type(unexpected).__name__}: {unexpected}")
        on_done(task, result)

    def _complete(self, task: BatchTask, error: Exception | None) -> None:
        """Makes the rest of a batch, with substitutes for the bad samples."""
        retries = 0
        while failed := self._find_failed(task, error):
            before = task.substitutions
            for slot in failed:
                self._substitute_until_good(task, slot)
            if task.substitutions == before:
                retries += 1
                if retries > _MAX_RETRIES:
                    raise _unexplained(task, error)
            error = self._try(task, task.left, cut_off=True) if len(task.left) else None

    def _find_failed(self, task: BatchTask, error: Exception | None) -> list[int]:
        """Returns the slots whose samples fail, among those that are left. Makes the others, unless
        the error names the sample: then there may be more."""
        left: list[int] = task.left.tolist()
        if error is None:
            return left
        if isinstance(error, SampleError) and "sample_id" in error.metadata:
            bad = int(error.metadata["sample_id"])
            if named := [slot for slot in left if task.index[slot] == bad]:
                return named
        for slot in left:
            self._try(task, np.array([slot]))
        return task.left.tolist()  # type: ignore[no-any-return]

    def _try(self, task: BatchTask, slots: Array, *, cut_off: bool = False) -> Exception | None:
        """Makes the samples of some slots; truncated pictures only if `cut_off`. Returns the error
        if one of them fails."""
        try:
            columns = self._plan.read(task.index[slots], task.key[slots])
            rows = make_early(self._plan, task, slots, columns, map, cut_off=cut_off)
            if len(rows["slot"]):
                fields = self._graph(rows["columns"], rows["key"])
                task.put(rows["slot"], {name: np.asarray(field) for name, field in fields.items()})
        except SourceError:
            raise  # The source has tried to read again already.
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return error
        return None

    @cached_property
    def _graph(self) -> ColumnsFunction:
        return graph_function(self._plan)

    def _substitute_until_good(self, task: BatchTask, slot: int) -> None:
        source, steps = self._plan.uncached
        while failure := find_bad_sample(source, steps, int(task.index[slot]), task.key[slot]):
            if not self._quarantine.add(failure.error, task, slot):
                self._monitor.count("infeed_quarantine_failures", self._plan.spec.name)
            # The sample of a masked slot is not delivered, so it is no reason to fail.
            if self._action == "raise" and task.mask[slot]:
                self._monitor.count("infeed_bad_samples", self._plan.spec.name, self._action)
                raise _with_remedy(failure.error)
            if not failure.depends_on_key:
                self._known_bad.add(int(task.index[slot]))
            if task.substitutions >= _MAX_SUBSTITUTIONS:
                raise SampleError(
                    f"no good sample found in {task.substitutions} draws for the batch at position "
                    f"{task.request.start}; the last bad one: {failure.error.message}",
                    **failure.error.metadata,
                )
            self._substitute(task, slot)
            self._skip_known(task, slot)
            self._try(task, np.array([slot]))
            if slot not in task.left:
                return

    def _skip_known(self, task: BatchTask, slot: int) -> None:
        """Substitutes the sample of a slot while it is known to be bad."""
        while task.substitutions < _MAX_SUBSTITUTIONS:
            if (sample := int(task.index[slot])) not in self._known_bad:
                return
            self._quarantine.count_again(sample)
            self._substitute(task, slot)

    def _substitute(self, task: BatchTask, slot: int) -> None:
        if task.mask[slot] and slot not in task.replaced:
            self._monitor.count("infeed_bad_samples", self._plan.spec.name, self._action)
        task.substitute(slot, masked=self._action == "mask")


def _with_remedy(error: InfeedError) -> InfeedError:
    """Returns the error with the options that continue without the sample; a traceback stays
    last."""
    if not isinstance(error, SampleError):
        return error
    remedy = "on_error: substitute or mask continues without such samples"
    return SampleError(f"{error.message}; {remedy}", **error.metadata)


def _unexplained(task: BatchTask, error: Exception | None) -> InfeedError:
    if isinstance(error, InfeedError):
        return error
    if error is not None and is_storage_fault(error):
        problem = f"a storage fault recurred {_MAX_RETRIES} times: {one_line(error)}"
        return SourceError(f"the batch at position {task.request.start} is refused: {problem}")
    problem = "although each of its samples is good by itself" + (f": {error}" if error else "")
    return ServerError(f"the batch at position {task.request.start} fails, {problem}")
