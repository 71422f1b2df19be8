"""Starters for TFRecords: the features of some records of several files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.shared.errors import SourceError
from infeed_server.sources.file_handles import FileHandle
from infeed_server.sources.tfrecord.framing import HEADER_BYTES, masked_crc, scan_records
from infeed_server.sources.tfrecord.preview import parse_example, read_first
from infeed_server.starter.draft import (
    Line,
    PipelineDraft,
    Place,
    Starter,
    flow,
    is_for_training,
    listed,
)
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.shards import shard_groups, shard_pattern

_FILES_READ = 4
"""Files of each group whose first records are read."""
_RECORDS_READ = 16
"""Records read of each of these files."""
_MAX_COUNTED_BYTES = 256 << 20
"""Bytes of files whose records are counted; of more, there are enough for any batch."""


@dataclass
class FeatureLook:
    """What is known of a feature from some records."""

    kind: str
    values: list[list[Any]] = field(default_factory=list)

    def line(self, name: str, records: int) -> Line:
        """Returns its line below `features:`."""
        lengths = {len(values) for values in self.values}
        missing = records - len(self.values)
        if not missing and lengths == {1}:
            return Line(f"{flow(name)}: {self.kind}", self._describe())
        if not missing and len(lengths) == 1 and 0 not in lengths:
            options: dict[str, Any] = {"type": self.kind, "shape": [*lengths]}
            return Line(f"{flow(name)}: {flow(options)}", self._describe())
        longest = max(*lengths, 1)
        # Records that were not looked at may have more.
        options = {"type": self.kind, "max_length": 2 << (longest - 1).bit_length()}
        seen = f"{min(lengths)} to {max(lengths)} values" if lengths != {longest} else "not in all"
        return Line(f"{flow(name)}: {flow(options)}", f"{seen}; {self._describe()}")

    def look(self) -> ImageLook | None:
        """Returns a look at the images that the feature holds, if it holds images."""
        if self.kind != "bytes" or any(len(values) != 1 for values in self.values):
            return None
        look = ImageLook.at(values[0] for values in self.values)
        return look if look is not None and len(look.sizes) == len(self.values) else None

    def _describe(self) -> str:
        values = [value for each in self.values for value in each]
        if self.kind != "bytes":
            return f"{min(values):g} to {max(values):g}" if values else "empty"
        if look := self.look():
            return f"an image: {look.describe()}"
        lengths = {len(value) for value in values}
        texts = sorted({value for value in values if _is_text(value)})
        if texts and len(texts) == len(set(values)):
            return "text: " + listed([text.decode()[:20] for text in texts], 3)
        size = f"{min(lengths, default=0)} to {max(lengths, default=0)} bytes"
        return size if len(lengths) != 1 else f"{size}; decode_raw makes numbers of it"


def is_record_file(path: Path) -> bool:
    """Returns whether a file begins as a TFRecord file does."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError:
        return False
    crc = int.from_bytes(header[8:], "little")
    return len(header) == HEADER_BYTES and masked_crc(header[:8]) == crc


def records_starter(files: Sequence[Path], place: Place, pattern: str = "") -> Starter:
    """Returns a starter for TFRecord files, with a pipeline for each group of shards.

    `pattern` is the glob that named the files, if one did.
    """
    return Starter([_draft(name, group, place, pattern) for name, group in shard_groups(files)])


def _draft(name: str, files: Sequence[Path], place: Place, pattern: str) -> PipelineDraft:
    features, records = _look_at(files)
    count = _count(files)
    described = f"{count} records" if count is not None else "records"
    plural = "s" if len(files) > 1 else ""
    about = [f"{described} in {len(files)} file{plural}; features of {records} of them"]
    source = [Line(f"tfrecord: {flow(shard_pattern(files, place, pattern))}"), Line("features:")]
    for feature, look in features.items():
        line = look.line(feature, records)
        source.append(Line(f"  {line.code}", line.comment))
    transforms: list[Line] = []
    for feature, look in features.items():
        image = look.look() if not transforms else None
        if image is not None and len(look.values) == records:
            others = [other for other in features if other != feature]
            training = is_for_training(name)
            transforms = image.transforms(feature, training=training, others=others)
    return PipelineDraft(name, about, source, 1 << 20 if count is None else count, transforms)


def _look_at(files: Sequence[Path]) -> tuple[dict[str, FeatureLook], int]:
    """Returns the features of some records, and the number of these records."""
    features: dict[str, FeatureLook] = {}
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
                look = features.setdefault(name, FeatureLook(kind))
                if look.kind != kind:
                    raise SourceError(
                        f"{files[index]}: the feature {name!r} is {look.kind} in some records and "
                        f"{kind} in others",
                        file=files[index],
                    )
                look.values.append(values)
    if not records:
        raise SourceError(f"{files[0]}: no record in this file", file=files[0])
    return features, records


def _count(files: Sequence[Path]) -> int | None:
    """Counts the records; None for so many bytes that it would take long."""
    if sum(file.stat().st_size for file in files) > _MAX_COUNTED_BYTES:
        return None
    total = 0
    for file in files:
        handle = FileHandle(str(file))
        try:
            scanned = scan_records(handle, str(file), file.stat().st_size, lambda _: None)
        finally:
            handle.close()
        total += len(scanned.lengths)
    return total


def _is_text(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False
