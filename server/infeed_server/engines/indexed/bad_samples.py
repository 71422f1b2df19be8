"""Bad samples: finds them in failed batches, logs them to the quarantine, and substitutes them.

A sample is bad for what is in its bytes. A fault of storage refuses the batch instead, so that no
fault changes the data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import tensorflow as tf

from infeed.shared.errors import (
    InfeedError,
    SampleError,
    ServerError,
    SourceError,
    UserCodeError,
)
from infeed.shared.spec import Array
from infeed_server.engines.indexed.fair_queue import BatchTask
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.sources import Source
from infeed_server.sources.base import Columns, Sample
from infeed_server.sources.python.mapped import MappedSource, read_samples
from infeed_server.storage.faults import is_storage_fault, one_line, retry_faults
from infeed_server.storage.git_lfs import name_pointer
from infeed_server.transforms.base import Step

log = logging.getLogger(__name__)

_MAX_SUBSTITUTIONS = 1000
"""Substitutions in one batch. More means that the source has hardly any good sample."""

_FUNCTIONS = "map"
"""The stage of functions in Python, whose errors name the function's stage."""

_MAX_RETRIES = 2
"""Retries of a batch that failed although each of its samples is good: the fault has passed."""


OnExamined = Callable[[BatchTask, InfeedError | None], None]
"""Gets a task to try again, or the error that refuses it."""


class BadSampleHandler:
    """Handles failed batches on a thread of its own, so that good batches need not wait. A
    substitute depends on the bad sample's index and key alone, never on what this server has seen
    before, so every server chooses the same."""

    def __init__(self, plan: IndexedPlan, quarantine: Quarantine, monitor: Monitor) -> None:
        self._plan = plan
        self._action = plan.spec.on_error
        self._quarantine = quarantine
        self._monitor = monitor
        self._known_bad: set[int] = set()
        self._thread = ThreadPoolExecutor(1, f"infeed-bad-samples-{plan.spec.name}")

    def handle(self, task: BatchTask, error: Exception | None, on_examined: OnExamined) -> None:
        """Substitutes the bad samples of a failed batch on the thread, and calls `on_examined`.
        `error` is None where the graph has left out samples."""
        if isinstance(error, SourceError):
            # The source has tried to read again already.
            on_examined(task, error)
        else:
            self._thread.submit(self._process, task, error, on_examined)

    def warm_up(self, index: int, key: Array) -> None:
        """Examines a sample, whatever comes of it, unless bad ones are errors: in a process, the
        first examination takes a third of a second, for TensorFlow then makes its kernels."""
        if self._action != "raise":
            source, steps = self._plan.uncached
            with suppress(SourceError):
                find_bad_sample(source, steps, index, key)

    def substitute_known(self, task: BatchTask) -> None:
        """Substitutes samples that are known to be bad, before they fail again."""
        if self._action == "raise" or not self._known_bad:
            return
        for slot in range(len(task.index)):
            while task.substitutions < _MAX_SUBSTITUTIONS:
                if (sample := int(task.index[slot])) not in self._known_bad:
                    break
                self._quarantine.count_again(sample)
                self._substitute(task, slot)

    def known(self) -> Array:
        """Returns the samples that are known to be bad under any key, unless they are errors."""
        return np.array([] if self._action == "raise" else list(self._known_bad), np.int64)

    def close(self) -> None:
        self._thread.shutdown()

    def _process(self, task: BatchTask, error: Exception | None, on_examined: OnExamined) -> None:
        final: InfeedError | None = None
        try:
            self._substitute_bad(task, error)
        except InfeedError as raised:
            final = raised
        except Exception as unexpected:
            log.exception("the search for the bad samples of a batch failed")
            final = ServerError(f"{type(unexpected).__name__}: {unexpected}")
        on_examined(task, final)

    def _substitute_bad(self, task: BatchTask, error: Exception | None) -> None:
        before = task.substitutions
        for slot in self._suspects(task, error):
            self._substitute_until_good(task, slot)
        if task.substitutions == before:
            task.retries += 1
            if task.retries > _MAX_RETRIES:
                raise _unexplained(task, error or self._graph_error(task))

    def _suspects(self, task: BatchTask, error: Exception | None) -> list[int]:
        """Returns the slots that may have failed: without an error, the ones that the graph left
        out. A batch that is read, or is to raise, fails as a whole."""
        left: list[int] = task.left.tolist()
        if error is None:
            return left
        if isinstance(error, SampleError) and "sample_id" in error.metadata:
            bad = int(error.metadata["sample_id"])
            return [slot for slot in left if task.index[slot] == bad]
        return [slot for slot in left if not self._can_read(task, slot)] or left

    def _can_read(self, task: BatchTask, slot: int) -> bool:
        try:
            self._plan.read(task.index[[slot]], task.key[[slot]])
        except Exception:  # noqa: BLE001 - examined next
            return False
        return True

    def _substitute_until_good(self, task: BatchTask, slot: int) -> None:
        source, steps = self._plan.uncached
        while failure := find_bad_sample(source, steps, int(task.index[slot]), task.key[slot]):
            if not self._quarantine.add(failure.error, task, slot):
                self._monitor.on_quarantine_failed(self._plan.spec.name)
            # The sample of a masked slot is not delivered, so it is no reason to fail.
            if self._action == "raise" and task.mask[slot]:
                self._monitor.on_bad_sample(self._plan.spec.name, self._action)
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

    def _graph_error(self, task: BatchTask) -> Exception | None:
        """Returns the error of a graph on a sample that it left out, which is good by itself."""
        slots = task.left[:1]
        columns = self._plan.read(task.index[slots], task.key[slots])
        run = tf.function(self._plan.sample_function(), autograph=False)
        try:
            run(_first_row(columns), tf.constant(task.key[slots[0]]))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            return error
        return None

    def _substitute(self, task: BatchTask, slot: int) -> None:
        self._monitor.on_bad_sample(self._plan.spec.name, self._action)
        task.substitute(slot, masked=self._action == "mask")


def _with_remedy(error: InfeedError) -> InfeedError:
    """Returns the error with the options that go on without the sample; a traceback stays last."""
    if not isinstance(error, SampleError):
        return error
    remedy = "on_error: substitute or mask goes on without such samples"
    return SampleError(f"{error.message}; {remedy}", **error.metadata)


def _unexplained(task: BatchTask, error: Exception | None) -> InfeedError:
    if isinstance(error, InfeedError):
        return error
    if error is not None and is_storage_fault(error):
        problem = f"a fault of storage came back {_MAX_RETRIES} times: {one_line(error)}"
        return SourceError(f"the batch at position {task.request.start} is refused: {problem}")
    problem = "although each of its samples is good by itself" + (f": {error}" if error else "")
    return ServerError(f"the batch at position {task.request.start} fails, {problem}")


@dataclass(frozen=True)
class SampleFailure:
    """The error of a bad sample. `depends_on_key`: under another key it may be good."""

    error: InfeedError
    depends_on_key: bool


Look = Callable[[Source | Step, Sample], None]
"""Gets what is read of a sample, with its source, and the sample before each step."""


def _ignore(_: Source | Step, __: Sample) -> None:
    """Looks at nothing."""


def find_bad_sample(
    source: Source, steps: Sequence[Step], index: int, key: Array, look: Look = _ignore
) -> SampleFailure | None:
    """Runs the pipeline on one sample alone. Returns its failure; None where it is good. Raises
    `SourceError` for a storage fault that remains after retries."""
    examine = partial(_examine, source, steps, index, key, look)
    subject = f"sample {index} ({source.provenance(index)})"
    failure = retry_faults(examine, subject, is_storage_fault)
    if failure is not None:
        name_pointer(failure.error)
    return failure


def _examine(
    source: Source, steps: Sequence[Step], index: int, key: Array, look: Look
) -> SampleFailure | None:
    stage: str | Step = "read"
    depends_on_key = False
    sample: Sample = {}
    try:
        indices = np.array([index], np.int64)
        if isinstance(source, MappedSource):
            look(source.source, _first_row(source.source.read(indices)))
            stage, depends_on_key = _FUNCTIONS, source.random
        columns = read_samples(source, indices, np.asarray(key)[None])
        sample = _first_row(columns)
        stage = "parse"
        if not isinstance(source, MappedSource):
            look(source, sample)
        sample = source.parse(sample)
        for step in steps:
            stage = step
            depends_on_key = depends_on_key or step[1].random
            look(step, sample)
            sample = sample_graph.apply_step(step, sample, tf.constant(key))
    except SampleError as error:
        return SampleFailure(error, depends_on_key)
    except SourceError:
        raise  # A missing or changed file is no fault of the sample.
    except Exception as error:  # a user's function may raise anything
        if is_storage_fault(error):
            raise
        found = _describe(source, index, stage, error, sample)
        return SampleFailure(found, depends_on_key)
    return None


def _first_row(columns: Columns) -> Sample:
    return {name: tf.constant(rows[0]) for name, rows in columns.items()}


def _describe(
    source: Source, index: int, stage: str | Step, error: Exception, sample: Sample
) -> InfeedError:
    origin = source.provenance(index)
    name = stage if isinstance(stage, str) else f"transforms[{stage[0]}].{stage[1].display_name}"
    if stage == _FUNCTIONS and isinstance(error, InfeedError):
        name = error.metadata.get("stage", name)
    metadata = {"sample_id": index, "file": origin.file, "offset": origin.offset, "stage": name}
    prefix = f"sample {index} ({origin}): {name}: "
    if isinstance(error, UserCodeError):
        return UserCodeError(prefix + error.message, **metadata)
    reasons = ["" if isinstance(stage, str) else stage[1].explain(sample), one_line(error)]
    return SampleError(prefix + ": ".join(filter(None, reasons)), **metadata)
