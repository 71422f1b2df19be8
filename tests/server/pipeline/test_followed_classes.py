"""Names of classes: they follow a field through the transforms, and reach the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import infeed
from infeed_server.pipeline import followed_classes
from infeed_server.pipeline.followed_classes import warn_of_other_classes
from infeed_server.pipeline.indexed_plan import plan_indexed
from infeed_server.pipeline.load import parse


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "0.png")
    return tmp_path


def classes_of(photos: Path, *transforms: Any) -> Any:
    source = {"images": str(photos), "labels": "folders"}
    definition = parse({"source": source, "transforms": transforms, "batch": 2})
    return plan_indexed("p", definition, definition.open()).spec.classes


def shift(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"image": sample["image"], "label": sample["label"] + 1}


def halve(sample: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"image": tf.strings.substr(sample["image"], 0, 2), "kind": sample["label"]}


def keep(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


def test_names_follow_a_field_and_what_keeps_its_classes(photos: Path) -> None:
    names = ("cat", "dog")
    assert classes_of(photos) == {"label": names}
    steps = [{"cast": {"field": "y", "dtype": "int32"}}, {"one_hot": {"field": "y", "depth": 2}}]
    assert classes_of(photos, {"rename": {"fields": {"label": "y"}}}, *steps) == {"y": names}
    assert classes_of(photos, {"map": {"function": halve}}) == {"kind": names}


def test_the_other_label_of_a_pair_has_the_names(photos: Path) -> None:
    names = ("cat", "dog")
    mix = {"field": "image", "mixup": 1.0, "partner": "label_b"}
    steps = [
        {"decode_image": {"field": "image"}},
        {"center_crop": {"field": "image", "size": [4, 4]}},
    ]
    found = classes_of(photos, *steps, {"mix_pairs": mix})
    assert found == {"label": names, "label_b": names}


def test_names_end_where_other_numbers_are_made(photos: Path) -> None:
    assert classes_of(photos, {"map": {"function": shift}}) == {}
    assert classes_of(photos, {"map": {"function": keep, "python": True}}) == {}


def test_names_of_too_many_bytes_are_not_sent(
    photos: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(followed_classes, "MAX_BYTES", 5)
    assert classes_of(photos) == {}
    assert "class names of label are not sent: 6 bytes are too many" in caplog.text


def test_a_feed_has_the_names(photos: Path, serve: Any) -> None:
    server = serve(
        f"pipelines: {{p: {{source: {{images: {photos}, labels: folders}}, batch: 2, "
        "transforms: [{drop: {fields: [image]}}]}}"
    )
    with infeed.connect(str(server.address), "p", epochs=1) as feed:
        names = feed.classes["label"]
        assert names == ("cat", "dog")
        assert [names[number] for number in np.sort(next(feed)["label"])] == ["cat", "dog"]


def test_pipelines_that_number_the_same_names_differently_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_other_classes(
        {
            "train": {"label": ("cat", "dog")},
            "val": {"label": ("dog", "cat")},
            "part": {"label": ("cat",)},
            "digits": {"label": ("0", "1")},
        }
    )
    assert caplog.messages == ["val: label where 0 is 'dog', not 'cat' as in train"]
