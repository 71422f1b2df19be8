"""The choice of a column of labels among the CSVs of a folder of images; nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import ImageListing
from infeed_server.starter.draft import WRITTEN_LABELS, Place, listed
from infeed_server.starter.label_table import ImageTable, LabelTable, match_table

FOLDERS, NONE = "folders", "none"


class UnclearLabelsError(SourceError):
    """Several columns could be the label, or one that is not certain to be.

    `options` has the values of `--labels`, each with a description.
    """

    def __init__(self, message: str, options: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.options = options


@dataclass(frozen=True)
class LabelOption:
    """The value of `--labels`: a column of a CSV, or one of two words."""

    word: str = ""
    """`folders`, `none`, or empty for a file."""
    file: Path = Path()
    column: str = ""
    """Empty: the only one, or that with the word of a label."""

    @classmethod
    def parse(cls, text: str) -> LabelOption:
        """Raises `SourceError` for a file that does not exist."""
        if text in (FOLDERS, NONE):
            return cls(text)
        if Path(text).is_file():
            return cls("", Path(text).absolute())
        file, _, column = text.rpartition(":")
        if not Path(file).is_file():
            problem = "no regular file" if Path(text).exists() else "no such file"
            raise SourceError(
                f"--labels {text}: {problem}; give a CSV, CSV:COLUMN, {FOLDERS} or {NONE}",
                file=text,
            )
        return cls("", Path(file).absolute(), column)


@dataclass(frozen=True)
class Part:
    """A folder of images: a part of the folder that was given, or the whole of it."""

    whole: ImageListing
    listing: ImageListing
    prefix: str = ""
    """The path of the part below the whole, with a slash at its end."""

    def csv_files(self) -> list[Path]:
        """Returns the CSVs in the folders and beside them, but not those that `init` wrote."""
        whole, part = Path(self.whole.root), Path(self.listing.root)
        found = [
            *(file for folder in {part, whole} for file in sorted(folder.glob("*.csv"))),
            *sorted(whole.parent.glob("*.csv")),
        ]
        return [file for file in found if not file.name.endswith(WRITTEN_LABELS)]

    def tables(self, file: Path, *, chosen: bool = False) -> ImageTable | None:
        """Matches a CSV with the images: those of the whole, unless it is in the part's folder."""
        is_inside = file.is_relative_to(self.listing.root)
        return match_table(file, self.listing if is_inside else self.whole, chosen=chosen)

    def labels(self, table: ImageTable, column: str) -> LabelTable:
        """Returns the labels of the part's images, by path below its folder."""
        found = table.labels(column)
        if not self.prefix or table.file.is_relative_to(self.listing.root):
            return found
        names = {name: text for name, text in found.labels.items() if name.startswith(self.prefix)}
        labels = {name.removeprefix(self.prefix): text for name, text in names.items()}
        return replace(found, labels=labels, is_direct=False)


@dataclass(frozen=True)
class Candidate:
    """A column that could be the label of a part's images."""

    part: Part
    table: ImageTable
    column: str
    labels: LabelTable

    def is_clear(self) -> bool:
        """Returns whether the column is the label without doubt: it says so, and each image has one
        label. A CSV beside the folder must be of these images alone."""
        labels = self.labels.labels
        is_inside = self.table.file.is_relative_to(self.part.whole.root)
        return (
            self.table.says_label(self.column)
            and len(labels) == len(self.part.listing.images)
            and len(set(labels.values())) > 1
            and not self.labels.contradicted
            and (is_inside or not self.labels.unknown_rows)
        )

    def option(self) -> tuple[str, str]:
        """Returns the value of `--labels` that chooses it, and its description."""
        labels = self.labels.labels
        values = list(dict.fromkeys(labels.values()))
        text = (
            f"{len(values)} different values for {len(labels)} of {len(self.part.listing.images)}"
        )
        shown = listed([value[:20] for value in values], 3)
        return f"{Place(Path.cwd()).path(self.table.file)}:{self.column}", f"{text} images: {shown}"


def find_labels(part: Part, notes: list[str]) -> Candidate | None:
    """Returns the column that is clearly the label; None if no CSV names the images.

    Appends why a CSV in the folder is not used. Raises `UnclearLabelsError` for any other case.
    """
    candidates: list[Candidate] = []
    for file in part.csv_files():
        reason = "no column names images below this folder"
        try:
            table = part.tables(file)
            if table is not None and not table.names_enough(part.listing):
                table = None
        except SourceError as error:  # a file of something else
            table, reason = None, str(error)
        found = [] if table is None else [*_candidates(part, table, table.label_columns())]
        candidates += found
        if not found and file.is_relative_to(part.whole.root):
            if table is not None:
                reason = "all images have the same values"
            notes.append(f"{file.name} is not used: {reason}")
    clear = [each for each in candidates if each.is_clear()]
    if len(clear) == 1:
        return clear[0]
    if candidates:
        raise _unclear(part, candidates)
    return None


def chosen_labels(part: Part, option: LabelOption) -> Candidate | None:
    """Returns the column that an option names; None if it has no label for the part's images.

    Raises `SourceError` for a CSV without images or without the column, and `UnclearLabelsError`
    for one of several columns.
    """
    table = part.tables(option.file, chosen=True)
    if table is None:
        if part.prefix:
            return None
        raise SourceError(
            f"--labels {option.file}: no column names images below {part.listing.root!r}, which "
            f"are named like {part.listing.images[0].path!r}",
            file=option.file,
        )
    if option.column and option.column not in table.columns:
        raise SourceError(
            f"--labels: no column {option.column!r} in {option.file}; it has: "
            f"{', '.join(table.columns)}",
            file=option.file,
        )
    columns = [option.column] if option.column else table.label_columns()
    columns = [each for each in columns if table.says_label(each)] or columns
    if len(columns) != 1:
        raise _unclear(part, [*_candidates(part, table, table.label_columns())])
    return next(_candidates(part, table, columns), None)


def _candidates(part: Part, table: ImageTable, columns: Sequence[str]) -> Iterator[Candidate]:
    for column in columns:
        labels = part.labels(table, column)
        if labels.labels:
            yield Candidate(part, table, column, labels)


def _unclear(part: Part, candidates: Sequence[Candidate]) -> UnclearLabelsError:
    options = [each.option() for each in candidates]
    return UnclearLabelsError(
        f"{part.listing.root}: it is not clear which column is the label, if any; choose it",
        [*options, (NONE, "images without labels")],
    )
