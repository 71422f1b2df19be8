"""A writer of Mosaic Streaming's format, from the description of its layout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Columns = Mapping[str, tuple[str, int | None]]
"""Name → encoding, and the size of each value if that is fixed."""


def write_mds(
    folder: Path, columns: Columns, shards: Sequence[Sequence[Mapping[str, bytes]]]
) -> dict[str, Any]:
    """Writes encoded values of samples, and returns the content of index.json."""
    folder.mkdir(parents=True, exist_ok=True)
    encodings, sizes = zip(*columns.values(), strict=True)
    config = {
        "version": 2,
        "format": "mds",
        "compression": None,
        "column_names": [*columns],
        "column_encodings": encodings,
        "column_sizes": sizes,
    }
    index: dict[str, Any] = {"version": 2, "shards": []}
    for number, samples in enumerate(shards):
        content = _shard([_sample(columns, sample) for sample in samples], config)
        name = f"shard.{number:05}.mds"
        (folder / name).write_bytes(content)
        raw = {"basename": name, "bytes": len(content), "hashes": {}}
        shard = {**config, "samples": len(samples), "raw_data": raw, "zip_data": None}
        index["shards"].append(shard)
    (folder / "index.json").write_text(json.dumps(index))
    return index


def _sample(columns: Columns, values: Mapping[str, bytes]) -> bytes:
    varying = [len(values[name]) for name, (_, size) in columns.items() if size is None]
    return np.array(varying, "<u4").tobytes() + b"".join(values[name] for name in columns)


def _shard(samples: Sequence[bytes], config: Mapping[str, Any]) -> bytes:
    text = json.dumps(config).encode()
    begin = 4 * (len(samples) + 2) + len(text)
    offsets = begin + np.cumsum([0, *map(len, samples)])
    head = np.array([len(samples), *offsets], "<u4").tobytes()
    return head + text + b"".join(samples)
