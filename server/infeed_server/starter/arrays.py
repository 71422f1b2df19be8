"""Starters for NumPy files: the arrays of a `.npz`, or one or several `.npy`."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy

from infeed.shared.errors import SourceError
from infeed_server.sources.storage_faults import error_text
from infeed_server.starter.draft import (
    Draft,
    comment,
    is_for_training,
    line,
    pipeline_name,
    relative,
    step,
)
from infeed_server.starter.image_look import FLIP, NORMALIZE, attached_field


class Header(NamedTuple):
    """The shape and type of an array, as its file states them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def arrays_draft(files: Sequence[Path], target: Path) -> Draft:
    """Returns a draft for a `.npz` or for `.npy` files of one length. Raises `SourceError`."""
    first = files[0]
    headers = _headers(files)
    _require_samples(first, headers)
    name = first.stem if len(files) == 1 else first.absolute().parent.name
    paths = {file.stem: relative(file, target) for file in files}
    source = [line("arrays", paths if len(files) > 1 else paths[first.stem])]
    count = next(iter(headers.values())).shape[0]
    draft = Draft(pipeline_name(name), [f"{count} samples"], source, count)
    for field, header in headers.items():
        shape = list(header.shape[1:])
        kind = "bytes" if header.dtype.kind in "SUO" else header.dtype.name
        labels = "" if shape or header.dtype.kind not in "iu" else _values(files, field)
        draft.about.append(f"{field}: {kind}{shape}{labels}")
        attached = attached_field(other for other in headers if other != field)
        draft.transforms += _transforms(field, header, is_for_training(draft.name), attached)
    return draft


def _transforms(field: str, header: Header, training: bool, attached: str) -> list[str]:
    shape = header.shape[1:]
    if header.dtype == np.float64 and shape:
        about = "half the bytes; most models compute in float32"
        return [step("cast", about, field=field, dtype="float32")]
    if header.dtype != np.uint8 or len(shape) < 2:
        return []
    lines = []
    if training and attached:
        lines = [comment(f"no flip, which would not move {attached!r}")]
    elif training and len(shape) == 3 and shape[-1] in (1, 3, 4):
        lines = [step("random_flip_left_right", FLIP, field=field)]
    return [*lines, step("normalize", NORMALIZE, field=field, scale=255.0)]


def _require_samples(file: Path, headers: Mapping[str, Header]) -> None:
    lengths = {header.shape[0] if header.shape else 0 for header in headers.values()}
    if len(lengths) != 1 or 0 in lengths:
        listed = ", ".join(f"{name}: {list(header.shape)}" for name, header in headers.items())
        raise SourceError(
            f"{file}: the first dimension of each array must count the samples, as many in all: "
            f"{listed}; leave out single values, and save the arrays of each part of the data in a "
            "file of its own: np.savez('train.npz', image=..., label=...)",
            file=file,
        )


def _values(files: Sequence[Path], field: str) -> str:
    file = next((file for file in files if file.stem == field), files[0])
    loaded = np.load(file, allow_pickle=False)
    values = np.unique(loaded[field] if file.suffix == ".npz" else loaded)
    return f", from {values[0]} to {values[-1]}, {len(values)} different"


def _headers(files: Sequence[Path]) -> dict[str, Header]:
    headers = {}
    for file in files:
        try:
            if file.suffix == ".npy":
                with file.open("rb") as opened:
                    headers[file.stem] = _read_header(opened)
                continue
            with zipfile.ZipFile(file) as archive:
                for name in sorted(archive.namelist()):
                    with archive.open(name) as member:
                        headers[name.removesuffix(".npy")] = _read_header(member)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise SourceError(
                f"cannot read {str(file)!r}: {error_text(error)}", file=file
            ) from error
    return headers


def _read_header(file: Any) -> Header:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    return Header(shape, dtype)
