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
from infeed_server.starter.draft import (
    WRITTEN_MODULE,
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

_ROWS_READ = 16
"""Rows of each group of files that are looked at, spread over them."""

_MAX_SHUFFLED_BYTES = 256 << 20
"""Decompressed bytes that are shuffled as a whole: a process keeps so many."""

_MODULE = f'''"""Rows of Parquet files for the pipelines beside this file. {WRITTEN_MODULE}"""

from pathlib import Path

from infeed_server.datasets.parquet import ParquetRows

FOLDER = Path(__file__).parent
'''

_FUNCTION = """

def {function}():
    files = {files}
    return ParquetRows(files, columns={columns})
"""


def parquet_starter(files: Sequence[Path], place: Place, pattern: str = "") -> Starter:
    """Returns a starter with a pipeline for each group of shards, and the module that reads them.

    `pattern` is the glob that named the files, if one did. Raises `SourceError`.
    """
    groups = dict(shard_groups(files))
    module = f"{_identifier(next(iter(groups)))}_rows"
    code, drafts = _MODULE, []
    for name, group in groups.items():
        rows = ParquetRows(group)
        if not len(rows):
            raise SourceError(f"{group[0]}: no row in this file", file=group[0])
        fields, left_out = _fields(rows)
        if not fields:
            raise SourceError(
                f"{group[0]}: no column that can be served: {listed(left_out)}", file=group[0]
            )
        function = _identifier(name)
        patterns = shard_pattern(group, place, pattern)
        names = [patterns] if isinstance(patterns, str) else patterns
        paths = ", ".join(f"FOLDER / {each!r}" for each in names)
        code += _FUNCTION.format(function=function, files=f"[{paths}]", columns=list(fields))
        drafts.append(_draft(name, f"{module}:{function}", rows, fields, left_out))
    return Starter(drafts, {f"{module}.py": code})


def _draft(
    name: str, target: str, rows: ParquetRows, fields: Mapping[str, Any], left_out: Sequence[str]
) -> PipelineDraft:
    about = [f"{len(rows)} rows"]
    if left_out:
        about.append(f"left out: {listed(left_out)}")
    source = [
        Line(f"python: {target}", "reads the files; edit it to change what a row gives"),
        Line("processes: 2", "that read; each keeps some row groups in memory"),
        Line("fields:"),
        *(Line(f"  {flow(field)}: {flow(options)}") for field, options in fields.items()),
    ]
    looked_at = rows.__getitems__(spread(len(rows), _ROWS_READ))
    transforms: list[Line] = []
    for field, options in fields.items():
        values = [row[field] for row in looked_at]
        if options != "bytes" or transforms or not all(isinstance(each, bytes) for each in values):
            continue
        look = ImageLook.at(values)
        if look is not None and len(look.sizes) == len(values):
            about.append(f"{field}: images, {look.describe()}")
            others = [other for other in fields if other != field]
            training = is_for_training(name)
            transforms = look.transforms(field, training=training, others=others)
    return PipelineDraft(name, about, source, len(rows), transforms, shuffle=_shuffle(rows))


def _shuffle(rows: ParquetRows) -> str:
    if rows.total_bytes <= _MAX_SHUFFLED_BYTES:
        return "{seed: 0}"
    block = max(rows.group_rows)
    return f"{{seed: 0, mode: window, block: {block}, window: {block * 4}}}"


def _fields(rows: ParquetRows) -> tuple[dict[str, Any], list[str]]:
    """Returns the fields that can be served, as options, and the other columns with the reason."""
    looked_at = rows.__getitems__(spread(len(rows), _ROWS_READ))
    fields: dict[str, Any] = {}
    left_out = []
    for name, kind in rows.schema().items():
        values = [row[name] for row in looked_at]
        options = _field(values)
        if isinstance(options, _Reason):
            left_out.append(f"{name} ({kind}: {options})")
        else:
            fields[name] = options
    return fields, left_out


class _Reason(str):
    """Why a column cannot be served."""


def _field(values: Sequence[Any]) -> Any:
    if any(value is None for value in values):
        return _Reason("it has nulls")
    if all(isinstance(value, str | bytes) for value in values):
        return "bytes"
    if not all(isinstance(value, np.ndarray | np.generic) for value in values):
        return _Reason("it has no numbers, text or bytes")
    arrays = [np.asarray(value) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        return _Reason("its lists differ in length; a map with python: true can pad them")
    (shape,) = shapes
    data_type = arrays[0].dtype.name
    return {"type": data_type, "shape": list(shape)} if shape else data_type


def _identifier(name: str) -> str:
    word = re.sub(r"\W", "_", name)
    return f"data_{word}" if word[:1].isdigit() else word
