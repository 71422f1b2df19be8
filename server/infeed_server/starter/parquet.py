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
from infeed_server.starter.draft import Draft, line, listed
from infeed_server.starter.files import shard_groups, shard_pattern
from infeed_server.starter.image_look import ImageLook, spread

_ROWS_READ = 16
"""Rows of a group of files that are looked at: more find more nulls and lengths of lists."""

_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a process keeps no more."""

_MODULE = '''"""Rows of Parquet files for the pipelines beside this file, written by infeed init."""

from pathlib import Path

from infeed_server.datasets.parquet import ParquetRows

FOLDER = Path(__file__).parent
'''

_FUNCTION = """

def {function}():
    files = [{paths}]
    return ParquetRows(files, columns={columns})
"""


def parquet_drafts(files: Sequence[Path], target: Path) -> list[Draft]:
    """Returns a draft for each group of shards, the first with the module that reads them all.

    Raises `SourceError`.
    """
    groups = dict(shard_groups(files))
    module = f"{_identifier(next(iter(groups)))}_infeed_rows"
    code, drafts = _MODULE, []
    for name, group in groups.items():
        rows = ParquetRows(group)
        looked_at = rows.__getitems__(spread(len(rows), _ROWS_READ))
        fields = [name for name in rows.schema() if _is_field([row[name] for row in looked_at])]
        left_out = [name for name in rows.schema() if name not in fields]
        about = [f"{len(rows)} rows; fields: {listed(fields)}"]
        if left_out:
            reason = "nulls, lists of several lengths, or no numbers, text or bytes"
            about.append(f"left out, with {reason}: {listed(left_out)}")
        if not fields:
            raise SourceError(f"{group[0]}: no column to serve; {about[-1]}", file=group[0])
        function = _identifier(name)
        source = [
            line("python", f"{module}:{function}", "reads the files; edit it to change a row"),
            line("processes", 2, "that read; each keeps some row groups in memory"),
        ]
        draft = Draft(name, about, source, len(rows), shuffle=_shuffle(rows))
        for column in fields:
            if look := ImageLook.of_all([row[column] for row in looked_at]):
                draft.about.append(f"{column}: images, {look.describe()}")
                look.suggest(draft, column, fields)
        patterns = shard_pattern(group, target)
        names = [patterns] if isinstance(patterns, str) else patterns
        paths = ", ".join(f"FOLDER / {path!r}" for path in names)
        code += _FUNCTION.format(function=function, paths=paths, columns=fields)
        drafts.append(draft)
    drafts[0].files[f"{module}.py"] = code
    return drafts


def _shuffle(rows: ParquetRows) -> str:
    if rows.total_bytes <= _MAX_SHUFFLED_BYTES:
        return "{seed: 0}"
    block = max(rows.group_rows)
    return f"{{seed: 0, mode: window, block: {block}, window: {block * 4}}}"


def _is_field(values: Sequence[Any]) -> bool:
    """Returns whether values can be a field: text and bytes, or numbers of one shape."""
    if all(isinstance(value, str | bytes) for value in values):
        return bool(values)
    is_number = all(isinstance(value, np.ndarray | np.generic) for value in values)
    return is_number and len({np.shape(value) for value in values}) == 1


def _identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"data_{word}" if word[:1].isdigit() else word
