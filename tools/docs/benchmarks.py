"""Tables of the published benchmark results: `benchmarks/published.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from benchmarks.cases import CASES
from benchmarks.findings import Target, rounded
from benchmarks.published import FILE
from tools.docs.markdown import Table, code

GROUPS = {
    "transport": (
        *("transport-*", "infeed-30ms-*", "connections-*", "proxy-*", "flight-*", "tcp-*"),
        *("tls-uint8", "observed-uint8", "float32-as-uint8", "memory"),
    ),
    "host": ("unix-*",),
    "adapters": ("adapter-*",),
    "reuse": ("shared-*", "cache-*"),
    "start": ("first-batch", "index-*"),
    "photos": ("*",),
}
"""Tables of the page, and their cases; a case is in the first table that takes its name."""

NAMES = {
    "service": "tf.data service",
    "service, compressed": "tf.data service, compressed",
    "in process": "tf.data in the trainer",
}
"""Sides of cases whose names are shortened for tables in a terminal."""

Result = Mapping[str, Any]
"""Outcome of a case with its machine, as in the file."""


def tables(published: Mapping[str, Result] | None = None) -> dict[str, Table]:
    """Returns the tables of machines and runs, and one of results for each group of cases."""
    results = json.loads(FILE.read_text(encoding="utf-8")) if published is None else published
    machines = list(dict.fromkeys(_machine(result) for result in _by_date(results)))
    runs: dict[tuple[str, ...], list[float | None]] = {}
    for result in _by_date(results):
        runs.setdefault(_run(result, machines), []).append(result["load"])
    letters = {run: chr(ord("a") + number) for number, run in enumerate(runs)}
    rows: dict[str, list[tuple[str, ...]]] = {name: [] for name in GROUPS}
    for name in CASES:
        result = results.get(name)
        letter = "" if result is None else letters[_run(result, machines)]
        rows[_group(name)] += _rows(name, result, letter)
    columns = ("case", "measure", "infeed", "peer", "ratio", "target", "run")
    return {
        "benchmarks.machines": Table(
            ("machine", "processor, memory, software"),
            [(str(number), machine) for number, machine in enumerate(machines, 1)],
        ),
        "benchmarks.runs": Table(
            ("run", "date", "command", "machine", "load before a case"),
            [(letter, *run, _span(runs[run])) for run, letter in letters.items()],
        ),
        **{f"benchmarks.{name}": Table(columns, found) for name, found in rows.items()},
    }


def _by_date(results: Mapping[str, Result]) -> list[Result]:
    return sorted(results.values(), key=lambda result: (result["time"][:10], _command(result)))


def _group(case: str) -> str:
    return next(
        name for name, patterns in GROUPS.items() if any(fnmatch(case, item) for item in patterns)
    )


def _machine(result: Result) -> str:
    machine = result["machine"]
    cores = f"{machine['cores']} cores"
    software = (f"{name} {machine[name]}" for name in ("Python", "TensorFlow", "infeed"))
    return ", ".join([machine["processor"], cores, machine["memory"], machine["kernel"], *software])


def _run(result: Result, machines: list[str]) -> tuple[str, ...]:
    return result["time"][:10], _command(result), str(machines.index(_machine(result)) + 1)


def _command(result: Result) -> str:
    if (plan := result["plan"]) is None:
        return "not kept"
    return code(f'make bench BENCH="--pairs {plan["pairs"]} --seconds {plan["seconds"]:g}"')


def _span(loads: list[float | None]) -> str:
    known = [load for load in loads if load is not None]
    return f"{min(known):.1f} to {max(known):.1f}" if known else "not kept"


def _rows(name: str, result: Result | None, letter: str) -> list[tuple[str, ...]]:
    if result is None:
        return [(code(name), "no published result", "", "", "", "", "")]
    return [
        ("" if number else code(name), finding["measure"], *_figures(finding), letter)
        for number, finding in enumerate(result["findings"])
    ]


def _figures(finding: Mapping[str, Any]) -> tuple[str, ...]:
    ours, theirs, ratio = finding["ours"], finding["theirs"], finding["ratio"]
    shown = ""
    if finding["target"]:
        target = Target(**finding["target"])
        value = ratio["median"] if target.of == "ratio" else ours["median"]
        shown = str(target) if target.holds(value) else f"{target}, **missed**"
    return _figure(ours), _figure(theirs) if theirs else "", _ratio(ratio), shown


def _figure(side: Mapping[str, Any]) -> str:
    name = NAMES.get(side["name"], side["name"])
    if side["median"] is None:
        return name
    figure = rounded(side["median"])
    return figure if name == "infeed" else f"{figure} ({name})"


def _ratio(ratio: Mapping[str, float]) -> str:
    if not ratio:
        return ""
    spread = f" [{_short(ratio['min'])}\N{EN DASH}{_short(ratio['max'])}]" if "min" in ratio else ""
    return f"**{_short(ratio['median'])}**{spread}"


def _short(ratio: float) -> str:
    if ratio >= 10:
        return f"{ratio:.1f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"
