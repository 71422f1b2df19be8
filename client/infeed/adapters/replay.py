"""Headspace: how much faster a training would be with an infinitely fast input.

    with infeed.connect(target, "photos") as feed:
        for batch in itertools.islice(feed, 200):
            train(batch)
        with infeed.headspace(feed) as fast:
            for batch in fast:
                step(batch)
        print(fast.result())

It replays batches that a connection of its own has read before: nothing is taken from the feed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.arguments import check_integer, check_seconds
from infeed.shared.errors import InvalidRequestError
from infeed.shared.report import TrainerReport

_MAX_BATCHES = 64

_QUIET_SECONDS = 0.5
"""Seconds without a new batch after which the prefetch is taken for complete: less can begin while
the feed still receives."""


@dataclass(frozen=True)
class Headspace:
    """The result of a replay; `str` is one line. Times are in seconds, and means of the steps."""

    step_seconds: float
    """A step with an infinitely fast input."""
    current_step_seconds: float | None
    """A step with its wait, before the replay; None if the feed had no two steps."""
    wait_seconds: float | None
    """The wait in it."""
    batches: int
    """Batches that were replayed."""
    steps: int
    """Steps of the replay that were measured."""

    def __str__(self) -> str:
        fast = f"{1000 * self.step_seconds:.2f} ms"
        replay = f"{self.steps} steps over {self.batches} batches"
        if self.current_step_seconds is None or self.wait_seconds is None:
            return (
                f"a step takes {fast} with an infinitely fast input ({replay}); to compare, take "
                "batches of the feed first"
            )
        speed_up = self.current_step_seconds / self.step_seconds if self.step_seconds else 0
        return (
            f"a step takes {1000 * self.current_step_seconds:.2f} ms, of which "
            f"{1000 * self.wait_seconds:.2f} ms are waits; with an infinitely fast input it would "
            f"take {fast}: {speed_up:.2f} times as fast ({replay})"
        )


class Replay:
    """Iterates over the same batches, again and again, and measures the steps. Not thread-safe."""

    def __init__(self, feed: Feed, batches: int, steps: int, timeout: float) -> None:
        self._feed = feed
        self._batches, self._steps, self._timeout = batches, steps, timeout
        self._before = TrainerReport()
        self._kept: list[Batch] = []
        self._count = 0
        self._times: list[float] = []
        """When each measured step was asked for, and the end of the last one."""

    def __enter__(self) -> Replay:
        """Reads the batches, and waits until the feed has prefetched all that it may.

        From then on it receives nothing, and its servers make nothing for it: what they need of
        this machine, they would not need with an infinitely fast input.

        Raises `InvalidRequestError` for a feed without batches, and as `infeed.connect` and `next`.
        """
        self._before = self._feed.stats().report
        with self._feed.again() as other:
            self._kept = list(islice(iter(lambda: other.next(self._timeout), None), self._batches))
        self._count = len(self._kept)
        if not self._kept:
            raise InvalidRequestError(f"the feed of {self._feed.spec.name!r} has no batches")
        deadline = time.monotonic() + self._timeout
        size, quiet_at = -1, deadline
        while time.monotonic() < min(quiet_at, deadline):
            if (now := self._feed.stats().prefetched_bytes) != size:
                size, quiet_at = now, time.monotonic() + _QUIET_SECONDS
            time.sleep(_QUIET_SECONDS / 10)
        return self

    def __exit__(self, *_: object) -> None:
        self._kept = []

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches for the steps.

        As many steps as batches were asked for come before those that are measured: the first ones
        can be slower. Their number is the same on every rank, whose steps may wait for each other.
        """
        if not self._kept:
            raise InvalidRequestError("headspace: enter it with `with`, and loop over it there")
        self._times = []
        for number in range(self._batches + self._steps):
            if number >= self._batches:
                self._times.append(time.monotonic())
            kept = self._kept[number % len(self._kept)]
            yield kept.replaced(kept)
        self._times.append(time.monotonic())

    def result(self) -> Headspace:
        """Returns the step times. Raises `InvalidRequestError` before the first measured step."""
        steps = len(self._times) - 1
        if steps < 1:
            raise InvalidRequestError(
                "headspace has no result yet: its loop has made no step after the first "
                f"{self._batches}, which are not measured"
            )
        before = self._before
        compares = before.steps >= 2  # fewer have no step time
        return Headspace(
            step_seconds=(self._times[-1] - self._times[0]) / steps,
            current_step_seconds=before.seconds / before.steps if compares else None,
            wait_seconds=before.wait_seconds / before.steps if compares else None,
            batches=self._count,
            steps=steps,
        )


def headspace(feed: Feed, batches: int = 8, steps: int = 50, timeout: float = 60.0) -> Replay:
    """Returns batches to replay in `with`, to measure the steps with an infinitely fast input.

    feed       a feed of `connect`, of which the training has taken some batches
    batches    batches to replay, 1 to 64; fewer if the feed has fewer
    steps      steps to measure, after as many as `batches`, which are not measured
    timeout    seconds to wait for a batch, and for the prefetch to be complete; then it begins
               without

    The batches are the first ones of the feed's run, by a connection of their own: the feed and its
    cursor stay where they are. The steps are the training's own, so run them on a copy of the
    model, or before a checkpoint is loaded. A step that returns before its accelerator is done must
    wait for it, as a training does that reads its loss.
    """
    if not isinstance(feed, Feed):
        raise InvalidRequestError(
            f"headspace needs the feed that infeed.connect returns, not {type(feed).__name__}"
        )
    check_integer("batches", batches, 1, _MAX_BATCHES)
    check_integer("steps", steps, 1)
    return Replay(feed, batches, steps, check_seconds("timeout", timeout))
