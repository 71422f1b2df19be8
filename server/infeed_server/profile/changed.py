"""The measurement of proposed changes, on the samples that the pipeline was measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from infeed.shared.spec import Spec
from infeed_server.engines import cgroup
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.python_maps import split_python_maps
from infeed_server.profile.changes import (
    Proposal,
    Sizes,
    cache_prefix,
    crop_first,
    finish_last,
    numbered,
)
from infeed_server.profile.clock import Clock
from infeed_server.profile.figures import Change, Profile
from infeed_server.profile.progress import OnStep, ignore_step
from infeed_server.profile.samples import KeptSamples, function_of
from infeed_server.profile.stages import batch_stage, cache_stage, encode_stage, transform_stages
from infeed_server.sources import Source
from infeed_server.sources.base import Columns
from infeed_server.transforms import Cache, DecodeImage
from infeed_server.transforms.base import Step, Transform
from infeed_server.transforms.decode_and_crop import fuse_decode_and_crop
from infeed_server.transforms.finish_placement import plan_finish

_CACHE_DIVISOR = 2
"""A cache may take the memory divided by this: the rest is for batches and other pipelines."""


@dataclass(frozen=True)
class Base:
    """A pipeline as it was measured: `kept[i]` are the samples behind the first i steps."""

    profile: Profile
    plan: IndexedPlan
    columns: Columns
    kept: Mapping[int, KeptSamples]
    clock: Clock
    seconds: float


def measured_changes(base: Base, on_step: OnStep = ignore_step) -> Iterator[Change]:
    """Yields each change that fits the pipeline, with its figures."""
    for proposal in _proposals(base):
        on_step(f"a change that may help: {proposal.kind.replace('_', ' ')}")
        yield _measure(base, proposal)


def _proposals(base: Base) -> Iterator[Proposal]:
    transforms, source = base.plan.definition.transforms, base.plan.source
    yield from crop_first(transforms, _image_sizes(base))
    maps, steps = split_python_maps(numbered(transforms))
    stages = sample_graph.trace(source, steps)
    host = {ordinal for ordinal, _ in plan_finish(steps, stages)[0]}
    yield from finish_last(transforms, host)
    if len(maps) + len(steps) == len(transforms):  # there is no cache yet
        unknown: Mapping[str, tf.TensorSpec] = {"": tf.TensorSpec(None, tf.string)}
        specs = [*(unknown for _ in maps), *stages]
        limit = cgroup.memory_bytes() // _CACHE_DIVISOR
        yield from cache_prefix(transforms, specs, len(source), limit)


def _image_sizes(base: Base) -> dict[int, Sizes]:
    """Returns the sizes behind each `decode_image` that is a step of its own, by its ordinal."""
    return {
        ordinal: base.kept[number].image_sizes(transform.field)
        for number, (ordinal, transform) in enumerate(base.plan.steps, start=1)
        if isinstance(transform, DecodeImage)
    }


def _measure(base: Base, proposal: Proposal) -> Change:
    """Measures what a server would do for a sample after the change."""
    profile, source, slots = base.profile, base.plan.source, base.profile.batch_size
    cached = next(
        (index for index, each in enumerate(proposal.transforms) if isinstance(each, Cache)), 0
    )
    steps, wire = _placed(source, proposal.transforms, cached)
    same = _common(steps, base.plan.steps)
    first, behind = base.kept[same], steps[same:]
    columns = base.columns
    if cached:
        for step in [step for step in behind if step[0] < cached]:
            first, behind = first.after(function_of(step)), behind[1:]
        columns = first.batch(slots)
        around = cache_stage(base.clock, columns, slots, base.seconds).cost.cpu
    else:
        # Measured once, so that what does not change is equal in both figures.
        unchanged = {ordinal for ordinal, _ in steps[:same]}
        around = sum(
            each.cost.cpu
            for each in profile.stages
            if each.kind in ("read", "map", "parse") or each.ordinal in unchanged
        )
    last = [first]
    stages = list(
        transform_stages(
            base.clock,
            first,
            behind,
            cores=profile.cores,
            seconds=base.seconds,
            on_samples=lambda _, kept: last.__setitem__(0, kept),
        )
    )
    arrays, size = last[0].batch(slots), last[0].bytes
    stages.append(
        batch_stage(
            base.clock,
            columns,
            wire,
            slots,
            size,
            cores=profile.cores,
            seconds=base.seconds,
        )
    )
    stages.append(encode_stage(base.clock, wire, arrays, size, base.seconds))
    cpu = around + sum(stage.cost.cpu for stage in stages)
    return Change(proposal.kind, proposal.text, cpu, size)


def _common(steps: Sequence[Step], others: Sequence[Step]) -> int:
    """Returns how many steps at the beginning are equal."""
    pairs = zip(steps, others, strict=False)
    return next(
        (number for number, (one, other) in enumerate(pairs) if one != other),
        min(len(steps), len(others)),
    )


def _placed(
    source: Source, transforms: Sequence[Transform], cached: int
) -> tuple[list[Step], Spec]:
    """Returns the steps of the server and the fields on the wire, as a plan has them."""
    _, steps = split_python_maps(numbered(transforms))
    before = [step for step in steps if step[0] < cached]
    stages = sample_graph.trace(source, steps)[len(before) :]
    host, _ = plan_finish(steps[len(before) :], stages)
    wire = sample_graph.field_specs(sample_graph.trace(source, [*before, *host])[-1])
    return [*before, *fuse_decode_and_crop(host)], wire
