"""Tests of the benchmarks' helpers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from benchmarks import published
from benchmarks.cases import CASES
from benchmarks.duel import Plan
from benchmarks.findings import Figures, Finding, Target
from benchmarks.processes import ROOT
from benchmarks.results import Outcome


@pytest.fixture
def echo() -> Iterator[str]:
    """An echo server, which ends with its client."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (None, None),
        (Target(2.0), True),
        (Target(2.1), False),
        (Target(1.9, "at most"), False),
        (Target(4.0, "at most", "figure"), True),
        (Target(5.0, of="figure", is_aim=True), False),
    ],
)
def test_target_is_reached_by_ratio_or_figure(target: Target | None, reached: bool | None):
    finding = Finding("GB/s", Figures("infeed", [4, 2, 9]), Figures("peer", [2, 2, 3]), target)
    assert finding.ratio == 2
    assert finding.is_reached is reached
    assert Finding.from_json(json.loads(json.dumps(finding.to_json()))) == finding


def test_every_case_is_documented():
    text = (ROOT / "benchmarks/README.md").read_text()
    assert [name for name in CASES if f"`{name}`" not in text] == []


def test_infeed_serves_the_datasets_of_its_peers():
    datasets = pytest.importorskip("benchmarks.datasets")
    served = yaml.safe_load((ROOT / "benchmarks/pipelines.yaml").read_text())["pipelines"]
    assert set(datasets.BY_NAME) <= set(served)


def outcome(value: float, error: str | None = None) -> dict[str, Any]:
    """Returns an outcome of one pair, as `results.json` holds it."""
    finding = Finding("GB/s", Figures("infeed", [value]), Figures("peer", [1.0]), Target(2.0))
    plan = Plan(1, 2.0)
    return Outcome([] if error else [finding], error, plan, 0.5, "2026-12-01T10:00:00").to_json()


def test_published_cases_exist_and_their_derived_values_are_right():
    results = json.loads(published.FILE.read_text())
    assert results.keys() <= CASES.keys()
    for name, result in results.items():
        for saved in result["findings"]:
            if saved["ours"]["values"]:
                assert Finding.from_json(saved).to_json() == saved, name
            elif saved["ratio"].get("min"):
                ratio = saved["ratio"]
                assert ratio["min"] <= ratio["median"] <= ratio["max"], name
