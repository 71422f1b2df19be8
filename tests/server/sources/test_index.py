"""The record index: what it holds, how it is kept, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infeed import SourceError
from infeed_server.sources import framing, index_cache
from infeed_server.sources.files import INDEX_MARK
from infeed_server.sources.index import build_index
from infeed_server.sources.records import Records

Write = Callable[..., Path]


def index_of(path: Path) -> Path:
    return path.with_name(path.name + INDEX_MARK)


def read_all(path: Path) -> list[bytes]:
    records = Records(build_index([str(path)], rebuild=True), {})
    result: list[bytes] = records.read(np.arange(len(records)))["record"].tolist()
    return result


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=40),
    window=st.integers(16, 400),
    hop=st.integers(0, 200),
)
def test_finds_every_record_whatever_the_windows(
    sizes: list[int],
    window: int,
    hop: int,
    write_records: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Small windows put the seams of the scan at every place in a record.
    monkeypatch.setattr(framing, "_SCAN_WINDOW", window)
    monkeypatch.setattr(framing, "_HOP_WINDOW", 16)
    monkeypatch.setattr(framing, "_HOP_OVER", hop)
    records = [os.urandom(size) for size in sizes]
    assert read_all(write_records("any.tfrecord", records)) == records


def test_frames_as_tensorflow_does(write_records: Write) -> None:
    records = [b"", b"one", bytes(1000)]
    path = write_records("a.tfrecord", records)
    assert path.read_bytes() == b"".join(map(framing.frame, records))


def test_steps_over_large_records(write_records: Write) -> None:
    records = [os.urandom(200_000), b"small", os.urandom(9 << 20), b"", os.urandom(70_000)]
    assert read_all(write_records("large.tfrecord", records)) == records


def test_is_kept_beside_the_data_and_found_again(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])
    built = build_index([str(path)])
    assert not built.files[0].cached
    assert index_of(path).exists()
    again = build_index([str(path)])
    assert again.files[0].cached
    assert again.identity == built.identity
    np.testing.assert_array_equal(again.offsets, [0, 19])
    np.testing.assert_array_equal(again.lengths, [3, 3])
    assert again.offsets.dtype == np.uint64
    assert again.lengths.dtype == np.uint32
    assert not build_index([str(path)], rebuild=True).files[0].cached


def test_a_changed_file_is_indexed_again(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"one"])
    first = build_index([str(path)])
    write_records("a.tfrecord", [b"two"])
    os.utime(path, ns=(1, 1))
    second = build_index([str(path)])
    assert not second.files[0].cached
    assert second.identity != first.identity


def test_identity_is_the_content_wherever_it_lies(write_records: Write) -> None:
    one = build_index([str(write_records("x/a.tfrecord", [b"one", b"two"]))])
    moved = build_index([str(write_records("y/b.tfrecord", [b"one", b"two"]))])
    split = [
        str(write_records("z/0.tfrecord", [b"one"])),
        str(write_records("z/1.tfrecord", [b"two"])),
    ]
    swapped = build_index([str(write_records("w/a.tfrecord", [b"two", b"one"]))])
    assert one.identity == moved.identity == build_index(split).identity
    assert one.identity != swapped.identity


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "foreign"])
def test_a_damaged_cache_is_rebuilt(damage: str, write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"one", b"two"])
    good = build_index([str(path)])
    cache = index_of(path)
    content = bytearray(cache.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "flip":
        # The lengths themselves: only the checksum of the archive tells.
        at = content.index(np.array([3, 3], np.uint32).tobytes())
        content[at] ^= 1
    elif damage == "empty":
        content.clear()
    elif damage == "text":
        content = bytearray(b"no archive")
    cache.write_bytes(content)
    if damage == "foreign":
        np.savez(cache, other=np.arange(3))
    again = build_index([str(path)])
    assert not again.files[0].cached
    assert again.identity == good.identity
    assert build_index([str(path)]).files[0].cached


def test_falls_back_to_the_users_cache(write_records: Write, cache_folder: Path) -> None:
    path = write_records("a.tfrecord", [b"one"])
    index_of(path).mkdir()  # nothing can be written under that name
    build_index([str(path)])
    assert len(list(cache_folder.iterdir())) == 1
    assert build_index([str(path)]).files[0].cached
    assert sorted(each.name for each in path.parent.iterdir() if each.is_file()) == ["a.tfrecord"]


def test_serves_without_any_place_for_the_cache(
    write_records: Write, cache_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_records("a.tfrecord", [b"one"])
    index_of(path).mkdir()
    cache_folder.write_text("a file where the folder would be")
    assert len(build_index([str(path)])) == 1
    assert "cannot be kept" in caplog.text


def test_a_directory_of_the_users_choice(write_records: Write, tmp_path: Path) -> None:
    paths = [str(write_records(f"{name}/a.tfrecord", [name.encode()])) for name in "xy"]
    chosen = tmp_path / "chosen"
    build_index(paths, str(chosen))
    assert len(list(chosen.iterdir())) == 2
    assert all(file.cached for file in build_index(paths, str(chosen)).files)
    assert not index_of(Path(paths[0])).exists()
    (tmp_path / "taken").write_text("")
    with pytest.raises(SourceError, match="cannot write the record index"):
        build_index(paths, str(tmp_path / "taken"))


def test_where_the_users_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert index_cache.user_cache() == tmp_path / "user-cache"
    monkeypatch.delenv("INFEED_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert index_cache.user_cache() == tmp_path / "infeed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert index_cache.user_cache() == Path.home() / ".cache" / "infeed"


def test_an_interrupted_build_leaves_nothing(
    write_records: Write, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records("data/a.tfrecord", [b"one"])

    def half(file: object, **_: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr(index_cache.np, "savez", half)
    with pytest.raises(KeyboardInterrupt):
        build_index([str(path)])
    assert list(path.parent.iterdir()) == [path]
    assert not cache_folder.exists()


def test_two_processes_build_at_the_same_time(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"%d" % number for number in range(20_000)])
    code = (
        "import sys; from infeed_server.sources.index import build_index; print('ready');"
        "sys.stdin.readline();"
        "print([build_index([sys.argv[1]], rebuild=True).identity for _ in range(5)][-1])"
    )
    command = [sys.executable, "-u", "-c", code, str(path)]
    pipe = subprocess.PIPE
    both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = []
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        said.append(process.communicate(timeout=60)[0].strip())
        assert process.returncode == 0
    assert said == [build_index([str(path)]).identity] * 2
    assert build_index([str(path)]).files[0].cached
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, index_of(path).name]


def test_progress_ends_at_the_total(write_records: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(write_records(f"{n}.tfrecord", [bytes(1000)] * 50)) for n in range(3)]
    total = sum(Path(path).stat().st_size for path in paths)
    monkeypatch.setattr(framing, "_SCAN_WINDOW", 4096)
    monkeypatch.setattr("infeed_server.sources.index._PROGRESS_STEP", 5000)
    told: list[tuple[int, int]] = []
    build_index(paths, progress=lambda done, whole: told.append((done, whole)))
    done = [each for each, _ in told]
    assert done == sorted(done)
    assert len(done) > len(paths)
    assert told[-1] == (total, total)
    told.clear()
    build_index(paths, progress=lambda done, whole: told.append((done, whole)))
    assert len(told) == len(paths)
    assert told[-1] == (total, total)


@pytest.mark.parametrize(("cut", "whole", "at"), [(1, 1, 21), (6, 1, 21), (20, 1, 21), (24, 0, 0)])
def test_a_truncated_file_is_refused(cut: int, whole: int, at: int, write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first", b"other"])
    path.write_bytes(path.read_bytes()[:-cut])
    for _ in range(2):  # the second time from the cache
        with pytest.raises(SourceError, match=f"{whole} whole records precede byte {at}") as caught:
            build_index([str(path)])
        assert caught.value.metadata == {"file": str(path), "offset": str(at)}


def test_a_cut_header_is_a_truncated_record(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first"])
    path.write_bytes(path.read_bytes() + bytes(7))
    with pytest.raises(SourceError, match="1 whole records precede byte 21"):
        build_index([str(path)])


def test_a_truncated_record_may_be_kept(write_records: Write) -> None:
    cut = write_records("0.tfrecord", [b"one", b"two"])
    cut.write_bytes(cut.read_bytes()[:-2])
    paths = [str(cut), str(write_records("1.tfrecord", [b"three"]))]
    index = build_index(paths, keep_truncated=True)
    assert len(index) == 3
    assert [index.is_truncated(number) for number in range(3)] == [False, True, False]
    assert [index.file_of(number) for number in range(3)] == [0, 0, 1]


def test_a_corrupt_length_names_its_place(write_records: Write) -> None:
    path = write_records("a.tfrecord", [b"first", b"other"])
    content = bytearray(path.read_bytes())
    content[22] ^= 255
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.tfrecord is corrupt at byte 21") as caught:
        build_index([str(path)])
    assert "1 whole records precede" in str(caught.value)
    assert caught.value.metadata["offset"] == "21"
    assert not index_of(path).exists()


def test_a_compressed_file_says_how_to_unpack_it(write_records: Write) -> None:
    path = write_records("a.tfrecord.gz", [b"one" * 100], "GZIP")
    with pytest.raises(SourceError, match=r"compressed with GZIP.*gunzip .*a\.tfrecord\.gz"):
        build_index([str(path)])
    other = write_records("b.tfrecord", [b"one" * 100], "GZIP")
    with pytest.raises(SourceError, match="compressed with GZIP"):
        build_index([str(other)])


def test_a_length_that_looks_like_gzip_is_none(write_records: Write) -> None:
    records = [bytes(0x8B1F)]
    path = write_records("a.tfrecord", records)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert read_all(path) == records


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_text("file,label\nphoto.jpg,1\n")
    with pytest.raises(SourceError, match="is no TFRecord file"):
        build_index([str(path)])


def test_a_file_that_is_being_written(
    write_records: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_records("a.tfrecord", [b"one"])

    def and_grow(*args: object) -> object:
        path.write_bytes(path.read_bytes() * 2)
        return framing.scan(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("infeed_server.sources.index.scan", and_grow)
    with pytest.raises(SourceError, match="changed while it was indexed"):
        build_index([str(path)])
    assert not index_of(path).exists()


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot open .*gone\.tfrecord.*No such file"):
        build_index([str(tmp_path / "gone.tfrecord")])


def test_files_through_gfile(write_records: Write, cache_folder: Path) -> None:
    records = [os.urandom(size) for size in (3, 100_000, 0, 17)]
    path = write_records("a.tfrecord", records)
    remote = f"file://{path}"
    assert tf.io.gfile.exists(remote)
    index = build_index([remote])
    assert Records(index, {}).read(np.arange(4))["record"].tolist() == records
    assert index.identity == build_index([str(path)]).identity
    assert build_index([remote]).files[0].cached
    assert len(list(cache_folder.iterdir())) == 1
