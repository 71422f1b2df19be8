"""Drafts of pipelines, and the commented YAML that they are written as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from infeed.shared.printable import printable
from infeed_server.config.document import flow
from infeed_server.starter.csv_tables import has_label_word
from infeed_server.starter.listing import role
from infeed_server.starter.looks import FLIP, ImageLook, has_places, normalize, step
from infeed_server.storage.files import abbreviate

_DEFAULT_BATCH = 64
_SHUFFLE = {"seed": 0}


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
    """What a user must know: shown on the terminal, and comments of the pipeline."""
    label: str = ""
    classes: Sequence[str] = ()
    examples: Sequence[str] = ()
    """Labels of some samples."""
    shuffle: dict[str, Any] = field(default_factory=_SHUFFLE.copy)
    """The options of the order, if it is for training."""
    transforms: list[str] = field(default_factory=list)
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
        if about.startswith("1 to ") and kind.startswith("int") and has_label_word(name):
            self.notes.append(f"{name} begins with 1; most losses count classes from 0")

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

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Notes that fields are not served."""
        self.notes += [f"left out: {name}: {reason}" for name, reason in reasons.items()]

    def lines(self, name: str) -> Iterator[str]:
        """Yields the lines below the key `pipelines`."""
        # The usual size, or for little data a power of two that fits.
        size = min(_DEFAULT_BATCH, 1 << max(self.samples, 1).bit_length() - 1)
        batch = {"size": size} if self.is_for_training else {"size": size, "remainder": "pad"}
        about = [f"{self.count} samples", *(f"{n}: {text}" for n, text in self.fields.items())]
        about += [f"label: {self.label}"] * bool(self.label) + self.notes
        about += [f"classes: {', '.join(self.classes)}"] * bool(self.classes)
        yield f"  {flow(name)}:"
        yield from (f"    # {printable(' '.join(text.split()))}" for text in about)
        yield "    source:"
        for key, value in self.source.items():
            yield f"      {key}:" + ("" if isinstance(value, dict) else f" {flow(value)}")
            if isinstance(value, dict):
                yield from (f"        {flow(k)}: {flow(v)}" for k, v in value.items())
        if self.is_for_training:
            yield f"    shuffle: {flow(self.shuffle)}  # another order in each epoch; any number"
        if self.transforms:
            yield "    transforms:"
            yield from (f"      {text}" for text in self.transforms)
        yield f"    batch: {flow(batch)}  # for each rank; a trainer may choose another size"
        about_bad = printable(self.bad) or "or mask; by default a bad sample ends the feed"
        yield f"    {'' if self.bad else '# '}on_error: substitute  # {about_bad}"


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
        lines = [
            f"# Written by: {printable(command)}",
            f"# Next: {printable(f'infeed check {file} --scan, then infeed serve {file}')}",
            "pipelines:",
        ]
        lines += [line for name, draft in self.drafts.items() for line in draft.lines(name)]
        return "\n".join(lines) + "\n"

    def table(self) -> Table:
        """Returns what was understood of the data."""
        table = Table("pipeline", "samples", "fields", box=box.SIMPLE_HEAD)
        has_labels = any(draft.label for draft in self.drafts.values())
        for title in ("label", "classes", "examples") if has_labels else ():
            table.add_column(title, no_wrap=title == "examples")
        for name, draft in self.drafts.items():
            cells = [[name], [draft.count]]
            cells.append([f"{field}: {text}" for field, text in draft.fields.items()])
            if has_labels:
                classes = [f"{number} {text}" for number, text in enumerate(draft.classes)]
                shown = f"{len(classes)}: {abbreviate(classes)}" if classes else ""
                cells += [[draft.label], [shown], [*draft.examples]]
            table.add_row(*(Text("\n".join(map(printable, cell))) for cell in cells))
        return table

    def notes(self) -> list[str]:
        """Returns what else a user must know, each with the pipelines that it is of."""
        names: dict[str, list[str]] = {}
        for name, draft in self.drafts.items():
            for note in draft.notes:
                names.setdefault(note, []).append(name)
        return [printable(f"{abbreviate(found)}: {note}") for note, found in names.items()]


def array_steps(
    draft: Draft, field: str, kind: str, shape: Sequence[int], fields: Iterable[str]
) -> list[str]:
    """Returns the lines of transforms for a field of arrays of a data type and shape."""
    if kind == "float64" and shape:
        about = "half the bytes; most models compute in float32"
        return [step("cast", about, field=field, dtype="float32")]
    if kind != "uint8" or len(shape) < 2:
        return []
    flip = draft.is_for_training and len(shape) == 3 and shape[-1] in (1, 3, 4)
    flip = flip and not any(map(has_places, fields))
    return [step("random_flip_left_right", FLIP, field=field)] * flip + [normalize(field)]


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
