"""Sizes of annotated pictures: those that labels state against the files and the boxes."""

from __future__ import annotations

import logging
import posixpath
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from infeed.shared.errors import SourceError
from infeed_formats.annotations.headers import Header, Size, read_headers
from infeed_server.sources.base import Exif
from infeed_server.sources.images.listing import ImageListing
from infeed_server.storage.files import abbreviate

log = logging.getLogger(__name__)

_LOOKED_AT = 256
"""Pictures whose header is read."""

_EXCHANGED = 3
"""Boxes that tell that width and height are exchanged: one or two may be drawn carelessly."""

_OVERHANG = 1
"""Pixels that a box may extend beyond its picture without a warning: tools round edges."""


def read_some(listing: ImageListing, numbers: Collection[int]) -> dict[int, Header]:
    """Returns the headers of some of these pictures, by their numbers."""
    some = sorted(numbers)[:: -(-len(numbers) // _LOOKED_AT) or 1]
    paths = [posixpath.join(listing.root, listing.images[number].path) for number in some]
    found = zip(some, read_headers(paths), strict=True)
    return {number: header for number, header in found if header}  # others are bad samples, later


def check_sizes(
    path: str, stated: Mapping[int, Size], headers: Mapping[int, Header], listing: ImageListing
) -> None:
    """Raises `SourceError` if a stated width and height are not the picture's, stored or turned:
    boxes at another scale would show in those few pictures too."""
    for number, header in headers.items():
        known = stated.get(number, header.size)
        if known not in (header.size, header.turned_size):
            (width, height), file = header.size, listing.images[number].path
            raise SourceError(
                f"{path} states {known[0]} x {known[1]} for {posixpath.join(listing.root, file)}, "
                f"which is {width} x {height}, so its boxes may not fit; scale them, or if they "
                "are right, delete width and height from the JSON",
                file=path,
            )


def fitting_exif(
    where: str, stated: Mapping[int, Size], headers: Mapping[int, Header], listing: ImageListing
) -> Exif:
    """Returns the `exif` of `decode_image` that fits labels of pictures with these widths and
    heights. Raises `SourceError` if some fit the photos as stored, and some as EXIF turns them."""
    fitting: dict[Exif, list[str]] = defaultdict(list)
    for number, header in headers.items():
        if not header.is_turned:
            continue
        width, height = stated.get(number, (0, 0))
        is_told = width != height and header.size != header.turned_size
        is_stored = (width > height) == (header.size[0] > header.size[1])
        exif: Exif = "unclear" if not is_told else "ignore" if is_stored else "apply"
        fitting[exif].append(listing.images[number].path)
    if fitting["ignore"] and fitting["apply"]:
        raise SourceError(
            f"{where}: of {len(headers)} pictures looked at, {len(fitting['ignore'])} have labels "
            f"of their size as stored ({abbreviate(fitting['ignore'])}), and "
            f"{len(fitting['apply'])} of their size as EXIF turns them "
            f"({abbreviate(fitting['apply'])}); one exif of decode_image cannot fit both, so turn "
            "the labels of one kind",
            file=where,
        )
    return min((exif for exif, files in fitting.items() if files), default="")


def refuse_exchanged(
    path: str,
    numbers: Sequence[int],
    boxes: npt.NDArray[Any],
    stated: Mapping[int, Size],
    headers: Mapping[int, Header],
    listing: ImageListing,
) -> None:
    """Raises `SourceError` if several boxes, of the pictures `numbers`, fit photos that EXIF turns
    only with their width and height exchanged, and none fits them only as stated."""
    told = {
        number: stated[number]
        for number, header in headers.items()
        if number in stated and header.size != header.turned_size
    }
    rows = [row for row, number in enumerate(numbers) if number in told]
    sizes = np.array([told[numbers[row]] for row in rows]).reshape(-1, 2)
    ends = boxes[rows, 2:]
    fits, fits_exchanged = ((ends <= s + _OVERHANG).all(1) for s in (sizes, sizes[:, ::-1]))
    wrong, right = fits_exchanged & ~fits, fits & ~fits_exchanged
    if wrong.sum() >= _EXCHANGED and not right.any():
        files = {listing.images[numbers[row]].path for row in np.array(rows)[wrong]}
        raise SourceError(
            f"{path}: {int(wrong.sum())} boxes in photos that EXIF turns fit only if width and "
            f"height are exchanged, and no box fits only as they are: {abbreviate(sorted(files))}; "
            "exchange width and height of the photos that EXIF turns by 90 degrees in the JSON",
            file=path,
        )


def warn_of_corners(
    path: str,
    annotations: Sequence[Mapping[str, Any]],
    numbers: Sequence[int],
    boxes: npt.NDArray[Any],
    sizes: Mapping[int, Size],
) -> None:
    """Warns of boxes beyond their pictures, which may be two corners, not a corner and a size."""
    rows = [row for row, number in enumerate(numbers) if number in sizes]
    edges = np.array([sizes[numbers[row]] for row in rows]).reshape(-1, 2)
    beyond = np.maximum(boxes[rows, 2:] - edges, -boxes[rows, :2]).max(1) > _OVERHANG
    if count := int(beyond.sum()):
        ids = [str(annotations[row].get("id")) for row in np.array(rows)[beyond]]
        log.warning(
            "%s: %d of %d boxes extend beyond their pictures by over a pixel, in annotations with "
            "the ids %s; is each bbox [x, y, width, height]?",
            *(path, count, len(rows), abbreviate(ids)),
        )
