"""Picking a source by its key, and opening it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from infeed import ConfigError
from infeed_server.config.model import Definition
from infeed_server.sources import (
    AnySource,
    ArraysSource,
    DatasetSource,
    ImagesSource,
    TFRecordSource,
    open_source,
)


class Holder(Definition):
    source: AnySource


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"tfrecord": "a-*", "features": {"x": "bytes"}}, TFRecordSource),
        ({"images": "photos", "labels": "folders"}, ImagesSource),
        ({"arrays": "a.npz"}, ArraysSource),
        ({"dataset": "m:make"}, DatasetSource),
    ],
)
def test_the_key_picks_the_source(given: dict[str, Any], kind: type) -> None:
    source = Holder.model_validate({"source": given}).source
    assert isinstance(source, kind)
    assert Holder(source=source).source is source


@pytest.mark.parametrize("given", [{}, {"csv": "a"}, 3, "tfrecord", None, ["arrays"]])
def test_no_kind(given: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"source": given})
    (error,) = caught.value.errors()
    assert error["loc"] == ("source",)
    assert error["msg"] == "a source has one of: tfrecord, images, arrays, dataset"


def test_two_kinds() -> None:
    with pytest.raises(ValidationError, match="dataset; this one has images and arrays"):
        Holder.model_validate({"source": {"images": "a", "arrays": "b"}})


def test_errors_keep_their_places() -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate(
            {"source": {"tfrecord": 3, "features": {"x": {"type": "text"}}, "lables": "y"}}
        )
    places = {error["loc"] for error in caught.value.errors()}
    assert ("source", "features", "x", "type") in places
    assert ("source", "lables") in places
    assert any(place[:2] == ("source", "tfrecord") for place in places)


def test_opens_by_kind(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(b"one")
    (tmp_path / "a.png").write_bytes(b"")
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    records = TFRecordSource.model_validate(
        {"tfrecord": "*.tfrecord", "features": {"x": "bytes"}}
    ).resolve(tmp_path)
    assert len(open_source(records, tell)) == 1
    assert told == [(19, 19)]
    assert len(open_source(records, keep_truncated=True)) == 1
    assert len(open_source(ArraysSource(arrays="a.npz").resolve(tmp_path))) == 3
    assert len(open_source(ImagesSource(images=str(tmp_path)))) == 1
    with pytest.raises(ConfigError, match="m:make is sequential"):
        open_source(DatasetSource(dataset="m:make"))
