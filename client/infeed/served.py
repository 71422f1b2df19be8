"""Served pipeline: what a training can know of its data before it opens a feed."""

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
    """The sizes, fields and classes of a pipeline, as a feed with the same options has them."""

    pipeline: str
    """Name of the pipeline."""
    samples: int | None
    """Samples of an epoch, over all ranks; None if unknown until they have been read."""
    steps: int | None
    """Steps of a feed with these options, from its beginning to its end; None if endless or
    unknown."""
    steps_per_epoch: int | None
    """Steps in an epoch, as `Feed.steps_per_epoch` has them."""
    batch_size: int
    """Slots of each batch of a rank."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shape of each field in a batch, slots first."""
    types: Mapping[str, str]
    """Data type of each field, by NumPy's name; `bytes` for byte strings."""
    classes: Mapping[str, tuple[str, ...]]
    """The name of each class by its number, of each field whose classes have names."""
    parts: Mapping[str, int]
    """The samples of each part of a mixture, by name; empty without parts."""
    fingerprint: str
    """Hash of everything that changes bits."""
    guarantee: Guarantee
    """Order, delivery and resume."""


@document_options
def spec(target: str, pipeline: str, **options: Unpack[ConnectOptions]) -> Spec:
    """Returns the sizes, fields and classes of a pipeline, without reading a batch.

    Takes the arguments of `infeed.connect`, and raises what it raises: so `batch_size`, `shard` and
    `epochs` give the steps that such a feed has.

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
