"""The plan of a pack: the samples of each shard, decided before any work."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from infeed.shared.errors import ConfigError
from infeed.shared.spec import TargetSpec
from infeed_server.order.permutation import permutation
from infeed_tools.pack.destination import Destination
from infeed_tools.pack.fields import Field, Values, fields_of
from infeed_tools.pack.images import VERSIONS, BadImageError, Looked, shrink
from infeed_tools.pack.options import Location, PackOptions
from infeed_tools.pack.reader import SampleReader

PLAN = "infeed-pack.plan.json"
"""The file by which commands check that they write the same pack."""

_LOOKED_AT = 64
"""Samples, spread over the source, from which sizes are estimated."""


@dataclass(frozen=True)
class Plan:
    """A pack. Equal plans have equal shards, byte by byte."""

    location: Location
    options: PackOptions
    identity: str
    """The identity of the source."""
    samples: int
    """Samples of the source."""
    fields: tuple[Field, ...]
    per_shard: int
    root: str
    """The folder of the source's files on this host, which recorded names leave out."""

    @property
    def shards(self) -> int:
        return -(-self.samples // self.per_shard)

    def name(self, shard: int | None) -> str:
        """Returns the name of a shard's file; for None, the glob of all."""
        number = "*" if shard is None else f"{shard:05}"
        return f"{self._name}-{number}-of-{self.shards:05}.tfrecord"

    def range(self, shard: int) -> range:
        """Returns the positions of a shard's samples in the pack."""
        begin = shard * self.per_shard
        return range(begin, min(begin + self.per_shard, self.samples))

    def order(self, shard: int) -> list[int]:
        """Returns the ids of a shard's samples in the source."""
        positions = self.range(shard)
        if self.options.seed is None:
            return list(positions)
        order = permutation(self.samples, self.options.seed).forward(np.array(positions))
        return [int(index) for index in order]

    def below(self, path: str) -> str:
        """Returns a source file's path without the root: hosts may mount the data elsewhere."""
        return path.removeprefix(f"{self.root}/") if self.root else path

    def document(self) -> dict[str, Any]:
        """Returns all that decides the bytes, for JSON."""
        options = self.options.model_dump(mode="json", exclude={"shard_size", "on_error"})
        return {
            "version": 1,
            "source": {"identity": self.identity, "samples": self.samples},
            "options": {**options, "samples_per_shard": self.per_shard, "name": self._name},
            "encoder": VERSIONS if self.options.short_side else None,
            "fields": [{**field._asdict(), "stored": field.stored} for field in self.fields],
        }

    @cached_property
    def digest(self) -> str:
        return digest(self.document())

    def claim(self, destination: Destination) -> None:
        """Writes the plan. Raises `ConfigError` if the destination holds another pack."""
        mine = to_json(self.document())
        content = destination.read(PLAN)
        if content is None:
            destination.write(PLAN, mine)
        elif content != mine:
            raise ConfigError(
                f"{destination.path} has another pack: {_difference(content, mine)}; give an "
                "empty DEST, or the source and options of that pack",
                file=destination.path_of(PLAN),
            )

    @property
    def _name(self) -> str:
        return self.options.name or self.location.pipeline


def make_plan(
    reader: SampleReader, location: Location, options: PackOptions
) -> tuple[Plan, Looked]:
    """Returns the plan for a source, and the reduced images from which it was estimated. Raises
    `ConfigError`, also for options that do not fit the source."""
    total = len(reader.source)
    indices = sorted({n * (total - 1) // (_LOOKED_AT - 1) for n in range(_LOOKED_AT)})
    # Bad samples are left out here; whether one ends the pack is decided in its turn.
    looked = [values for _, values in reader.samples(indices) if not isinstance(values, str)]
    fields = fields_of(reader.specs, looked)
    _check(fields, options, reader.source.shown)
    mean_bytes, images = _look(looked, fields, options)
    by_size = max(1, int(options.shard_bytes() / mean_bytes))
    files = [reader.source.provenance(index).file.split("/")[:-1] for index in indices]
    root = "/".join(os.path.commonprefix(files))  # noqa: RUF071 - lists: whole parts
    decided = (location, options, reader.source.identity, total, tuple(fields))
    return Plan(*decided, options.samples_per_shard or by_size, root), images


def to_json(document: Any) -> bytes:
    """Returns readable JSON, the same for the same document."""
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="surrogatepass")  # for names that are not UTF-8


def digest(document: Any) -> str:
    """Returns a hash of a document."""
    return hashlib.sha256(to_json(document)).hexdigest()


def _look(
    samples: Sequence[Values], fields: Sequence[Field], options: PackOptions
) -> tuple[float, Looked]:
    """Returns the mean size of packed samples, and their images, before and after reduction."""
    images: Looked = []
    total = 0
    for field, value in ((field, values[field.name]) for values in samples for field in fields):
        total += len(value) if isinstance(value, bytes) else value.nbytes
        if isinstance(value, bytes) and field.image and options.reduces(field.name):
            with suppress(BadImageError):
                images.append((value, shrink(value, options)))
                total += len(images[-1][1].content) - len(value)
    return max(1.0, total / max(1, len(samples))), images


def _check(fields: Sequence[Field], options: PackOptions, shown: Mapping[str, TargetSpec]) -> None:
    if options.restart_markers and not options.short_side:
        raise ConfigError(
            "--restart-markers: no image is encoded without --short-side; give that, or omit "
            "--restart-markers"
        )
    images = [field.name for field in fields if field.image]
    if options.short_side and not images:
        raise ConfigError("--short-side: the source has no field of JPEGs or PNGs; omit it")
    for name, target in shown.items():
        if any(map(options.reduces, {name, target.picture}.intersection(images))):
            raise ConfigError(
                f"--short-side: {name!r} fits {target.picture!r} at its present size, and pack "
                "reduces no masks, boxes or key points; omit --short-side"
            )
    for name in set(options.field or ()).difference(images):
        raise ConfigError(
            f"--field {name!r}: there is no such field of images; available: {', '.join(images)}"
        )


def _difference(content: bytes, mine: bytes) -> str:
    """Returns the first line that differs, preferably not the number of samples in a shard, which
    follows from other options; differing hashes would tell nothing."""
    lines = zip_longest(*(text.decode(errors="replace").split("\n") for text in (content, mine)))
    differing = [pair for pair in lines if pair[0] != pair[1]]
    there, here = min(differing, key=lambda pair: '"samples_per_shard"' in (pair[0] or ""))
    if '"identity"' in (there or ""):
        return "of a source with other samples"
    return f"{(there or '').strip(' ,')} there, {(here or '').strip(' ,')} here"
