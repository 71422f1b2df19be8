"""The samples of a source as a pack has them: read, parsed, images reduced, bad ones decided on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infeed.shared.errors import SampleError, SourceError
from infeed_server.pack.fields import Field, Value, Values
from infeed_server.pack.images import BadImageError, decode, shrink
from infeed_server.pack.options import Location, OnBad, PackOptions
from infeed_server.pipeline.load import load, located
from infeed_server.pipeline.sample_graph import columns_function
from infeed_server.sources.base import ProgressCallback, Source
from infeed_server.sources.registry import open_source

_READ_AT_ONCE = 32


class Bad(NamedTuple):
    """A bad sample."""

    sample: int
    file: str
    problem: str
    field: str = ""


class SampleReader:
    """Reads the samples of a source for a pack."""

    def __init__(
        self, location: Location, options: PackOptions, progress: ProgressCallback | None = None
    ) -> None:
        """Opens the source. Raises `SourceError`, and `ConfigError` for one without an index."""
        self.options = options
        pipelines = load(location.file)
        with located(pipelines, location.pipeline):
            self.source: Source = open_source(
                pipelines[location.pipeline].source,
                progress,
                keep_damaged=options.on_error is not OnBad.RAISE,
            )
            parse = columns_function(self.source, lambda columns, _: self.source.parse(columns))
        self._parse = parse
        self.specs = {
            name: tf.TensorSpec(spec.shape[1:], spec.dtype)
            for name, spec in parse.structured_outputs.items()  # type: ignore[attr-defined]
        }

    def __len__(self) -> int:
        return len(self.source)

    def samples(self, indices: Iterable[int]) -> Iterator[tuple[int, Values | Bad]]:
        """Yields the samples with their ids as the source has them. Raises `SampleError` for a bad
        one, unless it shall be skipped: without values it cannot be kept."""
        left = iter(indices)
        while chunk := list(islice(left, _READ_AT_ONCE)):
            try:
                found: Sequence[Values | Bad] = self._read(chunk)
            except (SampleError, tf.errors.InvalidArgumentError):
                found = [self._read_one(index) for index in chunk]
            yield from zip(chunk, found, strict=True)

    def packed(
        self, samples: Iterable[tuple[int, Values | Bad]], fields: Sequence[Field], report: Report
    ) -> Iterator[tuple[int, Values]]:
        """Yields the samples to be written, with images reduced, and notes the others."""
        for index, sample in samples:
            if isinstance(sample, Bad):
                report.skipped.append(sample)
                continue
            values = dict(sample)
            bad = self._reduce(index, values, fields, report.changes)
            if bad is not None and self.options.on_error is OnBad.SKIP:
                report.skipped.append(bad)
                continue
            if bad is not None:
                report.kept.append(bad)
            yield index, values

    def _reduce(
        self, index: int, values: dict[str, Value], fields: Sequence[Field], changes: Counter[str]
    ) -> Bad | None:
        """Reduces the images of a sample; returns what is bad of it."""
        bad = None
        for field in fields if self.options.short_side else ():
            content = values[field.name]
            if not field.image or not isinstance(content, bytes):
                continue
            try:
                if self.options.reduces(field.name):
                    shrunk = shrink(content, self.options)
                    values[field.name] = shrunk.content
                    changes.update(shrunk.changes)
                else:
                    decode(content)
            except BadImageError as error:
                file = str(self.source.provenance(index))
                bad = Bad(index, file, f"the image cannot be decoded: {error}", field.name)
                if self.options.on_error is OnBad.RAISE:
                    raise SampleError(
                        f"sample {index}, field {field.name!r}, of {file}: {bad.problem}; repair "
                        "it, or give --on-error skip or keep",
                        sample_id=index,
                        file=file,
                    ) from error
        return bad

    def _read(self, indices: Sequence[int]) -> list[Values]:
        columns = self.source.read(np.array(indices, np.int64))
        if not self.source.parsed:
            arrays = self._parse({name: tf.constant(rows) for name, rows in columns.items()})
            columns = {name: np.asarray(tensor) for name, tensor in arrays.items()}
        return [
            {name: _value(rows[slot]) for name, rows in columns.items()}
            for slot in range(len(indices))
        ]

    def _read_one(self, index: int) -> Values | Bad:
        try:
            return self._read([index])[0]
        except (SampleError, tf.errors.InvalidArgumentError) as error:
            if self.options.on_error is OnBad.SKIP:
                file = str(self.source.provenance(index))
                return Bad(index, file, str(error).partition("\n")[0])
            remedy = "repair it, or give --on-error skip"
            if self.options.on_error is OnBad.KEEP:
                remedy = "it has no values to keep; repair it, or give --on-error skip"
            text = f"sample {index} of {self.source.provenance(index)}: {error}; {remedy}"
            raise SampleError(text, sample_id=index) from error


class Report:
    """What a shard has besides its samples."""

    def __init__(self) -> None:
        self.skipped: list[Bad] = []
        self.kept: list[Bad] = []
        self.changes: Counter[str] = Counter()

    def document(self, root: str) -> dict[str, Any]:
        """Returns it as a sidecar has it, with files relative to a folder: hosts may mount the data
        elsewhere."""

        def listed(bad: Sequence[Bad]) -> list[dict[str, Any]]:
            return [
                {key: below(root, value) if key == "file" else value for key, value in pairs}
                for pairs in (one._asdict().items() for one in bad)
            ]

        return {
            "skipped": listed(self.skipped),
            "kept": listed(self.kept),
            "changes": dict(sorted(self.changes.items())),
        }


def below(root: str, path: str) -> str:
    """Returns a path without the folder that it is in."""
    return path.removeprefix(f"{root}/") if root else path


def check_identity(source: Source, identity: str) -> None:
    """Raises `SourceError` for a source that is another than the one of the pack."""
    if source.identity != identity:
        raise SourceError(
            "the source changed while it was packed; restore it, or pack it as it is now into an "
            "empty DEST",
            fault="changed",
        )


def _value(row: Any) -> Value:
    return row if isinstance(row, bytes) else np.asarray(row)
