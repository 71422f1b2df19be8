"""YOLO text files: one beside each image, with a line for each box."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BeforeValidator
from typing_extensions import override

from infeed.shared.errors import SourceError
from infeed_formats.annotations.rows import RowFields
from infeed_server.config.model import as_tuple
from infeed_server.sources.images.fields import LabelsDefinition
from infeed_server.sources.images.listing import ImageListing
from infeed_server.storage.files import (
    PathString,
    abbreviate,
    absolute_path,
    is_file,
    is_folder,
    read_bytes,
)

log = logging.getLogger(__name__)

_READ_THREADS = 16
"""Threads that read text files: each takes a round trip on a shared file system."""


class YoloLabels(LabelsDefinition):
    """Boxes from YOLO text files: `{yolo: labels/train, names: data.yaml}`.

    Fields, with a row for each line: `boxes`, float32 of two corners as shares of the picture's
    width and height, and `label`, int64. An image without a file has no box.
    """

    yolo: PathString
    names: Annotated[PathString | tuple[str, ...] | None, BeforeValidator(as_tuple)] = None

    @override
    def paths(self) -> dict[str, str]:
        return {"yolo": self.yolo} | ({"names": self.names} if isinstance(self.names, str) else {})

    @override
    def read(self, listing: ImageListing) -> RowFields:
        """Reads the boxes of the images. Raises `SourceError` where no image has a file, and for a
        line that is no box of a class."""
        root = absolute_path(self.yolo)
        if not is_folder(root):
            raise SourceError(f"no folder {root!r} of text files", file=root)
        names = read_names(absolute_path(self.names)) if isinstance(self.names, str) else self.names
        paths = [
            posixpath.join(root, f"{posixpath.splitext(image.path)[0]}.txt")
            for image in listing.images
        ]
        with ThreadPoolExecutor(_READ_THREADS) as pool:
            texts = [*pool.map(lambda path: read_bytes(path) if is_file(path) else None, paths)]
        bare = [number for number, text in enumerate(texts) if text is None]
        if len(bare) == len(paths):
            raise SourceError(
                f"no picture of {listing.root!r} has a text file in {root!r}, such as {paths[0]}",
                file=root,
            )
        if bare:
            shown = abbreviate([listing.images[number].path for number in bare])
            log.warning("%s: %d pictures have no text file, so no box: %s", root, len(bare), shown)
        rows = [
            (number, *_parse(path, line, row, len(names or ())))
            for number, (path, text) in enumerate(zip(paths, texts, strict=True))
            for line, row in enumerate((text or b"").split(b"\n"), 1)
            if row.strip()
        ]
        table = np.array(rows, np.float64).reshape(-1, 6)
        centers, sizes = table[:, 2:4], table[:, 4:]
        boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], 1)
        return RowFields(
            table[:, 0].astype(np.int64),
            {"boxes": boxes.astype(np.float32), "label": table[:, 1].astype(np.int64)},
            len(paths),
            normalized=True,
            class_names=names or (),
        )


def read_names(path: str) -> tuple[str, ...]:
    """Returns the names of the classes in a data.yaml. Raises `SourceError`."""
    try:
        content: Any = yaml.safe_load(read_bytes(path))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} is no YAML: {error}", file=path) from error
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, Mapping) and sorted(names) == [*range(len(names))]:
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise SourceError(f"{path} has no names, a list of the classes or 0: name", file=path)
    return tuple(map(str, names))


def _parse(path: str, line: int, row: bytes, classes: int) -> list[float]:
    """Returns class, centre and size of a box. Raises `SourceError`."""
    problem = "is not: class x y width height"
    try:
        values = [float(word) for word in row.split()]
    except ValueError:
        values = []
    if len(values) > 5:
        problem = f"has {len(values)} numbers; a box has 5, and outlines and points are not read"
    elif len(values) == 5 and not all(-1e-3 <= value <= 1 + 1e-3 for value in values[1:]):
        problem = "has a number that is no share of the picture, from 0 to 1"
    elif len(values) == 5 and (values[0] % 1 or not 0 <= values[0] < (classes or np.inf)):
        problem = f"has the class {values[0]:g}, and there are {classes}: 0 to {classes - 1}"
    elif len(values) == 5:
        return values
    shown = row[:80].decode(errors="replace")
    raise SourceError(f"{path}, line {line}: {shown!r} {problem}", file=path)
