"""Workers that are gone for good: noticed, told, and their tasks ended.

TensorFlow waits for ever for the tasks of a worker that never comes back under its address, so a
job with an end would never end. Whoever runs the dispatcher ends such tasks in the worker's name.
What the worker had in its hands is lost; what nobody had been given yet goes to the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from infeed.errors import InfeedError
from infeed.inquiry import Dispatcher, worker_tasks
from infeed.v1 import cluster_pb2 as messages
from infeed_server.cluster.rounds import Rounds

log = logging.getLogger(__name__)

LOST_SECONDS = 60.0
"""A worker that does not answer for so long is lost: longer than it takes to start one anew."""

LOOK_SECONDS = 5.0

_ASK_SECONDS = 3.0
_AT_ONCE = 16
"""Workers that are asked at the same time: one that says nothing must not hold up the others."""


@dataclass
class Seen:
    """What is known of a worker, as of the last look."""

    heard: float
    """When it answered last, or was first heard of."""
    ever: bool = False
    """Whether it has answered."""
    tasks: int = 0
    why: str | None = None
    """What is wrong with it; None when it answers."""
    lost: bool = False


class LostWorkers(Rounds):
    """Watches the workers of a dispatcher. `workers` and `ended_tasks` are for any thread."""

    def __init__(
        self,
        dispatcher: str,
        seconds: float = LOST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`dispatcher` is its address from here, host:port; a worker is lost after `seconds`."""
        super().__init__("lost", LOOK_SECONDS)
        self._dispatcher = Dispatcher(dispatcher)
        self._seconds = seconds
        self._clock = clock
        self._seen: dict[str, Seen] = {}
        self._deaf = False
        self.ended_tasks = 0
        """How many tasks of lost workers were ended."""

    @property
    def workers(self) -> dict[str, Seen]:
        """What is known of each worker, by address; a copy."""
        return dict(sorted(self._seen.items()))

    def look(self) -> None:
        """Asks the dispatcher for its workers, and each of them whether it is there.

        While none is, no task is ended: there is nobody to go on with the rest of a job.
        """
        try:
            workers = self._dispatcher.workers()
        except InfeedError as error:
            if not self._deaf:
                log.error("the dispatcher does not tell its workers: %s", error.message)
            self._deaf = True
            return
        self._deaf = False
        if not workers:
            return
        with ThreadPoolExecutor(_AT_ONCE, "infeed-lost") as pool:
            answers = list(pool.map(_ask, workers))
        for worker, answer in zip(workers, answers, strict=True):
            self._note(worker, answer)
        if not any(seen.why is None for seen in self._seen.values()):
            return
        for worker, seen in self.workers.items():
            if seen.lost and not self._ending.is_set():
                self._end_tasks(worker)

    def _note(self, worker: str, answer: int | str) -> None:
        now = self._clock()
        seen = self._seen.setdefault(worker, Seen(heard=now))
        if isinstance(answer, int):
            if seen.lost:
                log.warning("worker %s is back: it takes part in jobs that begin now", worker)
            elif not seen.ever:
                log.info("worker %s is there", worker)
            self._seen[worker] = Seen(heard=now, ever=True, tasks=answer)
            return
        silent = now - seen.heard
        lost = seen.lost or silent >= self._seconds
        if lost and not seen.lost:
            if seen.ever:
                log.error(
                    "worker %s has not answered for %.0f s: lost (%s)", worker, silent, answer
                )
            else:
                log.error(
                    "worker %s registered, but does not answer at its advertised address from "
                    "here: %s",
                    worker,
                    answer,
                )
        elif seen.why is None:
            log.warning("worker %s does not answer: %s", worker, answer)
        self._seen[worker] = Seen(seen.heard, seen.ever, seen.tasks, answer, lost)

    def _end_tasks(self, worker: str) -> None:
        """In the worker's name: it has no tasks; and those it is given then are at an end."""
        try:
            assigned = self._dispatcher.ask(
                "WorkerHeartbeat",
                messages.WorkerHeartbeat(worker_address=worker),
                messages.WorkerHeartbeatAnswer,
            )
            numbers = [int(task.task_id) for task in assigned.new_tasks]
            if not numbers:
                return
            ended = [messages.TaskProgress(task_id=number, completed=True) for number in numbers]
            self._dispatcher.ask(
                "WorkerUpdate",
                messages.WorkerUpdate(worker_address=worker, updates=ended),
                messages.Nothing,
            )
        except InfeedError as error:
            log.error("the tasks of worker %s cannot be ended: %s", worker, error.message)
            return
        self.ended_tasks += len(numbers)
        log.error(
            "%d tasks of worker %s are ended: what it had in its hands is lost, the rest of their "
            "jobs goes to the other workers",
            len(numbers),
            worker,
        )


def _ask(worker: str) -> int | str:
    """How many tasks the worker has, or why it does not answer."""
    try:
        return len(worker_tasks(worker, _ASK_SECONDS))
    except InfeedError as error:
        return error.message
