"""Class folders: labels that the folders of images give, and the doubts about them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from unicodedata import normalize

from infeed_server.starter.csv_tables import Column, classes_of
from infeed_server.starter.listing import role
from infeed_server.storage.files import abbreviate


@dataclass
class Part:
    """A folder below the tree's, empty for all of it; images and their labels by paths in it."""

    folder: str
    images: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        return {*self.labels.values()}


@dataclass
class Reading:
    """Parts, and what their label is."""

    options: dict[str, str]
    parts: Sequence[Part]
    label: str
    column: Column | None = None
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[str]:
        """The labels of all images that have one."""
        return [text for part in self.parts for text in part.labels.values()]

    @property
    def classes(self) -> list[str]:
        """The names of the labels, by number; none for values that are no classes."""
        if self.column:
            return classes_of(self.values)
        names = sorted({*self.values})
        return sorted(names, key=int) if all(map(str.isdecimal, names)) else names

    def describe(self) -> str:
        """Returns the reading as a choice."""
        parts = [part.folder for part in self.parts if part.folder]
        text = f"parts: {abbreviate(parts)}; " if len(parts) > 1 else ""
        if not self.values:
            return f"{text}no label"
        names, images = sorted({*self.values}), sum(len(part.images) for part in self.parts)
        text += f"label is the {self.label}, {len(names)} for {len(self.values)} of {images} images"
        near = f", if {self.column.near}" if self.column and self.column.near else ""
        return f"{text}: {abbreviate([name[:20] for name in names], 3)}{near}"


def number_alike(reading: Reading) -> None:
    """Gives the classes of all parts the names that the part with most of them has, and notes why
    the folders may be no classes."""
    doubts = reading.doubts
    first = max(reading.parts, key=lambda part: len(part.names))
    known = {same_name(name): name for name in sorted(first.names, reverse=True)}
    if len(first.names) > len(known):
        doubts.append("names of folders differ in case, spaces or Unicode form only")
        known = {}
    for part in reading.parts:
        names = {name: known.get(same_name(name), name) for name in sorted(part.names)}
        is_other = first.names.isdisjoint(names.values())
        if len(first.names) < 2 or (is_other and len(names) < 2):
            part.labels = {}
            if len(first.names) > 1:
                where = f"in no class folder, such as {part.images[0]}"
                reading.notes.append(f"{part.folder} has no label: its images are {where}")
            continue
        if is_other:
            doubts.append(f"{part.folder} has no class folder of {first.folder}")
        if loose := [image for image in part.images if image not in part.labels]:
            doubts.append(f"{len(loose)} images are in no class folder, such as {loose[0]}")
        if renamed := [f"{old!r} as {new!r}" for old, new in names.items() if old != new]:
            reading.notes.append(f"{part.folder} is numbered alike: {abbreviate(renamed)}")
        part.labels = {image: names[name] for image, name in part.labels.items()}
    doubts += _doubts(first)


def _doubts(part: Part) -> Iterator[str]:
    """Yields why the folders of a part may be no classes."""
    if like := [name for name in sorted(part.names) if role(name)]:
        yield f"{abbreviate(like)} could be parts of the data"
    matches = [re.fullmatch(r"(.*[a-zA-Z].*?)(\d+)", name) for name in part.names]
    numbered = [(match[1], int(match[2])) for match in matches if match]
    numbers = sorted(number for _, number in numbered)
    is_alike = len(numbered) == len(matches) > 1 and len({prefix for prefix, _ in numbered}) == 1
    if is_alike and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        yield f"folders numbered as {min(part.names)} could only divide the files"
    files: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in part.names}
    for image, name in part.labels.items():
        for known, text in zip(
            files[name], posixpath.splitext(posixpath.basename(image)), strict=True
        ):
            known.add(text)
    ordered = sorted(files.items(), key=lambda item: len(item[1][0]))
    is_same = len({frozenset(stems) for stems, _ in files.values()}) == 1 < len(files)
    for (one, (stems, endings)), (other, (more, others)) in pairwise(ordered):
        if is_same or (stems <= more and endings.isdisjoint(others)):
            yield f"files in {one} and {other} have the same names, as images and their masks"
            return


@cache
def same_name(name: str) -> str:
    """Returns a name without case, spaces around it and its form in Unicode."""
    return normalize("NFC", name).casefold().strip()
