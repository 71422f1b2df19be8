"""The `exif` that fits labels, by the sizes of their pictures."""

from __future__ import annotations

from typing import Any

import pytest

from infeed import SourceError
from infeed_formats.annotations.headers import Header
from infeed_formats.annotations.picture_sizes import fitting_exif
from infeed_server.sources.images.listing import ImageListing
from infeed_server.storage.stamp import FileStamp, StoredFile

LISTING = ImageListing(
    "photos", tuple(StoredFile(f"{name}.jpg", FileStamp(1, 1, "")) for name in "abcd"), ()
)
UPRIGHT = Header("JPEG", (40, 20), (40, 20), False, False)
SIDEWAYS = Header("JPEG", (40, 20), (20, 40), True, False)
UPSIDE_DOWN = Header("JPEG", (40, 20), (40, 20), True, False)
SQUARE = Header("JPEG", (40, 40), (40, 40), True, False)
STORED, TURNED = (40, 20), (20, 40)


@pytest.mark.parametrize(
    ("headers", "sizes", "expected"),
    [
        ([UPRIGHT], [STORED], ""),
        ([UPRIGHT, SIDEWAYS], [STORED, STORED], "ignore"),
        ([UPRIGHT, SIDEWAYS], [STORED, TURNED], "apply"),
        ([SIDEWAYS], [(10, 20)], "apply"),
        ([SIDEWAYS], [(20, 20)], "unclear"),
        ([SIDEWAYS], [], "unclear"),
        ([UPSIDE_DOWN], [STORED], "unclear"),
        ([SQUARE], [(40, 40)], "unclear"),
        ([UPSIDE_DOWN, SIDEWAYS, SQUARE], [STORED, TURNED, (40, 40)], "apply"),
        ([UPSIDE_DOWN, SIDEWAYS], [STORED, STORED], "ignore"),
    ],
)
def test_sizes_tell_which_exif_fits(headers: Any, sizes: Any, expected: str) -> None:
    found = fitting_exif("a.json", dict(enumerate(sizes)), dict(enumerate(headers)), LISTING)
    assert found == expected


def test_photos_that_no_exif_fits_are_named() -> None:
    sizes = dict(enumerate([STORED, TURNED, TURNED, STORED]))
    headers = dict(enumerate([SIDEWAYS, SIDEWAYS, SIDEWAYS, UPRIGHT]))
    problem = (
        r"a.json: of 4 pictures looked at, 1 have labels of their size as stored \(a.jpg\), and 2 "
        r"of their size as EXIF turns them \(b.jpg, c.jpg\); one exif of decode_image cannot fit"
    )
    with pytest.raises(SourceError, match=problem):
        fitting_exif("a.json", sizes, headers, LISTING)
