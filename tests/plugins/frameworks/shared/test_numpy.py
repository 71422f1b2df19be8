"""Tests of the contract with the feed itself, which every adapter is compared with."""

from __future__ import annotations

from typing import Any

from tests.plugins.frameworks.shared.contract import AdapterContract

import infeed


class TestContract(AdapterContract):
    names_fields = False

    def open(self, transport: Any, **options: Any) -> Any:
        if isinstance(transport, str):
            return infeed.connect(transport, "fake", **options)
        return infeed.connect("fake", "fake", transport=transport, **options)
