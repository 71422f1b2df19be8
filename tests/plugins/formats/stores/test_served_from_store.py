"""`infeed serve` of objects: right batches through faults, and a quick end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.object_server import ObjectServer
from tests.harness.server import InfeedServer
from tests.harness.tfrecords import example, write_records

import infeed

PIPELINE = """
pipelines:
  numbers:
    source: {tfrecord: '%s/*.tfrecord', features: {x: int64, y: bytes}}
    shuffle: {seed: 1}
    batch: {size: 10}
"""


@pytest.mark.slow
def test_processes_serve_the_same_as_from_files(
    store: ObjectServer,
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    records = (example({"x": [n], "y": [bytes([n]) * 2000]}) for n in range(200))
    write_records(data / "a.tfrecord", records)
    store.put_folder(data, "bkt")
    store.faults.error_rate = store.faults.cut_rate = 0.02
    found = []
    for root in (str(data), "s3://bkt"):
        log = tmp_path / root.replace("/", "_")
        definition = tmp_path / "served.yaml"
        definition.write_text(PIPELINE % root)
        server = InfeedServer(definition, log, "--processes", "2")
        with server:
            with infeed.connect(server.address, "numbers", epochs=1) as feed:
                found.append([number for batch in feed for number in batch["x"].tolist()])
            assert server.terminate() == 0
    assert found[0] == found[1]
    assert sorted(found[1]) == list(range(200))
