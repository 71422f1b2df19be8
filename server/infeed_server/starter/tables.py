"""Starters for Parquet files and for data sets that Hugging Face saved: the columns they have.

Needs PyArrow: without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.arrow.huggingface import HuggingFaceSource
from infeed_server.sources.arrow.parquet import ParquetSource
from infeed_server.sources.arrow.saved_dataset import read_splits
from infeed_server.sources.arrow.tables import TableReader
from infeed_server.sources.base import Columns
from infeed_server.sources.python.values import Field
from infeed_server.starter.draft import Draft, line, pipeline_name, relative
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.shards import Shards
from infeed_server.storage.files import abbreviate

_FILES_READ = 4
_PLACES_READ, _ROWS_READ = 4, 4
"""Rows that are looked at, together in some places, as each costs the row group that it is in: more
find more nulls and lengths of lists."""

_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a server keeps no more."""


def parquet_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields the draft for Parquet files. Raises `SourceError`."""
    source = ParquetSource(parquet=[str(file) for file in shards.files])
    tables = source.open()
    draft = Draft(shards.name, [], [line("parquet", shards.pattern)], len(tables))
    if tables.total_bytes > _MAX_SHUFFLED_BYTES:
        block = max(tables.group_rows)
        draft.shuffle = f"{{seed: 0, mode: window, block: {block}, window: {block * 4}}}"
    some = [str(shards.files[number]) for number in spread(len(shards.files), _FILES_READ)]
    yield _fill(draft, tables, source.model_copy(update={"parquet": some}), some[0])


def saved_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields a draft for a saved data set, or for each split of one. Raises `SourceError`."""
    (folder,) = shards.files
    for split in read_splits(str(folder)) or [str(folder)]:
        source = HuggingFaceSource(huggingface=split)
        name = split.rpartition("/")[2]
        name = name if split == str(folder) else f"{folder.name}-{name}"
        tables = source.open()
        text = line("huggingface", relative(split, shards.target))
        yield _fill(Draft(pipeline_name(name), [], [text], len(tables)), tables, source, split)


def _fill(
    draft: Draft, tables: TableReader, source: ParquetSource | HuggingFaceSource, file: str
) -> Draft:
    """Returns the draft with the columns that a batch can have; `source` is what is looked at."""
    left_out = [f"{name} ({kind})" for name, kind in tables.left_out.items()]
    columns: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    for field in tables.fields:
        alone = source.model_copy(update={"columns": (field.name,), "shapes": None})
        try:
            values = _look_at(alone.open())[field.name]
        except SampleError:
            left_out.append(f"{field.name} (it has nulls)")
            continue
        sizes = {np.shape(value) for value in values}
        if field.varies and len(sizes) > 1:
            reason = "its lists differ in length; a map with python: true can pad them"
            left_out.append(f"{field.name} ({reason})")
            continue
        columns[field.name] = values
        if field.varies:
            shapes[field.name] = [*sizes.pop()]
    draft.about = [f"{draft.samples} rows", *[f"left out: {abbreviate(left_out)}"][: len(left_out)]]
    if not columns:
        raise SourceError(f"{file}: no column that can be served; {draft.about[-1]}", file=file)
    fields = [field for field in tables.fields if field.name in columns]
    draft.source += [line("columns", [*columns], _describe(fields))]
    if shapes:
        draft.source += [line("shapes", shapes, "of lists, which all rows must have")]
    for name, values in columns.items():
        if look := ImageLook.of_all(values.tolist()):
            draft.about.append(f"{name}: images, {look.describe()}")
            look.suggest(draft, name, columns)
    draft.about += [f"classes of {name}: {abbreviate(of)}" for name, of in tables.classes.items()]
    return draft


def _look_at(tables: TableReader) -> Columns:
    rows = {first + row for first in spread(len(tables), _PLACES_READ) for row in range(_ROWS_READ)}
    return tables.read_arrays(np.array(sorted(rows & {*range(len(tables))}), np.int64))


def _describe(fields: Sequence[Field]) -> str:
    return ", ".join(str(field) for field in fields)
