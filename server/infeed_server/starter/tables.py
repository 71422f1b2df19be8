"""Starters for Parquet files and for data sets that Hugging Face saved: the columns they have.

Needs PyArrow: without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import SampleError, SourceError
from infeed_server.sources.arrow.huggingface import HuggingFaceSource
from infeed_server.sources.arrow.parquet import ParquetSource
from infeed_server.sources.arrow.tables import TableReader
from infeed_server.sources.python.values import Field
from infeed_server.starter.draft import Draft, line, listed, pipeline_name, relative
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.shards import shard_groups, shard_pattern

_ROWS_READ = 16
"""Rows that are looked at: more find more nulls and lengths of lists."""

_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a server keeps no more."""


def parquet_drafts(files: Sequence[Path], target: Path, pattern: str = "") -> Iterator[Draft]:
    """Yields a draft for each group of shards. `pattern` is the glob that named the files, if one
    did. Raises `SourceError`."""
    for name, group in shard_groups(files):
        source = ParquetSource(parquet=[str(file) for file in group])
        tables = source.open()
        draft = Draft(
            name, [], [line("parquet", shard_pattern(group, target, pattern))], len(tables)
        )
        if tables.total_bytes > _MAX_SHUFFLED_BYTES:
            block = max(tables.group_rows)
            draft.shuffle = f"{{seed: 0, mode: window, block: {block}, window: {block * 4}}}"
        yield _fill(draft, tables, source, str(group[0]))


def saved_drafts(folders: Sequence[str], target: Path) -> Iterator[Draft]:
    """Yields a draft for each saved data set, such as the splits of one. Raises `SourceError`."""
    for folder in folders:
        path = Path(folder)
        name = path.name if len(folders) == 1 else f"{path.parent.name}-{path.name}"
        source = HuggingFaceSource(huggingface=folder)
        tables = source.open()
        text = line("huggingface", relative(path, target))
        yield _fill(Draft(pipeline_name(name), [], [text], len(tables)), tables, source, folder)


def _fill(
    draft: Draft, tables: TableReader, source: ParquetSource | HuggingFaceSource, file: str
) -> Draft:
    """Returns the draft with the columns that a batch can have."""
    left_out = [f"{name} ({kind})" for name, kind in tables.left_out.items()]
    columns: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    rows = np.array(spread(len(tables), _ROWS_READ), np.int64)
    for field in tables.fields:
        alone = source.model_copy(update={"columns": (field.name,), "shapes": None})
        try:
            values = alone.open().read_arrays(rows)[field.name]
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
    draft.about = [f"{draft.samples} rows", *[f"left out: {listed(left_out)}"][: len(left_out)]]
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
    if tables.class_names:
        draft.about.append(f"classes: {listed(tables.class_names)}")
    return draft


def _describe(fields: Sequence[Field]) -> str:
    return ", ".join(str(field) for field in fields)
