"""Names of images in the rows of tables, which may differ from the files' names in many ways."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from infeed_server.sources.images.listing import EXTENSIONS
from infeed_tools.init.listing import role, words

MIN_SHARE = 0.5
"""Share of the rows that must name an image, or of the images that must be named: with less,
unrelated tables would pass for labels."""
_LABEL_WORDS = {"label", "class", "target", "category", "y"}
_LABEL_WORDS |= {"labels", "classes", "targets", "categories", "classname"}
_WORDS_OF_ONE = {"id", "name", "idx", "index"}
"""Words that leave a label's name a label: `class_id`, but not `class_width`."""


class Way(NamedTuple):
    """A way to read which image each row of a table names."""

    column: str
    images: Sequence[str]
    """The image of each row; empty for none."""
    given: str
    """The condition under which the way is right; empty if it is certain."""

    def is_like(self, other: Way) -> bool:
        """Returns whether the two ways never give a row different images."""
        pairs = zip(self.images, other.images, strict=True)
        return all(one == another for one, another in pairs if one and another)


class ImageNames:
    """The names of images: the last parts of their paths, with or without ending."""

    def __init__(self, images: Sequence[str]) -> None:
        self._count = len(images)
        paths = {image: normalize("NFC", image).split("/") for image in images}
        ends: dict[str, str] = {}
        self._depth = 0
        while len({*ends.values()}) < len(paths) and self._depth < max(map(len, paths.values())):
            self._depth += 1
            ends = {image: "/".join(path[-self._depth :]) for image, path in paths.items()}
        self._exact: dict[str, str] = {}
        self._near: dict[str, str] = {}
        self._folders: set[str] = set()
        parts: dict[str, set[str]] = defaultdict(set)
        for image, path in paths.items():
            for start in range(1, min(self._depth, len(path)) + 1):
                end = "/".join(path[-start:])
                for key in (end, end.rpartition(".")[0]):
                    for names, name in ((self._exact, key), (self._near, _fold(key))):
                        # A name shared by several images names none.
                        names[name] = image if names.setdefault(name, image) == image else ""
            folders = [*accumulate(image.split("/")[:-1], posixpath.join)]
            self._folders.update(folders)
            if part := next((one for one in folders if role(posixpath.basename(one))), ""):
                parts[role(posixpath.basename(part))].add(part)
        self._parts = {part: min(found) for part, found in parts.items() if len(found) == 1}

    def ways(
        self, file: str, columns: Mapping[str, Sequence[str]], folder: str, share: float
    ) -> tuple[list[Way], bool]:
        """Returns the columns that name at least this share of the images, each in a different way,
        and whether the first is certain. It is if only its names are full, or if only it names
        every image once."""
        places: list[tuple[str, Iterable[str]]] = [("", repeat(folder))]
        if part := self._parts.get(role(posixpath.basename(file)), ""):
            places.append((f"{file} has names in {part}", repeat(part)))
        for name, cells in columns.items():
            if are_parts(cells):
                inside = [self._parts.get(role(cell), folder) for cell in cells]
                places.append((f"column {name} has their folders", inside))
        ranked: list[tuple[tuple[bool, bool], Way]] = []
        others = 0
        for name, texts in columns.items():
            read = [Way(name, self._find(texts, place), given) for given, place in places]
            way = max(read, key=lambda way: len({*way.images}))
            count, is_full = len({*way.images} - {""}), _are_files(texts)
            least = share * min(len(texts), self._count) or 1
            # Numbers of rows or classes may look like names without endings.
            is_number = has_label_word(name) or way.images.count("") > MIN_SHARE * len(texts)
            others += is_full and count < least
            if count >= least and (is_full or not is_number):
                ranked.append(((is_full, count == len(texts) == self._count), way))
        ranked.sort(key=lambda one: one[0], reverse=True)
        ways: list[Way] = []
        for _, way in ranked:
            if not any(map(way.is_like, ways)):
                ways.append(way)
        ranks = [rank for rank, way in ranked if way in ways]
        is_certain = bool(ranks) and (ranks[0][0] or not others) and ranks[0] not in ranks[1:]
        return ways, is_certain

    def problem(self, columns: Mapping[str, Sequence[str]], folder: str) -> str:
        """Returns the reason that a table names no images."""
        for texts in columns.values():
            found = [self._exact.get(self._end(folder, text)) for text in texts]
            if found.count("") > MIN_SHARE * len(found):
                return "name several images; write their folders and endings"
        return "name no images"

    def _find(self, texts: Sequence[str], folders: Iterable[str]) -> list[str]:
        """Returns the image that each text names: exactly, or else folded and without a folder."""
        ends, near = [], []
        for text, folder in zip(texts, folders, strict=False):
            end = self._end(folder, text)
            ends.append(self._exact.get(end, ""))
            is_whole = len(re.split(r"[\\/]", text)) <= self._depth
            near.append(self._near.get(_fold(end), "") if is_whole else "")
        # An image that one row names exactly belongs to no other row.
        named = {*ends}
        return [
            end or (image if image not in named else "")
            for end, image in zip(ends, near, strict=True)
        ]

    def _end(self, folder: str, text: str) -> str:
        """Returns the end of a path in a table, given the table's folder, as long as needed to tell
        images apart."""
        folder = folder if folder in self._folders else ""  # a folder of tables only
        path = posixpath.normpath(f"{folder}/{text}".strip("/").replace("\\", "/"))
        return "/".join(normalize("NFC", path).split("/")[-self._depth :])


def difference(text: str, image: str) -> str:
    """Returns how a text differs from its image's name; empty if it does not, ending aside."""
    name, file = (normalize("NFC", re.split(r"[\\/]", path)[-1]) for path in (text, image))
    return "" if name in (file, file.rpartition(".")[0]) or not image else f"{text!r} is {image}"


def are_parts(cells: Sequence[str]) -> bool:
    """Returns whether cells name parts of the data, such as `train` and `test`."""
    values = {*cells} - {""}
    return 1 < len(values) <= len(cells) / 2 and all(map(role, values))


def _are_files(texts: Sequence[str]) -> bool:
    """Returns whether most texts are names of images with their endings."""
    given = [text.lower().endswith(EXTENSIONS) for text in texts if text]
    return sum(given) > MIN_SHARE * len(given)


def _fold(name: str) -> str:
    """Returns a name without the usual differences: case, ending, Unicode form, URL escapes and
    leading zeros."""
    text = normalize("NFC", unquote(name)).casefold().strip()
    text = text.rpartition(".")[0] if text.endswith(EXTENSIONS) else text
    text = re.sub(r"(?<![^/])([0-9]+)\.0$", r"\1", text)  # as pandas writes integers
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def says_label(name: str, others: Iterable[str]) -> bool:
    """Returns whether a column's name says that it is the label. Next to an `x`, `y` is a place."""
    kinds = {*words(name)} - _WORDS_OF_ONE
    is_y = kinds == {"y"} and "x" not in map(str.lower, others)
    is_label = bool(kinds) and kinds <= _LABEL_WORDS - {"y"}
    return (is_y or is_label) and not re.search("[0-9]", name)  # not `class_1`, one of several


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, contains a word for labels."""
    return not _LABEL_WORDS.isdisjoint(words(name))
