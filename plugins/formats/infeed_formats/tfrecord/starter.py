"""Drafts of pipelines for records of tf.train.Example, and for TFRecords."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from infeed.shared.errors import SourceError
from infeed_formats.tfrecord.framing import HEADER_BYTES, masked_crc
from infeed_formats.tfrecord.preview import Example, parse_example, read_first
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files, spread

SAMPLES_READ = 64
"""Records read from a file; if there are fewer, the draft has a smaller batch."""
_FILES_READ = 4


def draft_examples(
    kind: str, read: Callable[[str, int], list[bytes]], data: Files
) -> Iterator[Draft]:
    """Yields the draft for records of tf.train.Example."""
    rows: list[Example] = []
    for file in some_files(data):
        for record in read(file, SAMPLES_READ):
            if (example := parse_example(record)) is None:
                raise SourceError(
                    f"{file}: its records are not tf.train.Examples with features; convert them, "
                    "or serve them as a dataset: module:attr, and ArrayRecords without features",
                    file=file,
                )
            rows.append(example)
    if not rows:
        raise SourceError(f"{data.files[0]}: the file has no records; write it again")
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
            # Records that were not examined may have more.
            features[name] = {"type": kinds[0], "max_length": 2 << (longest - 1).bit_length()}
            text += f", {min(lengths)} to {longest} values"
        columns[name] = text, [value for _, values in found for value in values]
    source = {kind: data.pattern, "features": features}
    draft = Draft(data.name, source, len(rows), is_counted=False)
    draft.add(columns)
    yield draft


def some_files(data: Files) -> list[str]:
    """Returns the files to examine, several because they can differ in fields."""
    return [data.files[number] for number in spread(len(data.files), _FILES_READ)]


def _begins(head: bytes) -> bool:
    has_crc = masked_crc(head[:8]) == int.from_bytes(head[8:12], "little")
    return (len(head) >= HEADER_BYTES and has_crc) or head.startswith(b"\x1f\x8b")  # gzip


DRAFTER = Drafter(
    partial(draft_examples, "tfrecord", read_first), endings=(".tfrecord",), begins=_begins
)
