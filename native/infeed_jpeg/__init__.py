"""JPEG decoder: resized batches with TensorFlow's bits, at about half of the processor time.

A picture that is unusual or damaged is refused by its status; TensorFlow decides what it is.
"""

from __future__ import annotations

import ctypes
import platform
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["STATUS", "decode_batch", "read_headers", "unavailable"]

STATUS = (
    "decoded",
    "damaged",
    "progressive",
    "other coding",
    "other precision",
    "other colour space",
    "other sampling",
    "too small or too large",
    "window outside of the picture",
    "no memory",
    "other format",
)
"""Words for the values of a status, which are their places here."""


class _Batch(ctypes.Structure):
    """Arguments of the library's function, as src/batch.c has them."""

    _fields_ = (
        ("count", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("antialias", ctypes.c_int32),
        ("records", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("windows", ctypes.c_void_p),
        ("parts", ctypes.c_void_p),
        ("orientations", ctypes.c_void_p),
        ("flips", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("next", ctypes.c_int),
    )


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(__file__).with_name("_decoder.so")))
    library.infeed_jpeg_decode.argtypes = [ctypes.POINTER(_Batch)]
    library.infeed_jpeg_decode.restype = ctypes.c_bool
    library.infeed_jpeg_read_headers.argtypes = [ctypes.c_int32, *[ctypes.c_void_p] * 3]
    library.infeed_jpeg_read_headers.restype = None
    return library


@cache
def unavailable() -> str | None:
    """Returns why this machine cannot decode, or None if it can."""
    try:
        library = _library()
    except OSError as error:
        return f"the library does not load: {error}"
    if not library.infeed_jpeg_decode(_Batch()):
        return f"{platform.machine()}: the decoder needs an x86-64 processor with AVX2 and BMI2"
    return None


def _records(records: Sequence[bytes]) -> tuple[ctypes.Array[ctypes.c_char_p], NDArray[np.uint64]]:
    """Returns the addresses and the sizes of the records; the caller keeps these alive."""
    # Not len, which a subclass can change.
    sizes = np.fromiter(map(bytes.__len__, records), np.uint64, len(records))
    return (ctypes.c_char_p * len(records))(*records), sizes


def read_headers(records: Sequence[bytes]) -> NDArray[np.int32]:
    """Returns height and width of each picture; zeros where `decode_batch` refuses its headers."""
    addresses, sizes = _records(records)
    out = np.empty((len(records), 2), np.int32)
    _library().infeed_jpeg_read_headers(
        len(records), ctypes.addressof(addresses), sizes.ctypes.data, out.ctypes.data
    )
    return out


def _require(name: str, array: NDArray[np.generic], dtype: type, shape: tuple[int, ...]) -> None:
    wrong = array.ndim != len(shape) or any(
        want not in (-1, size) for want, size in zip(shape, array.shape, strict=True)
    )
    if wrong or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: {array.dtype}{list(array.shape)}; needs a C-contiguous array of "
            f"{np.dtype(dtype)}{list(shape)}, where -1 is any number"
        )


def decode_batch(  # noqa: PLR0913 - the arguments of the compiled function
    records: Sequence[bytes],
    windows: NDArray[np.int32],
    flips: NDArray[np.uint8],
    out: NDArray[np.uint8],
    threads: int,
    *,
    run: Callable[[Callable[[int], None], Iterable[int]], Iterable[None]] | None = None,
    parts: NDArray[np.int32] | None = None,
    orientations: NDArray[np.uint8] | None = None,
    antialias: bool = False,
) -> NDArray[np.uint8]:
    """Decodes a window of each picture, resizes it, and mirrors it if its flip is 1.

    records  encoded pictures
    windows  [n, 4] int32: top, left, height and width in pixels of the upright picture
    flips    [n] uint8: 1 mirrors left to right
    out      [n, height, width, 3] uint8: written in place
    threads  the most threads that decode at once, each one picture after another
    run      `map` of an executor that has the threads; default: threads of this call alone
    parts    [n, 4] int32: the height and width of the resized window, and the top and left of the
             part of it that is wanted; default: all of it
    orientations  [n] uint8: of EXIF, 1 to 8, by which a picture is turned first; default: 1
    antialias  as in tf.image.resize

    Returns a status for each picture: 0, or the place in `STATUS` of the reason for a refusal,
    which leaves its part of `out` undefined. The pixels are what `tf.io.decode_jpeg(channels=3)`
    makes of the whole picture, turned and cropped, then `tf.image.resize`, `tf.round` and a cast to
    uint8.
    """
    n = len(records)
    _require("windows", windows, np.int32, (n, 4))
    _require("flips", flips, np.uint8, (n,))
    if parts is not None:
        _require("parts", parts, np.int32, (n, 4))
    if orientations is not None:
        _require("orientations", orientations, np.uint8, (n,))
        if n and not 1 <= orientations.min() <= orientations.max() <= 8:
            raise ValueError(f"orientations: {orientations.tolist()}; each is 1 to 8")
    _require("out", out, np.uint8, (n, -1, -1, 3))
    if not out.flags.writeable or 0 in out.shape[1:]:
        kind = f"{'' if out.flags.writeable else 'read-only '}{list(out.shape)}"
        raise ValueError(f"out: {kind}; needs pixels that can be written")
    if threads < 1:
        raise ValueError(f"threads: {threads}; needs at least 1")
    addresses, sizes = _records(records)
    status = np.empty(n, np.uint8)
    batch = _Batch(
        count=n,
        height=out.shape[1],
        width=out.shape[2],
        antialias=bool(antialias),
        records=ctypes.addressof(addresses),
        sizes=sizes.ctypes.data,
        windows=windows.ctypes.data,
        parts=None if parts is None else parts.ctypes.data,
        orientations=None if orientations is None else orientations.ctypes.data,
        flips=flips.ctypes.data,
        out=out.ctypes.data,
        status=status.ctypes.data,
    )

    def decode(_: int) -> None:
        if not _library().infeed_jpeg_decode(batch):
            raise RuntimeError(f"infeed_jpeg cannot decode: {unavailable()}")

    tasks = range(min(threads, n))
    if run is not None or threads == 1:
        deque((run or map)(decode, tasks), 0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            deque(pool.map(decode, tasks), 0)
    return status
