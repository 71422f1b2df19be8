"""Starters for images: class folders, one flat folder, or a CSV of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from infeed.errors import SourceError
from infeed_server.sources.images.listing import ImageListing, list_images
from infeed_server.starter.draft import (
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
from infeed_server.starter.label_table import (
    LabelTable,
    is_integer,
    labels_csv,
    match_table,
    read_table,
)

_PARTS = ("train", "training", "val", "valid", "validation", "test", "eval", "dev")
"""Names of folders that are parts of a data set, not classes."""
_OTHER_FORMATS = (".avif", ".bmp", ".gif", ".heic", ".tif", ".tiff", ".webp")
"""Endings of images that the source does not list."""


def images_starter(folder: Path, place: Place) -> Starter:
    """Returns a starter for a folder of images. Raises `SourceError`."""
    listing = list_images(str(folder))
    parts = [name for name in listing.folders if name.lower() in _PARTS]
    if parts and all(image.path.partition("/")[0] in parts for image in listing.images):
        classes = _classes_of_parts(folder, parts)
        starters = [
            _one_folder(folder / part, place, (folder.name, part), classes) for part in parts
        ]
        files = {name: text for starter in starters for name, text in starter.files.items()}
        return Starter([draft for each in starters for draft in each.pipelines], files)
    return _one_folder(folder, place, (folder.name,))


def csv_starter(file: Path, place: Place) -> Starter:
    """Returns a starter for a CSV of labels, whose images are beside it. Raises `SourceError`."""
    table = read_table(file)
    folders = [file.parent, *sorted(path for path in file.parent.iterdir() if path.is_dir())]
    matches = []
    for folder in folders:
        try:
            listing = list_images(str(folder))
        except SourceError:  # no image in it
            continue
        matched = match_table(table, [image.path for image in listing.images])
        if matched is not None:
            matches.append((matched.is_direct, len(matched.labels), listing, matched))
    if not matches:
        first = ", ".join(table.rows[0]) if table.rows else ""
        raise SourceError(
            f"{file}: no column names images below {str(file.parent)!r}; the first line is "
            f"{first!r}; a CSV of labels has the columns file,label, and lies beside the images "
            "or their folder",
            file=file,
        )
    _, _, listing, matched = max(matches, key=lambda match: match[:2])
    name = pipeline_name(Path(listing.root).name)
    return _with_labels(name, listing, file, matched, place)


def _classes_of_parts(folder: Path, parts: Sequence[str]) -> Sequence[str]:
    """Returns the class folders of all parts together, if one part lacks some; otherwise none."""
    folders = [list_images(str(folder / part)).folders for part in parts]
    union = sorted({name for each in folders for name in each})
    return union if any(list(each) != union for each in folders) else []


def _one_folder(
    folder: Path, place: Place, name_parts: Sequence[str], classes: Sequence[str] = ()
) -> Starter:
    """Returns the starter of a folder; `classes` are numbered instead of its own folders."""
    listing = list_images(str(folder))
    name = pipeline_name(*name_parts)
    beside = sorted(folder.glob("*.csv"))
    unused = []
    for file in [*beside, *sorted(folder.parent.glob("*.csv"))]:
        table, reason = _labels_in(file, listing)
        if table is not None:
            return _with_labels(name, listing, file, table, place, is_part=len(name_parts) > 1)
        if file in beside:
            unused.append(f"{file.name} is not used: {reason}")
    draft = _draft(name, listing, place)
    draft.about += unused
    stray = [image.path for image in listing.images if "/" not in image.path]
    counts = Counter(image.path.partition("/")[0] for image in listing.images)
    files = {}
    if stray or len(counts) < 2:
        if listing.folders and stray:
            draft.about.append(
                f"no label by folder: {len(stray)} images are in none, such as {stray[0]}; move "
                "them, and write labels: folders"
            )
        draft.source.append(
            Line("", "labels: labels.csv, with the columns file,label; no labels were found")
        )
        return Starter([draft])
    if classes:
        path = f"{name}-labels.csv"
        files[path] = labels_csv(
            {image.path: classes.index(image.path.partition("/")[0]) for image in listing.images}
        )
        draft.about.append(f"the parts have different folders; {path} has the same number for each")
        draft.source.append(Line(f"labels: {flow(path)}", "columns file,label"))
    else:
        draft.source.append(Line("labels: folders", "label: the number of the folder, sorted"))
    low, high = min(counts.values()), max(counts.values())
    shown = listed(_numbered(classes or listing.folders))
    draft.about.append(f"{len(counts)} classes of {low} to {high}: {shown}")
    return Starter([draft], files)


def _labels_in(file: Path, listing: ImageListing) -> tuple[LabelTable | None, str]:
    """Returns the labels of a CSV; or None, and why it has none."""
    try:
        table = match_table(read_table(file), [image.path for image in listing.images])
    except SourceError as error:  # a file of something else
        return None, str(error)
    return table, "no column names images below this folder"


def _with_labels(
    name: str,
    listing: ImageListing,
    file: Path,
    table: LabelTable,
    place: Place,
    *,
    is_part: bool = False,
) -> Starter:
    draft = _draft(name, listing, place)
    # Each part would number the classes that it has, and one may lack some.
    classes = None if is_part else table.classes()
    labels: Mapping[str, str | int] = table.labels
    if classes:
        numbers = {text: number for number, text in enumerate(classes)}
        labels = {image: numbers[text] for image, text in table.labels.items()}
    values = _numbered(classes or ()) or sorted(set(table.labels.values()), key=_natural)
    draft.about.append(f"{len(values)} different labels in {file.name}: {listed(values)}")
    draft.about += _notes(file, table)
    if is_part and table.classes():
        draft.about.append("the labels are text: number the classes alike in all parts")
    files = {}
    path = place.path(file)
    if classes or not table.is_direct:
        path = f"{name}-labels.csv"
        files[path] = labels_csv(labels)
        draft.about.append(f"{path} was made from {file.name}, with the columns file,label")
    draft.source.append(Line(f"labels: {flow(path)}", "columns file,label"))
    if table.has_fractions():
        draft.transforms.append(step("string_to_number", "the CSV has text", field="label"))
    missing = len(listing.images) - len(table.labels)
    if missing:
        draft.on_error = f"{missing} images have no label; others take their places"
    return Starter([draft], files)


def _notes(file: Path, table: LabelTable) -> Iterator[str]:
    """Yields what was decided about a CSV, and what was left out."""
    if table.other_columns:
        yield (
            f"label is the column {table.column} of {file.name}; not used: "
            f"{listed(table.other_columns)}"
        )
    if table.unknown_rows:
        yield f"left out: {table.unknown_rows} rows of {file.name} without an image"
    if table.empty_rows:
        yield f"left out: {table.empty_rows} rows of {file.name} without a label"
    if table.contradicted:
        yield (
            f"rows of {file.name} with another label than an earlier one of the image are left "
            f"out, of {listed(table.contradicted)}"
        )


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
    """Returns a key that sorts numbers by value."""
    return (int(label), "") if is_integer(label) else (0, label)
