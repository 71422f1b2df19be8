"""A writer of Megatron-LM's files of tokens, from the description of their layout."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CODES = {
    "uint8": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float64": 6,
    "float32": 7,
    "uint16": 8,
}


def write_tokens(
    path: Path, sequences: Sequence[Sequence[int]], dtype: str = "uint16", **changes: Any
) -> Path:
    """Writes a pair as Megatron-LM does; returns the .idx."""
    lengths = [len(sequence) for sequence in sequences]
    size = np.dtype(dtype).itemsize
    parts = {
        "magic": b"MMIDIDX\x00\x00",
        "version": struct.pack("<Q", 1),
        "code": struct.pack("<B", CODES[dtype]),
        "counts": struct.pack("<QQ", len(lengths), len(lengths) + 1),
        "lengths": np.array(lengths, "<i4").tobytes(),
        "pointers": np.cumsum([0, *lengths[:-1]], dtype="<i8").tobytes() if lengths else b"",
        "documents": np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
        "modes": b"",
    }
    parts["pointers"] = (np.frombuffer(parts["pointers"], "<i8") * size).tobytes()
    path.write_bytes(b"".join({**parts, **changes}.values()))
    tokens = [token for sequence in sequences for token in sequence]
    path.with_suffix(".bin").write_bytes(
        np.array(tokens, np.dtype(dtype).newbyteorder("<")).tobytes()
    )
    return path
