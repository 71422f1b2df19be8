"""Walks the epochs of a served pipeline as w ranks, and counts every sample id.

    from infeed.audit import audit

    result = audit("127.0.0.1:8470", "photos", world_size=3, epochs=2)
    assert result.exact, result.findings()

The ranks are real feeds, all in this process, and take their steps together, as those of a
training job do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from typing import Any

from infeed.audited import Audit, Run
from infeed.counts import Counts
from infeed.cursor import Shard
from infeed.errors import InvalidRequestError
from infeed.feed import PREFETCH_BYTES, Feed, connect
from infeed.spec import PipelineSpec, Remainder

MOST_RANKS = 1024
"""Feeds that one process opens, with a few threads each."""

_PATIENCE_SECONDS = 60.0
"""For one batch, at least: a server may have to read a data set up to it."""

Progress = Callable[[int, int | None], None]
"""Told after each step how many positions were walked, of how many; None where nobody knows."""


def audit(
    target: str,
    pipeline: str,
    *,
    world_size: int | Sequence[int] = 1,
    epochs: int = 1,
    batch_size: int | None = None,
    seed: int | None = None,
    remainder: Remainder | None = "pad",
    resume_every: int | None = None,
    bad_samples: Collection[int] = (),
    prefetch_bytes: int = PREFETCH_BYTES,
    timeout: float = 20.0,
    progress: Progress | None = None,
    **connection: Any,
) -> Audit:
    """Walks the epochs from position 0 on, and counts.

    world_size      ranks; with `resume_every` also several sizes, taken in turn
    epochs          how many to walk
    remainder       "pad" to see every sample, "drop" as most training does; None: the pipeline's
    resume_every    steps after which all ranks close, and go on from a saved cursor; None: never
    bad_samples     ids that are known to be bad, where the pipeline substitutes those
    prefetch_bytes  what all ranks together fetch ahead; each fetches two batches, whatever they
                    weigh
    timeout         seconds to wait for a server that is not up yet
    progress        is told how far the walk is
    connection      whatever else `connect` takes, such as `transport`

    Raises `InvalidRequestError`, and what `connect` and `Feed.next` raise.
    """
    worlds = _worlds(world_size, resume_every)
    options: dict[str, Any] = {
        **connection,
        "timeout": timeout,
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "remainder": remainder,
    }
    opening = partial(connect, target, pipeline, **options)
    began_at = time.monotonic()
    state: dict[str, Any] | None = None
    walk: _Walk | None = None
    turns = cycle(worlds)
    while True:
        world = next(turns)
        with ExitStack() as stack:
            feeds = [
                stack.enter_context(
                    opening(
                        shard=Shard(rank, world),
                        state=state,
                        prefetch_bytes=prefetch_bytes // world,
                    )
                )
                for rank in range(world)
            ]
            if walk is None:
                # Asked of the ranks: a feed for the question alone would read as one of them.
                spec, size = feeds[0].spec, feeds[0].batch_size
                _check(spec, remainder or spec.remainder, epochs, resume_every, bad_samples)
                walk = _Walk(
                    Counts(spec, epochs, bad_samples),
                    spec,
                    spec.stride(size),
                    remainder or spec.remainder,
                    max(timeout, _PATIENCE_SECONDS),
                    progress or (lambda _walked, _total: None),
                )
            end = walk.run(feeds, feeds[0].state()["position"], resume_every)
            state = feeds[-1].state()
        if end is not None:
            return Audit(
                spec=spec,
                batch_size=size,
                seed=state["seed"],
                remainder=walk.remainder,
                runs=tuple(walk.runs),
                outcome=walk.counts.outcome(end),
                batches=walk.batches,
                seconds=time.monotonic() - began_at,
            )


class _Walk:
    """The way of the ranks through the epochs, one run after the other."""

    def __init__(
        self,
        counts: Counts,
        spec: PipelineSpec,
        stride: int,
        remainder: Remainder,
        patience: float,
        progress: Progress,
    ) -> None:
        """`stride` is the positions of a batch, `patience` seconds for one."""
        self.counts = counts
        self.remainder = remainder
        self.runs: list[Run] = []
        self.batches = 0
        self._spec = spec
        self._stride = stride
        self._patience = patience
        self._progress = progress

    def run(self, feeds: list[Feed], base: int, most: int | None) -> int | None:
        """Takes so many steps from position `base` on, or as many as there are.

        Gives the position where the data ends for these ranks; None if they did not get there.
        """
        steps = 0
        live = list(feeds)
        while live and not (steps == most and len(live) == len(feeds)):
            live = [feed for feed in live if self._took(feed)]
            steps += bool(live)
            self._progress(base + steps * len(feeds) * self._stride, self.counts.total)
        run = Run(base, len(feeds), self._stride, steps)
        if steps:
            self.runs.append(run)
        if live and feeds[0].steps_left != 0:
            return None
        return self._end(run, max(feed.state()["position"] for feed in feeds))

    def _took(self, feed: Feed) -> bool:
        """Takes a batch and counts it; False at the feed's end."""
        try:
            batch = feed.next(self._patience)
        except StopIteration:
            return False
        self.counts.add(batch)
        self.batches += 1
        return True

    def _end(self, last: Run, told: int) -> int:
        """Where the walk should have ended: by arithmetic, or as the server told the feeds."""
        total = self.counts.total
        if total is not None:
            if self.remainder == "pad":
                return total
            step = last.world_size * last.stride
            return last.base + (total - last.base) // step * step
        # A cursor that was taken before anybody knew of the end stands behind it.
        return told if last.steps else min(told, self.counts.end)


def _worlds(world_size: int | Sequence[int], resume_every: int | None) -> tuple[int, ...]:
    worlds = (world_size,) if isinstance(world_size, int) else tuple(world_size)
    if not worlds or not all(1 <= world <= MOST_RANKS for world in worlds):
        told = ", ".join(map(str, worlds)) or "none"
        raise InvalidRequestError(f"a world size must be from 1 to {MOST_RANKS}, not {told}")
    if resume_every is None and len(worlds) > 1:
        raise InvalidRequestError(
            f"{len(worlds)} world sizes, and the world size can change only where the walk is "
            "resumed; say after how many steps (resume_every), or name one world size"
        )
    if resume_every is not None and resume_every < 1:
        raise InvalidRequestError(f"resume_every must be at least 1 step, not {resume_every}")
    return worlds


def _check(
    spec: PipelineSpec,
    remainder: Remainder,
    epochs: int,
    resume_every: int | None,
    bad_samples: Collection[int],
) -> None:
    """What only the pipeline tells to be nonsense. Raises `InvalidRequestError`."""
    if remainder == "drop" and spec.engine == "tf_data_service":
        raise InvalidRequestError(
            f"the workers of TensorFlow's data service do not tell how many samples {spec.name!r} "
            'has, so those that "drop" leaves out look as lost ones do; audit with "pad"'
        )
    if epochs > 1 and spec.engine == "tf_data_service":
        raise InvalidRequestError(
            f"the workers of TensorFlow's data service begin an epoch of {spec.name!r} before the "
            "last one has come whole, so samples cannot be counted by epoch; audit one"
        )
    if resume_every is not None and spec.guarantee.resume == "none":
        raise InvalidRequestError(
            f"pipeline {spec.name!r} promises {spec.guarantee}: it cannot be audited across a "
            "resume; leave resume_every out"
        )
    if bad_samples and spec.on_error != "substitute":
        raise InvalidRequestError(
            f"bad samples explain what on_error: substitute does; pipeline {spec.name!r} has "
            f"on_error: {spec.on_error}"
        )


__all__ = ["MOST_RANKS", "Progress", "audit"]
