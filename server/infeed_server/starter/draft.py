"""Drafts of pipelines, and the commented YAML that they are written as."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from infeed.shared.printable import printable

WRITTEN_LABELS = "-labels.infeed.csv"
"""The end of the name of a CSV of labels that `init` writes, so that it is not taken for one of the
user's, nor one of the user's for it."""

WRITTEN_MODULE = "Written by infeed init."
"""Part of a Python module that `init` writes."""

_DEFAULT_BATCH = 64
_EVALUATION = ("val", "valid", "validation", "test", "eval", "dev")
"""Words in the name of a part of the data that is not for training."""


@dataclass(frozen=True)
class Line:
    """A line of YAML with its comment; a line without code is a comment alone."""

    code: str
    comment: str = ""

    def __str__(self) -> str:
        comment = f"# {printable(' '.join(self.comment.split()))}" if self.comment else ""
        return f"{self.code}  {comment}" if self.code and comment else self.code or comment


@dataclass
class PipelineDraft:
    """A pipeline for some data: what it is, and what is suggested for it."""

    name: str
    about: list[str]
    """Comments about the data."""
    source: list[Line]
    """The lines below `source:`."""
    samples: int
    transforms: list[Line] = field(default_factory=list)
    """The items of `transforms:`, and comments between them."""
    on_error: str = ""
    """Why bad samples are expected; empty if they are not."""
    shuffle: str = "{seed: 0}"
    """The options of the order, if it is for training."""
    label: str = ""
    """What was taken as the label, for the terminal and a comment; empty where nothing was."""

    @property
    def for_training(self) -> bool:
        return is_for_training(self.name)

    def lines(self, suffix: str) -> Iterator[str]:
        """Yields the lines below the key `pipelines`; the name gets a suffix."""
        yield f"  {flow(self.name + suffix)}:"
        about = [*self.about, *([self.label] if self.label else [])]
        yield from (f"    {Line('', text)}" for text in about)
        yield "    source:"
        yield from (f"      {line}" for line in self.source)
        if self.for_training:
            yield f"    shuffle: {self.shuffle}  # another order in each epoch; any number"
        if any(line.code for line in self.transforms):
            yield "    transforms:"
        for line in self.transforms:
            yield f"      - {line}" if line.code else f"      {line}"
        size = batch_size(self.samples)
        options = {"size": size} if self.for_training else {"size": size, "remainder": "pad"}
        yield f"    batch: {flow(options)}  # for each rank; a trainer may choose another size"
        if self.on_error:
            yield f"    on_error: substitute  # {self.on_error}"
        else:
            yield "    # on_error: substitute  # or mask; by default a bad sample ends the feed"


@dataclass(frozen=True)
class Starter:
    """A starter file: its pipelines, and files that are written beside it."""

    pipelines: Sequence[PipelineDraft]
    files: dict[str, str] = field(default_factory=dict)
    """Name → content."""

    def text(self, command: str, file: str) -> str:
        """Returns the YAML of the file; `command` is the one that makes it."""
        lines = [
            f"# Written by: {printable(command)}",
            f"# Next: {printable(f'infeed check {file} --scan, then infeed serve {file}')}",
            "pipelines:",
        ]
        names: Counter[str] = Counter()
        for pipeline in self.pipelines:
            names[pipeline.name] += 1
            number = names[pipeline.name]
            lines += pipeline.lines(f"-{number}" if number > 1 else "")
        return "\n".join(lines) + "\n"

    def label_lines(self) -> list[str]:
        """Returns what was taken as the label of each pipeline of images."""
        named = [each for each in self.pipelines if each.label]
        return [printable(f"{each.name}: {each.label}") for each in named]


@dataclass(frozen=True)
class Place:
    """The folder of the starter file, from which its paths are relative."""

    folder: Path

    def path(self, path: Path | str) -> str:
        """Returns a path as the file names it: absolute where it is far away."""
        absolute = os.path.abspath(path)  # noqa: PTH100 - links are kept
        relative = os.path.relpath(absolute, self.folder.absolute())
        return absolute if relative.startswith("../../..") else relative


def flow(value: Any) -> str:
    """Returns a value as YAML in one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, width=1 << 20, allow_unicode=True
    )
    return text.removesuffix("...\n").strip()


def step(name: str, comment: str = "", **options: Any) -> Line:
    """Returns the line of a transform."""
    return Line(f"{name}: {flow(options)}", comment)


def batch_size(samples: int) -> int:
    """Returns the suggested size: the usual one, or for little data a power of two that fits."""
    return min(_DEFAULT_BATCH, 1 << max(samples, 1).bit_length() - 1)


def is_for_training(name: str) -> bool:
    """Returns whether data of this name is shuffled and augmented."""
    return not any(word in _EVALUATION for word in re.split(r"[^a-z]+", name.lower()))


def pipeline_name(*parts: str) -> str:
    """Returns a name of letters, digits and dashes, made of parts of a path."""
    words = [re.sub(r"[^\w]+", "-", part).strip("-_") for part in parts]
    return "-".join(word for word in words if word) or "data"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Returns the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
