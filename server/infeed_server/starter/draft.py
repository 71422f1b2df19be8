"""Drafts of pipelines, and the YAML and the table that show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from rich import box
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable
from infeed_server.starter.listing import role
from infeed_server.starter.looks import (
    ImageLook,
    are_pixels,
    describe,
    has_places,
    pixel_steps,
)
from infeed_server.storage.files import abbreviate

_DEFAULT_BATCH = 64


@dataclass
class Draft:
    """A pipeline for some data: what was understood of it, and what is suggested for it."""

    name: str
    source: dict[str, Any]
    """The keys below `source`."""
    samples: int
    is_counted: bool = True
    """Whether there are no more samples than those; else these were looked at."""
    fields: dict[str, str] = field(default_factory=dict)
    """Name → type, and what the values are."""
    notes: list[str] = field(default_factory=list)
    """What a user must know: shown on the terminal, and comments of the file."""
    label: str = ""
    classes: Sequence[str] = ()
    examples: Sequence[str] = ()
    """Labels of some samples."""
    shuffle: dict[str, Any] = field(default_factory=lambda: {"seed": 0})
    """The options of the order, if it is for training."""
    transforms: list[dict[str, Any]] = field(default_factory=list)
    bad: str = ""
    """Why bad samples are expected; empty if they are not."""
    remove: str = ""
    """The file that lists the samples to leave out, if there are any."""
    files: dict[str, str] = field(default_factory=dict)
    """Name → content of files that are written beside the pipelines."""

    @property
    def is_for_training(self) -> bool:
        """Whether the data is shuffled and augmented."""
        return role(self.name) in ("", "train")

    def add(self, fields: Mapping[str, tuple[str, Any]]) -> None:
        """Adds fields: their types, and some values, of which images get transforms."""
        for name, (kind, values) in fields.items():
            others = fields.keys() - {name}
            is_bytes = len(values) > 0 and all(isinstance(value, bytes) for value in values)
            look = ImageLook.at(values) if is_bytes else None
            if look and len(look.sizes) == len(values):
                self.add_image(name, kind, look, others)
                continue
            self.fields[name] = ", ".join(filter(None, (kind, describe(values))))
            if are_pixels(values):
                is_image = np.ndim(values) == 4 and np.shape(values)[-1] in (1, 3, 4)
                can_flip = is_image and self.is_for_training and not has_places(others)
                self.transforms += pixel_steps(name, can_flip=can_flip)

    def add_image(self, name: str, kind: str, look: ImageLook, others: Iterable[str]) -> None:
        """Adds a field of encoded images, with transforms for the first one."""
        self.fields[name] = ", ".join(filter(None, (kind, str(look))))
        if look.undecoded:
            self.notes.append(
                f"{name} has images in {look.undecoded}, which decode_image does not read; decode "
                "them by a map with python: true, for example with Pillow"
            )
        elif not self.transforms:
            self.transforms = look.steps(name, others, is_for_training=self.is_for_training)

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Notes that fields are not served."""
        self.notes += [f"left out: {name}: {reason}" for name, reason in reasons.items()]

    def definition(self) -> dict[str, Any]:
        """Returns the pipeline as the file has it."""
        # The usual size, or for little data a power of two that fits.
        size = min(_DEFAULT_BATCH, 1 << max(self.samples, 1).bit_length() - 1)
        found: dict[str, Any] = {"source": self.source}
        found |= {"remove": {"samples": self.remove, "then": "shrink"}} if self.remove else {}
        found |= {"shuffle": self.shuffle} if self.is_for_training else {}
        found |= {"transforms": self.transforms} if self.transforms else {}
        found["batch"] = {"size": size} | ({} if self.is_for_training else {"remainder": "pad"})
        # In an evaluation, another sample would count twice.
        on_error = "substitute" if self.is_for_training else "mask"
        return found | ({"on_error": on_error} if self.bad else {})

    def all_notes(self) -> Iterator[str]:
        """Yields the notes, and what the fields make necessary elsewhere."""
        yield from self.notes
        if self.bad:
            instead = "others take their places" if self.is_for_training else "they are masked"
            yield f"{self.bad}: {instead}; see infeed check --max-bad"
        images = [options["field"] for step in self.transforms for options in step.values()]
        names = {**dict(zip(("image",), images, strict=False)), "label": "NAME"}
        lacking = {new: old for new, old in names.items() if new not in self.fields}
        if lacking and len(self.fields) > 1:
            pairs = ", ".join(f"{old}: {new}" for new, old in lacking.items())
            rename = f"- rename: {{fields: {{{pairs}}}}}"
            yield f"programs in the docs take {' and '.join(lacking)}; to name fields so: {rename}"


@dataclass(frozen=True)
class Starter:
    """A starter file: its pipelines, and files that are written beside it."""

    drafts: dict[str, Draft]
    """Name → pipeline."""
    about: Sequence[str]
    """What a user must know of the whole."""

    @classmethod
    def of(cls, drafts: Sequence[Draft], about: Sequence[str]) -> Starter:
        """Returns a starter; pipelines of one name are numbered."""
        named: dict[str, Draft] = {}
        for draft in drafts:
            number = 1 + sum(other.name == draft.name for other in named.values())
            named[f"{draft.name}-{number}" if number > 1 else draft.name] = draft
        return cls(named, about)

    @property
    def files(self) -> dict[str, str]:
        """Name → content."""
        return {name: text for draft in self.drafts.values() for name, text in draft.files.items()}

    def check(self, file: str) -> str:
        """Returns the command that checks the file."""
        return f"infeed check {file} --scan"

    def text(self, command: str, file: str) -> str:
        """Returns the YAML of the file; `command` is the one that makes it."""
        next_steps = f"{self.check(file)}, then infeed serve {file}"
        about = [f"Written by: {command}", f"Next: {next_steps}", *self.notes()]
        found = {name: draft.definition() for name, draft in self.drafts.items()}
        form: dict[str, Any] = {"default_flow_style": None, "width": 1000, "allow_unicode": True}
        text = str(yaml.safe_dump({"pipelines": found}, sort_keys=False, **form))
        return "".join(f"# {printable(' '.join(line.split()))}\n" for line in about) + text

    def table(self) -> Table:
        """Returns what was understood of the data."""
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
        """Returns what else a user must know, each with the pipelines that it is of."""
        names: dict[str, list[str]] = {}
        for name, draft in self.drafts.items():
            for note in draft.all_notes():
                names.setdefault(note, []).append(name)
        own = [f"{abbreviate(found)}: {note}" for note, found in names.items()]
        return [printable(note) for note in (*own, *self.about)]
