"""Manifests: stable bytes, and every tampering with data, order, removals and values is found."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.harness.tfrecords import example, write_records
from typer.testing import CliRunner, Result

from infeed.cli import new_app
from infeed.cursor import Cursor
from infeed_server.pipeline.load import load
from infeed_server.run.amend import AmendOptions, amend
from infeed_server.run.manifest import RunData, make, open_run, read_contents
from infeed_server.run.verify_manifest import verify
from infeed_server.sources.content import Contents

OLD = """
pipelines:
  train:
    source: {images: photos, labels: folders}
    shuffle: {seed: 7}
    transforms: [decode_image: {field: image, channels: 3}, resize: {field: image, size: [8, 8]}]
    batch: {size: 4}
    on_error: substitute
"""
NEW = """
pipelines:
  train:
    source: {images: photos, labels: folders}
    add: [{images: more, labels: folders}]
    remove: removed.txt
    shuffle: {seed: 7}
    transforms: [decode_image: {field: image, channels: 3}, resize: {field: image, size: [8, 8]}]
    batch: {size: 2}
    on_error: substitute
  records:
    source: {tfrecord: data.tfrecord, features: {x: int64, t: bytes}}
    skip: [[2, 4]]
    batch: {size: 4}
"""
REMOVED = "3  # poisoned\nb/1.JPEG # a face, see ticket 12\n13\n"

POSITION = 51
"""Of a run that was amended at position 32."""


@pytest.fixture(autouse=True)
def kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEED_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, photos: SimpleNamespace) -> Path:
    """Photos of two classes, more of them, records, the list of removed samples, and two runs."""
    folder = tmp_path_factory.mktemp("manifest")
    names = sorted(photos.labels, key=lambda name: (photos.folder / name).stat().st_size)
    places = [f"photos/{'ab'[n % 2]}/{n // 2}.JPEG" for n in range(10)]
    places += [f"more/{'ab'[n % 2]}/new{n}.JPEG" for n in range(4)]
    for name, place in zip(names, places, strict=False):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos.folder / name, folder / place)
    records = [example({"x": [n], "t": [b"%d" % n]}) for n in range(40)]
    write_records(folder / "data.tfrecord", records)
    (folder / "removed.txt").write_text(REMOVED)
    (folder / "old.yaml").write_text(OLD)
    (folder / "new.yaml").write_text(NEW)
    (folder / "run.json").write_text(json.dumps(amended_run(folder)))
    with open_run(Cursor("records", "", 5, 30), load(str(folder / "new.yaml"))) as run:
        (folder / "records.json").write_text(json.dumps(run.cursor.to_json()))
    return folder


def amended_run(folder: Path) -> dict[str, Any]:
    """Returns a run to which samples were added, and others removed, behind some epochs."""
    start, old, new = Cursor("train", "", 7, 32), str(folder / "old.yaml"), folder / "new.yaml"
    with open_run(start, load(old), world_size=2) as run:
        start = run.cursor
    options = AmendOptions(batch_size=2, world_size=1)
    amended = amend(start, step=4, definition=str(new), was=old, options=options)
    return replace(amended.cursor, position=POSITION).to_json()


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the data, with the times of its files."""
    shutil.copytree(original, tmp_path / "data")
    return tmp_path / "data"


def manifest(*arguments: object) -> Result:
    return CliRunner().invoke(new_app(), ["manifest", *map(str, arguments)])


def read(run: RunData) -> Contents:
    return read_contents(run.opened.source, range(len(run.opened.source)))


def made(folder: Path, name: str = "run") -> bytes:
    cursor = Cursor.from_json(json.loads((folder / f"{name}.json").read_text()))
    with open_run(cursor, load(str(folder / "new.yaml"))) as run:
        return make(run, cursor.fingerprint, read(run))


def verified(folder: Path, text: bytes, sample: str | None = None) -> tuple[list[str], bool]:
    pipelines = load(str(folder / "new.yaml"))
    return verify(text, pipelines, read, sample)


def test_the_same_run_has_the_same_bytes_everywhere(
    original: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = manifest(original / "run.json", "--pipelines", original / "new.yaml")
    assert first.exit_code == 0, first.output
    monkeypatch.chdir(folder)
    out = ("--out", "m.json")
    assert manifest("run.json", "--pipelines", "new.yaml", *out).exit_code == 0
    assert Path("m.json").read_text() == first.stdout
    assert str(original) not in first.stdout
    good = manifest("verify", "m.json", "--pipelines", original / "new.yaml")
    assert (good.stdout, good.exit_code) == ("m.json: good\n", 0)


def test_it_states_what_the_run_was_made_from(original: Path) -> None:
    stated = json.loads(made(original))
    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert [one["name"] for one in stated["subject"]] == ["run", "source-0", "source-1"]
    predicate = stated["predicate"]
    assert predicate["run"]["position"] == POSITION
    assert [one["batch_size"] for one in predicate["segments"]] == [4, 2]
    assert [one["defined"] for one in predicate["segments"]] == [True, True]
    assert [(one["kind"], one["samples"]) for one in predicate["sources"]] == [
        ("images", 10),
        ("images", 4),
    ]
    assert [(one["sample"], one["reason"]) for one in predicate["removed"]] == [
        (3, "poisoned"),
        (6, "a face, see ticket 12"),
        (13, ""),
    ]
    # The rest of epoch 3, from position 32 on, has the 8 samples that are left, and 4 new ones.
    assert predicate["delivered"] == [
        {"first": 0, "last": 0, "samples": 10},
        {"first": 1, "last": 2, "samples": 10},
        {"first": 3, "last": 3, "samples": 14},
        {"first": 4, "last": 4, "samples": 7},
    ]
    assert json.loads(made(original, "records"))["predicate"]["skip"] == [[2, 4]]


def test_the_hashes_of_a_scan_are_the_ones_that_are_read(folder: Path) -> None:
    result = CliRunner().invoke(new_app(), ["check", str(folder / "new.yaml"), "--scan"])
    assert result.exit_code == 0, result.output
    kept = sorted(path.name.partition("-")[2] for path in (folder.parent / "cache").rglob("*-*"))
    stated = [json.loads(made(folder, name))["predicate"] for name in ("run", "records")]
    assert kept == sorted(one["content"] for predicate in stated for one in predicate["sources"])


def test_samples_that_differ_are_named_with_their_files(folder: Path) -> None:
    paths = ("--pipelines", folder / "new.yaml")
    manifest(folder / "run.json", *paths, "--out", folder / "m.json")
    tamper(folder / "photos/b/1.JPEG", 100)
    result = manifest("verify", folder / "m.json", *paths)
    assert f"source 0: sample 6 differs: {folder}/photos/b/1.JPEG" in result.stdout
    assert "predicate.removed[1].content: the manifest has" in result.stdout
    assert result.exit_code == 1
    (folder / "photos/b/1.JPEG").unlink()
    result = manifest("verify", folder / "m.json", *paths)
    assert "no sample has the file 'b/1.JPEG'" in result.stdout
    (folder / "removed.txt").write_text("3\n")
    result = manifest("verify", folder / "m.json", *paths)
    assert "source 0: sample 6 of the manifest is gone" in result.stdout
    assert "predicate.run.fingerprint: the manifest has" in result.stdout


def test_a_sample_was_in_the_run_with_a_proof(original: Path) -> None:
    text = made(original)
    with open_run(
        Cursor.from_json(json.loads((original / "run.json").read_text())),
        load(str(original / "new.yaml")),
    ) as run:
        slots = run.order().slots(0, POSITION).index
    for sample in range(14):
        (head, content, *rest), is_good = verified(original, text, str(sample))
        assert head.startswith(f"sample {sample}, {original}")
        assert (is_good, content) == (True, "  content: proven under the manifest's root")
        seen = [line for line in rest if "step" in line and "no step" not in line]
        assert len(seen) == np.count_nonzero(slots == sample)
        assert ("  removed: poisoned" in rest) == (sample == 3)
    lines, is_good = verified(original, text, "a/4.JPEG")
    assert lines[0].startswith("sample 4, ")
    lines, is_good = verified(original, text, "c/9.JPEG")
    assert lines[0].startswith("sample c/9.JPEG: no sample has the file 'c/9.JPEG'")
    assert not is_good


def tamper(path: Path, offset: int, flip: int = 1) -> None:
    """Changes a byte of a file, and gives it the old time."""
    times = path.stat()
    content = bytearray(path.read_bytes())
    content[offset] ^= flip
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def values(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each value in JSON that is no container."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from values(value, (*path, key))
        else:
            yield (*path, key)


def other(value: Any, rng: random.Random) -> Any:
    """Returns a value near another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 2, 1 << 20])
    place = rng.randrange(len(value) + 1)
    return value[:place] + rng.choice("0123456789abcdef ") + value[place + 1 :]


@pytest.mark.parametrize("count", [20, pytest.param(334, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["data", "removed", "manifest"])
def test_every_tampering_is_found(kind: str, count: int, folder: Path) -> None:
    rng = random.Random(count)
    texts = {name: made(folder, name) for name in ("run", "records")}
    for number in range(count):
        name = ("run", "records")[number % 2] if kind != "removed" else "run"
        text, restored, what = texts[name], None, ""
        if kind == "manifest":
            stated = json.loads(text)
            *path, key = rng.choice([*values(stated)])
            tree = stated
            for part in path:
                tree = tree[part]
            old = tree[key]
            while tree[key] == old:
                tree[key] = other(old, rng)
            what = f"{path} {key}: {old} -> {tree[key]}"
            text = (json.dumps(stated, sort_keys=True, indent=2) + "\n").encode()
        else:
            places = {"removed": ["removed.txt"], "data": sorted(folder.glob("*/*/*.JPEG"))}[kind]
            path = folder / (rng.choice(places) if name == "run" else "data.tfrecord")
            offset, flip = rng.randrange(path.stat().st_size), rng.randrange(1, 256)
            what = f"{path} at {offset} ^ {flip}"
            restored = path, offset, flip
            tamper(*restored)
        lines, is_good = verified(folder, text)
        assert lines, what
        assert not is_good
        if restored:
            tamper(*restored)
    assert verified(folder, texts["run"]) == ([], True)
    assert verified(folder, texts["records"]) == ([], True)
