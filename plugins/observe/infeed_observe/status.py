"""Status: the document of `/api/v1/status`, and the verdicts on a server's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from infeed.shared.capacity import consumption
from infeed.shared.verdict import judge
from infeed_observe.desired_servers import Demand, DesiredServers, enough_in_use
from infeed_observe.missing_ranks import MissingRanks
from infeed_observe.views import Document, PipelineView, ProcessView
from infeed_server.serving.health import Readiness

_UNKNOWN = Readiness(False, "")


class Status:
    """The status of a server. `update` is called every second; other methods, on any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pipelines: dict[str, PipelineView] = {}
        """The pipelines at the last `update`."""
        self._clock = clock
        self._desired = DesiredServers()
        self._missing_ranks = MissingRanks()

    @property
    def desired_servers(self) -> int:
        """Servers like this one that would feed all connected trainers without waits."""
        return self._desired.value

    def update(self, view: ProcessView) -> None:
        """Takes the current view; renews `desired_servers` and the warnings of missing ranks."""
        self.pipelines = named = {pipeline.name: pipeline for pipeline in view.pipelines}
        jobs = [(name, job) for name, pipeline in named.items() for job in pipeline.jobs]
        self._desired.update(
            self._clock(),
            {job.id: Demand(name, consumption(job.ranks, job.world_size)) for name, job in jobs},
            {name: pipeline.report for name, pipeline in named.items()},
            enough_in_use((job.ranks, job.world_size, job.verdict) for _, job in jobs),
        )
        # One of several processes may know only a part of the ranks.
        whole = {name: one.jobs for name, one in named.items() if one.report.processes == 1}
        self._missing_ranks.update(self._clock(), whole)

    def to_json(self, view: ProcessView, readiness: Mapping[str, Readiness]) -> Document:
        """Returns the document of `/api/v1/status`. `readiness` is by pipeline, with the server's
        under ""."""
        pipelines = [
            {
                **pipeline.to_json(),
                "jobs": [
                    job.to_json(self._missing_ranks.warnings.get(job.id)) for job in pipeline.jobs
                ],
                **vars(readiness.get(pipeline.name, _UNKNOWN)),
            }
            for pipeline in view.pipelines
        ]
        server = {**view.server, **vars(readiness.get("", _UNKNOWN))}
        return {
            "server": {**server, "desired_servers": self.desired_servers},
            "verdict": _worst_verdict(
                [job["verdict"] for pipeline in pipelines for job in pipeline["jobs"]]
            ),
            "pipelines": pipelines,
            "broken": view.broken,
        }


def _worst_verdict(verdicts: list[Document]) -> Document:
    """Returns the verdict on the job that waits most."""
    known = [verdict for verdict in verdicts if verdict["level"] != "unknown"]
    nothing = judge([], 1, []).to_json()
    return max(known or verdicts, key=lambda verdict: verdict["wait_share"], default=nothing)
