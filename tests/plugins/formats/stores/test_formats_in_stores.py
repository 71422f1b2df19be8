"""Each format in moto and fake-gcs-server, written by its own package: the same samples as on a
disk, through faults, and never another object."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.harness.http_faults import FaultProxy, Faults
from tests.harness.megatron import write_tokens
from tests.harness.real_stores import needs_stores, put
from tests.harness.writers import FOLDER, needs_writers, run_writer

from infeed.shared.errors import SourceError
from infeed_server.sources.registry import AnySource, open_source
from infeed_server.storage.files import INDEX_SUFFIX

pytestmark = [pytest.mark.slow, needs_stores, needs_writers]

FEATURES = {"image": "bytes", "label": "int64"}

SOURCES: dict[str, dict[str, Any]] = {
    "images": {"images": "ROOT/images", "labels": "ROOT/images/labels.csv"},
    "tfrecord": {"tfrecord": "ROOT/tfrecord/*.tfrecord", "features": FEATURES},
    "webdataset": {"webdataset": "ROOT/webdataset/*", "fields": {"image": "jpg", "label": "cls"}},
    "mds": {"mds": "ROOT/mds"},
    "parquet": {"parquet": "ROOT/parquet/*.parquet"},
    "tfds": {"tfds": "ROOT/tfds/photos/1.0.0", "split": "train"},
    "tokens": {"tokens": "ROOT/tokens/*.idx", "length": 7},
}

FAULTS = Faults(0.01, 0.05, cut_rate=0.05, slow_rate=0.05, slow_seconds=0.2)


@pytest.fixture(scope="module")
def written(few_photos: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of each format."""
    root = tmp_path_factory.mktemp("formats")
    formats = SOURCES.keys() - {"images", "tokens"}
    run_writer(FOLDER / "write.py", few_photos.folder, root, *formats)
    shutil.copytree(few_photos.folder, root / "images")
    (root / "tokens").mkdir()
    for number in range(3):
        write_tokens(root / f"tokens/{number}.idx", [range(number, 200)] * 5)
    return root


def opened(name: str, root: Path | str) -> Any:
    definition = {
        key: value.replace("ROOT", str(root)) if isinstance(value, str) else value
        for key, value in SOURCES[name].items()
    }
    return open_source(TypeAdapter(AnySource).validate_python(definition))


def rows(source: Any, order: Any) -> dict[str, list[Any]]:
    """Reads samples in batches of 7; returns each column by the samples' ids."""
    found: dict[str, dict[int, Any]] = {}
    for part in np.array_split(order, len(order) // 7):
        for field, values in source.read(part).items():
            column = found.setdefault(field, {})
            column.update(zip(part.tolist(), values.tolist(), strict=True))
    return {
        field: [column[index] for index in range(len(order))] for field, column in found.items()
    }


@pytest.mark.parametrize("name", SOURCES)
def test_samples_are_as_on_a_disk(name: str, written: Path, proxy: tuple[str, FaultProxy]) -> None:
    bucket, faulty = proxy
    files = [path for path in (written / name).rglob("*") if path.is_file()]
    files = [path for path in files if INDEX_SUFFIX not in path.name]
    keys = {path: f"{bucket}/{path.relative_to(written)}" for path in files}
    for path, key in keys.items():
        put(proxy, key, path.read_bytes())
    faulty.faults = FAULTS
    local, remote, late = opened(name, written), opened(name, bucket), opened(name, bucket)
    assert len(remote) == len(local) >= 60
    order = np.random.default_rng(1).permutation(len(local))
    assert rows(remote, order) == rows(local, np.arange(len(local)))
    assert name == "images" or remote.identity == local.identity
    largest = max(files, key=lambda path: path.stat().st_size)
    put(proxy, keys[largest], largest.read_bytes()[::-1])
    with pytest.raises(SourceError, match=f"{largest.name} changed since") as caught:
        rows(late, order)
    assert caught.value.metadata["fault"] == "changed"
    for source in (local, remote, late):
        source.close()
