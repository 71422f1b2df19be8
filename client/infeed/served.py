"""Served pipeline: what a training job can learn about its data before it opens a feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infeed.client import check_options, fetch_plan
from infeed.prefetch.feed_options import document_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from infeed.client import ConnectOptions
    from infeed.shared.spec import Guarantee


@dataclass(frozen=True)
class Spec:
    """The sizes, fields and classes that a feed of a pipeline with the same options would have."""

    pipeline: str
    """Name of the pipeline."""
    samples: int | None
    """Samples of an epoch, over all ranks; None if unknown until they have been read."""
    steps: int | None
    """Total steps of a feed with these options; None if endless or unknown."""
    steps_per_epoch: int | None
    """Steps in an epoch, as in `Feed.steps_per_epoch`."""
    batch_size: int
    """Slots of each rank's batch."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shape of each field in a batch, slots first."""
    types: Mapping[str, str]
    """Data type of each field, by NumPy's name; `bytes` for byte strings."""
    classes: Mapping[str, tuple[str, ...]]
    """Class names by field; a class's number is the index of its name."""
    parts: Mapping[str, int]
    """Number of samples in each part of a mixture, by name; empty without parts."""
    fingerprint: str
    """Hash of everything that changes bits."""
    guarantee: Guarantee
    """The guarantees of order, delivery and resuming."""


@document_options
def spec(target: str, pipeline: str, **options: Unpack[ConnectOptions]) -> Spec:
    """Returns the sizes, fields and classes of a pipeline, without reading a batch.

    Takes the arguments of `infeed.connect` and raises what it raises; `steps` counts the steps of a
    feed with that `batch_size`, `shard` and `epochs`.

    target             address of a server, as for `infeed.connect`
    pipeline           name of the pipeline; the error for an unknown name lists the known ones
    OPTIONS
    """
    plan = fetch_plan(target, pipeline, check_options(options, spec))
    slots = plan.contract.batch_size
    return Spec(
        pipeline=plan.spec.name,
        samples=plan.spec.sample_count,
        steps=plan.shard_plan.steps,
        steps_per_epoch=plan.steps_per_epoch,
        batch_size=slots,
        shapes={field.name: (slots, *field.shape) for field in plan.element_spec},
        types={field.name: field.data_type for field in plan.element_spec},
        classes=plan.spec.classes,
        parts=plan.spec.parts,
        fingerprint=plan.spec.fingerprint,
        guarantee=plan.spec.guarantee,
    )
