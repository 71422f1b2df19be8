"""The command `infeed check`: output, JSON and exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.harness.datasets import jpeg
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed_tools.check.command import ScanOptions
from infeed_tools.check.report import PipelineReport

GOOD = "pipelines:\n  p:\n    source: {arrays: x.npz}\n    batch: {size: 2}\n"
BAD = (
    "pipelines:\n  p:\n    source: {arrays: y.npz}\n    shufle: {}\n"
    "    transforms:\n      - map: no_such_module:f\n    batch: {size: 2}\n"
)
WITH_BAD_SAMPLE = (
    "pipelines:\n  p:\n    source: {arrays: text.npz}\n"
    "    transforms: [string_to_number: {field: t}]\n    batch: {size: 2}\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.savez(tmp_path / "x.npz", x=np.arange(10), label=np.arange(10) % 2)
    np.savez(tmp_path / "text.npz", t=np.array(["1", "two", "3"]))
    for name, text in (("good", GOOD), ("bad", BAD), ("bad_sample", WITH_BAD_SAMPLE)):
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["check", *arguments])


def test_mistakes_are_named_without_tensorflow(folder: Path) -> None:
    code = (
        "import sys\n"
        "from infeed.cli import main\n"
        "sys.argv = ['infeed', 'check', 'bad.yaml']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    print('status', end.code)\n"
        "slow = ('tensorflow.python', 'h2', 'infeed.rpc', 'infeed_tools.audit.run')\n"
        "print('loaded', [name for name in slow if name in sys.modules])\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    *problems, total, status, loaded = process.stdout.splitlines()
    assert [line.split(": ")[0:2] for line in problems] == [
        ["bad.yaml:3", "pipelines.p.source.arrays"],
        ["bad.yaml:4", "pipelines.p.shufle"],
        ["bad.yaml:6", "pipelines.p.transforms[0].map.function"],
    ]
    assert (total, status, loaded) == ("bad.yaml: 3 problems", "status 1", "loaded []")


def test_good_file_has_status_0(folder: Path) -> None:
    result = run("good.yaml")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("good.yaml: good, in ")
    assert "--scan" in result.output


def test_classes_order_and_decoder_are_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "infeed_jpeg", None)
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "0.jpg").write_bytes(jpeg(0))
    steps = "[decode_image: {field: image}, center_crop: {field: image, size: [4, 4]}]"
    source = f"source: {{images: photos, labels: folders}}, transforms: {steps}"
    (folder / "photos.yaml").write_text(f"pipelines: {{p: {{{source}, batch: 2}}}}\n")
    lines = run("photos.yaml").stdout.splitlines()
    assert lines[0] == "p: the classes of label are 0 cat, 1 dog"
    decoder = "TensorFlow decodes the pictures: the package infeed-jpeg is not installed"
    assert lines[1] == f"p, first batch: {decoder}"
    assert lines[2].startswith("note: p: samples come class by class")


def test_json_of_a_bad_file(folder: Path) -> None:
    result = run("bad.yaml", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert (document["file"], document["good"]) == ("bad.yaml", False)
    assert document["problems"][1] == {
        "file": "bad.yaml",
        "line": 4,
        "path": "pipelines.p.shufle",
        "message": "unknown key 'shufle' (did you mean 'shuffle'?); allowed: add, balance, batch, "
        "mix, on_error, part, quarantine, remove, shuffle, skip, source, targets, transforms, "
        "where",
    }


def test_scan_prints_what_it_found(folder: Path) -> None:
    result = run("good.yaml", "--scan")
    assert result.exit_code == 0, result.output
    for text in (
        "p: 10 samples, 0 bad",
        "classes of label: 2, with 5 to 5 samples (median 5)",
        "good.yaml: good",
    ):
        assert text in result.output


def test_a_bad_sample_in_the_first_batch_points_to_the_scan(folder: Path) -> None:
    result = run("bad_sample.yaml")
    assert result.exit_code == 1
    assert "; --scan lists every bad sample\n" in result.output
    assert "; --scan lists" not in run("bad.yaml").output


def test_bad_samples_are_a_problem(folder: Path) -> None:
    result = run("bad_sample.yaml", "--scan", "--show", "0")
    assert result.exit_code == 1
    assert "p: 3 samples, 1 bad" in result.output
    assert "bad: and 1 more; see --show" in result.output
    assert "bad samples; repair them, or see on_error and --max-bad" in result.output


@pytest.mark.parametrize(("limit", "is_good"), [(1, True), (0.34, True), (0.33, False), (0, False)])
def test_bad_samples_are_accepted_by_number_or_part(limit: float, is_good: bool) -> None:
    report = PipelineReport("p", scanned=3, bad_samples=1)
    assert ScanOptions(max_bad=limit).accepts(report) == is_good


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.yaml"],
        ["good.yaml", "--limit", "0"],
        ["good.yaml", "--scan", "--pipeline", "q"],
        ["good.yaml", "--sacn"],
        ["good.yaml", "--max-bad", "-1"],
        ["good.yaml", "--max-bad", "few"],
    ],
)
def test_wrong_usage_has_status_2(folder: Path, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
