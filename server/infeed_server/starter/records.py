"""Formats of records, members and tokens: functions that look at a data set and draft pipelines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.sources.arrayrecord.reader import read_first as read_first_of_array
from infeed_server.sources.tfds.features import Leaves
from infeed_server.sources.tfds.info import list_shards, read_features, read_info
from infeed_server.sources.tfrecord.preview import parse_example, read_first
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
from infeed_server.starter.listing import Files, pipeline_name, some_files
from infeed_server.storage.files import read_bytes, reading
from infeed_server.storage.handles import BlockHandle

_SAMPLES_READ = 64
"""Of a file: fewer suggest a smaller batch."""
_IMAGES = ("jpg", "jpeg", "png")
_TOKENS = 2048
"""Tokens of a window: the usual context of a small language model."""


def _examples(
    kind: str, read: Callable[[str, int], Sequence[bytes]], data: Files
) -> Iterator[Draft]:
    """Yields the draft for records of tf.train.Examples."""
    found: dict[str, tuple[str, list[list[Any]]]] = {}
    records = 0
    for file in some_files(data.files):
        for record in read(file, _SAMPLES_READ):
            example = parse_example(record)
            if example is None:
                raise SourceError(
                    f"{file}: its records are not tf.train.Examples with features; convert them, "
                    "or serve them as a dataset: module:attr, and ArrayRecords without features",
                    file=file,
                )
            records += 1
            for name, (data_type, values) in example.items():
                known, rows = found.setdefault(name, (data_type, []))
                rows.append(values)
                if known != data_type:
                    raise SourceError(
                        f"{file}: the feature {name!r} is {known} in some records and {data_type} "
                        "in others; write it with one type"
                    )
    if not records:
        raise SourceError(f"{data.files[0]}: no record in this file; write it again")
    features: dict[str, Any] = {}
    draft = Draft(data.name, {kind: data.pattern, "features": features}, records, is_counted=False)
    for name, (data_type, rows) in found.items():
        lengths = {len(row) for row in rows}
        longest = max(*lengths, 1)
        features[name] = data_type if longest == 1 else {"type": data_type, "shape": [longest]}
        text = data_type if longest == 1 else f"{data_type}[{longest}]"
        if len(rows) < records or lengths != {longest}:
            # Records that were not looked at may have more.
            features[name] = {"type": data_type, "max_length": 2 << (longest - 1).bit_length()}
            text += f", {min(lengths)} to {longest} values" if len(rows) == records else ""
            text += ", not in all records" if len(rows) < records else ""
        draft.add(name, text, [value for row in rows for value in row], [*found])
    yield draft


def _tars(data: Files) -> Iterator[Draft]:
    """Yields the draft for tars of WebDataset."""
    samples: list[dict[str, bytes]] = []
    for path in some_files(data.files):
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
    images = [extension for extension in known if extension in _IMAGES]
    names = default_fields([extension for extension in known if extension not in images])
    groups = {"label" if name == "cls" else name: [extension] for name, extension in names.items()}
    groups |= (
        {"image": [*_IMAGES]} if images and "image" not in groups else {e: [e] for e in images}
    )
    fields: dict[str, Any] = {}
    draft = Draft(
        data.name, {"webdataset": data.pattern, "fields": fields}, len(samples), is_counted=False
    )
    for name, extensions in groups.items():
        values: list[Any] = [s[text] for s in samples for text in extensions if text in s]
        if len(values) != len(samples):
            draft.leave_out({name: f"{len(values)} of {len(samples)} samples have it"})
            continue
        kind = kind_of(extensions[0])
        fields[name] = ";".join(extensions)
        if kind == "int64":
            try:
                values = [decode_integer(value) for value in values]
            except ValueError:
                kind, fields[name] = "bytes", {extensions[0]: "bytes"}
        draft.add(name, kind, values if kind != "npy" else (), [*groups])
    yield draft


def _tfds(data: Files) -> Iterator[Draft]:
    """Yields a draft for each split of a folder of TensorFlow Datasets."""
    folder = data.files[0]
    info, leaves = read_info(folder), Leaves.of(read_features(folder))
    leaves.require_lengths({})
    if not leaves.found:
        raise SourceError(f"{folder}: no feature that can be served: {leaves.left_out}")
    for split in info.splits:
        source = {"tfds": data.pattern, "split": split.name}
        name = pipeline_name(f"{info.name}-{split.name}")
        draft = Draft(name, source, sum(split.shard_lengths))
        records = read_first(list_shards(folder, info, split)[0].path, _SAMPLES_READ)
        rows = [parse_example(record) or {} for record in records]
        for name, leaf in leaves.found.items():
            values = [value for row in rows if name in row for value in row[name][1][:1]]
            draft.add(leaf.name, f"{leaf.dtype}{[*leaf.shape]}", values, [*leaves.found])
        draft.leave_out(leaves.left_out)
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


RECORD_DRAFTS: Mapping[str, Callable[[Files], Iterator[Draft]]] = {
    "arrayrecord": partial(_examples, "arrayrecord", read_first_of_array),
    "tfds": _tfds,
    "tfrecord": partial(_examples, "tfrecord", read_first),
    "tokens": _tokens,
    "webdataset": _tars,
}
"""Source → what drafts pipelines for a data set of it. Each raises `SourceError`."""
