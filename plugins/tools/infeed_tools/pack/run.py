"""The run of a pack: shards, divided over processes, and the manifest."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from infeed.shared.errors import ConfigError
from infeed_python.worker_pool import WorkerEndedError, WorkerPool
from infeed_server.storage.files import is_remote
from infeed_tools.pack.destination import Destination
from infeed_tools.pack.options import Part
from infeed_tools.pack.plan import Plan, to_json
from infeed_tools.pack.reader import SampleReader
from infeed_tools.pack.work import pack_shard, read_sidecar

MANIFEST = "infeed-pack.json"
"""The file that is written once all shards are finished."""


@dataclass
class Run:
    """A command's work on a pack."""

    plan: Plan
    destination: Destination
    reader: SampleReader
    workers: int
    advance: Callable[[int], object]
    """A function that takes the number of samples in each finished shard."""

    def pack(self, part: Part) -> dict[str, Any] | None:
        """Packs the unfinished shards of a part. If all parts are finished then, writes and returns
        the manifest; otherwise returns None."""
        shards = part.shards(self.plan.shards)
        finished = self._finished(shards)
        left = [shard for shard in shards if shard not in finished]
        for shard in finished:
            self.advance(len(self.plan.range(shard)))
        self._pack(left)
        finished = self._finished(range(self.plan.shards))
        if len(finished) < self.plan.shards:
            return None
        manifest = _write_manifest(self.plan, self.destination, [*finished.values()])
        self.destination.remove_unfinished()
        return manifest

    def _pack(self, shards: Sequence[int]) -> None:
        """Packs shards, in workers if there are several."""
        count = min(self.workers, len(shards))
        with ExitStack() as stack:
            if count > 1:
                # Pickled here, because reading the pickle imports its modules.
                argument = pickle.dumps((self.plan, self.destination))
                pool = WorkerPool("pack", count, "infeed_tools.pack.worker:handle", argument)
                stack.callback(pool.close)
                results = map(Future.result, [pool.submit(shard) for shard in shards])
            else:
                pack_one = partial(pack_shard, self.plan, self.destination, self.reader)
                results = map(pack_one, shards)
            try:
                for shard, _ in zip(shards, results, strict=True):
                    self.advance(len(self.plan.range(shard)))
            except WorkerEndedError as error:
                raise ConfigError(
                    f"a worker process ended with {error}; run the same command again to continue, "
                    "with fewer --workers if memory is short"
                ) from error

    def _finished(self, shards: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Returns the sidecars of the finished shards."""
        with ThreadPoolExecutor(16) as pool:
            read = pool.map(partial(read_sidecar, self.plan, self.destination), shards)
            found = zip(shards, read, strict=True)
            return {shard: sidecar for shard, sidecar in found if sidecar is not None}


def _write_manifest(
    plan: Plan, destination: Destination, sidecars: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Writes and returns the manifest of finished shards."""
    changes = sum((Counter(sidecar["changes"]) for sidecar in sidecars), Counter[str]())
    manifest = {
        **plan.document(),
        "pack": plan.digest,
        "root": plan.root if is_remote(plan.root) else os.path.normpath(plan.root),
        **{name: sum(sidecar[name] for sidecar in sidecars) for name in ("samples", "bytes")},
        "changes": dict(sorted(changes.items())),
        "shards": [{k: v for k, v in sidecar.items() if k != "pack"} for sidecar in sidecars],
    }
    if not manifest["samples"]:
        raise ConfigError("all samples are bad, so the pack would be empty; see --on-error")
    with suppress(FileNotFoundError):  # another command has written the same and removed this
        destination.write(MANIFEST, to_json(manifest))
    return manifest
