"""Imports of TensorFlow: without garbage collection, which would take a second, without its banner,
or deferred."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_TENSORFLOW = "tensorflow"

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""TensorFlow's environment variable. With "0", its banner is shown."""


@contextmanager
def without_gc() -> Iterator[None]:
    """Disables garbage collection within the block, and exempts the objects it leaves for good.

    TensorFlow's modules are a million objects that live as long as the process. The collector
    would traverse all of them several times during the import, and again later.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Imports TensorFlow in the block, quickly, and discards standard error: TensorFlow writes a
    banner to it before it reads its log level."""
    with without_gc():
        has_stderr = sys.__stderr__ is not None
        if is_tensorflow_loaded() or os.environ.get(LOG_LEVEL) == "0" or not has_stderr:
            yield
            return
        stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def defer_tensorflow() -> None:
    """Makes `import tensorflow` return a module that loads TensorFlow when it is first used.

    For commands that need definitions, and graphs only later or not at all: modules of definitions
    use nothing of TensorFlow at import. One that imports a submodule, such as another package's,
    loads TensorFlow. Does nothing where TensorFlow is imported already.
    """
    if _TENSORFLOW not in sys.modules:
        sys.modules[_TENSORFLOW] = deferred = _DeferredTensorFlow(_TENSORFLOW)
        deferred.__path__ = []  # a package, whose submodules `_Submodules` finds
        sys.meta_path.insert(0, _Submodules())


def load_tensorflow() -> None:
    """Loads TensorFlow, deferred or not."""
    module = sys.modules.get(_TENSORFLOW)
    if isinstance(module, _DeferredTensorFlow):
        module.load()
    else:
        with loading_tensorflow():
            importlib.import_module(_TENSORFLOW)


def is_tensorflow_loaded() -> bool:
    """Returns whether TensorFlow is imported, and not deferred."""
    module = sys.modules.get(_TENSORFLOW)
    return module is not None and not isinstance(module, _DeferredTensorFlow)


class _DeferredTensorFlow(ModuleType):
    """Stands for TensorFlow in the modules that imported it, even after it is loaded."""

    _lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        # Tools that go through all modules look for such names.
        if name.startswith("__") and name not in ("__internal__", "__version__"):
            raise AttributeError(f"module {_TENSORFLOW!r} has no attribute {name!r}")
        value = getattr(self.load(), name)
        setattr(self, name, value)
        return value

    def load(self) -> ModuleType:
        """Returns TensorFlow itself."""
        with self._lock:
            if sys.modules.get(_TENSORFLOW) is self:
                del sys.modules[_TENSORFLOW]
                with loading_tensorflow():
                    return importlib.import_module(_TENSORFLOW)
        return sys.modules[_TENSORFLOW]


class _Submodules(MetaPathFinder, Loader):
    """Loads deferred TensorFlow where a submodule of it is imported first."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        is_deferred = isinstance(sys.modules.get(_TENSORFLOW), _DeferredTensorFlow)
        if is_deferred and fullname.startswith(f"{_TENSORFLOW}."):
            return ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        load_tensorflow()
        module = importlib.import_module(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives the module, which is executed, its own spec back."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
