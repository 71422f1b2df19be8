"""Tests of the README's pictures: they show what was run and measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_chart_has_the_figures_of_the_results(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from benchmarks import loaders_chart
    from benchmarks.duel import Plan
    from benchmarks.findings import Figures, Finding
    from benchmarks.loaders import RATE, SERVER_CPU, TRAINER_CPU
    from benchmarks.results import Outcome

    def findings(number: float) -> list[Finding]:
        ours, peer = Figures("infeed", [number]), Figures("tf.data service", [7.0])
        return [Finding(measure, ours, peer) for measure in (RATE, TRAINER_CPU, SERVER_CPU)]

    machine = {name: name for name in ("photos", "processor", "cores", "kernel", "infeed")}
    pictures = []
    for number in (5.0, 6.0):
        outcome = Outcome(findings(number), plan=Plan(1, 2.0), time="2026-01-02T03:04:05")
        assert loaders_chart.sides(outcome)["infeed"][RATE].median == number
        assert "2026-01-02" in loaders_chart.caption(outcome, {**machine, "TensorFlow": "2"})
        results = tmp_path / "results.json"
        saved = {"machine": {**machine, "TensorFlow": "2"}, "cases": {"loaders": outcome.to_json()}}
        results.write_text(json.dumps(saved))
        loaders_chart.main(tmp_path, results)
        pictures.append((tmp_path / "loaders.svg").read_text())
        assert "prefers-color-scheme: dark" in pictures[-1]
    assert pictures[0] != pictures[1]


def test_chart_of_the_readme_is_of_the_published_results(tmp_path: Path):
    pytest.importorskip("matplotlib")
    from benchmarks import loaders_chart, published

    loaders = json.loads(published.FILE.read_text())["loaders"]
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"machine": loaders["machine"], "cases": {"loaders": loaders}}))
    loaders_chart.main(tmp_path, results)
    drawn, shown = (
        re.findall(r"<!-- (.*?) -->", (folder / "loaders.svg").read_text())
        for folder in (tmp_path, README.parent / "docs/images")
    )
    assert drawn
    assert shown == drawn
