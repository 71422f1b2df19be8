"""Sizes of annotated pictures: those that COCO JSON states against the files and the boxes."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import ImageListing
from infeed_server.storage.files import abbreviate, read_bytes

log = logging.getLogger(__name__)

_LOOKED_AT = 8
"""Pictures whose size is compared."""

_EXIF = b"Exif\0\0"
"""The start of EXIF data, which may rotate a picture and so swap width and height."""

_OVERHANG = 1
"""Pixels that a box may extend beyond its picture without a warning: tools round edges."""

_Items = Sequence[Mapping[str, Any]]


def picture_sizes(
    path: str, images: _Items, numbers: Mapping[Any, int], listing: ImageListing
) -> dict[Any, tuple[int, int]]:
    """Returns width and height by picture id, where the JSON states them or the picture is one of
    the few that are read. Raises `SourceError` if one of these differs from the stated size: boxes
    at another scale would show in those few too."""
    stated = [one for one in images if one.get("width") and one.get("height")]
    sizes = {image["id"]: (image["width"], image["height"]) for image in stated}
    looked_at = stated or images
    for image in looked_at[:: -(-len(looked_at) // _LOOKED_AT) or 1]:
        file = posixpath.join(listing.root, listing.images[numbers[image["id"]]].path)
        try:
            content = read_bytes(file)
            height, width = tf.io.decode_image(content, expand_animations=False).shape[:2]
        except (tf.errors.OpError, SourceError):
            continue  # a bad sample, later
        known = sizes.setdefault(image["id"], (width, height))
        may_be_turned = _EXIF in content and known == (height, width)
        if known != (width, height) and not may_be_turned:
            raise SourceError(
                f"{path} states {known[0]} x {known[1]} for {file}, which is {width} x {height}, "
                "so its boxes may not fit; scale them, or if they are right, delete width and "
                "height from the JSON",
                file=path,
            )
    return sizes


def warn_of_corners(
    path: str, annotations: _Items, ends: npt.NDArray[Any], sizes: Mapping[Any, tuple[int, int]]
) -> None:
    """Warns of boxes beyond their pictures, which may be two corners, not a corner and a size."""
    rows = [row for row, one in enumerate(annotations) if one["image_id"] in sizes]
    edges = np.array([sizes[annotations[row]["image_id"]] for row in rows]).reshape(-1, 2)
    beyond = np.array(rows, np.int64)[(ends[rows] > edges + _OVERHANG).any(1)]
    if len(beyond):
        ids = [str(annotations[row].get("id")) for row in beyond]
        log.warning(
            "%s: %d of %d boxes extend beyond their pictures by over a pixel: %s; is each bbox "
            "[x, y, width, height]?",
            *(path, len(beyond), len(rows), abbreviate(ids)),
        )
