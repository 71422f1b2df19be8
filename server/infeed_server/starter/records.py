"""Starters for TFRecords and ArrayRecords: the features of some records of several files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from infeed.shared.errors import SourceError
from infeed_server.sources.arrayrecord.reader import read_first as read_first_of_array
from infeed_server.sources.tfrecord.framing import HEADER_BYTES, masked_crc
from infeed_server.sources.tfrecord.preview import parse_example, read_first
from infeed_server.starter.draft import Draft, line
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.paths import DataPath, read_head
from infeed_server.starter.shards import Shards
from infeed_server.storage.files import abbreviate

_FILES_READ = 4
"""Files of a group whose first records are read: more find more of the features."""
_RECORDS_READ = 64
"""Records read of a file: fewer than a batch would suggest a smaller one."""

_RIEGELI = bytes.fromhex("83af70d10d884a3f")
"""First bytes of a file in blocks of Riegeli, as ArrayRecord has them."""

Feature = tuple[str, list[list[Any]]]
"""The type of a feature, and its values in each record that has it."""


def source_of(head: bytes) -> str:
    """Returns the source of files that begin like this; empty for others."""
    crc = int.from_bytes(head[8:HEADER_BYTES], "little")
    if len(head) >= HEADER_BYTES and masked_crc(head[:8]) == crc:
        return "tfrecord"
    return "arrayrecord" if head.startswith(_RIEGELI) else ""


def record_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields the draft for TFRecords or ArrayRecords. Raises `SourceError`, and `MissingExtraError`
    for ArrayRecords."""
    kind, read = "tfrecord", read_first
    if source_of(read_head(shards.files[0])) == "arrayrecord":
        kind, read = "arrayrecord", read_first_of_array
    features, records = _look_at(shards.files, read)
    about = [f"{shards.count}; features of {records} records"]
    source = [line(kind, shards.pattern), "features:"]
    draft = Draft(shards.name, about, source, records)
    for feature, (kind, rows) in features.items():
        single = len(rows) == records and all(len(row) == 1 for row in rows)
        look = ImageLook.of_all([row[0] for row in rows]) if single else None
        text = f"an image: {look.describe()}" if look else describe_values(kind, rows)
        draft.source.append(f"  {_line(feature, kind, rows, records, text)}")
        if look:
            look.suggest(draft, feature, features)
    yield draft


def _look_at(
    files: Sequence[DataPath], read: Callable[[str, int], Sequence[bytes]]
) -> tuple[Mapping[str, Feature], int]:
    """Returns the features of some records, and the number of these records."""
    features: dict[str, Feature] = {}
    records = 0
    for index in spread(len(files), _FILES_READ):
        file = files[index]
        for record in read(str(file), _RECORDS_READ):
            example = parse_example(record)
            if example is None:
                raise SourceError(
                    f"{file}: its records are not tf.train.Examples with features; convert them, "
                    "or serve them as a dataset: module:attr, and ArrayRecords without features",
                    file=file,
                )
            records += 1
            for name, (kind, values) in example.items():
                known, rows = features.setdefault(name, (kind, []))
                if known != kind:
                    raise SourceError(
                        f"{file}: the feature {name!r} is {known} in some records and {kind} in "
                        "others; write it with one type",
                        file=file,
                    )
                rows.append(values)
    if not records:
        raise SourceError(f"{files[0]}: no record in this file; write it again", file=files[0])
    return features, records


def _line(name: str, kind: str, rows: Sequence[Sequence[Any]], records: int, about: str) -> str:
    """Returns the line of a feature below `features:`."""
    lengths = {len(values) for values in rows}
    longest = max(*lengths, 1)
    if len(rows) == records and lengths == {longest}:
        return line(name, kind if longest == 1 else {"type": kind, "shape": [longest]}, about)
    seen = f"{min(lengths)} to {max(lengths)} values" if lengths != {longest} else "not in all"
    # Records that were not looked at may have more.
    options = {"type": kind, "max_length": 2 << (longest - 1).bit_length()}
    return line(name, options, f"{seen}; {about}")


def describe_values(kind: str, rows: Sequence[Sequence[Any]]) -> str:
    """Returns a text about the values of a feature."""
    values = [value for row in rows for value in row]
    if not values:
        return "empty"
    if kind != "bytes":
        return f"{min(values):g} to {max(values):g}"
    try:
        texts = sorted({value.decode() for value in values})
    except UnicodeDecodeError:
        texts = []
    if texts and all(map(str.isprintable, texts)):
        return "text: " + abbreviate([text[:20] for text in texts], 3)
    lengths = {len(value) for value in values}
    size = f"{min(lengths)} to {max(lengths)} bytes"
    return size if len(lengths) != 1 else f"{size}; decode_raw makes numbers of it"
