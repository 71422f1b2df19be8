"""The choice of `cache: auto`, by measuring samples: where in the list, in memory or on disk.

Each place and store is tried with an engine of its own, over a few samples of the data set. So what
a batch costs besides its transforms counts too; what it costs to send it is added.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from itertools import count, product
from pathlib import Path

import numpy as np
import tensorflow as tf

from infeed.shared.errors import ConfigError, InfeedError
from infeed_server.cache.directory import (
    MEASURED,
    default_root,
    delete_left_measurements,
    list_directories,
)
from infeed_server.engines.base import Request
from infeed_server.engines.dry_run import dry_run
from infeed_server.engines.indexed.engine import IndexedEngine
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.memory_budget import MemoryBudget
from infeed_server.engines.monitor import Monitor
from infeed_server.pipeline.definition import Pipeline
from infeed_server.pipeline.indexed_plan import plan_steps
from infeed_server.pipeline.sample_cache import CacheChoice, CachedSource, CachePrefix
from infeed_server.processes import cgroup
from infeed_server.sources.base import READ_THREADS, Columns, Indices, Sample, Source, WrappedSource
from infeed_server.sources.python.mapped import MappedSource
from infeed_server.transforms.base import Step

log = logging.getLogger(__name__)

SAMPLES = 64
"""Samples that are measured, spread over the data set, after a batch of others."""

_ROUNDS = 3
"""Measurements of each cost, of which the least counts: other work only adds."""

_HIT_PASSES = 8
"""Passes over the samples in a measurement of hits, which are quick."""

_BUDGET_BYTES = 1 << 30
"""Of the batches of a trial."""

_SEND_SECONDS_PER_BATCH, _SEND_SECONDS_PER_BYTE = 1.2e-3, 1e-9
"""Processor time: measured on a core of an EPYC, without TLS. It is a fifth of a cached sample."""

_MIN_GAIN = 1.2
"""Later epochs are this much faster, or nothing is cached."""

_PART = 0.5
"""Part of the memory, or of the free disk, that a cache may have: others need the rest."""

_MIN_FREE_BYTES = 1 << 20
"""Of a disk that is measured."""

_SIMILAR = 0.9
"""A choice with this part of the best rate is as good, if it needs less."""


@dataclass(frozen=True)
class Forecast(CacheChoice):
    """What a place and a store give. Rates are samples per second of this server's processors."""

    name: str
    """The transform before it."""
    sample_bytes: float
    share: float
    """Part of the samples that fits."""
    first: float
    later: float

    def __str__(self) -> str:
        kept = f"{self.sample_bytes:>11,.0f} {self.share:>7.0%}" if self.share else f"{'':19}"
        return f"{self.name:24} {self.store:7} {kept} {self.first:>9,.0f} {self.later:>9,.0f}"


_HEADER = f"{'behind':24} {'store':7} {'bytes/each':>11} {'kept':>7} {'first/s':>9} {'later/s':>9}"


def choose(
    name: str, definition: Pipeline, source: Source, steps: Sequence[Step], prefix: CachePrefix
) -> Forecast:
    """Measures samples at each possible place, logs the table and the reason, and returns the best.
    `name` is the pipeline's, for the log; `steps` are all transforms of the graph. Raises
    `ConfigError` where no sample is good, or the folder of the cache cannot be written."""
    if isinstance(source, MappedSource) and source.random:
        log.info("pipeline %s: %s: no cache: a function in Python is random", name, prefix.path)
        return Forecast(0, "none", 0, "no cache", 0.0, 0.0, 0.0, 0.0)
    cache = prefix.cache
    root = Path(cache.path) if cache.path else default_root()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        delete_left_measurements(root)
        room, folder = {"memory": min(cache.budget, int(_PART * _memory_bytes()))}, ""
        with ExitStack() as stack:
            if (free := shutil.disk_usage(root).free) < _MIN_FREE_BYTES:
                log.warning("pipeline %s: %s: %s is full, and left out", name, prefix.path, root)
            else:
                made = tempfile.TemporaryDirectory(dir=root, prefix=MEASURED)
                folder = stack.enter_context(made)
                free += sum(one.bytes for one in list_directories(root))  # as at the first start
                room["disk"] = min(cache.budget, int(_PART * free))
            table = _forecasts(definition, source, steps, prefix, folder, room)
    except OSError as error:
        problem = f"cannot measure in {root}: {error.strerror}"
        raise ConfigError(f"{prefix.path}: {problem}; give a path that can be written") from error
    except InfeedError as error:
        if isinstance(error, ConfigError):
            raise
        problem = f"cannot measure {SAMPLES} samples: {error.message}; see infeed check"
        raise ConfigError(f"{prefix.path}: {problem}") from error
    best = pick(table)
    log.info(
        "pipeline %s: %s: %d samples measured, for all %d cores:\n%s\n%s",
        *(name, prefix.path, SAMPLES, cgroup.cpu_count(), "\n".join(map(str, (_HEADER, *table)))),
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
    definition: Pipeline,
    source: Source,
    steps: Sequence[Step],
    prefix: CachePrefix,
    folder: str,
    room: dict[str, int],
) -> list[Forecast]:
    samples = _Selection(source, definition)
    with ExitStack() as stack:
        plain = stack.enter_context(closing(_Trial(definition, samples, steps)))
        none = plain.rate()
        repeating = next((n for n, (_, step) in enumerate(steps) if step.random), len(steps))
        measured = []
        for position, store in product(range(repeating + 1), room):
            options = {"store": store, "path": folder, "budget": 1 << 40, "evict": "never"}
            cache = prefix.cache.model_copy(update=options)
            place = replace(prefix, steps=tuple(steps[:position]), cache=cache)
            cached = CachedSource(samples, place, "measured")
            with closing(_Trial(definition, cached, steps[position:])) as trial:
                first, hit = trial.rate(), 0.0
                for _ in range(_ROUNDS):
                    # In turn: a machine that is slow for a second must not decide.
                    hit, none = max(hit, trial.rate(_HIT_PASSES)), max(none, plain.rate())
                measured.append((position, store, cached.mean_record_bytes, first, hit))
    table = [Forecast(0, "none", 0, "no cache", 0.0, 0.0, none, none)]
    for position, store, size, first, hit in measured:
        budget = room[store] // (cgroup.process_count() if store == "memory" else 1)
        share = min(1.0, budget / max(1.0, len(source) * size))
        missed = none if steps[position:] else first  # other samples stay in the graph, if any
        later = 1 / (share / hit + (1 - share) / missed)
        name = steps[position - 1][1].display_name if position else "reading"
        table.append(Forecast(position, store, room[store], name, size, share, first, later))
    return table


class _Selection(WrappedSource):
    """A batch of samples to warm up with, and then those that are measured."""

    def __init__(self, source: Source, definition: Pipeline) -> None:
        super().__init__(source)
        self.columns, self.parsed = source.columns, source.parsed
        assert definition.batch is not None
        count = min(len(source), SAMPLES + min(SAMPLES, definition.batch.size))
        self.slots = max(1, min(count // 2, definition.batch.size))
        self._ids = np.linspace(0, len(source) - 1, count).astype(np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, indices: Indices) -> Columns:
        return self.source.read(self._ids[indices])

    def parse(self, columns: Sample) -> Sample:
        return self.source.parse(columns)

    def close(self) -> None:
        """Leaves the source open."""


class _Trial:
    """An engine of some steps over the samples. Bad ones are replaced, and not logged."""

    def __init__(self, definition: Pipeline, source: Source, steps: Sequence[Step]) -> None:
        samples = source.source if isinstance(source, CachedSource) else source
        assert isinstance(samples, _Selection)
        self._slots = samples.slots
        shuffle = definition.shuffle.model_copy(update={"mode": "none", "order": "permuted"})
        batch = definition.batch and definition.batch.model_copy(update={"size": self._slots})
        changes = {"shuffle": shuffle, "batch": batch, "on_error": "substitute", "skip": ()}
        self._plan = plan_steps("measured", definition.model_copy(update=changes), source, steps)
        quarantine = Quarantine(os.devnull, "measured", "substitute")
        budget = MemoryBudget(_BUDGET_BYTES)
        self._engine = IndexedEngine(self._plan, quarantine, Monitor(), budget)
        self._seeds = count()
        self._run([0])

    def close(self) -> None:
        self._engine.close()

    def rate(self, passes: int = 1) -> float:
        """Makes the batches some times; returns the samples per second of all cores, or of the
        reading threads where they wait for storage."""
        end = len(self._plan.source) - self._slots + 1
        starts = [*range(self._slots, end, self._slots)] or [0]  # of one sample
        cpu = time.process_time()
        self._run(starts * passes)
        cpu = (time.process_time() - cpu) / (len(starts) * passes * self._slots)
        cpu += _SEND_SECONDS_PER_BATCH / self._slots
        wire_spec = self._plan.spec.wire_spec
        cpu += _SEND_SECONDS_PER_BYTE * sum(field.sample_bytes or 0 for field in wire_spec)
        by_reading = READ_THREADS / max(self._read_seconds(), 1e-9)
        return min(cgroup.cpu_count() / max(cpu, 1e-9), by_reading)

    def _read_seconds(self) -> float:
        """Returns the time that one thread needs to read a sample; 0 if one of them is bad."""
        begin = time.perf_counter()
        with suppress(InfeedError, tf.errors.OpError):
            self._plan.source.read(np.arange(self._slots, dtype=np.int64))
            return (time.perf_counter() - begin) / self._slots
        return 0.0

    def _run(self, starts: Sequence[int]) -> None:
        # Each with a seed of its own: no batch is shared.
        requests = (Request(next(self._seeds), start, self._slots, self._slots) for start in starts)
        for _ in dry_run(self._engine, self._slots, requests):
            pass
