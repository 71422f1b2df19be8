"""Drafts of pipelines, and the commented YAML that they are written as."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infeed.shared.errors import SourceError
from infeed.shared.printable import printable
from infeed_server.config.document import flow
from infeed_server.starter.paths import DataPath
from infeed_server.storage.files import is_remote

WRITTEN_LABELS = "-labels.infeed.csv"
"""The end of the name of a CSV of labels that `init` writes, so that it is not taken for one of the
user's, nor one of the user's for it."""

_DEFAULT_BATCH = 64
_SHUFFLE = "{seed: 0}"
_EVALUATION = {"val", "valid", "validation", "test", "eval", "dev"}
"""Words in the name of a part of the data that is not for training."""


class UnclearError(SourceError):
    """An option must be chosen. `choices` has its values, each with a description."""

    def __init__(self, message: str, option: str, choices: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.option, self.choices = option, choices


@dataclass
class Draft:
    """A pipeline for some data: what it is, and what is suggested for it."""

    name: str
    about: list[str]
    """Comments about the data."""
    source: list[str]
    """The lines below `source:`."""
    samples: int
    transforms: list[str] = field(default_factory=list)
    """The lines below `transforms:`."""
    on_error: str = ""
    """Why bad samples are expected; empty if they are not."""
    shuffle: str = _SHUFFLE
    """The options of the order, if it is for training."""
    label: str = ""
    """What was taken as the label, for the terminal and a comment; empty where nothing was."""
    files: dict[str, str] = field(default_factory=dict)
    """Name → content of files that are written beside the pipelines."""

    @property
    def is_for_training(self) -> bool:
        """Whether the data is shuffled and augmented."""
        return _EVALUATION.isdisjoint(re.split(r"[^a-z]+", self.name.lower()))

    def shuffle_in_blocks(self) -> None:
        """Chooses an order whose reads of a store are few."""
        if self.is_for_training and self.shuffle == _SHUFFLE:
            self.shuffle = "{seed: 0, mode: window}"
            self.about.append("mode: window needs fewer requests to a store")

    def lines(self, suffix: str) -> Iterator[str]:
        """Yields the lines below the key `pipelines`; the name gets a suffix."""
        # The usual size, or for little data a power of two that fits.
        size = min(_DEFAULT_BATCH, 1 << max(self.samples, 1).bit_length() - 1)
        batch = {"size": size} if self.is_for_training else {"size": size, "remainder": "pad"}
        yield f"  {flow(self.name + suffix)}:"
        yield from (f"    {comment(text)}" for text in (*self.about, self.label) if text)
        yield "    source:"
        yield from (f"      {text}" for text in self.source)
        if self.is_for_training:
            yield f"    shuffle: {self.shuffle}  # another order in each epoch; any number"
        if self.transforms:
            yield "    transforms:"
        yield from (f"      {text}" for text in self.transforms)
        yield f"    batch: {flow(batch)}  # for each rank; a trainer may choose another size"
        if self.on_error:
            yield f"    on_error: substitute  # {self.on_error}"
        else:
            yield "    # on_error: substitute  # or mask; by default a bad sample ends the feed"


@dataclass(frozen=True)
class Starter:
    """A starter file: its pipelines, and files that are written beside it."""

    drafts: Sequence[Draft]

    @property
    def files(self) -> dict[str, str]:
        """Name → content."""
        return {name: text for draft in self.drafts for name, text in draft.files.items()}

    def text(self, command: str, file: str) -> str:
        """Returns the YAML of the file; `command` is the one that makes it."""
        lines = [
            f"# Written by: {printable(command)}",
            f"# Next: {printable(f'infeed check {file} --scan, then infeed serve {file}')}",
            "pipelines:",
        ]
        names: Counter[str] = Counter()
        for draft in self.drafts:
            names[draft.name] += 1
            number = names[draft.name]
            lines += draft.lines(f"-{number}" if number > 1 else "")
        return "\n".join(lines) + "\n"

    def label_lines(self) -> list[str]:
        """Returns what was taken as the label of each pipeline of images."""
        return [printable(f"{draft.name}: {draft.label}") for draft in self.drafts if draft.label]


def relative(path: DataPath | str, folder: Path) -> str:
    """Returns a path as a file in `folder` names it: absolute where it is far away or remote."""
    if is_remote(str(path)):
        return str(path)
    absolute = os.path.abspath(path)  # noqa: PTH100 - links are kept
    below = os.path.relpath(absolute, folder.absolute())
    return absolute if below.startswith("../../..") else below


def comment(text: str) -> str:
    """Returns a comment in one line, that controls no terminal; empty without a text."""
    return f"# {printable(' '.join(text.split()))}" if text else ""


def line(key: str, value: Any, about: str = "") -> str:
    """Returns the line of a key, with its comment."""
    return f"{flow(key)}: {flow(value)}  {comment(about)}".rstrip()


def step(name: str, about: str = "", **options: Any) -> str:
    """Returns the line of a transform."""
    return f"- {line(name, options, about)}"


def pipeline_name(text: str) -> str:
    """Returns a name of letters, digits and dashes, made of a path's."""
    return re.sub(r"[^\w]+", "-", text).strip("-_") or "data"
