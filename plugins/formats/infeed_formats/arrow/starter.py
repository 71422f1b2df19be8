"""Drafts of pipelines for Parquet, CSV and Hugging Face's folders.

They need PyArrow; without it, opening the files raises `MissingExtraError`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from infeed.shared.errors import SourceError
from infeed_formats.arrow.row_groups import RowGroups
from infeed_formats.arrow.saved_dataset import SPLITS, STATE, read_splits
from infeed_tools.init.columns import add_columns, open_columns
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files, pipeline_name, relative

_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes up to which rows are shuffled globally; a server keeps no more."""


def _columns(kind: str, data: Files) -> Iterator[Draft]:
    """Yields a draft for a source of columns, or one for each split with rows."""
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
    drafts[0].notes += [f"skipped a split: {problem}" for problem in problems]
    yield from drafts


def _table(name: str, source: dict[str, Any], target: Path) -> Draft:
    definition, reader = open_columns(source, target)
    draft = Draft(name, source, len(reader))
    if isinstance(reader, RowGroups) and reader.total_bytes > _MAX_SHUFFLED_BYTES:
        block = max(reader.group_rows)
        draft.shuffle |= {"mode": "window", "block": block, "window": block * 4}
    add_columns(draft, definition, reader, reader.left_out, reader.count_nulls())
    return draft


CSV = Drafter(partial(_columns, "csv"), endings=(".csv",), is_table=True)
HUGGINGFACE = Drafter(
    partial(_columns, "huggingface"),
    described_by={STATE: {"_data_files"}, SPLITS: {"splits"}},
    is_local=True,
)
PARQUET = Drafter(partial(_columns, "parquet"), endings=(".parquet", ".pq"))
