"""Native decoder: the package `infeed_jpeg`, where this machine has it."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

DECODED = "decoded"
"""Status of a picture that it decodes."""


class Decoder(Protocol):
    """What is used of the package."""

    STATUS: tuple[str, ...]

    def read_headers(self, records: list[bytes]) -> npt.NDArray[np.int32]: ...

    def decode_batch(
        self,
        records: list[bytes],
        windows: npt.NDArray[np.int32],
        flips: npt.NDArray[np.uint8],
        out: npt.NDArray[np.uint8],
        threads: int,
    ) -> npt.NDArray[np.integer]: ...


def open_decoder(choice: str) -> Decoder | str:
    """Returns the native decoder, or why TensorFlow decodes; `choice` is a value of `--decoder`."""
    if choice == "tensorflow":
        return "--decoder tensorflow"
    try:
        module = import_module("infeed_jpeg")
    except ImportError:
        return "the package infeed-jpeg is not installed"
    reason: str | None = module.unavailable()
    return cast("Decoder", module) if reason is None else f"infeed-jpeg: {reason}"
