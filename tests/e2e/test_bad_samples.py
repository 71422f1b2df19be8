"""Bad samples under each value of `on_error`.

One server serves the damaged data under every value; another one, started later, must deliver the
same batches.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness import tfrecords
from tests.harness.datasets import jpeg
from tests.harness.tfrecords import example

import infeed
from infeed_server.pipeline.load import from_yaml

RECORDS = 30
PHOTOS = 20
IMAGES = "- decode_image: {field: image}\n      - random_resized_crop: {field: image, size: [8, 8]}"
MISSING = (
    "Feature: x (data type: int64) is required but could not be found; the record has: y: int64"
)
BAD = {
    "records": {4: "the CRC of its data does not match", 21: MISSING},
    "photos": {3: "decode_", 7: "decode_", 12: "decode_"},
}
"""Pipeline → bad sample → a part of its error."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("damaged")
    offsets = write_records(folder / "good.tfrecord")
    damaged = bytearray((folder / "good.tfrecord").read_bytes())
    damaged[offsets[4] + 14] ^= 1  # in the data of record 4
    (folder / "records.tfrecord").write_bytes(damaged)
    (folder / "photos").mkdir()
    # Text, an empty file, and a truncated JPEG.
    bad = {3: b"no image", 7: b"", 12: jpeg(12)[:200]}
    for number in range(PHOTOS):
        encoded = bad[number] if number in bad else jpeg(number)
        (folder / "photos" / f"{number:02}.jpg").write_bytes(encoded)
    return SimpleNamespace(folder=folder, offsets=offsets)


def write_records(path: Path) -> list[int]:
    """Writes records of x = 0..29, where record 21 lacks it; returns the offset of each."""
    records = [example({"y" if number == 21 else "x": [number]}) for number in range(RECORDS)]
    tfrecords.write_records(path, records)
    return [0, *accumulate(len(record) + 16 for record in records)]


SOURCES = {
    "records": ("{tfrecord: records.tfrecord, features: {x: int64}}", ""),
    "photos": ("{images: photos}", IMAGES),
}


REPLACED = {"records": "mask", "photos": "substitute"}
"""Pipeline → the value of `on_error` that replaces its bad samples."""


def definition(run: str) -> str:
    parts = ["pipelines:"]
    for name, (source, transforms) in SOURCES.items():
        for action in ("raise", REPLACED[name])[run == "second" :]:
            shuffle = "none" if action == "raise" else "global"
            parts.append(f"""
  {name}-{action}:
    source: {source}
    shuffle: {{mode: {shuffle}, seed: 3}}
    transforms: {"" if transforms else "[]"}
      {transforms}
    batch: {{size: 4}}
    on_error: {action}
    quarantine: {run}/{name}-{action}.jsonl
""")
    return "".join(parts)


@pytest.fixture(scope="module")
def servers(shared: Any, data: SimpleNamespace) -> Iterator[Callable[[str], str]]:
    """Starts one server for each run; returns the address of a run's server."""

    @cache
    def address(run: str) -> str:
        file = data.folder / f"{run}.yaml"
        file.write_text(definition(run))
        return str(shared(from_yaml(str(file))).address)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(data.folder)
        yield address


def read_quarantine_log(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def file_and_offset(data: SimpleNamespace, name: str, sample: int) -> tuple[str, int | None]:
    folder = data.folder
    if name == "records":
        return f"{folder}/records.tfrecord", data.offsets[sample]
    return f"{folder}/photos/{sample:02}.jpg", None


@pytest.mark.parametrize("name", list(SOURCES))
def test_on_error_raise_names_sample_file_and_offset(
    servers: Callable[[str], str], data: SimpleNamespace, name: str
) -> None:
    first = min(BAD[name])
    file, offset = file_and_offset(data, name, first)
    with infeed.connect(servers("first"), f"{name}-raise", epochs=1) as feed:
        for step in range(first // 4):
            assert feed.next(60).start == 4 * step
        with pytest.raises(infeed.InfeedError) as caught:
            feed.next(60)
    error = caught.value
    # Of a damaged record, another server may have a good copy.
    assert type(error) is (infeed.SourceError if name == "records" else infeed.SampleError)
    assert error.metadata["sample_id"] == str(first)
    assert error.metadata["file"] == file
    assert error.metadata.get("offset") == (None if offset is None else str(offset))
    for text in (f"sample {first} ", file, BAD[name][first], *([str(offset)] if offset else [])):
        assert text in str(error)
    assert "on_error: substitute or mask" in str(error)
    # A batch without the bad sample is still served.
    with infeed.connect(servers("first"), f"{name}-raise", batch_size=2) as feed:
        assert feed.next(60).sample_ids.tolist() == [0, 1]


@pytest.mark.parametrize(("name", "action"), REPLACED.items())
def test_bad_samples_change_neither_order_nor_shapes(
    servers: Callable[[str], str], data: SimpleNamespace, name: str, action: str
) -> None:
    batches = read_epochs(servers("first"), f"{name}-{action}")
    # The second server makes epoch 1 before epoch 0.
    again = read_epochs(servers("second"), f"{name}-{action}", last_first=True)
    assert_equal(batches, again)
    bad = set(BAD[name])
    count = RECORDS if name == "records" else PHOTOS
    ids = np.concatenate([batch.sample_ids for batch in batches])
    masks = np.concatenate([batch.mask for batch in batches])
    assert len(batches) == 2 * count // 4
    assert not set(ids) & bad
    if action == "mask":
        assert (~masks).sum() == 2 * len(bad)
        assert (ids[~masks] == -1).all()
        assert all((batch[field][~batch.mask] == 0).all() for batch in batches for field in batch)
    else:
        assert masks.all()
    entries = read_quarantine_log(data.folder / "first" / f"{name}-{action}.jsonl")
    assert sorted(entry["sample_id"] for entry in entries) == sorted(map(str, bad))
    for entry in entries:
        file, offset = file_and_offset(data, name, int(entry["sample_id"]))
        assert (entry["file"], entry.get("offset")) == (file, offset and str(offset))
        assert entry["pipeline"] == f"{name}-{action}"
        assert entry["action"] == action
        assert BAD[name][int(entry["sample_id"])] in entry["error"]


def test_damage_of_one_copy_changes_no_batch(serve: Any, tmp_path: Path) -> None:
    addresses = []
    for copy in ("good", "rotten"):
        (tmp_path / copy).mkdir()
        offsets = write_records(tmp_path / copy / "data.tfrecord")
        server = serve(f"""
pipelines:
  one:
    source:
      tfrecord: {tmp_path}/{copy}/data.tfrecord
      features: {{x: {{type: int64, max_length: 1}}}}
    shuffle: {{mode: global, seed: 3}}
    batch: {{size: 4}}
    on_error: mask
    quarantine: {tmp_path}/{copy}.jsonl
""")
        addresses.append(str(server.address))
    good, rotten = addresses
    data = tmp_path / "rotten" / "data.tfrecord"
    stamp, content = data.stat(), bytearray(data.read_bytes())
    content[offsets[4] + 14] ^= 1
    data.write_bytes(content)
    os.utime(data, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # as bit rot does
    with infeed.connect(good, "one", epochs=4) as feed:
        expected = list(feed)
    with infeed.connect(f"{rotten},{good}", "one", epochs=4) as feed:
        found = list(feed)
    assert_equal(found, expected)
    with (
        infeed.connect(rotten, "one", epochs=1) as feed,
        pytest.raises(infeed.SourceError, match=r"^sample 4 cannot be read: .*\.tfrecord is dam"),
    ):
        list(feed)
    assert not (tmp_path / "rotten.jsonl").exists()


def assert_equal(batches: list[infeed.Batch], others: list[infeed.Batch]) -> None:
    for batch, other in zip(batches, others, strict=True):
        assert batch.start == other.start
        assert batch.sample_ids.tolist() == other.sample_ids.tolist()
        assert batch.mask.tolist() == other.mask.tolist()
        assert all(batch[field].tobytes() == other[field].tobytes() for field in batch)


def read_epochs(address: str, pipeline: str, *, last_first: bool = False) -> list[infeed.Batch]:
    with infeed.connect(address, pipeline, epochs=2) as feed:
        if last_first:
            half = feed.steps // 2
            state = {**feed.state(), "position": half * 4}
            with infeed.connect(address, pipeline, epochs=2, state=state) as other:
                assert other.next(60).start == half * 4
        return list(feed)
