"""COCO JSON: the boxes, categories and key points of images."""

from __future__ import annotations

import json
import logging
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict, override

from infeed.shared.errors import SourceError, format_path
from infeed_formats.annotations.picture_sizes import (
    check_sizes,
    fitting_exif,
    read_some,
    refuse_exchanged,
    warn_of_corners,
)
from infeed_formats.annotations.rows import RowFields, refuse_repeated
from infeed_server.config.model import explain
from infeed_server.sources.images.fields import LabelsDefinition
from infeed_server.sources.images.labels import Names
from infeed_server.sources.images.listing import ImageListing
from infeed_server.storage.files import PathString, abbreviate, absolute_path, read_bytes

log = logging.getLogger(__name__)

KEYS = frozenset({"images", "annotations", "categories"})
"""The keys of a COCO file."""

_Items = Sequence[Mapping[str, Any]]

_Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e9, le=1e9)]
_Id = int | str


class _Image(TypedDict):
    id: _Id
    file_name: str
    width: NotRequired[int | None]
    height: NotRequired[int | None]


class _Category(TypedDict):
    id: int
    name: str


class _Annotation(TypedDict):
    id: NotRequired[Any]
    image_id: _Id
    category_id: int
    bbox: Annotated[list[_Number], Field(min_length=4, max_length=4)]
    iscrowd: NotRequired[Annotated[int, Field(ge=0, le=1)]]
    keypoints: NotRequired[list[_Number] | None]


class _Content(TypedDict):
    """The parts of a file that infeed reads."""

    images: list[_Image]
    categories: list[_Category]
    annotations: list[_Annotation]


_CONTENT = TypeAdapter(_Content)


class CocoLabels(LabelsDefinition):
    """Boxes from COCO JSON: `{coco: instances_train.json}`.

    Fields with a row for each annotation: `boxes`, float32 corners in pixels; `label`, int64, the
    category's place in the order of ids; `iscrowd`; and `keypoints`, if there are any.
    """

    coco: PathString

    @override
    def paths(self) -> dict[str, str]:
        return {"coco": self.coco}

    @override
    def read(self, listing: ImageListing) -> RowFields:
        """Reads the annotations of the images. Raises `SourceError` for a missing or repeated
        image, an invalid value, and an annotation whose image or category is unknown."""
        path = absolute_path(self.coco)
        content = _checked(path, read_coco(path))
        numbers = _image_numbers(path, content["images"], listing)
        stated = {
            numbers[image["id"]]: (image["width"], image["height"])
            for image in content["images"]
            if image.get("width") and image.get("height")
        }
        headers = read_some(listing, {*numbers.values()})
        check_sizes(path, stated, headers, listing)
        categories = sorted(content["categories"], key=lambda category: category["id"])
        labels = {category["id"]: number for number, category in enumerate(categories)}
        for place, annotation in enumerate(content["annotations"]):
            if problem := _problem(annotation, numbers, labels):
                shown = f"annotations[{place}], id {annotation.get('id')!r}"
                raise SourceError(f"{path}: {shown}: {problem}", file=path)
        annotations = _with_area(path, content["annotations"])
        _warn_of_repeated(path, "id of an annotation", annotations)
        _warn_of_repeated(path, "file_name", content["images"])
        boxes = np.array([one["bbox"] for one in annotations], np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        if len(boxes) and boxes.max() <= 1:
            raise SourceError(
                f"{path}: no bbox exceeds 1, so they look like shares of the picture; COCO uses "
                "pixels: multiply them by the picture's width and height",
                file=path,
            )
        rows = [numbers[one["image_id"]] for one in annotations]
        certain = {n: one.size for n, one in headers.items() if one.size == one.turned_size}
        refuse_exchanged(path, rows, boxes, stated, headers, listing)
        warn_of_corners(path, annotations, rows, boxes, certain | stated)
        crowds = [one.get("iscrowd", 0) for one in annotations]
        fields: dict[str, npt.NDArray[Any]] = {
            "boxes": boxes.astype(np.float32),
            "label": np.array([labels[one["category_id"]] for one in annotations], np.int64),
            "iscrowd": np.array(crowds, np.int64),
            **_keypoints(path, annotations),
        }
        missing = sorted({*range(len(listing.images))} - {*numbers.values()})
        return RowFields(
            np.array(rows, np.int64),
            fields,
            len(listing.images),
            exif=fitting_exif(path, stated, headers, listing),
            class_names=tuple(category["name"] for category in categories),
            missing=missing,
            table=path,
        )


def read_coco(path: str) -> Mapping[str, _Items]:
    """Returns the content of a file. Raises `SourceError` if it is not COCO JSON."""
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not JSON: {error}", file=path) from error
    lists = [content.get(key) for key in KEYS] if isinstance(content, dict) else [None]
    if not all(isinstance(items, list) for items in lists):
        keys = ", ".join(sorted(KEYS))
        raise SourceError(f"{path} is not COCO JSON: it needs the lists {keys}", file=path)
    found: Mapping[str, _Items] = content
    return found


def _checked(path: str, content: Mapping[str, _Items]) -> Mapping[str, _Items]:
    """Returns the parts that are read. Raises `SourceError` for an invalid or repeated value."""
    try:
        checked: Mapping[str, Any] = _CONTENT.validate_python(content)
    except ValidationError as error:
        (place, problem), *_ = explain(error, content)
        problem += ", not null" * (error.errors()[0]["input"] is None)
        problem += "; a bbox is [x, y, width, height]" * ("bbox" in place)
        raise SourceError(f"{path}: {format_path(place)}: {problem}", file=path) from None
    for items, key in (("images", "id"), ("categories", "id"), ("categories", "name")):
        refuse_repeated(path, f"{items} with one {key}", [item[key] for item in checked[items]])
    return checked


def _image_numbers(path: str, images: _Items, listing: ImageListing) -> dict[Any, int]:
    """Returns the number of each image by its id. Raises `SourceError` for a missing one."""
    names = Names([image.path for image in listing.images])
    root = f"{listing.root.rstrip('/')}/"
    numbers: dict[Any, int] = {}
    unknown = []
    for image in images:
        found = names.find(posixpath.normpath(image["file_name"]).removeprefix(root))
        if len(found) == 1:
            numbers[image["id"]] = found[0]
        else:
            unknown.append(repr(image["file_name"]))
    if unknown:
        raise SourceError(
            f"{path}: {len(unknown)} of its {len(images)} pictures are not in "
            f"{listing.root!r}: {abbreviate(unknown)}; the names there look like "
            f"{listing.images[0].path!r}; give their folder as images, or delete their entries",
            file=path,
        )
    return numbers


def _problem(
    annotation: Mapping[str, Any], images: Mapping[Any, int], labels: Mapping[Any, int]
) -> str:
    """Returns what is wrong with an annotation; empty if nothing is."""
    box = annotation["bbox"]
    if min(box[2:]) < 0:
        return f"its bbox {box} has a negative width or height"
    known: Mapping[str, Mapping[Any, int]] = {"image": images, "category": labels}
    for name, numbers in known.items():
        if (number := annotation[f"{name}_id"]) not in numbers:
            ids = f"ids look like {next(iter(numbers))!r}" if numbers else "the file has none"
            return f"no {name} has its {name}_id {number!r}; {ids}"
    return ""


def _with_area(path: str, annotations: _Items) -> _Items:
    """Returns the annotations whose box has an area, as even COCO's own files have empty boxes."""
    kept = [one for one in annotations if min(one["bbox"][2:]) > 0]
    if len(kept) < len(annotations):
        ids = [str(one.get("id")) for one in annotations if min(one["bbox"][2:]) == 0]
        log.warning("%s: skipped %d boxes without an area: %s", path, len(ids), abbreviate(ids))
    return kept


def _warn_of_repeated(path: str, key: str, items: _Items) -> None:
    """Warns of items that share a value, because their boxes may be duplicates."""
    counts = Counter(str(item.get(key.split(maxsplit=1)[0])) for item in items)
    if repeated := [value for value, count in counts.items() if count > 1]:
        log.warning(
            "%s: the %s repeats %d times, so boxes may be duplicates: %s",
            *(path, key, len(items) - len(counts), abbreviate(repeated)),
        )


def _keypoints(path: str, annotations: _Items) -> dict[str, npt.NDArray[Any]]:
    """Returns the key points, with zeros for an annotation without any; empty if all have none."""
    points = [one.get("keypoints") or [] for one in annotations]
    if not any(points):
        return {}
    lengths = {len(one) for one in points} - {0}
    if len(lengths) > 1 or next(iter(lengths)) % 3:
        raise SourceError(
            f"{path}: keypoints have {sorted(lengths)} numbers; all need the same 3 x n", file=path
        )
    length = lengths.pop()
    flat = [*chain.from_iterable(one or [0] * length for one in points)]
    return {"keypoints": np.array(flat, np.float32).reshape(len(points), length // 3, 3)}
