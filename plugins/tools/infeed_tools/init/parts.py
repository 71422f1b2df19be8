"""Parts of a folder of images, and reasons why their folders may not be classes."""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple
from unicodedata import normalize

from infeed_server.storage.files import abbreviate
from infeed_tools.init.listing import role, words

_DATE = re.compile(r"(19|20)\d\d([-_.]?)(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?!\d)")


class Part(NamedTuple):
    """A folder in the tree, empty for the whole tree; images and labels are by paths in it."""

    folder: str
    images: Sequence[str]
    labels: dict[str, str]
    has_folders: bool = False
    """Whether its labels are its class folders."""

    @property
    def names(self) -> set[str]:
        return {*self.labels.values()}


def judge(parts: Sequence[Part]) -> Iterator[str]:
    """Clears the labels of parts without class folders; yields why folders may not be classes."""
    first = max(parts, key=lambda part: len(part.names))
    known = {*map(fold_name, first.names)}
    for part in parts:
        is_other = known.isdisjoint(map(fold_name, part.names))
        if len(first.names) < 2 or (is_other and len(part.names) < 2):
            part.labels.clear()
        elif is_other:
            yield f"{part.folder} has none of the class folders of {first.folder}"
        elif loose := [image for image in part.images if image not in part.labels]:
            yield f"{len(loose)} images are in no class folder, such as {loose[0]}"
    names = {name for part in parts for name in part.names}
    if len({*map(fold_name, names)}) < len(names):
        yield "names of folders differ only in case, spaces or Unicode form"
    if like := [name for name in sorted(names) if role(name)]:
        yield f"{abbreviate(like)} could be parts of the data"
    matches = [re.fullmatch(r"(.*[a-zA-Z].*?)(\d+)", name) for name in names]
    numbers = sorted(int(match[2]) for match in matches if match)
    is_alike = len({match and match[1] for match in matches}) == 1 < len(numbers)
    is_alike = is_alike and numbers == [*range(numbers[0], numbers[-1] + 1)]
    if is_alike or (names and all(map(_DATE.match, names))) or _goes_on(first):
        yield f"folders numbered like {min(names)} may merely divide the files"
    if names_of_pair := pair(first):
        images, masks = ({*_stems(first)[name]} for name in _masks_last(first, names_of_pair))
        rule = (
            "one 8-bit PNG with few greys or a palette for each image"
            if images & masks
            else f"named like their images, such as {min(images)}.png, not {min(masks)}.png"
        )
        yield (
            f"files in {' and '.join(names_of_pair)} have the same names or numbers, like images "
            f"and their masks: masks must be {rule}; for other pairs, write a source python "
            "(docs/python-sources.md)"
        )


def _goes_on(part: Part) -> bool:
    """Returns whether the files' numbers continue from folder to folder, in the order of the
    folders, and no folder's name has a word."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for image, name in part.labels.items():
        found = re.findall(r"\d+", posixpath.splitext(posixpath.basename(image))[0])
        if words(name) or not found:
            return False
        numbers[name].append(int(found[-1]))
    names = sorted(numbers, key=lambda name: [*map(int, re.findall(r"\d+", name))])
    return len(names) > 1 and all(max(numbers[a]) < min(numbers[b]) for a, b in pairwise(names))


def pair(part: Part) -> list[str]:
    """Returns two folders that may be images and their masks: their files have the same names, or
    names that differ only in a prefix or suffix shared by all files of a folder, as in
    `rgb/r001.jpg` and `depth/d001.png`, or `images/a.png` and `masks/a_mask.png`."""
    stems = _stems(part)
    endings: dict[str, set[str]] = defaultdict(set)
    for image, name in part.labels.items():
        endings[name].add(posixpath.splitext(image)[1])
    affixes = {name: _affixes(found) for name, found in stems.items()}
    bare = {
        name: {stem[len(start) : len(stem) - len(end)] for stem in stems[name]}
        for name, (start, end) in affixes.items()
    }
    is_class = all(
        name.casefold() in {affix.strip("-_. ").casefold() for affix in affixes[name]}
        for name in stems
    )  # as in A/A001.jpg
    for given in (stems,) if is_class else (stems, bare):
        names = sorted(given, key=lambda name: len(given[name]))
        is_same = len({frozenset(found) for found in given.values()}) == 1
        for one, other in pairwise(names):
            if is_same or (given[one] <= given[other] and endings[one].isdisjoint(endings[other])):
                return [one, other]
    return []


def _masks_last(part: Part, names: Sequence[str]) -> list[str]:
    """Returns two folders of a pair, last the one that seems to have the masks: PNGs beside photos,
    or the longer names."""

    def likeness(name: str) -> tuple[bool, int]:
        files = [image for image, folder in part.labels.items() if folder == name]
        stems = _stems(part)[name]
        return all(file.lower().endswith(".png") for file in files), max(map(len, stems))

    return sorted(names, key=likeness)


def _stems(part: Part) -> dict[str, set[str]]:
    """Returns the names of the files in each class folder, without their endings."""
    stems: dict[str, set[str]] = defaultdict(set)
    for image, name in part.labels.items():
        stems[name].add(posixpath.splitext(posixpath.basename(image))[0])
    return stems


def _affixes(stems: set[str]) -> tuple[str, str]:
    """Returns the common prefix and suffix of several names, without digits of their numbers."""
    if len(stems) < 2:
        return "", ""
    start = os.path.commonprefix([*stems]).rstrip("0123456789")  # noqa: RUF071 - of names
    rests = [stem.removeprefix(start)[::-1] for stem in stems]
    end = os.path.commonprefix(rests)[::-1].lstrip("0123456789")  # noqa: RUF071 - of names
    return start, end


def twins(images: Sequence[str]) -> str:
    """Returns a file that may be another one's mask, because its name is the other's plus a word,
    as in `a/1_mask.png`, if a quarter of the files have such names; else empty."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for image in images:
        stem = posixpath.splitext(image)[0]
        word = re.search(r"([ _.-][a-zA-Z]+)?$", stem)
        end = word[0] if word else ""
        found[end][stem.removesuffix(end)] = image
    for end, files in sorted(found.items(), reverse=True):
        others = {base for other, bases in found.items() if other != end for base in bases}
        if end and 1 < len(shared := files.keys() & others) >= len(images) / 4:
            return files[min(shared)]
    return ""


def fold_name(name: str) -> str:
    """Returns a name without case, spaces around it and differences in Unicode form."""
    return normalize("NFC", name).casefold().strip()
