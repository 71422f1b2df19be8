"""The run of a pack: shards over worker processes, and the manifest when all are finished."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from infeed.shared.errors import ConfigError
from infeed_server.config.document import flow
from infeed_server.pack.destination import Destination
from infeed_server.pack.fields import extensions
from infeed_server.pack.options import Format, Part
from infeed_server.pack.plan import MANIFEST, Plan, to_json
from infeed_server.pack.reader import SampleReader
from infeed_server.pack.verify import Defect, manifest_digest, verify_shard
from infeed_server.pack.work import pack_shard, read_sidecar
from infeed_server.processes.worker_pool import WorkerEndedError, WorkerPool
from infeed_server.storage.files import is_remote

_SIDECARS_AT_ONCE = 16


class Job(NamedTuple):
    """What each worker process is for."""

    plan: Plan
    destination: str
    verifies: bool


def pack(
    plan: Plan,
    destination: Destination,
    reader: SampleReader,
    workers: int,
    part: Part,
    advance: Callable[[int], object],
) -> dict[str, Any] | None:
    """Packs what is left of a part. Returns the manifest, which it writes, if all parts are
    finished; else None. `advance` gets the samples of each finished shard."""
    todo = []
    for shard, sidecar in zip(
        part.shards(plan.shards),
        _sidecars(plan, destination, part.shards(plan.shards)),
        strict=True,
    ):
        if sidecar is None:
            todo.append(shard)
        else:
            advance(len(plan.range(shard)))
    job = Job(plan, destination.path, verifies=False)
    for sidecar in _run(job, reader, workers, todo):
        advance(len(plan.range(sidecar["first"] // plan.per_shard)))
    found = _sidecars(plan, destination, range(plan.shards))
    finished = [sidecar for sidecar in found if sidecar is not None]
    if len(finished) < plan.shards:
        return None
    manifest = _manifest(plan, finished)
    if not manifest["samples"]:
        raise ConfigError("each sample is bad, so that the pack has none; see --on-error")
    destination.write(MANIFEST, to_json({**manifest, "sha256": manifest_digest(manifest)}))
    destination.remove_unfinished()
    return manifest


def verify(
    plan: Plan,
    destination: Destination,
    reader: SampleReader,
    workers: int,
    entries: Sequence[dict[str, Any]],
    advance: Callable[[int], object],
) -> Iterator[Defect]:
    """Yields what differs between a pack and its source."""
    job = Job(plan, destination.path, verifies=True)
    for entry, defects in zip(entries, _run(job, reader, workers, entries), strict=True):
        advance(len(plan.range(entry["first"] // plan.per_shard)))
        yield from defects


def serve_lines(plan: Plan, destination: Destination) -> list[str]:
    """Returns the YAML that serves the pack."""
    kind = plan.options.format.value
    lines = ["source:", f"  {kind}: {flow(destination.path_of(plan.pattern()))}"]
    if plan.options.format is Format.WEBDATASET:
        stored = extensions(plan.fields).items()
        lines += ["  fields:", *(f"    {flow(name)}: {flow(end)}" for name, end in stored)]
    else:
        lines += ["  features:", *(f"    {field.feature_line()}" for field in plan.fields)]
    transforms = [text for field in plan.fields if (text := field.transform_line())]
    return [*lines, *(["transforms:"] if transforms else []), *(f"  {text}" for text in transforms)]


def open_worker(job: Job) -> Callable[[Any], Any]:
    """Returns the function of a process: a shard's number or entry → what `_run` yields."""
    reader = SampleReader(job.plan.location, job.plan.options)
    function = verify_shard if job.verifies else pack_shard
    return partial(function, job.plan, Destination(job.destination), reader)


def _run(job: Job, reader: SampleReader, workers: int, items: Sequence[Any]) -> Iterator[Any]:
    """Yields the result of each item, in their order."""
    count = min(workers, len(items))
    if count <= 1:
        function = verify_shard if job.verifies else pack_shard
        for item in items:
            yield function(job.plan, Destination(job.destination), reader, item)
        return
    # Pickled, for a worker imports what it reads.
    handler = "infeed_server.pack.worker:handle"
    pool = WorkerPool("pack", count, handler, pickle.dumps(job))
    try:
        futures = [pool.submit(item) for item in items]
        for future in futures:
            yield future.result()
    except WorkerEndedError as error:
        raise ConfigError(
            f"a worker process ended with {error}; if memory is short, give fewer --workers; the "
            "same command continues"
        ) from error
    finally:
        pool.close()


def _sidecars(
    plan: Plan, destination: Destination, shards: Sequence[int]
) -> list[dict[str, Any] | None]:
    with ThreadPoolExecutor(_SIDECARS_AT_ONCE) as pool:
        return list(pool.map(partial(read_sidecar, plan, destination), shards))


def _manifest(plan: Plan, sidecars: Sequence[dict[str, Any]]) -> dict[str, Any]:
    changes: Counter[str] = Counter()
    for sidecar in sidecars:
        changes.update(sidecar["changes"])
    return {
        **plan.document(),
        "pack": plan.digest(),
        "root": plan.root if is_remote(plan.root) else os.path.normpath(plan.root),
        "samples": sum(sidecar["samples"] for sidecar in sidecars),
        "bytes": sum(sidecar["bytes"] for sidecar in sidecars),
        "changes": dict(sorted(changes.items())),
        "shards": [{k: v for k, v in sidecar.items() if k != "pack"} for sidecar in sidecars],
    }
