"""Passes of a dataset: where each begins and ends, its length, and its feed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infeed.client import check_target, connect, fetch_plan
from infeed.cursor import MAX_POSITION, Cursor, Shard
from infeed.feed import Feed
from infeed.prefetch.feed_options import FeedOptions
from infeed.shared.errors import CursorError, FeedClosedError, InvalidRequestError
from infeed.shared.spec.segment import Lineage, end_of_epochs, epoch_at
from infeed_frameworks.torch.shard import ShardChoice

if TYPE_CHECKING:
    from infeed.client import ConnectOptions
    from infeed.prefetch.feed_plan import FeedPlan
    from infeed.shared.spec import PipelineSpec

_TIMEOUTS = ("timeout", "reconnect_timeout")


@dataclass(frozen=True)
class Pass:
    """A position, and the first epoch after its pass, counted from the pipeline's first.

    Without a cursor it is position 0. Without `until_epoch` the pass is endless, or has as many
    epochs as each pass of the dataset, from the epoch of the cursor.
    """

    cursor: Cursor | None = None
    until_epoch: int | None = None

    @classmethod
    def from_json(cls, state: Mapping[str, Any] | Cursor | None) -> Pass:
        """Parses a result of `to_json`, a cursor, or None: the beginning. Raises `CursorError`."""
        if not isinstance(state, Mapping) or "until_epoch" not in state:
            return cls(None if state is None else Cursor.from_json(state))
        until, cursor = state["until_epoch"], state.get("cursor")
        if until is not None and not (type(until) is int and until > 0):
            raise CursorError(
                f"until_epoch must be 1 or more, or None, not {until!r}; give a result of "
                "FeedDataset.state_dict()"
            )
        return cls() if cursor is None else cls(Cursor.from_json(cursor), until)

    def to_json(self) -> dict[str, Any]:
        cursor = None if self.cursor is None else self.cursor.to_json()
        return {"cursor": cursor, "until_epoch": self.until_epoch}


class Passes:
    """The passes of one dataset, with the options of `infeed.connect`: `epochs` epochs each."""

    def __init__(self, target: str, pipeline: str, options: ConnectOptions) -> None:
        if options.get("steps") is not None:
            raise InvalidRequestError(
                "FeedDataset reads passes and does not take steps; infeed.torch.connect does"
            )
        check_target(target, options)
        self.target, self.pipeline, self.options = target, pipeline, options
        self.epochs = options.get("epochs")
        self.shard = ShardChoice(options.get("shard"))
        self._plan: FeedPlan | None = None
        self._is_connected = False

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy in another process needs."""
        return {**vars(self), "_plan": None}

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """The feed's `classes`, which need no stream."""
        return self._fetched_plan().spec.classes

    def located(self, at: Pass) -> Pass:
        """Returns a pass with its end."""
        if self.epochs is None:
            return replace(at, until_epoch=None)
        if at.until_epoch is not None:
            return at
        epoch = 0
        if at.cursor is not None and at.cursor.position:
            samples = self._fetched_plan().spec.sample_count or MAX_POSITION
            epoch = epoch_at(self._lineage(at), at.cursor.position, samples)
        return replace(at, until_epoch=epoch + self.epochs)

    def of_epoch(self, number: int, at: Pass) -> Pass:
        """Returns a pass by its number, counted from 0, from where the dataset is: before its first
        batch, earlier passes count as taken. Raises as `after` does."""
        epochs, samples, lineage = self.epochs or 0, self._samples(), self._lineage(at)
        begin, until = end_of_epochs(lineage, number * epochs, samples), (number + 1) * epochs
        if at.cursor is not None:
            return Pass(at.cursor.moved_to(begin), until)
        plan, size = self._fetched_plan(), self.shard.for_length()
        count = end_of_epochs(lineage, epochs, samples)
        first = replace(plan.shard_plan, shard=Shard(0, size), position_count=count)
        cursor = replace(plan.cursor_at(begin), world_size=size, course=first.course)
        return Pass(self.stated(cursor, plan.spec), until)

    def after(self, done: Pass) -> Pass:
        """Returns the pass after one that has ended at a position. Raises `FeedClosedError`."""
        assert done.cursor is not None
        samples = self._samples()
        # The samples of a remainder are left out; each pass begins with its first epoch.
        lineage, position = self._lineage(done), done.cursor.position
        epoch = max(done.until_epoch or 0, epoch_at(lineage, position - 1, samples) + 1)
        begin = end_of_epochs(lineage, epoch, samples)
        return Pass(done.cursor.moved_to(begin), epoch + (self.epochs or 0))

    def stated(self, cursor: Cursor, spec: PipelineSpec) -> Cursor:
        """Returns a cursor that tells where the passes after the first of its course begin, unless
        their epochs have several lengths."""
        course, lineage = cursor.course, cursor.segments or spec.lineage
        if not (self.epochs and spec.sample_count and course and course.end) or course.length:
            return cursor
        if lineage and lineage[-1].epoch_end > course.end:
            return cursor
        return replace(cursor, course=replace(course, length=self.epochs * spec.sample_count))

    def connect(self, at: Pass) -> Feed:
        """Opens the feed of a located pass. Raises as `infeed.connect` does."""
        options = self.options.copy()
        options["state"], options["epochs"] = at.cursor, at.until_epoch
        options["shard"] = self.shard.for_batches()
        if self._is_connected:  # a server that is gone between passes was lost
            given: Any = {k: v for k, v in self.options.items() if k in _TIMEOUTS}
            options["timeout"] = max(vars(FeedOptions(**given))[name] for name in _TIMEOUTS)
        feed = connect(self.target, self.pipeline, **options)
        self._is_connected = True
        return feed

    def length(self, at: Pass) -> int:
        """Returns the batches of a whole pass, also after a resume within it; raises `TypeError` if
        they are endless or unknown."""
        self._fetched_plan().length()  # raises
        return self._steps(self._begin(at), at)

    def number(self, at: Pass) -> int:
        """Returns the number, from 0, of the pass that goes on at a position, or begins there if
        no batch of the earlier one is left."""
        end = self.located(at).until_epoch
        if end is None or self.epochs is None:
            raise InvalidRequestError("passes have numbers only with epochs=...; give their length")
        begin = self._begin(at)
        base = begin if at.cursor is None else at.cursor.position
        is_over = base > begin and self._steps(base, at) == 0
        return end // self.epochs - 1 + is_over

    def _begin(self, at: Pass) -> int:
        """Returns the position at which a pass with an end begins."""
        end = self.located(at).until_epoch
        assert self.epochs is not None
        assert end is not None
        return end_of_epochs(self._lineage(at), end - self.epochs, self._samples())

    def _steps(self, base: int, at: Pass) -> int:
        """Returns the batches from a position to the end of a pass."""
        end = self.located(at).until_epoch
        assert end is not None
        count = end_of_epochs(self._lineage(at), end, self._samples())
        shard = Shard(0, self.shard.for_length())
        plan = self._fetched_plan().shard_plan
        return replace(plan, base=base, shard=shard, position_count=count).steps or 0

    def _lineage(self, at: Pass) -> Lineage:
        """Returns the segments of the run, as far as they decide where its epochs end."""
        own = () if at.cursor is None else at.cursor.segments
        return own or self._fetched_plan().spec.lineage

    def _samples(self) -> int:
        """Returns the samples of an epoch; raises `FeedClosedError` if they are not known."""
        spec = self._fetched_plan().spec
        if not spec.sample_count or not spec.guarantee.can_resume:
            raise FeedClosedError(
                f"the dataset of {spec.name!r} has one pass, because its number of samples is "
                "unknown or they have no order; take all epochs in one iteration, or give "
                "restart=True to begin again with the first"
            )
        return spec.sample_count

    def _fetched_plan(self) -> FeedPlan:
        """Returns the plan of the first pass on one rank."""
        if self._plan is None:
            options = self.options.copy()
            options["state"] = options["shard"] = None
            self._plan = fetch_plan(self.target, self.pipeline, FeedOptions(**options))
        return self._plan
