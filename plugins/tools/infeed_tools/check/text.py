"""Text of a scan's report: lines, and a table of the ranges."""

from __future__ import annotations

from functools import partial

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from infeed.cli.output import new_console, print_lines
from infeed_server.storage.files import abbreviate
from infeed_tools.check.report import PipelineReport

_MAX_CLASSES = 10
"""Classes whose numbers of samples are printed: the most frequent and the rarest."""

_MAX_VALUES = 20
"""Values of a mask that are printed."""


def print_report(report: PipelineReport) -> None:
    out = new_console()
    line = partial(print_lines, out)
    of = "" if report.samples in (None, report.scanned) else f" of {report.samples}"
    line(f"{report.name}: {report.scanned}{of} samples, {report.bad_samples} bad")
    if report.decoder:
        line(f"  {report.decoder}")
    if report.without_label:
        line(f"  without a label: {report.without_label}")
    for error in report.bad_examples:
        line(f"  bad: {error.message}")
    if report.bad_samples > len(report.bad_examples):
        line(f"  bad: and {report.bad_samples - len(report.bad_examples)} more; see --show")
    for field, sides in report.image_sizes().items():
        listed = ", ".join(
            f"{side} {low} to {high} (median {median})"
            for side, (low, median, high) in sides.items()
        )
        line(f"  sizes of {field}: {listed}")
    for field, (before, after) in report.rows.items():
        gone = ": most are outside the pictures" * (2 * after < before)
        line(f"  {field}: {before} before the transforms, {after} after them{gone}")
    for field, values in report.mask_values.items():
        line(f"  values of {field}: {abbreviate(sorted(values), _MAX_VALUES)}")
        if (fill := report.fills.get(field)) in values:
            line(
                f"  warning: fill: {fill} is also a value of {field}, so pixels around a turned "
                "picture look like that class; correct only if it means ignored"
            )
    for balance in report.balances():
        counts = sorted(balance.counts.values())
        line(
            f"  classes of {balance.field}: {len(counts)}, with {counts[0]} to {counts[-1]} "
            f"samples (median {counts[len(counts) // 2]})"
        )
        common = balance.counts.most_common()
        shown = [f"{balance.label(value)}: {count}" for value, count in common]
        if len(shown) > _MAX_CLASSES:
            half = _MAX_CLASSES // 2
            shown = [*shown[:half], "...", *shown[-half:]]
        line(f"    {', '.join(shown)}")
    if report.ranges:
        out.print(_range_table(report))


def _range_table(report: PipelineReport) -> Table:
    table = Table(
        *("after", "field", "data type", "shape", "min", "max", "mean", "std"),
        box=SIMPLE_HEAD,
        highlight=False,
    )
    for found in report.ranges:
        unit = " bytes" if found.data_type == "bytes" else ""
        numbers = (found.minimum, found.maximum, found.mean, found.std)
        values = ["-"] * 4 if found.is_empty else [f"{number:.6g}{unit}" for number in numbers]
        cells = (report.stages[found.stage], found.field, found.data_type, found.shape, *values)
        table.add_row(*map(Text, cells))
    return table
