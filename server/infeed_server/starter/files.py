"""Starters for groups of TFRecords and Parquet files, and for NumPy arrays."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.sources.arrays.npy_files import open_npy, open_npz
from infeed_server.sources.files import INDEX_SUFFIX
from infeed_server.sources.tfrecord.framing import HEADER_BYTES, masked_crc
from infeed_server.sources.tfrecord.preview import parse_example, read_first
from infeed_server.starter.draft import Draft, line, pipeline_name, relative, step
from infeed_server.starter.image_look import NORMALIZE, ImageLook, spread

_FILES_READ = 4
"""Files of a group whose first records are read: more find more of the features."""
_RECORDS_READ = 64
"""Records read of a file: fewer than a batch would suggest a smaller one."""

_SHARD = re.compile(
    r"^(?P<prefix>.*?)[-_.]?(?P<number>\d+)(?P<rest>(-?of-?\d+)?(?P<suffix>\.[^.]*[a-zA-Z][^.]*)?)$"
)
"""A name with the number of a shard: `train-00000-of-00010.tfrecord`, `data_3.tfrecord`."""

_PARQUET = '''\
"""Rows of Parquet files for the pipelines beside this file, written by infeed init."""

from pathlib import Path

from infeed_server.datasets.parquet import ParquetRows

FOLDER = Path(__file__).parent


def rows():
    # columns=["image.bytes", "label"] leaves out others: each must be numbers, text or bytes.
    return ParquetRows([{paths}])
'''

Feature = tuple[str, list[list[Any]]]
"""The type of a feature, and its values in each record that has it."""


def is_record_file(path: Path) -> bool:
    """Returns whether a file begins as a TFRecord file does."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    crc = int.from_bytes(header[8:], "little")
    return len(header) == HEADER_BYTES and masked_crc(header[:8]) == crc


def record_drafts(files: Sequence[Path], target: Path) -> Iterator[Draft]:
    """Yields a draft for each group of shards. Raises `SourceError`."""
    for name, group in shard_groups(files):
        features, records = _look_at(group)
        about = [f"{len(group)} file{'s' * (len(group) > 1)}; features of {records} records"]
        source = [line("tfrecord", shard_pattern(group, target)), "features:"]
        draft = Draft(name, about, source, records)
        for feature, (kind, rows) in features.items():
            single = len(rows) == records and all(len(row) == 1 for row in rows)
            look = ImageLook.of_all([row[0] for row in rows]) if single else None
            text = f"an image: {look.describe()}" if look else ""
            draft.source.append(f"  {_line(feature, kind, rows, records, text)}")
            if look:
                look.suggest(draft, feature, features)
        yield draft


def _look_at(files: Sequence[Path]) -> tuple[Mapping[str, Feature], int]:
    """Returns the features of some records, and the number of these records."""
    features: dict[str, Feature] = {}
    records = 0
    for index in spread(len(files), _FILES_READ):
        for record in read_first(str(files[index]), _RECORDS_READ):
            example = parse_example(record)
            if example is None:
                raise SourceError(
                    f"{files[index]}: its records are not tf.train.Examples with features; convert "
                    "them, or serve them as a dataset: module:attr",
                    file=files[index],
                )
            records += 1
            for name, (kind, values) in example.items():
                features.setdefault(name, (kind, []))[1].append(values)
    return features, records


def _line(name: str, kind: str, rows: Sequence[Sequence[Any]], records: int, about: str) -> str:
    """Returns the line of a feature below `features:`."""
    lengths = {len(values) for values in rows}
    longest = max(*lengths, 1)
    if len(rows) == records and lengths == {longest}:
        return line(name, kind if longest == 1 else {"type": kind, "shape": [longest]}, about)
    # Records that were not looked at may have more.
    options = {"type": kind, "max_length": 2 << (longest - 1).bit_length()}
    return line(name, options, f"{len(rows)} of {records} have it, with up to {longest} values")


def shard_groups(files: Sequence[Path]) -> Iterator[tuple[str, list[Path]]]:
    """Yields the groups of files that are shards of one data set, with their pipelines' names."""
    groups: dict[tuple[str, str, str], list[Path]] = {}
    for file in sorted(files):
        match = _SHARD.match(file.name)
        parts = (match["prefix"], match["suffix"] or "") if match else (file.stem, file.suffix)
        groups.setdefault((str(file.parent), *parts), []).append(file)
    for (_, prefix, _), group in groups.items():
        has_name = re.search(r"[a-zA-Z]", prefix) is not None
        yield pipeline_name(prefix if has_name else group[0].absolute().parent.name), group


def shard_pattern(files: Sequence[Path], target: Path) -> str | list[str]:
    """Returns a glob, relative to `target`, that matches these files and no others; or a list."""
    match = _SHARD.match(files[0].name)
    if match and len(files) > 1:
        begin = glob.escape(f"{files[0].parent}/{files[0].name[: match.start('number')]}")
        for digits in ("*", "[0-9]*"):
            pattern = f"{begin}{digits}{glob.escape(match['rest'])}"
            if matching_files(pattern) == sorted(files):
                return relative(pattern, target)
    paths = [relative(file, target) for file in files]
    return paths if len(paths) > 1 else paths[0]


def matching_files(pattern: str) -> list[Path]:
    """Returns the files that a glob matches, sorted, without indexes."""
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - also absolute patterns
    return [Path(path) for path in found if Path(path).is_file() and INDEX_SUFFIX not in path]


def parquet_drafts(files: Sequence[Path], target: Path) -> Iterator[Draft]:
    """Yields a draft for each group of shards, with the module that reads them."""
    for name, group in shard_groups(files):
        module = re.sub(r"\W", "_", f"rows_of_{name}_infeed")
        pattern = shard_pattern(group, target)
        paths = [pattern] if isinstance(pattern, str) else pattern
        source = [
            line("python", f"{module}:rows", "reads the files; edit it to choose columns"),
            line("processes", 2, "that read; each keeps some row groups in memory"),
        ]
        about = ["for large files: shuffle: {seed: 0, mode: window}; see its options block, window"]
        about += ["for encoded images: transforms: [decode_image: {field: image.bytes}, ...]"]
        shown = ", ".join(f"FOLDER / {path!r}" for path in paths)
        files_beside = {f"{module}.py": _PARQUET.format(paths=shown)}
        yield Draft(name, about, source, samples=64, files=files_beside)


def arrays_draft(files: Sequence[Path], target: Path) -> Draft:
    """Returns a draft for a `.npz` or for `.npy` files of one length. Raises `SourceError`."""
    first, paths = files[0], {file.stem: relative(file, target) for file in files}
    if first.suffix == ".npz":
        stored = open_npz(str(first))
    else:
        stored = {file.stem: open_npy(str(file)) for file in files}
    arrays = {name: stored[name].array for name in sorted(stored)}
    lengths = {len(array) if array.shape else 0 for array in arrays.values()}
    if len(lengths) != 1 or 0 in lengths:
        listed = ", ".join(f"{name}: {list(array.shape)}" for name, array in arrays.items())
        raise SourceError(
            f"{first}: the first dimension of each array must count the samples, as many in all: "
            f"{listed}; save the arrays of each part of the data in a file of its own",
            file=first,
        )
    name = first.stem if len(files) == 1 else first.absolute().parent.name
    source = [line("arrays", paths if len(files) > 1 else paths[first.stem])]
    draft = Draft(pipeline_name(name), [], source, lengths.pop())
    for field, array in arrays.items():
        draft.about.append(f"{field}: {array.dtype.name}{list(array.shape)}")
        if array.dtype == np.float64 and array.ndim > 1:
            about = "half the bytes; most models compute in float32"
            draft.transforms.append(step("cast", about, field=field, dtype="float32"))
        if array.dtype == np.uint8 and array.ndim > 2:
            draft.transforms.append(step("normalize", NORMALIZE, field=field, scale=255.0))
    return draft
