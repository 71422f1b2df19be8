"""The report of `infeed profile`: stages, rates and advice, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.cli.output import new_console, print_lines
from infeed.shared.printable import printable_lines
from infeed_tools.profile.advice import advice, doubt
from infeed_tools.profile.figures import Profile, Stage

_MENTIONED_SHARE = 0.1
"""Share of the cores used by other processes above which the report mentions them."""


def print_profile(profile: Profile, file: TextIO, *, complete: bool) -> None:
    """Prints the figures, with a note if they are not `complete`."""
    out = new_console(file)
    cores = f"{profile.cores} core{'s' * (profile.cores > 1)}"
    measured = f"; stages measured on {profile.samples} samples" if profile.samples else ""
    size = f", batches of {profile.batch_size}" if profile.batch_size else ""
    print_lines(out, f"{profile.name}: {cores}{size}{measured}")
    if not complete:
        print_lines(out, "interrupted; figures so far:")
    if profile.bad_samples:
        bad = f"  bad samples, left out: {profile.bad_samples}; the first: {profile.bad_example}"
        print_lines(out, bad)
    if profile.stages:
        out.print(_table(profile))
    for text in _rates(profile):
        print_lines(out, text)


def _table(profile: Profile) -> Table:
    """Returns the table of stages in the order of a sample; times are per sample."""
    table = Table(box=SIMPLE_HEAD, highlight=False)
    table.add_column("stage")
    for title in ("CPU µs", "share", "wall µs", "bytes in", "bytes out"):
        table.add_column(title, justify="right")
    table.add_column("runs")
    total = sum(stage.cost.cpu for stage in profile.server_stages)
    for stage in profile.stages:
        place = "first epoch, then cached" if stage.cached else ""
        table.add_row(
            Text(printable_lines(stage.label)),
            f"{stage.cost.cpu * 1e6:,.0f}",
            f"{stage.cost.cpu / total:.0%}" if total and stage in profile.server_stages else "",
            f"{stage.cost.elapsed * 1e6:,.0f}",
            f"{stage.bytes_in:,.0f}",
            f"{stage.bytes_out:,.0f}",
            "at the trainer" if stage.kind == "finish" else place,
        )
    table.add_row("sum at the server", f"{total * 1e6:,.0f}", "100%")
    return table


def _rates(profile: Profile) -> Iterator[str]:
    run, samples = profile.run, profile.run_samples
    if run is None or not samples:
        return
    if not profile.stages:
        yield "note: a dataset's function contains its transforms, so only their sum is measured"
    if any(stage.cached for stage in profile.stages):
        yield "note: the whole pipeline ran as in the first epoch; later ones use the cache"
    yield (
        f"measured: {samples / run.seconds:,.0f} samples/s, {run.cpu_seconds / run.seconds:.2f} of "
        f"{profile.cores} cores used, {run.cpu_seconds / samples * 1e6:,.0f} µs of CPU "
        f"time per sample, over {run.seconds:.1f} s"
    )
    if profile.decoder:
        yield f"          {profile.decoder}"
    others = run.cores - run.usable_cores
    if others > _MENTIONED_SHARE * profile.cores:
        yield f"          other processes on this host used {others:.2f} cores meanwhile"
    if text := doubt(profile):
        yield f"warning: unreliable figures: {text}"
        yield "         end other programs and run it again, or longer with --seconds"
    for number, text in enumerate(advice(profile)):
        yield f"{'advice: ' if number == 0 else '        '}{text}"


def to_json(profile: Profile, *, complete: bool) -> dict[str, Any]:
    """Returns the report. Times are seconds per sample, rates per second; None: not measured."""
    run = profile.run
    return {
        "pipeline": profile.name,
        "complete": complete,
        "cores": profile.cores,
        "batch_size": profile.batch_size,
        "samples": profile.samples,
        "bad_samples": {"count": profile.bad_samples, "first": profile.bad_example or None},
        "decoder": profile.decoder or None,
        "stages": [_stage(stage) for stage in profile.stages],
        "wire_bytes": profile.wire_bytes,
        "run": run
        and {
            "samples": profile.run_samples,
            "seconds": run.seconds,
            "samples_per_second": profile.run_samples / run.seconds,
            "cpu_seconds_per_sample": run.cpu_seconds / max(1, profile.run_samples),
            "cores_used": run.cpu_seconds / run.seconds,
            "other_cores": run.cores - run.usable_cores,
        },
        "doubts": [text] if (text := doubt(profile)) else [],
        "advice": advice(profile),
    }


def _stage(stage: Stage) -> dict[str, Any]:
    cpu, elapsed = stage.cost
    values = asdict(stage) | {"cpu_seconds": cpu, "elapsed_seconds": elapsed}
    del values["cost"]
    return values
