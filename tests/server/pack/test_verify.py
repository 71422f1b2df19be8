"""The verification of packs: each byte that is another is found, and named."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.server.pack.conftest import run_pack, run_verify

from infeed.shared.errors import ConfigError
from infeed_server.pack.options import Location, PackOptions
from infeed_server.pack.plan import make_plan
from infeed_server.pack.reader import open_reader
from infeed_server.pack.run import read_manifest
from infeed_server.pack.verify import verify_shard


def flip_bytes(file: Path, dest: Path, count: int) -> None:
    """Flips a bit of a random byte of a shard, so many times, and expects its name each time."""
    packed = run_pack(file, dest)
    assert packed.manifest is not None
    entries = {entry["name"]: entry for entry in packed.manifest["shards"]}
    reader = open_reader(packed.plan.location, packed.plan.options)
    paths = [dest / name for name in entries]
    rng = random.Random(1)
    for _ in range(count):
        path = rng.choice(paths)
        good = path.read_bytes()
        byte = rng.randrange(len(good))
        path.write_bytes(
            good[:byte] + bytes([good[byte] ^ 1 << rng.randrange(8)]) + good[byte + 1 :]
        )
        entry = entries[path.name]
        (found,) = verify_shard(packed.plan, packed.destination, reader, entry)
        assert (found.file, found.byte) == (path.name, byte)
        assert found.record in range(entry["samples"])
        path.write_bytes(good)
    assert run_verify(file, dest) == []


def test_twenty_flipped_bytes_are_found(arrays: Path, tmp_path: Path) -> None:
    flip_bytes(arrays, tmp_path / "packed", 20)


@pytest.mark.slow
def test_a_thousand_flipped_bytes_are_found(arrays: Path, tmp_path: Path) -> None:
    flip_bytes(arrays, tmp_path / "packed", 1000)


def test_other_defects_are_named(arrays: Path, tmp_path: Path) -> None:
    dest = tmp_path / "packed"
    plan = run_pack(arrays, dest).plan
    names = [plan.name(shard) for shard in range(plan.shards)]
    os.truncate(dest / names[0], 100)
    (dest / names[1]).unlink()
    index = dest / f"{names[2]}.infeed-index.npz"
    index.write_bytes(index.read_bytes()[:-1])
    size = packed_bytes(dest, 0)
    problem = f"differs from the packed one: the file has 100 bytes of {size}"
    assert [str(defect) for defect in run_verify(arrays, dest)] == [
        f"{names[0]}, record 0, byte 100: {problem}",
        f"{names[1]}: does not exist",
        f"{index.name}: its hash is not the manifest's",
    ]


def test_images_that_changed_since_are_found(photos: Path, tmp_path: Path) -> None:
    packed = run_pack(photos, tmp_path / "packed", short_side=20, on_error="skip")
    shard = tmp_path / "packed" / packed.plan.name(0)
    first, _, third, *_ = sorted((tmp_path / "photos").glob("*/*.jpg"))
    content = third.read_bytes()
    third.write_bytes(first.read_bytes())
    (found,) = run_verify(photos, tmp_path / "packed")
    assert (found.file, found.record) == (shard.name, 2)
    assert found.problem == "field 'image' is not the one of sample 2"
    third.write_bytes(content[:500])
    (found,) = run_verify(photos, tmp_path / "packed")
    assert found.problem == "field 'image' is not the one of sample 3"
    shard.write_bytes(shard.read_bytes()[:-1])
    (found,) = run_verify(photos, tmp_path / "packed")
    assert found.problem == "the source makes another shard now, and the file is another"


def packed_bytes(dest: Path, shard: int) -> int:
    from infeed_server.pack.destination import Destination

    size: int = read_manifest(Destination(str(dest)))["shards"][shard]["bytes"]
    return size


def test_a_damaged_manifest_is_refused(arrays: Path, tmp_path: Path) -> None:
    packed = run_pack(arrays, tmp_path / "packed")
    manifest = tmp_path / "packed" / "infeed-pack.json"
    text = manifest.read_text()
    for damaged in (text.replace('"samples": 4', '"samples": 5', 1), text[:-9], "[]"):
        manifest.write_text(damaged)
        with pytest.raises(ConfigError, match=r"infeed-pack\.json is damaged; delete it"):
            read_manifest(packed.destination)
    manifest.unlink()
    with pytest.raises(ConfigError, match="does not exist: the pack is not finished"):
        read_manifest(packed.destination)


def test_shard_size_decides_the_samples_of_a_shard(photos: Path) -> None:
    location, options = Location(str(photos), "all"), PackOptions(shard_size="10KB")
    reader = open_reader(location, options)
    plan, _ = make_plan(reader, location, options)
    files = list(photos.parent.glob("photos/*/*.jpg"))
    mean = 8 + sum(file.stat().st_size for file in files) / len(files)  # with an int64
    assert plan.per_shard == int(10_000 / mean)
    assert sum(len(plan.range(shard)) for shard in range(plan.shards)) == 9
