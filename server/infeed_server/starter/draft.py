"""Drafts of pipelines, and the YAML and the table that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import yaml
from rich import box
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable
from infeed_server.starter.listing import role
from infeed_server.starter.looks import ImageLook, array_steps
from infeed_server.storage.files import abbreviate

_DEFAULT_BATCH = 64
_LOOKED_AT = 8
"""Samples of an array of pixels whose values are counted."""
_MAX_CLASSES = 32
"""Values in them up to which an array is taken for a mask: pixels of photos have more."""


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
    files: dict[str, str] = field(default_factory=dict)
    """Name → content of files that are written beside the pipelines."""

    @property
    def count(self) -> str:
        return f"{self.samples:,}" if self.is_counted else f"{self.samples:,} or more"

    @property
    def is_for_training(self) -> bool:
        """Whether the data is shuffled and augmented."""
        return role(self.name) in ("", "train")

    def add(self, name: str, kind: str, values: Sequence[Any], others: Sequence[str]) -> None:
        """Adds a field of some values, with the transforms for images; `others` are all fields."""
        look = None
        if len(values) and all(isinstance(value, bytes) for value in values):
            look = ImageLook.at(values)
            look = look if look and len(look.sizes) == len(values) else None
        about = str(look or _describe(values)) if len(values) else ""
        self.fields[name] = f"{kind}, {about}" if about else kind
        if look:
            self.add_image(name, look, others)

    def add_image(self, name: str, look: ImageLook, others: Sequence[str]) -> None:
        """Adds the transforms for the first field of images."""
        if look.undecoded:
            self.notes.append(
                f"{name} has images in {look.undecoded}, which decode_image does not read; decode "
                "them by a map with python: true, for example with Pillow"
            )
        elif not self.transforms:
            others = [other for other in others if other != name]
            self.transforms = look.steps(name, others, is_for_training=self.is_for_training)

    def add_array(self, name: str, array: np.ndarray[Any, Any], others: Sequence[str]) -> None:
        """Adds a field of an array, the first dimension of which counts the samples."""
        kind = "bytes" if array.dtype.kind in "SU" else array.dtype.name
        values: Any = array if array.ndim == 1 and kind != "bytes" else ()
        self.add(name, f"{kind}[{', '.join(map(str, array.shape[1:]))}]", values, others)
        if kind != "uint8" or array.ndim < 3:
            return
        values = np.unique(array[:_LOOKED_AT])
        if 0 < len(values) <= _MAX_CLASSES:
            self.notes.append(
                f"{name}: {len(values)} values up to {values[-1]}, as of a mask: kept as they are; "
                "if they are pixels, add normalize"
            )
        else:
            is_image = array.ndim == 4 and array.shape[-1] in (1, 3, 4)
            can_flip = self.is_for_training and is_image
            self.transforms += array_steps(name, others if can_flip else None)

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Notes that fields are not served."""
        self.notes += [f"left out: {name}: {reason}" for name, reason in reasons.items()]

    def definition(self) -> dict[str, Any]:
        """Returns the pipeline as the file has it."""
        # The usual size, or for little data a power of two that fits.
        size = min(_DEFAULT_BATCH, 1 << max(self.samples, 1).bit_length() - 1)
        found: dict[str, Any] = {"source": self.source}
        found |= {"shuffle": self.shuffle} if self.is_for_training else {}
        found |= {"transforms": self.transforms} if self.transforms else {}
        found["batch"] = {"size": size} | ({} if self.is_for_training else {"remainder": "pad"})
        return found | ({"on_error": "substitute"} if self.bad else {})


@dataclass(frozen=True)
class Starter:
    """A starter file: its pipelines, and files that are written beside it."""

    drafts: dict[str, Draft]
    """Name → pipeline."""

    @classmethod
    def of(cls, drafts: Sequence[Draft]) -> Starter:
        """Returns a starter; pipelines of one name are numbered."""
        names = [draft.name for draft in drafts]
        counts = [names[: number + 1].count(name) for number, name in enumerate(names)]
        named = [f"{n}-{count}" if count > 1 else n for n, count in zip(names, counts, strict=True)]
        return cls(dict(zip(named, drafts, strict=True)))

    @property
    def files(self) -> dict[str, str]:
        """Name → content."""
        return {name: text for draft in self.drafts.values() for name, text in draft.files.items()}

    def text(self, command: str, file: str) -> str:
        """Returns the YAML of the file; `command` is the one that makes it."""
        next_steps = f"infeed check {file} --scan, then infeed serve {file}"
        about = [f"Written by: {command}", f"Next: {next_steps}", *self.notes()]
        found = {name: draft.definition() for name, draft in self.drafts.items()}
        text = yaml.safe_dump(
            {"pipelines": found},
            sort_keys=False,
            default_flow_style=None,
            width=1000,
            allow_unicode=True,
        )
        return "".join(f"# {printable(' '.join(line.split()))}\n" for line in about) + text

    def table(self) -> Table:
        """Returns what was understood of the data."""
        table = Table("pipeline", "samples", "fields", box=box.SIMPLE_HEAD)
        has_labels = any(draft.label for draft in self.drafts.values())
        for title in ("label", "classes", "examples") if has_labels else ():
            table.add_column(title, no_wrap=title == "examples")
        for name, draft in self.drafts.items():
            classes = [f"{number} {text}" for number, text in enumerate(draft.classes)]
            cells = [[name], [draft.count], [": ".join(item) for item in draft.fields.items()]]
            cells += [[draft.label], [f"{len(classes)}: {abbreviate(classes)}"] * bool(classes)]
            cells = [*cells, [*draft.examples]][: len(table.columns)]
            table.add_row(*(Text("\n".join(map(printable, cell))) for cell in cells))
        return table

    def notes(self) -> list[str]:
        """Returns what else a user must know, each with the pipelines that it is of."""
        names: dict[str, list[str]] = {}
        for name, draft in self.drafts.items():
            for note in [*draft.notes, draft.bad] if draft.bad else draft.notes:
                names.setdefault(note, []).append(name)
        return [printable(f"{abbreviate(found)}: {note}") for note, found in names.items()]


def _describe(values: Sequence[Any]) -> str:
    """Returns a text about some values of a field."""
    if not all(isinstance(value, bytes) for value in values):
        is_array = isinstance(values, np.ndarray)
        numbers = np.asarray(values) if is_array else np.concatenate([*map(np.ravel, values)])
        return f"{numbers.min():g} to {numbers.max():g}" if numbers.dtype.kind in "biuf" else ""
    with suppress(UnicodeDecodeError):
        texts = sorted({value.decode() for value in values})
        if all(map(str.isprintable, texts)):
            return "text: " + abbreviate([text[:20] for text in texts], 3)
    lengths = sorted(map(len, values))
    return f"{lengths[0]} to {lengths[-1]} bytes"
