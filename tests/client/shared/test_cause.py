"""Causes: built situations with the counters that each must agree with, and random reports."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.shared.cause import RULES, Cause, figures_of, find_cause
from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.verdict import judge

IDLE = ServerReport(seconds=10.0, batches=100, bytes=10**9, cores=4.0, no_request_seconds=10.0)
BUSY = replace(IDLE, no_request_seconds=0.0, cpu_seconds=38.0)
WAITING = TrainerReport(seconds=10.0, steps=100, wait_seconds=5.0, streams=1, bytes=10**9)
PYTHON = replace(BUSY, source_seconds=9.5, python_workers=2, python_seconds=19.0, cpu_seconds=4.0)
"""Two workers that wait for something all the time."""
FULL = replace(BUSY, no_budget_seconds=10.0, unsent_seconds=9.0, cpu_seconds=2.0)
SLOW: dict[str, Any] = {"slow_connection": "b:1#2", "slow_rate": 0.5, "other_rate": 6.0}
IN_USE = " of the servers' processors in use"

SITUATIONS = {
    "storage is slow": (
        "storage",
        replace(BUSY, source_seconds=9.0, transform_seconds=1.0),
        WAITING,
        "the pipeline waited 90 % of the time for the source",
    ),
    "transforms use all processors": (
        "transforms",
        replace(BUSY, source_seconds=1.0, transform_seconds=9.0),
        WAITING,
        f"the pipeline waited 90 % of the time for the transforms, with 95 %{IN_USE}",
    ),
    "bad samples hold the batches, and unsent ones wait behind them": (
        "bad samples",
        replace(BUSY, transform_seconds=9.0, repair_seconds=7.0, unsent_seconds=6.0),
        WAITING,
        "the pipeline waited 70 % of the time for batches with bad samples",
    ),
    "a few bad samples beside expensive transforms": (
        "transforms",
        replace(BUSY, transform_seconds=9.0, repair_seconds=1.0),
        WAITING,
        f"the pipeline waited 90 % of the time for the transforms, with 95 %{IN_USE}",
    ),
    "Python workers wait": (
        "Python workers",
        PYTHON,
        WAITING,
        f"its 2 Python workers were busy 95 % of the time, with 10 %{IN_USE}",
    ),
    "Python workers compute": (
        "Python CPU",
        replace(PYTHON, cpu_seconds=38.0),
        WAITING,
        f"its 2 Python workers were busy 95 % of the time, with 95 %{IN_USE}",
    ),
    "neighbours use the processors of Python workers": (
        "Python CPU",
        replace(PYTHON, available_cores=0.4),
        WAITING,
        f"its 2 Python workers were busy 95 % of the time, with 10 %{IN_USE}",
    ),
    "one data set is read in its order": (
        "data set",
        replace(BUSY, transform_seconds=9.0, is_sequential=True),
        WAITING,
        f"the pipeline waited 90 % of the time for the data set, with 95 %{IN_USE}",
    ),
    "the memory limit keeps processors idle": (
        "server budget",
        replace(BUSY, source_seconds=9.0, cpu_seconds=4.0, shortage_seconds=8.0, unsent_seconds=8),
        WAITING,
        "for 80 % of the time, only the memory limit kept a batch from being begun",
    ),
    "the finish transforms are expensive": (
        "client CPU",
        IDLE,
        replace(WAITING, finish_seconds=8.0),
        "its finish transforms were busy 80 % of the time",
    ),
    "the reading threads are busy": (
        "client CPU",
        IDLE,
        replace(WAITING, cpu_seconds=8.0),
        "its receiving threads were busy 80 % of the time",
    ),
    "one of two connections is ten times slower": (
        "slow connection",
        FULL,
        replace(WAITING, receive_seconds=6.0, streams=2, **SLOW),
        "b:1#2 brought 0.5 batches/s while requests were in flight, each other connection 6",
    ),
    "the link is full": (
        "network rate",
        FULL,
        replace(WAITING, receive_seconds=9.0),
        "a batch was under way 90 % of the time, at 100 MB/s",
    ),
    "the link is full while the pipeline works": (
        "network rate",
        replace(BUSY, transform_seconds=9.0),
        replace(WAITING, receive_seconds=9),
        "a batch was under way 90 % of the time, at 100 MB/s",
    ),
    "the server finishes the batches": (
        "serialisation",
        replace(FULL, encode_seconds=20.0),
        WAITING,
        "2.0 threads encoded batches, and there was no room for more 100 % of the time",
    ),
    "a proxy holds the batches": (
        "sending",
        FULL,
        replace(WAITING, receive_seconds=1.0),
        "unsent batches filled a stream 90 % of the time, and one was under way 10 % of it",
    ),
    "the server is far away": (
        "round trip",
        IDLE,
        WAITING,
        "the pipeline had nothing to make for it 100 % of the time",
    ),
    "another job is on a slow link, and this one far away": (
        "round trip",
        replace(FULL, unsent_seconds=0.0),
        WAITING,
        "the pipeline had nothing to make for it 100 % of the time",
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_cause_states_the_counters_of_the_situation(situation: str) -> None:
    cause, server, trainer, detail = SITUATIONS[situation]
    assert find_cause(trainer, [server]) == (cause, detail)
    verdict = judge([RankReport(0, trainer)], 1, [server])
    assert f"cause: {cause} ({detail}" in str(verdict)
    assert verdict.advice
    assert str(verdict).endswith(verdict.advice)
    assert verdict.to_json()["text"] == str(verdict)


def test_every_cause_has_a_situation() -> None:
    built = {cause for cause, *_ in SITUATIONS.values()}
    assert built == {rule.cause for rule in RULES} == {*get_args(Cause)} - {"missing server"}


CONTRADICTIONS: dict[str, Any] = {
    "bad samples": lambda s, t: s.repair_seconds < 0.25 * s.seconds,
    "storage": lambda s, t: s.source_seconds < 0.25 * s.seconds,
    "Python workers": lambda s, t: s.python_share < 0.7 or s.source_seconds < 0.25 * s.seconds,
    "Python CPU": lambda s, t: s.python_share < 0.7 or s.source_seconds < 0.25 * s.seconds,
    "transforms": lambda s, t: s.transform_seconds < 0.25 * s.seconds or s.is_sequential,
    "data set": lambda s, t: s.transform_seconds < 0.25 * s.seconds or not s.is_sequential,
    "server budget": lambda s, t: s.shortage_seconds < 0.5 * s.seconds,
    "serialisation": lambda s, t: s.encode_seconds < 0.5 * s.seconds or s.busy_seconds > 9.999,
    "network rate": lambda s, t: t.receive_seconds < 0.5 * t.seconds * max(1, t.streams),
    "slow connection": lambda s, t: not t.slow_connection or t.slow_rate >= t.other_rate,
    "client CPU": lambda s, t: max(t.cpu_seconds, t.finish_seconds) < 0.7 * t.seconds,
    "sending": lambda s, t: s.unsent_seconds < 0.25 * s.seconds,
    # A trainer whose unsent batches wait, or whose server works, does not wait for its requests.
    "round trip": lambda s, t: (
        (s.unsent_seconds >= 0.25 * s.seconds or s.shortage_seconds >= 0.5 * s.seconds)
        or (s.busy_seconds > 0.5 * s.seconds or t.receive_seconds >= 0.5 * t.seconds * t.streams)
    ),
}
"""By cause, the counters that would contradict it, from the reports alone."""

shares = st.floats(0.0, 1.0)


@st.composite
def reports(draw: st.DrawFn) -> tuple[TrainerReport, ServerReport]:
    parts = [draw(shares) + 1e-3 for _ in range(4)]
    states = [10.0 * part / sum(parts) for part in parts]
    unsent, streams = draw(shares), draw(st.integers(1, 4))
    server = replace(
        IDLE,
        **dict(
            zip(
                ("no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds"),
                states,
                strict=True,
            )
        ),
        repair_seconds=states[3] * draw(shares),
        unsent_seconds=10.0 * unsent,
        shortage_seconds=10.0 * unsent * draw(shares),
        encode_seconds=20.0 * draw(shares),
        cpu_seconds=40.0 * draw(shares),
        available_cores=draw(st.floats(0.1, 4.0)),
        python_workers=(workers := draw(st.integers(0, 3))),
        python_seconds=10.0 * workers * draw(shares),
        is_sequential=draw(st.booleans()),
    )
    several = {"slow_connection": "b", "slow_rate": 10 * draw(shares), "other_rate": 10.0}
    trainer = replace(
        WAITING,
        streams=streams,
        receive_seconds=10.0 * streams * draw(shares),
        cpu_seconds=10.0 * draw(shares),
        finish_seconds=10.0 * draw(shares),
        **(several if streams > 1 else {}),
    )
    return trainer, server


@given(reports())
def test_no_counter_contradicts_the_cause(made: tuple[TrainerReport, ServerReport]) -> None:
    trainer, server = made
    cause, detail = find_cause(trainer, [server])
    assert not CONTRADICTIONS[cause](server, trainer), (cause, detail)
    figures = figures_of(trainer, server)
    printed = {figure.strip() for figure in re.findall(r"\d+ %", detail)}
    assert printed <= {str(value) for value in vars(figures).values()}
