"""The choice of `cache: auto`, by measuring samples: where in the list, in memory or on disk."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from infeed.shared.errors import ConfigError
from infeed.wire.batch import Payload
from infeed_server.cache.directory import MEASURED, default_root
from infeed_server.pipeline import sample_graph
from infeed_server.pipeline.sample_cache import CachedSource, CachePrefix
from infeed_server.processes import cgroup
from infeed_server.sources.base import READ_THREADS, Indices, Source
from infeed_server.transforms.base import Step
from infeed_server.transforms.decode import fuse_decode_and_crop
from infeed_server.transforms.finish_placement import plan_finish

log = logging.getLogger(__name__)

SAMPLES = 64
"""Samples that are measured, spread over the data set."""

_ROUNDS = 3
"""Measurements of each cost, of which the least counts: other work only adds."""

_WARM_UP = 2

_MIN_GAIN = 1.2
"""Later epochs are this much faster, or nothing is cached."""

_MEMORY_PART = 0.5
"""Part of the memory that a cache there may have: batches and files need the rest."""

_SIMILAR = 0.9
"""A choice with this part of the best rate is as good, if it needs less."""


@dataclass(frozen=True)
class Forecast:
    """What a place and a store give. Rates are samples per second of this server's processors."""

    position: int
    """Transforms before the cache."""
    store: str
    """`memory`, `disk` or `none`."""
    name: str
    """The transform before it."""
    sample_bytes: float
    share: float
    """Part of the samples that fits."""
    first: float
    later: float
    budget: int = 0
    """Bytes of all processes of the server."""

    def __str__(self) -> str:
        kept = f"{self.sample_bytes:>11,.0f} {self.share:>7.0%}" if self.share else f"{'':19}"
        return f"{self.name:24} {self.store:7} {kept} {self.first:>9,.0f} {self.later:>9,.0f}"


_HEADER = f"{'behind':24} {'store':7} {'bytes/each':>11} {'kept':>7} {'first/s':>9} {'later/s':>9}"


def choose(source: Source, steps: Sequence[Step], prefix: CachePrefix) -> Forecast:
    """Measures samples at each possible place, logs the table and the reason, and returns the best.
    `steps` are all transforms of the graph. Raises `ConfigError` where no sample is good, or the
    folder of the cache cannot be written."""
    cache = prefix.cache
    root = Path(cache.path) if cache.path else default_root()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=root, prefix=MEASURED) as folder:
            room = {
                "memory": min(cache.budget, int(_MEMORY_PART * _memory_bytes())),
                "disk": min(cache.budget, shutil.disk_usage(root).free),
            }
            table = _forecasts(source, steps, prefix, folder, room)
    except OSError as error:
        problem = f"cannot measure in {root}: {error.strerror}"
        raise ConfigError(f"{prefix.path}: {problem}; give a path that can be written") from error
    best = pick(table)
    log.info(
        "%s: %d samples measured, for all %d cores:\n%s\n%s",
        *(prefix.path, SAMPLES, cgroup.cpu_count(), "\n".join(map(str, (_HEADER, *table)))),
        _reason(best, table[0]),
    )
    return best


def _memory_bytes() -> int:
    """Returns the memory of all processes of the server."""
    return cgroup.memory_bytes() * cgroup.process_count()


def pick(table: Sequence[Forecast]) -> Forecast:
    """Returns the fastest in later epochs, of similar ones the one that needs least. The first of
    the table is without a cache."""
    fastest = max(table, key=lambda one: one.later)
    if fastest.later < _MIN_GAIN * table[0].later:
        return table[0]
    similar = [one for one in table[1:] if one.later >= _SIMILAR * fastest.later]
    return min(similar, key=lambda one: (one.store == "disk", one.share * one.sample_bytes))


def _reason(best: Forecast, none: Forecast) -> str:
    if best.store == "none":
        return f"no cache: none makes later epochs {_MIN_GAIN:g} times as fast"
    gain = best.later / none.later
    return f"cache in {best.store} behind {best.name}: later epochs {gain:.1f} times as fast"


def _forecasts(
    source: Source,
    steps: Sequence[Step],
    prefix: CachePrefix,
    folder: str,
    room: dict[str, int],
) -> list[Forecast]:
    count = len(source)
    ids = np.unique(np.linspace(0, count - 1, SAMPLES + _WARM_UP).astype(np.int64))
    plain = _Batches(source, steps)
    ids = plain.good(ids)
    if not ids.size:
        raise ConfigError(f"{prefix.path}: none of {SAMPLES} samples is good; see infeed check")
    warm_up, ids = ids[:_WARM_UP], ids[_WARM_UP:] if len(ids) > _WARM_UP else ids
    plain.rate(warm_up)
    none = plain.rate(ids)
    repeating = next((n for n, (_, step) in enumerate(steps) if step.random), len(steps))
    measured = []
    for position, store in product(range(repeating + 1), room):
        options = {"store": store, "path": folder, "budget": 1 << 40, "evict": "never"}
        cache = prefix.cache.model_copy(update=options)
        place = replace(prefix, steps=tuple(steps[:position]), cache=cache)
        cached = CachedSource(source, place, "measured")
        try:
            batches = _Batches(cached, steps[position:])
            batches.rate(warm_up)
            first, hit = batches.rate(ids), 0.0
            for _ in range(_ROUNDS):
                # In turn: a machine that is slow for a second must not decide.
                hit, none = max(hit, batches.rate(ids)), max(none, plain.rate(ids))
            measured.append((position, store, cached.mean_record_bytes, first, hit))
        finally:
            cached.release()
    table = [Forecast(0, "none", "no cache", 0.0, 0.0, none, none)]
    for position, store, size, first, hit in measured:
        budget = room[store] // (cgroup.process_count() if store == "memory" else 1)
        share = min(1.0, budget / max(1.0, count * size))
        later = 1 / (share / hit + (1 - share) / none)
        name = steps[position - 1][1].display_name if position else "reading"
        table.append(Forecast(position, store, name, size, share, first, later, room[store]))
    return table


class _Batches:
    """Makes batches as the engine does, from reading to their messages."""

    def __init__(self, source: Source, steps: Sequence[Step]) -> None:
        host, _ = plan_finish(steps, sample_graph.trace(source, steps))
        function = sample_graph.sample_function(source, fuse_decode_and_crop(host))
        self._source = source
        self._spec = sample_graph.field_specs(sample_graph.trace(source, host)[-1])
        self._run = sample_graph.columns_function(source, function)

    def good(self, ids: Indices) -> Indices:
        """Returns the samples without an error, alone if there is one."""
        try:
            self.rate(ids)
        except Exception:  # noqa: BLE001 - a user's function may raise anything
            return ids[[self._is_good(index) for index in ids.tolist()]]
        return ids

    def rate(self, ids: Indices) -> float:
        """Makes a batch; returns the samples per second of all cores, or of the reading threads
        where they wait for storage."""
        cpu, begin = time.process_time(), time.perf_counter()
        columns = self._source.read(ids)
        read = time.perf_counter() - begin
        arrays = {name: np.asarray(value) for name, value in self._run(columns).items()}
        for chunk in Payload(self._spec, arrays).chunks():
            b"".join(chunk)
        cpu = time.process_time() - cpu
        return len(ids) * min(cgroup.cpu_count() / max(cpu, 1e-9), READ_THREADS / max(read, 1e-9))

    def _is_good(self, index: int) -> bool:
        try:
            self.rate(np.array([index]))
        except Exception:  # noqa: BLE001
            return False
        return True
