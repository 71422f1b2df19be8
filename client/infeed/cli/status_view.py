"""The status of a server as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.filesize import decimal
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable

_STYLES = {
    "not input-bound": "bold green",
    "moderately input-bound": "bold yellow",
    "highly input-bound": "bold red",
}

_NONE = "-"

_UNBOUNDED_WIDTH = 10_000
"""Characters: more than any table needs."""

_TEXT_COLUMNS = ("pipeline", "state", "from")
"""Columns whose cells may take several lines."""

Row = tuple[Mapping[str, str | Text], str]
"""The cells by column, and the style."""


def status_view(url: str, status: Mapping[str, Any], note: str = "") -> RenderableType:
    """Returns the server, its verdict, its pipelines and their trainers; `note` follows the server.

    Raises `KeyError` or `TypeError` for a document with another structure.
    """
    parts: list[RenderableType] = [_server_line(url, status["server"])]
    if note:  # at the end, a terminal with fewer lines than trainers would not show it
        parts.append(Text(printable(note), "bold red"))
    pipelines = status["pipelines"]
    rows = list(map(_pipeline_row, pipelines))
    parts += [Text(), _verdict_text(status["verdict"]), FittingTable(rows, _OPTIONAL_OF_PIPELINES)]
    parts += _refusals(pipelines)
    for pipeline in pipelines:
        for job in pipeline["jobs"]:
            parts.append(_job_line(pipeline, job))
            ranks = [_rank_row(job, trainer) for trainer in job["trainers"]]
            parts.append(FittingTable(ranks, _OPTIONAL_OF_RANKS))
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


_OPTIONAL_OF_PIPELINES = (
    *("unsent", "sent", "queued", "bad", "streams"),
    *("no budget", "no request", "source", "transform", "samples/s"),
)
"""The columns that a narrow terminal leaves out, the first one first."""

_OPTIONAL_OF_RANKS = (
    *("from", "steps", "position", "in queue"),
    *("steps/s", "report", "data ready", "step"),
)


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
    }
    return cells, ""


def _refusals(pipelines: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Yields for each pipeline why a batch of it was refused last, for its data."""
    for pipeline in pipelines:
        if (refused := pipeline.get("source_error")) is not None:  # an older server has none
            count, name = pipeline["totals"]["source_errors"], printable(pipeline["name"])
            text = f"batches refused for their data: {count:.0f}, last: {refused['error']}"
            yield Text.assemble((f"{name}: ", "bold"), (printable(text), "red"))


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
    parts = {"d": days, "h": hours, "min": minutes, "s": rest}
    first = next((index for index, count in enumerate(parts.values()) if count), 3)
    return " ".join(f"{count} {name}" for name, count in list(parts.items())[first : first + 2])


class FittingTable:
    """A table of any width: columns that do not fit are left out, least important first.

    rich would make all columns narrower, down to a letter: a terminal often has 80 characters.
    """

    def __init__(self, rows: Sequence[Row], optional: Sequence[str]) -> None:
        """`optional` has the columns that can be left out, the first one first."""
        self._rows, self._optional = rows, optional

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(width=_UNBOUNDED_WIDTH)
        for count in range(len(self._optional) + 1):
            table = self._table(self._optional[:count])
            if Measurement.get(console, unbounded, table).minimum <= options.max_width:
                break
        yield table

    def _table(self, left_out: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        names = self._rows[0][0] if self._rows else ()
        shown = [name for name in names if name not in left_out]
        for name in shown:
            if name in _TEXT_COLUMNS:
                table.add_column(name)
            else:
                width = max(len(name), *(len(cells[name]) for cells, _ in self._rows))
                table.add_column(name, justify="right", no_wrap=True, min_width=width)
        for cells, style in self._rows:
            # A str would be read as markup.
            texts = (Text(cell) if isinstance(cell := cells[name], str) else cell for name in shown)
            table.add_row(*texts, style=style)
        return table
