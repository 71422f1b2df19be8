"""Drafts of pipelines for arrays in `.npz` and `.npy` files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.spec import BYTES
from infeed_formats.arrays.npy_files import open_npy, open_npz
from infeed_formats.arrays.source import ArrayReader
from infeed_formats.values import describe
from infeed_tools.init.draft import Draft
from infeed_tools.init.drafter import Drafter
from infeed_tools.init.listing import Files, pipeline_name, relative, role, spread


def _arrays(data: Files) -> Iterator[Draft]:
    """Yields the draft for a `.npz` or for `.npy` files, or one for each part named in the arrays'
    names, as in `x_train`."""
    first = data.files[0]
    files = {posixpath.basename(file)[:-4]: file for file in data.files}
    is_npz = first.lower().endswith(".npz")
    stored = open_npz(first) if is_npz else {name: open_npy(file) for name, file in files.items()}
    roles = {role(name) for name in stored}
    for part in sorted(roles, reverse=True) if "" not in roles else [""]:
        fields = {_without_role(n) if part else n: n for n in stored if part in ("", role(n))}
        reader = ArrayReader({field: stored[name] for field, name in fields.items()})
        paths = {f: relative(files.get(n, first), data.target) for f, n in fields.items()}
        is_one = is_npz or len(files) == 1
        source: dict[str, Any] = {"arrays": next(iter(paths.values())) if is_one else paths}
        source |= {"fields": fields} if is_npz and part else {}
        draft = Draft(pipeline_name(f"{data.name}-{part}"), source, len(reader))
        kinds: dict[str, tuple[str, Any]] = {}
        values = {**reader.read(np.array(spread(len(reader)))), **reader.known_fields()}
        for name, spec in reader.columns.items():
            kind = BYTES if spec.dtype == tf.string else spec.dtype.name
            kinds[name] = describe(kind, tuple(spec.shape)), values[name]
        draft.add(kinds)
        yield draft


def _without_role(name: str) -> str:
    """Returns the name of a field without its part: `x` for `x_train`."""
    return "_".join(part for part in re.split(r"[\W_]+", name) if not role(part)) or name


DRAFTER = Drafter(_arrays, endings=(".npz", ".npy"), is_whole=True)
