"""The profile of a pipeline: planned as on a server, and measured without trainers."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from itertools import count

from infeed.shared.errors import ConfigError
from infeed.shared.report import ServerReport
from infeed.v1 import stream_pb2
from infeed.wire.batch import Payload, encode_batch
from infeed_observe.pipeline_reports import PipelineReports
from infeed_server.engines.base import Answer, Engine, HostBatch, Request, Session, Trainer
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.processes import cgroup
from infeed_server.runtime.engine_factory import build
from infeed_server.sources.base import IndexedDefinition, ProgressCallback
from infeed_server.transforms import Cache
from infeed_tools.profile.figures import Profile
from infeed_tools.profile.stages import OnStep, StageProfile

_WARM_BATCHES = 16
"""Batches before the measurement: with fewer, it would include batches made during the start."""

Opening = Callable[[str], AbstractContextManager[ProgressCallback]]
"""A function that returns a context for indexing the files of a pipeline, by its name."""


@dataclass(frozen=True)
class Options:
    """Options of the measurement. The whole run takes `seconds`; a stage, a tenth of that."""

    seconds: float = 5.0
    samples: int = 64
    batch_size: int | None = None


def measure(
    profile: Profile,
    definition: Pipeline,
    options: Options,
    opening: Opening,
    on_step: OnStep = lambda _: None,
) -> None:
    """Measures the pipeline; adds each figure to `profile` as soon as it is known. Once the source
    is open, calls `on_step` with the name of each measurement. Raises the errors of planning on a
    server, and `SampleError` if no sample is good."""
    profile.cores = cgroup.cpu_count()
    profile.source_kind = definition.source.kind
    definition = _with_batch_size(definition, options.batch_size)
    decoder = "auto"
    is_indexed = isinstance(definition.source, IndexedDefinition)
    if is_indexed:
        decoder = _measure_stages(profile, definition, options, opening, on_step)
    on_step("the whole pipeline")
    if is_indexed:
        # Leaves out bad samples without logging them, and makes each sample as in the first epoch.
        transforms = tuple(step for step in definition.transforms if not isinstance(step, Cache))
        changes = {"on_error": "substitute", "quarantine": os.devnull, "transforms": transforms}
        definition = definition.model_copy(update=changes)
    with opening(profile.name) as on_open:
        engine = build(profile.name, definition, Monitor(), on_open, decoder=decoder)
    with closing(engine):
        profile.batch_size = engine.spec.batch_size
        sizes = [field.sample_bytes for field in engine.spec.wire_spec]
        if None not in sizes and profile.wire_bytes is None:
            profile.wire_bytes = float(sum(size or 0 for size in sizes))
        profile.run = _run_engine(engine, options.seconds)
        if decoder == "native":  # now with the shares of the run
            profile.decoder = engine.figures().decoder


def _measure_stages(
    profile: Profile, definition: Pipeline, options: Options, opening: Opening, on_step: OnStep
) -> str:
    """Measures the stages; returns the decoder in use."""
    with opening(profile.name) as on_open:
        source = definition.open(on_open)
    with ExitStack() as stack:
        stack.callback(source.close)
        plan = plan_indexed(profile.name, definition, source, cached=False, decoder="auto")
        stack.callback(plan.source.close)
        profile.batch_size = plan.spec.batch_size
        profile.source_samples = len(source) - len(plan.removed)
        StageProfile(profile, plan, options.seconds / 10, options.samples, on_step).measure()
        profile.decoder = str(plan.pictures)
        return "native" if plan.native else "tensorflow"


def _with_batch_size(definition: Pipeline, size: int | None) -> Pipeline:
    if size is None:
        return definition
    if definition.batch is None:
        raise ConfigError("--batch-size: the elements of the dataset are already batches; omit it")
    batch = definition.batch.model_copy(update={"size": size})
    return definition.model_copy(update={"batch": batch})


def _run_engine(engine: Engine, seconds: float) -> ServerReport:
    """Runs an engine for some seconds as if it sent its batches; returns its report. A quarter of
    the time, and at least a few batches, is warm-up, in which tf.data chooses its parallelism. The
    engine should substitute bad samples: otherwise the first one ends the run."""
    batches = dry_run(engine, engine.spec.batch_size, _requests(engine))
    reports, name = PipelineReports(), engine.spec.name
    reports.watch(name, engine)
    with closing(batches):
        for warm_up in (True, False):
            begin, made = time.perf_counter(), 0
            while (spent := time.perf_counter() - begin) < seconds or not made:
                if warm_up and made >= _WARM_BATCHES and spent >= seconds / 4:
                    break
                next(batches)
                made += 1
            reports.update({name: {"batches": 0 if warm_up else made, "bytes": 0}})
    return reports.report(name)


def _requests(engine: Engine) -> Iterator[Request]:
    spec = engine.spec
    size, stride = spec.batch_size, spec.stride(spec.batch_size)
    return (Request(spec.seed, number * stride, stride, size) for number in count())


_IN_FLIGHT = 8
"""Requests in progress: if fewer than the engine reads ahead, it would wait."""


def dry_run(engine: Engine, slots: int, requests: Iterable[Request]) -> Generator[None]:
    """Answers requests for batches of this number of slots; yields after encoding each. Raises the
    errors of the engine. No request may lie beyond the end of the data."""
    spec = engine.spec
    with closing(engine.open(slots, 0, Trainer())) as session:
        session.set_batch_bytes(slots * sum(field.sample_bytes or 0 for field in spec.wire_spec))
        pending: deque[Future[Answer]] = deque()
        for request in requests:
            pending.append(session.submit(request))
            if len(pending) == _IN_FLIGHT:
                _encode(engine, session, pending.popleft())
                yield
        while pending:
            _encode(engine, session, pending.popleft())
            yield


def _encode(engine: Engine, session: Session, answer: Future[Answer]) -> None:
    made = answer.result()
    assert isinstance(made, HostBatch)
    data = (Payload(engine.spec.wire_spec, made.arrays), made.sample_ids, made.mask)
    request = stream_pb2.BatchRequest()
    for message in encode_batch(request, made.start, made.epoch, *data).messages():
        b"".join(message)
    session.on_sent()
