"""The reliability of a profile: whether its measurements agree with each other."""

from __future__ import annotations

import math
from collections.abc import Iterator

from infeed_server.profile.figures import Profile, Stage
from infeed_server.profile.forecast import Forecast, rate_of_run

_MAX_SPREAD = 0.2
"""Share of a sample's CPU time that repetitions may differ by: most gains of an advice are more."""

_MAX_DIFFERENCE = 0.4
"""Share by which the whole run may differ from the sum of its stages, each run alone."""


def doubts(profile: Profile, made: Forecast | None) -> list[str]:
    """Returns why the figures are unreliable, a line each; none if measurements agree."""
    return [*_repetitions(profile.server_stages), *_whole_run(profile, made)]


def _repetitions(stages: list[Stage]) -> Iterator[str]:
    total = sum(stage.cost.cpu for stage in stages)
    spread = math.hypot(*(stage.cost.spread for stage in stages))
    if not total or spread <= _MAX_SPREAD * total:
        return
    most = max(stages, key=lambda stage: stage.cost.spread)
    yield (
        f"the CPU time of a sample differed by {spread / total:.0%} between repetitions, most in "
        f"{most.label}: {most.cost.cpu * 1e6:,.0f} µs, by {most.cost.spread * 1e6:,.0f} µs"
    )


def _whole_run(profile: Profile, made: Forecast | None) -> Iterator[str]:
    run = profile.run
    if made is None or run is None or not profile.stages or not run.samples:
        return
    difference = rate_of_run(made, run) / run.samples_per_second - 1
    if abs(difference) > _MAX_DIFFERENCE:
        yield f"the stages forecast {difference:+.0%} of what the whole pipeline made"
