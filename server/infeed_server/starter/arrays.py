"""Starters for NumPy files: the arrays of a `.npz`, or one or several `.npy`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from infeed.shared.errors import SourceError
from infeed.shared.spec import Array
from infeed_server.sources.arrays.npy_files import open_npy, open_npz
from infeed_server.starter.draft import Draft, comment, line, relative, step
from infeed_server.starter.image_look import FLIP, NORMALIZE, attached_field
from infeed_server.starter.shards import Shards


def array_drafts(shards: Shards) -> Iterator[Draft]:
    """Yields the draft for a `.npz`, or for `.npy` files of one length. Raises `SourceError`."""
    first, *others = files = shards.files
    if first.suffix.lower() == ".npz":
        stored = open_npz(str(first))
    else:
        stored = {file.stem: open_npy(str(file)) for file in files}
    arrays = {name: stored[name].array for name in sorted(stored)}
    lengths = {len(array) if array.shape else 0 for array in arrays.values()}
    if len(lengths) != 1 or 0 in lengths:
        listed = ", ".join(f"{name}: {list(array.shape)}" for name, array in arrays.items())
        raise SourceError(
            f"{first}: the first dimension of each array must count the samples, as many in all: "
            f"{listed}; leave out single values, and save the arrays of each part of the data in a "
            "file of its own: np.savez('train.npz', image=..., label=...)",
            file=first,
        )
    paths = {file.stem: relative(file, shards.target) for file in files}
    source = [line("arrays", paths if others else paths[first.stem])]
    (count,) = lengths
    draft = Draft(shards.name, [f"{count} samples"], source, count)
    for field, array in arrays.items():
        draft.about.append(f"{field}: {_describe(array)}")
        attached = attached_field(other for other in arrays if other != field)
        draft.transforms += _transforms(field, array, draft.is_for_training, attached)
    yield draft


def _describe(array: Array) -> str:
    kind = "bytes" if array.dtype.kind in "SU" else array.dtype.name
    text = f"{kind}{list(array.shape[1:])}"
    if array.ndim > 1 or array.dtype.kind not in "iu":
        return text
    values = np.unique(array)
    return f"{text}, from {values[0]} to {values[-1]}, {len(values)} different"


def _transforms(field: str, array: Array, training: bool, attached: str) -> list[str]:
    if array.dtype == np.float64 and array.ndim > 1:
        about = "half the bytes; most models compute in float32"
        return [step("cast", about, field=field, dtype="float32")]
    if array.dtype != np.uint8 or array.ndim < 3:
        return []
    lines = []
    if training and attached:
        lines = [comment(f"no flip, which would not move {attached!r}")]
    elif training and array.ndim == 4 and array.shape[-1] in (1, 3, 4):
        lines = [step("random_flip_left_right", FLIP, field=field)]
    return [*lines, step("normalize", NORMALIZE, field=field, scale=255.0)]
