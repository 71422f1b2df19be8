"""`infeed peek` against servers of fake pipelines: JSON, and the labelled images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import infeed
from infeed.batch import Batch
from infeed.cli import new_app
from infeed.shared.errors import InvalidRequestError
from infeed.shared.spec import Cast, TargetSpec
from infeed.testing import FakeTransport
from infeed_tools.peek import contact_sheet
from infeed_tools.peek.command import _to_json


def run(*arguments: str) -> Result:
    return CliRunner().invoke(new_app(), ["peek", *arguments])


def fake(**options: Any) -> FakeTransport:
    image = np.zeros((20, 6, 8, 3), np.uint8) + np.arange(20, dtype=np.uint8)[:, None, None, None]
    arrays = {"image": image, "label": np.arange(20) % 5}
    return FakeTransport(arrays, name="photos", batch_size=6, **options)


def batch_and_spec(transport: FakeTransport, **options: Any) -> tuple[Batch, Any]:
    with infeed.connect("-", "photos", transport=transport, **options) as feed:
        *_, batch = (next(feed) for _ in range(feed.steps or 1))
        return batch, feed.spec


def test_json_has_spec_ranges_and_provenance(serve: Any, tmp_path: Path) -> None:
    transport = fake(finish_transforms=[Cast("image", "float32")])
    png = tmp_path / "photos.of-today"
    result = run(serve(transport).address, "photos", "--step", "2", "--json", "--png", str(png))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    ids = transport.sample_ids(0, 12, 6)
    assert document["batch"] == {
        "start": 12,
        "epoch": 0,
        "slots": 6,
        "sample_ids": ids.tolist(),
        "mask": [True] * 6,
        "classes": {},
    }
    image, label = document["pipeline"]["fields"]
    assert (image["name"], image["data_type"], image["sent_as"]) == ("image", "float32", "uint8")
    assert (image["min"], image["max"]) == (ids.min(), ids.max())
    assert (label["min"], label["max"]) == ((ids % 5).min(), (ids % 5).max())
    with Image.open(png) as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 6 * 64


def test_classes_have_their_names(serve: Any) -> None:
    transport = fake()
    transport.spec = replace(transport.spec, classes={"label": ("ant", "bee", "cat", "dog")})
    labels = [number % 5 for number in transport.sample_ids(0, 0, 6).tolist()]
    named = [f"{n} {['ant', 'bee', 'cat', 'dog'][n]}" if n < 4 else "4" for n in labels]
    result = run(serve(transport).address, "photos")
    assert f"label: {', '.join(named)}\n" in result.output, result.output


def test_value_ranges_leave_out_empty_slots() -> None:
    transport = FakeTransport(
        {"x": np.arange(5, 9)}, name="x", batch_size=3, shuffle=False, remainder="pad"
    )
    with infeed.connect("-", "x", transport=transport, epochs=1) as feed:
        *_, batch = feed
        (field,) = _to_json(feed, batch)["pipeline"]["fields"]
    assert batch["x"].tolist() == [8, 0, 0]
    assert (field["min"], field["max"], field["mean"]) == (8, 8, 8)


def test_names_cannot_control_the_terminal(serve: Any) -> None:
    name = "x\x1b[2J[/b]\n"
    transport = FakeTransport({name: np.zeros(8)}, name="p[/b]\x1b", batch_size=2)
    result = run(serve(transport).address, "p[/b]\x1b")
    assert result.exit_code == 0, result.output
    assert "p[/b]\\x1b fingerprint" in result.output
    assert "x\\x1b[2J[/b]\\n" in result.output


def test_captions_have_sample_label_and_position() -> None:
    batch, spec = batch_and_spec(fake(), epochs=1, remainder="pad")
    captions = [contact_sheet._caption(batch, spec, slot) for slot in range(batch.slots)]
    ids = batch.sample_ids
    assert captions[0] == f"sample {ids[0]}\nlabel {ids[0] % 5}\nposition 18"
    assert captions[1] == f"sample {ids[1]}\nlabel {ids[1] % 5}\nposition 19"
    assert captions[2:] == ["empty slot"] * 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"cat", "cat"),
        (b"\xff" + b"a" * 40, "\ufffdaaaaaaaaaaaa..."),
        (np.int64(12345678), "12345678"),
        (np.float32(0.25), "0.25"),
        (np.zeros((2, 3)), "of shape [2, 3]"),
        (np.eye(5)[3], "3"),
    ],
)
def test_labels_of_other_types_are_short(value: Any, text: str) -> None:
    assert contact_sheet.label_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([0.21, 0.0, 0.79], "0.79 cat, 0.21 ant"),
        ([0.0, 1.0, 1.0], "1 bee, 1 cat"),
        ([0.0, 0.0, 0.0], "no class"),
        ([0.02, 0.9, 0.04, 0.04], "0.9 bee, 0.04 cat, 0.04 class 3, ..."),
        ([0.5, 3.0, 0.0], "of shape [3]"),
        ([0.5, 3.0], "of shape [2]"),
    ],
)
def test_shares_of_classes_have_their_names(value: list[float], text: str) -> None:
    label = np.array(value, np.float32)
    assert contact_sheet.label_text(label, ("ant", "bee", "cat")) == text


def test_a_batch_without_images_is_refused() -> None:
    batch, spec = batch_and_spec(FakeTransport({"x": np.zeros(8)}, name="photos", batch_size=2))
    with pytest.raises(InvalidRequestError, match=r"no field has images.*x: float64\[\]"):
        contact_sheet.contact_sheet(batch, spec)


def test_labels_of_boxes_are_shown_without_padding() -> None:
    batch: Any = {
        "boxes": np.zeros((2, 3, 4)),
        "label": np.array([[1, 0, 0], [0, 0, 0]]),
        "boxes_count": np.array([2, 0]),
    }
    spec: Any = SimpleNamespace(targets=[TargetSpec("boxes", "image", "boxes")])
    rows = [contact_sheet.row_count(batch, spec, "label", slot) for slot in range(2)]
    shown = [
        contact_sheet.label_text(value, ("cat", "dog"), count)
        for value, count in zip(batch["label"], rows, strict=True)
    ]
    assert shown == ["[1 dog, 0 cat]", "[]"]
