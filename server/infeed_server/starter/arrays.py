"""Starters for NumPy files: the arrays of a `.npz`, or one or several `.npy`."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from infeed.shared.errors import SourceError
from infeed.shared.spec import Array
from infeed_server.sources.storage_faults import error_text
from infeed_server.starter.draft import (
    Line,
    PipelineDraft,
    Place,
    Starter,
    flow,
    is_for_training,
    pipeline_name,
    step,
)
from infeed_server.starter.image_look import attached_field

_MAX_CLASSES = 10_000


class Header(NamedTuple):
    """The shape and type of an array, as its file states them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def arrays_starter(files: Sequence[Path], place: Place) -> Starter:
    """Returns a starter for a `.npz` or for `.npy` files of one length. Raises `SourceError`."""
    first = files[0]
    if first.suffix == ".npz":
        headers = _npz_headers(first)
        source = [Line(f"arrays: {flow(place.path(first))}")]
        name = pipeline_name(first.stem)
    else:
        headers = {file.stem: _npy_header(file) for file in files}
        name = pipeline_name(first.stem if len(files) == 1 else first.absolute().parent.name)
        by_name = {file.stem: place.path(file) for file in files}
        source = [Line(f"arrays: {flow(by_name if len(files) > 1 else place.path(first))}")]
    _require_samples(first, headers)
    count = next(iter(headers.values())).shape[0]
    about = [f"{count} samples"]
    transforms: list[Line] = []
    for field, header in headers.items():
        shape = list(header.shape[1:])
        labels = _label_range(files, field, header) if not shape else ""
        about.append(f"{field}: {_type_name(header.dtype)}{shape}{labels}")
        attached = attached_field(other for other in headers if other != field)
        training = is_for_training(name) and not attached
        transforms += _transforms(field, header, training=training)
        if attached and transforms and is_for_training(name):
            transforms.append(Line("", f"no flip, which would not move {attached!r}"))
    return Starter([PipelineDraft(name, about, source, count, transforms)])


def _transforms(field: str, header: Header, *, training: bool) -> list[Line]:
    shape = header.shape[1:]
    if header.dtype == np.uint8 and len(shape) >= 2:
        lines = []
        if training and len(shape) == 3 and shape[-1] in (1, 3, 4):
            comment = "not for text, digits or other images with a left and a right"
            lines.append(step("random_flip_left_right", comment, field=field))
        comment = "to 0 to 1, in the trainer: images travel as uint8"
        return [*lines, step("normalize", comment, field=field, scale=255.0)]
    if header.dtype == np.float64 and shape:
        comment = "half the bytes; most models compute in float32"
        return [step("cast", comment, field=field, dtype="float32")]
    return []


def _require_samples(file: Path, headers: Mapping[str, Header]) -> None:
    listed = ", ".join(f"{name}: {list(header.shape)}" for name, header in headers.items())
    lengths = {header.shape[0] if header.shape else -1 for header in headers.values()}
    if lengths == {0}:
        raise SourceError(f"{file}: the arrays are empty: {listed}", file=file)
    if -1 in lengths:
        raise SourceError(
            f"{file}: the first dimension of each array must count the samples, but one is a "
            f"single value: {listed}; leave it out",
            file=file,
        )
    if len(lengths) != 1:
        raise SourceError(
            f"{file}: the arrays differ in their first dimension, which counts the samples: "
            f"{listed}; save those of each part of the data in a file of its own: "
            "np.savez('train.npz', image=..., label=...)",
            file=file,
        )
    objects = [name for name, header in headers.items() if header.dtype.hasobject]
    if objects:
        raise SourceError(
            f"{file}: the array {objects[0]!r} holds Python objects; save it with a dtype of "
            "numbers or strings",
            file=file,
        )


def _label_range(files: Sequence[Path], field: str, header: Header) -> str:
    if header.dtype.kind not in "iu":
        return ""
    file = next((each for each in files if each.stem == field), files[0])
    loaded = np.load(file, allow_pickle=False)
    values: Array = loaded[field] if file.suffix == ".npz" else loaded
    classes = len(np.unique(values))
    counted = f", {classes} different" if classes <= _MAX_CLASSES else ""
    return f", from {values.min()} to {values.max()}{counted}"


def _npz_headers(file: Path) -> dict[str, Header]:
    try:
        with zipfile.ZipFile(file) as archive:
            headers = {}
            for name in sorted(archive.namelist()):
                with archive.open(name) as member:
                    headers[name.removesuffix(".npy")] = _read_header(member)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise SourceError(f"cannot read {str(file)!r}: {error_text(error)}", file=file) from error
    if not headers:
        raise SourceError(f"no array in {str(file)!r}", file=file)
    return headers


def _npy_header(file: Path) -> Header:
    try:
        with file.open("rb") as opened:
            return _read_header(opened)
    except (OSError, ValueError) as error:
        raise SourceError(f"cannot read {str(file)!r}: {error_text(error)}", file=file) from error


def _read_header(file: Any) -> Header:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return Header(shape, dtype)


def _type_name(dtype: np.dtype[Any]) -> str:
    return "bytes" if dtype.kind in "SUO" else dtype.name
