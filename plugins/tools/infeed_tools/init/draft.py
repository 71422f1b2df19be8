"""Drafts of pipelines, with the YAML and the table that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from rich import box
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable
from infeed_server.pipeline.removal_list import list_line
from infeed_server.storage.files import abbreviate
from infeed_tools.init.listing import role
from infeed_tools.init.looks import (
    ImageLook,
    are_pixels,
    choose_image,
    describe,
    is_array,
    is_one,
    may_have_places,
    pixel_steps,
)

_DEFAULT_BATCH = 64

REMOVED = "-without-label.infeed.txt"
"""The end of the name of a file that lists samples to leave out."""


@dataclass
class Draft:
    """A suggested pipeline for some data, with what was learned about the data."""

    name: str
    source: dict[str, Any]
    """The keys below `source`."""
    samples: int
    is_counted: bool = True
    """Whether `samples` counts all; if not, only those that were read."""
    fields: dict[str, str] = field(default_factory=dict)
    """Type and values of each field, by name."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, shown on the terminal and as comments in the file."""
    label: str = ""
    classes: Sequence[str] = ()
    examples: Sequence[str] = ()
    """Labels of some samples."""
    shuffle: dict[str, Any] = field(default_factory=lambda: {"seed": 0})
    """The options of the order, used for training."""
    transforms: list[dict[str, Any]] = field(default_factory=list)
    targets: dict[str, Any] = field(default_factory=dict)
    """Fields that move with the image."""
    bad: str = ""
    """Why bad samples are expected; empty if none are."""
    remove: str = ""
    """The file that lists the samples to leave out, if any."""
    files: dict[str, str] = field(default_factory=dict)
    """Contents of the files to write beside the pipelines, by name."""

    @property
    def is_for_training(self) -> bool:
        """Whether the data is shuffled and augmented."""
        return role(self.name) in ("", "train")

    def add(self, fields: Mapping[str, tuple[str, Any]]) -> None:
        """Adds fields, each a type and some values. The image among them gets transforms."""
        looks: dict[str, ImageLook] = {}
        pictures: dict[str, bool] = {}
        for name, (kind, values) in fields.items():
            if len(values) and not is_array(kind) and all(isinstance(v, bytes) for v in values):
                look = ImageLook.at(values)
                if len(look.sizes) == len(values):
                    looks[name], pictures[name] = look, look.is_grey
            elif are_pixels(values):
                pictures[name] = np.shape(values)[-1] not in (3, 4)
        image = choose_image(pictures)
        places = [n for n, field in fields.items() if n != image and may_have_places(n, *field)]
        for name, (kind, values) in fields.items():
            text = self._text(looks[name]) if name in looks else describe(values)
            self.fields[name] = ", ".join(filter(None, (kind, text)))
            if is_one(kind):
                self.notes.append(
                    f"{name} is an array of one number: in programs, use its ravel(), because == "
                    "would compare all with all; or write the data without this dimension"
                )
            if text == "-1 to -1":
                self.notes.append(f"{name} is -1 in all samples read, which may mean no label")
        if image in looks:
            self.add_image(image, fields[image][0], looks[image], places)
        elif image:
            shape = np.shape(fields[image][1])
            can_flip = len(shape) == 4 and shape[-1] in (1, 3, 4) and self.is_for_training
            self.transforms += pixel_steps(image, can_flip=can_flip and not places)
            self._note_places(image, places)
        if others := [name for name in pictures if name != image]:
            self.notes.append(
                f"{abbreviate(others)}: pictures that may be masks get no transforms; add "
                "decode_image and resize, with method: nearest for masks; for photos add normalize"
            )

    def add_image(self, name: str, kind: str, look: ImageLook, places: Sequence[str]) -> None:
        """Adds a field of encoded images, with transforms; `places` are fields that may hold places
        in the image."""
        self.fields[name] = ", ".join(filter(None, (kind, self._text(look))))
        if look.undecoded:
            self.notes.append(
                f"{name} has images in {look.undecoded}, which decode_image cannot read; decode "
                "them in a map with python: true, for example with Pillow"
            )
        else:
            self.transforms = look.steps(name, places, is_for_training=self.is_for_training)
        if places and look.exif:
            self.notes.append(
                f"exif: apply turns photos of {name}; if {abbreviate(places)} may have places in "
                "them as they are stored, write exif: ignore"
            )
        self._note_places(name, places)

    def _text(self, look: ImageLook) -> str:
        count = len(look.opened)
        return f"{look} ({count} read)" if count < self.samples else str(look)

    def _note_places(self, image: str, places: Sequence[str]) -> None:
        if places and self.is_for_training:
            self.notes.append(
                f"{image} gets no random crop or flip, because {abbreviate(places)} may hold "
                "places in it; a map with the key can move both"
            )

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Notes the fields that are not served."""
        self.notes += [f"left out: {name}: {reason}" for name, reason in reasons.items()]

    def leave_out_samples(self, samples: Sequence[str], what: str) -> None:
        """Removes samples, with a file beside the pipelines."""
        self.remove = f"{self.name}{REMOVED}"
        self.files[self.remove] = "".join(f"{list_line(sample)}\n" for sample in samples)
        self.notes.append(f"left out: {len(samples)} images {what}: {self.remove}")

    def definition(self) -> dict[str, Any]:
        """Returns the pipeline as written in the file."""
        # The usual size or, for little data, a power of two that fits.
        size = min(_DEFAULT_BATCH, 1 << max(self.samples, 1).bit_length() - 1)
        found: dict[str, Any] = {"source": self.source}
        found |= {"remove": {"samples": self.remove, "then": "shrink"}} if self.remove else {}
        found |= {"shuffle": self.shuffle} if self.is_for_training else {}
        found |= {"transforms": self.transforms} if self.transforms else {}
        found |= {"targets": self.targets} if self.targets else {}
        found["batch"] = {"size": size} | ({} if self.is_for_training else {"remainder": "pad"})
        # In an evaluation, a substitute would count twice.
        on_error = "substitute" if self.is_for_training else "mask"
        return found | ({"on_error": on_error} if self.bad else {})

    def all_notes(self) -> Iterator[str]:
        """Yields the notes, and those that follow from bad samples and the names of fields."""
        yield from self.notes
        if self.bad:
            instead = "others replace them" if self.is_for_training else "they are masked"
            yield f"{self.bad}: {instead}; see infeed check --max-bad"
        images = [options["field"] for step in self.transforms for options in step.values()]
        names = dict(zip(("image",), images, strict=False))
        names |= {} if self.targets else {"label": "NAME"}
        lacking = {new: old for new, old in names.items() if new not in self.fields}
        if lacking and len(self.fields) > 1:
            pairs = ", ".join(f"{old}: {new}" for new, old in lacking.items())
            rename = f"end the transforms with - rename: {{fields: {{{pairs}}}}}"
            yield f"the docs' programs use {' and '.join(lacking)}; for these names, {rename}"


@dataclass(frozen=True)
class Starter:
    """A starter file: its pipelines, and the files to write beside it."""

    drafts: dict[str, Draft]
    """The pipelines by name."""
    about: Sequence[str]
    """Notes about the whole."""

    @classmethod
    def of(cls, drafts: Sequence[Draft], about: Sequence[str]) -> Starter:
        """Returns a starter, which numbers pipelines of the same name."""
        named: dict[str, Draft] = {}
        for draft in drafts:
            number = 1 + sum(other.name == draft.name for other in named.values())
            named[f"{draft.name}-{number}" if number > 1 else draft.name] = draft
        return cls(named, about)

    @property
    def files(self) -> dict[str, str]:
        """Contents of the files by name."""
        return {name: text for draft in self.drafts.values() for name, text in draft.files.items()}

    def check(self, file: str) -> str:
        """Returns the command that checks the file."""
        return f"infeed check {file} --scan"

    def text(self, command: str, file: str) -> str:
        """Returns the YAML of the file, which names the `command` that writes it."""
        next_steps = f"{self.check(file)}, then infeed serve {file}"
        about = [f"Written by: {command}", f"Next: {next_steps}", *self.notes()]
        found = {name: draft.definition() for name, draft in self.drafts.items()}
        form: dict[str, Any] = {"default_flow_style": None, "width": 1000, "allow_unicode": True}
        text = str(yaml.safe_dump({"pipelines": found}, sort_keys=False, **form))
        return "".join(f"# {printable(' '.join(line.split()))}\n" for line in about) + text

    def table(self) -> Table:
        """Returns a table of what was learned about the data."""
        has_labels = any(draft.label for draft in self.drafts.values())
        titles = ["pipeline", "samples", "fields", *["label", "classes", "examples"] * has_labels]
        table = Table(*titles, box=box.SIMPLE_HEAD)
        table.columns[-1].no_wrap = has_labels
        for name, draft in self.drafts.items():
            classes = [f"{number} {text}" for number, text in enumerate(draft.classes)]
            cells = [[name], [f"{draft.samples:,}" + " or more" * (not draft.is_counted)]]
            cells += [[": ".join(item) for item in draft.fields.items()], [draft.label]]
            cells += [[f"{len(classes)}: {abbreviate(classes)}"] * bool(classes), [*draft.examples]]
            shown = ["\n".join(map(printable, cell)) for cell in cells[: len(titles)]]
            table.add_row(*map(Text, shown))
        return table

    def notes(self) -> list[str]:
        """Returns the notes, each with the pipelines that it concerns."""
        names: dict[str, list[str]] = {}
        for name, draft in self.drafts.items():
            for note in draft.all_notes():
                names.setdefault(note, []).append(name)
        own = [f"{abbreviate(found)}: {note}" for note, found in names.items()]
        return [printable(note) for note in (*own, *self.about)]
