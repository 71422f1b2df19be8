"""Plan of a feed, with the spec that a server sends."""

from __future__ import annotations

from dataclasses import replace

from infeed.cursor import Shard, is_of_other_algorithm
from infeed.prefetch.feed_options import FeedOptions
from infeed.prefetch.feed_plan import FeedPlan, plan_feed
from infeed.run import Run
from infeed.shared.errors import FingerprintError, PipelineNotFoundError
from infeed.shared.spec import PipelineSpec
from infeed.transport import Transport


def served_plan(transport: Transport, pipeline: str, options: FeedOptions) -> FeedPlan:
    """Returns the plan of the feed of a pipeline, or of steps of an amended run. Raises what
    `infeed.connect` raises."""
    cursor = options.cursor
    if options.steps is None or cursor is None:
        return plan_feed(transport.get_pipeline(pipeline, options.timeout), options)
    run = Run.of(cursor).up_to(*options.steps)
    assert run.cursor is not None
    size, ranks = run.sizes(options.steps[0])
    options = replace(
        options,
        batch_size=options.batch_size or size,
        shard=options.shard or Shard(0, ranks or 1),
    )
    if not run.lineage:
        return plan_feed(transport.get_pipeline(pipeline, options.timeout), options)
    spec = find_pipeline(transport, pipeline, run.cursor.fingerprint, options.timeout)
    return plan_feed(spec, replace(options, state=replace(run.cursor, pipeline=spec.name)))


def find_pipeline(
    transport: Transport, name: str, fingerprint: str, timeout: float
) -> PipelineSpec:
    """Returns the pipeline of a fingerprint, whatever its name; `name` is tried first. Raises
    `FingerprintError` if there is none."""
    served = ""
    try:
        spec = transport.get_pipeline(name, timeout)
        if spec.fingerprint == fingerprint:
            return spec
        served = f" ({name!r} has {spec.fingerprint})"
    except PipelineNotFoundError:
        pass
    remedy = "serve that definition too, under any name"
    for spec in transport.list_pipelines(timeout):
        if is_of_other_algorithm(fingerprint, spec.fingerprint):
            remedy = "that infeed keyed its draws otherwise: ask servers of its version"
        if spec.fingerprint == fingerprint:
            return transport.get_pipeline(spec.name, timeout)  # a list has no names of classes
    raise FingerprintError(
        f"{transport.target}: no pipeline has the fingerprint {fingerprint}, with which these "
        f"steps of the run of {name!r} were made{served}; {remedy}",
        pipeline=name,
        expected=fingerprint,
    )
