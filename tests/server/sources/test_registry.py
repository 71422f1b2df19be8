"""The registry of sources: selection by key, and opening."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tests.harness.packages import write_package

from infeed.shared.doors import Door
from infeed.shared.errors import UserCodeError
from infeed_server.config.model import Definition
from infeed_server.sources import registry
from infeed_server.sources.registry import AnySource, open_source, source_kinds


class Holder(Definition):
    source: AnySource


@pytest.mark.parametrize(
    ("options", "resolved"),
    [
        (
            {"tfrecord": ["a-*", "/b", "gs://c/d"], "features": {"x": "bytes"}, "index": "i"},
            {"tfrecord": ["/base/a-*", "/b", "gs://c/d"], "index": "/base/i"},
        ),
        ({"tfrecord": "a", "features": {"x": "bytes"}}, {"tfrecord": "/base/a", "index": None}),
        ({"images": "a", "labels": "l.csv"}, {"images": "/base/a", "labels": "/base/l.csv"}),
        ({"images": "gs://a", "labels": "folders"}, {"images": "gs://a", "labels": "folders"}),
        ({"arrays": "a.npz"}, {"arrays": "/base/a.npz"}),
        ({"arrays": {"x": "x.npy"}}, {"arrays": {"x": "/base/x.npy"}}),
        ({"arrays": {"x": np.arange(3)}}, {"arrays": {"x": "int64(3,)"}}),
        ({"mds": "a"}, {"mds": "/base/a"}),
        ({"tfds": "a", "split": "b", "index": "i"}, {"tfds": "/base/a", "index": "/base/i"}),
        ({"parquet": ["a-*", "s3://b"]}, {"parquet": ["/base/a-*", "s3://b"], "cache": 256 << 20}),
        ({"huggingface": "a"}, {"huggingface": "/base/a"}),
        ({"python": "m:make"}, {"python": "m:make"}),
        ({"python": Definition}, {"python": "infeed_server.config.model:Definition"}),
        ({"dataset": open_source}, {"dataset": "infeed_server.sources.registry:open_source"}),
    ],
)
def test_relative_paths_are_resolved(options: Any, resolved: Any) -> None:
    source = Holder.model_validate({"source": options}).source.resolve(Path("/base"))
    dumped = source.model_dump(mode="json")
    assert {key: dumped[key] for key in resolved} == resolved


@pytest.mark.parametrize("kind", ["python", "dataset"])
@pytest.mark.parametrize("name", ["make", ":make", "m:"])
def test_code_without_a_name_is_refused(kind: str, name: str) -> None:
    with pytest.raises(ValidationError, match="should be of the form module:attr"):
        Holder.model_validate({"source": {kind: name}})


@pytest.mark.parametrize("options", [{}, {"json": "a"}, 3, "tfrecord", None, ["arrays"]])
def test_source_without_a_known_key_is_refused(options: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"source": options})
    (error,) = caught.value.errors()
    assert error["loc"] == ("source",)
    assert error["msg"] == f"a source has one of: {', '.join(source_kinds())}"


def test_wrong_key_of_a_source_has_a_hint() -> None:
    expected = r"unknown key 'webdatset' \(did you mean 'webdataset'\?\); a source has one of: "
    with pytest.raises(ValidationError, match=expected):
        Holder.model_validate({"source": {"fields": {}, "webdatset": "a.tar"}})


def test_options_of_a_package_that_is_at_fault_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = ["zarr = zarr_source:Source", "other = infeed_server.sources.base:Source"]
    write_package(tmp_path, "infeed-zarr", "\n".join(["[infeed.sources]", *entries, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_DOOR", Door("infeed.sources", "source"))
    for options, text in (
        ({"zarr": "a"}, r"the source 'zarr' of infeed-zarr 1\.0 cannot be imported: .*zarr_source"),
        (
            {"other": "a"},
            r"'other', infeed_server\.sources\.base:Source of .* with kind = 'other'",
        ),
        ({"fields": {}}, r"^1 validation .*\n.*\n  a source has one of: arrayrecord, .*, zarr \["),
    ):
        with pytest.raises(ValidationError, match=text):
            Holder.model_validate({"source": options})
    assert Holder.model_validate({"source": {"arrays": "a.npz"}}).source.kind == "arrays"


def test_what_the_code_of_a_package_raises_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from infeed_server.sources.base import IndexedDefinition\n\n"
        "class Zarr(IndexedDefinition):\n"
        "    kind = 'zarr'\n"
        "    zarr: str\n\n"
        "    def open(self, progress=None, **_):\n"
        "        raise ValueError(f'{self.zarr} is no zarr file')\n"
    )
    write_package(tmp_path, "infeed-zarr", "[infeed.sources]\nzarr = zarrs:Zarr\n", zarrs=code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_DOOR", Door("infeed.sources", "source"))
    definition = Holder.model_validate({"source": {"zarr": "a"}}).source
    text = r"(?s)^the source 'zarr' of infeed-zarr 1\.0 raised ValueError:\n.*a is no zarr file$"
    with pytest.raises(UserCodeError, match=text):
        open_source(definition)


def test_option_errors_keep_their_location() -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate(
            {"source": {"tfrecord": 3, "features": {"x": {"type": "text"}}, "lables": "y"}}
        )
    locations = {error["loc"] for error in caught.value.errors()}
    assert ("source", "features", "x", "type") in locations
    assert ("source", "lables") in locations
    assert any(location[:2] == ("source", "tfrecord") for location in locations)
