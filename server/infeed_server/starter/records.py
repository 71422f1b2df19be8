"""Formats of records, members and tokens: functions that look at a data set and draft pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed.shared.spec import BYTES
from infeed_server.sources.arrayrecord.reader import read_first as read_first_of_array
from infeed_server.sources.tfds.features import Leaves
from infeed_server.sources.tfds.info import list_shards, read_features, read_info
from infeed_server.sources.tfrecord.preview import Example, parse_example, read_first
from infeed_server.sources.tokens.idx import read_idx
from infeed_server.sources.webdataset.fields import (
    decode_integer,
    default_fields,
    kind_of,
    require_few_extensions,
)
from infeed_server.sources.webdataset.index import read_samples
from infeed_server.sources.webdataset.members import MemberScan, TruncatedTar
from infeed_server.starter.draft import Draft
from infeed_server.starter.listing import Files, pipeline_name, spread
from infeed_server.storage.files import read_bytes, reading
from infeed_server.storage.handles import BlockHandle

_SAMPLES_READ = 64
"""Of a file: fewer suggest a smaller batch."""
_FILES_READ = 4
_IMAGES = ("jpg", "jpeg", "png")
_TOKENS = 2048
"""Tokens of a window: the usual context of a small language model."""


def _examples(kind: str, read: Callable[[str, int], list[bytes]], data: Files) -> Iterator[Draft]:
    """Yields the draft for records of tf.train.Examples."""
    rows: list[Example] = []
    for file in _some_files(data):
        for record in read(file, _SAMPLES_READ):
            if (example := parse_example(record)) is None:
                raise SourceError(
                    f"{file}: its records are not tf.train.Examples with features; convert them, "
                    "or serve them as a dataset: module:attr, and ArrayRecords without features",
                    file=file,
                )
            rows.append(example)
    if not rows:
        raise SourceError(f"{data.files[0]}: no record in this file; write it again")
    features: dict[str, Any] = {}
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        found = [row[name] for row in rows if name in row]
        kinds = sorted({data_type for data_type, _ in found})
        if len(kinds) > 1:
            raise SourceError(
                f"{data.files[0]}: the feature {name!r} is {kinds[0]} in some records and "
                f"{kinds[1]} in others; write it with one type"
            )
        lengths = {len(values) for _, values in found} | ({0} if len(found) < len(rows) else set())
        longest = max(*lengths, 1)
        text, features[name] = kinds[0], kinds[0]
        if lengths != {1}:
            text = f"{kinds[0]}[{longest}]"
            features[name] = {"type": kinds[0], "shape": [longest]}
        if len(lengths) > 1:
            # Records that were not looked at may have more.
            features[name] = {"type": kinds[0], "max_length": 2 << (longest - 1).bit_length()}
            text += f", {min(lengths)} to {longest} values"
        columns[name] = text, [value for _, values in found for value in values]
    source = {kind: data.pattern, "features": features}
    draft = Draft(data.name, source, len(rows), is_counted=False)
    draft.add(columns)
    yield draft


def _tfds(data: Files) -> Iterator[Draft]:
    """Yields a draft for each split of a folder of TensorFlow Datasets."""
    (folder,) = data.files
    info, leaves = read_info(folder), Leaves.of(read_features(folder))
    leaves.require_lengths({})
    if not leaves.found:
        raise SourceError(f"{folder}: no feature that can be served: {leaves.left_out}")
    for split in info.splits:
        source = {"tfds": data.pattern, "split": split.name}
        draft = Draft(pipeline_name(f"{info.name}-{split.name}"), source, sum(split.shard_lengths))
        records = read_first(list_shards(folder, info, split)[0].path, _SAMPLES_READ)
        rows = [parse_example(record) or {} for record in records]
        values = {n: [v for row in rows if n in row for v in row[n][1][:1]] for n in leaves.found}
        kinds = {name: f"{leaf.dtype}{[*leaf.shape]}" for name, leaf in leaves.found.items()}
        draft.add({name: (kinds[name], values[name]) for name in kinds})
        draft.leave_out(leaves.left_out)
        yield draft


def _tars(data: Files) -> Iterator[Draft]:
    """Yields the draft for tars of WebDataset."""
    samples: list[dict[str, bytes]] = []
    for path in _some_files(data):
        # That a tar is truncated, `infeed check --scan` says.
        with reading(path), BlockHandle(path) as handle, suppress(TruncatedTar):
            members = read_samples(MemberScan(handle, path, handle.stamp().size), path)
            for _, sample in islice(members, _SAMPLES_READ):
                samples.append({name: handle.read(m.offset, m.size) for name, m in sample.items()})
    if not samples:
        file = data.files[0]
        raise SourceError(f"{file}: no sample in this file; write it again", file=file)
    known = dict.fromkeys(extension for sample in samples for extension in sample)
    require_few_extensions(known, len(samples))
    names = default_fields([extension for extension in known if extension not in _IMAGES])
    groups = {"label" if name == "cls" else name: [text] for name, text in names.items()}
    groups = {"image": [*_IMAGES], **groups} if len(names) < len(known) else groups
    fields: dict[str, Any] = {}
    columns: dict[str, tuple[str, Any]] = {}
    left_out, notes = {}, []
    for name, extensions in groups.items():
        values: list[Any] = [s[text] for s in samples for text in extensions if text in s]
        kind, fields[name] = kind_of(extensions[0]), ";".join(extensions)
        if kind == "int64":
            try:
                values = [decode_integer(value) for value in values]
            except ValueError:
                kind, fields[name] = BYTES, {extensions[0]: BYTES}
                notes.append(f"{name} has words; a map, or other values of .cls, make numbers")
        columns[name] = kind, values if kind != "npy" else ()
        if len(values) != len(samples):
            left_out[name] = f"{len(values)} of {len(samples)} samples have it"
            del fields[name], columns[name]
    source = {"webdataset": data.pattern, "fields": fields}
    draft = Draft(data.name, source, len(samples), is_counted=False, notes=notes)
    draft.add(columns)
    draft.leave_out(left_out)
    yield draft


def _tokens(data: Files) -> Iterator[Draft]:
    """Yields the draft for `.idx` files of Megatron-LM."""
    indexes = [read_idx(read_bytes(file), file) for file in data.files]
    counts = [int(index.lengths.sum(dtype=np.int64)) for index in indexes]
    if not sum(counts):
        raise SourceError(f"{data.files[0]}: no token in this file; write it again")
    length = min(_TOKENS, max(counts))
    draft = Draft(data.name, {"tokens": data.pattern, "length": length}, sum(counts) // length)
    draft.fields["tokens"] = f"{indexes[0].dtype}[{length}], windows of {sum(counts)} tokens"
    yield draft


def _some_files(data: Files) -> list[str]:
    """Returns the files that are looked at: more find more of the fields."""
    return [data.files[number] for number in spread(len(data.files), _FILES_READ)]


RECORD_DRAFTS: Mapping[str, Callable[[Files], Iterator[Draft]]] = {
    "arrayrecord": partial(_examples, "arrayrecord", read_first_of_array),
    "tfds": _tfds,
    "tfrecord": partial(_examples, "tfrecord", read_first),
    "tokens": _tokens,
    "webdataset": _tars,
}
"""Source → what drafts pipelines for a data set of it. Each raises `SourceError`."""
