"""The `cache` marker: where in the list samples are kept in memory."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from infeed_server.sources.base import Sample
from infeed_server.transforms.base import Key, Transform
from infeed_server.transforms.option_types import Positive


class Cache(Transform):
    """Keeps the samples in memory, as the transforms before it make them.

    It changes no sample; `infeed_server.pipeline` splits the list here.

    Result: types and shapes kept.
    """

    name: ClassVar[str] = "cache"

    limit_mb: Positive = 4096
    """Memory for all samples, in MiB, checked at start."""

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        return sample

    @override
    def fields(self) -> set[str] | None:
        return set()

    @override
    def identity(self) -> dict[str, Any]:
        # The limit changes no bits, so servers that differ in it stay interchangeable. The marker
        # itself counts: it shifts the ordinals, and with them the keys, of the steps after it.
        return {self.name: {}}
