"""Keeping what the steps before made of each sample."""

from __future__ import annotations

from typing import Any, ClassVar

from typing_extensions import override

from infeed_server.transforms.base import Key, Sample, Transform
from infeed_server.transforms.options import Positive


class Cache(Transform):
    """A mark in the list: the server keeps each sample as it is here, in up to `limit_mb` MiB.

    It changes nothing itself; `infeed_server.pipeline` cuts the list at it.
    """

    name: ClassVar[str] = "cache"

    limit_mb: Positive = 4096

    @override
    def apply(self, sample: Sample, key: Key) -> Sample:
        return sample

    @override
    def fields(self) -> set[str] | None:
        return set()

    @override
    def identity(self) -> dict[str, Any]:
        # The limit changes no bits, so servers that differ in it stay interchangeable. The mark
        # itself counts: it moves the ordinals, and with them the keys, of the steps behind it.
        return {self.name: {}}
