"""The status of a server as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
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

_STATES = ("no_request", "no_budget", "source", "transform")

_UNBOUNDED_WIDTH = 10_000
"""Characters: more than any table needs."""


def status_view(url: str, status: Mapping[str, Any], note: str = "") -> RenderableType:
    """Returns the server, its verdict, its pipelines and their trainers; `note` follows the server.

    Raises `KeyError` or `TypeError` for a document with another structure.
    """
    parts: list[RenderableType] = [_server_line(url, status["server"])]
    if note:  # at the end, a terminal with fewer lines than trainers would not show it
        parts.append(Text(printable(note), "bold red"))
    parts += [Text()]
    parts += [_verdict_text(status["verdict"]), _pipeline_table(status["pipelines"])]
    parts += _refusals(status["pipelines"])
    for pipeline in status["pipelines"]:
        for job in pipeline["jobs"]:
            parts += [_job_line(pipeline, job), _rank_table(job)]
    return Group(*parts)


def _server_line(url: str, server: Mapping[str, Any]) -> Text:
    state = "ready" if server["ready"] else f"not ready: {printable(server['reason'])}"
    line = Text.assemble((printable(url), "bold"), "  ", (state, "" if server["ready"] else "red"))
    line.append(
        f"  infeed {printable(server['version'])}, up {_duration(server['uptime_seconds'])}, "
        f"{_percent(server['cpu_share'])} of {server['cores']:g} processors, "
        f"memory {_bytes(server['memory_bytes'])}, peak {_bytes(server['peak_memory_bytes'])}",
        "dim",
    )
    return line


def _verdict_text(verdict: Mapping[str, Any]) -> Text:
    level, text = printable(verdict["level"]), printable(verdict["text"])
    line = Text(text)
    if text.startswith(level):
        line.stylize(_STYLES.get(level, "bold"), 0, len(level))
    return line


def _pipeline_table(pipelines: list[Mapping[str, Any]]) -> FittingTable:
    table = FittingTable(
        "pipeline", "state", "samples/s", "sent", "streams", "queued", "unsent", "bad",
        *(f"{name.replace('_', ' ')}" for name in _STATES),
        text=("pipeline", "state"),
        optional=(
            *("unsent", "sent", "queued", "bad", "streams"),
            *("no budget", "no request", "source", "transform", "samples/s"),
        ),
    )  # fmt: skip
    for pipeline in pipelines:
        report, queues = pipeline["report"], pipeline["queues"]
        seconds = report["seconds"]
        rates = {name: report[name] / seconds if seconds else None for name in ("batches", "bytes")}
        samples = None if rates["batches"] is None else rates["batches"] * pipeline["batch_size"]
        states = (report[f"{name}_seconds"] / seconds if seconds else None for name in _STATES)
        table.add_row(
            Text(printable(pipeline["name"]), "bold"),
            Text("ready") if pipeline["ready"] else Text(printable(pipeline["reason"]), "red"),
            _number(samples),
            _NONE if rates["bytes"] is None else f"{_bytes(rates['bytes'])}/s",
            f"{pipeline['totals']['streams']:.0f}",
            str(queues["queued_requests"]),
            _bytes(queues["unsent_bytes"]),
            _bad_text(pipeline["totals"]),
            *map(_percent, states),
        )
    return table


def _refusals(pipelines: list[Mapping[str, Any]]) -> Iterator[Text]:
    """Yields for each pipeline why a batch of it was refused last, for its data."""
    for pipeline in pipelines:
        refused = pipeline.get("source_error")  # an older server has none
        if refused is not None:
            count, name = pipeline["totals"]["source_errors"], printable(pipeline["name"])
            text = f"batches refused for their data: {count:.0f}, last: {refused['error']}"
            yield Text.assemble((f"{name}: ", "bold"), (printable(text), "red"))


def _bad_text(totals: Mapping[str, Any]) -> str:
    unlogged = totals.get("quarantine_failures", 0)  # unknown to an older server
    return f"{totals['bad_samples']:.0f}" + (f", {unlogged:.0f} not logged" if unlogged else "")


def _job_line(pipeline: Mapping[str, Any], job: Mapping[str, Any]) -> Text:
    name, ranks = printable(pipeline["name"]), f"{len(job['trainers'])} of {job['world_size']}"
    title = f"{name}, job {printable(job['id'])}: {ranks} ranks connected; "
    return Text.assemble((title, "bold"), _verdict_text(job["verdict"]))


def _rank_table(job: Mapping[str, Any]) -> FittingTable:
    table = FittingTable(
        "rank", "waits", "step", "steps/s", "data ready", "in queue", "position", "steps",
        "report", "from",
        text=("from",),
        optional=(
            *("from", "steps", "position", "in queue"),
            *("steps/s", "report", "data ready", "step"),
        ),
    )  # fmt: skip
    verdict = job["verdict"]
    for trainer in job["trainers"]:
        report = trainer["report"] or {}
        steps, seconds = report.get("steps", 0), report.get("seconds", 0)
        is_worst = verdict["level"] != "unknown" and trainer["rank"] == verdict["rank"]
        age = trainer["report_age_seconds"]
        table.add_row(
            str(trainer["rank"]),
            _percent(trainer["wait_share"] if seconds else None, 1),
            _seconds(trainer["step_seconds"]),
            _number(steps / seconds if seconds else None),
            _percent(1 - report["starved_steps"] / steps if steps else None),
            str(report.get("ready_batches", _NONE)),
            str(report.get("position", trainer["sent_position"])),
            str(report.get("total_steps", _NONE)),
            "none yet" if age is None else f"{_duration(age)} ago",
            Text(printable(trainer["peer"])),
            style="bold" if is_worst and job["world_size"] > 1 else "",
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float | None, digits: int = 0) -> str:
    return _NONE if share is None else f"{100 * share:.{digits}f} %"


def _seconds(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{_number(value)} s" if value >= 1 else f"{_number(value * 1e3)} ms"


def _duration(seconds: float) -> str:
    whole = int(seconds)
    for size, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // part} {part_name}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{_number(value)} {unit}"
        value /= 1000
    return f"{_number(value)} TB"


class FittingTable:
    """A table of any width: columns that do not fit are left out, least important first.

    rich would make all columns narrower, down to a letter: a terminal often has 80 characters.
    """

    def __init__(
        self, *columns: str, text: Iterable[str] = (), optional: Sequence[str] = ()
    ) -> None:
        """`text` names the columns that have text, which may take several lines, and not numbers;
        `optional` those that can be left out, the first one first."""
        self._columns = columns
        self._text = frozenset(text)
        self._optional = tuple(optional)
        self._rows: list[tuple[dict[str, Text], str]] = []

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        """Adds a row with a cell for each column."""
        texts = [cell if isinstance(cell, Text) else Text(cell) for cell in cells]
        self._rows.append((dict(zip(self._columns, texts, strict=True)), style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(width=_UNBOUNDED_WIDTH)
        for count in range(len(self._optional) + 1):
            table = self._table(self._optional[:count])
            if Measurement.get(console, unbounded, table).minimum <= options.max_width:
                break
        yield table

    def _table(self, left_out: Sequence[str]) -> Table:
        shown = [name for name in self._columns if name not in left_out]
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in shown:
            if name in self._text:
                table.add_column(name)
                continue
            width = max(len(name), *(row[name].cell_len for row, _ in self._rows), 0)
            table.add_column(name, justify="right", no_wrap=True, min_width=width)
        for row, style in self._rows:
            table.add_row(*(row[name] for name in shown), style=style)
        return table
