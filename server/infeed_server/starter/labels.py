"""Labels of images from the columns of CSVs; nothing is guessed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import ImageListing
from infeed_server.starter.draft import WRITTEN_LABELS, listed, relative
from infeed_server.starter.label_table import LabelTable, has_label_word

FOLDERS, NONE = "folders", "none"


class UnclearLabelsError(SourceError):
    """Several columns could be the label, or one that is not certain to be.

    `options` has the values of `--labels`, each with a description.
    """

    def __init__(self, part: Part, candidates: Sequence[Candidate]) -> None:
        super().__init__(
            f"{part.listing.root}: it is not clear which column is the label, if any; choose it"
        )
        self.options = [
            *(candidate.option() for candidate in candidates),
            (NONE, "images without labels"),
        ]


@dataclass(frozen=True)
class Part:
    """A folder of images: a part of the folder that was given, or the whole of it."""

    whole: ImageListing
    listing: ImageListing
    prefix: str = ""
    """The path of the part below the whole, with a slash at its end."""

    def csv_files(self) -> list[Path]:
        """Returns the CSVs in the folders and beside them, but not those that `init` wrote."""
        whole = Path(self.whole.root)
        folders = [*dict.fromkeys([whole, Path(self.listing.root)]), whole.parent]
        found = [file for folder in folders for file in sorted(folder.glob("*.csv"))]
        return [file for file in found if not file.name.endswith(WRITTEN_LABELS)]


@dataclass(frozen=True)
class Candidate:
    """A column that could be the label of a part's images."""

    part: Part
    table: LabelTable
    column: str
    labels: Mapping[str, str]
    """The label of each image, by its path below the part's folder."""
    contradicted: Sequence[str]
    """Images that a later row gives another label."""

    @classmethod
    def of(cls, part: Part, table: LabelTable, column: str) -> Candidate:
        """Returns a column of a CSV."""
        prefix = "" if table.file.is_relative_to(part.listing.root) else part.prefix
        labels: dict[str, str] = {}
        contradicted = []
        for image, row in zip(table.images, table.rows, strict=True):
            if image and row[column] and image.startswith(prefix):
                label = labels.setdefault(image.removeprefix(prefix), row[column])
                contradicted += [image] if label != row[column] else []
        return cls(part, table, column, labels, contradicted)

    def is_clear(self) -> bool:
        """Returns whether the column is the label without doubt.

        It says so, and each image has one label. A CSV beside the folder must be of these alone.
        """
        is_inside = self.table.file.is_relative_to(self.part.whole.root)
        return (
            has_label_word(self.column)
            and len(self.labels) == len(self.part.listing.images)
            and len(set(self.labels.values())) > 1
            and not self.contradicted
            and (is_inside or None not in self.table.images)
        )

    def classes(self) -> list[str]:
        """Returns the classes that text names, sorted; none for numbers and for free text."""
        names = sorted(set(self.labels.values()))
        is_free = len(names) * 2 > len(self.labels)
        return [] if is_free or all(map(is_number, names)) else names

    def option(self) -> tuple[str, str]:
        """Returns the value of `--labels` that chooses it, and its description."""
        values = list(dict.fromkeys(self.labels.values()))
        images = f"{len(self.labels)} of {len(self.part.listing.images)} images"
        shown = listed([value[:20] for value in values], 3)
        name = relative(self.table.file, Path.cwd())
        return f"{name}:{self.column}", f"{len(values)} different values for {images}: {shown}"

    def notes(self) -> Iterator[str]:
        """Yields what is left out of the CSV."""
        name = self.table.file.name
        pairs = zip(self.table.images, self.table.rows, strict=True)
        empty = sum(image is not None and not row[self.column] for image, row in pairs)
        unknown = self.table.images.count(None)
        for count, without in ((unknown, "an image"), (empty, "a label")):
            if count:
                yield f"left out: {count} row{'s' * (count > 1)} of {name} without {without}"
        if self.contradicted:
            yield (
                f"rows of {name} with another label than an earlier one of the image are left out, "
                f"of {listed(self.contradicted)}"
            )


def find_labels(part: Part, notes: list[str]) -> Candidate | None:
    """Returns the column that is clearly the label; None if no CSV names the images.

    Appends why a CSV in the folder is not used. Raises `UnclearLabelsError` for any other case.
    """
    candidates: list[Candidate] = []
    for file in part.csv_files():
        reason = "no column names images below this folder"
        found: list[Candidate] = []
        try:
            if (columns := match_labels(file, part)) is not None:
                reason, found = "all images have the same values", columns
        except SourceError as error:  # a file of something else
            reason = str(error)
        candidates += found
        if not found and file.is_relative_to(part.whole.root):
            notes.append(f"{file.name} is not used: {reason}")
    clear = [candidate for candidate in candidates if candidate.is_clear()]
    if len(clear) == 1:
        return clear[0]
    if candidates:
        raise UnclearLabelsError(part, candidates)
    return None


def chosen_labels(part: Part, option: str) -> Candidate | None:
    """Returns the column that `--labels` names; None if it has no label for the part's images.

    Raises `SourceError` for a CSV without images or without the column, and `UnclearLabelsError`
    for one of several columns.
    """
    file, _, column = (option, "", "") if Path(option).is_file() else option.rpartition(":")
    if not Path(file).is_file():
        problem = "no regular file" if Path(option).exists() else "no such file"
        raise SourceError(
            f"--labels {option}: {problem}; give a CSV, CSV:COLUMN, {FOLDERS} or {NONE}",
            file=option,
        )
    path = Path(file).absolute()
    found = match_labels(path, part, column, chosen=True)
    if found is None:
        raise SourceError(
            f"--labels {file}: no column names images below {part.listing.root!r}, which are "
            f"named like {part.listing.images[0].path!r}",
            file=file,
        )
    named = [candidate for candidate in found if has_label_word(candidate.column)]
    chosen = found if column or len(named) != 1 else named
    if len(chosen) > 1:
        raise UnclearLabelsError(part, found)
    return chosen[0] if chosen else None


def match_labels(
    file: Path, part: Part, column: str = "", *, chosen: bool = False
) -> list[Candidate] | None:
    """Returns the columns of a CSV whose values differ, or one of them; None for another table.

    A CSV in the part's folder names the part's images, another one the images of the whole.
    Raises `SourceError` for a file that is no CSV, and for a column that it does not have.
    """
    is_of_part = file.is_relative_to(part.listing.root)
    table = LabelTable.read(file, part.listing if is_of_part else part.whole, chosen=chosen)
    if table is None:
        return None
    if column and column not in table.label_columns:
        raise SourceError(
            f"--labels: no column {column!r} in {file}; it has: {', '.join(table.label_columns)}",
            file=file,
        )
    columns = [column] if column else filter(table.differs, table.label_columns)
    found = [Candidate.of(part, table, column) for column in columns]
    return [candidate for candidate in found if candidate.labels]


def labels_csv(labels: Mapping[str, str | int]) -> str:
    """Returns labels by image as the source `images` reads them."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("file", "label"), *sorted(labels.items())])
    return out.getvalue()


def is_number(text: str) -> bool:
    """Returns whether a label is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
