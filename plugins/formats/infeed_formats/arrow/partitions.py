"""Hive partitions: columns whose values are in folder names such as `label=cat/`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

from infeed_formats.arrow.fields import pyarrow
from infeed_server.sources.class_names import is_integer

_NULL = "__HIVE_DEFAULT_PARTITION__"


def read_partitions(paths: Sequence[str], named: Collection[str]) -> list[dict[str, Any]]:
    """Returns the Arrow scalars in the folders of each path, by column name, for columns that
    differ between the paths or are `named`. Scalars are int64 if all are integers, and null if a
    path has no such folder."""
    splits = [[part.partition("=") for part in path.split("/")[:-1]] for path in paths]
    folders = [{unquote(key): unquote(text) for key, _, text in split if text} for split in splits]
    scalars: list[dict[str, Any]] = [{} for _ in paths]
    for name in sorted({name for texts in folders for name in texts}):
        column = [texts.get(name, _NULL) for texts in folders]
        different = {*column}
        if len(different) == 1 and name not in named:
            continue
        are_integers = all(map(is_integer, different - {_NULL}))
        kind = pyarrow().int64() if are_integers else pyarrow().string()
        for own, text in zip(scalars, column, strict=True):
            value = None if text == _NULL else int(text) if are_integers else text
            own[name] = pyarrow().scalar(value, kind)
    return scalars
