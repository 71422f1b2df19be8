"""The profile of a pipeline: it is planned as a server does, and measured without trainers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from infeed.shared.errors import ConfigError
from infeed.shared.spec import Spec
from infeed_server.engines import cgroup
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.sequential_plan import plan_sequential
from infeed_server.profile.clock import Clock
from infeed_server.profile.engine_run import run_dataset
from infeed_server.profile.figures import Profile
from infeed_server.profile.indexed import WHOLE_PIPELINE, IndexedProfile, Options
from infeed_server.profile.progress import OnStep, ignore_step
from infeed_server.sources import DatasetSource, ProgressCallback, open_source

_DATASET_NOTE = (
    "the transforms of a dataset are inside of the function that makes it, so only their sum can "
    "be measured"
)

Opening = Callable[[str], AbstractContextManager[ProgressCallback]]
"""A function that returns a context in which the files of a pipeline are indexed."""


def measure(
    profile: Profile,
    definition: Pipeline,
    options: Options,
    opening: Opening,
    clock: Clock | None = None,
    on_step: OnStep = ignore_step,
) -> None:
    """Measures the pipeline; adds each figure to `profile` as soon as it is known.

    Calls `on_step` with the name of what is measured next, from the opened source on.
    Raises the errors of a server that plans the pipeline, and `SampleError` where no sample is
    good.
    """
    clock = clock or Clock()
    profile.cores = cgroup.cpu_count()
    profile.source_kind = definition.source.kind
    definition = _with_batch_size(definition, options.batch_size)
    if isinstance(definition.source, DatasetSource):
        on_step(WHOLE_PIPELINE)
        _measure_dataset(profile, definition, definition.source, options, clock)
        return
    keep_damaged = definition.on_error != "raise"
    # A bad sample is counted, and the whole run goes on without it.
    definition = definition.model_copy(update={"on_error": "substitute"})
    with opening(profile.name) as on_open:
        source = open_source(definition.source, on_open, keep_damaged=keep_damaged)
    with ExitStack() as stack:
        stack.callback(source.close)
        plan = plan_indexed(profile.name, definition, source, cached=False)
        stack.callback(plan.source.close)
        IndexedProfile(profile, plan, options, clock, on_step).measure()


def _measure_dataset(
    profile: Profile,
    definition: Pipeline,
    source: DatasetSource,
    options: Options,
    clock: Clock,
) -> None:
    plan = plan_sequential(profile.name, definition, source)
    spec = plan.spec
    profile.batch_size = spec.batch_size
    profile.note = _DATASET_NOTE
    profile.wire_bytes = _fixed_bytes(spec.wire_spec)
    profile.finished_bytes = _fixed_bytes(spec.element_spec)
    for run in run_dataset(clock, plan, options.seconds):
        profile.run = run


def _fixed_bytes(fields: Spec) -> float | None:
    """Returns the bytes of a sample; None with byte strings, whose length varies."""
    sizes = [field.sample_bytes for field in fields]
    return None if None in sizes else float(sum(size or 0 for size in sizes))


def _with_batch_size(definition: Pipeline, size: int | None) -> Pipeline:
    if size is None:
        return definition
    if definition.batch is None:
        raise ConfigError("batch: the elements of the dataset are batches; leave out --batch-size")
    batch = definition.batch.model_copy(update={"size": size})
    return definition.model_copy(update={"batch": batch})
