"""Feed: iterator over the batches of one rank."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from infeed.batch import Batch
from infeed.cursor import Shard
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.prefetcher import Prefetcher
from infeed.prefetch.ready_batches import EndOfFeed, ReadyItem
from infeed.shared.arguments import check_integer, check_seconds, refuse_copy
from infeed.shared.errors import FeedClosedError, StallError
from infeed.shared.pytree import register_with_jax
from infeed.shared.spec import FinishTransform, Guarantee, PipelineSpec, Spec
from infeed.stats import Stats
from infeed.wire.received import ReceivedBatch

log = logging.getLogger(__name__)

STALL_WARNING_INTERVAL_SECONDS = 20.0
"""Seconds to wait for a batch before a warning is logged; doubles with each further warning."""


class Feed(Iterator[Batch]):
    """Iterates over the batches of one rank, in order, each once.

    Call `close`, or use a `with` statement. A feed belongs to the process that opened it and raises
    `FeedClosedError` after a fork: start workers with `spawn` and connect in each.
    """

    spec: PipelineSpec
    """The pipeline's spec from the server: name, `sample_count`, `fingerprint` and more."""
    element_spec: Spec
    """Name, data type and shape of each field of one sample, without the slots dimension."""
    classes: Mapping[str, tuple[str, ...]]
    """Class names by field; a class's number is the index of its name."""
    pending_transforms: tuple[FinishTransform, ...]
    """The finish transforms still to be applied to each batch, under `finish="none"`."""
    guarantee: Guarantee
    """The guarantee of order, delivery and resuming."""
    batch_size: int
    """Slots of every batch."""
    steps: int | None
    """Total number of batches in the feed; None if endless or unknown."""
    shard: Shard
    """Rank and world size."""
    endless: bool
    """Whether the feed never ends: neither `epochs` nor `steps` was given. For adapters."""
    empty: Mapping[str, float]
    """The option `empty`: nonzero values of fields in empty slots. For adapters."""

    def __init__(
        self,
        prefetcher: Prefetcher,
        plan: FeedPlan,
        connect_again: Callable[[], Feed] | None = None,
    ) -> None:
        """Starts the prefetcher. `connect_again` calls `connect` with the same arguments."""
        self.spec, self.element_spec = plan.spec, plan.element_spec
        self.classes, self.guarantee = plan.spec.classes, plan.spec.guarantee
        self.pending_transforms, self.empty = plan.pending_transforms, plan.empty
        self.batch_size = plan.contract.batch_size
        self.steps, self.shard = plan.shard_plan.steps, plan.shard_plan.shard
        self.endless = not plan.contract.opening.epochs and plan.options.steps is None
        self._plan = plan
        self._ready = prefetcher.ready
        self._connect_again = connect_again
        self._prefetcher = prefetcher
        self._shard_plan = plan.shard_plan
        """The feed plan's shard plan, with the end of the data once a batch has revealed it."""
        self._recorder = prefetcher.recorder
        self._tracer = prefetcher.tracer
        self._pid = os.getpid()
        self._closed = False
        self._ended = False
        """Whether `next` has raised `StopIteration`."""
        self._warned_of_state = False
        # A feed dropped without close() must not keep its threads running. At interpreter exit it
        # is left alone: stopping it would raise an error in a daemon thread that reads it.
        weakref.finalize(self, prefetcher.stop).atexit = False
        prefetcher.start()

    @property
    def has_next(self) -> bool:
        """Whether `next` would return or raise without waiting. For adapters."""
        return bool(self._ready.items)

    @property
    def steps_left(self) -> int | None:
        """Batches not yet delivered; None if endless or unknown."""
        return None if self.steps is None else self.steps - self.delivered

    @property
    def delivered(self) -> int:
        """Batches delivered so far."""
        return self._ready.progress.steps

    @property
    def ends_empty(self) -> bool:
        """Whether the data ends before this rank's last batch, whose slots are then all empty. For
        adapters."""
        steps = self.steps or 0
        return steps > 0 and not self._plan.shard_plan.batch_range(steps - 1)[1]

    @property
    def first_step(self) -> int:
        """Steps of the run before this feed.

        A cursor of 0.1 does not count steps: its samples are divided by this feed's step size.
        """
        plan = self._plan
        return (plan.options.steps or (plan.course.steps_at(plan.shard_plan.base),))[0]

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps in an epoch, over all ranks, for Keras' `fit`; None if unknown.

        It counts whole steps, and a padded one if the feed has one epoch. It is 1 if a step is
        larger than an epoch.
        """
        return self._plan.steps_per_epoch

    @property
    def may_mask(self) -> bool:
        """Whether a batch can have empty slots. For adapters."""
        # A dataset of batches may end every epoch with a partial batch.
        ends = bool(self._plan.contract.opening.epochs) or bool(self.spec.batch_stride)
        padded = ends and self._plan.shard_plan.remainder == "pad"
        return padded or self.spec.on_error == "mask"

    def __len__(self) -> int:
        """Returns `steps`; raises `TypeError` if the feed is endless or its end is unknown."""
        return self._plan.length()

    def __bool__(self) -> bool:
        """Returns True, even for a feed without batches or without a length."""
        return True

    def __iter__(self) -> Feed:
        """Returns the feed itself. A second loop continues after the last delivered batch; after
        the end it raises `FeedClosedError`."""
        if self._ended:
            raise FeedClosedError(
                f"the feed of {self.spec.name!r} has ended: all of its batches were delivered. "
                "Connect again for each pass, or once with epochs=n for n passes in one loop"
            )
        return self

    def next(self, timeout: float | None = None) -> Batch:
        """Returns the next batch; raises `StopIteration` after the last, `StallError` at a timeout.

        No batch is lost after a `StallError`, or an exception from a signal handler such as
        `KeyboardInterrupt`: the next call returns it. Also raises `FeedClosedError`, and the error
        that ended the feed, once all earlier batches are delivered.
        """
        requested_at = time.monotonic()
        if timeout is not None:
            timeout = check_seconds("timeout", timeout, endless=True)
        register_with_jax(Batch)  # JAX may have been imported after the last batch was received
        while True:
            ready = self._wait_for_item(requested_at, timeout)
            item = ready.item
            if self._tracer is not None and not isinstance(item, ReceivedBatch):
                self._tracer.close()
            if isinstance(item, BaseException):
                raise item
            if item.position_count is not None:
                self._shard_plan = replace(self._shard_plan, position_count=item.position_count)
            if isinstance(item, EndOfFeed):
                self._ended = True
                raise StopIteration
            received_at = time.monotonic()
            self._recorder.record(requested_at, received_at, ready.after)
            if self._tracer is not None:
                self._tracer.on_taken(item.span, received_at - requested_at)
            batch, items, number = item.batch, self._ready.items, ready.before.steps
            self._ready.announce(number)
            try:
                # Takes the batch. No call may follow it: see ready_batches.py.
                del items[number]
                return batch
            except KeyError:  # another thread has taken it
                pass

    __next__ = next  # noqa: A003 - this class's `next`, without a frame between it and the loop

    def state(self, steps: int | None = None) -> dict[str, Any]:
        """Returns the cursor after the last delivered batch, as a JSON-serialisable dict.

        `connect(..., state=...)` resumes there, with any world size. If the pipeline cannot resume,
        the cursor has `"resumable": False` and the first call logs a warning. `steps` gives the
        cursor after that number of batches, for a consumer that reads ahead.
        """
        if steps is not None:
            steps = check_integer("steps", steps, 0, self.delivered)
        position = self._shard_plan.position_after(self.delivered if steps is None else steps)
        cursor = self._plan.cursor_at(position)
        if not cursor.resumable and not self._warned_of_state:
            self._warned_of_state = True
            log.warning(
                "%s guarantees no order, so no run can resume from this state: after restarting "
                "the trainer, connect without state",
                self.spec.name,
            )
        return cursor.to_json()

    def again(self) -> Feed:
        """Opens another feed with the same arguments, beginning where this one began."""
        self._check_open()
        assert self._connect_again is not None
        return self._connect_again()

    def stats(self) -> Stats:
        """Returns the statistics so far, waits and rates; print them for a summary."""
        return self._prefetcher.stats(has_ended=self._ended, closed=self._closed)

    def follow(self, earlier: Stats) -> None:
        """Adds the statistics of earlier feeds to `stats`, where each pass has a feed; before the
        first batch. For adapters."""
        self._recorder.earlier = earlier if earlier.steps else None

    def close(self) -> None:
        """Ends the feed within two seconds, even if another thread waits in `next`."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._prefetcher.close()

    __reduce__ = refuse_copy

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        of = "" if self.steps is None else f" of {self.steps}"
        closed = ", closed" if self._closed else ""
        return (
            f"Feed({self.spec.name!r} at {self._prefetcher.target}, batch_size={self.batch_size}, "
            f"rank {self.shard.rank} of {self.shard.world_size}, {self.delivered}{of} delivered"
            f"{closed})"
        )

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise FeedClosedError(
                f"the feed was opened by process {self._pid} and cannot be used in process "
                f'{os.getpid()} after a fork; start workers with the method "spawn" and connect in '
                "each of them"
            )
        if self._closed:
            raise FeedClosedError(f"the feed of {self.spec.name!r} was closed; connect again")

    def _wait_for_item(self, requested_at: float, timeout: float | None) -> ReadyItem:
        """Waits for the next item; without a timeout, logs a warning about each long wait."""
        warn_at = requested_at + STALL_WARNING_INTERVAL_SECONDS
        deadline = math.inf if timeout is None else requested_at + timeout
        while True:
            self._check_open()
            now = time.monotonic()
            self._recorder.waiting_since = requested_at
            if (item := self._ready.first(min(warn_at, deadline) - now)) is not None:
                return item
            now = time.monotonic()
            if now >= deadline:
                self._recorder.waiting_since = None
                raise self._stall_error(timeout or 0.0)
            if now >= warn_at:
                stall = self._stall_error(warn_at - requested_at)
                log.warning("%s; still waiting", stall)
                warn_at += warn_at - requested_at

    def _stall_error(self, seconds: float) -> StallError:
        server, reason = self._prefetcher.blocking_server()
        start, _ = self._plan.shard_plan.batch_range(self._ready.progress.steps)
        return StallError(
            f"{server}: position {start} of {self.spec.name!r}: no batch within {seconds:g} s; "
            f"{reason}",
            server=server,
            position=start,
            seconds=f"{seconds:g}",
        )
