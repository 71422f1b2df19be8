"""Headers of pictures: what their first bytes say of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from PIL import Image

from infeed_formats.annotations.orientation import jpeg_orientation
from infeed_server.storage.handles import FileHandle

_READ_THREADS = 16
_HEAD, _MAX_HEAD = 64 << 10, 16 << 20
"""Bytes that are read first, and if a long profile or preview is in front."""

_TURNED = ("JPEG", "MPO")
"""Formats that `decode_image` turns."""

Size = tuple[int, int]
"""Width and height."""


class Header(NamedTuple):
    """What is known of a picture."""

    format: str
    size: Size
    """Of the stored pixels."""
    turned_size: Size
    """After `decode_image` with `exif: apply`."""
    is_turned: bool
    """Whether EXIF turns or mirrors it."""
    is_grey: bool


def read_headers(pictures: Sequence[str | bytes]) -> list[Header | None]:
    """Returns the headers of pictures, given as contents or paths; None for what is no picture."""
    with ThreadPoolExecutor(_READ_THREADS) as pool:
        return [*pool.map(_read, pictures)]


def _read(picture: str | bytes, size: int = _HEAD) -> Header | None:
    try:
        content = picture if isinstance(picture, bytes) else _head(picture, size)
        with Image.open(io.BytesIO(content)) as opened:
            turn = jpeg_orientation(content) if opened.format in _TURNED else 1
            width, height = opened.size
            turned = (height, width) if turn >= 5 else (width, height)
            is_grey = opened.mode[0] in "1LIF"
            return Header(str(opened.format), (width, height), turned, turn > 1, is_grey)
    except (OSError, ValueError, Image.DecompressionBombError):
        has_more = isinstance(picture, str) and size < _MAX_HEAD
        return _read(picture, _MAX_HEAD) if has_more else None


def _head(path: str, size: int) -> bytes:
    with FileHandle(path) as handle:
        return handle.read(0, size)
