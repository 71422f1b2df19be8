"""Labels of images: from a table of files and labels, from folders, or from file names."""

from __future__ import annotations

import logging
import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from typing_extensions import override

from infeed.shared.doors import Door
from infeed.shared.errors import InfeedError, SourceError
from infeed_server.config.model import as_tuple, did_you_mean
from infeed_server.sources.base import Columns
from infeed_server.sources.class_names import is_integer
from infeed_server.sources.images.fields import ImageFields, LabelsDefinition
from infeed_server.sources.images.listing import ImageListing
from infeed_server.sources.images.table import read_rows
from infeed_server.sources.places import Indices
from infeed_server.storage.files import PathString, abbreviate, absolute_path

log = logging.getLogger(__name__)

_DOOR = Door("infeed.labels", "kind of labels")

_LABEL = "label"

_MAX_SHOWN = 64
"""Characters of a label shown in an error."""


@dataclass(frozen=True)
class Labels(ImageFields):
    """The label of each image: `values` are int64 or `bytes` objects; `class_names` are the names
    of the classes if the labels are their numbers."""

    values: npt.NDArray[Any]
    missing: frozenset[int] = frozenset()
    class_names: tuple[str, ...] = ()
    table: str = ""

    @property
    @override
    def columns(self) -> Mapping[str, tf.TensorSpec]:
        strings = self.values.dtype == object
        return {_LABEL: tf.TensorSpec((), tf.string if strings else tf.int64)}

    @property
    @override
    def classes(self) -> Mapping[str, Sequence[str]]:
        return {_LABEL: self.class_names} if self.class_names else {}

    @override
    def read(self, indices: Indices) -> Columns:
        return {_LABEL: self.values[indices]}

    @override
    def digest(self, index: int) -> bytes:
        label = self.values[index]
        return label if isinstance(label, bytes) else str(label).encode()

    @override
    def known_fields(self) -> Mapping[str, npt.NDArray[Any]]:
        return {_LABEL: self.values}


class FileNameLabels(LabelsDefinition):
    r"""Labels from file names: `{file_name: '^(\w+)\.'}`.

    The pattern is searched in the file name, without folders. Its first group is the class.
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

    def read(self, listing: ImageListing) -> Labels:
        """Labels each image with the number of the class in its name. Raises `SourceError`."""
        names = []
        for file in listing.images:
            match = re.search(self.file_name, posixpath.basename(file.path))
            if match is None or match[1] is None:
                raise SourceError(
                    f"the pattern {self.file_name!r} does not match the name {file.path}",
                    file=f"{listing.root}/{file.path}",
                )
            names.append(match[1])
        classes, values = np.unique(names, return_inverse=True)
        return Labels(values.astype(np.int64), class_names=tuple(classes.tolist()))


def _check_different(classes: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for number, name in enumerate(classes) if name in classes[:number]]:
        raise ValueError(f"has {twice[0]!r} twice")
    return classes


_Classes = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(min_length=1, examples=["[cat, dog]"]),
    BeforeValidator(as_tuple),
    AfterValidator(_check_different),
]


class FolderLabels(LabelsDefinition):
    """Labels from folders, numbered as they are listed: `{folders: [cat, dog]}`."""

    folders: _Classes

    def read(self, listing: ImageListing) -> Labels:
        """Labels each image with the number of its top folder, in the order listed or sorted.
        Raises `SourceError` for an image outside of them."""
        if loose := [file.path for file in listing.images if "/" not in file.path]:
            raise SourceError(
                f"folders takes each image's label from its subfolder of {listing.root!r}, "
                f"but these are in none: {abbreviate(loose)}",
                file=f"{listing.root}/{loose[0]}",
            )
        classes = self.folders
        if classes:
            names, index = Names(classes), dict[str, int]()
            for folder in listing.folders:
                subject = f"the folder {folder!r} of {listing.root!r}"
                index[folder] = _class_number(folder, names, subject)
            without = [name for n, name in enumerate(classes) if n not in index.values()]
        else:
            index = {name: number for number, name in enumerate(listing.folders)}
            without = [*listing.empty_folders]
            _warn_of_wrong_folders(listing)
        if without:
            of = "listed classes" if classes else "folders, which is not a class"
            named = abbreviate(without)
            log.warning("%s: no image in %d of the %s: %s", listing.root, len(without), of, named)
        values = [index[file.path.partition("/")[0]] for file in listing.images]
        return Labels(np.array(values, np.int64), class_names=classes or listing.folders)


class TableLabels(LabelsDefinition):
    """Labels from a table, numbered as listed: `{table: labels.csv, classes: [cat, dog]}`."""

    table: PathString
    classes: _Classes = ()

    @override
    def paths(self) -> dict[str, str]:
        return {"table": self.table}

    def read(self, listing: ImageListing) -> Labels:
        """Reads labels from a CSV or JSON lines with the columns file and label; the CSV header is
        optional. Labels become their class numbers or, without classes, int64 if all are integers,
        else byte strings. Raises `SourceError`, with the line, for a row that names no image, an
        image's second row, a row of the wrong width, or a label outside the classes."""
        path = absolute_path(self.table)
        images = Names([image.path for image in listing.images])
        lines: dict[int, int] = {}
        texts = [""] * len(listing.images)
        unknown = []
        for line, file, label in read_rows(path):
            numbers = images.find(posixpath.normpath(file))
            if len(numbers) != 1:
                forms = f", which {len(numbers)} images are called in other Unicode forms"
                unknown.append(f"line {line}: {file!r}{forms * bool(numbers)}")
                continue
            number = numbers[0]
            if number in lines:
                before = f"already has a label, on line {lines[number]}"
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
            raise SourceError(f"{path} has no labels; it needs rows of file,label", file=path)
        missing = [number for number in range(len(texts)) if number not in lines]
        if not self.classes:
            return Labels(_to_array(texts), frozenset(missing), table=path)
        names, values = Names(self.classes), np.zeros(len(texts), np.int64)
        for number, line in lines.items():
            subject = f"{path}, line {line}: the label {texts[number][:_MAX_SHOWN]!r}"
            values[number] = _class_number(texts[number], names, subject)
        return Labels(values, frozenset(missing), self.classes, path)


def choose_kind(value: Any) -> Any:
    """Returns labels from a mapping. For a union, pydantic would report every kind's errors."""
    if not isinstance(value, dict):
        return value
    for kind in (FolderLabels, FileNameLabels, TableLabels):
        if not value.keys().isdisjoint(kind.model_fields):
            return kind.model_validate(value)
    offered = [name for name in _DOOR.names() if name in value]
    if len(offered) != 1:
        raise ValueError(
            "should have the key folders, a list of them, file_name, a pattern, or table and "
            f"classes, or {', '.join(_DOOR.names())}"
        )
    try:
        return _DOOR.load(offered[0]).model_validate(value)
    except InfeedError as error:
        raise ValueError(error.message) from error


def _warn_of_wrong_folders(listing: ImageListing) -> None:
    """Warns about a single class, and about folders named by other numbers than their classes':
    text sorts 10 before 2."""
    if len(listing.folders) == 1:
        log.warning(
            "%s: all images are in the folder %s, so all labels are 0; if its folders are the "
            "classes, write images: %s/%s",
            *(listing.root, listing.folders[0], listing.root, listing.folders[0]),
        )
    if not all(folder.isdecimal() for folder in listing.folders):
        return
    numbers = sorted(listing.folders, key=int)
    moved = next((n for n, name in enumerate(listing.folders) if name != numbers[n]), None)
    if moved is not None:
        log.warning(
            "%s: the folder %s is class %d, because folders are sorted as text; to sort them as "
            "numbers, write labels: {folders: ['%s']}",
            *(listing.root, listing.folders[moved], moved, "', '".join(numbers)),
        )


def _class_number(name: str, classes: Names, subject: str) -> int:
    numbers = classes.find(name)
    if len(numbers) == 1:
        return numbers[0]
    near = f"{did_you_mean(name, [*classes.names])}; correct it, or add it at the end"
    raise SourceError(f"{subject} is not in the list of classes{near}")


def _to_array(texts: Sequence[str]) -> npt.NDArray[Any]:
    """Returns labels as int64, or as `bytes` unless all are integers or missing."""
    if all(is_integer(text or "0") for text in texts):
        return np.array([int(text or 0) for text in texts], np.int64)
    strings = np.empty(len(texts), object)
    strings[:] = [text.encode() for text in texts]
    return strings


class Names:
    """The numbers of names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._exact = {name: number for number, name in enumerate(names)}

    def find(self, name: str) -> Sequence[int]:
        """Returns the number of a name or, if it is unknown, of its other Unicode forms: some
        systems write `é` as one character, others as two."""
        if name in self._exact:
            return [self._exact[name]]
        return self._composed.get(unicodedata.normalize("NFC", name), [])

    @cached_property
    def _composed(self) -> Mapping[str, Sequence[int]]:
        numbers: dict[str, list[int]] = {}
        for number, name in enumerate(self.names):
            numbers.setdefault(unicodedata.normalize("NFC", name), []).append(number)
        return numbers
