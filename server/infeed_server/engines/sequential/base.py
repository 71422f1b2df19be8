"""The backend interface of sequential engines: datasets that yield elements front to back."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from infeed.shared.errors import InfeedError
from infeed.shared.spec import PipelineSpec
from infeed.shared.spec.dataset import DatasetRequest, RegisteredDataset
from infeed_server.engines.sequential.window import Block, ReadKey


class DatasetBackend(Protocol):
    """A dataset that can be read from its beginning, any number of times concurrently."""

    @property
    def spec(self) -> PipelineSpec:
        """The spec of the pipeline."""

    @property
    def elements_are_batches(self) -> bool:
        """Whether each element is one position, sent to the trainer as it is."""

    @property
    def supports_jobs(self) -> bool:
        """Whether several readers can share a job, by its name."""

    def read(self, key: ReadKey, caller: str) -> Generator[Block, None, None]:
        """Yields the elements of one read, and may block for each; `close` releases everything.

        `caller` is the name that limits on callers count by.
        """

    def check_first_block(self, key: ReadKey, block: Block) -> None:
        """Checks the first block of a read. Raises `SourceError` where it cannot be right."""

    def translate_error(self, error: Exception) -> InfeedError | None:
        """Returns the error for the trainer; None where the cause is unknown."""

    def register(self, request: DatasetRequest, caller: str) -> RegisteredDataset:
        """Registers the dataset as `Engine.register` does."""
