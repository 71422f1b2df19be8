"""A server's status as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable

_STYLES = {
    "not input-bound": "bold green",
    "moderately input-bound": "bold yellow",
    "highly input-bound": "bold red",
}

_NONE = "-"

_WIDE = 130
"""Characters of a terminal that is wide enough for all columns."""

_SHORT_PIPELINES = ("pipeline", "state", "samples/s", "no request", "source", "transform")
_SHORT_RANKS = ("rank", "waits", "step", "steps/s", "data ready", "report")

_TEXT_COLUMNS = ("pipeline", "state", "from")
"""Columns whose cells may take several lines."""

Row = tuple[Mapping[str, str | Text], str]
"""The cells by column, and the style."""


def status_view(url: str, status: Mapping[str, Any], width: int, note: str = "") -> RenderableType:
    """Returns the server, a note, the verdict, pipelines and trainers, fitted to a line's width.

    Raises `KeyError` or `TypeError` if the document has another structure.
    """
    parts: list[RenderableType] = [_server_line(url, status["server"])]
    if note:  # at the end, it would be off the screen with many trainers
        parts.append(Text(printable(note), "bold red"))
    pipelines = status["pipelines"]
    rows = list(map(_pipeline_row, pipelines))
    parts += [Text(), _verdict_text(status["verdict"]), _table(rows, _SHORT_PIPELINES, width)]
    for pipeline in pipelines:
        if (refused := pipeline.get("source_error")) is not None:  # an older server has none
            count, name = pipeline["totals"]["source_errors"], printable(pipeline["name"])
            text = f"batches refused for their data: {count:.0f}, last: {refused['error']}"
            parts.append(Text.assemble((f"{name}: ", "bold"), (printable(text), "red")))
    for name, reason in status.get("broken", {}).items():  # an older server has none
        problem = (printable(f"not served: {reason}"), "red")
        parts.append(Text.assemble((f"{printable(name)}: ", "bold"), problem))
    for pipeline in pipelines:
        for job in pipeline["jobs"]:
            parts.append(_job_line(pipeline, job))
            if warning := job.get("warning"):  # an older server has none
                parts.append(Text(printable(warning), "bold yellow"))
            ranks = [_rank_row(job, trainer) for trainer in job["trainers"]]
            parts.append(_table(ranks, _SHORT_RANKS, width))
    return Group(*parts)


def _server_line(url: str, server: Mapping[str, Any]) -> Text:
    state = "ready" if server["ready"] else f"not ready: {printable(server['reason'])}"
    line = Text.assemble((printable(url), "bold"), "  ", (state, "" if server["ready"] else "red"))
    memory, peak = (decimal(int(server[name])) for name in ("memory_bytes", "peak_memory_bytes"))
    return line.append(
        f"  infeed {printable(server['version'])}, up {_duration(server['uptime_seconds'])}, "
        f"{_percent(server['cpu_share'])} of {server['cores']:g} processors, "
        f"memory {memory}, peak {peak}",
        "dim",
    )


def _verdict_text(verdict: Mapping[str, Any]) -> Text:
    level, line = printable(verdict["level"]), Text(printable(verdict["text"]))
    if line.plain.startswith(level):
        line.stylize(_STYLES.get(level, "bold"), 0, len(level))
    return line


def _pipeline_row(pipeline: Mapping[str, Any]) -> Row:
    report, queues, totals = pipeline["report"], pipeline["queues"], pipeline["totals"]
    unlogged = totals.get("quarantine_failures", 0)  # unknown to an older server

    def rate(name: str) -> float | None:
        return report[name] / report["seconds"] if report["seconds"] else None

    batches, sent = rate("batches"), rate("bytes")
    cells = {
        "pipeline": Text(printable(pipeline["name"]), "bold"),
        "state": "ready" if pipeline["ready"] else Text(printable(pipeline["reason"]), "red"),
        "samples/s": _number(None if batches is None else batches * pipeline["batch_size"]),
        "sent": _NONE if sent is None else f"{decimal(int(sent))}/s",
        "streams": f"{totals['streams']:.0f}",
        "queued": f"{queues['queued_requests']:.0f}",
        "unsent": decimal(int(queues["unsent_bytes"])),
        "bad": f"{totals['bad_samples']:.0f}" + f", {unlogged:.0f} not logged" * bool(unlogged),
        "no request": _percent(rate("no_request_seconds")),
        "no budget": _percent(rate("no_budget_seconds")),
        "source": _percent(rate("source_seconds")),
        "transform": _percent(rate("transform_seconds")),
        "shared": _part(report, "shared_samples", "computed_samples", "recomputed_samples"),
        "cached": _part(report, "cache_hits", "cache_misses"),
    }
    return cells, ""


def _job_line(pipeline: Mapping[str, Any], job: Mapping[str, Any]) -> Text:
    name, ranks = printable(pipeline["name"]), f"{len(job['trainers'])} of {job['world_size']}"
    title = f"{name}, job {printable(job['id'])}: {ranks} ranks connected; "
    return Text.assemble((title, "bold"), _verdict_text(job["verdict"]))


def _rank_row(job: Mapping[str, Any], trainer: Mapping[str, Any]) -> Row:
    verdict, report = job["verdict"], trainer["report"] or {}
    steps, seconds = report.get("steps", 0), report.get("seconds", 0)
    step, age = trainer["step_seconds"], trainer["report_age_seconds"]
    cells = {
        "rank": str(trainer["rank"]),
        "waits": _percent(trainer["wait_share"] if seconds else None, 1),
        "step": _NONE if step is None else f"{_number(1e3 * step)} ms",
        "steps/s": _number(steps / seconds if seconds else None),
        "data ready": _percent(1 - report["starved_steps"] / steps if steps else None),
        "in queue": str(report.get("ready_batches", _NONE)),
        "position": str(report.get("position", trainer["sent_position"])),
        "steps": str(report.get("total_steps", _NONE)),
        "report": "none yet" if age is None else f"{_duration(age)} ago",
        "from": printable(trainer["peer"]),
    }
    is_worst = verdict["level"] != "unknown" and trainer["rank"] == verdict["rank"]
    return cells, "bold" if is_worst and job["world_size"] > 1 else ""


def _part(report: Mapping[str, Any], name: str, *others: str) -> str:
    total = sum(report.get(one, 0) for one in (name, *others))  # an older server has none
    return _percent(report[name] / total if total else None)


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float | None, digits: int = 0) -> str:
    return _NONE if share is None else f"{100 * share:.{digits}f} %"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _table(rows: Sequence[Row], short: Sequence[str], width: int) -> Table:
    """Returns a table of the columns in `short`, or of all on a wide terminal.

    On the usual 80 characters, rich would narrow all columns, some to a letter.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    names = [name for name in (rows[0][0] if rows else ()) if width >= _WIDE or name in short]
    for name in names:
        is_text = name in _TEXT_COLUMNS
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text)
    for cells, style in rows:
        # rich would read a str as markup.
        texts = (Text(cell) if isinstance(cell := cells[name], str) else cell for name in names)
        table.add_row(*texts, style=style)
    return table
