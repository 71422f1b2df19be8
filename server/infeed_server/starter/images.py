"""Starters for images: class folders, one flat folder, or a CSV of labels."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from infeed.shared.errors import SourceError
from infeed_server.sources.images.listing import ImageListing, list_images
from infeed_server.starter.draft import (
    WRITTEN_LABELS,
    Line,
    PipelineDraft,
    Place,
    Starter,
    flow,
    is_for_training,
    listed,
    pipeline_name,
    step,
)
from infeed_server.starter.image_look import ImageLook, spread
from infeed_server.starter.label_choice import (
    FOLDERS,
    Candidate,
    LabelOption,
    Part,
    chosen_labels,
    find_labels,
)
from infeed_server.starter.label_table import (
    is_integer,
    labels_csv,
    match_table,
    read_rows,
)

_PARTS = ("train", "training", "val", "valid", "validation", "test", "eval", "dev")
"""Names of folders that are parts of a data set, not classes."""
_MAX_DIGITS = 18
_OTHER_FORMATS = (".avif", ".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp")
"""Endings of images that the source does not list."""


def images_starter(folder: Path, place: Place, option: LabelOption | None = None) -> Starter:
    """Returns a starter for a folder of images, with the labels of the option if there is one.

    Raises `SourceError`, and `UnclearLabelsError` where the label must be chosen.
    """
    listing = list_images(str(folder))
    parts = [name for name in listing.folders if name.lower() in _PARTS]
    if not parts or any(image.path.partition("/")[0] not in parts for image in listing.images):
        classes = _classes_of_parts([folder, *_other_parts(folder)])
        return _one_folder(folder.name, Part(listing, listing), place, option, classes)
    classes = _classes_of_parts([folder / part for part in parts])
    starters = [
        _one_folder(
            pipeline_name(folder.name, part),
            Part(listing, list_images(str(folder / part)), f"{part}/"),
            *(place, option, classes),
        )
        for part in parts
    ]
    files = {name: text for starter in starters for name, text in starter.files.items()}
    return Starter([draft for each in starters for draft in each.pipelines], files)


def csv_starter(file: Path, place: Place, option: LabelOption | None = None) -> Starter:
    """Returns a starter for a CSV of labels, whose images are beside it. Raises `SourceError`."""
    matches = []
    for folder in [file.parent, *sorted(path for path in file.parent.iterdir() if path.is_dir())]:
        try:
            listing = list_images(str(folder))
        except SourceError:  # no image in it
            continue
        table = match_table(file, listing)
        # Numbers of a table of something else can be names of some images.
        if table is not None and table.names_enough(listing):
            matches.append((table.named_by_path(), table.named(), folder))
    if not matches:
        raise _csv_without_images(file)
    best = max(match[:2] for match in matches)
    folders = [folder for *rank, folder in matches if tuple(rank) == best]
    # The folder of the CSV comes first; it holds the images of the others, each name once.
    if len(folders) > 1 and folders[0] != file.parent:
        shown = shlex.quote(str(file))
        raise SourceError(
            f"{file}: its images can be those below {listed([str(each) for each in folders])}; "
            f"give the folder: infeed init {shlex.quote(str(folders[0]))} --labels {shown}",
            file=file,
        )
    return images_starter(folders[0], place, option or LabelOption("", file))


def _csv_without_images(file: Path) -> SourceError:
    rows, _ = read_rows(file)
    first = ", ".join(rows[0]) if rows else ""
    return SourceError(
        f"{file}: no column names images below {str(file.parent)!r}; the first line is {first!r}. "
        "Give the folder of the images: infeed init FOLDER --labels "
        f"{shlex.quote(str(file))}; if the CSV is the data, save its columns as arrays, and give "
        "their file: np.savez('data.npz', **{name: df[name].to_numpy() for name in df}) with "
        "df = pandas.read_csv(...)",
        file=file,
    )


def _other_parts(folder: Path) -> list[Path]:
    """Returns the parts beside a folder that is one itself."""
    if folder.name.lower() not in _PARTS:
        return []
    beside = (path for path in sorted(folder.parent.iterdir()) if path.name.lower() in _PARTS)
    return [path for path in beside if path.is_dir() and path != folder]


def _classes_of_parts(folders: Sequence[Path]) -> Sequence[str]:
    """Returns the class folders of all parts together, if one part lacks some; otherwise none.

    A part without folders has no labels, and does not count.
    """
    names = []
    for folder in folders:
        try:
            names.append(list_images(str(folder)).folders)
        except SourceError:  # no image in it
            continue
    union = sorted({name for each in names for name in each})
    return union if any(each and list(each) != union for each in names) else []


def _one_folder(
    name: str, part: Part, place: Place, option: LabelOption | None, classes: Sequence[str]
) -> Starter:
    """Returns the starter of a folder; `classes` are numbered instead of its own folders."""
    name = pipeline_name(name)
    stray = [image.path for image in part.listing.images if "/" not in image.path]
    counts = Counter(image.path.partition("/")[0] for image in part.listing.images)
    names = classes or part.listing.folders
    has_classes = not stray and len(classes or counts) > 1
    wants_folders = option is not None and option.word == FOLDERS
    if wants_folders and (stray or not names):
        raise SourceError(
            f"--labels {FOLDERS}: {len(stray)} images below {part.listing.root!r} are in no class "
            f"folder, such as {stray[0]}; move them",
            file=part.listing.root,
        )
    if wants_folders or (option is None and has_classes):
        return _with_folders(name, part, place, names)
    notes: list[str] = []
    found = None
    if option is None:
        found = find_labels(part, notes)
    elif not option.word:
        found = chosen_labels(part, option)
    if found is not None:
        return _with_labels(name, found, place)
    draft = _draft(name, part.listing, place)
    draft.about += notes
    if part.listing.folders and stray:
        draft.about.append(
            f"no label by folder: {len(stray)} images are in none, such as {stray[0]}; move them, "
            "and write labels: folders"
        )
    draft.label = "no label was found" if option is None else "no label"
    draft.source.append(Line("", "labels: labels.csv, with the columns file,label"))
    return Starter([draft])


def _with_folders(name: str, part: Part, place: Place, classes: Sequence[str]) -> Starter:
    draft = _draft(name, part.listing, place)
    folders = {image.path: image.path.partition("/")[0] for image in part.listing.images}
    files = {}
    if list(classes) != list(part.listing.folders):
        path = f"{name}{WRITTEN_LABELS}"
        files[path] = labels_csv({image: classes.index(each) for image, each in folders.items()})
        draft.about.append(f"another part has more class folders; {path} has the same numbers")
        draft.source.append(Line(f"labels: {flow(path)}", "columns file,label"))
    else:
        draft.source.append(Line("labels: folders", "label: the number of the folder, sorted"))
    sizes = sorted(set(Counter(folders.values()).values()))
    of = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    first, folder = next(iter(folders.items()))
    draft.label = (
        f"label is the class folder: {len(classes)} classes, in each folder {of} "
        f"images: {listed(_numbered(classes))}; {first} has {classes.index(folder)}"
    )
    draft.about += [
        f"{file.name} is not used; for its labels: --labels {Place(Path.cwd()).path(file)}"
        for file in part.csv_files()
        if file.is_relative_to(part.whole.root)
    ]
    return Starter([draft], files)


def _with_labels(name: str, found: Candidate, place: Place) -> Starter:
    part, table = found.part, found.labels
    draft = _draft(name, part.listing, place)
    # Each part would number the classes that it has, and one may lack some.
    classes = None if part.prefix else table.classes()
    labels: Mapping[str, str | int] = table.labels
    if classes:
        numbers = {text: number for number, text in enumerate(classes)}
        labels = {image: numbers[text] for image, text in table.labels.items()}
    values = _numbered(classes or ()) or sorted(set(table.labels.values()), key=_natural)
    file = found.table.file
    column = f"column {found.column} of {file.name}"
    first, label = next(iter(labels.items()))
    draft.label = (
        f"label is the {column}: {len(values)} different values: "
        f"{listed([value[:40] for value in values])}; {first} has {str(label)[:40]}"
    )
    draft.about += _notes(found)
    if part.prefix and table.classes():
        draft.about.append("the labels are text: number the classes alike in all parts")
    files = {}
    path = place.path(file)
    if classes or not table.is_direct:
        path = f"{name}{WRITTEN_LABELS}"
        files[path] = labels_csv(labels)
        draft.about.append(f"{path} was made from {file.name}, with the columns file,label")
    draft.source.append(Line(f"labels: {flow(path)}", "columns file,label"))
    if table.has_fractions():
        draft.transforms.append(step("string_to_number", "the CSV has text", field="label"))
    missing = len(part.listing.images) - len(table.labels)
    if missing:
        draft.on_error = f"{missing} images have no label; others take their places"
    return Starter([draft], files)


def _notes(found: Candidate) -> Iterator[str]:
    """Yields what was left out of a CSV."""
    name, table = found.table.file.name, found.labels
    file_column = found.table.columns[found.table.file_column]
    others = [each for each in found.table.columns if each not in (found.column, file_column)]
    if others:
        yield f"not used of {name}: {listed(others)}"
    if table.unknown_rows:
        yield f"left out: {_count(table.unknown_rows, 'row')} of {name} without an image"
    if table.empty_rows:
        yield f"left out: {_count(table.empty_rows, 'row')} of {name} without a label"
    if table.contradicted:
        yield (
            f"rows of {name} with another label than an earlier one of the image are left out, of "
            f"{listed(table.contradicted)}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _numbered(classes: Sequence[str]) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(classes)]


def _draft(name: str, listing: ImageListing, place: Place) -> PipelineDraft:
    paths = [f"{listing.root}/{image.path}" for image in listing.images]
    chosen = [paths[index] for index in spread(len(paths))]
    look = ImageLook.at(chosen)
    if look is None:
        raise SourceError(
            f"{listing.root!r}: none of {len(chosen)} images can be opened, such as {chosen[0]}",
            file=listing.root,
        )
    about = [f"{len(paths)} images; of {len(chosen)} looked at: {look.describe()}"]
    if damaged := len(chosen) - len(look.sizes):
        about.append(f"of these, {damaged} cannot be opened: infeed check --scan names all")
    others = Counter(path.suffix.lower() for path in Path(listing.root).rglob("*.*"))
    if left := [f"{others[ending]} {ending}" for ending in _OTHER_FORMATS if others[ending]]:
        about.append(f"left out: {', '.join(left)}; convert them to JPEG or PNG")
    source = [Line(f"images: {flow(place.path(listing.root))}")]
    transforms = look.transforms("image", training=is_for_training(name))
    return PipelineDraft(name, about, source, len(paths), transforms)


def _natural(label: str) -> tuple[int, str]:
    """Returns a key that sorts numbers of a usual size by value."""
    is_number = is_integer(label) and len(label) <= _MAX_DIGITS
    return (int(label), "") if is_number else (0, label)
