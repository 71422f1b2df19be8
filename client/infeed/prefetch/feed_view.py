"""View of a feed: the properties of its plan, and how far it is."""

from __future__ import annotations

from infeed.cursor import Shard
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.ready_batches import ReadyBatches
from infeed.shared.spec import FinishTransform, Guarantee, PipelineSpec, Spec


class FeedView:
    """What is known of a feed without taking a batch."""

    def __init__(self, plan: FeedPlan, ready: ReadyBatches) -> None:
        self._plan = plan
        self._ready = ready
        self._spec = plan.spec

    @property
    def spec(self) -> PipelineSpec:
        """The spec that the server sent: name, `sample_count`, `fingerprint` and more."""
        return self._spec

    @property
    def element_spec(self) -> Spec:
        """Name, data type and shape of each field of one sample, without the slots dimension."""
        return self._plan.element_spec

    @property
    def pending_transforms(self) -> tuple[FinishTransform, ...]:
        """The finish transforms that the batches still need, with `finish="none"`."""
        return self._plan.pending_transforms

    @property
    def has_next(self) -> bool:
        """Whether `next` would return, or raise, without a wait."""
        return bool(self._ready.items)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of order, delivery and resume."""
        return self._spec.guarantee

    @property
    def batch_size(self) -> int:
        """Slots of every batch."""
        return self._plan.contract.batch_size

    @property
    def steps(self) -> int | None:
        """Batches from the feed's beginning to its end; None if endless or unknown."""
        return self._plan.shard_plan.steps

    @property
    def steps_left(self) -> int | None:
        """Batches that are still to be delivered; None if endless or unknown."""
        return None if self.steps is None else self.steps - self.delivered

    @property
    def delivered(self) -> int:
        """Batches that were delivered."""
        return self._ready.progress.steps

    @property
    def first_step(self) -> int:
        """Steps of the run before this feed, 0 if it began at position 0."""
        return self._plan.shard_plan.base // self._plan.shard_plan.global_stride

    @property
    def shard(self) -> Shard:
        """Rank and world size."""
        return self._plan.shard_plan.shard

    @property
    def endless(self) -> bool:
        """Whether the feed has no end, as without `epochs`."""
        return not self._plan.open_message.epochs

    @property
    def steps_per_epoch(self) -> int | None:
        """Whole steps in an epoch, over all ranks, for Keras' `fit`; None if unknown."""
        count = self._spec.sample_count
        return None if count is None else count // self._plan.shard_plan.global_stride

    @property
    def may_mask(self) -> bool:
        """Whether a batch can have empty slots."""
        # A data set whose elements are batches may end every epoch with a partial batch.
        ends = bool(self._plan.open_message.epochs) or bool(self._spec.batch_stride)
        padded = ends and self._plan.shard_plan.remainder == "pad"
        return padded or self._spec.on_error == "mask"
