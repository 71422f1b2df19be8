"""Labels of images: from a CSV of file,label, from folders, or from file names."""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import field_validator

from infeed.shared.errors import SourceError
from infeed_server.config.model import Definition
from infeed_server.sources.images.listing import ImageListing
from infeed_server.storage.files import abbreviate, read_bytes

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_MAX_DIGITS = 40
"""With leading zeros: a longer number is not parsed, as Python would refuse thousands."""
_MAX_SHOWN = 64
"""Characters of a label that an error shows."""


@dataclass(frozen=True)
class Labels:
    """The label of each image, in the order of the listing."""

    values: npt.NDArray[Any]
    """int64, or objects of `bytes`."""
    missing: frozenset[int] = frozenset()
    """Indices of the images without a label."""
    class_names: tuple[str, ...] = ()
    """The name of each class, for labels from folders or file names."""


class FileNameLabels(Definition):
    r"""Labels from file names: `{file_name: '^(\w+)\.'}`.

    The pattern is searched in the name without its folders. Its first group is the class.
    """

    file_name: str

    @field_validator("file_name")
    @classmethod
    def _check(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"is not a valid regular expression ({error})") from None
        if groups != 1:
            raise ValueError(f"should have one group in parentheses, the class; it has {groups}")
        return pattern


def labels_from_file_names(pattern: str, listing: ImageListing) -> Labels:
    """Labels each image with the number of the class in its name. Raises `SourceError`."""
    names = []
    for file in listing.images:
        match = re.search(pattern, posixpath.basename(file.path))
        if match is None or match[1] is None:
            raise SourceError(
                f"labels: the pattern {pattern!r} does not match the name {file.path}",
                file=f"{listing.root}/{file.path}",
            )
        names.append(match[1])
    classes, values = np.unique(names, return_inverse=True)
    return Labels(values.astype(np.int64), class_names=tuple(classes.tolist()))


def labels_from_folders(listing: ImageListing) -> Labels:
    """Labels each image with the number of its top folder. Raises `SourceError` for one in none."""
    loose = [file.path for file in listing.images if "/" not in file.path]
    if loose:
        raise SourceError(
            f"labels: folders takes each image's label from its subfolder of {listing.root!r}, "
            f"but these are in none: {abbreviate(loose)}",
            file=f"{listing.root}/{loose[0]}",
        )
    index = {name: number for number, name in enumerate(listing.folders)}
    values = [index[file.path.partition("/")[0]] for file in listing.images]
    return Labels(np.array(values, np.int64), class_names=listing.folders)


def labels_from_csv(path: str, listing: ImageListing) -> Labels:
    """Reads labels from a CSV with the columns file and label, with or without a header line.
    Labels are int64 if all are integers, else byte strings. Raises `SourceError`, with a line, for
    a row that names no image, a second row of an image, and a row of the wrong width."""
    index = {image.path: number for number, image in enumerate(listing.images)}
    lines: dict[int, int] = {}
    texts = [""] * len(index)
    unknown = []
    for line, file, label in _read_rows(path):
        number = index.get(posixpath.normpath(file))
        if number is None:
            unknown.append(f"line {line}: {file!r}")
            continue
        if number in lines:
            before = f"has a label already, in line {lines[number]}"
            raise SourceError(f"{path}, line {line}: {file!r} {before}", file=path)
        lines[number], texts[number] = line, label
    if unknown:
        raise SourceError(
            f"{path} names files that are not images in {listing.root!r}: "
            f"{abbreviate(unknown)}; the images are named like "
            f"{listing.images[0].path!r}; delete these rows, or let infeed init FOLDER "
            "--labels FILE write a CSV without them",
            file=path,
        )
    if not lines:
        raise SourceError(f"{path} contains no label; it needs rows file,label", file=path)
    missing = frozenset(number for number in range(len(texts)) if number not in lines)
    return Labels(_to_array(texts, path), missing)


def _to_array(texts: Sequence[str], path: str) -> npt.NDArray[Any]:
    """Returns labels as int64, or as `bytes` unless all are integers or missing."""
    if not all(_INTEGER.match(text or "0") for text in texts):
        strings = np.empty(len(texts), object)
        strings[:] = [text.encode() for text in texts]
        return strings
    for text in texts:
        if len(text) > _MAX_DIGITS or not -(1 << 63) <= int(text or 0) < 1 << 63:
            raise SourceError(
                f"{path}: the label {text[:_MAX_SHOWN]} does not fit into 64 bits; number the "
                "classes from 0",
                file=path,
            )
    return np.array([int(text or 0) for text in texts], np.int64)


def read_csv(path: str, delimiters: str = ",") -> list[tuple[int, list[str]]]:
    """Returns number and cells of each row, split by a delimiter. Raises `SourceError`."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8 text", file=path) from error
    delimiter = max(delimiters, key=text.partition("\n")[0].count)
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise SourceError(f"{path}, line {reader.line_num}: {error}", file=path) from error


def _read_rows(path: str) -> Iterator[tuple[int, str, str]]:
    """Yields line number, file and label of each row."""
    table = read_csv(path)
    if not table:
        raise SourceError(f"{path} is empty; it needs the columns file,label", file=path)
    header = [cell.lower() for cell in table[0][1]]
    file, label = 0, 1
    if "file" in header and "label" in header:
        file, label = header.index("file"), header.index("label")
        del table[0]
    elif len(header) != 2:
        names = ", ".join(table[0][1])
        text = f"{path}: the first line names the columns {names}; file and label are required"
        raise SourceError(text, file=path)
    for line, row in table:
        if len(row) != len(header) or not row[file] or not row[label]:
            raise SourceError(
                f"{path}, line {line}: {','.join(row)!r} is not a row of {len(header)} columns "
                "with a file and a label",
                file=path,
            )
        yield line, row[file], row[label]
