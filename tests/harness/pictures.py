"""Image files of unusual kinds; Pillow cannot write most of them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from PIL import Image

ByteOrder = Literal["<", ">"]


def encode(image_format: str, image: Any, **options: Any) -> bytes:
    """Returns Pillow's file of an image, or of an array."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    out = io.BytesIO()
    image.save(out, image_format, **options)
    return out.getvalue()


def png(
    samples: Any,
    depth: int,
    colour_type: int,
    *chunks: tuple[bytes, bytes],
    interlaced: bool = False,
) -> bytes:
    """Returns a PNG of samples [height, width, channels] with `depth` bits each."""
    height, width = samples.shape[:2]
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [
            (0, 0, 8, 8),
            (0, 4, 8, 8),
            (4, 0, 8, 4),
            (0, 2, 4, 4),
            (2, 0, 4, 2),
            (0, 1, 2, 2),
            (1, 0, 2, 1),
        ]
    data = b""
    for top, left, down, across in passes:
        part = samples[top::down, left::across]
        if part.size:
            data += b"".join(b"\0" + _pack_bits(row.reshape(-1), depth) for row in part)
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, interlaced)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def bmp(
    pixels: Any,
    bits: int,
    *,
    palette: Any = None,
    header_bytes: int = 40,
    compression: int = 0,
    masks: Sequence[int] = (),
    top_down: bool = False,
) -> bytes:
    """Returns a BMP: of indices [height, width], with a palette [colours, 3], or of pixels
    [height, width, bytes] as they are stored."""
    height, width = pixels.shape[:2]
    ordered = pixels if top_down else pixels[::-1]
    size = 8 if pixels.ndim == 3 else bits
    rows = [_pack_bits(row.reshape(-1), size) for row in ordered]
    data = b"".join(row.ljust(-(-len(row) // 4) * 4, b"\xee") for row in rows)
    table = b""
    if palette is not None:
        end = b"" if header_bytes == 12 else b"\0"
        table = b"".join(bytes(colour[::-1]) + end for colour in np.asarray(palette, np.uint8))
    if header_bytes == 12:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        signed_height = -height if top_down else height
        number = 0 if palette is None else len(palette)
        header = struct.pack(
            "<IiiHHIIiiII",
            header_bytes,
            width,
            signed_height,
            1,
            bits,
            compression,
            len(data),
            0,
            0,
            number,
            0,
        )
        stated = b"".join(struct.pack("<I", mask) for mask in masks)
        header = (header + stated).ljust(header_bytes, b"\0")
    offset = 14 + len(header) + len(table)
    return struct.pack("<2sIII", b"BM", offset + len(data), 0, offset) + header + table + data


def gif(
    indices: Any,
    palette: Any,
    *,
    canvas: tuple[int, int] | None = None,
    corner: tuple[int, int] = (0, 0),
    local: bool = False,
    transparent: int | None = None,
    interlaced: bool = False,
    extensions: bytes = b"",
    later: bytes = b"",
) -> bytes:
    """Returns a GIF with a frame of indices [height, width] and a palette of 2 to 256 colours.

    `canvas` is height and width, `corner` top and left. `later` are further frames.
    """
    height, width = indices.shape
    high, wide = canvas or (height, width)
    table = np.asarray(palette, np.uint8).tobytes()
    flags = 0x80 | (len(palette) - 1).bit_length() - 1
    head = struct.pack("<6sHHBBB", b"GIF89a", wide, high, 0 if local else flags, 0, 0)
    control = b""
    if transparent is not None:
        control = struct.pack("<BBBBHBB", 0x21, 0xF9, 4, 1, 0, transparent, 0)
    frame = gif_frame(indices, corner, table if local else b"", interlaced=interlaced)
    return head + (b"" if local else table) + extensions + control + frame + later + b";"


def gif_frame(
    indices: Any,
    corner: tuple[int, int] = (0, 0),
    table: bytes = b"",
    *,
    interlaced: bool = False,
) -> bytes:
    """Returns a frame of a GIF, with codes of nine bits and no compression."""
    height, width = indices.shape
    flags = 0x40 if interlaced else 0
    if table:
        flags |= 0x80 | (len(table) // 3 - 1).bit_length() - 1
    descriptor = struct.pack("<BHHHHB", ord(","), corner[1], corner[0], width, height, flags)
    rows = list(range(height))
    if interlaced:
        rows = [*rows[::8], *rows[4::8], *rows[2::4], *rows[1::2]]
    codes: list[int] = []
    for count, value in enumerate(np.asarray(indices)[rows].reshape(-1)):
        # The first code clears the table, before codes have a tenth bit.
        codes += [256, int(value)] if count % 200 == 0 else [int(value)]
    bits = "".join(f"{code:09b}"[::-1] for code in [*codes, 257])
    packed = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
    blocks = (packed[at : at + 255] for at in range(0, len(packed), 255))
    data = b"".join(bytes([len(block)]) + block for block in blocks)
    return descriptor + table + b"\x08" + data + b"\0"


def animation(*frames: Any) -> bytes:
    """Returns a lossless WebP of frames [height, width, channels]."""
    first, *later = (Image.fromarray(frame) for frame in frames)
    return encode("WEBP", first, save_all=True, append_images=later, lossless=True, exact=True)


def exif(
    orientation: int, order: ByteOrder = "<", *, kind: int = 3, count: int = 1, before: int = 0
) -> bytes:
    """Returns the TIFF part of an EXIF segment, with `before` other entries first."""
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, 8)
    others = [(number, 4, 1, 7) for number in range(before)]
    entries = b"".join(struct.pack(f"{order}HHII", *entry) for entry in others)
    form = "I" if kind == 4 else "HH"
    values = [orientation] if kind == 4 else [orientation, 0]
    own = struct.pack(f"{order}HHI{form}", 0x0112, kind, count, *values)
    return start + struct.pack(f"{order}H", before + 1) + entries + own + bytes(4)


def segment(marker: int, content: bytes) -> bytes:
    """Returns a segment of a JPEG."""
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def exif_segment(tiff: bytes) -> bytes:
    return segment(0xE1, b"Exif\0\0" + tiff)


def insert(jpeg: bytes, *segments: bytes, after_jfif: bool = False) -> bytes:
    """Returns a JPEG with segments at its start, or behind the 16 bytes of JFIF's."""
    assert not after_jfif or jpeg[2:6] == b"\xff\xe0\x00\x10"
    place = 20 if after_jfif else 2
    return jpeg[:place] + b"".join(segments) + jpeg[place:]


def _pack_bits(values: Any, depth: int) -> bytes:
    if depth == 16:
        return values.astype(">u2").tobytes()
    bits = (values[:, np.newaxis].astype(np.uint8) >> np.arange(depth)[::-1]) & 1
    return np.packbits(bits.reshape(-1)).tobytes()
