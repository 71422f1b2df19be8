"""EXIF orientation: found wherever it may be, and never a reason to fail."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps
from tests.harness.pictures import encode, exif, exif_segment, insert, segment

from infeed_server.transforms import DecodeImage
from infeed_server.transforms.images.orientation import jpeg_orientation, may_have_exif

PIXELS = np.random.default_rng(8).integers(0, 256, (12, 17, 3), np.uint8)
JPEG = encode("JPEG", PIXELS, subsampling=0)
SIX = exif_segment(exif(6))

COMMENT = segment(0xFE, b"of a camera")
PROFILE = segment(0xE2, b"ICC_PROFILE\0" + bytes(3000))
XMP = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<Exif/>")
ADOBE = segment(0xED, b"Photoshop 3.0\0" + bytes(50_000))


@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def find(contents: tf.Tensor) -> tf.Tensor:
    return tf.cond(may_have_exif(contents), lambda: jpeg_orientation(contents), lambda: 1)


def orientations(files: list[bytes]) -> list[int]:
    """Returns the orientation of each file; all share one graph, which is made once."""
    return [int(find(tf.constant(file))) for file in files]


def test_every_orientation_of_both_byte_orders_is_found() -> None:
    for order in ("<", ">"):
        segments = [exif_segment(exif(value, order)) for value in range(1, 9)]
        assert orientations([insert(JPEG, exif_of_value) for exif_of_value in segments]) == list(
            range(1, 9)
        )


def test_exif_is_found_behind_other_segments() -> None:
    files = {
        "first": insert(JPEG, SIX),
        "behind JFIF's": insert(JPEG, SIX, after_jfif=True),
        "behind others": insert(JPEG, COMMENT, PROFILE, XMP, ADOBE, SIX),
        "behind JFIF's and others": insert(JPEG, ADOBE, XMP, SIX, PROFILE, after_jfif=True),
        "behind a long one of JFIF": b"\xff\xd8"
        + segment(0xE0, b"JFIF\0" + bytes(99))
        + SIX
        + JPEG[20:],
        "behind fill bytes": insert(JPEG, b"\xff\xff\xff", SIX, after_jfif=True),
        "behind fill bytes and others": insert(JPEG, COMMENT, b"\xff", SIX),
        "behind the tables": JPEG[:20] + XMP + segment(0xDB, bytes(65)) + SIX + JPEG[20:],
        "a long": insert(JPEG, exif_segment(exif(6, kind=4))),
        "a long, big-endian": insert(JPEG, exif_segment(exif(6, ">", kind=4))),
        "two shorts": insert(JPEG, exif_segment(exif(6, count=2))),
        "two shorts, big-endian": insert(JPEG, exif_segment(exif(6, ">", count=2))),
        "the first of two": insert(JPEG, SIX, exif_segment(exif(3))),
        "a late entry": insert(JPEG, exif_segment(exif(6, before=40))),
        "a late entry, big-endian": insert(JPEG, exif_segment(exif(6, ">", before=40))),
    }
    assert dict(zip(files, orientations([*files.values()]), strict=True)) == dict.fromkeys(files, 6)


def test_jpeg_without_orientation_is_upright() -> None:
    tiff = exif(6)
    files = {
        "no EXIF": JPEG,
        "no segments": JPEG[:2] + JPEG[20:],
        "other segments": insert(JPEG, COMMENT, PROFILE, XMP, ADOBE),
        "EXIF behind the pixels": JPEG + SIX,
        "EXIF behind the start of the pixels": JPEG[:20] + segment(0xDA, bytes(8)) + SIX,
        "EXIF in another segment": insert(JPEG, segment(0xE2, b"Exif\0\0" + tiff)),
        "EXIF in an embedded picture": insert(JPEG, segment(0xE2, SIX)),
        "EXIF behind too many segments": insert(JPEG, *[XMP] * 101, SIX),
        "value 0": insert(JPEG, exif_segment(exif(0))),
        "value 9": insert(JPEG, exif_segment(exif(9))),
        "of another type": insert(JPEG, exif_segment(exif(6, kind=2))),
        "three values": insert(JPEG, exif_segment(exif(6, count=3))),
        "no value": insert(JPEG, exif_segment(exif(6, count=0))),
        "a long of 65542": insert(JPEG, exif_segment(exif(65542, kind=4))),
        "no entries": insert(JPEG, exif_segment(tiff[:8] + b"\0\0")),
        "no directory": insert(JPEG, exif_segment(tiff[:8])),
        "no TIFF": insert(JPEG, exif_segment(b"")),
        "wrong byte order": insert(JPEG, exif_segment(b"MM" + tiff[2:])),
        "unknown byte order": insert(JPEG, exif_segment(b"XX" + tiff[2:])),
        "directory behind the end": insert(
            JPEG, exif_segment(tiff[:4] + b"\xff\xff\xff\x7f" + tiff[8:])
        ),
        "directory at the end": insert(
            JPEG, exif_segment(tiff[:4] + struct.pack("<I", len(tiff)) + tiff[8:])
        ),
        "more entries than bytes": insert(JPEG, exif_segment(tiff[:8] + b"\xff\xff")),
        "torn segment": insert(JPEG, SIX)[:16],
        "segment longer than the file": JPEG[:2] + b"\xff\xe1\xff\xff",
        "length 0": JPEG[:2] + b"\xff\xe1\0\0" + JPEG[2:],
        "only fill bytes": JPEG[:2] + b"\xff" * 5000,
        "two bytes": JPEG[:2],
        "none": b"",
    }
    assert dict(zip(files, orientations([*files.values()]), strict=True)) == dict.fromkeys(files, 1)


def test_jpeg_without_the_identifier_is_not_searched() -> None:
    assert not may_have_exif(tf.constant(insert(JPEG, PROFILE, ADOBE, XMP, after_jfif=True)))


def test_torn_exif_never_fails() -> None:
    whole = insert(JPEG, COMMENT, exif_segment(exif(6, before=3)))
    assert set(orientations([whole[:length] for length in range(2, 90)])) == {1, 6}


def test_image_is_turned_as_pillow_turns_it(run_each: Any) -> None:
    files = [insert(JPEG, exif_segment(exif(value)), after_jfif=True) for value in range(1, 9)]
    step = DecodeImage(field="x", exif="apply")
    results = run_each(step, {"x": np.array(files, object)}, [(0, 0)] * len(files))
    stored = Image.fromarray(tf.io.decode_jpeg(JPEG).numpy())
    for value, result in enumerate(results, 1):
        stored.getexif()[0x0112] = value
        np.testing.assert_array_equal(result["x"], np.asarray(ImageOps.exif_transpose(stored)))
