"""The advice of a profile: changes that its figures support, with their gains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from infeed_server.profile.figures import Change, Profile, Stage
from infeed_server.profile.forecast import Forecast

_MIN_GAIN = 0.05
"""Gains below are within the error of the figures."""

_MIN_WIRE_SAVING = 0.1
"""Share of the bytes on the wire that is worth a change, whatever the CPU time."""

_WAITING_SHARE = 0.5
"""CPU time by elapsed time below which a stage waits more than it computes."""

_LARGE_SHARE = 0.25
"""Share of the CPU time from which a function of the user is worth a look."""


@dataclass(frozen=True)
class Advice:
    """A change, the figures that support it, and its gain in samples per second, in percent.

    With `at_most`, the gain is that of the stage without any cost.
    """

    kind: str
    text: str
    gain_percent: float
    at_most: bool = False


def advice(profile: Profile, made: Forecast) -> list[Advice]:
    """Returns the advice that the figures support, that with the largest gain first."""
    found = [*_measured(profile, made), *_reading(profile, made), *_functions(profile, made)]
    return sorted(found, key=lambda each: -each.gain_percent)


def _measured(profile: Profile, made: Forecast) -> Iterator[Advice]:
    """Yields the changes of the definition that were measured, and help."""
    for change in profile.changes:
        gain = _after(change, profile, made) / made.samples - 1
        figures = f"{_us(made.cpu_per_sample)} → {_us(change.cpu)} of CPU time per sample"
        before = profile.wire_bytes or 0.0
        saves_bytes = change.wire_bytes < (1 - _MIN_WIRE_SAVING) * before
        if saves_bytes and change.kind == "finish_at_trainer":
            figures += f", {_kb(before)} → {_kb(change.wire_bytes)} on the wire"
        elif gain < _MIN_GAIN:
            continue
        later = "; from the second epoch on" if change.kind == "cache" else ""
        yield Advice(
            change.kind, f"{change.text} (measured: {figures}{later})", max(0.0, 100 * gain)
        )


def _after(change: Change, profile: Profile, made: Forecast) -> float:
    """Returns the samples per second after a change."""
    limits = {**made.limits, "cpu": profile.cores / max(change.cpu, 1e-12)}
    if change.kind == "cache":
        limits.pop("read", None)
    return min(limits.values())


def _reading(profile: Profile, made: Forecast) -> Iterator[Advice]:
    """Yields what helps where reading is the limit."""
    read = made.limits.get("read")
    others = [rate for name, rate in made.limits.items() if name != "read"]
    stages = [stage for stage in profile.server_stages if stage.kind in ("read", "map")]
    if read is None or made.limit != "read" or not stages:
        return
    gain = min(others) / read - 1
    if gain < _MIN_GAIN:
        return
    slowest = max(stages, key=lambda stage: stage.cost.elapsed)
    rates = f"it reaches {read:,.0f} samples/s, all other stages {min(others):,.0f}"
    if slowest.kind == "map":
        text = (
            f"{slowest.name} is the limit: {rates}; it runs in one thread of Python unless it has "
            "worker processes: raise processes"
        )
        yield Advice("python_processes", text, 100 * gain, at_most=True)
    elif profile.source_kind == "python":
        text = f"the data set in Python is the limit: {rates}; raise source.processes"
        yield Advice("python_processes", text, 100 * gain, at_most=True)
    elif slowest.cost.cpu < _WAITING_SHARE * slowest.cost.elapsed:
        text = (
            f"reading is the limit, with {slowest.bytes_out / slowest.cost.elapsed / 1e6:,.0f} "
            f"MB/s: {rates}; serve from faster storage, or a copy on a local disk"
        )
        if profile.source_kind == "images":
            text += "; one file per sample costs a request each, TFRecords read many at once"
        yield Advice("slow_source", text, 100 * gain, at_most=True)


def _functions(profile: Profile, made: Forecast) -> Iterator[Advice]:
    """Yields the functions of the user that take much of the time."""
    for stage in profile.server_stages:
        share = stage.cost.cpu / max(made.cpu_per_sample, 1e-12)
        if stage.runs_python:
            others = [rate for name, rate in made.limits.items() if name != "python"]
            gain = min(others) / made.samples - 1
            if made.limit == "python" and gain >= _MIN_GAIN:
                text = (
                    f"{stage.name} (transforms[{stage.ordinal}]) calls Python from the graph, so "
                    f"that one core at a time can run it: it reaches {made.samples:,.0f} "
                    f"samples/s, all cores {min(others):,.0f}; write it with TensorFlow "
                    "operations, or put it first with python: true and processes"
                )
                yield Advice("python_in_graph", text, 100 * gain)
                continue
        if _is_users(stage) and share >= _LARGE_SHARE and made.limit == "cpu":
            rate = profile.cores / max(made.cpu_per_sample - stage.cost.cpu, 1e-12)
            rate = min([rate, *(each for name, each in made.limits.items() if name != "cpu")])
            text = (
                f"{stage.name} takes {share:.0%} of the CPU time, {_us(stage.cost.cpu)} per "
                "sample; make it cheaper, or do its work once, before training"
            )
            yield Advice("own_function", text, 100 * (rate / made.samples - 1), at_most=True)


def _is_users(stage: Stage) -> bool:
    return stage.kind == "map" or (stage.kind == "transform" and stage.name.startswith("map "))


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def _kb(size: float) -> str:
    return f"{size / 1e3:,.1f} KB"
