"""Starters for Parquet files: the columns of their schema, read through a Python module.

Needs PyArrow: without it, the import raises `MissingExtraError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from infeed.shared.errors import SourceError
from infeed_server.datasets.parquet import ParquetRows
from infeed_server.starter.draft import WRITTEN_MODULE, Draft, line, listed
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.shards import shard_groups, shard_pattern

_ROWS_READ = 16
"""Rows of a group of files that are looked at: more find more nulls and lengths of lists."""

_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a process keeps no more."""

_MODULE = f'''"""Rows of Parquet files for the pipelines beside this file. {WRITTEN_MODULE}"""

from pathlib import Path

from infeed_server.datasets.parquet import ParquetRows

FOLDER = Path(__file__).parent
'''

_FUNCTION = """

def {function}():
    files = [{paths}]
    return ParquetRows(files, columns={columns})
"""


def parquet_drafts(files: Sequence[Path], target: Path, pattern: str = "") -> list[Draft]:
    """Returns a draft for each group of shards, the first with the module that reads them all.

    `pattern` is the glob that named the files, if one did. Raises `SourceError`.
    """
    groups = dict(shard_groups(files))
    module = f"{_identifier(next(iter(groups)))}_rows"
    code, drafts = _MODULE, []
    for name, group in groups.items():
        function = _identifier(name)
        rows = ParquetRows(group)
        if not len(rows):
            raise SourceError(f"{group[0]}: no row in this file; write it again", file=group[0])
        draft, fields = _draft(name, f"{module}:{function}", rows)
        if not fields:
            raise SourceError(
                f"{group[0]}: no column that can be served; {draft.about[-1]}", file=group[0]
            )
        patterns = shard_pattern(group, target, pattern)
        names = [patterns] if isinstance(patterns, str) else patterns
        paths = ", ".join(f"FOLDER / {path!r}" for path in names)
        code += _FUNCTION.format(function=function, paths=paths, columns=fields)
        drafts.append(draft)
    drafts[0].files[f"{module}.py"] = code
    return drafts


def _draft(name: str, function: str, rows: ParquetRows) -> tuple[Draft, list[str]]:
    """Returns a draft, and the columns that it serves."""
    looked_at = rows.__getitems__(spread(len(rows), _ROWS_READ))
    columns = {column: [row[column] for row in looked_at] for column in rows.schema()}
    options = {column: _field(values) for column, values in columns.items()}
    fields = [column for column, option in options.items() if not isinstance(option, _Reason)]
    left_out = [
        f"{column} ({kind}: {options[column]})"
        for column, kind in rows.schema().items()
        if column not in fields
    ]
    source = [
        line("python", function, "reads the files; edit it to change what a row gives"),
        line("processes", 2, "that read; each keeps some row groups in memory"),
        "fields:",
        *(f"  {line(column, options[column])}" for column in fields),
    ]
    about = [f"{len(rows)} rows"] + [f"left out: {listed(left_out)}"] * bool(left_out)
    draft = Draft(name, about, source, len(rows), shuffle=_shuffle(rows))
    for column in fields:
        if look := ImageLook.of_all(columns[column]):
            draft.about.append(f"{column}: images, {look.describe()}")
            look.suggest(draft, column, fields)
    return draft, fields


def _shuffle(rows: ParquetRows) -> str:
    if rows.total_bytes <= _MAX_SHUFFLED_BYTES:
        return "{seed: 0}"
    block = max(rows.group_rows)
    return f"{{seed: 0, mode: window, block: {block}, window: {block * 4}}}"


class _Reason(str):
    """Why a column cannot be served."""


def _field(values: Sequence[Any]) -> Mapping[str, Any] | str:
    """Returns the options of a field, or the reason why it cannot be one."""
    if any(value is None for value in values):
        return _Reason("it has nulls")
    if all(isinstance(value, str | bytes) for value in values):
        return "bytes"
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):
        return _Reason("it has no numbers, text or bytes")
    if len({np.shape(value) for value in values}) > 1:
        return _Reason("its lists differ in length; a map with python: true can pad them")
    array = np.asarray(values[0])
    shape = list(array.shape)
    return {"type": array.dtype.name, "shape": shape} if shape else array.dtype.name


def _identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"data_{word}" if word[:1].isdigit() else word
