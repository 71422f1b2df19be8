"""Formats of files of samples: for each a function that looks at a data set and drafts pipelines.

Parquet and Arrow need PyArrow: without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.arrayrecord.reader import read_first as read_first_of_array
from infeed_server.sources.arrays.npy_files import open_npy, open_npz
from infeed_server.sources.arrow.csv_files import CsvSource
from infeed_server.sources.arrow.huggingface import HuggingFaceSource
from infeed_server.sources.arrow.parquet import ParquetSource
from infeed_server.sources.arrow.saved_dataset import read_splits
from infeed_server.sources.arrow.tables import TableReader
from infeed_server.sources.mds.encodings import decoder
from infeed_server.sources.mds.index import read_index
from infeed_server.sources.mds.source import MdsSource
from infeed_server.sources.python.values import UnfitError, check_data_type
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
from infeed_server.starter.draft import Draft, array_steps
from infeed_server.starter.listing import Files, pipeline_name, relative, role, spread
from infeed_server.storage.files import abbreviate, read_bytes, reading
from infeed_server.storage.handles import BlockHandle

_FILES_READ, _SAMPLES_READ = 4, 64
"""Of a data set: more files find more of the fields, fewer samples suggest a smaller batch."""
_IMAGES = ("jpg", "jpeg", "png")
_ROWS_READ = 16
_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a server keeps no more."""
_TOKENS = 2048
"""Tokens of a window: the usual context of a small language model."""


def _some(files: Sequence[str]) -> list[str]:
    return [files[number] for number in spread(len(files), _FILES_READ)]


def _examples(
    kind: str, read: Callable[[str, int], Sequence[bytes]], data: Files
) -> Iterator[Draft]:
    """Yields the draft for records of tf.train.Examples."""
    found: dict[str, tuple[str, list[list[Any]]]] = {}
    records = 0
    for file in _some(data.files):
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
    for path in _some(data.files):
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


def _arrays(data: Files) -> Iterator[Draft]:
    """Yields the draft for a `.npz`, or for `.npy` files; one for each part whose arrays have its
    name, such as `x_train`."""
    first = data.files[0]
    is_npz = first.lower().endswith(".npz")
    files = {posixpath.basename(file)[:-4]: file for file in data.files}
    stored = open_npz(first) if is_npz else {name: open_npy(file) for name, file in files.items()}
    arrays, left_out = {}, {}
    for name in sorted(stored):
        try:
            if stored[name].array.dtype.kind not in "SU":
                check_data_type(stored[name].array)
            arrays[name] = stored[name].array
        except UnfitError as error:
            left_out[name] = str(error)
    roles = {role(name) for name in arrays} or {""}
    for part in sorted(roles, reverse=True) if "" not in roles else [""]:
        chosen = {name: array for name, array in arrays.items() if part in ("", role(name))}
        counts = {len(array) if array.shape else 0 for array in chosen.values()}
        if len(counts) != 1 or 0 in counts:
            listed = ", ".join(f"{name}: {list(array.shape)}" for name, array in chosen.items())
            raise SourceError(
                f"{first}: the first dimension of each array must count the samples, as many in "
                f"all: {listed or left_out}; choose some by fields: {{NAME: ARRAY}}, or save each "
                "part of the data in a file of its own"
            )
        fields = {_without_role(name) if part else name: name for name in chosen}
        is_one = is_npz or len(files) == 1
        paths = {field: relative(files.get(n, first), data.target) for field, n in fields.items()}
        source: dict[str, Any] = {"arrays": relative(first, data.target) if is_one else paths}
        if is_npz and (part or left_out):
            source["fields"] = fields
        draft = Draft(pipeline_name(f"{data.name}-{part}"), source, counts.pop())
        for field, name in fields.items():
            array, kind = chosen[name], chosen[name].dtype.name
            kind = "bytes" if array.dtype.kind in "SU" else kind
            text = f"{kind}[{', '.join(map(str, array.shape[1:]))}]"
            values: Any = array if array.ndim == 1 and kind != "bytes" else ()
            draft.add(field, text, values, [*fields])
            draft.transforms += array_steps(draft, field, kind, array.shape[1:], fields)
        draft.leave_out(left_out)
        yield draft


def _without_role(name: str) -> str:
    """Returns the name of a field without its part: `x` of `x_train`."""
    return "_".join(part for part in re.split(r"[\W_]+", name) if not role(part)) or name


def _csv(data: Files) -> Iterator[Draft]:
    """Yields the draft for CSVs of numbers and text."""
    source = CsvSource(csv=[*data.files])
    draft = Draft(data.name, {"csv": data.pattern}, len(tables := source.open()))
    _add_columns(draft, tables, source)
    draft.notes.append("columns can be one array: columns: {x: [width, height], label: species}")
    yield draft


def _parquet(data: Files) -> Iterator[Draft]:
    """Yields the draft for Parquet files."""
    source = ParquetSource(parquet=[*data.files])
    draft = Draft(data.name, {"parquet": data.pattern}, len(tables := source.open()))
    if tables.total_bytes > _MAX_SHUFFLED_BYTES:
        block = max(tables.group_rows)
        draft.shuffle |= {"mode": "window", "block": block, "window": block * 4}
    _add_columns(draft, tables, source.model_copy(update={"parquet": _some(data.files)}))
    yield draft


def _huggingface(data: Files) -> Iterator[Draft]:
    """Yields a draft for a saved data set, or for each split of one."""
    (folder,) = data.files
    found, problems = [], []
    for split in read_splits(folder) or [folder]:
        source = HuggingFaceSource(huggingface=split)
        try:
            tables = source.open()
        except SourceError as error:  # a split without rows
            problems.append(error)
            continue
        name = data.name if split == folder else f"{data.name}-{posixpath.basename(split)}"
        text = {"huggingface": relative(split, data.target)}
        found.append(Draft(pipeline_name(name), text, len(tables)))
        _add_columns(found[-1], tables, source)
    if not found:
        raise problems[0]
    found[0].notes += [f"a split is left out: {problem}" for problem in problems]
    yield from found


def _add_columns(draft: Draft, tables: TableReader, source: Any) -> None:
    """Adds the columns that a batch can have; `source` is what is looked at."""
    fields: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    left_out = {**tables.left_out}
    for field in tables.fields:
        alone = source.model_copy(update={"columns": (field.name,), "shapes": None}).open()
        values, nulls = _rows(alone, field.name)
        sizes = {np.shape(value) for value in values}
        if not values or nulls > len(values):
            left_out[field.name] = f"{nulls} of {nulls + len(values)} rows have a null"
        elif field.varies and len(sizes) > 1:
            left_out[field.name] = "its lists differ in length; a map with python: true can pad"
        else:
            fields[field.name] = field, values
            shapes |= {field.name: [*sizes.pop()]} if field.varies else {}
            draft.bad = f"{field.name} has nulls; others take their places" if nulls else draft.bad
    draft.leave_out(left_out)
    if not fields:
        raise SourceError(f"{draft.name}: no column that can be served: {draft.notes}")
    draft.source |= {"columns": [*fields]} | ({"shapes": shapes} if shapes else {})
    for name, (field, values) in fields.items():
        draft.add(name, str(field), values, [*fields])
    for name, classes in tables.classes.items():
        draft.fields[name] += f", classes: {abbreviate(classes)}" if name in fields else ""


def _rows(tables: TableReader, name: str) -> tuple[list[Any], int]:
    """Returns the values of a column in some rows, and how many of them are null."""
    # Together in some places, as each costs the row group that it is in.
    starts = spread(len(tables), _ROWS_READ // 4)
    rows = sorted({first + row for first in starts for row in range(4)} & {*range(len(tables))})
    with suppress(SampleError):
        return [*tables.read_arrays(np.array(rows))[name]], 0
    values: list[Any] = []
    for row in rows:
        with suppress(SampleError):
            values += [*tables.read_arrays(np.array([row]))[name]]
    return values, len(rows) - len(values)


def _mds(data: Files) -> Iterator[Draft]:
    """Yields the draft for a folder of Mosaic Streaming."""
    (folder,) = data.files
    left_out = {}
    columns = read_index(folder)[0].columns
    for name, encoding, size in zip(*columns, strict=True):
        try:
            decoder(name, encoding, size)
        except SourceError:
            left_out[name] = encoding
    names = [name for name in columns[0] if name not in left_out]
    if not names:
        raise SourceError(f"{folder}: no column that can be served: {left_out}")
    reader = MdsSource(mds=folder, fields=tuple(names)).open()
    left_out |= {
        field.name: f"its shape varies: {field}" for field in reader.fields if field.varies
    }
    fields = {field.name: str(field) for field in reader.fields if not field.varies}
    read = reader.read(np.array(spread(len(reader), _ROWS_READ)))
    source = {"mds": data.pattern, **({"fields": [*fields]} if left_out else {})}
    draft = Draft(data.name, source, len(reader))
    for name, kind in fields.items():
        draft.add(name, kind, [*read[name]], [*fields])
    draft.leave_out(left_out)
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
        records = read_first(list_shards(folder, info, split)[0].path, _ROWS_READ)
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


DRAFTS: Mapping[str, Callable[[Files], Iterator[Draft]]] = {
    "arrays": _arrays,
    "csv": _csv,
    "arrayrecord": partial(_examples, "arrayrecord", read_first_of_array),
    "huggingface": _huggingface,
    "mds": _mds,
    "parquet": _parquet,
    "tfds": _tfds,
    "tfrecord": partial(_examples, "tfrecord", read_first),
    "tokens": _tokens,
    "webdataset": _tars,
}
"""Source → what drafts pipelines for a data set of it. Each raises `SourceError`."""
