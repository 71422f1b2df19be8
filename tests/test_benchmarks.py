"""Tests of the benchmarks' helpers."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from benchmarks import formats, pack, published, servers
from benchmarks.cases import CASES
from benchmarks.duel import Goal, Plan, Side, duel, gigabytes_per_second
from benchmarks.findings import Figures, Finding, Target
from benchmarks.processes import ROOT, BenchmarkError
from benchmarks.results import Outcome
from tests.harness.photos import drawn_photos
from typer.testing import CliRunner


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


def test_proxy_delays_both_directions_and_keeps_the_bytes(echo: str):
    sent = os.urandom(5_000_000)
    with servers.delayed(echo, 40) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as connection:
            begin = time.monotonic()
            connection.sendall(sent[:1])
            received = bytearray(connection.recv(1))
            round_trip = time.monotonic() - begin

            def send() -> None:
                connection.sendall(sent[1:])
                connection.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            while data := connection.recv(1 << 20):
                received += data
            sender.join()
    assert received == sent
    assert round_trip >= 0.08


def test_duel_of_equal_sides_has_a_ratio():
    side = Side("raw TCP", "tcp", lambda: servers.tcp("uint8"), "uint8", warm_up=0.0)
    (finding,) = duel(side, side, [Goal("GB/s", gigabytes_per_second)], Plan(1, 0.5))
    assert len(finding.ratios) == 1
    assert finding.ratio > 0


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


def test_failed_case_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photos: SimpleNamespace
):
    pytest.importorskip("matplotlib")
    import typer
    from benchmarks import __main__ as command
    from benchmarks.cases import Case

    def fail(plan: Plan) -> list[Finding]:
        raise BenchmarkError("broken")

    def succeed(plan: Plan) -> list[Finding]:
        return [Finding("GB/s", Figures("infeed", [3.0]), Figures("peer", [2.0]), Target(1.0))]

    monkeypatch.setenv("INFEED_BENCH_PHOTOS", str(photos.folder))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "CASES", {"bad": Case("", fail), "good": Case("", succeed)})
    app = typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 1
    assert "BenchmarkError: broken" in result.output
    results = json.loads(Path("bench-results/results.json").read_text())
    assert results["machine"]["photos"].startswith(f"{photos.count} of {photos.folder.name}, ")
    saved = results["cases"]
    assert saved["bad"]["error"] == "BenchmarkError: broken"
    assert saved["good"]["findings"][0]["ratio"]["median"] == 1.5
    assert Path("bench-results/results.png").stat().st_size > 1000


def test_drawn_photos_are_kept_and_the_same_elsewhere(tmp_path: Path):
    first, again = drawn_photos(tmp_path / "a", 3), drawn_photos(tmp_path / "a", 3)
    other = drawn_photos(tmp_path / "b", 3)
    assert again == first
    assert other.name == first.name
    assert list((tmp_path / "a").iterdir()) == [first]
    for file in first.iterdir():
        assert (other / file.name).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_formats_are_written_and_read(monkeypatch: pytest.MonkeyPatch, photos: SimpleNamespace):
    pytest.importorskip("array_record")
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("INFEED_BENCH_PHOTOS", str(photos.folder))
    monkeypatch.setattr(formats, "PIPELINE", formats.PIPELINE.replace("size: 64", "size: 16"))
    findings = formats.compare(Plan(1, 0.1))
    assert {finding.measure for finding in findings} == {"images/s, raw", "images/s, decoded"}
    assert {finding.ours.name for finding in findings} == {*formats.SOURCES} - {formats.PEER}
    assert all(finding.ratio > 0 for finding in findings)


@pytest.mark.slow
def test_packs_are_written_and_read(monkeypatch: pytest.MonkeyPatch, photos: SimpleNamespace):
    monkeypatch.setenv("INFEED_BENCH_PHOTOS", str(photos.folder))
    monkeypatch.setattr(pack, "PIPELINE", pack.PIPELINE.replace("size: 64", "size: 16"))
    findings = pack.compare(Plan(1, 0.1))
    assert [finding.ours.name for finding in findings] == [pack.REDUCED, pack.PLAIN]
    assert all(finding.ratio > 0 for finding in findings)


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


def test_published_are_the_named_cases_that_ran():
    run = {
        "machine": {"processor": "new"},
        "cases": {"a": outcome(3.0), "b": outcome(4.0), "c": outcome(5.0, "broken")},
    }
    before = {"a": {"machine": {"processor": "old"}}, "c": {"machine": {"processor": "old"}}}
    named = published.add(before, run, ["a"])
    assert named == {"a": {"machine": run["machine"], **run["cases"]["a"]}, "c": before["c"]}
    every = published.add(before, run, [])
    assert set(every) == {"a", "b", "c"}
    assert every["c"] == before["c"]


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
