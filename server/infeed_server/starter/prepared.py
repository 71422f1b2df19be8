"""Starters for folders that describe themselves: of Mosaic Streaming and of TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.sources.mds.encodings import decoder
from infeed_server.sources.mds.index import read_index
from infeed_server.sources.mds.source import MdsSource
from infeed_server.sources.tfds.features import Leaves
from infeed_server.sources.tfds.info import list_shards, read_features, read_info
from infeed_server.sources.tfrecord.preview import parse_example, read_first
from infeed_server.starter.draft import Draft, line, pipeline_name
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.shards import Shards
from infeed_server.storage.files import abbreviate

_SAMPLES_READ = 16


def mds_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields the draft for a folder of index.json. Raises `SourceError`."""
    (folder,) = shards.files
    fields, left_out = [], []
    columns = zip(*read_index(str(folder))[0].columns, strict=True)
    for name, encoding, size in columns:
        try:
            decoder(name, encoding, size)
            fields.append(name)
        except SourceError:
            left_out.append(f"{name} ({encoding})")
    if not fields:
        raise SourceError(f"{folder}: no column that can be served: {abbreviate(left_out)}")
    reader = MdsSource(mds=str(folder), fields=tuple(fields)).open()
    for field in reader.fields:
        if field.varies:
            left_out.append(f"{field.name} (its shape varies: {[*field.shape]})")
            fields.remove(field.name)
    source = [line("mds", shards.pattern)]
    source += [line("fields", fields)] * bool(left_out)
    draft = Draft(shards.name, [f"{len(reader)} samples"], source, len(reader))
    draft.about += [f"left out: {abbreviate(left_out)}"] * bool(left_out)
    kinds = {field.name: str(field) for field in reader.fields if not field.varies}
    read = reader.read(np.array(spread(len(reader), _SAMPLES_READ)))
    _describe(draft, kinds, {name: [*values] for name, values in read.items()})
    yield draft


def tfds_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields a draft for each split below dataset_info.json. Raises `SourceError`."""
    folder = str(shards.files[0])
    info = read_info(folder)
    leaves = Leaves.of(read_features(folder))
    leaves.require_lengths({})
    left_out = [f"{name} ({reason})" for name, reason in leaves.left_out.items()]
    if not leaves.found:
        raise SourceError(f"{folder}: no feature that can be served: {abbreviate(left_out)}")
    for split in info.splits:
        count = sum(split.shard_lengths)
        files = list_shards(folder, info, split)
        records = read_first(files[0].path, _SAMPLES_READ)
        rows = [parse_example(record) or {} for record in records]
        source = [line("tfds", shards.pattern), line("split", split.name)]
        name = pipeline_name(f"{info.name}-{split.name}")
        draft = Draft(name, [f"{count} samples, {len(files)} files"], source, count)
        draft.about += [f"left out: {abbreviate(left_out)}"] * bool(left_out)
        kinds = {leaf.name: f"{leaf.dtype}{[*leaf.shape]}" for leaf in leaves.found.values()}
        values = {
            name: [row[name][1][0] for row in rows if name in row and row[name][1]]
            for name in leaves.found
        }
        _describe(draft, kinds, values)
        yield draft


def _describe(draft: Draft, kinds: Mapping[str, str], values: Mapping[str, Sequence[Any]]) -> None:
    """Adds a comment for each field, and the transforms of an image."""
    for name, kind in kinds.items():
        look = ImageLook.of_all(values[name]) if values[name] else None
        draft.about.append(f"{name}: {f'images, {look.describe()}' if look else kind}")
        if look:
            look.suggest(draft, name, kinds)
