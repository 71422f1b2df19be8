"""Feed view: what is known of a feed without taking a batch."""

from __future__ import annotations

from collections.abc import Mapping

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
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """The name of each class by its number, of each field whose classes have names."""
        return self._spec.classes

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
    def ends_empty(self) -> bool:
        """Whether the data end before this rank's last batch, so that all its slots are empty."""
        steps = self.steps or 0
        return steps > 0 and not self._plan.shard_plan.batch_range(steps - 1)[1]

    @property
    def delivered(self) -> int:
        """Batches that were delivered."""
        return self._ready.progress.steps

    @property
    def first_step(self) -> int:
        """Steps of the run before this feed, 0 if it began at position 0."""
        plan = self._plan.shard_plan
        for last in self._plan.lineage[-1:]:
            return last.step + (plan.base - last.start) // plan.global_stride
        return plan.base // plan.global_stride

    @property
    def shard(self) -> Shard:
        """Rank and world size."""
        return self._plan.shard_plan.shard

    @property
    def endless(self) -> bool:
        """Whether the feed has no end, as without `epochs` and `steps`."""
        return not self._plan.open_message.epochs and self._plan.options.steps is None

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps in an epoch, over all ranks, for Keras' `fit`: whole ones, and the padded one of a
        feed of one epoch; 1 if a step has more than an epoch; None if unknown."""
        if (count := self._spec.sample_count) is None:
            return None
        epochs, plan = self._plan.options.epochs or 1, self._plan.shard_plan
        padded = bool(self._plan.options.epochs) and plan.remainder == "pad"
        steps, rest = divmod(epochs * count, plan.global_stride)
        return max(1, (steps + (padded and rest > 0)) // epochs)

    @property
    def may_mask(self) -> bool:
        """Whether a batch can have empty slots."""
        # A data set whose elements are batches may end every epoch with a partial batch.
        ends = bool(self._plan.open_message.epochs) or bool(self._spec.batch_stride)
        padded = ends and self._plan.shard_plan.remainder == "pad"
        return padded or self._spec.on_error == "mask"

    @property
    def empty(self) -> Mapping[str, float]:
        """The option `empty`: the values of fields in empty slots, where they are not zero."""
        return self._plan.empty
