"""Tars that the package `webdataset` writes, and its own reading of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.harness.writers import needs_writers, run_writer

from infeed_formats.webdataset.source import WebDatasetSource

pytestmark = needs_writers

PROGRAM = """
import json, sys
import numpy as np, webdataset

folder = sys.argv[1]
with webdataset.ShardWriter(folder + "/train-%06d.tar", maxcount=8, verbose=0) as writer:
    for number in range(20):
        writer.write({
            "__key__": "long/" * 30 + f"folder.x/sample{number:04}",
            "jpg": bytes([number]) * (1000 * number),
            "cls": number % 7,
            "txt": f"text {number}",
            "box.npy": np.arange(6, dtype=np.float32).reshape(2, 3) * number,
            "json": {"number": number},
        })
files = [f"{folder}/train-{number:06}.tar" for number in range(3)]
samples = webdataset.WebDataset(files, shardshuffle=False, empty_check=False)
fields = ([item for item in sample.items() if item[0][0] != "_"] for sample in samples)
print(json.dumps([{name: value.hex() for name, value in items} for items in fields]))
"""


def test_samples_are_those_of_the_package(tmp_path: Path) -> None:
    expected = json.loads(run_writer("-c", PROGRAM, tmp_path))
    source = WebDatasetSource(webdataset=str(tmp_path / "train-*.tar")).open()
    assert len(source) == len(expected) == 20
    columns = source.read(np.arange(20))
    assert columns.keys() == {name.replace(".", "_") for name in expected[0]}
    for name in ("jpg", "txt", "json"):
        assert [value.hex() for value in columns[name]] == [one[name] for one in expected]
    assert columns["cls"].tolist() == [int(bytes.fromhex(one["cls"])) for one in expected]
    boxes = [np.arange(6, dtype=np.float32).reshape(2, 3) * number for number in range(20)]
    np.testing.assert_array_equal(columns["box_npy"], boxes)
