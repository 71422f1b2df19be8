"""Shards that Mosaic Streaming's own writer wrote, read by the `mds` source."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.harness.samples import parse
from tests.harness.writers import needs_writers, run_writer

from infeed_formats.mds.source import MdsReader, MdsSource

pytestmark = needs_writers

IMPORTS = """
import sys
from decimal import Decimal
import numpy as np
from PIL import Image
from mosaic import MDSWriter, merge_index
out = sys.argv[1]
"""

TYPES = """
columns = {
    "i": "int", "s": "str", "u": "uint16", "h": "float16", "json": "json", "png": "png",
    "text": "str_decimal", "typed": "ndarray", "shaped": "ndarray:int32", "pil": "pil",
    "fixed": "ndarray:float32:2,3", "varying": "ndarray:uint16",
}
for part in ("a", "b"):
    with MDSWriter(out=f"{out}/{part}", columns=columns, hashes=["sha1"], size_limit=2000) as w:
        for n in range(20) if part == "a" else range(20, 25):
            picture = Image.new("RGB", (3, 2), (n, 0, 1))
            w.write({
                "i": n, "s": f"\\u00e9{n}", "u": n, "h": n, "json": [n], "png": picture,
                "text": Decimal(n) / 10, "typed": np.full(4, n, np.int8),
                "shaped": np.full(300, n, np.int32), "pil": picture,
                "fixed": np.full((2, 3), n, np.float32),
                "varying": np.full((n % 3 + 1, 2), n, np.uint16),
            })
merge_index(out)
"""


def write(code: str, folder: Path) -> None:
    run_writer("-c", IMPORTS + code, folder)


def open_source(folder: Path, *fields: str) -> MdsReader:
    return MdsSource(mds=str(folder), fields=fields or None).open()


def test_values_of_merged_folders(tmp_path: Path) -> None:
    write(TYPES, tmp_path)
    source = open_source(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    assert len(index["shards"]) > 4
    assert source.read(np.arange(25))["i"].tolist() == [*range(25)]
    for n in (0, 13, 24):
        row = parse(source, n)
        assert (row["s"], row["json"]) == (f"\u00e9{n}".encode(), b"[%d]" % n)
        assert (row["u"].dtype, row["h"].dtype) == (np.uint16, np.float16)
        assert (row["u"], row["h"], row["text"]) == (n, n, n / 10)
        for name, shape, dtype in (
            ("typed", (4,), np.int8),
            ("shaped", (300,), np.int32),
            ("fixed", (2, 3), np.float32),
            ("varying", (n % 3 + 1, 2), np.uint16),
        ):
            np.testing.assert_array_equal(row[name], np.full(shape, n, dtype))
            assert row[name].dtype == dtype
        np.testing.assert_array_equal(row["pil"], np.full((2, 3, 3), (n, 0, 1)))
        assert row["png"][:4] == b"\x89PNG"
