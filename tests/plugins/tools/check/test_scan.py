"""Scans: every sample is read and measured, and bad ones are listed with their reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.harness.native_double import DecoderDouble

from infeed_server.pipeline.load import parse_yaml
from infeed_tools.check.measures import Measures
from infeed_tools.check.report import PipelineReport
from infeed_tools.check.scan import scan_pipeline
from infeed_tools.check.text import print_report

SIZES = [(20, 30), (24, 40), (40, 24), (32, 32)]
"""Width and height of the photos, in turn."""


class Recorder:
    """The progress that a scan reported."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.done = 0

    @contextmanager
    def opening(self, name: str) -> Iterator[Any]:
        yield lambda done, total: None

    @contextmanager
    def scanning(self, name: str, samples: int | None) -> Iterator[Any]:
        self.total = samples

        def advance(count: int) -> None:
            self.done += count

        yield advance


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos in two classes, and copies of them with a missing label and an undecodable photo."""
    folder = tmp_path_factory.mktemp("scan")
    rng = np.random.default_rng(0)
    rows = ["file,label"]
    for number in range(70):
        name = f"{('cat', 'dog')[number % 2]}/{number:02}.png"
        (folder / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        width, height = SIZES[number % 4]
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / name)
        rows.append(f"{name},{number % 2}")
    (folder / "labels.csv").write_text("\n".join(rows[:-1]) + "\n")
    (folder / "photos" / "cat" / "04.png").write_bytes(b"not an image")
    (folder / "photos" / "cat" / "64.png").write_bytes(b"")
    boxes = np.full((4, 3, 4), [1, 1, 9, 9], np.float32)
    np.savez(folder / "boxes.npz", image=np.zeros((4, 20, 20, 3), np.uint8), boxes=boxes)
    np.savez(folder / "x.npz", x=np.arange(100, dtype=np.float32), label=np.arange(100) % 4)
    (folder / "functions_of_scan.py").write_text(
        "import tensorflow as tf\n\n"
        "def numbers():\n"
        "    data = tf.data.Dataset.range(90)\n"
        "    return data.map(lambda n: {'n': tf.cast(n, tf.float32), 'label': n % 3})\n\n"
        "def batches():\n"
        "    return numbers().batch(10)\n\n"
        "def endless():\n"
        "    return numbers().repeat()\n\n"
        "def failing():\n"
        "    return numbers().map(lambda s: {'n': tf.debugging.check_numerics(1 / (s['n'] - 40),"
        " 'forty')})\n\n"
        "class Numbers:\n"
        "    fingerprint = 'numbers'\n"
        "    __len__ = lambda self: 90\n"
        "    __getitem__ = lambda self, index: {'n': 1 // (index - 40)}\n\n"
        "def inverse(sample):\n"
        "    return {'n': int(100 // (sample['x'] - 70.0).astype(int).item())}\n\n"
        "def log(sample):\n"
        "    return {'x': tf.math.log(sample['x'])}\n"
    )
    return folder


def scan(
    folder: Path, text: str, limit: int | None = None, show: int = 10
) -> tuple[PipelineReport, list[str], Recorder]:
    file = folder / "p.yaml"
    file.write_text(f"pipelines:\n  p:\n{text}")
    recorder = Recorder()
    pipelines, bars = parse_yaml(str(file)), (recorder.opening, recorder.scanning)
    report, problems = scan_pipeline(pipelines, "p", *bars, limit=limit, max_examples=show)
    return report, [str(problem).removeprefix(f"{file}:") for problem in problems], recorder


PHOTOS = """
    source: {images: photos, labels: labels.csv}
    transforms:
      - decode_image: {field: image}
      - random_resized_crop: {field: image, size: [8, 8]}
      - normalize: {field: image, mean: 0.5, std: 0.25}
    batch: {size: 4}
"""


def test_photos(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "infeed_jpeg", DecoderDouble())
    report, problems, progress = scan(folder, PHOTOS, show=2)
    assert (report.samples, report.scanned, report.bad_samples) == (70, 70, 3)
    assert (progress.total, progress.done) == (70, 70)
    # The photo without a label is the last one in the CSV and in the folder.
    assert report.without_label == 1
    listed = [(error.metadata["sample_id"], error.message) for error in report.bad_examples]
    assert [number for number, _ in listed] == ["2", "32"]
    assert "cat/04.png" in listed[0][1]
    assert "transforms[0].decode_image" in listed[0][1]
    assert report.image_sizes() == {"image": {"height": (24, 32, 40), "width": (20, 32, 40)}}
    ranges = {(found.stage, found.field): found for found in report.ranges}
    assert list(ranges) == [(-1, "image"), (-1, "label"), *((n, "image") for n in range(3))]
    decoded = ranges[0, "image"]
    assert (decoded.minimum, decoded.maximum, decoded.shape) == (0, 255, "[?, ?, 3]")
    assert abs(decoded.mean - 127.5) < 1
    assert abs(decoded.std - 73.9) < 1
    assert ranges[2, "image"].maximum > 500
    share = "infeed-jpeg decodes 0.0% of 67 pictures, TensorFlow the others: 67 damaged"
    assert report.decoder == report.to_json()["decoder"] == share
    (balance,) = report.balances()
    assert dict(balance.counts) == {0: 33, 1: 34}
    assert len(problems) == 1
    assert problems[0].startswith("8: pipelines.p.transforms[2].normalize: std 0.25 does not fit")


def test_limit_reads_the_first_samples(folder: Path) -> None:
    text = "    source: {arrays: x.npz}\n    batch: {size: 4}\n"
    report, _, progress = scan(folder, text, limit=10)
    assert (report.samples, report.scanned, progress.done) == (100, 10, 10)
    assert [found.maximum for found in report.ranges if found.field == "x"] == [9]


def test_removed_samples_are_not_read(folder: Path) -> None:
    bad = "cat/04.png, cat/64.png"
    text = f"    source: {{images: photos}}\n    remove: [{bad}]\n    batch: {{size: 4}}\n"
    text += "    transforms: [decode_image: {field: image}, resize: {field: image, size: [4, 4]}]\n"
    report, _, progress = scan(folder, text)
    assert (report.samples, report.scanned, report.bad_samples) == (68, 68, 0)
    assert (progress.total, progress.done) == (68, 68)


def test_samples_whose_targets_do_not_fit_are_bad(tmp_path: Path) -> None:
    boxes = np.array([[[0, 0, 4, 4], [2, 2, 6, 6]]] * 4, np.float32)
    boxes[:3, 1] = 0  # an empty box
    np.savez(tmp_path / "x.npz", image=np.zeros((4, 8, 8, 3), np.uint8), boxes=boxes)
    steps = "[random_flip_left_right: {field: image}]"
    options = f"transforms: {steps}, targets: {{boxes: {{boxes: {{pad: 1}}}}}}"
    report, *_ = scan(tmp_path, f"    {{source: {{arrays: x.npz}}, {options}, batch: 2}}")
    assert report.bad_samples == 1
    assert "targets.boxes: pad: at most 1 rows" in report.bad_examples[0].message
    assert {found.field for found in report.ranges if found.stage == 0} == {
        *("image", "boxes", "boxes_count")
    }


@pytest.mark.parametrize("fill", [255, 3])
def test_values_of_masks_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fill: int
) -> None:
    masks = np.zeros((4, 8, 8), np.uint8)
    masks[:, 2], masks[3, 4] = 1, 255
    points = np.ones((4, 2, 3, 3), np.float32)
    np.savez(tmp_path / "x.npz", image=np.zeros((4, 8, 8, 3), np.uint8), mask=masks, points=points)
    steps = "[random_flip_left_right: {field: image}]"
    targets = f"{{mask: {{mask: {{fill: {fill}}}}}, points: keypoints}}"
    report, *_ = scan(
        tmp_path,
        f"    {{source: {{arrays: x.npz}}, transforms: {steps}, targets: {targets}, batch: 2}}",
    )
    assert report.mask_values == {"mask": {0, 1, 255}}
    assert report.to_json()["mask_values"] == {"mask": [0, 1, 255]}
    print_report(report)
    printed = capsys.readouterr().out
    assert "values of mask: 0, 1, 255" in printed
    assert ("warning: fill: 255 is also a value of mask" in printed) == (fill == 255)


def test_rows_of_points_are_no_pictures() -> None:
    shapes = {"image": [None, None, 3], "points": [None, 3, 3]}
    specs = {name: tf.TensorSpec(shape, tf.float32) for name, shape in shapes.items()}
    ranges = Measures.of(specs, lambda sample: sample, []).ranges()
    assert {found.field: found.is_image for found in ranges} == {"image": True, "points": False}


def test_values_that_are_not_finite_are_a_problem(folder: Path) -> None:
    text = (
        "    source: {arrays: x.npz}\n    transforms: [map: functions_of_scan:log]\n"
        "    batch: {size: 4}\n"
    )
    report, problems, _ = scan(folder, text)
    assert problems == [
        "4: pipelines.p.transforms[0].map: 1 results in field 'x' are NaN or infinite"
    ]
    assert report.to_json()["ranges"][-1]["min"] == 0.0


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("images: photos, labels: x.npz", "3: pipelines.p.source.labels: "),
        (
            "dataset: functions_of_scan:endless",
            "3: pipelines.p.source.dataset: the dataset is endless; give --limit",
        ),
        (
            "dataset: functions_of_scan:failing",
            "2: pipelines.p: the dataset of functions_of_scan:failing failed: ",
        ),
    ],
)
def test_errors_of_the_source_are_problems(folder: Path, source: str, problem: str) -> None:
    report, problems, _ = scan(folder, f"    source: {{{source}}}\n    batch: {{size: 4}}\n")
    assert len(problems) == 1
    assert problems[0].startswith(problem), problems
    assert report.scanned == 0


def test_dataset_is_read_once(folder: Path) -> None:
    text = """
    source: {dataset: functions_of_scan:numbers}
    transforms: [normalize: {field: n, mean: 50, std: 30}, one_hot: {field: label, depth: 2}]
    batch: {size: 32}
"""
    report, problems, progress = scan(folder, text)
    assert (report.samples, report.scanned, progress.done) == (90, 90, 90)
    batches, _, _ = scan(folder, "    source: {dataset: functions_of_scan:batches}\n")
    assert (batches.samples, batches.scanned) == (None, 90)
    ranges = {(found.stage, found.field): found for found in report.ranges}
    assert (ranges[-1, "n"].minimum, ranges[-1, "n"].maximum) == (0, 89)
    assert abs(ranges[0, "n"].mean + 5.5 / 30) < 1e-6
    assert dict(report.balances()[0].counts) == {0: 30, 1: 30, 2: 30}
    assert [problem.partition(":")[0] for problem in problems] == ["5"]
    assert "labels 0 to 2" in problems[0]
    limited, _, _ = scan(folder, text, limit=40)
    assert limited.scanned == 40
    assert 39 in [found.maximum for found in limited.ranges if found.field == "n"]


@pytest.mark.parametrize(
    ("text", "stage", "bad"),
    [
        ("source: {python: functions_of_scan:Numbers}\n", "read", 40),
        (
            "source: {arrays: x.npz}\n    transforms:\n"  # noqa: ISC004
            "      - map: {function: functions_of_scan:inverse, python: true}\n",
            "transforms[0].map",
            70,
        ),
    ],
)
def test_each_sample_that_python_raises_for_is_bad(
    folder: Path, text: str, stage: str, bad: int
) -> None:
    report, problems, progress = scan(folder, f"    {text}    batch: {{size: 8}}\n")
    assert not problems
    (error,) = report.bad_examples
    assert (error.metadata["sample_id"], error.metadata["stage"]) == (str(bad), stage)
    assert "ZeroDivisionError" in error.message
    assert report.bad_samples == 1
    assert progress.done == progress.total


BOXES = """
    source: {arrays: boxes.npz}
    transforms:
      - STEP
    targets: {boxes: {boxes: {OPTIONSpad: 3}}}
    batch: {size: 2}
"""


@pytest.mark.parametrize(
    ("step", "options", "after", "problem"),
    [
        ("center_crop: {field: image, size: [16, 16]}", "", 12, ""),
        (
            "center_crop: {field: image, size: [2, 1]}",
            "min_visible: 0.5, ",
            0,
            "none of 12 boxes is",
        ),
        ("resize: {field: image, size: [4, 4]}", "normalized: true, ", 0, "1 to 9 are pixels"),
    ],
)
def test_boxes_are_counted(folder: Path, step: str, options: str, after: int, problem: str) -> None:
    report, problems, _ = scan(folder, BOXES.replace("STEP", step).replace("OPTIONS", options))
    assert report.rows == {"boxes": (12, after)}
    assert len(problems) == bool(problem)
    assert problem in "".join(problems)
