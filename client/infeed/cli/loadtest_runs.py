"""Runs of `infeed loadtest`: one, or those of a search, with live progress on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

if TYPE_CHECKING:
    from infeed.loadtest import LoadPlan, Summary, Tally
    from infeed.loadtest.find_max import Probe, Search
    from infeed.loadtest.runner import Progress


class _SearchEndedError(Exception):
    """The end of a search by one load test."""

    def __init__(self, trainers: int) -> None:
        super().__init__()
        self.trainers = trainers


class Runs:
    """Runs load tests on one pipeline, with live progress on a terminal."""

    def __init__(
        self, target: str, pipeline: str, connection: dict[str, Any], timeout: float
    ) -> None:
        self._arguments = (target, pipeline)
        self._options: dict[str, Any] = {"connection": connection, "timeout": timeout}

    def run(self, plan: LoadPlan) -> tuple[Summary, Tally]:
        """Runs one load test."""
        from infeed.loadtest import check, run_load, summarize  # noqa: PLC0415

        with _progress(Console(stderr=True)) as progress:
            tally = run_load(*self._arguments, plan, progress=progress, **self._options)
        return check(summarize(tally), tally), tally

    def search(self, plan: LoadPlan) -> tuple[Search | None, Summary, Tally]:
        """Runs load tests with several numbers of trainers; returns that with the most, too.

        One that is interrupted, has a failure or loses a server ends the search, and is returned.
        """
        from infeed.loadtest.find_max import Probe, find_max  # noqa: PLC0415
        from infeed.loadtest.plan import UTILISATION_THRESHOLD  # noqa: PLC0415

        threshold = plan.thresholds.min_utilisation or UTILISATION_THRESHOLD
        results: dict[int, tuple[Summary, Tally]] = {}
        console = Console(stderr=True)

        def probe(trainers: int) -> Probe:
            faults: dict[str, Any] = {
                name: tuple(each for each in getattr(plan, name) if each.rank < trainers)
                for name in ("stalls", "kills")
            }
            results[trainers] = self.run(replace(plan, trainers=trainers, **faults))
            summary, _ = results[trainers]
            is_lost = summary.lost and not plan.thresholds.allow_lost_servers
            if summary.interrupted or summary.failures or is_lost:
                raise _SearchEndedError(trainers)
            found = Probe(
                trainers,
                summary.utilisation or 0.0,
                summary.samples_per_second,
                summary.forecast.trainers_at(threshold, trainers),
            )
            _show_probe(console, found)
            return found

        try:
            search = find_max(probe, threshold, limit=plan.trainers)
        except _SearchEndedError as error:
            return None, *results[error.trainers]
        return search, *results[search.max_trainers or search.probes[-1].trainers]


def _show_probe(console: Console, probe: Probe) -> None:
    forecast = "" if probe.forecast is None else f", forecast {probe.forecast} trainers"
    console.print(
        f"{probe.trainers:4} trainers: utilisation {100 * probe.utilisation:.1f} %, "
        f"{probe.samples_per_second:.0f} samples/s{forecast}",
        highlight=False,
    )


@contextmanager
def _progress(console: Console) -> Iterator[Progress | None]:
    """Shows figures of the last seconds on a terminal, and nothing elsewhere."""
    if not console.is_terminal:
        yield None
        return
    from infeed.loadtest.live import live_table  # noqa: PLC0415

    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda tally: live.update(live_table(tally), refresh=True)
