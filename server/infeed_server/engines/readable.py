"""What a sequential engine reads: a dataset that gives its elements front to back."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from infeed.errors import InfeedError
from infeed.registered import DatasetRequest, RegisteredDataset
from infeed.spec import PipelineSpec
from infeed_server.engines.blocks import Block, Element, Kind


class Readable(Protocol):
    """A dataset that can be read from its beginning, any number of times at once."""

    @property
    def spec(self) -> PipelineSpec:
        """The pipeline that it is."""

    @property
    def whole(self) -> bool:
        """Whether each element is one position, and goes to the trainer as it is."""

    @property
    def shared(self) -> bool:
        """Whether a reading can take part in a job, among others, by its name."""

    def read(self, kind: Kind) -> Generator[Element, None, None]:
        """One reading; closing it lets go of everything. May wait long for an element."""

    def check_first(self, kind: Kind, first: Block) -> None:
        """Is shown with what a reading begins. Raises `SourceError` where it cannot be right."""

    def explain(self, error: Exception) -> InfeedError | None:
        """What a reading raised, as the trainer is to be told; None: it is nothing known."""

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        """As `Engine.register`."""


__all__ = ["Readable"]
