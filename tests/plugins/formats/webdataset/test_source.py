"""The `webdataset` source: fields, bad samples, damaged tars, and the cached index."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infeed import ConfigError, SampleError, SourceError
from infeed_formats.webdataset.index import build_index
from infeed_formats.webdataset.reader import WebDatasetReader
from infeed_formats.webdataset.source import WebDatasetSource
from infeed_server.storage.files import INDEX_SUFFIX, list_files

Write = Callable[..., Path]


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def samples(begin: int, end: int) -> Iterator[tuple[str, bytes]]:
    for number in range(begin, end):
        yield f"part.x/{number:03}.jpg", b"image %d" % number * number
        yield f"part.x/{number:03}.cls", b"%d\n" % (number % 3)
        yield f"part.x/{number:03}.Box.NPY", npy(np.arange(4, dtype=">f4") + number)


def open_source(pattern: Any, *, keep_damaged: bool = False, **options: Any) -> WebDatasetReader:
    definition = WebDatasetSource.model_validate({"webdataset": pattern, **options})
    return definition.open(keep_damaged=keep_damaged)


def read(source: WebDatasetReader, *indices: int) -> dict[str, Any]:
    return {name: rows.tolist() for name, rows in source.read(np.array(indices, int)).items()}


@pytest.fixture
def three_tars(write_tar: Write, tmp_path: Path) -> Path:
    for number in (2, 0, 1):
        write_tar(f"t-{number}.tar", [*samples(number * 5, number * 5 + 5)], number)
    return tmp_path / "t-*.tar"


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_read_in_any_order_with_repeats(three_tars: Path, prefix: str) -> None:
    source = open_source(f"{prefix}{three_tars}")
    assert len(source) == 15
    assert {
        name: (spec.dtype.name, spec.shape.as_list()) for name, spec in source.columns.items()
    } == {
        "jpg": ("string", []),
        "cls": ("int64", []),
        "box_npy": ("float32", [4]),
    }
    rows = read(source, 14, 0, 7, 7)
    assert rows["jpg"] == [b"image %d" % n * n for n in (14, 0, 7, 7)]
    assert rows["cls"] == [2, 0, 1, 1]
    assert rows["box_npy"] == [[n, n + 1, n + 2, n + 3] for n in (14, 0, 7, 7)]
    assert {name: rows.dtype.kind for name, rows in source.read(np.array([], int)).items()} == {
        "jpg": "O",
        "cls": "i",
        "box_npy": "f",
    }
    assert source.provenance(5).offset == 0
    assert source.provenance(6).file.endswith("t-1.tar")


def test_fields_are_chosen_by_extension(write_tar: Write) -> None:
    members = [
        ("a.png", b"1"),
        ("a.seg.cls", b" -7 "),
        ("a.jpg", b"2"),
        ("b.PNG", b"3"),
        ("b.seg.cls", b"8"),
    ]
    path = write_tar("a.tar", members)
    source = open_source(path, fields={"image": "jpg;png", "number": "seg.cls"})
    assert read(source, 0, 1) == {"image": [b"2", b"3"], "number": [-7, 8]}


def test_names_that_are_no_part_of_a_sample(write_tar: Write) -> None:
    ignored = ["README", ".hidden.txt", "a/.b.txt", "__meta__/x.txt", "__index__", "a.", "._1.txt"]
    members = [(name, b"") for name in ignored]
    source = open_source(write_tar("a.tar", [("1.txt", b"1"), *members, ("1.cls", b"2")]))
    assert read(source, 0) == {"txt": [b"1"], "cls": [2]}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"image": "jpg;"}, "'image' has an empty extension"),
        ({"label": "cls;txt"}, "'label' has extensions of several types"),
        ({}, "at least 1"),
    ],
)
def test_options_that_cannot_be_right(fields: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        WebDatasetSource.model_validate({"webdataset": "a.tar", "fields": fields})


def test_the_type_of_a_field_is_chosen(write_tar: Write) -> None:
    members = [("a.cls", b"cat"), ("a.n.TXT", b"7"), ("b.cls", b"dog"), ("b.n.txt", b"-8")]
    path = write_tar("a.tar", members)
    source = open_source(path, fields={"label": {"cls": "bytes"}, "n": {"n.txt;n": "int64"}})
    assert read(source, 1, 0) == {"label": [b"dog", b"cat"], "n": [-8, 7]}
    number = open_source(path, fields={"label": "cls"})
    with pytest.raises(SampleError, match=r"not an int64: b'cat'; .*fields: {label: {cls: bytes}}"):
        number.read(np.array([0]))
    assert (
        len({number.identity, open_source(path, fields={"label": {"cls": "bytes"}}).identity}) == 2
    )


def test_a_sample_whose_members_are_no_neighbours_is_refused(write_tar: Write) -> None:
    path = write_tar("a.tar", [("a.jpg", b""), ("b.jpg", b""), ("a.cls", b"1"), ("b.cls", b"2")])
    match = r"byte 1024: the members of the sample 'a' .* between jpg and cls; .*tar --sort=name"
    with pytest.raises(SourceError, match=match):
        open_source(path)
    again = write_tar("a.tar", [("a.cls", b"1"), ("b.cls", b"2"), ("a.cls", b"3")])
    assert read(open_source(again), 0, 1, 2) == {"cls": [1, 2, 3]}


def test_keys_with_dots_are_refused(write_tar: Write) -> None:
    names = [f"img.v{n}.{n}.{last}" for n in range(4) for last in ("jpg", "cls")]
    path = write_tar("a.tar", [(name, b"1") for name in names])
    with pytest.raises(ConfigError, match=r"1 samples with 8 extensions: v0.0.cls, .* rename"):
        open_source(path)
    with pytest.raises(SourceError, match=r"no sample has jpg; .* begins at a name's first dot"):
        open_source(path, fields={"image": "jpg"})
    assert read(open_source(path, fields={"label": "v1.1.cls"}), 0) == {"label": [1]}


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (("c.cls", b"1.5"), "its field 'cls' is not an int64: b'1.5'"),
        (("c.cls", b"9" * 5000), "its field 'cls' is not an int64"),
        (("c.cls", b"9223372036854775808"), "its field 'cls' is not an int64"),
        (("c.npy", npy(np.zeros(3))), r"'npy' is float64\[3\], not float64\[2\]"),
        (("c.npy", npy(np.zeros(2, int))), r"is int64\[2\], not float64\[2\]"),
        (("c.npy", npy(np.zeros(2))[:-1]), "'npy' is an npy that cannot be served"),
        (
            ("c.npy", npy(np.zeros(2)).replace(b"(2,)", b"(9" + b"9" * 9 + b",)")),
            "is an npy that cannot",
        ),
        (("c.npy", npy(np.array(["text", "x"]))), r"'npy' is bytes\[2\], not float64\[2\]"),
        (("c.npy", npy(np.zeros(2, "M8[s]"))), "unsupported data type datetime64"),
        (("c.npy", b""), "'npy' is an npy that cannot be served"),
        (("c.jpg", b""), r"it lacks 'cls' \(cls\)|it lacks 'npy' \(npy\)"),
    ],
)
def test_bad_samples(write_tar: Write, member: tuple[str, bytes], problem: str) -> None:
    good = {"cls": b"1", "npy": npy(np.zeros(2))}
    members = [(f"{key}.{name}", value) for key in "ab" for name, value in good.items()]
    extension = member[0][2:]
    others = (
        [] if extension == "jpg" else [(f"c.{n}", v) for n, v in good.items() if n != extension]
    )
    path = write_tar(
        "a.tar", [*members, *others, member, *[(f"d.{n}", v) for n, v in good.items()]]
    )
    source = open_source(path)
    assert read(source, 0, 1, 3)["cls"] == [1, 1, 1]
    offset = source.provenance(2).offset
    with pytest.raises(
        SampleError, match=f"sample 2 .*'c' in {path} at byte {offset}: .*"
    ) as caught:
        source.read(np.array([0, 2, 3]))
    assert caught.match(problem)
    assert caught.value.metadata == {"sample_id": "2", "file": str(path), "offset": str(offset)}


def test_a_field_that_no_sample_has(write_tar: Write) -> None:
    path = write_tar("a.tar", [("a.jpg", b""), ("a.cls", b"1")])
    with pytest.raises(SourceError, match=r"fields.label: no sample has txt; there are cls, jpg"):
        open_source(path, fields={"label": "txt"})
    with pytest.raises(SourceError, match=f"no sample in the 1 files of {write_tar('b.tar', [])}"):
        open_source(write_tar("b.tar", []))


@pytest.mark.parametrize("size", [100, 512, 1000, 2000, 2048, 3000])
def test_truncated_tars(write_tar: Write, size: int) -> None:
    members = [("a.txt", b"1" * 600), ("b.txt", b"2"), ("c.txt", b"3")]
    path = write_tar("a.tar", members)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(SourceError, match=r"truncated|no sample in"):
        open_source(path)
    if size < 512:
        with pytest.raises(SourceError, match="no sample in"):
            open_source(path, keep_damaged=True)
        return
    source = open_source(path, keep_damaged=True)
    last = len(source) - 1
    assert read(source, *range(last))["txt"] == [b"1" * 600, b"2", b"3"][:last]
    with pytest.raises(SampleError, match=f"sample {last} .*: the tar is truncated inside it"):
        source.read(np.array([last]))


def test_identity_is_of_names_sizes_labels_and_fields(write_tar: Write, tmp_path: Path) -> None:
    members = [("a.jpg", b"1"), ("a.cls", b"2"), ("b.jpg", b"3"), ("b.cls", b"4")]
    path = write_tar("a.tar", members)
    source = open_source(path)
    moved = open_source(
        write_tar("other/b.tar", members, 1) if (tmp_path / "other").mkdir() is None else ""
    )
    assert moved.identity == source.identity
    assert moved.places.stamp != source.places.stamp
    others = [
        [*members[:3], ("b.cls", b"44")],
        [*members[:3], ("b.cls", b"5")],
        [*members[:3], ("c.cls", b"4")],
        [*members[2:], *members[:2]],
        [*members, ("c.jpg", b"")],
    ]
    found = {open_source(write_tar("c.tar", other)).identity for other in others}
    found |= {
        open_source(path, fields={"jpg": name}).identity for name in ("jpg", "jpg;png", "cls")
    }
    found |= {source.identity, open_source(path, fields={"x": "jpg"}).identity}
    assert len(found) == 10


def test_a_tar_that_changed_is_refused(write_tar: Write) -> None:
    path = write_tar("a.tar", [("a.txt", b"1"), ("b.cls", b"2")])
    source = open_source(path)
    write_tar("a.tar", [("a.txt", b"3"), ("b.cls", b"4")])
    os.utime(path, ns=(1, 1))
    for sample in (0, 1):  # the second one lacks a field
        with pytest.raises(SourceError, match="changed since it was opened"):
            source.read(np.array([sample]))


def test_the_index_is_cached(write_tar: Write, tmp_path: Path) -> None:
    path = write_tar("a.tar", [*samples(0, 3)])
    files = list_files([str(path)])
    (built,) = build_index(files)
    (again,) = build_index(files)
    assert (built.cached, again.cached) == (False, True)
    for one, other in zip(built.members, again.members, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not build_index(files, rebuild=True)[0].cached
    index = path.with_name(path.name + INDEX_SUFFIX)
    with np.load(index) as stored:
        arrays = dict(stored)
    for changes in (
        {"offsets": arrays["offsets"] + 99999},
        {"kinds": arrays["kinds"][1:]},
        {"kinds": arrays["kinds"] + 3},
        {"samples": arrays["samples"] + 1},
        {"sizes": arrays["sizes"].astype(np.int32)},
        {"sizes": arrays["sizes"] - 1000},
    ):
        np.savez(index, **{**arrays, **changes})
        assert not build_index(files)[0].cached
    open_source(path, index=str(tmp_path / "elsewhere"))
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1
