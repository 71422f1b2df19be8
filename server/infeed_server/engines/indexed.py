"""The engine of indexed pipelines: any position, any time, the same bits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future

from infeed.errors import ServerUnavailableError
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import Array, PipelineSpec
from infeed_server.engines.base import Answer, HostBatch, Request, Trainer, made_here
from infeed_server.engines.budget import Account, Budget
from infeed_server.engines.lane import Lane
from infeed_server.engines.monitor import Monitor
from infeed_server.engines.quarantine import Quarantine
from infeed_server.engines.queue import FairQueue
from infeed_server.engines.ward import Ward
from infeed_server.engines.work import Work, settle
from infeed_server.order import Order
from infeed_server.pipeline.plan import IndexedPlan

_MAX_LANES = 4
"""Batch sizes that are kept warm; the one unused longest goes first."""

_MOST_LANES = 16
"""Batch sizes in use at a time: each has threads and buffers of its own, and peers choose it."""


class IndexedEngine:
    """Serves an indexed pipeline through one lane for each batch size in use."""

    def __init__(
        self, plan: IndexedPlan, quarantine: Quarantine, monitor: Monitor, budget: Budget
    ) -> None:
        self._plan = plan
        self._monitor = monitor
        self._budget = budget
        self._ward = Ward(plan, quarantine, monitor)
        self._lanes: OrderedDict[int, _SizedLane] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        raise made_here(request.pipeline, "data set to read from workers")

    def open(self, slots: int, epochs: int, trainer: Trainer) -> IndexedSession:  # noqa: ARG002
        # The end is arithmetic, and a batch is the same for whoever asks for it.
        if trainer.job_name:
            raise made_here(self.spec.name, "jobs to take part in")
        return IndexedSession(self._lane(slots), self._plan, self._budget.open(self.spec.name))

    def warm(self) -> None:
        session = self.open(self.spec.batch_size, 0, Trainer())
        try:
            size = self.spec.batch_size
            session.submit(Request(self.spec.seed, 0, size, size)).result()
            session.sent()
        finally:
            session.close()

    def queued_requests(self) -> int:
        return sum(len(lane.queue) for lane in self._open_lanes())

    def unsent_batches(self) -> int:
        return self._budget.batches(self.spec.name)

    def unsent_bytes(self) -> int:
        return self._budget.bytes(self.spec.name)

    def window_bytes(self) -> int:
        return 0

    def _open_lanes(self) -> list[_SizedLane]:
        with self._lock:
            return list(self._lanes.values())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            lanes, self._lanes = list(self._lanes.values()), OrderedDict()
        for lane in lanes:
            lane.close()
        self._ward.close()

    def _lane(self, slots: int) -> _SizedLane:
        with self._lock:
            if self._closed:
                raise _shutting_down()
            lane = self._lanes.get(slots)
            if lane is None or lane.queue.closed:
                self._require_room(slots)
                lane = _SizedLane(self._plan, slots, self._ward, self._monitor)
                self._lanes[slots] = lane
            self._lanes.move_to_end(slots)
            lane.enter()
            idle = [size for size, other in self._lanes.items() if not other.users]
            too_many = max(0, len(self._lanes) - _MAX_LANES)
            spare = [self._lanes.pop(size) for size in idle[:too_many]]
        for other in spare:
            other.close()
        return lane

    def _require_room(self, slots: int) -> None:
        used = sorted(size for size, lane in self._lanes.items() if lane.users)
        if len(used) >= _MOST_LANES:
            raise ServerUnavailableError(
                f"no batches of {slots} now: {self.spec.name!r} is asked for batches of "
                f"{len(used)} sizes already ({', '.join(map(str, used))}), which is as many as "
                "there may be at a time; take one of these, or another server",
                pipeline=self.spec.name,
                batch_size=slots,
            )


class IndexedSession:
    """One stream's share of a lane."""

    def __init__(self, lane: _SizedLane, plan: IndexedPlan, account: Account) -> None:
        self._lane = lane
        self._plan = plan
        self._account = account
        self._order: Order | None = None

    def weigh(self, size: int) -> None:
        self._account.weigh(size)

    def submit(self, request: Request) -> Future[Answer]:
        if self._order is None or self._order.seed != request.seed:
            self._order = self._plan.order(request.seed)
        return self._lane.submit(Work(request, self._order, self._account))

    def sent(self) -> None:
        self._lane.queue.release(self._account)

    def close(self) -> None:
        self._lane.leave(self._account)


class _SizedLane:
    """A lane with its queue, and what becomes of its batches."""

    def __init__(self, plan: IndexedPlan, slots: int, ward: Ward, monitor: Monitor) -> None:
        self._ward = ward
        self.users = 0
        self._lock = threading.Lock()
        self.queue = FairQueue()
        self._lane = Lane(plan, slots, self.queue, monitor, self._begin, self._done, self._failed)

    def submit(self, work: Work) -> Future[Answer]:
        if not self.queue.put(work):
            settle(work, _shutting_down())
        return work.future

    def enter(self) -> None:
        with self._lock:
            self.users += 1

    def leave(self, owner: Account) -> None:
        for work in self.queue.drop(owner):
            work.future.cancel()
        with self._lock:
            self.users -= 1

    def close(self) -> None:
        for work in self.queue.close():
            settle(work, _shutting_down())
        self._lane.close()

    def _begin(self, work: Work) -> None:
        if not work.planned:  # else it was made before, and failed
            work.plan()
            self._ward.replace_known(work)

    def _done(self, work: Work, arrays: dict[str, Array]) -> None:
        if not work.mask.all():
            arrays = {name: _emptied(array, work.mask) for name, array in arrays.items()}
        start, ids = work.request.start, work.sample_ids
        settle(work, HostBatch(start, work.epoch, arrays, ids, work.mask))

    def _failed(self, work: Work, error: Exception) -> None:
        self._ward.admit(work, error, again=self._again)

    def _again(self, work: Work) -> None:
        if not self.queue.put_back(work):
            settle(work, _shutting_down())


def _shutting_down() -> ServerUnavailableError:
    return ServerUnavailableError("the server is shutting down")


def _emptied(array: Array, mask: Array) -> Array:
    """A copy with the masked slots empty: zeros, or empty strings."""
    result: Array = array.copy()
    result[~mask] = b"" if array.dtype == object else 0
    return result


__all__ = ["IndexedEngine", "IndexedSession"]
