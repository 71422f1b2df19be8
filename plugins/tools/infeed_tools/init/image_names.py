"""Names of images in the rows of tables, which differ from the files' names in many ways."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from unicodedata import normalize
from urllib.parse import unquote

from infeed_server.sources.images.listing import EXTENSIONS
from infeed_tools.init.listing import words

MIN_SHARE = 0.5
"""Share of the rows that must name an image, or of the images that must be named: with less, a
table of something else is taken for one of labels."""
_LABEL_WORDS = {"label", "class", "target", "category", "y"}
_LABEL_WORDS |= {"labels", "classes", "targets", "categories", "classname"}


class ImageNames:
    """The names of images: the ends of paths that tell them apart, with or without ending."""

    def __init__(self, images: Iterable[str]) -> None:
        paths = {image: normalize("NFC", image).split("/") for image in images}
        ends: dict[str, str] = {}
        self._depth = 0
        while len({*ends.values()}) < len(paths) and self._depth < max(map(len, paths.values())):
            self._depth += 1
            ends = {image: "/".join(path[-self._depth :]) for image, path in paths.items()}
        self._exact: dict[str, str] = {}
        self._near: dict[str, str] = {}
        for image, end in ends.items():
            for key in (end, end.rpartition(".")[0]):
                self._exact[key] = "" if key in self._exact else image
                self._near[_fold(key)] = "" if _fold(key) in self._near else image

    def best(self, columns: Mapping[str, Sequence[str]], folder: str) -> tuple[str, Sequence[str]]:
        """Returns the column that names the most images, and the image of each row, or none."""
        best: tuple[tuple[bool, int], str, Sequence[str]] = ((False, 0), "", ())
        for name, texts in columns.items():
            named = self._find(texts, folder)
            has_endings = any(text.lower().endswith(EXTENSIONS) for text in texts)
            # Numbers of rows and of classes can be names without ending.
            is_number = has_label_word(name) or named.count("") > MIN_SHARE * len(named)
            score = has_endings, len({*named} - {""})
            if score > best[0] and score[1] and (has_endings or not is_number):
                best = (score, name, named)
        return best[1:]

    def _find(self, texts: Sequence[str], folder: str) -> list[str]:
        """Returns the image that each text names, as it is, or else folded without a folder."""
        ends, near = [], []
        for text in texts:
            path = posixpath.normpath(f"{folder}/{text}".strip("/").replace("\\", "/"))
            parts = normalize("NFC", path).split("/")
            ends.append(self._exact.get("/".join(parts[-self._depth :]), ""))
            near.append(self._near.get(_fold(path), "") if len(parts) <= self._depth else "")
        # An image that a row names as it is is no other row's.
        named = {*ends}
        return [
            end or (image if image not in named else "")
            for end, image in zip(ends, near, strict=True)
        ]


def difference(text: str, image: str) -> str:
    """Returns how a text differs from the name of its image, with or without ending."""
    name, file = (normalize("NFC", re.split(r"[\\/]", path)[-1]) for path in (text, image))
    return "" if name in (file, file.rpartition(".")[0]) or not image else f"{text!r} is {image}"


def _fold(name: str) -> str:
    """Returns a name without what often differs: case, Unicode form, escapes of URLs, zeros."""
    text = normalize("NFC", unquote(name)).casefold().strip()
    text = re.sub(r"(?<![^/])([0-9]+)\.0$", r"\1", text)  # of pandas
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def has_label_word(name: str) -> bool:
    """Returns whether a name, such as `class_id` or `ClassId`, has the word of a label."""
    return not _LABEL_WORDS.isdisjoint(words(name))
