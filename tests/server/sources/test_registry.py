"""The registry of sources: selection by key, and opening."""

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
    PythonSource,
    TFRecordSource,
    open_source,
)


class Holder(Definition):
    source: AnySource


@pytest.mark.parametrize(
    ("options", "source_class"),
    [
        ({"tfrecord": "a-*", "features": {"x": "bytes"}}, TFRecordSource),
        ({"images": "photos", "labels": "folders"}, ImagesSource),
        ({"arrays": "a.npz"}, ArraysSource),
        ({"python": "m:make"}, PythonSource),
        ({"dataset": "m:make"}, DatasetSource),
    ],
)
def test_key_selects_the_source_class(options: dict[str, Any], source_class: type) -> None:
    source = Holder.model_validate({"source": options}).source
    assert isinstance(source, source_class)
    assert Holder(source=source).source is source


@pytest.mark.parametrize("options", [{}, {"csv": "a"}, 3, "tfrecord", None, ["arrays"]])
def test_source_without_a_known_key_is_refused(options: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"source": options})
    (error,) = caught.value.errors()
    assert error["loc"] == ("source",)
    assert error["msg"] == "a source has one of: tfrecord, images, arrays, python, dataset"


def test_source_with_two_keys_is_refused() -> None:
    with pytest.raises(ValidationError, match="dataset; this one has images and arrays"):
        Holder.model_validate({"source": {"images": "a", "arrays": "b"}})


def test_option_errors_keep_their_location() -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate(
            {"source": {"tfrecord": 3, "features": {"x": {"type": "text"}}, "lables": "y"}}
        )
    locations = {error["loc"] for error in caught.value.errors()}
    assert ("source", "features", "x", "type") in locations
    assert ("source", "lables") in locations
    assert any(location[:2] == ("source", "tfrecord") for location in locations)


def test_open_source_opens_indexed_sources_only(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        writer.write(b"one")
    (tmp_path / "a.png").write_bytes(b"")
    reports: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        reports.append((done, total))

    records = TFRecordSource.model_validate(
        {"tfrecord": "*.tfrecord", "features": {"x": "bytes"}}
    ).resolve(tmp_path)
    assert len(open_source(records, report)) == 1
    assert reports == [(19, 19)]
    assert len(open_source(records, keep_damaged=True)) == 1
    assert len(open_source(ArraysSource(arrays="a.npz").resolve(tmp_path))) == 3
    assert len(open_source(ImagesSource(images=str(tmp_path)))) == 1
    python = PythonSource(python=lambda: [1, 2], identity="v1")
    assert len(open_source(python)) == 2
    with pytest.raises(ConfigError, match="m:make is sequential"):
        open_source(DatasetSource(dataset="m:make"))
