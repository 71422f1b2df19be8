"""Masks in a folder: a PNG for each image, with class numbers as pixels."""

from __future__ import annotations

import posixpath
import struct
import zlib
from collections.abc import Mapping, Sequence

import tensorflow as tf
from typing_extensions import override

from infeed.shared.errors import SampleError, SourceError
from infeed.shared.spec import TargetSpec
from infeed_formats.annotations.headers import read_headers
from infeed_formats.annotations.picture_sizes import fitting_exif, read_some
from infeed_server.sources.base import Columns, Exif
from infeed_server.sources.images.fields import ImageFields, LabelsDefinition
from infeed_server.sources.images.listing import ImageListing, list_images
from infeed_server.sources.images.source import ImageFiles
from infeed_server.sources.places import Indices
from infeed_server.storage.files import PathString, abbreviate, absolute_path
from infeed_server.storage.stamp import StoredFile

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = 26
"""Bytes of a PNG up to and including its bit depth and colour type."""
_KINDS = (0, 3)
"""The colour types for greyscale and a palette."""
_PALETTE = b"\x03"
_GREYS = bytes(value for value in range(256) for _ in range(3))
"""The palette that maps each index to the grey of the same value."""


class MaskLabels(LabelsDefinition):
    """Masks from a folder: `{masks: annotations}`.

    Field: `mask`, the encoded PNG at the image's relative path, for `decode_image` with
    `channels: 1`. It must have at most 8 bits of grey, or a palette. Each pixel decodes to the
    stored number: palette colours are not used, and greys of fewer bits are not scaled.
    """

    masks: PathString

    @override
    def paths(self) -> dict[str, str]:
        return {"masks": self.masks}

    @override
    def read(self, listing: ImageListing) -> _Masks:
        """Lists the masks of the images. Raises `SourceError` if no image has a mask or a mask is
        not a PNG."""
        masks = list_images(absolute_path(self.masks))
        by_stem = {posixpath.splitext(file.path)[0]: file for file in masks.images}
        stems = [posixpath.splitext(image.path)[0] for image in listing.images]
        found = [by_stem.get(stem) for stem in stems]
        missing = [number for number, file in enumerate(found) if file is None]
        if len(missing) == len(found):
            raise SourceError(
                f"no picture of {listing.root!r} has a mask in {masks.root!r}, such as "
                f"{stems[0]}.png; the names there look like {masks.images[0].path!r}",
                file=masks.root,
            )
        used = [file for file in found if file is not None]
        if others := [file.path for file in used if not file.path.lower().endswith(".png")]:
            raise SourceError(
                f"masks in {masks.root!r} are not PNGs: {abbreviate(others)}; write PNGs, as JPEG "
                "changes the class numbers",
                file=masks.root,
            )
        headers = read_some(listing, {*range(len(found))}.difference(missing))
        files = [file or used[0] for file in found]
        turned = [number for number, header in headers.items() if header.is_turned]
        own = read_headers([posixpath.join(masks.root, files[number].path) for number in turned])
        sizes = {number: mask.size for number, mask in zip(turned, own, strict=True) if mask}
        exif = fitting_exif(masks.root, sizes, headers, listing)
        return _Masks(masks.root, files, missing, exif)


class _Masks(ImageFields):
    """The mask of each image."""

    shown = (TargetSpec("mask", "image", "mask"),)

    def __init__(
        self, root: str, files: Sequence[StoredFile], missing: Sequence[int], exif: Exif
    ) -> None:
        self._listed = files
        self._files = ImageFiles(root.rstrip("/"), ImageListing(root, tuple(files), ()))
        self.exif, self.missing, self.table = exif, frozenset(missing), root

    @property
    @override
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        return {"mask": tf.TensorSpec((), tf.string)}

    @override
    def read(self, indices: Indices) -> Columns:
        contents = self._files.read(indices)
        for row, index in enumerate(indices.tolist()):
            path = self._files.provenance(index).file
            if problem := _problem(contents[row]):
                raise SampleError(f"mask {path} {problem}", sample=index, file=path, stage="read")
            contents[row] = with_indices(contents[row])
        return {"mask": contents}

    @override
    def digest(self, index: int) -> bytes:
        file = self._listed[index]
        return b"%s\0%d" % (file.path.encode(errors="surrogateescape"), file.stamp.size)

    @override
    def close(self) -> None:
        self._files.close()


def _problem(content: bytes) -> str:
    """Returns why a PNG's pixels are not classes; empty if they are or the file is damaged."""
    if not content.startswith(_SIGNATURE) or len(content) < _HEADER:
        return ""
    bits, kind = content[_HEADER - 2 :][:2]
    if kind not in _KINDS:
        return "is in colour or has alpha; write class numbers as 8-bit greys or palette indices"
    if bits > 8:
        return f"has {bits} bits, and only the upper 8 would be read; write 8-bit PNGs"
    return ""


def with_indices(content: bytes) -> bytes:
    """Returns a PNG whose palette, if any, maps each index to the grey of that value. Greys of less
    than 8 bits get such a palette, or decoding would scale them to 255."""
    if not content.startswith(_SIGNATURE) or len(content) < _HEADER:
        return content
    place, parts = len(_SIGNATURE), [_SIGNATURE]
    bits, colours = content[_HEADER - 2 :][:2]
    if bits < 8 and not colours:
        header = b"IHDR" + content[16 : _HEADER - 1] + _PALETTE + content[_HEADER : _HEADER + 3]
        parts += [_chunk(header), _chunk(b"PLTE" + _GREYS[: 3 << bits])]
        place = _HEADER + 7
    while place + 12 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        end = place + 12 + length
        if kind == b"IDAT":
            break
        part = content[place:end]
        if kind == b"PLTE":
            part = _chunk(kind + _GREYS[:length])
        parts += [part] * (kind not in (b"tRNS", b"gAMA", b"sRGB", b"iCCP"))
        place = end
    return b"".join([*parts, content[place:]])


def _chunk(content: bytes) -> bytes:
    """Returns a PNG chunk from its type and data."""
    return struct.pack(">I", len(content) - 4) + content + struct.pack(">I", zlib.crc32(content))
