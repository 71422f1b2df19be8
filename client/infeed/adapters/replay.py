"""Headspace: how much faster a training would be with an infinitely fast input.

    with infeed.connect(target, "photos") as feed:
        for batch in itertools.islice(feed, 200):
            train(batch)
        with infeed.headspace(feed) as fast:
            for batch in fast:
                step(batch)
        print(fast.result())

It replays batches that the feed has prefetched, while the feed keeps them: nothing is taken from
it. Its cursor stays where it is, and it delivers these batches afterwards, in order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from infeed.batch import Batch
from infeed.feed import Feed
from infeed.shared.arguments import check_integer, check_seconds
from infeed.shared.errors import InvalidRequestError
from infeed.shared.report import TrainerReport

_MAX_BATCHES = 64
_MIN_STEPS = 2


@dataclass(frozen=True)
class Headspace:
    """The result of a replay; `str` is one line. Times are in seconds."""

    step_seconds: float
    """Mean time of a step with an infinitely fast input."""
    current_step_seconds: float | None
    """Mean time of a step with its wait, before the replay; None if the feed had no two steps."""
    wait_seconds: float | None
    """The mean wait in it."""
    batches: int
    """Batches that were replayed."""
    steps: int
    """Steps of the replay that were measured."""

    @property
    def speed_up(self) -> float | None:
        """How many times as fast the training would be; None if that is unknown."""
        if self.current_step_seconds is None or not self.step_seconds:
            return None
        return self.current_step_seconds / self.step_seconds

    def to_json(self) -> dict[str, Any]:
        """Returns the result as values for `json.dumps`."""
        return {**asdict(self), "speed_up": self.speed_up}

    def __str__(self) -> str:
        fast = f"{1000 * self.step_seconds:.2f} ms"
        replay = f"{self.steps} steps over {self.batches} batches"
        if self.current_step_seconds is None or self.wait_seconds is None:
            return (
                f"a step takes {fast} with an infinitely fast input ({replay}); to compare, take "
                "batches of the feed first"
            )
        return (
            f"a step takes {1000 * self.current_step_seconds:.2f} ms, of which "
            f"{1000 * self.wait_seconds:.2f} ms are waits; with an infinitely fast input it would "
            f"take {fast}: {self.speed_up or 0:.2f} times as fast ({replay})"
        )


class Replay(Iterator[Batch]):
    """Iterates over kept batches, again and again, and measures the steps. Not thread-safe."""

    def __init__(self, feed: Feed, batches: int, steps: int, timeout: float) -> None:
        self._feed = feed
        self._wanted, self._steps, self._timeout = batches, steps, timeout
        self._before = TrainerReport()
        self._kept: list[Batch] = []
        self._count = 0
        self._requests = 0
        self._first_at = self._last_at = 0.0

    def __enter__(self) -> Replay:
        """Waits until the feed has prefetched all that it may, and copies the first batches.

        From then on it receives nothing, and its servers make nothing for it: what they need of
        this machine, they would not need with an infinitely fast input.

        Raises `InvalidRequestError` if it has none left, `StallError` if none comes in time, and
        the error that ends the feed.
        """
        prefetcher = self._feed._prefetcher
        self._before = prefetcher.reporter.report(has_ended=True)  # up to the last batch
        # Copies: a step may change its batch, and the feed still has to deliver these.
        self._kept = [
            each.replaced({name: array.copy() for name, array in each.items()})
            for each in prefetcher.peek(self._wanted, self._timeout)
        ]
        self._count = len(self._kept)
        return self

    def __exit__(self, *_: object) -> None:
        self._kept = []
        self._feed._prefetcher.ready.hold(0)

    def __iter__(self) -> Replay:
        return self

    def __next__(self) -> Batch:
        """Returns the next batch; raises `StopIteration` after the steps.

        As many steps as batches were asked for come before those that are measured: the first ones
        can be slower. Their number is the same on every rank, whose steps may wait for each other.
        """
        now = time.monotonic()
        if self._requests == self._wanted:
            self._first_at = now
        if self._requests >= self._wanted:
            self._last_at = now
        if self._requests == self._wanted + self._steps:
            raise StopIteration
        if not self._kept:
            raise InvalidRequestError("headspace: enter it with `with`, and loop over it there")
        kept = self._kept[self._requests % self._count]
        self._requests += 1
        return kept.replaced(kept)

    def result(self) -> Headspace:
        """Returns the step times. Raises `InvalidRequestError` before the first measured step."""
        measured = self._requests - self._wanted
        if self._last_at > self._first_at and self._requests < self._wanted + self._steps:
            measured -= 1  # the loop was left within a step
        if measured < 1 or self._last_at <= self._first_at:
            raise InvalidRequestError(
                f"headspace has no result yet: its loop made {self._requests} steps, and measures "
                f"those after the first {self._wanted}"
            )
        before, has_steps = self._before, self._before.steps >= _MIN_STEPS
        return Headspace(
            step_seconds=(self._last_at - self._first_at) / measured,
            current_step_seconds=before.seconds / before.steps if has_steps else None,
            wait_seconds=before.wait_seconds / before.steps if has_steps else None,
            batches=self._count,
            steps=measured,
        )


def headspace(feed: Feed, batches: int = 8, steps: int = 50, timeout: float = 60.0) -> Replay:
    """Returns batches to replay in `with`, to measure the steps with an infinitely fast input.

    feed       a feed of `connect`, of which the training has taken some batches
    batches    batches to keep, 1 to 64; fewer if the feed prefetches or has fewer
    steps      steps to measure, after as many as `batches`, which are not measured
    timeout    seconds to wait for the prefetch to be complete; then it begins without

    The feed keeps the batches, and delivers them afterwards: nothing is lost, and its cursor stays
    where it is. The steps themselves are the training's own, so run them on a copy of the model, or
    before a checkpoint is loaded. A step that returns before its accelerator is done must wait for
    it, as a training does that reads its loss. The copies take memory of the host.
    """
    if not isinstance(feed, Feed):
        raise InvalidRequestError(
            f"headspace needs the feed that infeed.connect returns, not {type(feed).__name__}"
        )
    check_integer("batches", batches, 1, _MAX_BATCHES)
    check_integer("steps", steps, 1)
    return Replay(feed, batches, steps, check_seconds("timeout", timeout))
