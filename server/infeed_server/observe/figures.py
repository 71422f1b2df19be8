"""Figures of an observer as metrics have them: values by their labels."""

from __future__ import annotations

from infeed_server.observe.jobs import worst_wait
from infeed_server.observe.observer import Observer

Values = dict[tuple[str, ...], float]


class Figures:
    """The observer's figures as metrics have them."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def trainers(self) -> Values:
        counts: Values = {(name,): 0 for name in self._observer.pipelines}
        for each in self._observer.jobs.trainers():
            counts[each.job.pipeline,] += 1
        return counts

    def wait_ratios(self) -> Values:
        trainers = self._observer.jobs.trainers()
        waits = {name: worst_wait(name, trainers) for name in self._observer.pipelines}
        return {(name,): wait for name, wait in waits.items() if wait is not None}

    def state_seconds(self) -> Values:
        return {
            (name, state): seconds
            for name, engine in self._observer.pipelines.items()
            for state, seconds in engine.state_seconds().items()
        }

    def desired_servers(self) -> Values:
        return {(): self._observer.desired_servers}
