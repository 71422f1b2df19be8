"""Formats of samples in files: functions that look at a data set and draft pipelines.

Parquet, CSV and Arrow need PyArrow: without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed.shared.spec import BYTES
from infeed_server.sources.arrayrecord.reader import read_first as read_first_of_array
from infeed_server.sources.arrays.npy_files import open_npy, open_npz
from infeed_server.sources.arrays.source import ArrayReader
from infeed_server.sources.arrow.row_groups import RowGroups
from infeed_server.sources.arrow.saved_dataset import read_splits
from infeed_server.sources.columns import ColumnSource
from infeed_server.sources.mds.encodings import decoder
from infeed_server.sources.mds.index import read_index
from infeed_server.sources.python.values import describe
from infeed_server.sources.registry import SOURCE_CLASSES
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
from infeed_server.starter.listing import Files, pipeline_name, relative, role, spread
from infeed_server.storage.files import abbreviate, read_bytes, reading
from infeed_server.storage.handles import BlockHandle

_ROWS_READ = 16
_SAMPLES_READ = 64
"""Of a file of records: fewer suggest a smaller batch."""
_FILES_READ = 4
_IMAGES = ("jpg", "jpeg", "png")
_TOKENS = 2048
"""Tokens of a window: the usual context of a small language model."""
_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a server keeps no more."""


def _arrays(data: Files) -> Iterator[Draft]:
    """Yields the draft for a `.npz`, or for `.npy` files; one for each part whose arrays have its
    name, such as `x_train`."""
    first = data.files[0]
    files = {posixpath.basename(file)[:-4]: file for file in data.files}
    is_npz = first.lower().endswith(".npz")
    stored = open_npz(first) if is_npz else {name: open_npy(file) for name, file in files.items()}
    problems: dict[str, SourceError] = {}
    for name in sorted(stored):
        try:
            ArrayReader({name: stored[name]})
        except SourceError as error:
            problems[name] = error
    served = sorted(stored.keys() - problems.keys())
    if not served:
        raise next(iter(problems.values()))
    roles = {role(name) for name in served}
    for part in sorted(roles, reverse=True) if "" not in roles else [""]:
        fields = {_without_role(n) if part else n: n for n in served if part in ("", role(n))}
        reader = ArrayReader({field: stored[name] for field, name in fields.items()})
        paths = {f: relative(files.get(n, first), data.target) for f, n in fields.items()}
        is_one = is_npz or len(files) == 1
        source: dict[str, Any] = {"arrays": next(iter(paths.values())) if is_one else paths}
        source |= {"fields": fields} if is_npz and (part or problems) else {}
        draft = Draft(pipeline_name(f"{data.name}-{part}"), source, len(reader))
        values = {**reader.read(np.array(spread(len(reader)))), **reader.known_fields()}
        draft.add({n: (_kind(spec), values[n]) for n, spec in reader.columns.items()})
        draft.leave_out({name: str(error) for name, error in problems.items()})
        yield draft


def _without_role(name: str) -> str:
    """Returns the name of a field without its part: `x` of `x_train`."""
    return "_".join(part for part in re.split(r"[\W_]+", name) if not role(part)) or name


def _kind(spec: tf.TensorSpec) -> str:
    return describe(BYTES if spec.dtype == tf.string else spec.dtype.name, tuple(spec.shape))


def _csv(data: Files) -> Iterator[Draft]:
    """Yields the draft for CSVs of numbers and text."""
    for draft in _columns("csv", data):
        names = [name for name, kind in draft.fields.items() if not kind.startswith(BYTES)]
        if len(names) > 1:
            shown = f"columns: {{x: [{', '.join(names[:-1])}], {names[-1]}: {names[-1]}}}"
            draft.notes.append(f"columns of numbers can be one array, for example {shown}")
        yield draft


def _columns(kind: str, data: Files) -> Iterator[Draft]:
    """Yields a draft for a source of columns, or for each split that has rows."""
    splits = read_splits(data.files[0]) if kind == "huggingface" else []
    drafts, problems = [], []
    paths: list[Any] = [relative(split, data.target) for split in splits]
    for path in paths or [data.pattern]:
        name = f"{data.name}-{posixpath.basename(str(path))}" if splits else data.name
        try:
            drafts.append(_table(pipeline_name(name), {kind: path}, data.target))
        except SourceError as error:
            problems.append(error)
    if not drafts:
        raise problems[0]
    drafts[0].notes += [f"a split is left out: {problem}" for problem in problems]
    yield from drafts


def _table(name: str, source: dict[str, Any], target: Path) -> Draft:
    """Returns the draft for a source, with the columns that a batch can have."""
    definition: Any = SOURCE_CLASSES[next(iter(source))].model_validate(source).resolve(target)
    key = "fields" if "mds" in source else "columns"
    reader = definition.open()
    draft = Draft(name, source, len(reader))
    if isinstance(reader, RowGroups) and reader.total_bytes > _MAX_SHUFFLED_BYTES:
        block = max(reader.group_rows)
        draft.shuffle |= {"mode": "window", "block": block, "window": block * 4}
    # Together in some places, as each costs the row group that it is in.
    starts = spread(len(reader), _ROWS_READ // 4)
    rows = sorted({first + row for first in starts for row in range(4)} & {*range(len(reader))})
    values = _values(definition, key, reader, rows)
    left_out = {**getattr(reader, "left_out", {})}
    served: dict[str, tuple[str, Any]] = {}
    shapes: dict[str, list[int]] = {}
    for field in reader.fields:
        found = values[field.name]
        nulls, sizes = len(rows) - len(found), {np.shape(value) for value in found}
        if nulls > len(found):
            left_out[field.name] = f"{nulls} of {len(rows)} rows have a null"
        elif field.varies and (len(sizes) > 1 or key == "fields"):
            left_out[field.name] = f"its shape varies: {field}; a map with python: true can pad"
        else:
            served[field.name] = str(field), found
            shapes |= {field.name: [*sizes.pop()]} if field.varies else {}
            draft.bad = f"{field.name} has nulls" if nulls else draft.bad
    if not served:
        raise SourceError(f"{name}: no column that can be served: {left_out}")
    draft.source |= {key: [*served]} if left_out else {}
    draft.source |= {"shapes": shapes} if shapes else {}
    draft.leave_out(left_out)
    draft.add(served)
    for named in reader.classes.keys() & served.keys():
        draft.fields[named] += f", classes: {abbreviate(reader.classes[named])}"
    return draft


def _values(
    definition: Any, key: str, reader: ColumnSource, rows: Sequence[int]
) -> Mapping[str, list[Any]]:
    """Returns the values of each column in some rows, without nulls."""
    with suppress(SampleError):
        return _read(reader, rows)
    found: dict[str, list[Any]] = defaultdict(list)
    for name in reader.columns:
        alone = definition.model_copy(update={key: (name,)}).open()
        for row in rows:
            with suppress(SampleError):
                found[name] += _read(alone, [row])[name]
    return found


def _read(reader: ColumnSource, rows: Sequence[int]) -> Mapping[str, list[Any]]:
    columns = reader.read(np.array(rows))
    named = [
        {name: tf.constant(column[n]) for name, column in columns.items()}
        for n, _ in enumerate(rows)
    ]
    samples = [reader.parse(sample) for sample in named]
    return {name: [sample[name].numpy() for sample in samples] for name in columns}


def _mds(data: Files) -> Iterator[Draft]:
    """Yields the draft for a folder of Mosaic Streaming."""
    left_out = {}
    columns = read_index(data.files[0])[0].columns
    for name, encoding, size in zip(*columns, strict=True):
        try:
            decoder(name, encoding, size)
        except SourceError:
            left_out[name] = encoding
    names = {"fields": [name for name in columns[0] if name not in left_out]} if left_out else {}
    draft = _table(data.name, {"mds": data.pattern, **names}, data.target)
    draft.leave_out(left_out)
    yield draft


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


DRAFTS: Mapping[str, Callable[[Files], Iterator[Draft]]] = {
    "arrayrecord": partial(_examples, "arrayrecord", read_first_of_array),
    "arrays": _arrays,
    **{kind: partial(_columns, kind) for kind in ("huggingface", "parquet")},
    "csv": _csv,
    "mds": _mds,
    "tfds": _tfds,
    "tfrecord": partial(_examples, "tfrecord", read_first),
    "tokens": _tokens,
    "webdataset": _tars,
}
"""Source → what drafts pipelines for a data set of it. Each raises `SourceError`."""
