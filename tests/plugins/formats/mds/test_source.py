"""The `mds` source: encodings, reading by index, and folders and samples that are damaged."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.mds import write_mds

from infeed import SampleError, SourceError
from infeed_formats.mds.source import MdsReader, MdsSource

COLUMNS = {"label": ("int", 8), "text": ("str", None)}

Parse = Callable[..., dict[str, Any]]


def rows(first: int, count: int) -> list[dict[str, bytes]]:
    return [
        {"label": np.int64(n).tobytes(), "text": b"text %d" % n * (n % 3 + 1)}
        for n in range(first, first + count)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve samples in three shards."""
    write_mds(tmp_path / "data", COLUMNS, [rows(0, 5), rows(5, 4), rows(9, 3)])
    return tmp_path / "data"


def open_source(folder: Path | str, *fields: str) -> MdsReader:
    return MdsSource(mds=str(folder), fields=fields or None).open()


def change_index(folder: Path, change: Callable[[Any], object]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def array(value: Any, *, with_type: bool = False) -> bytes:
    """Returns an array behind its shape, each size in a byte."""
    numbers = {"int32": 33, "float32": 34, "uint32": 32}
    head = bytes([numbers[value.dtype.name]]) if with_type else b""
    return head + bytes([value.ndim << 2, *value.shape]) + value.tobytes()


def picture(mode: bytes, pixels: Any) -> bytes:
    sizes = np.array([pixels.shape[1], pixels.shape[0], len(mode)], "<u4")
    return sizes.tobytes() + mode + pixels.tobytes()


def test_read_in_any_order_with_repeats(folder: Path) -> None:
    source = open_source(folder)
    assert len(source) == 12
    expected = rows(0, 12)
    indices = np.array([11, 0, 5, 5, 4, 8, 9])
    read = source.read(indices)
    assert read["label"].tolist() == indices.tolist()
    assert read["text"].tolist() == [expected[index]["text"] for index in indices]
    assert source.read(np.array([], np.int64))["label"].shape == (0,)
    assert open_source(folder, "text").read(indices).keys() == {"text"}
    assert open_source(f"file://{folder}").read(indices)["label"].tolist() == indices.tolist()


def test_identity_is_of_the_samples(folder: Path, tmp_path: Path) -> None:
    source = open_source(folder)
    shutil.copytree(folder, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "shard.00000.mds", ns=(1, 1))
    copy = open_source(tmp_path / "copy")
    assert copy.identity == source.identity
    assert copy.places.stamp != source.places.stamp
    others = {open_source(folder, "text").identity}
    write_mds(tmp_path / "copy", COLUMNS, [rows(0, 5), rows(5, 4), rows(10, 3)])
    others.add(open_source(tmp_path / "copy").identity)
    change_index(folder, lambda i: i["shards"][0]["raw_data"].update(hashes={"sha1": "0"}))
    others.add(open_source(folder).identity)
    assert len(others | {source.identity}) == 4


def test_every_encoding(tmp_path: Path, parse: Parse) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    values: dict[str, tuple[str, int | None, bytes, Any]] = {
        "bytes": ("bytes", None, b"\xff", b"\xff"),
        "json": ("json", None, b'{"a": 1}', b'{"a": 1}'),
        "str_int": ("str_int", None, b"-7", np.int64(-7)),
        "str_float": ("str_float", None, b"0.1", np.float64(0.1)),
        "str_decimal": ("str_decimal", None, b"1.50", np.float64(1.5)),
        "fixed": ("ndarray:float32:2,3", 24, matrix.tobytes(), matrix),
        "shaped": ("ndarray:float32", None, array(matrix), matrix),
        "typed": ("ndarray", None, array(matrix, with_type=True), matrix),
        "pil": ("pil", None, picture(b"RGB", pixels), pixels),
        "grey": ("pil", None, picture(b"L", pixels[..., :1]), pixels[..., :1]),
        "int": ("int", 8, np.int64(-3).tobytes(), np.int64(-3)),
    }
    for name in ("int8", "int16", "int32", "uint8", "uint64", "float16", "float64"):
        scalar = np.array(5, name)
        values[name] = (name, scalar.nbytes, scalar.tobytes(), scalar)
    columns = {name: (encoding, size) for name, (encoding, size, *_) in values.items()}
    write_mds(tmp_path, columns, [[{name: value[2] for name, value in values.items()}] * 2])
    source = open_source(tmp_path)
    assert source.parsed
    found = parse(source, 1)
    for name, (*_, expected) in values.items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)
        if not isinstance(expected, bytes):
            assert found[name].dtype == expected.dtype, name


@pytest.mark.parametrize(
    ("encoding", "value", "problem"),
    [
        ("str_int", b"9" * 20, "is not a 64-bit number"),
        ("str_int", b"seven", "seven"),
        (
            "ndarray",
            array(np.zeros((2, 2), np.int32), with_type=True),
            r"\[2, 2\], not int32\[2\]",
        ),
        (
            "ndarray",
            array(np.zeros(2, np.float32), with_type=True),
            r"is float32\[2\], not",
        ),
        (
            "ndarray",
            array(np.zeros(2, np.int32), with_type=True)[:-1],
            "7 bytes, .* not fit int32",
        ),
        ("ndarray", b"", "does not begin like an array"),
        ("pil", picture(b"P", np.zeros((1, 1), np.uint8)), "unknown mode 'P'; known"),
        ("pil", b"", "unknown mode ''; known"),
    ],
)
def test_value_that_does_not_fit_is_a_bad_sample(
    tmp_path: Path, encoding: str, value: bytes, problem: str
) -> None:
    good = {
        "str_int": b"1",
        "ndarray": array(np.zeros(2, np.int32), with_type=True),
        "pil": picture(b"L", np.zeros((1, 1), np.uint8)),
    }[encoding]
    samples = [{"x": good}] * 40
    samples[1] = {"x": value}  # not one of those that are looked at
    write_mds(tmp_path, {"x": (encoding, None)}, [samples])
    source = open_source(tmp_path)
    with pytest.raises(SampleError, match=f"sample 1 cannot be read: .*'x' .*{problem}") as caught:
        source.read(np.array([0, 1, 2]))
    assert caught.value.metadata["sample_id"] == "1"
    assert len(source.read(np.array([0, 2]))["x"]) == 2


@pytest.mark.parametrize("encoding", ["pkl", "list[jpeg]", "jpeg_array", "tensor", "ndarray:a:b"])
def test_encoding_that_cannot_be_served_is_left_to_choose(tmp_path: Path, encoding: str) -> None:
    columns = {"x": (encoding, None), "y": ("bytes", None)}
    write_mds(tmp_path, columns, [[{"x": b"abc", "y": b"z"}]])
    with pytest.raises(SourceError, match=r"'x' has the encoding .*; name the other columns"):
        open_source(tmp_path)
    assert open_source(tmp_path, "y").read(np.array([0]))["y"].tolist() == [b"z"]


def test_compressed_shard_is_refused_unless_it_is_there_raw(folder: Path) -> None:
    def compress(index: Any) -> None:
        zipped = {"basename": "shard.00001.mds.zstd", "bytes": 1, "hashes": {}}
        index["shards"][1].update(zip_data=zipped, compression="zstd:7")

    change_index(folder, compress)
    assert len(open_source(folder)) == 12
    (folder / "shard.00001.mds").unlink()
    message = "only shard.00001.mds.zstd, compressed with zstd:7, .*; decompress it to"
    with pytest.raises(SourceError, match=message):
        open_source(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda i: i.update(shards=[]), "has no sample"),
        (lambda i: i.update(version=1), "only 'mds', version 2, is known"),
        (lambda i: i["shards"][0].update(format="json"), "has the format 'json'"),
        (lambda i: i["shards"][0].update(samples=6), "has 5 samples, but 6 in index.json"),
        (lambda i: i["shards"][0].update(samples=9**9), "is too small for"),
        (lambda i: i["shards"][0].update(column_sizes=[8]), "differ in columns|lacks an encoding"),
        (lambda i: [s.update(column_sizes=[8]) for s in i["shards"]], "lacks an encoding or size"),
        (lambda i: i["shards"][1].update(column_names=["a", "b"]), "differ in columns"),
        (lambda i: i["shards"][0]["raw_data"].update(bytes=9), "bytes, but 9 in index.json"),
        (lambda i: i["shards"][0]["raw_data"].update(basename="../x"), "outside the folder"),
        (lambda i: i["shards"][0].pop("raw_data"), "shards.0.raw_data: Field required"),
        (
            lambda i: i["shards"][0]["raw_data"].update(basename="shard.00001.mds"),
            "lists the file 'shard.* twice",
        ),
        (
            lambda i: [shard.update(column_sizes=[4, None]) for shard in i["shards"]],
            "'label' has values of 4 bytes, but its encoding has 8",
        ),
    ],
)
def test_wrong_index_is_refused(
    folder: Path, change: Callable[[Any], object], problem: str
) -> None:
    change_index(folder, change)
    with pytest.raises(SourceError, match=problem):
        open_source(folder)


def outcome(folder: Path) -> list[Any]:
    """Returns the values of each sample, or None for one that cannot be read."""
    source = open_source(folder)
    found: list[Any] = []
    for index in range(len(source)):
        try:
            found.append({name: value[0] for name, value in source.read(np.array([index])).items()})
        except SampleError:
            found.append(None)
    return found


@pytest.mark.parametrize("name", ["index.json", "shard.00000.mds"])
@pytest.mark.parametrize("mask", [1, 255])
def test_flipped_byte_never_gives_another_sample(tmp_path: Path, name: str, mask: int) -> None:
    write_mds(tmp_path, COLUMNS, [rows(0, 3)])
    good = outcome(tmp_path)
    path = tmp_path / name
    content = path.read_bytes()
    refused = 0
    for offset in range(len(content)):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ mask]) + content[offset + 1 :])
        try:
            found = outcome(tmp_path)
        except SourceError:
            refused += 1
            continue
        assert len(found) == 3
        for expected, sample in zip(good, found, strict=True):
            if sample is None:
                continue
            # A byte of a value has no checksum, and nor has the name of a column.
            label, text = sample.values()
            assert abs(int(label) ^ int(expected["label"])).bit_count() <= 8
            assert len(text) == len(expected["text"])
            assert sum(map(int.__ne__, text, expected["text"])) <= 1
    assert refused > 16


@pytest.mark.parametrize("name", ["index.json", "shard.00000.mds"])
def test_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    write_mds(tmp_path, COLUMNS, [rows(0, 3)])
    path = tmp_path / name
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(SourceError):
            open_source(tmp_path)


def test_wrong_folder_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "train-0.tar").write_bytes(b"")
    ((_, problem),) = MdsSource(mds=str(tmp_path)).check()
    assert "index.json': No such file or directory; the nearest folder that exists" in problem
    assert problem.endswith("which holds train-0.tar")
