"""Packs: the same bytes in every way of working, the source's samples, and refusals."""

from __future__ import annotations

import errno
import gzip
import os
import random
import subprocess
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from tests.harness.datasets import jpeg
from tests.harness.nursery import Nursery
from tests.harness.process import ROOT
from tests.harness.waiting import TIMEOUT_SECONDS, wait_until
from tests.plugins.tools.pack.conftest import ARRAYS, SAMPLES, Packed, files_of, run_pack

import infeed
from infeed.shared.errors import ConfigError, SampleError, SourceError
from infeed_formats.arrays.source import ArrayReader
from infeed_python.worker_pool import WorkerEndedError, WorkerPool
from infeed_server.pipeline.load import parse
from infeed_server.sources.registry import open_source
from infeed_tools.pack.options import Part
from infeed_tools.pack.shards import serve_lines


def test_parts_and_order_of_work_do_not_change_a_byte(arrays: Path, tmp_path: Path) -> None:
    run_pack(arrays, tmp_path / "one")
    for index in (2, 0, 1):
        packed = run_pack(arrays, tmp_path / "parts", Part(index, 3))
        assert (packed.manifest is not None) == (index == 1)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "parts")


@pytest.mark.parametrize("original", ["arrays", "pictures"])
def test_printed_yaml_serves_the_same_values_in_the_same_order(
    request: pytest.FixtureRequest, tmp_path: Path, serve: Any, original: str
) -> None:
    file = request.getfixturevalue(original)
    packed = run_pack(file, tmp_path / "packed")
    printed = yaml.safe_load("\n".join(printed_lines(packed)))
    source = yaml.safe_load(file.read_text())["pipelines"]["all"]["source"]
    batch = {"size": 5, "remainder": "pad"}
    pipelines = {"packed": {**printed, "batch": batch}, "all": {"source": source, "batch": batch}}
    server = serve(yaml.safe_dump({"pipelines": pipelines}))
    served, expected = (served_rows(server, name) for name in ("packed", "all"))
    assert served == expected
    assert {len(rows) for rows in served.values()} == {packed.plan.samples}


def test_a_sample_that_the_reader_raises_for_is_bad(
    arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(reader: ArrayReader, indices: Any) -> Any:
        if 2 in indices:
            raise ValueError("my bug")
        return original(reader, indices)

    original = ArrayReader.read
    monkeypatch.setattr(ArrayReader, "read", read)
    with pytest.raises(SampleError, match=r"^sample 2 of .*: my bug; repair it, or give --on-err"):
        run_pack(arrays, tmp_path / "packed")


def printed_lines(packed: Packed) -> list[str]:
    plan = packed.plan
    path = packed.destination.path_of(plan.name(None))
    return serve_lines(plan.fields, path)


def served_rows(server: Any, name: str) -> dict[str, list[tuple[Any, bytes]]]:
    """Returns the type and the bytes of each value, by field."""
    rows: dict[str, list[tuple[Any, bytes]]] = {}
    with infeed.connect(str(server.address), name, epochs=1) as feed:
        for batch in feed:
            for field in batch:
                array = np.asarray(batch[field])[np.asarray(batch.mask)]
                values = [v if isinstance(v, bytes) else v.tobytes() for v in array]
                rows.setdefault(field, []).extend((array.dtype, value) for value in values)
    return rows


def test_index_is_read_and_not_scanned_also_from_a_store(arrays: Path, tmp_path: Path) -> None:
    for dest in (f"{tmp_path}/local", f"file://{tmp_path}/store"):
        packed = run_pack(arrays, dest)
        lines = [*printed_lines(packed), "batch: 4"]
        definition = parse(yaml.safe_load("\n".join(lines)))
        source: Any = open_source(definition.source, keep_damaged=True)
        assert len(source) == SAMPLES
        assert all(file.cached for file in source.index.files)
    assert files_of(tmp_path / "local") == files_of(tmp_path / "store")


def test_seed_permutes_and_origins_name_each_sample(photos: Path, tmp_path: Path) -> None:
    packed = run_pack(photos, tmp_path / "packed", seed=3, samples_per_shard=5)
    found = []
    for shard in range(packed.plan.shards):
        content = packed.destination.read(packed.plan.name(shard) + ".origins.gz")
        assert content is not None
        rows = [row.split("\t") for row in gzip.decompress(content).decode().splitlines()]
        found += [(int(sample), file) for sample, file, _ in rows]
    files = sorted(f"class {n % 2}/{n}.jpg" for n in range(9))
    assert sorted(found) == list(enumerate(files))
    assert found != sorted(found)
    assert packed.manifest is not None
    assert packed.manifest["options"]["seed"] == 3


def test_finished_shards_are_skipped_and_others_packed_again(arrays: Path, tmp_path: Path) -> None:
    dest = tmp_path / "packed"
    plan = run_pack(arrays, dest).plan
    before = files_of(dest)
    times = {file.name: file.stat().st_mtime_ns for file in dest.glob("*.tfrecord")}
    (dest / f"{plan.name(1)}.json").unlink()
    os.truncate(dest / plan.name(2), 10)
    (dest / ".left.unfinished-1").touch()
    run_pack(arrays, dest)
    assert files_of(dest) == before
    changed = {name for name, time in times.items() if (dest / name).stat().st_mtime_ns != time}
    assert changed == {plan.name(1), plan.name(2)}


def test_another_pack_in_the_folder_is_refused(arrays: Path, photos: Path, tmp_path: Path) -> None:
    dest = tmp_path / "packed"
    run_pack(arrays, dest)
    with pytest.raises(ConfigError, match=r"another pack: .seed.: null there, .seed.: 1 here"):
        run_pack(arrays, dest, seed=1)
    with pytest.raises(ConfigError, match="another pack: of a source with other samples; "):
        run_pack(photos, dest)
    run_pack(photos, tmp_path / "photos")
    with pytest.raises(ConfigError, match=r"another pack: .short_side.: null there, .*: 16 here"):
        run_pack(photos, tmp_path / "photos", short_side=16)


def test_a_folder_that_cannot_be_written_is_an_error(arrays: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        ConfigError, match=r"cannot write .*/file/infeed-pack\.plan\.json: .*; give anoth"
    ):
        run_pack(arrays, tmp_path / "file")


def test_full_disk_leaves_what_the_same_command_continues(
    arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest, left, fsync = tmp_path / "packed", [1, 1], os.fsync

    def full_at_third(descriptor: int) -> None:
        if "unfinished" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            if not left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left.pop()
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_at_third)
    with pytest.raises(ConfigError, match=r"no space left\. .* the same command again"):
        run_pack(arrays, dest)
    assert not list(dest.glob(".*"))
    monkeypatch.undo()
    run_pack(arrays, dest)
    run_pack(arrays, tmp_path / "other")
    assert files_of(dest) == files_of(tmp_path / "other")


def test_a_changed_source_ends_the_pack(arrays: Path, tmp_path: Path) -> None:
    first = run_pack(arrays, tmp_path / "packed", Part(0, 2))
    np.savez(tmp_path / "all.npz", **{**ARRAYS, "bool": ~ARRAYS["bool"]})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="another pack: of a source with"):
        run_pack(arrays, tmp_path / "packed", Part(1, 2))
    from infeed_tools.pack.reader import open_reader
    from infeed_tools.pack.work import pack_shard

    reader = open_reader(first.plan.location, first.plan.options)
    with pytest.raises(SourceError, match="changed while it was packed; restore it"):
        pack_shard(first.plan, first.destination, reader, 1)


def test_bad_images_end_the_pack_or_are_skipped_or_kept(photos: Path, tmp_path: Path) -> None:
    bad = tmp_path / "photos/class 1/3.jpg"
    bad.write_bytes(jpeg(3)[:500])
    with pytest.raises(
        SampleError,
        match=r"sample 6, field 'image', of .*3\.jpg: .*cannot be decoded: .*--on-error skip",
    ):
        run_pack(photos, tmp_path / "raise", short_side=20)
    for choice, samples in (("skip", 8), ("keep", 9)):
        dest = tmp_path / "raise"  # shards finished before the bad one stay
        before = files_of(dest)
        manifest = run_pack(photos, dest, short_side=20, on_error=choice).manifest
        assert manifest is not None
        assert manifest["samples"] == samples
        kind = {"skip": "skipped", "keep": "kept"}[choice]
        (found,) = [one for shard in manifest["shards"] for one in shard[kind]]
        assert (found["sample"], found["file"]) == (6, "class 1/3.jpg")
        assert manifest["changes"] == {"reduced": 8}
        run_pack(photos, tmp_path / choice, short_side=20, on_error=choice)
        assert files_of(dest) == files_of(tmp_path / choice)
        first = manifest["shards"][0]["name"]
        assert files_of(dest)[first] == before[first]


def test_records_that_cannot_be_read_are_skipped_and_never_kept(
    arrays: Path, tmp_path: Path
) -> None:
    shard = tmp_path / "source" / run_pack(arrays, tmp_path / "source").plan.name(0)
    content = shard.read_bytes()
    shard.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    Path(f"{shard}.infeed-index.npz").unlink()
    file = tmp_path / "records.yaml"
    source = f"{{tfrecord: {shard}, features: {{large: bytes}}}}"
    file.write_text(f"pipelines: {{all: {{source: {source}, batch: 4}}}}\n")
    with pytest.raises(SampleError, match=r"give --on-error skip$"):
        run_pack(file, tmp_path / "keep", on_error="keep")
    manifest = run_pack(file, tmp_path / "skip", on_error="skip").manifest
    assert manifest is not None
    assert (manifest["samples"], len(manifest["shards"][0]["skipped"])) == (3, 1)


def test_a_sidecar_counts_if_it_is_whole_and_of_this_pack(arrays: Path, tmp_path: Path) -> None:
    dest = tmp_path / "packed"
    plan = run_pack(arrays, dest).plan
    (dest / f"{plan.name(1)}.json").write_text("{")
    (dest / "infeed-pack.plan.json").unlink()
    run_pack(arrays, dest, seed=1)
    run_pack(arrays, tmp_path / "other", seed=1)
    assert files_of(dest) == files_of(tmp_path / "other")


@pytest.mark.parametrize("file", ["tfrecord", "infeed-pack.json"])
def test_another_command_may_end_first(
    arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    dest, fsync = tmp_path / "packed", os.fsync

    def end_first(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        if f"{file}.unfinished" in name:
            monkeypatch.setattr(os, "fsync", fsync)
            run_pack(arrays, dest)  # removes the unfinished files
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", end_first)
    assert run_pack(arrays, dest).manifest is not None
    run_pack(arrays, tmp_path / "other")
    assert files_of(dest) == files_of(tmp_path / "other")


def test_a_killed_worker_names_its_remedy(
    arrays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(WorkerEndedError("signal 9 (SIGKILL)"))
        return future

    monkeypatch.setattr(WorkerPool, "submit", submit)
    with pytest.raises(ConfigError, match=r"signal 9 \(SIGKILL\); .* fewer --workers if mem"):
        run_pack(arrays, tmp_path / "packed", workers=2)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"restart_markers": True}, "--restart-markers: no image is encoded without --short-side"),
        ({"short_side": 20}, "--short-side: the source has no field of JPEGs or PNGs"),
        ({"field": ["text"]}, "--field 'text': there is no such field of images"),
    ],
)
def test_options_that_do_not_fit_the_source_are_refused(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    np.savez(tmp_path / "all.npz", words=np.array([["a", "b"]]), text=np.array(["a"]))
    file = tmp_path / "all.yaml"
    file.write_text("pipelines: {all: {source: {arrays: all.npz}, batch: 1}}\n")
    with pytest.raises(ConfigError, match=problem):
        run_pack(file, tmp_path / "packed", **options)


def test_masks_are_not_left_behind_by_smaller_photos(tmp_path: Path) -> None:
    for folder, mode, ending in (("photos", "RGB", "jpg"), ("masks", "L", "png")):
        (tmp_path / folder).mkdir()
        Image.new(mode, (64, 48)).save(tmp_path / folder / f"a.{ending}")
    file = tmp_path / "all.yaml"
    source = "{images: photos, labels: {masks: masks}}"
    file.write_text(f"pipelines: {{all: {{source: {source}, batch: 1}}}}\n")
    with pytest.raises(ConfigError, match="--short-side: 'mask' fits 'image' at its present size"):
        run_pack(file, tmp_path / "packed", short_side=20)
    assert run_pack(file, tmp_path / "packed").plan.samples == 1


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_packs_continue_with_the_same_bytes(
    nursery: Nursery, arrays: Path, tmp_path: Path, kills: int
) -> None:
    """Packs with two workers are killed at random numbers of files; one may finish."""
    dest = tmp_path / "killed"
    dest.mkdir()
    rng = random.Random(0)
    words = ("--samples-per-shard=1", "--workers=2")
    arguments = [nursery.python, "-m", "infeed", "pack", arrays, dest, *words]
    for _ in range(kills):
        child = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE)
        # Each shard has four files, and a fifth while it is written.
        until = len(list(dest.iterdir())) + rng.randrange(1, 1 + 5 * SAMPLES // kills)
        wait_until(
            lambda c=child, n=until: c.poll() is not None or len(list(dest.iterdir())) >= n,
            "files of shards",
            interval=0.001,
        )
        child.kill()
        child.communicate()
    result = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert result.returncode == 0, result.stderr
    run_pack(arrays, tmp_path / "whole", samples_per_shard=1)
    assert files_of(dest) == files_of(tmp_path / "whole")
