"""A stub of TensorFlow, since importing the real one takes most of the tool's time.

The tables need the options of transforms and sources, not their graphs. Modules use TensorFlow at
import for type aliases and constants only; whatever they name, the stub has.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

STUBBED = ("tensorflow",)
"""Frameworks that adapters import and whose import takes seconds."""

ShardingPolicy = Enum("ShardingPolicy", ["OFF", "DYNAMIC", "FILE", "DATA", "FILE_OR_DATA", "HINT"])
"""Its members are listed at import, so this one has to be real."""


class _Stub(ModuleType):
    def __getattr__(self, name: str) -> MagicMock:
        # The names that the import system looks for must be missing; `tf.__internal__` is public.
        if name.startswith("__") and name != "__internal__":
            raise AttributeError(name)
        value = MagicMock(name=name)
        value.experimental.service.ShardingPolicy = ShardingPolicy
        value.experimental.PythonState = object  # a base class
        setattr(self, name, value)
        return value


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - of the interface
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        is_stubbed = fullname.partition(".")[0] in STUBBED
        return ModuleSpec(fullname, self, is_package=True) if is_stubbed else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: a stub is complete when it is created."""


def stub_tensorflow() -> None:
    """Makes every later `import tensorflow` return a stub, in this process."""
    if "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
