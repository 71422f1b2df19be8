"""Tests of the drafts for tars of WebDataset."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.harness.datasets import jpeg
from tests.harness.starters import definitions, draft, drafts, names, text

from infeed.shared.errors import InfeedError, SourceError
from infeed_tools.init.detect import starter_for
from infeed_tools.init.listing import UnclearError


def write_tar(path: Path, members: Sequence[tuple[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_tars(tmp_path: Path) -> None:
    for number in range(2):
        with tarfile.open(tmp_path / f"train-{number}.tar", "w") as tar:
            for sample in range(10):
                picture = jpeg(sample)
                members = {"jpg": picture, "cls": b"%d" % sample, "meta.txt": b"a text"}
                members |= {} if sample else {"npy": b"of the first sample alone"}
                for name, content in members.items():
                    info = tarfile.TarInfo(f"{number}/{sample}.{name}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    pipeline = definitions(tmp_path, ".")["train"]
    assert pipeline["source"] == {
        "webdataset": "train-*.tar",
        "fields": {"image": "jpg;jpeg;png", "label": "cls", "meta_txt": "meta.txt"},
    }
    assert names(pipeline)[0] == "decode_image"
    found = draft(tmp_path, ".")
    assert (found.samples, found.is_counted) == (20, False)
    assert "# train: left out: npy: 2 of 20 samples have it" in text(tmp_path, ".")
    assert found.fields["meta_txt"] == "bytes, text: a text"
    assert found.fields["label"] == "int64, 0 to 9"
    whole = (tmp_path / "train-0.tar").read_bytes()
    for content in (bytes(10240), b"", whole[:100]):
        (tmp_path / "train-0.tar").write_bytes(content)
        with pytest.raises(SourceError, match="the file has no samples; write it again"):
            starter_for(str(tmp_path / "train-0.tar"), tmp_path)
    (tmp_path / "train-0.tar").write_bytes(whole[:-11_000])  # `check --scan` says where it ends
    assert "webdataset: train-0.tar" in text(tmp_path, "train-0.tar")


def test_parquet_beside_tars_is_their_metadata(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "00000.tar", "w") as tar:  # as img2dataset writes them
        info = tarfile.TarInfo("0.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"a"))
    (tmp_path / "00000.parquet").write_bytes(b"")
    assert "webdataset: 00000.tar" in text(tmp_path, ".")
    with pytest.raises(InfeedError, match=r"(?i)parquet"):  # is read, if it is chosen
        starter_for(str(tmp_path), tmp_path, source="parquet")
    (tmp_path / "other.parquet").write_bytes(b"")
    with pytest.raises(UnclearError, match="data for several sources") as caught:
        text(tmp_path, ".")
    assert [choice["source"] for choice, _ in caught.value.choices] == ["parquet", "webdataset"]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("index.json", {"wids_version": 1, "shardlist": []}, "webdataset"),
        ("dataset_info.json", {"mine": {"file_name": "a.json"}}, "webdataset"),
        ("a.idx", "0 1234\n", "webdataset"),
    ],
)
def test_file_of_another_program_describes_nothing(
    tmp_path: Path, name: str, content: Any, kind: str
) -> None:
    write_tar(tmp_path / "a.tar", [("0.cls", b"1"), ("1.cls", b"2")])
    (tmp_path / name).write_text(json.dumps(content))
    for options in ({}, {"source": kind}):
        starter = starter_for(str(tmp_path), tmp_path, **options)
        (draft,) = starter.drafts.values()
        assert kind in draft.source
        assert starter.about == [f"not used: 1 {Path(name).suffix}: {name}"]


def test_words_in_cls_are_served_as_bytes(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0.cls", b"cat"), ("1.cls", b"dog")])
    (draft,) = drafts(tmp_path).values()
    assert draft.source["fields"] == {"label": {"cls": "bytes"}}
    assert draft.fields["label"] == "bytes, text: cat, dog"
