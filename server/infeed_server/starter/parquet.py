"""Starters for Parquet files: the columns of their schema, read through a Python module.

Needs PyArrow: without it, the import raises `MissingExtraError`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    `pattern` is the glob that named the files, if one did. Raises `SourceError`."""
    groups = dict(shard_groups(files))
    module = f"{_identifier(next(iter(groups)))}_rows"
    code, drafts = _MODULE, []
    for name, group in groups.items():
        rows = ParquetRows(group)
        if not len(rows):
            raise SourceError(f"{group[0]}: no row in this file; write it again", file=group[0])
        looked_at = rows.__getitems__(spread(len(rows), _ROWS_READ))
        fields, left_out = {}, []
        for column, kind in rows.schema().items():
            options, reason = _field([row[column] for row in looked_at])
            if reason:
                left_out.append(f"{column} ({kind}: {reason})")
            else:
                fields[column] = options
        about = [f"{len(rows)} rows"] + [f"left out: {listed(left_out)}"] * bool(left_out)
        if not fields:
            raise SourceError(
                f"{group[0]}: no column that can be served; {about[-1]}", file=group[0]
            )
        function = _identifier(name)
        source = [
            line("python", f"{module}:{function}", "reads the files; edit it to change a row"),
            line("processes", 2, "that read; each keeps some row groups in memory"),
            "fields:",
            *(f"  {line(column, options)}" for column, options in fields.items()),
        ]
        draft = Draft(name, about, source, len(rows), shuffle=_shuffle(rows))
        for column in fields:
            if look := ImageLook.of_all([row[column] for row in looked_at]):
                draft.about.append(f"{column}: images, {look.describe()}")
                look.suggest(draft, column, fields)
        patterns = shard_pattern(group, target, pattern)
        names = [patterns] if isinstance(patterns, str) else patterns
        paths = ", ".join(f"FOLDER / {path!r}" for path in names)
        code += _FUNCTION.format(function=function, paths=paths, columns=[*fields])
        drafts.append(draft)
    drafts[0].files[f"{module}.py"] = code
    return drafts


def _shuffle(rows: ParquetRows) -> str:
    if rows.total_bytes <= _MAX_SHUFFLED_BYTES:
        return "{seed: 0}"
    block = max(rows.group_rows)
    return f"{{seed: 0, mode: window, block: {block}, window: {block * 4}}}"


def _field(values: Sequence[Any]) -> tuple[Any, str]:
    """Returns the options of a field, and the reason why it cannot be one; empty if it can."""
    if any(value is None for value in values):
        return None, "it has nulls"
    if all(isinstance(value, str | bytes) for value in values):
        return "bytes", ""
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):
        return None, "it has no numbers, text or bytes"
    if len({np.shape(value) for value in values}) > 1:
        return None, "its lists differ in length; a map with python: true can pad them"
    array = np.asarray(values[0])
    kind, shape = array.dtype.name, list(array.shape)
    return ({"type": kind, "shape": shape} if shape else kind), ""


def _identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"data_{word}" if word[:1].isdigit() else word
