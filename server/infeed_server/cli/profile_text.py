"""The report of `infeed profile` as text: stages, rates, forecast and advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from infeed.shared.printable import printable_lines
from infeed_server.profile.advice import advice
from infeed_server.profile.figures import Profile, Stage
from infeed_server.profile.forecast import (
    Fleet,
    Forecast,
    forecast,
    rate_beside_others,
    rate_of_run,
)
from infeed_server.profile.reliability import doubts

_MIN_WIDTH = 120
"""Characters of a line that is not written to a terminal."""

_LIMITS = {
    "cpu": "the processor",
    "read": "reading",
    "python": "one interpreter of Python",
}

_BUSY_SHARE = 0.1
"""The share of the cores that others may use before the report mentions them."""


def print_profile(profile: Profile, fleet: Fleet | None, file: TextIO, *, complete: bool) -> None:
    """Prints what was measured; unless `complete`, that it is not all."""
    out = Console(file=file)
    if not out.is_terminal:
        out.width = max(out.width, _MIN_WIDTH)

    def line(text: str) -> None:
        out.print(printable_lines(text), highlight=False, markup=False, soft_wrap=True)

    made = forecast(profile)
    line(_heading(profile))
    if not complete:
        line("interrupted: what was measured so far")
    if profile.bad_samples:
        line(f"  bad samples, left out: {profile.bad_samples}; the first: {profile.bad_example}")
    if profile.stages:
        out.print(_table(profile))
    for text in (*_notes(profile), *_rates(profile, made)):
        line(text)
    if made is not None:
        for text in (*_forecast(profile, made, fleet), *_warning(profile, made)):
            line(text)
        found = advice(profile, made)
        for number, each in enumerate(found, start=1):
            most = "up to " if each.at_most else ""
            gain = f"{most}+{each.gain_percent:.0f} %"
            line(f"{'advice: ' if number == 1 else '        '}{gain}: {each.text}")
        if not found and profile.stages and complete:
            line("advice: none; no change that is known to this command would gain 5 %")


def _heading(profile: Profile) -> str:
    cores = f"{profile.cores} core{'s' if profile.cores > 1 else ''}"
    measured = f"; stages measured on {profile.samples} samples" if profile.samples else ""
    size = f", batches of {profile.batch_size}" if profile.batch_size else ""
    return f"{profile.name}: {cores}{size}{measured}"


def _table(profile: Profile) -> Table:
    """Returns the table of stages in the order of a sample; times are per sample."""
    table = Table(box=SIMPLE_HEAD, highlight=False)
    table.add_column("stage")
    for title in ("CPU µs", "share", "wall µs", "bytes in", "bytes out"):
        table.add_column(title, justify="right")
    table.add_column("runs")
    total = sum(stage.cost.cpu for stage in profile.server_stages)
    for stage in profile.stages:
        counted = stage.kind != "finish" and not stage.cached
        share = stage.cost.cpu / total if counted and total else None
        table.add_row(
            printable_lines(stage.label).replace("[", "\\["),
            f"{stage.cost.cpu * 1e6:,.0f}",
            "" if share is None else f"{share:.0%}",
            f"{stage.cost.elapsed * 1e6:,.0f}",
            f"{stage.bytes_in:,.0f}",
            f"{stage.bytes_out:,.0f}",
            _place(stage),
        )
    table.add_row("sum at the server", f"{total * 1e6:,.0f}", "100%", "", "", "", "")
    return table


def _place(stage: Stage) -> str:
    if stage.kind == "finish":
        return "at the trainer"
    if stage.cached:
        return "first epoch, then cached"
    return "in one interpreter" if stage.runs_python else ""


def _notes(profile: Profile) -> Iterator[str]:
    if profile.note:
        yield f"note: {profile.note}"
    fused = [stage.name for stage in profile.stages if "+" in stage.name and stage.ordinal]
    for name in fused:
        yield f"note: {name} is one step: only the crop's window is decoded"
    if any(stage.cached for stage in profile.stages):
        yield "note: the whole pipeline ran as in the first epoch; the forecast is for later ones"


def _rates(profile: Profile, made: Forecast | None) -> Iterator[str]:
    run = profile.run
    if run is None:
        return
    used = f"{run.cores_used:.2f} of {profile.cores} cores used"
    yield (
        f"measured: {run.samples_per_second:,.0f} samples/s, {used}, "
        f"{run.cpu_per_sample * 1e6:,.0f} µs of CPU time per sample, over {run.seconds:.1f} s"
    )
    if run.other_cores > _BUSY_SHARE * profile.cores:
        yield f"          other processes of this host used {run.other_cores:.2f} cores meanwhile"
    if made is not None and profile.stages:
        expected = rate_of_run(made, run)
        difference = expected / run.samples_per_second - 1
        yield (
            f"          the stages alone forecast {expected:,.0f} samples/s for the cores used "
            f"({difference:+.0%})"
        )


def _forecast(profile: Profile, made: Forecast, fleet: Fleet | None) -> Iterator[str]:
    yield (
        f"forecast: {made.samples:,.0f} samples/s, {made.batches:,.1f} batches/s with all "
        f"{profile.cores} cores of this host; the limit is {_LIMITS[made.limit]}"
    )
    run = profile.run
    if run is not None and run.other_cores > _BUSY_SHARE * profile.cores:
        left = rate_beside_others(made, run, profile.cores)
        yield f"          {left:,.0f} samples/s beside the other processes, as long as they stay"
    if profile.wire_bytes is not None and profile.finished_bytes is not None:
        text = f"          {_mega(made.wire_bytes)} MB/s to trainers"
        if profile.finished_bytes != profile.wire_bytes:
            text += (
                f'; with finish="server" {_mega(made.finished_bytes)} MB/s at '
                f"{made.finished_samples:,.0f} samples/s"
            )
        yield text
    if fleet is not None:
        plural = "s" if fleet.servers > 1 else ""
        yield (
            f"          the trainers take {fleet.samples:,.0f} samples/s: {fleet.servers} "
            f"server{plural} like this host, {fleet.utilisation:.0%} used, "
            f"{_mega(fleet.bytes_per_server)} MB/s each"
        )


def _warning(profile: Profile, made: Forecast) -> Iterator[str]:
    """Yields why the figures are unreliable, and what to do."""
    found = doubts(profile, made)
    for number, each in enumerate(found, start=1):
        yield f"{'warning: unreliable figures: ' if number == 1 else '         '}{each}"
    if found:
        run = profile.run
        busy = run is not None and run.other_cores > _BUSY_SHARE * profile.cores
        remedy = "end the other processes" if busy else "close other programs"
        yield (
            f"         forecast and gains may be as wrong: {remedy}, and run it again, or longer "
            "with --seconds"
        )


def _mega(size: float) -> str:
    return f"{size / 1e6:,.1f}"
