"""One reading of a dataset for all ranks of a job, with a window of what they still want."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from infeed_server.engines import refusals
from infeed_server.engines.base import Answer, End, Request, Trainer
from infeed_server.engines.blocks import Element, Kind, batch
from infeed_server.engines.ranks import Ranks
from infeed_server.engines.readable import Readable
from infeed_server.engines.teller import Teller
from infeed_server.engines.window import Window

_STEP_BYTES = 2 << 30
"""The most that is kept to find out whether the data ends inside of a step."""

_ARRIVAL_SECONDS = 300.0
"""How long the ranks of a dataset without an order wait for each other at the beginning."""

_LOOK_SECONDS = 0.25

Wanted = Callable[[], bool]
"""Whether somebody still waits for an answer."""


class LeftWindowError(Exception):
    """The request begins before the window: another reader is needed."""


class DatasetReader:
    """Reads a dataset once. Thread-safe; one caller reads on at a time.

    What a rank may still ask for stays in the window. When that is full, ranks that are ahead wait
    for the slowest.
    """

    def __init__(
        self,
        dataset: Readable,
        kind: Kind,
        ranks: Ranks,
        window_bytes: Callable[[], int],
    ) -> None:
        """`window_bytes`: what the window may hold now, unless three steps are more."""
        self.kind = kind
        self._ranks = ranks
        self._ordered = dataset.spec.guarantee.order == "deterministic"
        self._dataset = dataset
        self._name = dataset.spec.name
        self._share = window_bytes
        self._window = Window()
        self._position = 0
        self._end: int | None = None
        self._broken: Exception | None = None
        self._closed = False
        self._reading = False
        self._changed = threading.Condition()
        self._elements = dataset.read(kind)

    @property
    def window_bytes(self) -> int:
        """What the window holds."""
        return self._window.nbytes

    @property
    def oldest(self) -> int:
        """The first position that is in the window, or to come."""
        with self._changed:
            return self._oldest

    @property
    def unused(self) -> float | None:
        """Seconds since the last stream left; None while there is one."""
        with self._changed:
            return self._ranks.deserted

    def takes(self, trainer: Trainer, start: int, step: int) -> bool:
        """Whether a stream that asks for this position next can read here, `step` being what its
        job takes in one."""
        with self._changed:
            ranks = self._ranks
            if self._closed or self._broken is not None or start < self._oldest:
                return False
            if ranks.knows(trainer):
                return True
            if not self._ordered:
                # Who left might come back, and nobody else may have what was theirs.
                return start < step and ranks.seats(trainer) and ranks.whole
            # Others would have to wait for a rank that is far behind them, or it for them.
            ahead = max(self._position, ranks.floor() or 0)
            near = start < ahead + 2 * step
            return ranks.deserted is not None or (near and ranks.seats(trainer))

    def join(self, trainer: Trainer, begin: int, step: int) -> None:
        """A stream of the trainer reads here from now on; `begin` is where its first step does."""
        with self._changed:
            if self._ranks.deserted is not None and not self._ranks.knows(trainer):
                self._ranks = Ranks(trainer.world_size, begin, step)  # another job has it now
            self._ranks.enter(trainer)

    def leave(self, trainer: Trainer) -> None:
        with self._changed:
            self._ranks.leave(trainer)
            self._changed.notify_all()

    def sent(self, trainer: Trainer, position: int) -> None:
        """The batch at this position is on its way to the trainer."""
        with self._changed:
            self._ranks.sent(trainer, position)
            self._changed.notify_all()

    def close(self) -> None:
        """Lets go of the dataset: at once, or when the block that is being read is read."""
        with self._changed:
            self._let_go()

    def answer(self, request: Request, rank: int, wanted: Wanted) -> Answer | None:
        """The batch, or the end when the data is too short for it; None as soon as nobody wants it
        any more.

        Where the data ends inside the request, the slots that are left are zeros, masked.
        Raises `LeftWindowError`, `InvalidRequestError` and what the dataset raises.
        """
        with self._changed, self._asking(rank, request.start):
            if not self._read_up_to(request, rank, wanted):
                return None
            needs = request.needs or (request.start + 1 if request.count else 0)
            if self._end is not None and self._end < needs:
                return End(self._end)
            blocks = self._window.covering(request)
            ends = self._end is not None and self._end < request.step_end
            position_count = self._end if ends else None
        last = max(self.kind.epochs - 1, 0)
        dataset = self._dataset
        made = batch(dataset.spec.wire_spec, blocks, request, last, whole=dataset.whole)
        return replace(made, position_count=position_count)

    @property
    def _oldest(self) -> int:
        oldest = self._window.oldest
        return self._position if oldest is None else oldest

    @contextmanager
    def _asking(self, rank: int, position: int) -> Iterator[None]:
        self._ranks.asks(rank, position)
        try:
            yield
        finally:
            self._ranks.answered(rank)
            self._changed.notify_all()

    def _read_up_to(self, request: Request, rank: int, wanted: Wanted) -> bool:
        """False when it gave up, nobody wanting the batch any more; it can be a long way."""
        least = max(request.start + request.count, request.needs)
        target = max(least, request.step_end)
        teller = Teller(self._name, rank, self._position, target)
        while not self._has(target, request):
            if not wanted():
                return False
            if self._position >= least and self._full(request):
                return True  # a step so large that it cannot be kept goes without its end told
            if self._reading or self._waits(request, teller):
                self._changed.wait(_LOOK_SECONDS)
            else:
                self._read_on(request)
                teller.reads(self._position)
        return True

    def _let_go(self) -> None:
        self._closed = True
        if not self._reading:
            self._elements.close()
        self._changed.notify_all()

    def _has(self, target: int, request: Request) -> bool:
        if request.start < self._oldest:
            raise LeftWindowError
        arrived = self._ordered or not self._ranks.missing
        if arrived and (self._end is not None or self._position >= target):
            return True
        if self._broken is not None:
            raise self._broken
        if self._closed:
            raise LeftWindowError
        return False

    def _waits(self, request: Request, teller: Teller) -> bool:
        """Whether others are to come up first."""
        if not self._ordered and self._ranks.missing:
            if not self._ranks.whole:
                # Who went might not come back, and nothing is read yet: the others meet elsewhere.
                self._let_go()
                raise LeftWindowError
            if self._ranks.age >= _ARRIVAL_SECONDS:
                missing = self._ranks.missing
                world_size = self._ranks.world_size
                self._broken = refusals.not_all_came(
                    self._name, world_size, missing, _ARRIVAL_SECONDS
                )
                raise self._broken
            teller.waits(
                self._ranks, "it has no order, so every rank reads here before any is served"
            )
            return True
        self._trim(request.start)
        floor = self._ranks.floor()
        behind = floor is not None and floor < request.start
        if behind and self._window.nbytes >= self._limit:
            teller.waits(self._ranks, "the window is full")
            return True
        return False

    def _full(self, request: Request) -> bool:
        """Whether no more of the request's step can be kept."""
        full = self._window.nbytes >= max(_STEP_BYTES, self._limit)
        return full and self._position >= request.start

    @property
    def _limit(self) -> int:
        return self._window.limit(self._share(), self._ranks.world_size)

    def _trim(self, wanted: int) -> None:
        """Drops the oldest blocks where there are too many. The step that ended last is kept as
        long as nobody is held up for it."""
        floor = min(self._ranks.floor() or 0, wanted)
        keep = floor - (self._ranks.step if floor < wanted else 0)
        self._window.trim(keep, self._limit)

    def _read_on(self, request: Request) -> None:
        """Reads one block; others may look at the window meanwhile."""
        if self._full(request):
            raise refusals.step_too_large(self._name, self._ranks.world_size, _STEP_BYTES)
        self._reading = True
        self._changed.release()
        element, broken = None, None
        try:
            element = next(self._elements, None)
            if element is not None and element.start == 0:
                self._dataset.check_first(self.kind, element.block())
        except Exception as error:  # noqa: BLE001 - raised below, where the lock is held again
            broken = error
        finally:
            self._changed.acquire()
            self._reading = False
            self._changed.notify_all()
            if self._closed:
                self._elements.close()
        if broken is not None:
            # The iteration is over now; who comes next must not take that for the end.
            self._broken = broken
            raise broken
        if element is None:
            self._end = self._position
        else:
            self._take(element)

    def _take(self, element: Element) -> None:
        self._position = element.end
        floor = self._ranks.floor()
        if floor is not None and element.end <= floor:
            # On the way to where the ranks are. What was kept before goes too: who asked for it
            # would else take the gap behind it for empty slots.
            self._window.clear()
            return
        self._window.add(element.block())
