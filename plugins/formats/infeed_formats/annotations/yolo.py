"""YOLO text files, one for each image, with a line for each box."""

from __future__ import annotations

import logging
import posixpath
from codecs import BOM_UTF8
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import BeforeValidator
from typing_extensions import override

from infeed.shared.errors import SourceError
from infeed_formats.annotations.picture_sizes import fitting_exif, read_some
from infeed_formats.annotations.rows import RowFields, refuse_repeated
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
"""Threads that read text files; each file costs a round trip on a shared file system."""


_MOST = 10**9
"""Limit on class numbers when no names are given."""


class YoloLabels(LabelsDefinition):
    """Boxes from YOLO text files: `{yolo: labels/train, names: data.yaml}`.

    Fields with a row for each line: `boxes`, float32 corners as shares of the picture's width and
    height, and `label`, int64. An image without a text file has no boxes.
    """

    yolo: PathString
    names: Annotated[PathString | tuple[str, ...] | None, BeforeValidator(as_tuple)] = None

    @override
    def paths(self) -> dict[str, str]:
        return {"yolo": self.yolo} | ({"names": self.names} if isinstance(self.names, str) else {})

    @override
    def read(self, listing: ImageListing) -> RowFields:
        """Reads the boxes of the images. Raises `SourceError` if no image has a text file, or a
        line is not a class and a box."""
        root = absolute_path(self.yolo)
        if not is_folder(root):
            raise SourceError(f"no folder {root!r} with text files", file=root)
        names = read_names(absolute_path(self.names)) if isinstance(self.names, str) else self.names
        refuse_repeated(str(self.names), "classes with one name", names or ())
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
            log.warning("%s: %d pictures without a text file or boxes: %s", root, len(bare), shown)
        rows = [
            (number, *_parse(path, line, row, len(names or ())))
            for number, (path, text) in enumerate(zip(paths, texts, strict=True))
            for line, row in enumerate((text or b"").removeprefix(BOM_UTF8).split(b"\n"), 1)
            if row.strip()
        ]
        table = np.array([box for *_, box in rows], np.float64).reshape(-1, 4)
        centers, sizes = table[:, :2], table[:, 2:]
        boxes = np.concatenate([centers - sizes / 2, centers + sizes / 2], 1)
        return RowFields(
            np.array([number for number, *_ in rows], np.int64),
            {
                "boxes": boxes.astype(np.float32),
                "label": np.array([label for _, label, _ in rows], np.int64),
            },
            len(paths),
            exif=fitting_exif(root, {}, read_some(listing, range(len(paths))), listing),
            normalized=True,
            class_names=names or (),
        )


def read_names(path: str) -> tuple[str, ...]:
    """Returns the class names in a data.yaml. Raises `SourceError`."""
    try:
        content: Any = yaml.safe_load(read_bytes(path))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(f"{path} is not YAML: {error}", file=path) from error
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, Mapping) and sorted(names) == [*range(len(names))]:
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise SourceError(f"{path} has no names: a list, or a mapping such as 0: cat", file=path)
    return tuple(map(str, names))


def _parse(path: str, line: int, row: bytes, classes: int) -> tuple[int, list[float]]:
    """Returns a box as its class, and its centre and size. Raises `SourceError`."""
    label, *words = row.split()
    try:
        values = [float(word) for word in words if b"_" not in word]
    except ValueError:
        values = []
    end = f"{classes - 1}" if classes else f"{_MOST - 1}, as no names are given"
    if len(words) > 4:
        problem = f"has {1 + len(words)} numbers; a box has 5, not an outline or points"
    elif len(values) < 4:
        problem = "is not of the form: class x y width height"
    elif not all(-1e-3 <= value <= 1 + 1e-3 for value in values):
        problem = "has a number outside 0 to 1; they are shares of the picture"
    elif not label.isdigit() or len(label) > 9 or int(label) >= (classes or _MOST):
        problem = f"has a class that is not a whole number from 0 to {end}"
    else:
        return int(label), values
    shown = row[:80].decode(errors="replace")
    raise SourceError(f"{path}, line {line}: {shown!r} {problem}", file=path)
