"""Headers of pictures: the turn by EXIF that `decode_image` makes, and sizes before and after."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.harness.pictures import encode, exif, exif_segment, insert, segment

from infeed_formats.annotations.headers import Header, read_headers
from infeed_formats.annotations.orientation import jpeg_orientation as jpeg_orientation_of_header
from infeed_server.transforms.images.orientation import jpeg_orientation, orientations

JPEG = encode("JPEG", Image.new("RGB", (40, 20)))
XMP = segment(0xE1, b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>')


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_a_picture_turns_as_decode_image_turns_it() -> None:
    files = [insert(JPEG, exif_segment(exif(value))) for value in range(10)]
    files += [insert(JPEG, exif_segment(exif(value, ">", kind=4))) for value in range(10)]
    files += [
        JPEG,
        insert(JPEG, XMP),
        *(insert(JPEG, exif_segment(exif(6)[:size])) for size in (12, 20)),
    ]
    many = [segment(0xFE, b"")] * 100
    files += [insert(JPEG, *many[:n], exif_segment(exif(6))) for n in (98, 99, 100)]
    files += [insert(JPEG, exif_segment(b""), exif_segment(exif(8)))]
    # A tag whose text is beyond the end, as editors leave it that cut a maker's note.
    entries = struct.pack("<HHIIHHIHH", 0x10F, 2, 1 << 30, 1 << 31, 0x112, 3, 1, 6, 0)
    files += [insert(JPEG, exif_segment(b"II*\0\x08\0\0\0\x02\0" + entries))]
    for file, header in zip(files, read_headers(files), strict=True):
        turn = int(jpeg_orientation(tf.constant(file)))
        size = (20, 40) if turn > 4 else (40, 20)
        assert header == Header("JPEG", (40, 20), size, turn > 1, False)


def test_damaged_exif_is_read_as_decode_image_reads_it() -> None:
    rng = random.Random(7)
    whole = [insert(JPEG, exif_segment(exif(value, order))) for value in (6, 8) for order in "<>"]
    files = []
    for _ in range(1500):
        file = bytearray(rng.choice(whole)[:120])
        for _ in range(rng.randrange(1, 4)):
            file[rng.randrange(20, 70)] = rng.choice([0, 1, 2, 3, 4, 6, 8, 255, rng.randrange(256)])
        files.append(bytes(file[: rng.choice([len(file), rng.randrange(20, len(file))])]))
    expected = orientations(np.array(files, object)).tolist()
    assert {1, 6, 8} <= {*expected}
    assert [jpeg_orientation_of_header(file) for file in files] == expected


def test_exif_of_other_formats_turns_nothing() -> None:
    stated = Image.Exif()
    stated[0x0112] = 6
    files = [encode(kind, Image.new("L", (40, 20)), exif=stated) for kind in ("PNG", "WEBP")]
    for header in read_headers(files):
        assert header is not None
        assert (header.size, header.turned_size, header.is_turned) == ((40, 20), (40, 20), False)


def test_a_header_behind_a_long_profile_is_read(tmp_path: Path) -> None:
    profiles = [segment(0xE2, bytes(60_000))] * 2
    (tmp_path / "a.jpg").write_bytes(insert(JPEG, *profiles, exif_segment(exif(8))))
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    first, *others = read_headers([f"{tmp_path}/{name}.jpg" for name in "abc"])
    assert first == Header("JPEG", (40, 20), (20, 40), True, False)
    assert others == [None, None]
