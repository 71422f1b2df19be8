"""The report of `infeed profile` as text: stages, rates, forecast and advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.table import Table

from infeed.shared.printable import printable_lines
from infeed_server.cli.console import print_line, report_console
from infeed_server.profile.advice import advice
from infeed_server.profile.figures import Profile, Stage
from infeed_server.profile.forecast import Fleet, Forecast, doubt, forecast

_LIMITS = {
    "cpu": "the processor",
    "read": "reading",
    "transforms": "work that does not use all cores",
}

_MENTIONED_SHARE = 0.1
"""Share of the cores used by other processes from which the report mentions them."""


def print_profile(profile: Profile, fleet: Fleet | None, file: TextIO, *, complete: bool) -> None:
    """Prints what was measured; unless `complete`, that it is not all."""
    out = report_console(file)
    made = forecast(profile)
    for text in _heading(profile, complete):
        print_line(out, text)
    if profile.stages:
        out.print(_table(profile))
    rest = [*_measured(profile), *(_forecast(profile, made, fleet) if made else ())]
    for text in rest:
        print_line(out, text)


def _heading(profile: Profile, complete: bool) -> Iterator[str]:
    cores = f"{profile.cores} core{'s' if profile.cores > 1 else ''}"
    measured = f"; stages measured on {profile.samples} samples" if profile.samples else ""
    size = f", batches of {profile.batch_size}" if profile.batch_size else ""
    yield f"{profile.name}: {cores}{size}{measured}"
    if not complete:
        yield "interrupted: what was measured so far"
    if profile.bad_samples:
        yield f"  bad samples, left out: {profile.bad_samples}; the first: {profile.bad_example}"


def _table(profile: Profile) -> Table:
    """Returns the table of stages in the order of a sample; times are per sample."""
    table = Table(box=SIMPLE_HEAD, highlight=False)
    table.add_column("stage")
    for title in ("CPU µs", "share", "wall µs", "bytes in", "bytes out"):
        table.add_column(title, justify="right")
    table.add_column("runs")
    total = sum(stage.cost.cpu for stage in profile.server_stages)
    for stage in profile.stages:
        counted = stage in profile.server_stages and total > 0
        table.add_row(
            printable_lines(stage.label).replace("[", "\\["),
            f"{stage.cost.cpu * 1e6:,.0f}",
            f"{stage.cost.cpu / total:.0%}" if counted else "",
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


def _measured(profile: Profile) -> Iterator[str]:
    run = profile.run
    if run is None:
        return
    if not profile.stages:
        yield "note: a dataset's transforms are inside of its function: only their sum is measured"
    if any(stage.cached for stage in profile.stages):
        yield "note: the whole pipeline ran as in the first epoch; later ones take from the cache"
    samples = profile.run_samples
    yield (
        f"measured: {samples / run.seconds:,.0f} samples/s, {run.cpu_seconds / run.seconds:.2f} of "
        f"{profile.cores} cores used, {run.cpu_seconds / max(1, samples) * 1e6:,.0f} µs of CPU "
        f"time per sample, over {run.seconds:.1f} s"
    )
    others = run.cores - run.usable_cores
    if others > _MENTIONED_SHARE * profile.cores:
        yield f"          other processes of this host used {others:.2f} cores meanwhile"


def _forecast(profile: Profile, made: Forecast, fleet: Fleet | None) -> Iterator[str]:
    sent = "" if made.wire_bytes is None else f", {made.wire_bytes / 1e6:,.1f} MB/s to trainers"
    yield (
        f"forecast: {made.samples:,.0f} samples/s, {made.batches:,.1f} batches/s{sent} with all "
        f"{profile.cores} cores of this host; the limit is {_LIMITS[made.limit]}"
    )
    if fleet is not None:
        yield (
            f"          the trainers take {fleet.samples:,.0f} samples/s: {fleet.servers} "
            f"server{'s' * (fleet.servers > 1)} like this host, {fleet.utilisation:.0%} used"
        )
    if text := doubt(profile):
        yield f"warning: unreliable figures: {text}"
        yield "         end other programs, and run it again, or longer with --seconds"
    for number, text in enumerate(advice(profile, made)):
        yield f"{'advice: ' if number == 0 else '        '}{text}"
